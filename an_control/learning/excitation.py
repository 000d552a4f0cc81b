"""Record an excitation: motions of a robot, and the readings that they cause.

They are small motions of a simulated robot, or the way in which recorded episodes of a robot begin.
From them a policy that needs its channels in order finds this order on the robot, before it acts
(`an_control.monitor.exciting_policy`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from an_control.disturbance import TRAINING_SEEDS, DisturbanceSettings
from an_control.learning.limits import (
    CountOrZero,
    SettingLimits,
    check_numbers_within_limits,
)
from an_control.monitor.excitation import MIN_TICKS, Excitation, make_exciting_actions
from an_control.policy import Model
from an_control.policy.task import Task

if TYPE_CHECKING:
    import gymnasium

SECONDS, BAG_SECONDS = 4.95, 0.25
"""Default duration of small motions in a simulator, and of the beginning of recorded episodes."""
MIN_RUNS = 10
"""Least number of runs, or of recorded episodes, of which statistics are made."""


@dataclass(frozen=True)
class ExcitationOptions:
    """Options of `record_excitation`, which records small motions of a robot and their effects."""

    model: Path
    """A policy of another tool: an .onnx file."""
    amplitude: Annotated[float, SettingLimits(0.01, 1.0)] | None = None
    """Largest action of the motions, from 0.01 to 1: large enough for every channel to change, and
    small enough for the robot to stay as it stands or lies. Needed unless --bag is given."""
    bag: tuple[Path, ...] = ()
    """Take the mean of the actions with which the episodes of these recordings begin as the motion,
    and their readings, instead of a simulator. The robot must then start as in the recordings."""
    task: str | None = None
    """A task known by name, or a gymnasium id, also as module:id; by default the model's."""
    seconds: float | None = None
    """Duration of the motions in seconds, from 1 to 10, by default 4.95; with --bag from 0.1 to 10,
    by default 0.25."""
    runs: Annotated[int, SettingLimits(MIN_RUNS, 1000)] = 100
    """Number of times that the motions are played."""
    disturb: tuple[str, ...] = ()
    """Disturbances of the runs in the words of `evaluate --table`, such as `start=rest` or
    `start=rest,mass=0.7..1.4,jitter=0.02`; the runs take them in turn."""
    seed: CountOrZero = 1
    """Seed of everything random."""

    def check_options(self) -> None:
        """Check that numbers are within their bounds, and that the options can be used together.

        Raises:
            ValueError: A number is out of bounds, or --bag is given together with an option that
                applies only to a simulator.
        """
        if self.bag and (self.amplitude is not None or self.task is not None or self.disturb):
            raise ValueError("--bag: not with --amplitude, --task or --disturb")
        if not self.bag and self.amplitude is None:
            raise ValueError("--amplitude: is needed, from 0.01 to 1.0 (or recordings: --bag)")
        check_numbers_within_limits(self)
        least = 0.1 if self.bag else 1.0
        if self.seconds is not None and not least <= self.seconds <= 10.0:
            raise ValueError(f"--seconds {self.seconds}: must be from {least} to 10.0")


def record_excitation(
    options: ExcitationOptions, model: Model, report: Callable[[int], object] = lambda done: None
) -> Excitation:
    """Play small motions of a simulated robot several times; return the actions and readings.

    Later, a policy that needs ordered channels plays the same motions on the real robot. It finds
    the order of the channels by comparing the readings. With the option `bag`, nothing is played
    here: readings and mean actions are taken from the beginnings of recorded episodes.

    Args:
        options: The task and the settings of the motions, or the recordings.
        model: The policy that will play the motions on the robot; its channels are recorded.
        report: Function that is called with the number of finished runs after each run of the
            motions in the simulator.

    Raises:
        ValueError: Options are out of bounds or do not fit the task or the model, or the robot
            falls during the motions; or a recording cannot be read, or holds too few episodes.
        BrokenEnvironmentError: The environment fails.
    """
    from an_control.learning.training_disturbances import Fault
    from an_control_sim.gym.environments import (
        describe_task,
        find_environment_id,
        get_step_length_s,
        make_environment,
    )
    from an_control_sim.gym.units import Units
    from an_control_sim.gym.varied_robot import check_robot_settings

    options.check_options()
    if options.bag:
        return _make_excitation_from_recordings(options, model)
    name = options.task or model.task.name
    try:
        robots = [Fault.parse(text).settings for text in options.disturb] or [DisturbanceSettings()]
    except ValueError as error:
        raise ValueError(f"--disturb: {error}") from error
    try:
        env = make_environment(find_environment_id(name), Units.from_task(model.task))
    except ValueError as error:
        raise ValueError(f"--task: {error}") from error
    with closing(env):
        _check_policy_fits_task(options, model.task, describe_task(env, name, name), name)
        try:
            for robot in robots:
                check_robot_settings(env, robot)
        except ValueError as error:
            raise ValueError(f"--disturb: {error}") from error
        step_s = model.task.step_s or get_step_length_s(env)
        assert options.amplitude is not None
        seconds = SECONDS if options.seconds is None else options.seconds
        motion = make_exciting_actions(model.sizes.actions, step_s, options.amplitude, seconds)
        runs = _play_motion_and_record_readings(env, motion, robots, options, report)
    return Excitation(model.task.channels, model.task.actuators, step_s, motion, runs)


def _make_excitation_from_recordings(options: ExcitationOptions, model: Model) -> Excitation:
    """Return an excitation that consists of the first ticks of recorded episodes.

    Its actions are averaged over the episodes; its readings are those of each episode.
    """
    from an_control.learning.recordings import read_recorded_traces

    if not (step_s := model.task.step_s):
        raise ValueError(f"{options.model}: names no period of its ticks (step_s)")
    seconds = BAG_SECONDS if options.seconds is None else options.seconds
    ticks = max(MIN_TICKS, round(seconds / step_s))
    traces = read_recorded_traces(options.bag, options.model, model, unknown=np.nan)
    long = [one for one in traces if len(one.actions) >= ticks]
    if len(long) < MIN_RUNS:
        raise ValueError(
            f"--bag: {len(long)} episodes of {seconds:g} s or more; at least {MIN_RUNS} are needed"
        )
    motion = np.mean([one.actions[:ticks] for one in long], axis=0).clip(-1.0, 1.0)
    runs = np.array([one.readings[: ticks + 1] for one in long])
    if np.isnan(runs).any():
        missing = np.isnan(runs).any((0, 1))
        names = ", ".join(np.array(model.task.channels)[missing])
        raise ValueError(f"--bag: channels are missing at the beginning of episodes: {names}")
    return Excitation(
        model.task.channels,
        model.task.actuators,
        step_s,
        motion.astype(np.float32),
        runs.astype(np.float32),
    )


def _check_policy_fits_task(
    options: ExcitationOptions, policy_task: Task, task: Task, task_name: str
) -> None:
    """Check that a policy has the channels and actuators of the task that is simulated."""
    for key in ("channels", "actuators"):
        mine, theirs = getattr(policy_task, key), getattr(task, key)
        if mine != theirs and ((mine and theirs) or key == "channels"):
            raise ValueError(f"{options.model}: its {key} differ from those of task {task_name!r}")


def _play_motion_and_record_readings(
    env: gymnasium.Env[Any, Any],
    motion: np.ndarray,
    robot_disturbances: Sequence[DisturbanceSettings],
    options: ExcitationOptions,
    report: Callable[[int], object],
) -> np.ndarray:
    """Play a motion of T steps in R episodes and return the readings (R, T + 1, N)."""
    from an_control.learning.rollout.episode import LiveEpisode, NewestReadings
    from an_control.learning.training_disturbances import make_disturber, make_placeholder_ids

    rng = np.random.default_rng(options.seed)
    (channels,) = env.observation_space.shape or (0,)
    ids, runs = make_placeholder_ids(channels), []
    for number in range(options.runs):
        disturber = make_disturber(
            channels, robot_disturbances[number % len(robot_disturbances)], rng
        )
        episode = LiveEpisode(env, int(rng.integers(*TRAINING_SEEDS)), disturber, ids)
        readings, newest = [], NewestReadings()
        for tick in episode:
            readings.append(newest(tick.values))
            if len(readings) > len(motion):
                break
            episode.send_action(motion[len(readings) - 1])
        if len(readings) <= len(motion):
            raise ValueError(
                f"run {number + 1}: the episode ended after {len(readings)} of {len(motion)} ticks:"
                " the robot must stand or lie safely during the motions; allowed are a smaller"
                " --amplitude, fewer --seconds, and for some tasks --disturb start=rest"
            )
        runs.append(readings)
        report(number + 1)
    return np.array(runs, np.float32)
