"""DAgger for scalar channels: rounds of recording and learning, as the run loop takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.optim.swa_utils import AveragedModel

from an_control.learning.dagger.episodes import (
    Driver,
    Episode,
    NoisyTeacher,
    PerturbedTeacher,
    StudentRollout,
    record,
)
from an_control.learning.dagger.paper_student import PaperStudent
from an_control.learning.dagger.settings import DaggerSettings
from an_control.learning.dagger.student import Student
from an_control.learning.dagger.training import train_round
from an_control.learning.environments import describe, make_environment
from an_control.learning.runs.checkpoint import as_tensors
from an_control.learning.runs.recordings import Recordings
from an_control.learning.runs.run_loop import NO_FIGURES
from an_control.learning.teacher.teachers import Teacher
from an_control.policy import Model, make_policy


class Dagger:
    """A student and its episodes, which are kept in `folder`; it learns on `device`.

    The first round learns from the teacher's episodes, each of the others also from the student's.
    """

    unit = "round"

    def __init__(
        self,
        folder: Path,
        name: str,
        environment: str,
        teacher: Teacher,
        settings: DaggerSettings,
        seed: int,
        device: str = "cpu",
        taught_by: str | None = None,
        start: Model | None = None,
    ) -> None:
        """`taught_by` names the teacher in the folder, where it is not the task's own.

        ValueError where the teacher, `start` and the settings do not fit together.
        """
        torch.set_num_threads(1)
        self._device, self._taught_by = device, taught_by
        self.settings, self.seed = settings, seed
        self._teacher, self._start = teacher, start
        self._env = make_environment(environment)
        self._task = describe(self._env, name, environment)
        self._recordings = Recordings(folder, Episode)
        self._student = self._new_student()
        self._optimiser = torch.optim.Adam(self._student.parameters())
        self._average = AveragedModel(self._student) if settings.averaged else None
        self._episodes: list[Episode] = []
        self._round = 0

    @property
    def steps(self) -> int:
        return 1 + self.settings.rounds

    @property
    def config(self) -> dict[str, Any]:
        """What decides the run, for its folder."""
        return {
            "task": self._task,
            "seed": self.seed,
            "settings": asdict(self.settings),
            "teacher": self._taught_by,
            "start": None if self._start is None else self._start.trained,
        }

    def close(self) -> None:
        self._env.close()

    def step(self) -> dict[str, Any]:
        """One round: record, then learn from all that is kept."""
        rng = np.random.default_rng([self.seed, self._round])
        recorded = self._record(rng)
        kept = self._worth_learning(recorded)
        self._recordings.write(self._round, kept)
        self._episodes = self._newest(self._episodes + kept)
        figures = train_round(
            self._student, self._optimiser, self._episodes, self.settings, self._round, rng
        )
        if self._average is not None:
            self._average.update_parameters(self._student)
        self._round += 1
        mean = float(np.mean([episode.total for episode in recorded]))
        return {**figures, "episodes": len(recorded), "return": mean}

    def state(self) -> dict[str, Any]:
        return {
            "round": self._round,
            "student": self._student.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "average": None if self._average is None else self._average.state_dict(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        tensors = as_tensors(state)
        self._student.load_state_dict(tensors["student"])
        self._optimiser.load_state_dict(tensors["optimiser"])
        if self._average is not None:
            self._average.load_state_dict(tensors["average"])
        self._round = state["round"]
        recorded = (self._recordings.read(number) for number in range(self._round))
        self._episodes = self._newest([episode for part in recorded for episode in part])

    def model(self, run: Mapping[str, Any] = NO_FIGURES) -> Model:
        """The student, or the mean of the students after each round."""
        student = self._student
        if self._average is not None:
            assert isinstance(self._average.module, Student | PaperStudent)
            student = self._average.module
        return student.model(self._task, {"how": "DAgger", "seed": self.seed, **run})

    def _new_student(self) -> Student | PaperStudent:
        torch.manual_seed(self.seed)
        readings, actions = len(self._task["channels"]), len(self._task["actuators"])
        sizes = self.settings.student
        student: Student | PaperStudent
        if sizes.paper:
            student = PaperStudent(readings, actions, sizes)
        else:
            student = Student(readings, actions, sizes)
            if self._teacher.layers is not None:
                student.start_head(self._teacher.layers)
        if self._start is not None:
            student.start_neurons(self._start)
        return student.to(self._device)

    def _record(self, rng: np.random.Generator) -> list[Episode]:
        """This round's episodes: the teacher's in the first one, then the student's."""
        plan = self.settings.collection
        if self._round == 0:
            makers: list[Callable[[], Driver]] = [
                *[partial(NoisyTeacher, rng, 0.0)] * plan.clean,
                *[partial(NoisyTeacher, rng, plan.noisy_noise)] * plan.noisy,
                *[partial(PerturbedTeacher, rng, self._teacher, plan.perturbed_noise)]
                * plan.perturbed,
            ]
        else:
            policy = make_policy(self._student.model(self._task, {}))
            channels = len(self._task["channels"])
            progress = (self._round - 1) / max(1, self.settings.rounds - 1)
            makers = [
                partial(StudentRollout, rng, policy, channels, how)
                for how in plan.rewirings(progress)
            ]
        return [record(self._env, self._teacher, make(), rng) for make in makers]

    def _newest(self, episodes: list[Episode]) -> list[Episode]:
        return episodes if self.settings.kept is None else episodes[-self.settings.kept :]

    def _worth_learning(self, recorded: list[Episode]) -> list[Episode]:
        """Of the student's own, those that did not fail: at rest no channel shows which it is."""
        min_return = self.settings.min_return
        if not self._round or min_return is None:
            return recorded
        kept = [episode for episode in recorded if episode.total >= min_return]
        return kept or [max(recorded, key=lambda episode: episode.total)]
