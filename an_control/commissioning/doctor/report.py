"""Present a diagnosis to a user: rows of a table and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from an_control.commissioning.doctor.findings import Diagnosis, Unseen

SHOWN = 4
"""Maximum number of names in a cell of the table."""
WORDS = {
    "sign": "a wrong sign",
    "scale": "a factor of 2",
    "offset": "an offset",
    "delay": "a delay of a tick",
    "motor reversed": "a wrong sign",
    "motor dead": "no effect",
    "motor gain": "less than half of its effect",
}
"""Text for the user about each kind of mistake that could not be found."""


def make_finding_rows(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """Return one table row for each mistake that was found in a wiring, with values by column."""
    return [
        {
            "what": _format_names(one.members),
            "is wrong": one.text,
            "how sure": f"{one.certainty} ({one.log_odds:.0f} nats)",
            "would become": one.correction,
        }
        for one in diagnosis.findings
    ]


def list_found_mistakes(diagnosis: Diagnosis) -> list[str]:
    """Return one sentence for each mistake that was found in a wiring.

    If other mistakes explain the recording as well as one of these, a last sentence names them.
    """
    found = [f"doctor: {_format_names(one.members)} {one.text}" for one in diagnosis.findings]
    if diagnosis.findings and diagnosis.alternatives:
        others = " or ".join(diagnosis.alternatives)
        found.append(
            f"doctor: as likely as a finding: {others}; inspect the robot before you change the"
            " wiring"
        )
    return found


def list_diagnosis_notes(diagnosis: Diagnosis) -> list[str]:
    """Return what the user should know besides the mistakes that were found, one sentence each.

    These are the notes of the diagnosis, and the mistakes that could not be found.
    """
    unseen = [
        f"not detectable in this recording: {text}"
        for text in _describe_unseen_mistakes(diagnosis.unseen)
    ]
    return [f"doctor: {one}" for one in (*diagnosis.notes, *unseen)]


def _describe_unseen_mistakes(unseen: Sequence[Unseen]) -> list[str]:
    """Return sentences on the mistakes that could not be found in the recording.

    Each sentence names channels or motors, their possible mistakes, and the movement that would
    show these. Channels with equal mistakes and movement share a sentence; one sentence is for all
    exchanges.
    """
    kinds: dict[tuple[str, str], list[str]] = {}
    exchanged: dict[str, None] = {}
    for one in unseen:
        names = [f"motor {name}" if one.kind.startswith("motor") else name for name in one.members]
        if len(names) > 1:
            exchanged |= dict.fromkeys(names)
        else:
            kinds.setdefault((names[0], one.hint), []).append(WORDS.get(one.kind, one.kind))
    groups: dict[tuple[str, str], list[str]] = {}
    for (name, hint), mistakes in kinds.items():
        groups.setdefault((", ".join(mistakes), hint), []).append(name)
    found = [f"{', '.join(said)}: {words}: {hint}" for (words, hint), said in groups.items()]
    if exchanged:
        listed = ", ".join(exchanged)
        found.append(f"{listed}: exchanges of some of these: move the robot further in them")
    return found


def _format_names(members: tuple[str, ...]) -> str:
    """Return names joined by commas; after the first `SHOWN`, only how many more there are."""
    more = len(members) - SHOWN
    return ", ".join(members[:SHOWN]) + (f" and {more} more" if more > 0 else "")
