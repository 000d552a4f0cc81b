"""One tick, without ROS: readings -> policy -> gate -> command.

All state that a tick needs is here and is thrown away as a whole when the node is cleaned up.
"""

from __future__ import annotations

import numpy as np

from an_control.policy import (
    EngineName,
    Model,
    Monitor,
    Policy,
    VisionNeuron,
    VisionSizes,
    load_policy,
)
from an_control.safety import EStop, Gate
from an_control.wiring import ChannelTable, Readings, Wiring, WiringError, load_wiring
from an_control.wiring.attended import attended_picture, shares
from an_control.wiring.errors import Shown

RATE_TOLERANCE = 0.1


class Controller:
    """A wiring and a policy that fit each other.

    Args:
        wiring_path, model_path: the files.
        engine: what computes the policy.
        monitor: what watches for unannounced rewiring; None for what the model says.
        ramp_s: how long authority grows after every start; 0 = off.
        estop: while it is latched every command is the safe one.

    Raises WiringError or ModelError naming file, key, value and what is allowed.
    """

    def __init__(
        self,
        wiring_path: str,
        model_path: str,
        engine: EngineName | None,
        *,
        monitor: Monitor | None = None,
        ramp_s: float = 0.0,
        estop: EStop | None = None,
    ) -> None:
        self.wiring: Wiring = load_wiring(wiring_path)
        self.table = ChannelTable(self.wiring)
        self.policy: Policy = load_policy(model_path, monitor, engine=engine)
        self.model_path = model_path
        self.estop = estop or EStop()
        self._next: tuple[str, Policy] | None = None
        self.step_s = 1.0 / self.wiring.rate_hz
        self.gate = Gate(self.wiring.command, self.step_s, ramp_s)
        self.safe_reason = ""
        """Why the last command was the safe one, empty where it was the policy's."""
        self.check(model_path, self.policy.model)

    def check(self, model_path: str, model: Model) -> None:
        """WiringError where the wiring does not fit the model.

        There must be an actuator for each of its actions, and what it reads, numbers or patches.
        """
        self._check_images(model_path, model)
        actuators, actions = len(self.wiring.command.actuators), model.sizes.actions
        if actuators != actions:
            raise WiringError(
                self.wiring.file,
                "command.actuators",
                actuators,
                f"{actions} actuators, as many as {model_path} has actions",
            )

    def _check_images(self, model_path: str, model: Model) -> None:
        images, file = self.wiring.images, self.wiring.file
        sizes = model.sizes
        if not isinstance(sizes, VisionSizes):
            if images:
                allowed = f"fields of numbers, which {model_path} reads"
                raise WiringError(file, "channels", Shown("images"), allowed)
            return
        if not images:
            allowed = f"images, whose patches {model_path} reads"
            raise WiringError(file, "channels", Shown("fields of numbers"), allowed)
        for name in ("patch", "stack"):
            if getattr(images[0], name) != getattr(sizes, name):
                allowed = f"{getattr(sizes, name)}, which {model_path} reads"
                key = f"channels.{self.wiring.channels[0].id}.image.{name}"
                raise WiringError(file, key, getattr(images[0], name), allowed)

    def rate_refusal(self, model: Model | None = None) -> str:
        """Why the policy, or another model, should not run at the wiring's rate, or nothing."""
        trained_s = (model or self.policy.model).task.get("step_s")
        if trained_s is None or abs(self.step_s / trained_s - 1.0) <= RATE_TOLERANCE:
            return ""
        return (
            f"{self.wiring.file}: rate_hz: {self.wiring.rate_hz:g}, but the model was trained at"
            f" {1.0 / trained_s:g} Hz (allowed is a difference of 10%, or parameter check_rate"
            " false)"
        )

    def rewired(self, wiring: Wiring) -> ChannelTable:
        """The table for `rewire`; WiringError where the wiring cannot take over while running."""
        for name in ("rate_hz", "command"):
            if getattr(wiring, name) != getattr(self.wiring, name):
                allowed = "what the node was configured with; clean up and configure to change it"
                raise WiringError(wiring.file, name, Shown("a change"), allowed)
        return self.table.rewired(wiring)

    def rewire(self, table: ChannelTable) -> None:
        """Read from this table from the next tick on; the policy's state stays with the ids."""
        self.table, self.wiring = table, table.wiring

    def reset(self) -> None:
        """Forget the episode: the policy's memory and the gate's."""
        self.policy.reset()
        self.table.begin_anew()
        self.gate.reset()
        self.safe_reason = ""

    def swap(self, model_path: str, policy: Policy) -> None:
        """Let `policy` act from the next tick on; callable from any thread."""
        self._next = model_path, policy

    def tick(self, now_ns: int, stamp_ns: int | None) -> tuple[np.ndarray, Readings]:
        """The command (A,) in physical units, and the readings it answers."""
        readings = self.table.read(now_ns, stamp_ns)
        self.safe_reason = self.estop.reason or self._too_little(readings)
        if self.safe_reason:
            return self.gate.safe(), readings
        if self._next is not None:
            (self.model_path, self.policy), self._next = self._next, None
        action = self.policy.step_array(readings.values, readings.ids)
        return self.gate(self.wiring.command.command(action)), readings

    def _too_little(self, readings: Readings) -> str:
        """Why the policy should not act on these readings, or an empty string."""
        if missing := self.table.missing():
            return f"required source {missing[0]!r} is missing"
        least = self.wiring.min_present_share
        present = len(readings.ids)
        if present and present >= least * readings.expected:
            return ""
        return f"{present} of {readings.expected} channels present, {least:.0%} are needed"

    def attention(self, ids: tuple[str, ...]) -> np.ndarray | None:
        """(M, N) of the last tick, columns in the order of `ids`; None without attention."""
        attention = getattr(self.policy, "attention", None)
        if attention is None or set(ids) != set(self.policy.channel_order):
            return None
        column = {name: place for place, name in enumerate(self.policy.channel_order)}
        return attention[:, [column[name] for name in ids]]

    def attended(self) -> np.ndarray | None:
        """The first camera's newest frame with the last tick's attention, rgb (H, W, 3); or None.

        What was not there for the policy is covered.
        """
        if not self.table.cameras or not isinstance(self.policy, VisionNeuron):
            return None
        camera, order = self.table.cameras[0], self.policy.channel_order
        grid = camera.image.grid
        return attended_picture(
            camera.frames[-1],
            camera.image.patch,
            shares(self.policy.attention, order, camera.ids).reshape(grid),
            present=np.isin(camera.ids, order).reshape(grid),
        )
