"""The policy that controls the robot, and its replacement by a new model while the robot runs."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from an_control.control.wiring_fit import (
    find_action_indices,
    get_trained_ramp_s,
    has_discrete_action,
)
from an_control.policy import Model, Policy
from an_control.wiring import Readings, Wiring

ROUNDING = 1e-6
"""The largest amount by which an action may exceed 1 because it was rounded to float32 in a
message."""
WATCH_S = 1.0
"""Seconds for which a new model computes on live readings before it takes over, because a walking
robot stops if its new policy knows nothing of the gait so far."""


class ActionOrder:
    """A converter between actions in the model's actuator order and commands in the wiring's order.

    An action has one value from -1 to 1 for each actuator, a command one value in physical units.

    Args:
        wiring: The robot's configuration, which names its A actuators.
        model_path: The model file, for error texts.
        model: The model, which may name its actuators too.

    Raises:
        WiringError: The model and the wiring do not have the same actuators.
    """

    def __init__(self, wiring: Wiring, model_path: str, model: Model) -> None:
        self._command = wiring.command
        places = find_action_indices(wiring, model_path, model)
        self.places: np.ndarray | None = None
        """(A,) for each actuator of the wiring, its index in the action; None if the model's and
        the wiring's orders are equal."""
        if places is not None and places != list(range(len(places))):
            self.places = np.array(places, np.intp)

    def convert_to_command(self, action: np.ndarray) -> np.ndarray:
        """Convert an action (A,) to a command (A,) in the wiring's order and in physical units."""
        return self._command.convert_to_command(
            action if self.places is None else action[self.places]
        )

    def convert_to_action(self, values: np.ndarray) -> np.ndarray:
        """Convert a command (A,) back to the action (A,) that produces it.

        A value outside [-1, 1] means that no action produces this command.
        """
        ordered = self._command.convert_to_action(values)
        if self.places is None:
            return ordered
        action = np.empty_like(ordered)
        action[self.places] = ordered
        return action


class LoadedModel(NamedTuple):
    """A policy, the model file that it comes from, and the order of its actions.

    Attributes:
        path: The model file.
        policy: The policy that was loaded from the model file.
        order: The conversion of the policy's actions to commands.
        ticks: The number of control steps in which the policy only computes, before it takes over.
    """

    path: str
    policy: Policy
    order: ActionOrder
    ticks: int = 0


class ActingPolicy:
    """The policy that controls the robot.

    It computes once in each tick (control step) and can be replaced at run time. A new policy first
    watches: for `WATCH_S` it computes on the same readings, but its actions are not used.

    Args:
        wiring: The robot's configuration, which names the actuators.
        model_path: The model file of the first policy.
        policy: The first policy.
        ramp_s: Seconds in which commands change from the safe command to the policy's; None: for
            each model, the duration that it was trained with.
    """

    def __init__(
        self, wiring: Wiring, model_path: str, policy: Policy, ramp_s: float | None
    ) -> None:
        self._wiring, self._asked_ramp_s = wiring, ramp_s
        self._now = LoadedModel(model_path, policy, ActionOrder(wiring, model_path, policy.model))
        self._next: LoadedModel | None = None
        self._given: deque[LoadedModel] = deque(maxlen=1)  # filled from other threads
        self.new_model = ""
        """The state of the replacement in words, for diagnostics; "" once the new model acts."""
        self.wanted: np.ndarray | None = None
        """The command (A,) of the policy's newest step; None before the first step."""

    @property
    def model_path(self) -> str:
        """The model file of the policy whose actions are used now."""
        return self._now.path

    @property
    def policy(self) -> Policy:
        """The policy whose actions are used now."""
        return self._now.policy

    @property
    def newest_model(self) -> LoadedModel:
        """The new model if one is about to take over, else the model that acts."""
        return self._next or self._now

    @property
    def ramp_s(self) -> float:
        """The duration in seconds of the ramp from the safe command to this policy's commands."""
        model = self.policy.model
        if has_discrete_action(model):
            return 0.0  # choices such as buttons cannot be blended
        return get_trained_ramp_s(model) if self._asked_ramp_s is None else self._asked_ramp_s

    def convert_to_action(self, values: np.ndarray) -> np.ndarray:
        """Convert a command (A,) in physical units to the acting model's action (A,) in [-1, 1]."""
        return self._now.order.convert_to_action(values)

    def start_swap(self, model_path: str, policy: Policy) -> None:
        """Replace the policy once the new one has computed for `WATCH_S`; callable from any thread.

        Args:
            model_path: The new model file.
            policy: The new policy.

        Raises:
            WiringError: The model and the wiring do not have the same actuators.
        """
        order = ActionOrder(self._wiring, model_path, policy.model)
        self.new_model = f"watching {model_path}"
        ticks = round(WATCH_S * self._wiring.rate_hz)
        self._given.append(LoadedModel(model_path, policy, order, ticks))

    def reset(self) -> None:
        """Start a new episode: reset the acting policy, and a new model that still watches."""
        self.policy.reset()
        if self._next is not None:
            self._next.policy.reset()
        self.wanted = None

    def step(self, readings: Readings, sent: np.ndarray | None) -> bool:
        """Compute one tick with the policy, and store its command in `wanted`.

        A new model that was given to `start_swap` also computes. If it has watched long enough, it
        replaces the old model before the command of this tick is computed.

        Args:
            readings: The sensor readings of this tick, which the policy has not seen yet.
            sent: The newest command (A,) on the robot's topics, whichever node sent it; None if it
                is unknown. The policy gets it as its previous action.

        Returns:
            Whether a new model has replaced the old one in this tick.
        """
        if self.wanted is not None and sent is not None and (sent != self.wanted).any():
            _set_previous_action(self.policy, self._now.order.convert_to_action(sent))
        changed = self._step_pending_model(readings, sent)
        action = self.policy.step_array(readings.values, readings.ids)
        self.wanted = self._now.order.convert_to_command(action)
        return changed

    def _step_pending_model(self, readings: Readings, sent: np.ndarray | None) -> bool:
        """Compute one tick with the new model that was given to `start_swap`, if there is one.

        Return whether the new model has computed long enough and now acts.

        Args:
            readings: The sensor readings of this tick.
            sent: The newest command (A,) on the robot's topics, or None if it is unknown.
        """
        if self._given:
            self._next = self._given.pop()
        new = self._next
        if new is None:
            return False
        if sent is not None:
            _set_previous_action(new.policy, new.order.convert_to_action(sent))
        if new.ticks > 0 and self.wanted is not None:  # else the old policy knows no more
            new.policy.step_array(readings.values, readings.ids)
            self._next = new._replace(ticks=new.ticks - 1)
            return False
        self._now, self._next = new, None
        if not self._given and self.new_model == f"watching {new.path}":
            self.new_model = ""
        return True


def _set_previous_action(policy: Policy, action: np.ndarray) -> None:
    """Give the policy the action (A,) that was really executed, clipped to [-1, 1].

    The policy's identity monitor detects rewired sensors by predicting the next readings from the
    action. If an element of the action lies outside [-1, 1], the monitor ignores the next tick,
    because it would have to predict from an action that the policy cannot express.
    """
    within = np.clip(action, -1.0, 1.0)
    if (np.abs(within - action) > ROUNDING).any():
        policy.ignore_next_tick()
    policy.previous_action = within
