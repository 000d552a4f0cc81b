"""A distillation's run folder: settings, episodes, metrics and a checkpoint after every round.

    config.json            settings, seed, task, versions
    episodes_KK.npz        what round KK recorded
    metrics.jsonl          one line a round
    checkpoint.pt          the state after the newest finished round (tensors and numbers only)
    model.safetensors      the student after it

Every file is written beside its place and then renamed, the checkpoint last: whenever a run is
stopped, it continues from its last finished round, and to the same bits.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.optim.swa_utils import AveragedModel

import an_control
from an_control.files import read_regular
from an_control.learning.dagger.episodes import (
    Apprentice,
    Driver,
    Episode,
    Messy,
    Noisy,
    record,
)
from an_control.learning.dagger.staged import Imitation, train_round
from an_control.learning.dagger.student import Student
from an_control.learning.environments import describe, make_environment
from an_control.learning.runs.run_folder import RunFolder
from an_control.learning.teacher.teachers import Teacher
from an_control.policy import Model, make_policy, write_model

Report = Callable[[dict[str, Any]], None]


class Distillation:
    """One run, new or continued from its folder, which learns on `device`.

    RunError where the folder holds a run with other settings, or the disk refuses.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        environment: str,
        teacher: Teacher,
        settings: Imitation,
        seed: int,
        device: str = "cpu",
        taught_by: str | None = None,
        start: Model | None = None,
    ) -> None:
        """`taught_by` names the teacher in the folder, where it is not the task's own."""
        torch.set_num_threads(1)
        self._device = device
        self.settings, self.seed = settings, seed
        self._teacher, self._start = teacher, start
        self._env = make_environment(environment)
        self._task = describe(self._env, name, environment)
        config = {
            "task": self._task,
            "seed": seed,
            "settings": asdict(settings),
            "version": an_control.__version__,
            **({} if taught_by is None else {"teacher": taught_by}),
            **({} if start is None else {"start": start.trained}),
        }
        self.folder = RunFolder(folder, config)
        self._student = self._new_student()
        self._optimiser = torch.optim.Adam(self._student.parameters())
        self._average = AveragedModel(self._student) if settings.averaged else None
        self._episodes: list[Episode] = []
        self.metrics: list[dict[str, Any]] = []
        self._restore()

    @property
    def round(self) -> int:
        """The round that comes next."""
        return len(self.metrics)

    @property
    def finished(self) -> bool:
        return self.round > self.settings.rounds

    @property
    def model_path(self) -> Path:
        return self.folder.path / "model.safetensors"

    def run(self, report: Report | None = None, stop_after: int | None = None) -> None:
        """The rounds that are left (at most up to round `stop_after`), saved one by one."""
        while not self.finished and (stop_after is None or self.round <= stop_after):
            begin = time.process_time()
            rng = np.random.default_rng([self.seed, self.round])
            recorded = self._record(rng)
            kept = self._worth_learning(recorded)
            self._episodes += kept
            figures = train_round(
                self._student, self._optimiser, self._episodes, self.settings, self.round, rng
            )
            line = {
                "round": self.round,
                **figures,
                "episodes": len(recorded),
                "return": float(np.mean([episode.total for episode in recorded])),
                "cpu_s": round(time.process_time() - begin, 1),
            }
            if self._average is not None:
                self._average.update_parameters(self._student)
            self._save(kept, line)
            if report is not None:
                report(line)

    def close(self) -> None:
        self._env.close()

    def _new_student(self) -> Student:
        torch.manual_seed(self.seed)
        readings, actions = len(self._task["channels"]), len(self._task["actuators"])
        student = Student(readings, actions, self.settings.student)
        if self._teacher.layers is not None:
            student.start_head(self._teacher.layers)
        if self._start is not None:
            student.start_neurons(self._start)
        return student.to(self._device)

    def _record(self, rng: np.random.Generator) -> list[Episode]:
        """This round's episodes: the teacher's in round 0, then the student's."""
        plan = self.settings.collection
        if self.round == 0:
            makers: list[Callable[[], Driver]] = [
                *[partial(Noisy, rng, 0.0)] * plan.clean,
                *[partial(Noisy, rng, plan.noisy_noise)] * plan.noisy,
                *[partial(Messy, rng, self._teacher, plan.messy_noise)] * plan.messy,
            ]
        else:
            policy = make_policy(self._student.model(self._task, {}))
            channels = len(self._task["channels"])
            progress = (self.round - 1) / max(1, self.settings.rounds - 1)
            makers = [
                partial(Apprentice, rng, policy, channels, how) for how in plan.rewirings(progress)
            ]
        return [record(self._env, self._teacher, make(), rng) for make in makers]

    def _worth_learning(self, recorded: list[Episode]) -> list[Episode]:
        """Of the student's own, those that did not fail: at rest no channel shows which it is."""
        least = self.settings.least
        if not self.round or least is None:
            return recorded
        kept = [episode for episode in recorded if episode.total >= least]
        return kept or [max(recorded, key=lambda episode: episode.total)]

    def _restore(self) -> None:
        path = self.folder.path / "checkpoint.pt"
        if path.exists():
            state = torch.load(path, weights_only=True, map_location=self._device)
            self._student.load_state_dict(state["student"])
            self._optimiser.load_state_dict(state["optimiser"])
            if self._average is not None:
                self._average.load_state_dict(state["average"])
            self.metrics = state["metrics"]
            for number in range(self.round):
                self._episodes += _read_episodes(self.folder.path / _episodes_name(number))

    def _save(self, recorded: list[Episode], line: dict[str, Any]) -> None:
        self.folder.write(_episodes_name(self.round), _packed(recorded))
        self.metrics.append(line)
        self.folder.write(
            "metrics.jsonl", "".join(json.dumps(entry) + "\n" for entry in self.metrics)
        )
        trained = {
            "how": "staged imitation",
            "seed": self.seed,
            "rounds": self.round,
            "cpu_s": round(sum(entry["cpu_s"] for entry in self.metrics), 1),
            "version": an_control.__version__,
        }
        student, average = self._student, {}
        if self._average is not None:
            average["average"] = self._average.state_dict()
            assert isinstance(self._average.module, Student)
            student = self._average.module
        write_model(self.model_path, student.model(self._task, trained))
        state = io.BytesIO()
        torch.save(
            {
                "student": self._student.state_dict(),
                "metrics": self.metrics,
                "optimiser": self._optimiser.state_dict(),
                **average,
            },
            state,
        )
        self.folder.write("checkpoint.pt", state.getvalue())


def _episodes_name(number: int) -> str:
    return f"episodes_{number:02}.npz"


def _packed(episodes: list[Episode]) -> bytes:
    content = io.BytesIO()
    np.savez(
        content,
        lengths=np.array([len(episode) for episode in episodes]),
        totals=np.array([episode.total for episode in episodes]),
        observations=np.concatenate([episode.observations for episode in episodes]),
        previous=np.concatenate([episode.previous for episode in episodes]),
        labels=np.concatenate([episode.labels for episode in episodes]),
    )
    return content.getvalue()


def _read_episodes(path: Path) -> list[Episode]:
    with np.load(io.BytesIO(read_regular(path))) as stored:
        ends = np.cumsum(stored["lengths"])[:-1]
        observations, previous, labels = (
            np.split(stored[name], ends) for name in ("observations", "previous", "labels")
        )
        totals = stored["totals"].tolist()
    return [Episode(*parts) for parts in zip(observations, previous, labels, totals, strict=True)]
