"""What the node says of its monitor: each move, a robot that does not fit, why it is off."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from stand import IDS, Stand

from an_control.policy import AttentionSizes, write_model
from an_control.policy.random_model import make_random_model
from an_control.policy.sizes import ForwardSizes, MonitorValidation
from an_control.policy.task import Task
from an_control.ros import control_loop

SPEEDS = np.array([0.11, 0.17, 0.29, 0.41])
PASSED = MonitorValidation(6.0, 40.0, slow=0, ticks=1000, false_moves_hour=0.0, found=1.0)
SEEN = 110
"""Steps after which the robot is known to fit."""


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_loop, "DIAGNOSTICS_S", 0.2)


def write_watched(path: Path, **changes: Any) -> None:
    """Write a model that knows that channel i changes by SPEEDS[i] at every tick."""
    sizes = AttentionSizes(actions=2, neuron=4, queries=6, key=3, inputs=["value"], head=[5])
    model = make_random_model(sizes, task=Task(channels=IDS, step_s=0.01))
    forward = ForwardSizes([2], 2, [], validation=replace(PASSED, **changes))
    shapes = forward.list_array_shapes(len(IDS), sizes.actions)
    arrays = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    arrays["forward.1.bias"][:4], arrays["forward.1.bias"][4:] = SPEEDS, -5.0
    arrays["forward.step"] += 1.0
    arrays["forward.usual"] -= 5.0
    arrays["identity.units"] += 1.0
    write_model(path, replace(model, forward=forward, arrays=model.arrays | arrays))


def readings_at(step: int, speeds: np.ndarray = SPEEDS) -> np.ndarray:
    return np.arange(4) * 3.0 + speeds * step


def monitor_status(stand: Stand) -> DiagnosticStatus:
    """Return the monitor's status in a report that began after now."""
    heard: list[DiagnosticArray] = []
    stand.peer.create_subscription(DiagnosticArray, "/diagnostics", heard.append, 10)
    stand.until(lambda: len(heard) >= 2, "diagnostics")
    found = {one.name.partition(": ")[2]: one for one in heard[-1].status}
    return found["monitor"]


def test_each_move_of_the_monitor_is_one_log_line_that_names_the_signals(stand, capfd):
    write_watched(stand.model)
    stand.start()
    for step in range(SEEN):
        stand.step(step, readings_at(step))
    assert "the monitor found" not in capfd.readouterr().err
    for step in range(SEEN, SEEN + 30):
        stand.step(step, readings_at(step)[[3, 1, 2, 0]])
    (line,) = [one for one in capfd.readouterr().err.splitlines() if "the monitor found" in one]
    assert "found 2 signals in other input slots" in line
    assert "the slot of left.position carries tilt.y" in line
    assert "the slot of tilt.y carries left.position" in line
    status = monitor_status(stand)
    assert status.level == DiagnosticStatus.WARN
    assert status.message == "2 signals are not where they are wired"
    for step in range(SEEN + 30, SEEN + 60):
        stand.step(step, readings_at(step))
    (line,) = [one for one in capfd.readouterr().err.splitlines() if "the monitor found" in one]
    assert "the slot of left.position carries it again" in line


def test_a_robot_that_moves_otherwise_is_said_not_to_fit_and_nothing_is_moved(stand, capfd):
    write_watched(stand.model)
    stand.start()
    for step in range(SEEN):
        stand.step(step, readings_at(step, 1.5 * SPEEDS))
    said = capfd.readouterr().err
    assert said.count("the monitor's model does not fit this robot: ") == 1
    assert "the monitor found" not in said
    status = monitor_status(stand)
    assert status.level == DiagnosticStatus.WARN
    assert status.message.startswith("its model does not fit")
    assert not any(one.key.endswith(" carries") for one in status.values)


def test_a_monitor_that_failed_its_validation_is_off_and_one_line_says_why(stand, capfd):
    write_watched(stand.model, false_moves_hour=12.0)
    stand.start()
    stand.step(0, readings_at(0))
    said = [one for one in capfd.readouterr().err.splitlines() if "the monitor is off" in one]
    assert len(said) == 1 and "12 wrong moves an hour" in said[0] and "train-monitor" in said[0]
    assert stand.node._loop.controller.acting.policy.monitor_report is None
    status = monitor_status(stand)
    assert status.level == DiagnosticStatus.WARN and "12 wrong moves an hour" in status.message


def test_a_monitor_that_failed_its_validation_watches_where_that_is_asked_for(stand, capfd):
    write_watched(stand.model, false_moves_hour=12.0)
    stand.start(monitor="match")
    stand.step(0, readings_at(0))
    assert "the monitor is off" not in capfd.readouterr().err
    assert stand.node._loop.controller.acting.policy.monitor_report is not None
