"""Imitation of recorded commands: trains DAgger's student without simulator and teacher.

First a network learns the commands in the known order of the channels (`cloning`); it becomes the
student's head. Then the student learns to identify its channels: the first round teaches the
sensory neurons, the later ones the action too, as in `learner`; but every round learns from the
same recorded episodes. The student itself never drives, so it does not learn to recover from its
own errors.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from an_control.learning.dagger.cloning import (
    CLONING,
    CloningSettings,
    compute_episode_fingerprint,
    fit_network_to_commands,
)
from an_control.learning.dagger.paper_student import PaperStudent
from an_control.learning.dagger.settings import DaggerSettings, StudentSizes
from an_control.learning.dagger.streams import DaggerEpisode
from an_control.learning.dagger.student import Student
from an_control.learning.dagger.training import train_round
from an_control.learning.runs.run_folder import convert_arrays_to_tensors
from an_control.learning.runs.run_loop import NO_FIGURES
from an_control.policy import Model
from an_control.policy.task import Task


class RecordedTeaching:
    """Trainer of a student that imitates the commands in recorded episodes.

    The run loop calls `step` once for each round. At the start of the first round a plain network
    learns to compute the commands from all channels in the task's order. It becomes the student's
    head if that takes one value for each channel, which is not so for the paper's student, PMA
    attention or a recurrent layer; for these no such network is trained.

    Args:
        task: Channels, actuators and time step of the recorded robot.
        episodes: The recorded episodes; their labels are the commands.
        settings: The recipe (the run's settings), without disturbances that only a simulator can
            make. The sizes of the student's head come from `cloning` if the plain network becomes
            the head.
        seed: Seed of all random numbers of the run.
        device: Torch device on which the student learns.
        cloning: Settings of the plain network and of its training.
    """

    unit = "round"

    def __init__(
        self,
        task: Task,
        episodes: Sequence[DaggerEpisode],
        settings: DaggerSettings,
        seed: int,
        device: str = "cpu",
        cloning: CloningSettings = CLONING,
    ) -> None:
        torch.set_num_threads(1)
        if _head_reads_value_per_channel(settings.student):
            settings = replace(settings, student=replace(settings.student, head=cloning.hidden))
        self.settings, self.seed, self._cloning = settings, seed, cloning
        self._task, self._episodes = task, list(episodes)
        torch.manual_seed(seed % 2**64)
        kind = PaperStudent if settings.student.paper else Student
        student = kind(len(task.channels), len(task.actuators), settings.student)
        self._student = student.to(device)
        self._optimiser = torch.optim.Adam(self._student.parameters())
        self._round, self._cpu_s = 0, 0.0

    @property
    def total_step_calls(self) -> int:
        """Return the number of rounds of the whole run; each is one step of the run loop."""
        return 1 + self.settings.rounds

    @property
    def minutes_used(self) -> float:
        """Return the processor time in minutes that the finished rounds of the run have used."""
        return self._cpu_s / 60.0

    @property
    def config(self) -> dict[str, Any]:
        """Return the run's settings, which are written to `config.json` in its folder.

        A new training in this folder continues the run only if its settings are the same; the
        number of rounds may differ.
        """
        return {
            "task": self._task.to_header(),
            "seed": self.seed,
            "settings": asdict(self.settings),
            "cloning": asdict(self._cloning),
            "recorded": compute_episode_fingerprint(self._episodes),
        }

    def close(self) -> None:
        """Do nothing: there is no environment."""

    def step(self) -> dict[str, Any]:
        """Train the student for one round and return the round's metrics by name."""
        started = time.process_time()
        if self._round == 0:
            self._train_head_on_commands()
        rng = np.random.default_rng([self.seed, self._round])
        progress = max(0, self._round - 1) / max(1, self.settings.rounds)
        what = self._student, self._optimiser, self._episodes, self.settings, self._round, rng
        line: dict[str, Any] = train_round(*what, progress)
        self._cpu_s += time.process_time() - started
        self._round += 1
        return line

    def _train_head_on_commands(self) -> None:
        """Train a network on the commands, from channels in the task's order; make it the head.

        Nothing is done if the inputs of the head are not one value for each channel.
        """
        student = self._student
        if isinstance(student, Student) and _head_reads_value_per_channel(student.sizes):
            output = student.sizes.output
            layers = fit_network_to_commands(self._episodes, output, self._cloning, self.seed)
            student.copy_teacher_into_head(layers)

    def make_checkpoint(self) -> dict[str, Any]:
        """Return the run's checkpoint, from which `restore` continues."""
        return {
            "round": self._round,
            "cpu_s": self._cpu_s,
            "student": self._student.state_dict(),
            "optimiser": self._optimiser.state_dict(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint that `make_checkpoint` returned."""
        tensors = convert_arrays_to_tensors(state)
        self._student.load_state_dict(tensors["student"])
        self._optimiser.load_state_dict(tensors["optimiser"])
        self._round, self._cpu_s = state["round"], state["cpu_s"]

    def make_model(self, run: Mapping[str, Any] = NO_FIGURES) -> Model:
        """Return the student as a model.

        Args:
            run: Figures of the run to store in the model file's header; by default none.
        """
        how = {"how": "imitation of recordings", "seed": self.seed, **run}
        return self._student.make_model(self._task, how)


def _head_reads_value_per_channel(sizes: StudentSizes) -> bool:
    """Return whether the head of a student of these sizes takes one value for each channel.

    Only then can a network that was trained on channels in the task's order become the head.
    """
    return not (sizes.paper or sizes.pma or sizes.recurrence)


def read_task_and_episodes(
    paths: Sequence[Path], task_name: str
) -> tuple[Task, list[DaggerEpisode]]:
    """Read recordings of a robot as episodes to imitate.

    Args:
        paths: Files of the recordings.
        task_name: Name for the robot's task.

    Returns:
        The robot's task (channels and actuators), and one episode for each uninterrupted part of
        the recordings.

    Raises:
        ValueError: A recording cannot be read, or its robot is not that of the first recording.
    """
    from an_control.learning.recordings import read_task_and_traces

    task, traces = read_task_and_traces(paths, task_name)
    episodes = []
    for trace in traces:
        actions = np.asarray(trace.actions, np.float32)
        before = np.concatenate([np.zeros_like(actions[:1]), actions[:-1]])
        episodes.append(DaggerEpisode(trace.readings[:-1].astype(np.float32), before, actions))
    return task, episodes
