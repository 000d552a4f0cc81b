"""The figures of a metrics line that are shown while a run works, and what they are."""

from __future__ import annotations

FIGURES = {
    "learns": "which network of the monitor is learned",
    "best": "highest return of this generation's candidates",
    "mean": "mean return of this generation's candidates",
    "return": "mean return of the episodes that were learned from, with their noise",
    "validation": "mean return of the newest policy in the validation episodes",
    "undone": "validation of this round's student, which unlearned, so that the best one continues",
    "failed": "episodes that failed and were left out",
    "validation_failed": "failed episodes of the validation",
    "note": "a search that began again, and why",
}


def explained(text: str | None, *names: str) -> str:
    """Return a command's help with what its progress line shows, by the names of the figures."""
    said = "; ".join(f"{name.replace('_', ' ')}: {FIGURES[name]}" for name in names)
    return (
        f"{(text or '').rstrip()}\n\n    While it works, a line shows the step, how many there are"
        f" and the time that is left. {said}. The run's metrics.jsonl has all figures.\n    "
    )
