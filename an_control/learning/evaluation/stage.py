"""A policy in an environment, for one protocol after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium

from an_control.learning.evaluation.ablation import without
from an_control.learning.evaluation.evaluate import can_fuse, evaluate, evaluate_fused
from an_control.learning.rollout.episode import Result, Watch
from an_control.learning.rollout.evaluation_protocol import Part, Protocol
from an_control.load import make_policy
from an_control.policy import Model, Monitor, Policy
from an_control_sim.gym.environments import describe


class Stage:
    """Plays protocols with one model, environment and seed.

    Compiled rollouts play what they can, unless every step's reward is wanted (`stepwise`).
    """

    def __init__(
        self,
        model: Model,
        env: gymnasium.Env[Any, Any],
        seed: int,
        stepwise: bool,
        recovery: float,
    ) -> None:
        self.channels: list[str] = describe(env, "", "")["channels"]
        self.stepwise = stepwise
        self._model, self._env, self._seed, self._recovery = model, env, seed, recovery
        self._policies: dict[tuple[Monitor | None, Part | None], Policy] = {}

    def play(
        self,
        protocol: Protocol,
        episodes: int,
        report: Callable[[Result], None] | None = None,
        watch: Watch | None = None,
    ) -> list[Result]:
        """These episodes; ValueError where the environment does not offer what is asked for."""
        model, part = self._model, protocol.without
        model = model if part is None else without(model, part)
        which = protocol.monitor, part
        if which not in self._policies:
            self._policies[which] = make_policy(model, protocol.monitor, recovery=self._recovery)
        policy = self._policies[which]
        plain = protocol.memory == "kept" and protocol.until is None and watch is None
        plain = plain and policy.monitor_report is None and not self._recovery
        of, disturbance = (self._env, self.channels, episodes, self._seed), protocol.disturbance
        if plain and not self.stepwise and can_fuse(model, self._env, disturbance):
            return evaluate_fused(model, *of, disturbance)
        return evaluate(policy, *of, protocol, report, watch)
