"""Mistakes in a wiring (the file that connects a robot to a policy), and a robot that has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from an_control.commissioning.doctor import Recording
from an_control.disturbance import DisturbanceSettings, Disturber
from an_control.learning.rollout.engine import make_evaluation_seeds
from an_control.learning.rollout.episode import LiveEpisode
from an_control.load import make_policy
from an_control.monitor.forward_model import ForwardModel
from an_control.policy import read_model
from an_control.wiring import load_wiring
from an_control_sim.gym.environments import find_environment_id, make_environment

MODELS = Path(__file__).resolve().parents[2] / "models"


@dataclass(frozen=True)
class Mistake:
    """A mistake in a wiring (which connects a robot to a policy), or a fault of the robot.

    Attributes:
        kind: One of sign, scale, offset, delay, stuck, noise only, swapped, permuted, motor
            reversed, motor gain, motor dead and motors swapped.
        members: The names of the channels or motors that are affected.
        value: A factor (scale, motors), an offset in the unit of the readings (offset), a number of
            ticks (delay), or a standard deviation (noise only); 0 for all other kinds.
        others: If values are swapped or permuted: for each of `members`, the channel or motor whose
            values it gets. Otherwise ().
    """

    kind: str
    members: tuple[str, ...]
    value: float = 0.0
    others: tuple[str, ...] = ()


@dataclass
class MistakenWiring:
    """A simulation of mistakes in a wiring: it distorts a robot's readings and actions.

    Attributes:
        ids: The ids of the channels (N,).
        actuators: The names of the motors (A,).
        mistakes: The mistakes.
        scale: The factor from the sensor's number to the reading (N,).
        offset: The number that is added after scaling (N,).
        past: The numbers (N,) that correct sensors would have sent at each step since the start of
            the episode.
        rng: The random generator of noise.
    """

    ids: Sequence[str]
    actuators: Sequence[str]
    mistakes: Sequence[Mistake]
    scale: np.ndarray
    offset: np.ndarray
    past: list[np.ndarray] = field(default_factory=list)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def distort_readings(self, true_readings: np.ndarray, is_first_step: bool) -> np.ndarray:
        """Return the numbers (N,) that the sensors send if the wiring has the mistakes.

        These numbers are not yet converted by scale and offset, but `true_readings` (N,) are. At
        the first step of an episode, the numbers stored in the previous episode are forgotten.
        """
        raw = (true_readings - self.offset) / self.scale
        if is_first_step:
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

    def distort_action(self, action: np.ndarray) -> np.ndarray:
        """Return the action (A,) that really reaches the motors when `action` (A,) is sent."""
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
    """A simulated robot under a policy, in whose wiring mistakes can be made.

    Args:
        model: The file of the policy and its monitor.
        wiring: The file with scale, offset and clip bounds of the channels; None: all readings are
            used unchanged.
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
            self._read_wiring(wiring)

    def _read_wiring(self, file: Path) -> None:
        """Set scale, offset, clip bounds and source group of each channel from a wiring file."""
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

    def record_run_and_mean_return(
        self,
        mistakes: Sequence[Mistake] = (),
        *,
        seed: int = 0,
        ticks: int | None = None,
        disturbance: DisturbanceSettings | None = None,
        repaired: Any = None,
    ) -> tuple[Recording, float]:
        """Run the robot with mistakes in its wiring; return a recording and the mean return.

        Args:
            mistakes: The mistakes.
            seed: The seed of the episodes.
            ticks: The number of control steps to record; None for one episode.
            disturbance: What is done to readings and robot on purpose, besides the mistakes.
            repaired: A corrected wiring from the doctor, by which readings and actions are
                converted; None to convert them by the mistaken wiring.
        """
        raws: list[np.ndarray] = []
        actions: list[np.ndarray] = []
        starts: list[bool] = []
        returns: list[float] = []
        episode = 0
        settings = disturbance or DisturbanceSettings()
        while not raws or (ticks is not None and len(raws) < ticks):
            start = make_evaluation_seeds(seed, episode + 1)[episode]
            disturber = Disturber(self.ids, settings, seed)
            disturber.start_episode(start.episode)
            wired = MistakenWiring(self.ids, self.actuators, mistakes, self.scale, self.offset)
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
                raw = wired.distort_readings(values, first)
                if tick.arrived or action is None:
                    seen, present = self._make_policy_readings_and_presence(raw, repaired)
                    action = self.policy.step_array(
                        seen[present],
                        tuple(name for name, there in zip(self.ids, present, strict=True) if there),
                    )
                sent = self._convert_action_to_own_wiring(action, repaired)
                if ticks is None or len(raws) < ticks:
                    raws.append(raw)
                    actions.append(sent)
                    starts.append(first)
                else:
                    break
                first = False
                live.send_action(wired.distort_action(sent).astype(np.float32))
            returns.append(live.total)
            episode += 1
        recording = Recording(
            self.ids, np.array(raws), np.array(actions), self.scale, self.offset, self.clip,
            np.array(starts), self.actuators, self.groups,
        )  # fmt: skip
        return recording, float(np.mean(returns))

    def _make_policy_readings_and_presence(
        self, raw: np.ndarray, repaired: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Convert the sensors' numbers (N,) to readings (N,), and whether each is present."""
        if repaired is None:
            values = raw * self.scale + self.offset
        else:
            values = raw[repaired.slots] * repaired.scale + repaired.offset
            values[repaired.unusable] = np.nan
        values = np.clip(values, *self.clip.T)
        return values, ~np.isnan(values)

    def _convert_action_to_own_wiring(self, action: np.ndarray, repaired: Any) -> np.ndarray:
        """Return the action (A,) with which the robot's wiring sends a repaired one's commands."""
        if repaired is None:
            return np.asarray(action)
        sent = np.empty_like(action)
        gain = np.where(repaired.gain == 0.0, 1.0, repaired.gain)
        sent[repaired.motors] = action / gain
        return np.clip(sent, -1.0, 1.0)
