"""A run of imitation for cameras, in its folder: round by round, resumed to the same bits."""

from __future__ import annotations

import copy
import io
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

import an_control
from an_control.disturbance import DisturbanceSettings, Shuffle
from an_control.files import read_regular
from an_control.learning.dagger.patches.training import (
    CameraCloning,
    Episode,
    Lanes,
    Teacher,
    new_student,
    record,
    update,
)
from an_control.learning.es.search import VALIDATION_SEED
from an_control.learning.evaluation.evaluate import evaluate
from an_control.learning.runs.card import write_curve
from an_control.learning.runs.run_folder import RunFolder
from an_control.policy import Model, Policy, make_policy, write_model


class CameraRun:
    """One run, new or resumed; RunError where the folder holds another one.

    `device` is where torch learns; the student drives on the CPU with the policy's own engine. It
    begins with the weights of `start`; ValueError where that has other sizes.
    """

    def __init__(
        self,
        path: Path,
        env: gymnasium.Env[Any, Any],
        task: dict[str, Any],
        settings: CameraCloning,
        seed: int,
        resume: bool = False,
        device: str = "cpu",
        start: Model | None = None,
    ) -> None:
        torch.set_num_threads(1)
        self.settings, self.seed = settings, seed
        self._env, self._task = env, task
        inner: Any = env.unwrapped
        self._teacher: Teacher = inner.teacher()
        self._started = None if start is None else start.trained
        config = {
            "task": task,
            "seed": seed,
            "settings": asdict(settings),
            "start": self._started,
        }
        self.folder = RunFolder(path, config, resume)
        self._student = new_student(settings, seed)
        if start is not None:
            self._student.begin_as(start)
        self._student.to(device)
        self._driver = copy.deepcopy(self._student)
        self._optimiser = torch.optim.Adam(self._student.parameters())
        self._episodes: list[Episode] = []
        self.metrics: list[dict[str, Any]] = []
        self.best_validation, self.wall_s = -np.inf, 0.0
        if (state := self.folder.last_checkpoint()) is not None:
            self._restore(state)

    @property
    def round(self) -> int:
        """The round that comes next."""
        return len(self.metrics)

    @property
    def finished(self) -> bool:
        return self.round >= self.settings.rounds

    @property
    def model_path(self) -> Path:
        return self.folder.path / "model.safetensors"

    def run(self, report: Callable[[dict[str, Any]], bool | None] | None = None) -> None:
        """The rounds that are left, until `report` says False; keeps the best student."""
        go_on = True
        while go_on and not self.finished:
            begin = time.perf_counter()
            rng = np.random.default_rng([self.seed, self.round])
            line: dict[str, Any] = {"round": self.round + 1, **self._round(rng)}
            last = self.round + 1 == self.settings.rounds
            if (self.round + 1) % self.settings.validate_every == 0 or last:
                line["validation"] = self._validate()
            self.wall_s += time.perf_counter() - begin
            line["wall_s"] = round(self.wall_s, 1)
            self.metrics.append(line)
            self.folder.add_metrics(line)
            self._save()
            go_on = report is None or report(line) is not False
        write_curve(self.folder, self.metrics, "round")

    def close(self) -> None:
        self._env.close()

    def model(self) -> Model:
        """The student that drives now."""
        trained: dict[str, Any] = {
            "how": "DAgger on image patches",
            "seed": self.seed,
            "rounds": self.round,
            "wall_s": round(self.wall_s, 1),
            "version": an_control.__version__,
        }
        if self._started is not None:
            trained["start"] = self._started
        return self._driver.model(self._task, trained)

    def _round(self, rng: np.random.Generator) -> dict[str, float]:
        """New episodes, then updates on the newest of all."""
        settings, number = self.settings, self.round
        if number == 0:
            first = settings.first_episodes if self._started is None else 2
            strengths = np.linspace(0.0, 3.0 * settings.noise, first)
            new = [self._record(None, strength, rng, settings.steps) for strength in strengths]
        else:
            new, left = [], settings.steps
            while left > 0:
                strength = settings.noise * (len(new) % 2)
                steps = min(left, settings.longest)
                new.append(self._record(self._policy(), strength, rng, steps))
                left -= len(new[-1].frames)
        self._keep(new)
        for group in self._optimiser.param_groups:
            group["lr"] = settings.rate_of(number)
        losses = []
        from_scratch = not number and self._started is None
        lanes = Lanes(self._episodes, settings, rng)
        units = self._student.table.new_zeros(settings.batch, settings.student.memory)
        for _ in range(settings.first_updates if from_scratch else settings.updates):
            loss, units = update(self._student, self._optimiser, lanes.draw(), units, settings)
            losses.append(loss)
            self._follow()
        return {
            "loss": float(np.mean(losses)),
            "return": float(np.mean([episode.total for episode in new])),
            "episodes": len(new),
            "helped": float(np.mean([episode.helped for episode in new])),
        }

    def _record(
        self, policy: Policy | None, noise: float, rng: np.random.Generator, steps: int
    ) -> Episode:
        return record(self._env, self._teacher, policy, self.settings, noise, rng, steps)

    def _policy(self) -> Policy:
        return make_policy(self.model())

    @torch.no_grad()
    def _follow(self) -> None:
        """Let the weights that drive follow those that learn."""
        learned = self._student.parameters()
        for slow, quick in zip(self._driver.parameters(), learned, strict=True):
            slow.lerp_(quick, 1.0 - self.settings.average)

    def _validate(self) -> float:
        shuffled = DisturbanceSettings(
            shuffle=Shuffle(True), missing=float(np.mean(self.settings.hidden))
        )
        results = evaluate(
            self._policy(),
            self._env,
            self._task["channels"],
            self.settings.validation_episodes,
            VALIDATION_SEED,
            shuffled,
        )
        value = float(np.mean([result.total for result in results]))
        if value >= self.best_validation:
            self.best_validation = value
            write_model(self.model_path, self.model())
        return value

    # The folder: episodes_NNN.npz is what round NNN recorded, the rest is in the checkpoint.

    def _keep(self, new: list[Episode]) -> None:
        content = io.BytesIO()
        np.savez_compressed(
            content,
            lengths=np.array([len(episode.frames) for episode in new]),
            totals=np.array([episode.total for episode in new]),
            helped=np.array([episode.helped for episode in new]),
            frames=np.concatenate([episode.frames for episode in new]),
            labels=np.concatenate([episode.labels for episode in new]),
            actions=np.concatenate([episode.actions for episode in new]),
        )
        self.folder.write(f"episodes_{self.round:03}.npz", content.getvalue())
        self._episodes = (self._episodes + new)[-self.settings.memory :]

    def _save(self) -> None:
        self.folder.checkpoint(
            {
                "student": _arrays(self._student),
                "driver": _arrays(self._driver),
                "optimiser": self._optimiser.state_dict(),
                "rounds": self.round,
                "best_validation": self.best_validation,
                "wall_s": self.wall_s,
            }
        )

    def _restore(self, state: dict[str, Any]) -> None:
        for module in ("student", "driver"):
            arrays = {name: torch.from_numpy(array) for name, array in state[module].items()}
            getattr(self, f"_{module}").load_state_dict(arrays)
        self._optimiser.load_state_dict(state["optimiser"])
        self.best_validation, self.wall_s = state["best_validation"], state["wall_s"]
        self.metrics = self.folder.keep_metrics(state["rounds"])
        for number in range(max(0, self.round - self.settings.memory), self.round):
            self._episodes += _read(self.folder.path / f"episodes_{number:03}.npz")
        self._episodes = self._episodes[-self.settings.memory :]


def _arrays(module: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.cpu().numpy().copy() for name, tensor in module.state_dict().items()}


def _read(path: Path) -> list[Episode]:
    with np.load(io.BytesIO(read_regular(path))) as stored:
        ends = np.cumsum(stored["lengths"])[:-1]
        steps = [np.split(stored[name], ends) for name in ("frames", "labels", "actions")]
        wholes = [stored[name].tolist() for name in ("totals", "helped")]
    return [Episode(*parts) for parts in zip(*steps, *wholes, strict=True)]
