"""The comparison of memories (recurrent networks) on several tasks.

First each memory is trained with several settings drawn at random. Then the best of these draws is
used to train the memory on every task. A run that was stopped resumes, because each finished
training is a line of the folder's `metrics.jsonl`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from an_control.learning.runs.run_folder import RunFolder
from experiments.memory.tasks import MemoryTask, RepeatPrevious, TMaze
from experiments.memory.training import (
    MEMORIES,
    ComparedMemory,
    DrawnSettings,
    train_memory_network,
)

TrainingResult = Mapping[str, Any]


@dataclass(frozen=True)
class TrainingBudget:
    """The number and length of the trainings, equal for all compared memories (recurrent networks).

    Attributes:
        draws: The number of random settings that are tried for each memory, on the task
            RepeatPrevious Medium.
        draw_updates: The number of updates of each training with random settings.
        seeds: The number of trainings of each memory on each task, with the memory's best settings.
        updates: The number of updates of each training with the best settings.
        t_maze: The length of the T-maze's corridor.
    """

    draws: int = 12
    draw_updates: int = 150
    seeds: int = 3
    updates: int = 400
    t_maze: int = 1_500


def draw_random_training_settings(settings_index: int, seed: int) -> DrawnSettings:
    """Return random training settings, such as the learning rate, for an index and a seed."""
    return DrawnSettings.from_rng(np.random.default_rng([seed, settings_index]))


def find_best_random_settings_index(results: list[TrainingResult], memory: ComparedMemory) -> int:
    """Return the number of the random training settings with which a memory scored best.

    `draw_random_training_settings` draws the settings of that number again. Of equal scores, the
    one with the lowest loss is best.

    Args:
        results: The results of all trainings. Those of other memories, and those with other than
            random settings, are ignored.
        memory: The memory (recurrent network) whose trainings are compared.
    """
    own = [one for one in results if one["stage"] == "draw" and one["memory"] == memory.name]
    best = max(own, key=lambda one: (one["score"], -np.inf if one["diverged"] else -one["loss"]))
    return int(best["number"])


class MemoryComparison:
    """A comparison of memories (recurrent networks): its trainings, and their results in a folder.

    Args:
        folder: The folder of the results, from which an interrupted comparison continues.
        budget: The number and length of the trainings.
        seed: The seed of all random numbers.
    """

    def __init__(self, folder: RunFolder, budget: TrainingBudget, seed: int) -> None:
        self._folder, self._budget, self._seed = folder, budget, seed
        checkpoint = folder.load_checkpoint()
        done = 0 if checkpoint is None else checkpoint["done"]
        self.lines: list[TrainingResult] = list(folder.read_metrics_of_first_steps(done))
        """Results of the finished trainings."""

    @staticmethod
    def make_config(budget: TrainingBudget, seed: int) -> dict[str, Any]:
        """Return the settings of a comparison as a dict, to be stored in its folder."""
        return {"task": "memory", "seed": seed, "settings": asdict(budget)}

    @cached_property
    def tasks(self) -> tuple[MemoryTask, ...]:
        """The tasks of all networks; the second is also used to find the best settings."""
        levels = (RepeatPrevious(level) for level in ("Easy", "Medium", "Hard"))
        return *levels, TMaze(self._budget.t_maze)

    @property
    def training_count(self) -> int:
        """The total number of trainings."""
        budget = self._budget
        return len(MEMORIES) * (budget.draws + len(self.tasks) * budget.seeds)

    def run_trainings(self, report: Callable[[TrainingResult, int], object]) -> None:
        """Run all trainings of the comparison that are not done yet.

        After each, `report` is called with its result and the number of finished trainings.
        """
        with self._folder.lock():
            self._folder.write_settings_and_metrics(self.lines)
            while len(self.lines) < self.training_count:
                line = self._run_training(len(self.lines))
                self.lines.append(line)
                self._folder.append_metrics(line)
                self._folder.save_checkpoint({"done": len(self.lines)})
                report(line, len(self.lines))

    def _run_training(self, training_number: int) -> TrainingResult:
        """Run the training with this number and return its result.

        The lowest numbers are the trainings with random settings, sorted by draw and then memory.
        All further numbers are the trainings on each task, sorted by task, seed and memory.
        """
        budget, drawn = self._budget, len(MEMORIES) * self._budget.draws
        number, which = divmod(training_number, len(MEMORIES))
        memory, stage, task = MEMORIES[which], "draw", self.tasks[1]
        draw, updates = draw_random_training_settings(number, self._seed), budget.draw_updates
        if training_number >= drawn:
            index, number = divmod(number - budget.draws, budget.seeds)
            stage, task, updates = "final", self.tasks[index], budget.updates
            draw = draw_random_training_settings(
                find_best_random_settings_index(self.lines, memory), self._seed
            )
        found = train_memory_network(task, memory, draw, updates, self._seed + number)
        settings = {k: v if np.isfinite(v) else None for k, v in asdict(draw).items()}
        names = {"stage": stage, "task": task.name, "memory": memory.name, "number": number}
        return {**names, "settings": settings, **found}
