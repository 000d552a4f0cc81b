"""What a policy node says of itself, without ROS waiting for anything."""

from __future__ import annotations

import pytest

pytest.importorskip("rclpy")

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.node import Node

from an_control_sim.bridge.policy_link import DiagnosticsReader
from an_control_sim.process import initialise_ros


def told(part: str, **values: object) -> DiagnosticStatus:
    pairs = [KeyValue(key=key.replace("_", " "), value=str(one)) for key, one in values.items()]
    return DiagnosticStatus(name=f"/ant/policy: {part}", values=pairs)


def test_the_policys_figures_are_read_from_its_own_diagnostics_alone():
    with initialise_ros():
        node = Node("listener")
        figures = DiagnosticsReader(node, "/ant/policy")
        assert figures.read_diagnostics(lambda until_s: False) is None
        policy = {
            "ticks": 1000, "missed deadlines": 3, "ticks without a new reading": 5,
            "age of readings p50 [ms]": "1.25", "age of readings p99 [ms]": "7.00",
        }  # fmt: skip
        watchdog = {"trips": 2, "longest time without a command [s]": "0.044"}
        other = told("policy", **policy)
        other.name = "/other/policy: policy"
        figures._store_diagnostics(DiagnosticArray(status=[other]))
        assert figures.read_diagnostics(lambda until_s: False) is None
        figures._store_diagnostics(
            DiagnosticArray(status=[told("policy", **policy), told("watchdog", **watchdog)])
        )
        found = figures.read_diagnostics(lambda until_s: False)
        assert (found.ticks, found.missed, found.repeats, found.trips) == (1000, 3, 5, 2)
        lines = found.format_lines()
        assert "2 trips, at most 44 ms without a command" in lines[2]
        assert "p50 1.2 ms, p99 7.0 ms old" in lines[0] or "p50 1.3 ms" in lines[0]
        node.destroy_node()
