"""Present a diagnosis to a user: rows of a table and sentences."""

from __future__ import annotations

from typing import Any

from an_control.commissioning.doctor.diagnosis import Diagnosis
from an_control.commissioning.doctor.repair import Repair

SHOWN = 4
"""Maximum number of names in a cell of the table."""


def make_rows(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """Return one table row for each finding, with values by column name."""
    return [
        {
            "what": _format_names(one.members),
            "is wrong": one.text,
            "how sure": f"{one.certainty} ({one.log_odds:.0f} nats)",
            "would become": one.correction,
        }
        for one in diagnosis.findings
    ]


def list_problems(diagnosis: Diagnosis) -> list[str]:
    """Return one sentence for each finding, and one for equally likely alternatives."""
    found = [f"doctor: {_format_names(one.members)} {one.text}" for one in diagnosis.findings]
    if diagnosis.findings and diagnosis.alternatives:
        others = " or ".join(diagnosis.alternatives)
        found.append(
            f"doctor: as likely as a finding: {others}; inspect the robot before you change the"
            " wiring"
        )
    return found


def list_notes(diagnosis: Diagnosis, repair: Repair | None) -> list[str]:
    """Return the remarks of a diagnosis that are no findings, one sentence each.

    Args:
        diagnosis: The diagnosis.
        repair: The corrected file, None if there is none.
    """
    said = [f"doctor: {note}" for note in diagnosis.notes]
    by_hint: dict[str, list[str]] = {}
    for name, hint in diagnosis.unseen.items():
        by_hint.setdefault(hint, []).append(name)
    for hint, names in by_hint.items():
        said.append(f"doctor: not detectable in this recording: {', '.join(names)}: {hint}")
    if repair is not None:
        said += [f"doctor: not in the corrected file: {text}" for text in repair.left]
    return said


def _format_names(members: tuple[str, ...]) -> str:
    """Return names as a list, shortened after `SHOWN`."""
    more = len(members) - SHOWN
    return ", ".join(members[:SHOWN]) + (f" and {more} more" if more > 0 else "")
