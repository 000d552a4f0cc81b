"""DAgger for scalar channels: rounds of recording and learning, driven by the run loop.

One round records episodes, trains on all kept episodes and validates. All random numbers of a round
follow from the run's seed and the round's number, so that a run that is interrupted and resumed
ends with the same result.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    DaggerEpisode,
    Driver,
    NoisyTeacher,
    PerturbedTeacher,
    RolloutSettings,
    StudentDriver,
    record_episode,
)
from an_control.learning.dagger.student import Student
from an_control.learning.dagger.training import train_round
from an_control.learning.runs.card import compute_standard_error
from an_control.learning.runs.run_folder import (
    EpisodeRecordings,
    convert_arrays_to_tensors,
    read_or_measure_observation_units,
)
from an_control.learning.runs.run_loop import NO_FIGURES
from an_control.learning.teacher.teachers import (
    Teacher,
    convert_teacher_to_units,
    hash_model,
    make_choice_teacher,
    select_model_hashes_to_store,
)
from an_control.learning.training_disturbances import drop_unsupported_disturbances
from an_control.load import make_policy
from an_control.policy import Model
from an_control_sim.gym.environments import (
    count_action_numbers_by_choice,
    describe_task,
    make_environment,
)
from an_control_sim.gym.failure import FailureCounter
from an_control_sim.gym.units import Units

VALIDATION = 2**20 + 7
"""Second part of the seed of the validation episodes; the first is the run's seed."""
JUDGED = 3
"""Number of newest rounds whose returns are averaged in the figure "validation". Students of
neighbouring rounds are much alike, and the episodes of one round are few."""
UNDONE_FROM, UNDONE_LOSS, UNDONE_ERRORS = 0.5, 0.05, 2.0
"""Progress (0..1) of the run from which a bad round may be undone, and the drop of the validation
return that undoes it: more than a share of the improvement from the worst to the best validation,
and more than that many standard errors. One fall in few episodes is not a reason."""
CONFIRM_TIMES = 4
"""Number of further sets of validation episodes on which a late student must beat the best so far.
Every round validates with the same episodes, in which one student of many is the best by chance."""
AS_GOOD = 5
"""Number of rounds in a row over which the student's mean return must reach the teacher's for the
run to end early."""


class Dagger:
    """Trainer of a student that imitates a teacher by DAgger, for scalar channels.

    In the first round the student learns from episodes that the teacher drives. Each later round
    adds episodes that the student drives. The label of every step is the teacher's action. The run
    loop calls `step` once for each round.

    Args:
        folder: The run's folder, in which the recorded episodes are stored.
        name: The task's name in the model file.
        environment: Name from which `make_environment` makes the environment.
        teacher: The policy to imitate.
        settings: The recipe, the settings of the run.
        seed: Seed of all random numbers of the run.
        device: Torch device on which the student learns.
        teacher_name: The user's name for the teacher, stored in the run's settings; None for the
            teacher that belongs to the task.
        start: Model from whose weights the student starts; None for random weights.

    Raises:
        ValueError: The sizes of teacher, `start` and settings do not fit together.
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
        teacher_name: str | None = None,
        start: Model | None = None,
    ) -> None:
        torch.set_num_threads(1)
        self._device, self._teacher_name = device, teacher_name
        self.settings, self.seed = settings, seed
        if start is not None:
            units = Units.from_task(start.task)
        elif teacher.layers is not None or teacher.units:
            units = teacher.units
        else:  # a function, which takes the environment's numbers
            units = read_or_measure_observation_units(folder, environment)
        self._env = make_environment(environment, units)
        choices = count_action_numbers_by_choice(self._env)
        self._teacher = convert_teacher_to_units(teacher, units)
        if choices:
            self._teacher = make_choice_teacher(self._teacher, choices)
        self._start = start
        self._hashes = select_model_hashes_to_store(
            folder, teacher_hash=teacher.digest, start_hash=hash_model(start)
        )
        self._faults = drop_unsupported_disturbances(self._env, settings.faults)
        streams, collection = settings.streams.disturb, settings.collection.disturb
        disturbances = (*self._faults, *streams, *collection)
        self._task = replace(
            describe_task(self._env, name, environment),
            repeats=any(one.settings.repeat for one in disturbances),
            recovery=settings.recovery,
        )
        self._recordings = EpisodeRecordings(folder, DaggerEpisode)
        self._student = self._make_student()
        self._optimiser = torch.optim.Adam(self._student.parameters())
        self._average = AveragedModel(self._student) if settings.averaged else None
        self._failures = FailureCounter()
        self._episodes: list[DaggerEpisode] = []
        self._round, self._cpu_s, self._identified_s = 0, 0.0, 0.0
        self._best: dict[str, Any] | None = None
        """The student and its optimiser after the best round, with its mean return in the round's
        validation episodes and in the further ones that confirm it; None before the first."""
        self._returns: list[float] = []
        """Mean validation returns: first the teacher's, then the student's after each round."""

    @property
    def total_step_calls(self) -> int:
        """Return the number of rounds of the whole run; each is one step of the run loop.

        If the run has a time limit, the number is an estimate.
        """
        if not self.settings.minutes:
            return 1 + self.settings.rounds
        progress = self.progress
        if progress >= 1.0:
            return self._round
        since_first = self._measure_progress_after_first_round(self.settings.rounds)
        later = (self._round - 1) / since_first if self._round > 1 and since_first else 0.0
        return max(1 + self._round, 1 + round(later or self.settings.rounds))

    @property
    def progress(self) -> float:
        """Return the finished share (0..1) of the run.

        It is measured in processor time if the run has a time limit, else in rounds.
        """
        settings = self.settings
        if not settings.minutes:
            return self._round / (1 + settings.rounds)
        if self._round > settings.rounds and self._is_student_as_good_as_teacher():
            return 1.0
        return min(1.0, self._cpu_s / (60.0 * settings.minutes))

    @property
    def minutes_left(self) -> float:
        """Return the processor time left in minutes; infinity if the run has no time limit."""
        left = self.settings.minutes - self.minutes_used
        return max(0.0, left) if self.settings.minutes else math.inf

    @property
    def minutes_used(self) -> float:
        """Return the processor time in minutes that the finished rounds of the run have used."""
        return self._cpu_s / 60.0

    @property
    def config(self) -> dict[str, Any]:
        """Return the run's settings, which are written to `config.json` in its folder.

        A new training in this folder continues the run only if its settings are the same; time
        limit and number of rounds may differ.
        """
        return {
            "task": self._task.to_header(),
            "seed": self.seed,
            "settings": asdict(self.settings),
            "teacher": self._teacher_name,
            "start": None if self._start is None else self._start.trained,
            **self._hashes,
        }

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def step(self) -> dict[str, Any]:
        """Run one round: record new episodes, train on new and earlier ones, and validate.

        Returns:
            The round's figures by name, such as "action_loss", "return" and "validation".
        """
        started = time.process_time()
        rng = np.random.default_rng([self.seed, self._round])
        recorded = self._record_round_episodes(rng)
        kept = self._drop_low_return_episodes(recorded)
        self._recordings.write_episodes(self._round, kept)
        self._episodes = self._select_newest_episodes(self._episodes + kept)
        what = self._student, self._optimiser, self._episodes, self.settings, self._round, rng
        line: dict[str, Any] = train_round(
            *what, self._measure_progress_after_first_round(self.settings.rounds)
        )
        if self._average is not None:
            self._average.update_parameters(self._student)
        line |= {
            "episodes": len(recorded),
            "return": _compute_mean_return(recorded),
        }
        if self.settings.validation_episodes:
            if not self._round:
                calm = RolloutSettings(shuffled=False)
                teacher = self._measure_driver_validation_returns(
                    lambda rng: NoisyTeacher(rng, 0.0), calm
                )
                self._returns = [float(np.mean(teacher))]
            line |= self._undo_bad_round_and_make_metrics(
                self._measure_validation_returns(self._newest_student)
            )
            line["validation"] = float(np.mean(self._returns[1:][-JUDGED:]))
        line |= self._failures.pop_failure_metrics()
        self._cpu_s += time.process_time() - started
        if self._round == 0:
            self._identified_s = self._cpu_s
        self._round += 1
        if self._best is not None and self._can_undo_rounds and self.progress >= 1.0:
            self._restore_best_student()
        return line

    @property
    def _can_undo_rounds(self) -> bool:
        """Return whether a round that makes the student worse is undone.

        Rounds are undone if the recipe sets `episode_steps` but not `averaged`. With `averaged` the
        model is the mean of the students after all rounds, which a single bad round cannot spoil.
        """
        return bool(self.settings.collection.episode_steps) and self._average is None

    def _restore_best_student(self) -> None:
        """Restore the student's weights and its optimiser to those after the best round."""
        assert self._best is not None
        self._student.load_state_dict(self._best["student"])
        self._optimiser.load_state_dict(deepcopy(self._best["optimiser"]))

    def _undo_bad_round_and_make_metrics(self, validation_returns: np.ndarray) -> dict[str, float]:
        """Undo the round if the student is now clearly worse than the best student so far.

        To undo a round means to restore the weights and the optimiser of the best student; the
        recorded episodes are kept. Rounds are undone only late in a run, if `_can_undo_rounds` is
        True. The figure "undone" is the mean validation return of an undone round.
        """
        validation = float(np.mean(validation_returns))
        error = compute_standard_error(validation_returns)
        best = -math.inf if self._best is None else self._best["validation"]
        worst = min([validation, *self._returns[1:]])
        # Of equally good students the newest one is kept, which has learned from more episodes.
        if validation >= best:
            self._set_best_student_if_confirmed(
                {
                    "validation": validation,
                    "error": error,
                    "confirmed": None,
                    "student": deepcopy(self._student.state_dict()),
                    "optimiser": deepcopy(self._optimiser.state_dict()),
                }
            )
        assert self._best is not None
        loss = self._best["validation"] - validation
        by_chance = UNDONE_ERRORS * math.hypot(error, self._best["error"])
        if (
            not self._can_undo_rounds
            or self.progress < UNDONE_FROM
            or loss <= max(UNDONE_LOSS * (best - worst), by_chance)
        ):
            self._returns.append(validation)
            return {}
        self._restore_best_student()
        self._returns.append(best)
        return {"undone": validation}

    def _set_best_student_if_confirmed(self, contender: dict[str, Any]) -> None:
        """Store a student as the best one so far, unless a second comparison contradicts.

        The second comparison is made only late in a run. In it, both students play further
        validation episodes, whose mean return is stored as "confirmed".
        """
        if self._best is not None and self._can_undo_rounds and self.progress >= UNDONE_FROM:
            for one in (self._best, contender):
                if one.get("confirmed") is None:  # a run of an older version has no such key
                    one["confirmed"] = self._measure_confirmation_return(one["student"])
            if contender["confirmed"] < self._best["confirmed"]:
                return
        self._best = contender

    def _measure_confirmation_return(self, weights: Mapping[str, Any]) -> float:
        """Return the mean return of a student in validation episodes that the rounds do not use."""
        student = deepcopy(self._student)
        student.load_state_dict(weights)
        sets = [
            self._measure_validation_returns(student, number)
            for number in range(1, 1 + CONFIRM_TIMES)
        ]
        return float(np.mean(np.concatenate(sets)))

    def make_checkpoint(self) -> dict[str, Any]:
        """Return the run's checkpoint, from which `restore` continues."""
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
        """Continue from a checkpoint of `make_checkpoint` and the episodes in the run's folder."""
        tensors = convert_arrays_to_tensors(state)
        self._student.load_state_dict(tensors["student"])
        self._optimiser.load_state_dict(tensors["optimiser"])
        if self._average is not None:
            self._average.load_state_dict(tensors["average"])
        self._round = state["round"]
        self._cpu_s, self._identified_s = state["cpu_s"]
        self._returns = state["returns"]
        self._best = tensors.get("best")  # an older run has none
        recorded = (self._recordings.read_episodes(number) for number in range(self._round))
        self._episodes = self._select_newest_episodes(
            [episode for part in recorded for episode in part]
        )

    def make_model(self, run: Mapping[str, Any] = NO_FIGURES) -> Model:
        """Return the student as a model.

        If the recipe sets `averaged`, the returned weights are the mean of those after each round.

        Args:
            run: Figures of the run to store in the model file's header.
        """
        how = {"how": "DAgger", "seed": self.seed, **run}
        return self._newest_student.make_model(self._task, how)

    @property
    def _newest_student(self) -> Student | PaperStudent:
        """Return the student after the newest round.

        If the recipe sets `averaged`, the returned weights are the mean of those after each round.
        """
        if self._average is None:
            return self._student
        assert isinstance(self._average.module, Student | PaperStudent)
        return self._average.module

    def _make_student(self) -> Student | PaperStudent:
        """Return a new student, some parts of which get the weights of another network.

        If the run starts from a model, the parts that identify channels get the weights of that
        model. If the recipe sets `keep_head`, or if the student is built as in the paper, its head
        gets the model's weights too. Otherwise, if the teacher is a relu network, the head gets the
        teacher's weights, except in a student built as in the paper. All other weights are random.
        """
        torch.manual_seed(self.seed % 2**64)
        readings, actions = len(self._task.channels), len(self._task.actuators)
        sizes = self.settings.student
        student: Student | PaperStudent
        if sizes.paper:
            student = PaperStudent(readings, actions, sizes)
        else:
            student = Student(readings, actions, sizes)
            own_head = self._start is not None and self.settings.keep_head
            if self._teacher.layers is not None and not own_head:
                student.copy_teacher_into_head(self._teacher.layers)
        if self._start is None:
            return student.to(self._device)
        if isinstance(student, PaperStudent):
            student.load_all_weights(self._start)
        else:
            student.load_identification_weights(self._start, self.settings.keep_head)
        return student.to(self._device)

    def _measure_progress_after_first_round(self, later_rounds: int) -> float:
        """Return the finished share (0..1) of the part of the run that follows the first round.

        It is measured in processor time if the run has a time limit, else in rounds.
        """
        if not self.settings.minutes:
            return max(0, self._round - 1) / max(1, later_rounds)
        left_s = 60.0 * self.settings.minutes - self._identified_s
        return min(1.0, (self._cpu_s - self._identified_s) / left_s) if left_s > 0.0 else 1.0

    def _record_round_episodes(self, rng: np.random.Generator) -> list[DaggerEpisode]:
        """Record the episodes of one round.

        In the first round the teacher drives, in later rounds the student.
        """
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
            policy = make_policy(self._student.make_model(self._task, {}))
            makers = [
                (count, partial(StudentDriver, rng, policy, how), how)
                for count, how in plan.plan_episodes_after_first_round(
                    self._measure_progress_after_first_round(self.settings.rounds - 1)
                )
            ]
        return [one for maker in makers for one in self._record_episodes(*maker, rng)]

    def _record_episodes(
        self,
        count: int,
        make_driver: Callable[[], Driver],
        rollout: RolloutSettings,
        rng: np.random.Generator,
    ) -> Iterator[DaggerEpisode]:
        """Record episodes and yield each of them; an episode that fails is replaced by another.

        If the recipe sets `episode_steps`, the recorded episodes have that many steps for each of
        `count` together.
        """
        unit, left = self.settings.collection.episode_steps, count
        if unit:
            left *= unit
        while left > 0:
            what = rollout.draw_disturbance(self._faults, rng), rollout.reshuffle, rollout.steps
            episode = self._failures.try_episode(
                record_episode, self._env, self._teacher, make_driver(), rng, *what
            )
            if episode is not None:
                left -= len(episode.labels) if unit else 1
                yield episode

    def _measure_validation_returns(
        self, student: Student | PaperStudent, episode_set: int = 0
    ) -> np.ndarray:
        """Measure a student's returns (E,) in E validation episodes with shuffled channels.

        Every round plays set 0; the other sets are for students that may be the best of the run.
        """
        policy, how = make_policy(student.make_model(self._task, {}), "off"), RolloutSettings()
        return self._measure_driver_validation_returns(
            lambda rng: StudentDriver(rng, policy, how), how, episode_set
        )

    def _measure_driver_validation_returns(
        self,
        make_driver: Callable[[np.random.Generator], Driver],
        rollout: RolloutSettings,
        episode_set: int = 0,
    ) -> np.ndarray:
        """Measure a driver's returns (E,) in E validation episodes."""
        rng = np.random.default_rng([self.seed, VALIDATION + episode_set])
        episodes = self._record_episodes(
            self.settings.validation_episodes, partial(make_driver, rng), rollout, rng
        )
        return np.array([episode.total for episode in episodes])

    def _is_student_as_good_as_teacher(self) -> bool:
        """Return whether the student's mean validation return reaches that of the teacher.

        The mean is taken over the newest rounds. Before there are enough rounds for the mean, the
        result is False.
        """
        teacher, *students = self._returns or [math.inf]
        return len(students) >= AS_GOOD and float(np.mean(students[-AS_GOOD:])) >= teacher

    def _select_newest_episodes(self, episodes: list[DaggerEpisode]) -> list[DaggerEpisode]:
        """Return the newest of the given episodes; the recipe's `kept` limits their number."""
        return episodes if self.settings.kept is None else episodes[-self.settings.kept :]

    def _drop_low_return_episodes(self, recorded: list[DaggerEpisode]) -> list[DaggerEpisode]:
        """Drop those of a round's episodes whose sum of rewards is below the recipe's `min_return`.

        Such episodes teach little, because a robot at rest shows no difference between channels. If
        all sums are below the minimum, the best episode is kept. Episodes of the first round, and
        those of which only the first steps were recorded, are never dropped.
        """
        min_return = self.settings.min_return
        if not self._round or min_return is None:
            return recorded
        kept = [
            episode
            for episode in recorded
            if math.isnan(episode.total) or episode.total >= min_return
        ]
        return kept or [max(recorded, key=lambda episode: episode.total)]


def _compute_mean_return(episodes: Sequence[DaggerEpisode]) -> float:
    """Compute the mean return of the episodes that were recorded to their end; NaN if none was."""
    returns = [episode.total for episode in episodes if not math.isnan(episode.total)]
    return float(np.mean(returns)) if returns else math.nan
