"""Progress reports of a training run. The function that receives them can also stop the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True)
class RunProgress:
    """Progress report of a training run.

    Attributes:
        event: "begin" before the first step, "step" after each, "note" for a message to the user,
            "end" after the last step.
        unit: What one step of the run is called: generation, round, iteration, step, episode or
            row.
        done: Number of finished steps.
        steps: Number of steps of the whole run, as far as it can be known now.
        share: Finished share of the run, from 0 to 1.
        minutes_left: Processor time that the run may still use, in minutes; infinity if it has no
            time limit.
        figures: Metrics of the finished step, by name, as in metrics.jsonl.
        note: The message to the user, for the event "note".
        folder: The run's folder.
        part: The part that `learn` works on: teacher, student, monitor or table.
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
        """Return whether all steps are finished."""
        return self.done >= self.steps


OnProgress = Callable[[RunProgress], bool | None]
"""Function that receives each report; returning False after a step stops the run."""


class RunStoppedError(Exception):
    """Error that a training run was stopped by its caller. Repeating the call continues the run."""


def ignore_progress(progress: RunProgress) -> None:
    """Do nothing. Functions that report their progress call this if the caller wants no reports."""
