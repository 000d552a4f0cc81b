"""What the policy node says of itself on /diagnostics, for whoever runs a simulation."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.node import Node

from an_control_sim.process import RELIABLE

FIRST_S = 2.5
"""How long to wait for the first diagnostics; the node sends them every second."""


@dataclass(frozen=True)
class Figures:
    """The policy node's counts since it was activated, and the age of readings it acted on."""

    ticks: int
    missed: int
    repeats: int
    trips: int
    longest_s: float
    age_p50_ms: float
    age_p99_ms: float

    def lines(self) -> list[str]:
        """As people read it."""
        return [
            f"readings  p50 {self.age_p50_ms:.1f} ms, p99 {self.age_p99_ms:.1f} ms old when the"
            " command went out",
            f"ticks     {self.ticks}, {self.missed} missed their deadline, {self.repeats} had no"
            " new reading",
            f"watchdog  {self.trips} trips"
            + (f", at most {1e3 * self.longest_s:.0f} ms without a command" if self.trips else ""),
        ]

    def as_dict(self) -> dict[str, float]:
        """For JSON."""
        return asdict(self)


class PolicyFigures:
    """Listens to the diagnostics of one policy node, by its full name."""

    def __init__(self, node: Node, policy: str) -> None:
        self._name = policy
        self._parts: dict[str, dict[str, str]] = {}
        node.create_subscription(DiagnosticArray, "/diagnostics", self._receive, RELIABLE)

    def _receive(self, message: Any) -> None:
        for status in message.status:
            name, _, part = status.name.partition(": ")
            if name == self._name:
                self._parts[part] = {pair.key: pair.value for pair in status.values}

    def read(self, spin: Callable[[float], bool]) -> Figures | None:
        """The newest figures, at most a second old; None where the node says nothing.

        `spin` works until a time of the steady clock, or a little less; False once it has passed.
        """
        until_s = time.monotonic() + FIRST_S
        while not self._parts and spin(until_s):
            pass
        policy, watchdog = (self._parts.get(part) for part in ("policy", "watchdog"))
        if policy is None or watchdog is None:
            return None
        return Figures(
            ticks=int(policy["ticks"]),
            missed=int(policy["missed deadlines"]),
            repeats=int(policy["ticks without a new reading"]),
            trips=int(watchdog["trips"]),
            longest_s=float(watchdog["longest time without a command [s]"]),
            age_p50_ms=float(policy["age of readings p50 [ms]"]),
            age_p99_ms=float(policy["age of readings p99 [ms]"]),
        )
