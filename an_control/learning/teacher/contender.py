"""One way to learn a teacher: its algorithm, and how good its validations were."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from an_control.learning.teacher.actor import centred, folded
from an_control.learning.teacher.library import Library
from an_control.learning.teacher.settings import TeacherSettings
from an_control.learning.teacher.teachers import Layers, Teacher
from an_control_sim.gym.environments import make_environment
from an_control_sim.gym.units import Units

IMPROVEMENT = 0.01
"""What a validation must gain to count as better: this share of what was gained before."""


class Contender:
    """An algorithm with its environments; several of them may race."""

    def __init__(
        self,
        folder: Path,
        environment: str,
        units: Units,
        settings: TeacherSettings,
        seed: int,
        start: Teacher | None,
    ) -> None:
        envs = [make_environment(environment, units) for _ in range(settings.environments)]
        self.library = Library(folder, envs, settings, seed, start)
        self.settings = settings
        self.done = 0
        """Iterations."""
        self.best = -math.inf
        """Validation."""
        self.marked_at = 0
        """The step of the last validation that was clearly better than those before."""
        self._marked = -math.inf
        self._first: float | None = None

    @property
    def steps(self) -> int:
        """Of its environments."""
        return self.done * self.settings.iteration

    @property
    def noise(self) -> str:
        """What it explores by."""
        return "smooth" if self.settings.options.get("use_sde") else "independent"

    @property
    def stalled(self) -> bool:
        """Whether no validation was better for half of its steps."""
        patience = max(self.settings.patience, self.marked_at)
        return self.marked_at > 0 and self.steps - self.marked_at >= patience

    def learn(self) -> dict[str, Any]:
        """One iteration; its figures."""
        self.library.freeze_actor(self.done < self.settings.warm_up)
        line = self.library.learn()
        self.done += 1
        return line

    def actor(self, choices: Sequence[int], largest_logit: float) -> tuple[Layers, bool]:
        """The actor for observations as they are, and whether tanh squashes its output.

        Where actions are choices, logits as large as `largest_logit` fit in.
        """
        layers, squashed = self.library.actor()
        if choices:
            layers, squashed = centred(layers, choices, largest_logit), True
        return folded(layers, self.library.normalisation()), squashed

    def judge(self, validation: float) -> None:
        """Note a validation; one that is hardly better does not keep it going."""
        self.best = max(self.best, validation)
        if self._first is None:
            self._first = self._marked = validation
        gained = self._marked - self._first
        if not self.marked_at or validation > self._marked + IMPROVEMENT * gained:
            self._marked, self.marked_at = validation, self.steps

    def state(self) -> dict[str, Any]:
        """What `restore` continues from."""
        return {
            "library": self.library.state(),
            "done": self.done,
            "best": self.best,
            "marked": self._marked,
            "marked_at": self.marked_at,
            "first": self._first,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state of the same settings."""
        self.library.restore(state["library"])
        self.done, self.best, self._first = state["done"], state["best"], state["first"]
        self._marked, self.marked_at = state["marked"], state["marked_at"]

    def close(self) -> None:
        self.library.close()
