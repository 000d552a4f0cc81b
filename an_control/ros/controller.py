"""One tick, without ROS: readings -> policy -> gate -> command.

All state that a tick needs is here and is thrown away as a whole when the node is cleaned up.
"""

from __future__ import annotations

import numpy as np

from an_control.policy import EngineName, Ordered, Policy, load_policy
from an_control.safety import Gate
from an_control.wiring import ChannelTable, Readings, Wiring, WiringError, load_wiring
from an_control.wiring.errors import Shown

RATE_TOLERANCE = 0.1


class Controller:
    """A wiring and a policy that fit each other.

    Raises WiringError or ModelError naming file, key, value and what is allowed.
    """

    def __init__(self, wiring_path: str, model_path: str, engine: EngineName | None) -> None:
        self.wiring: Wiring = load_wiring(wiring_path)
        self.table = ChannelTable(self.wiring)
        self.policy: Policy = load_policy(model_path, engine=engine)
        self.step_s = 1.0 / self.wiring.rate_hz
        self.gate = Gate(self.wiring.command, self.step_s)
        self.safe_reason = ""
        """Why the last command was the safe one, empty where it was the policy's."""
        actuators, actions = len(self.wiring.command.actuators), self.policy.model.sizes.actions
        if actuators != actions:
            raise WiringError(
                self.wiring.file,
                "command.actuators",
                actuators,
                f"{actions} actuators, as many as {model_path} has actions",
            )

    def rate_refusal(self) -> str:
        """Why the policy should not run at the wiring's rate, or an empty string."""
        trained_s = self.policy.model.task.get("step_s")
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
        self.gate.reset()
        self.safe_reason = ""

    def tick(self, now_ns: int, stamp_ns: int | None) -> tuple[np.ndarray, Readings]:
        """The command (A,) in physical units, and the readings it answers."""
        readings = self.table.read(now_ns, stamp_ns)
        least = self.wiring.min_present_share
        present = len(readings.ids)
        if not present or present < least * readings.expected:
            self.safe_reason = (
                f"{present} of {readings.expected} channels present, {least:.0%} are needed"
            )
            return self.gate.safe(), readings
        self.safe_reason = ""
        action = self.policy.step_array(readings.values, readings.ids)
        return self.gate(self.wiring.command.command(action)), readings

    def attention(self, ids: tuple[str, ...]) -> np.ndarray | None:
        """(M, N) of the last tick, columns in the order of `ids`; None without attention."""
        if isinstance(self.policy, Ordered) or set(ids) != set(self.policy.channel_order):
            return None
        column = {name: place for place, name in enumerate(self.policy.channel_order)}
        return self.policy.attention[:, [column[name] for name in ids]]
