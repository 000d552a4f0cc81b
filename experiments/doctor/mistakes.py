"""Make wiring mistakes on purpose, and play a simulated robot through them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from an_control.commissioning.doctor import Recording
from an_control.disturbance import DisturbanceSettings, Disturber
from an_control.learning.rollout.engine import make_evaluation_starts
from an_control.learning.rollout.episode import LiveEpisode
from an_control.load import make_policy
from an_control.monitor.forward_model import ForwardModel
from an_control.policy import read_model
from an_control.wiring import load_wiring
from an_control_sim.gym.environments import find_environment_id, make_environment

MODELS = Path(__file__).resolve().parents[2] / "models"


@dataclass(frozen=True)
class Mistake:
    """One mistake in a wiring or on the robot.

    Args:
        kind: sign, scale, offset, delay, stuck, noise only, swapped, permuted, motor reversed,
            motor gain, motor dead or motors swapped.
        members: Ids of channels or names of motors.
        value: Factor, added offset in the unit of the readings, delay in ticks, or size of the
            noise.
        others: Whose signals the members get, if they are swapped or permuted.
    """

    kind: str
    members: tuple[str, ...]
    value: float = 0.0
    others: tuple[str, ...] = ()


@dataclass
class Wired:
    """Readings and commands of a robot as some mistakes change them."""

    ids: Sequence[str]
    actuators: Sequence[str]
    mistakes: Sequence[Mistake]
    scale: np.ndarray
    offset: np.ndarray
    past: list[np.ndarray] = field(default_factory=list)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def readings(self, true: np.ndarray, first: bool) -> np.ndarray:
        """Return the raw numbers (N,) that the fields carry for these true readings (N,)."""
        raw = (true - self.offset) / self.scale
        if first:
            self.past = []
        self.past.append(raw.copy())
        for one in self.mistakes:
            if one.kind.startswith("motor"):
                continue
            members = [self.ids.index(name) for name in one.members]
            if one.kind == "sign":
                raw[members] *= -1.0
            elif one.kind == "scale":
                raw[members] *= one.value
            elif one.kind == "offset":
                raw[members] += one.value / self.scale[members]
            elif one.kind == "delay":
                late = self.past[max(0, len(self.past) - 1 - int(one.value))]
                raw[members] = late[members]
            elif one.kind == "stuck":
                raw[members] = self.past[0][members]
            elif one.kind == "noise only":
                noise = self.rng.standard_normal(len(members))
                raw[members] = one.value * noise / self.scale[members]
            else:
                raw[members] = raw[[self.ids.index(name) for name in one.others]]
        return raw

    def moved(self, action: np.ndarray) -> np.ndarray:
        """Return the action (A,) that reaches the robot."""
        action = action.copy()
        for one in self.mistakes:
            if not one.kind.startswith("motor"):
                continue
            members = [self.actuators.index(name) for name in one.members]
            if one.kind == "motors swapped":
                action[members] = action[[self.actuators.index(name) for name in one.others]]
            else:
                action[members] *= one.value
        return np.clip(action, -1.0, 1.0)


class Robot:
    """A simulated robot with a policy, read through a wiring.

    Args:
        model: File of the policy and its monitor.
        wiring: File with scale, offset and clip of the channels; None for plain readings.
    """

    def __init__(self, model: Path, wiring: Path | None = None) -> None:
        self.model = read_model(model)
        self.forward = ForwardModel(self.model)
        self.ids = tuple(self.model.task.channels)
        self.actuators = tuple(self.model.task.actuators)
        self.step_s = float(self.model.task.step_s or 0.02)
        self.policy = make_policy(self.model)
        self.env = make_environment(find_environment_id(str(self.model.task.name)))
        count = len(self.ids)
        self.scale, self.offset = np.ones(count), np.zeros(count)
        self.clip = np.tile([-np.inf, np.inf], (count, 1))
        self.groups: dict[str, tuple[int, ...]] = {}
        if wiring is not None:
            self._read(wiring)

    def _read(self, file: Path) -> None:
        wiring = load_wiring(file)
        for config in wiring.channels:
            before, _, _ = config.id.partition("*")
            members = [
                place
                for place, id_ in enumerate(self.ids)
                if id_ == config.id or ("*" in config.id and id_.startswith(before))
            ]
            for place in members:
                self.scale[place], self.offset[place] = config.scale, config.offset
                if config.clip is not None:
                    self.clip[place] = config.clip
                self.groups.setdefault(f"source {config.source}", ())
                self.groups[f"source {config.source}"] += (place,)

    def play(
        self,
        mistakes: Sequence[Mistake] = (),
        *,
        seed: int = 0,
        ticks: int | None = None,
        whole: bool = False,
        disturbance: DisturbanceSettings | None = None,
        read_as: Any = None,
    ) -> tuple[Recording, float]:
        """Play the robot and return a recording of it and the mean return of its episodes.

        Args:
            mistakes: Mistakes in the wiring.
            seed: Seed of the episodes.
            ticks: Maximum number of recorded ticks, in as many episodes as it takes; None for one
                episode.
            whole: Play the last episode to its end, although the recording has ended.
            disturbance: Disturbances of readings and robot.
            read_as: The candidate wiring with which the policy reads and commands instead of the
                robot's own; None for the robot's own.
        """
        raws: list[np.ndarray] = []
        actions: list[np.ndarray] = []
        starts: list[bool] = []
        returns: list[float] = []
        episode = 0
        settings = disturbance or DisturbanceSettings()
        while not raws or (ticks is not None and len(raws) < ticks):
            start = make_evaluation_starts(seed, episode + 1)[episode]
            disturber = Disturber(self.ids, settings, seed)
            disturber.reset(start.episode)
            wired = Wired(self.ids, self.actuators, mistakes, self.scale, self.offset)
            wired.rng = np.random.default_rng([seed, episode])
            live = LiveEpisode(self.env, start.environment, disturber, self.ids)
            self.policy.reset()
            order: list[int] = []
            ids: tuple[str, ...] = ()
            first, action = True, None
            for tick in live:
                if tick.ids is not ids:
                    ids = tick.ids
                    place = {name: number for number, name in enumerate(ids)}
                    order = [place.get(name, -1) for name in self.ids]
                values = np.append(np.asarray(tick.values, float), np.nan)[order]
                raw = wired.readings(values, first)
                if tick.arrived or action is None:
                    seen, present = self._seen(raw, read_as)
                    action = self.policy.step_array(
                        seen[present],
                        tuple(name for name, there in zip(self.ids, present, strict=True) if there),
                    )
                sent = self._sent(action, read_as)
                if ticks is None or len(raws) < ticks:
                    raws.append(raw)
                    actions.append(sent)
                    starts.append(first)
                elif not whole:
                    break
                first = False
                live.act(wired.moved(sent).astype(np.float32))
            returns.append(live.total)
            episode += 1
        recording = Recording(
            self.ids, np.array(raws), np.array(actions), self.scale, self.offset, self.clip,
            np.array(starts), self.actuators, self.groups,
        )  # fmt: skip
        return recording, float(np.mean(returns))

    def _seen(self, raw: np.ndarray, read_as: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the readings (N,) that the policy gets, and which of them are present (N,)."""
        if read_as is None:
            values = raw * self.scale + self.offset
        else:
            values = raw[read_as.slots] * read_as.scale + read_as.offset
            values[read_as.unusable] = np.nan
        values = np.clip(values, *self.clip.T)
        return values, ~np.isnan(values)

    def _sent(self, action: np.ndarray, read_as: Any) -> np.ndarray:
        """Return the command for the policy's action (A,), in the units of the original wiring."""
        if read_as is None:
            return np.asarray(action)
        sent = np.empty_like(action)
        gain = np.where(read_as.gain == 0.0, 1.0, read_as.gain)
        sent[read_as.motors] = action / gain
        return np.clip(sent, -1.0, 1.0)
