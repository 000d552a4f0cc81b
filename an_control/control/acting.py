"""The policy that acts, and the one that takes over from it."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from an_control.control.wiring_fit import action_places, chooses, trained_ramp_s
from an_control.policy import Model, Policy
from an_control.wiring import Readings, Wiring

ROUNDING = 1e-6
"""How far beyond 1 an action may seem that was sent as float32."""
WATCH_S = 1.0
"""For so long a new model watches beside the old one before it acts: without a memory of its gait a
walker stops."""


class ActionOrder:
    """From an action in the model's order to the actuators in the wiring's order, and back.

    Raises WiringError where the model's actuators are others than the wiring's.
    """

    def __init__(self, wiring: Wiring, model_path: str, model: Model) -> None:
        self._command = wiring.command
        places = action_places(wiring, model_path, model)
        self.places: np.ndarray | None = None
        """(A,) of each actuator of the wiring its place in the action; None where all agree."""
        if places is not None and places != list(range(len(places))):
            self.places = np.array(places, np.intp)

    def command(self, action: np.ndarray) -> np.ndarray:
        """Return the values (A,) in the wiring's order and units of an action (A,)."""
        return self._command.command(action if self.places is None else action[self.places])

    def action(self, values: np.ndarray) -> np.ndarray:
        """Return the action (A,) that means these values (A,); beyond +-1 where no action does."""
        ordered = self._command.action(values)
        if self.places is None:
            return ordered
        action = np.empty_like(ordered)
        action[self.places] = ordered
        return action


class LoadedModel(NamedTuple):
    """A policy, its model file and order of actions; `ticks` it still watches before it acts."""

    path: str
    policy: Policy
    order: ActionOrder
    ticks: int = 0


class ActingPolicy:
    """Steps the policy that acts; a model that was set meanwhile watches, and then acts.

    Args:
        wiring: names the actuators.
        model_path, policy: what acts at first.
        ramp_s: how long authority grows; None: as each model was trained.
    """

    def __init__(
        self, wiring: Wiring, model_path: str, policy: Policy, ramp_s: float | None
    ) -> None:
        self._wiring, self._asked_ramp_s = wiring, ramp_s
        self._now = LoadedModel(model_path, policy, ActionOrder(wiring, model_path, policy.model))
        self._next: LoadedModel | None = None
        self._given: deque[LoadedModel] = deque(maxlen=1)  # filled from other threads
        self.new_model = ""
        """What has become of the model that was set last; empty once it acts."""
        self.wanted: np.ndarray | None = None
        """The command (A,) that the last step asks for; None before the first."""

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
        """How long authority grows with the model that acts."""
        model = self.policy.model
        if chooses(model):
            return 0.0  # there is nothing between two buttons
        return trained_ramp_s(model) if self._asked_ramp_s is None else self._asked_ramp_s

    def action(self, values: np.ndarray) -> np.ndarray:
        """Return the action (A,), in the model's order, that means these command values (A,)."""
        return self._now.order.action(values)

    def swap(self, model_path: str, policy: Policy) -> None:
        """Let `policy` act after it has watched for WATCH_S; callable from any thread."""
        order = ActionOrder(self._wiring, model_path, policy.model)
        self.new_model = f"watching {model_path}"
        ticks = round(WATCH_S * self._wiring.rate_hz)
        self._given.append(LoadedModel(model_path, policy, order, ticks))

    def reset(self) -> None:
        """Start a new episode: forget what policy and monitor remember."""
        self.policy.reset()
        if self._next is not None:
            self._next.policy.reset()
        self.wanted = None

    def step(self, readings: Readings, sent: np.ndarray | None) -> bool:
        """Step the policy, so that `wanted` is its command; return whether another model acts now.

        Args:
            readings: which it has not seen yet.
            sent: the command (A,) that went out last, whoever sent it, as the previous action;
                None where nobody is known to have sent one.
        """
        if self.wanted is not None and sent is not None and (sent != self.wanted).any():
            _set_previous_action(self.policy, self._now.order.action(sent))
        changed = self._watch(readings, sent)
        action = self.policy.step_array(readings.values, readings.ids)
        self.wanted = self._now.order.command(action)
        return changed

    def _watch(self, readings: Readings, sent: np.ndarray | None) -> bool:
        """Let a new model see this tick too; return whether it has seen enough and acts."""
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
    """Set the action (A,) that stands for what was sent; a monitor learns nothing from one
    beyond 1."""
    within = np.clip(action, -1.0, 1.0)
    if (np.abs(within - action) > ROUNDING).any():
        policy.ignore_next_tick()
    policy.previous_action = within
