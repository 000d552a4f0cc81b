"""A diagnosis as a user reads it: rows of a table, sentences, and the corrected wiring."""

from __future__ import annotations

from typing import Any

from an_control.commissioning.doctor.diagnosis import Diagnosis
from an_control.commissioning.doctor.repair import Repair

SHOWN = 4
"""Names that a cell of the table lists."""


def rows(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """Return a row for each finding."""
    return [
        {
            "what": _names(one.members),
            "is wrong": one.text,
            "how sure": f"{one.certainty} ({one.log_odds:.0f} nats)",
            "would become": one.correction,
        }
        for one in diagnosis.findings
    ]


def problems(diagnosis: Diagnosis) -> list[str]:
    """Return a sentence for each finding, for the list of problems."""
    found = [f"doctor: {_names(one.members)} {one.text}" for one in diagnosis.findings]
    if diagnosis.findings and diagnosis.alternatives:
        others = "; ".join(diagnosis.alternatives)
        found.append(
            f"doctor: as likely as one of these: {others}: look before you change anything"
        )
    return found


def notes(diagnosis: Diagnosis, repair: Repair | None) -> list[str]:
    """Return what else there is to say."""
    said = [f"doctor: {note}" for note in diagnosis.notes]
    by_hint: dict[str, list[str]] = {}
    for name, hint in diagnosis.unseen.items():
        by_hint.setdefault(hint, []).append(name)
    for hint, names in by_hint.items():
        said.append(f"doctor: cannot be seen here: {', '.join(names)}: {hint}")
    if repair is not None:
        said += [f"doctor: not in the corrected file: {text}" for text in repair.left]
    return said


def _names(members: tuple[str, ...]) -> str:
    more = len(members) - SHOWN
    return ", ".join(members[:SHOWN]) + (f" and {more} more" if more > 0 else "")
