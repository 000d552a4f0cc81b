"""What a run reports to the function's caller, and how that stops it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True)
class Progress:
    """One report of a run.

    Attributes:
        event: "begin" before the first step, "step" after each, "note" with a sentence for the
            user, "end" after the last step.
        unit: what a step is called: generation, round, iteration, step, episode, row.
        done: steps that are done.
        steps: steps of the whole run, as far as it is known.
        share: how much of the run is over, from 0 to 1.
        minutes_left: processor time that the run may take yet, infinite without a limit.
        figures: of this step, as in metrics.jsonl.
        note: a sentence.
        folder: the run's.
        part: what `learn` works at: teacher, student, monitor or table.
    """

    event: Literal["begin", "step", "note", "end"]
    unit: str = ""
    done: int = 0
    steps: int = 0
    share: float = 0.0
    minutes_left: float = math.inf
    figures: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    folder: Path | None = None
    part: str = ""

    @property
    def finished(self) -> bool:
        """Whether no step is left."""
        return self.done >= self.steps


OnProgress = Callable[[Progress], bool | None]
"""Gets each report; False after a step stops the run there."""


class RunStopped(Exception):
    """The caller stopped the run; the same call continues it."""


def ignore(progress: Progress) -> None:
    """Take a report and do nothing."""
