"""Record an excitation: small motions of a simulated robot, and the readings that they cause.

From them a policy that needs its channels in order finds this order on the robot, before it acts
(`an_control.monitor.exciting_policy`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from an_control.disturbance import TRAINING_SEEDS, DisturbanceSettings
from an_control.learning.command_line import format_flag
from an_control.monitor.excitation import Excitation, make_motion
from an_control.policy import Model
from an_control.policy.task import Task

if TYPE_CHECKING:
    import gymnasium

NOMINAL = DisturbanceSettings()


@dataclass(frozen=True)
class ExcitationOptions:
    """Options of `record_excitation`, which records what small motions of a robot cause."""

    model: Path
    """A policy of another tool: an .onnx file."""
    amplitude: float
    """Largest action of the motions, from 0.01 to 1: large enough for every channel to change, and
    small enough for the robot to stay as it stands or lies."""
    task: str | None = None
    """A task known by name, or a gymnasium id, also as module:id; by default the model's."""
    seconds: float = 4.95
    """Duration of the motions in seconds, from 1 to 10."""
    runs: int = 100
    """Number of times that the motions are played."""
    disturb: tuple[str, ...] = ()
    """Disturbances of the runs in the words of `evaluate --table`, such as `start=rest` or
    `start=rest,mass=0.7..1.4,jitter=0.02`; the runs take them in turn."""
    seed: int = 1
    """Seed of everything random."""

    def check_options(self) -> None:
        """Check that all numbers are within their bounds.

        Raises:
            ValueError: A number is out of bounds.
        """
        for name, least, most in (
            ("amplitude", 0.01, 1.0),
            ("seconds", 1.0, 10.0),
            ("runs", 10, 1000),
            ("seed", 0, 2**32),
        ):
            if not least <= (number := getattr(self, name)) <= most:
                raise ValueError(f"{format_flag(name)} {number}: must be from {least} to {most}")


def record_excitation(
    options: ExcitationOptions, model: Model, report: Callable[[int], object] = lambda done: None
) -> Excitation:
    """Play small motions in a simulator, and return them with the readings that they caused.

    Args:
        options: The task and the settings of the motions.
        model: The policy, whose channels are recorded.
        report: Function that is called after each run with the number of runs so far.

    Raises:
        ValueError: Options are out of bounds or do not fit the task or the model, or the robot
            falls during the motions.
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
    name = options.task or model.task.name
    try:
        robots = [Fault.parse(text).settings for text in options.disturb] or [NOMINAL]
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
        motion = make_motion(model.sizes.actions, step_s, options.amplitude, options.seconds)
        runs = _play_motion_repeatedly(env, motion, robots, options, report)
    return Excitation(model.task.channels, model.task.actuators, step_s, motion, runs)


def _check_policy_fits_task(
    options: ExcitationOptions, policy_task: Task, task: Task, name: str
) -> None:
    """Check that a policy has the channels and actuators of the task that is simulated.

    Args:
        options: The options, which name the model file for the error.
        policy_task: Task of the policy, from its model file.
        task: Task of the environment.
        name: Name of that task, for the error.

    Raises:
        ValueError: The channels or actuators differ.
    """
    for key in ("channels", "actuators"):
        mine, theirs = getattr(policy_task, key), getattr(task, key)
        if mine != theirs and ((mine and theirs) or key == "channels"):
            raise ValueError(f"{options.model}: its {key} differ from those of task {name!r}")


def _play_motion_repeatedly(
    env: gymnasium.Env[Any, Any],
    motion: np.ndarray,
    robots: Sequence[DisturbanceSettings],
    options: ExcitationOptions,
    report: Callable[[int], object],
) -> np.ndarray:
    """Play a motion in R episodes and return the readings (R, T + 1, N).

    Args:
        env: The environment.
        motion: Actions (T, A).
        robots: Disturbances that change the robot or its start; the episodes take them in turn.
        options: The number R of episodes, and the seed.
        report: Function that is called after each episode with the number of episodes so far.

    Raises:
        ValueError: An episode ends during the motion.
    """
    from an_control.learning.rollout.episode import LiveEpisode, NewestReadings
    from an_control.learning.training_disturbances import make_disturber, make_placeholder_ids

    rng = np.random.default_rng(options.seed)
    (channels,) = env.observation_space.shape or (0,)
    ids, runs = make_placeholder_ids(channels), []
    for number in range(options.runs):
        disturber = make_disturber(channels, robots[number % len(robots)], rng)
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
