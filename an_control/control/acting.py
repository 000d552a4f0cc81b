"""The policy that acts, and a new model that takes over from it while the robot runs."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from an_control.control.wiring_fit import action_places, has_discrete_action, trained_ramp_s
from an_control.policy import Model, Policy
from an_control.wiring import Readings, Wiring

ROUNDING = 1e-6
"""The most by which an action that was sent as float32 may seem to exceed 1."""
WATCH_S = 1.0
"""Seconds for which a new model computes beside the old one before it acts: without a memory of its
gait a walker stops."""


class ActionOrder:
    """The mapping between an action in the model's order and commands in the wiring's order.

    Args:
        wiring: The wiring, with A actuators.
        model_path: The model file, for error texts.
        model: The model.

    Raises:
        WiringError: The model's actuators are not the wiring's.
    """

    def __init__(self, wiring: Wiring, model_path: str, model: Model) -> None:
        self._command = wiring.command
        places = action_places(wiring, model_path, model)
        self.places: np.ndarray | None = None
        """(A,) the place in the action of each actuator of the wiring; None if the orders are
        equal."""
        if places is not None and places != list(range(len(places))):
            self.places = np.array(places, np.intp)

    def command(self, action: np.ndarray) -> np.ndarray:
        """Return the command (A,) of an action (A,), in the wiring's order and physical units."""
        return self._command.command(action if self.places is None else action[self.places])

    def action(self, values: np.ndarray) -> np.ndarray:
        """Return the action (A,) that stands for a command (A,).

        A value lies beyond +-1 if no action stands for it.
        """
        ordered = self._command.action(values)
        if self.places is None:
            return ordered
        action = np.empty_like(ordered)
        action[self.places] = ordered
        return action


class LoadedModel(NamedTuple):
    """A policy with its model file and order of actions.

    `ticks` is the number of ticks that it still watches before it acts.
    """

    path: str
    policy: Policy
    order: ActionOrder
    ticks: int = 0


class ActingPolicy:
    """The policy that acts, which is stepped once a tick and can be swapped for another one.

    A new model first watches: it computes beside the acting one for `WATCH_S` without effect.

    Args:
        wiring: The wiring, which names the actuators.
        model_path: The model file of the first policy.
        policy: The first policy.
        ramp_s: Seconds of the ramp from the safe command to the policy's; None: as each model was
            trained.
    """

    def __init__(
        self, wiring: Wiring, model_path: str, policy: Policy, ramp_s: float | None
    ) -> None:
        self._wiring, self._asked_ramp_s = wiring, ramp_s
        self._now = LoadedModel(model_path, policy, ActionOrder(wiring, model_path, policy.model))
        self._next: LoadedModel | None = None
        self._given: deque[LoadedModel] = deque(maxlen=1)  # filled from other threads
        self.new_model = ""
        """The state of the model that was set last, as text; "" once it acts."""
        self.wanted: np.ndarray | None = None
        """The command (A,) of the last step; None before the first."""

    @property
    def model_path(self) -> str:
        """The model file of the policy that acts."""
        return self._now.path

    @property
    def policy(self) -> Policy:
        """The policy that acts."""
        return self._now.policy

    @property
    def ramp_s(self) -> float:
        """Seconds of the ramp from the safe command to the commands of the model that acts."""
        model = self.policy.model
        if has_discrete_action(model):
            return 0.0  # there is nothing between two buttons
        return trained_ramp_s(model) if self._asked_ramp_s is None else self._asked_ramp_s

    def swap(self, model_path: str, policy: Policy) -> None:
        """Let `policy` act after it has watched for `WATCH_S`; callable from any thread.

        Raises:
            WiringError: The model's actuators are not the wiring's.
        """
        order = ActionOrder(self._wiring, model_path, policy.model)
        self.new_model = f"watching {model_path}"
        ticks = round(WATCH_S * self._wiring.rate_hz)
        self._given.append(LoadedModel(model_path, policy, order, ticks))

    def reset(self) -> None:
        """Start a new episode: reset policies and monitors."""
        self.policy.reset()
        if self._next is not None:
            self._next.policy.reset()
        self.wanted = None

    def step(self, readings: Readings, sent: np.ndarray | None) -> bool:
        """Step the policy and set `wanted`; return whether another model acts from now on.

        Args:
            readings: Readings that the policy has not seen yet.
            sent: The last command (A,) on the robot's topics, from whatever sender, as the previous
                action; None if it is unknown.
        """
        if self.wanted is not None and sent is not None and (sent != self.wanted).any():
            _set_previous_action(self.policy, self._now.order.action(sent))
        changed = self._watch(readings, sent)
        action = self.policy.step_array(readings.values, readings.ids)
        self.wanted = self._now.order.command(action)
        return changed

    def _watch(self, readings: Readings, sent: np.ndarray | None) -> bool:
        """Step a new model too; return whether it has watched long enough and acts now."""
        if self._given:
            self._next = self._given.pop()
        new = self._next
        if new is None:
            return False
        if sent is not None:
            _set_previous_action(new.policy, new.order.action(sent))
        if new.ticks > 0 and self.wanted is not None:  # else nobody knows more than it does
            new.policy.step_array(readings.values, readings.ids)
            self._next = new._replace(ticks=new.ticks - 1)
            return False
        self._now, self._next = new, None
        if not self._given and self.new_model == f"watching {new.path}":
            self.new_model = ""
        return True


def _set_previous_action(policy: Policy, action: np.ndarray) -> None:
    """Set the action (A,) that stands for the last command.

    One beyond +-1 is excluded from the monitor's evidence.
    """
    within = np.clip(action, -1.0, 1.0)
    if (np.abs(within - action) > ROUNDING).any():
        policy.ignore_next_tick()
    policy.previous_action = within
