"""DAgger for scalar channels: rounds of recording and learning, as the run loop takes them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.optim.swa_utils import AveragedModel

from an_control.learning.dagger.paper_student import PaperStudent
from an_control.learning.dagger.settings import DaggerSettings
from an_control.learning.dagger.streams import (
    Driver,
    Episode,
    NoisyTeacher,
    PerturbedTeacher,
    RolloutSettings,
    StudentRollout,
    record,
)
from an_control.learning.dagger.student import Student
from an_control.learning.dagger.training import train_round
from an_control.learning.runs.run_folder import Recordings, as_tensors, units_of_run
from an_control.learning.runs.run_loop import NO_FIGURES
from an_control.learning.teacher.teachers import (
    ChoiceTeacher,
    Teacher,
    in_units,
    model_digest,
    settings_with,
)
from an_control.learning.training_disturbances import offered
from an_control.load import make_policy
from an_control.policy import Model
from an_control_sim.gym.environments import choices_of, describe, make_environment
from an_control_sim.gym.failure import BrokenEnvironmentError, Failures
from an_control_sim.gym.units import Units

VALIDATION = 2**20 + 7
"""Of the validation episodes' seed."""
JUDGED = 3
"""Rounds whose students are judged together: neighbours are much alike, and the episodes of one
round are few."""
UNDONE_FROM, UNDONE_LOSS = 0.5, 0.05
"""From this share of the run on, a round is undone that loses this share of what was gained."""
AS_GOOD = 5
"""Students in a row whose mean return is that of the teacher: enough is learned."""


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
        if start is not None:
            units = Units.of_task(start.task)
        elif teacher.layers is not None or teacher.units:
            units = teacher.units
        else:  # a function, which takes the environment's numbers
            units = units_of_run(folder, environment)
        self._env = make_environment(environment, units)
        choices = choices_of(self._env)
        self._teacher = in_units(teacher, units)
        if choices:
            self._teacher = ChoiceTeacher(self._teacher, choices)
        self._start = start
        self._hashes = settings_with(
            folder, teacher_hash=teacher.digest, start_hash=model_digest(start)
        )
        self._faults = offered(self._env, settings.faults)
        self._task = describe(self._env, name, environment)
        streams, collection = settings.streams.disturb, settings.collection.disturb
        if any(one.settings.repeat for one in (*self._faults, *streams, *collection)):
            self._task["repeats"] = True
        if settings.recovery:
            self._task["recovery"] = settings.recovery
        self._recordings = Recordings(folder, Episode)
        self._student = self._new_student()
        self._optimiser = torch.optim.Adam(self._student.parameters())
        self._average = AveragedModel(self._student) if settings.averaged else None
        self._failures = Failures()
        self._episodes: list[Episode] = []
        self._round, self._cpu_s, self._identified_s = 0, 0.0, 0.0
        self._best: dict[str, Any] | None = None
        """The student, with its optimiser, whose own validation was the best."""
        self._returns: list[float] = []
        """Of the validations, behind that of the teacher."""

    @property
    def steps(self) -> int:
        if not self.settings.minutes:
            return 1 + self.settings.rounds
        progress = self.progress
        if progress >= 1.0:
            return self._round
        since_first = self._since_first(self.settings.rounds)
        later = (self._round - 1) / since_first if self._round > 1 and since_first else 0.0
        return max(1 + self._round, 1 + round(later or self.settings.rounds))

    @property
    def progress(self) -> float:
        """How much of the run is over, from 0 to 1, by its time or by its rounds."""
        settings = self.settings
        if not settings.minutes:
            return self._round / (1 + settings.rounds)
        if self._round > settings.rounds and self._as_good_as_the_teacher():
            return 1.0
        return min(1.0, self._cpu_s / (60.0 * settings.minutes))

    @property
    def minutes_left(self) -> float:
        """Processor time that it may take yet; infinite where only its rounds end it."""
        left = self.settings.minutes - self.minutes
        return max(0.0, left) if self.settings.minutes else math.inf

    @property
    def minutes(self) -> float:
        """Processor time that its rounds have taken."""
        return self._cpu_s / 60.0

    @property
    def config(self) -> dict[str, Any]:
        """What decides the run, for its folder."""
        return {
            "task": self._task,
            "seed": self.seed,
            "settings": asdict(self.settings),
            "teacher": self._taught_by,
            "start": None if self._start is None else self._start.trained,
            **self._hashes,
        }

    def close(self) -> None:
        self._env.close()

    def step(self) -> dict[str, Any]:
        """One round: record, learn from all that is kept, validate."""
        started = time.process_time()
        rng = np.random.default_rng([self.seed, self._round])
        recorded = self._record(rng)
        kept = self._worth_learning(recorded)
        self._recordings.write(self._round, kept)
        self._episodes = self._newest(self._episodes + kept)
        what = self._student, self._optimiser, self._episodes, self.settings, self._round, rng
        line: dict[str, Any] = train_round(*what, self._since_first(self.settings.rounds))
        if self._average is not None:
            self._average.update_parameters(self._student)
        line |= {
            "episodes": len(recorded),
            "return": float(np.mean([episode.total for episode in recorded])),
        }
        if self.settings.validation_episodes:
            if not self._round:
                calm = RolloutSettings(shuffled=False)
                self._returns = [self._play(lambda rng: NoisyTeacher(rng, 0.0), calm)]
            line |= self._judge(self._validate())
            line["validation"] = float(np.mean(self._returns[1:][-JUDGED:]))
        line |= self._failures.figures()
        self._cpu_s += time.process_time() - started
        if self._round == 0:
            self._identified_s = self._cpu_s
        self._round += 1
        return line

    def _judge(self, validation: float) -> dict[str, float]:
        """Keep the student of a round with this validation, or go back to the best one there was.

        Rounds that come late may unlearn: what they have recorded is kept, what they have made of
        the student is not. The figures say what was undone. Only of recipes for any robot.
        """
        best = -math.inf if self._best is None else self._best["validation"]
        worst = min([validation, *self._returns[1:]])
        if validation >= best:
            self._best = {
                "validation": validation,
                "student": deepcopy(self._student.state_dict()),
                "optimiser": deepcopy(self._optimiser.state_dict()),
            }
        generic = self.settings.collection.episode_steps and self._average is None
        if (
            not generic
            or self.progress < UNDONE_FROM
            or validation >= best - UNDONE_LOSS * (best - worst)
        ):
            self._returns.append(validation)
            return {}
        assert self._best is not None
        self._student.load_state_dict(self._best["student"])
        self._optimiser.load_state_dict(deepcopy(self._best["optimiser"]))
        self._returns.append(best)
        return {"undone": validation}

    def state(self) -> dict[str, Any]:
        return {
            "round": self._round,
            "best": self._best,
            "cpu_s": [self._cpu_s, self._identified_s],
            "returns": self._returns,
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
        self._cpu_s, self._identified_s = state["cpu_s"]
        self._returns = state["returns"]
        self._best = tensors.get("best")  # an older run has none
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
            own_head = self._start is not None and self.settings.keep_head
            if self._teacher.layers is not None and not own_head:
                student.start_head(self._teacher.layers)
        if self._start is None:
            return student.to(self._device)
        if isinstance(student, PaperStudent):
            student.start_neurons(self._start)
        else:
            student.start_neurons(self._start, self.settings.keep_head)
        return student.to(self._device)

    def _since_first(self, rounds: int) -> float:
        """How much of what follows the first round is over, from 0 to 1: of so many rounds, or of
        the time."""
        if not self.settings.minutes:
            return max(0, self._round - 1) / max(1, rounds)
        left_s = 60.0 * self.settings.minutes - self._identified_s
        return min(1.0, (self._cpu_s - self._identified_s) / left_s) if left_s > 0.0 else 1.0

    def _record(self, rng: np.random.Generator) -> list[Episode]:
        """This round's episodes: the teacher's in the first one, then the student's."""
        plan = self.settings.collection
        makers: list[tuple[int, Callable[[], Driver], RolloutSettings]]
        calm = RolloutSettings(shuffled=False)
        if self._round == 0:
            faulty = replace(calm, faulty=True)
            perturbed = partial(PerturbedTeacher, rng, self._teacher, plan.perturbed_noise)
            makers = [
                (plan.clean, partial(NoisyTeacher, rng, 0.0), calm),
                (plan.noisy, partial(NoisyTeacher, rng, plan.noisy_noise), faulty),
                (plan.perturbed, perturbed, faulty),
            ]
        else:
            policy = make_policy(self._student.model(self._task, {}))
            makers = [
                (count, partial(StudentRollout, rng, policy, how), how)
                for count, how in plan.rewirings(self._since_first(self.settings.rounds - 1))
            ]
        return [one for maker in makers for one in self._some(*maker, rng)]

    def _some(
        self,
        count: int,
        make: Callable[[], Driver],
        how: RolloutSettings,
        rng: np.random.Generator,
    ) -> Iterator[Episode]:
        """So many episodes, or as many as have so many times `episode_steps` steps."""
        unit, left = self.settings.collection.episode_steps, count
        if unit:
            left *= unit
        while left > 0:
            what = how.disturbance(self._faults, rng), how.reshuffle
            try:
                episode = record(self._env, self._teacher, make(), rng, *what)
            except BrokenEnvironmentError as failure:
                self._failures.note(failure)
                continue
            self._failures.succeed()
            left -= len(episode.labels) if unit else 1
            yield episode

    def _validate(self) -> float:
        """The mean return of the student on shuffled channels."""
        policy, how = make_policy(self.model(), "off"), RolloutSettings()
        return self._play(lambda rng: StudentRollout(rng, policy, how), how)

    def _play(self, driver: Callable[[np.random.Generator], Driver], how: RolloutSettings) -> float:
        """The mean return of a driver in the validation episodes."""
        rng = np.random.default_rng([self.seed, VALIDATION])
        episodes = self._some(self.settings.validation_episodes, partial(driver, rng), how, rng)
        return float(np.mean([episode.total for episode in episodes]))

    def _as_good_as_the_teacher(self) -> bool:
        """Whether the last rounds' students were, in the mean."""
        teacher, *students = self._returns or [math.inf]
        return len(students) >= AS_GOOD and float(np.mean(students[-AS_GOOD:])) >= teacher

    def _newest(self, episodes: list[Episode]) -> list[Episode]:
        return episodes if self.settings.kept is None else episodes[-self.settings.kept :]

    def _worth_learning(self, recorded: list[Episode]) -> list[Episode]:
        """Of the student's own, those that did not fail: at rest no channel shows which it is."""
        min_return = self.settings.min_return
        if not self._round or min_return is None:
            return recorded
        kept = [episode for episode in recorded if episode.total >= min_return]
        return kept or [max(recorded, key=lambda episode: episode.total)]
