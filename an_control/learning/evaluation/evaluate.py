"""Play episodes with a policy, without ROS, under the same disturbances as in the simulator node.

Episode e of a run starts from `derive_episode_seed(seed, e)`, and its readings pass the same
`Disturber` as over ROS 2, so that episodes with and without ROS give the same returns. Training
never uses these seeds, because it takes its seeds from `TRAINING_SEEDS`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from an_control.disturbance import DisturbanceSettings, Disturber
from an_control.learning.rollout.engine import make_evaluation_seeds
from an_control.learning.rollout.episode import PlayedEpisode, Watch, play_episode
from an_control.learning.rollout.evaluation_protocol import EvaluationProtocol, RemovablePart
from an_control.load import make_policy
from an_control.policy import (
    AttentionSizes,
    Model,
    Monitor,
    OrderedSizes,
    Policy,
    VisionSizes,
)
from an_control_sim.gym.environments import (
    AdaptedEnvironment,
    HasBackgrounds,
    HasBatch,
    describe_task,
    find_environment_id,
    make_environment,
)
from an_control_sim.gym.units import Units
from an_control_sim.gym.varied_robot import check_robot_settings


def make_environment_for_model(
    model_path: Path, model: Model, task: str
) -> gymnasium.Env[Any, Any]:
    """Make the environment of a task, in a model's units, and check that the model fits it.

    Args:
        model_path: The model file, for error texts.
        model: The model that was read from this file.
        task: A task known by name, or a gymnasium id.

    Raises:
        ValueError: The task has another number of actuators or channels than the model.
    """
    environment = find_environment_id(task)
    env = make_environment(environment, Units.from_task(model.task))
    (actuators,), actions = env.action_space.shape or (0,), model.sizes.actions
    if actuators != actions:
        env.close()
        raise ValueError(
            f"{model_path}: has {actions} actions, but {environment} has {actuators} actuators"
        )
    channels = len(describe_task(env, "", environment).channels)
    expected = len(model.task.channels) or channels
    if isinstance(model.sizes, OrderedSizes):
        expected = model.sizes.channels
    if channels != expected:
        env.close()
        raise ValueError(
            f"{model_path}: expects {expected} channels, but {environment} has {channels}"
            " (allowed: the task that it was trained for, or one with as many channels)"
        )
    return env


def play_episodes(
    policy: Policy,
    env: gymnasium.Env[Any, Any],
    channels: Sequence[str],
    episodes: int,
    seed: int,
    protocol: EvaluationProtocol | DisturbanceSettings,
    report_result: Callable[[PlayedEpisode], None] | None = None,
    watch: Watch | None = None,
) -> list[PlayedEpisode]:
    """Play episodes of an environment with a policy.

    The same seed gives the same starts and the same permutations under every protocol (kind of
    disturbance).

    Args:
        policy: The policy; it is reset before each episode.
        env: The environment.
        channels: Ids of the observation's entries, in their order.
        episodes: Number of episodes.
        seed: Seed of the start states and of the disturbances.
        protocol: Disturbance of the episodes, and what happens to the state of the sensory neurons
            (the networks of the channels) when signals are permuted.
        report_result: Function that receives the result of each episode; None for none.
        watch: Function that is called after each action with the policy and the object that
            disturbs the episode; None for none.

    Returns:
        One result for each episode.

    Raises:
        ValueError: The environment does not support the protocol.
    """
    if isinstance(protocol, DisturbanceSettings):
        protocol = EvaluationProtocol(protocol)
    protocol.disturbance.check_swap_count(len(channels))
    check_robot_settings(env, protocol.disturbance)
    _set_background(env, protocol.background)
    disturber = Disturber(channels, protocol.disturbance, seed, protocol.schedule)
    results = []
    for start in make_evaluation_seeds(seed, episodes):
        ids = tuple(channels)
        results.append(play_episode(policy, env, ids, disturber, start, protocol, watch))
        if report_result is not None:
            report_result(results[-1])
    return results


def _set_background(env: gymnasium.Env[Any, Any], background: str) -> None:
    """Set the background of an environment with a camera; "" stands for the usual one."""
    inner = env.unwrapped
    if isinstance(inner, HasBackgrounds):
        inner.show(background or inner.plain)
    elif background:
        raise ValueError(
            f"background={background}: {type(inner).__name__} has no other backgrounds"
        )


def play_episodes_with_compiled_code(
    model: Model,
    env: gymnasium.Env[Any, Any],
    channels: Sequence[str],
    episodes: int,
    seed: int,
    disturbance: DisturbanceSettings,
) -> list[PlayedEpisode]:
    """Play the same episodes as `play_episodes`, but by compiled code, which is faster.

    This is possible only if `can_play_with_compiled_code` returns True.

    Args:
        model: The model to play.
        env: An environment with compiled physics.
        channels: Ids of the observation's entries, in their order.
        episodes: Number of episodes.
        seed: Seed of the start states and of the disturbances.
        disturbance: Disturbance of the readings.

    Returns:
        One result for each episode, without the rewards of its steps.
    """
    from an_control.learning.rollout.compiled.engine import FusedEngine

    begin = time.perf_counter()
    assert isinstance(env.unwrapped, HasBatch)
    batch = env.unwrapped.batch
    engine = FusedEngine(batch, channels, model.sizes.actions)
    outcomes = engine.play([model], make_evaluation_seeds(seed, episodes), disturbance)
    engine.close()
    wall_s = (time.perf_counter() - begin) / episodes
    shuffle, results = disturbance.shuffle, []
    for total, steps in zip(outcomes.returns[0].tolist(), outcomes.steps[0].tolist(), strict=True):
        shuffles = int(shuffle.at_reset) + ((steps - 1) // shuffle.every if shuffle.every else 0)
        results.append(PlayedEpisode(total, steps, shuffles, steps < batch.steps, None, wall_s))
    return results


def can_play_with_compiled_code(
    model: Model, env: gymnasium.Env[Any, Any], disturbance: DisturbanceSettings
) -> bool:
    """Return whether `play_episodes_with_compiled_code` can play the given combination.

    Compiled code plays many episodes at once, but it supports only some models, environments and
    disturbances.
    """
    if isinstance(model.sizes, VisionSizes) or not model.sizes.can_be_compiled_in_rollouts:
        return False
    if isinstance(env, AdaptedEnvironment) and env.units:
        return False
    return isinstance(env.unwrapped, HasBatch) and disturbance.is_supported_by_compiled_rollouts


def summarise_episode_results(
    results: Sequence[PlayedEpisode], success_threshold: float | None = None
) -> dict[str, Any]:
    """Return statistics of several episodes by name: returns, falls, distance walked, speed.

    Args:
        results: Results of the episodes.
        success_threshold: An episode with a return above this is a success; None if there is no
            threshold.
    """
    returns = np.array([result.total for result in results])
    distances = [result.distance_m for result in results if result.distance_m is not None]
    return {
        "mean": float(returns.mean()),
        "sd": float(returns.std()),
        "min": float(returns.min()),
        "median": float(np.median(returns)),
        "max": float(returns.max()),
        "success_share": None
        if success_threshold is None
        else float((returns > success_threshold).mean()),
        "falls": sum(result.fell for result in results),
        "distance_m": float(np.mean(distances)) if distances else None,
        "steps_per_s": sum(r.steps for r in results) / sum(r.wall_s for r in results),
    }


def make_model_without_part(model: Model, part: RemovablePart) -> Model:
    """Return a copy of a model without one of its parts, to measure what this part contributes.

    Args:
        model: A model of kind attention_neuron.
        part: "attention": the keys no longer depend on the readings, so that every channel gets the
            same weight. "queries": every query is replaced by the mean of all queries, so that all
            elements of the attention message are equal. "action": no sensory neuron receives the
            previous action (a recurrent layer after the attention still receives it).

    Raises:
        ValueError: The model has no such part.
    """
    arrays = dict(model.arrays)
    if not isinstance(model.sizes, AttentionSizes) or "attention.key" not in arrays:
        raise ValueError(f"without={part}: only for an attention_neuron with keys and queries")
    if part == "attention":
        arrays["attention.key"] = np.zeros_like(arrays["attention.key"])
    elif part == "queries":
        queries = arrays["attention.queries"].copy()
        of_channels = queries if model.sizes.attention == "tanh" else queries[:-1]
        of_channels[:] = of_channels.mean(0)
        arrays["attention.queries"] = queries
    else:
        for name in ("neuron.action", "neuron.products"):
            if name in arrays:
                arrays[name] = np.zeros_like(arrays[name])
    return replace(model, arrays=arrays)


class ProtocolPlayer:
    """Player of evaluation episodes with one model, environment and seed.

    Its episodes can have any protocol (kind of disturbance). Compiled code plays them if it
    supports the protocol and `with_step_rewards` is not set. Otherwise a loop in Python plays them.

    Args:
        model: The model.
        env: The environment.
        seed: Seed of the start states and of the disturbances.
        with_step_rewards: Whether the reward of every step is needed.
        recovery: Threshold for the mean change of the readings in a tick. Below it, a robot counts
            as standing still and gets random actions until it moves. 0 means never.
    """

    def __init__(
        self,
        model: Model,
        env: gymnasium.Env[Any, Any],
        seed: int,
        with_step_rewards: bool,
        recovery: float,
    ) -> None:
        self.channels = describe_task(env, "", "").channels
        self.stepwise = with_step_rewards
        self._model, self._env, self._seed, self._recovery = model, env, seed, recovery
        self._policies: dict[tuple[Monitor | None, RemovablePart | None], Policy] = {}

    def play(
        self,
        protocol: EvaluationProtocol,
        episodes: int,
        report: Callable[[PlayedEpisode], None] | None = None,
        watch: Watch | None = None,
    ) -> list[PlayedEpisode]:
        """Play episodes under a protocol and return their results.

        Args:
            protocol: Disturbance of the episodes, and how the policy is changed for them.
            episodes: Number of episodes.
            report: Function that receives the result of each episode; None for none. It is not
                called if compiled code plays the episodes.
            watch: Function that is called after each action with the policy and the object that
                disturbs the episode; None for none.

        Raises:
            ValueError: The environment does not support the protocol.
        """
        model, part = self._model, protocol.without
        model = model if part is None else make_model_without_part(model, part)
        which = protocol.monitor, part
        if which not in self._policies:
            self._policies[which] = make_policy(model, protocol.monitor, recovery=self._recovery)
        policy = self._policies[which]
        plain = protocol.state_at_permutation == "kept" and protocol.until is None and watch is None
        plain = plain and policy.monitor_report is None and not self._recovery
        of, disturbance = (self._env, self.channels, episodes, self._seed), protocol.disturbance
        if (
            plain
            and not self.stepwise
            and can_play_with_compiled_code(model, self._env, disturbance)
        ):
            return play_episodes_with_compiled_code(model, *of, disturbance)
        return play_episodes(policy, *of, protocol, report, watch)
