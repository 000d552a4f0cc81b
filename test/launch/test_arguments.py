"""The arguments of the launch files, without ROS 2's `launch`, which PyPI does not have."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from dataclasses import fields
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("gymnasium")

from an_control.disturbance import SETTINGS
from an_control.ros.parameter_table import Settings
from an_control.system.share import find_share_path
from an_control_sim.bridge.simulator_node import SimulatorSettings

MODULES = (
    "launch", "launch.actions", "launch.events", "launch.events.process", "launch.substitutions",
    "launch_ros", "launch_ros.actions", "launch_ros.parameter_descriptions",
)  # fmt: skip


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """The names that a launch file defines; its nodes and parameters are what they were made of."""

    def made(**options: Any) -> SimpleNamespace:
        return SimpleNamespace(**options)

    for name in MODULES:
        monkeypatch.setitem(sys.modules, name, MagicMock())
    substitution = lambda name: SimpleNamespace(perform=lambda context: context[name])  # noqa: E731
    monkeypatch.setattr(sys.modules["launch.substitutions"], "LaunchConfiguration", substitution)
    monkeypatch.setattr(sys.modules["launch_ros.actions"], "Node", made)
    parameter = lambda value, value_type: value  # noqa: E731
    parameters = sys.modules["launch_ros.parameter_descriptions"]
    monkeypatch.setattr(parameters, "ParameterValue", parameter)
    return lambda file: runpy.run_path(str(find_share_path(f"launch/{file}")))


def started(launch: dict[str, Any], **given: str) -> list[dict[str, Any]]:
    """The parameters of both nodes that these arguments start."""
    plain = {name: default for name, (default, _) in launch["ARGUMENTS"].items()}
    context = {name: str(one).lower() if one in (True, False) else str(one) for name, one in
               plain.items()}  # fmt: skip
    return [
        one.parameters[0]
        for one in launch["make_launch_actions_of_simulation"]({"task": "ant", **context, **given})
    ]


def test_every_parameter_of_the_node_is_an_argument_of_its_launch_file(names):
    taken = {one.name for one in fields(Settings)} | {"use_sim_time"}
    assert set(names("policy.launch.py")["ALL_PARAMETERS"]) == taken


@pytest.mark.parametrize("name", ["ramp_s", "recovery", "watchdog_s", "lockstep_wait_s"])
def test_a_number_of_the_node_is_given_as_a_number(names, name):
    value = names("policy.launch.py")["parse_parameter_value"]
    assert value(name, "2") == 2.0 and isinstance(value(name, "2"), float)
    with pytest.raises(ValueError, match=f"{name}:=soon is not a number"):
        value(name, "soon")


def test_the_priority_of_the_node_is_given_as_a_whole_number(names):
    value = names("policy.launch.py")["parse_parameter_value"]
    assert value("thread_priority", "7") == 7 and isinstance(value("thread_priority", "7"), int)
    with pytest.raises(ValueError, match=r"thread_priority:=7.5 is not a whole number"):
        value("thread_priority", "7.5")
    policy, _ = started(names("sim.launch.py"), realtime="true", thread_priority="7")
    assert policy["thread_priority"] == 7


def test_every_parameter_of_the_simulator_is_an_argument_of_its_launch_file(names):
    launch = names("sim.launch.py")
    known = {one.name for one in fields(SimulatorSettings)} - {"policy", "disturbance"}
    known |= {one.name for one in SETTINGS}
    assert set(launch["SIMULATOR_PARAMETERS"]) == known <= set(launch["ARGUMENTS"])


def test_the_simulator_waits_for_its_policy_as_long_as_it_is_told(names):
    launch = names("sim.launch.py")
    _, simulator = started(launch)
    assert simulator["start_timeout_s"] == 120.0 == SimulatorSettings("").start_timeout_s
    _, simulator = started(launch, start_timeout_s="300")
    assert simulator["start_timeout_s"] == 300.0


def test_shadow_is_refused_by_name_in_lockstep_and_taken_in_real_time(names):
    launch = names("sim.launch.py")
    with pytest.raises(ValueError, match=r"shadow:=true .*realtime:=true"):
        started(launch, shadow="true")
    policy, _ = started(launch, shadow="true", realtime="true")
    assert policy["shadow"] is True


def test_in_lockstep_the_launched_nodes_wait_as_long_as_those_of_an_control_sim(names):
    launch = names("sim.launch.py")
    policy, simulator = started(launch)
    assert (policy["lockstep_wait_s"], simulator["command_timeout_s"]) == (5.0, 10.0)
    _, simulator = started(launch, command_timeout_s="0.5")
    assert simulator["command_timeout_s"] == 0.5
    _, simulator = started(launch, realtime="true")
    assert simulator["command_timeout_s"] == 0.0, "five steps"
