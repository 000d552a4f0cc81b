"""The policy node where nothing is recorded."""

from __future__ import annotations

import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus

from an_control.ros import control_loop, recording

MISSING = "pip install it"


@pytest.mark.parametrize("installed", [True, False])
def test_a_node_acts_without_a_black_box_and_without_the_package_for_it(
    stand, reference, monkeypatch, installed
):
    if not installed:
        monkeypatch.setattr(recording, "get_recording_install_command", lambda: MISSING)
    stand.start(**({"black_box_s": 0.0} if installed else {}))
    assert [list(stand.step(step).effort) for step in range(3)] == [
        reference.step(step) for step in range(3)
    ]


@pytest.mark.parametrize(
    ("black_box_s", "level", "text"),
    [
        (30.0, DiagnosticStatus.WARN, f"no black box, because mcap is not installed: {MISSING}"),
        (0.0, DiagnosticStatus.OK, "off"),
    ],
)
def test_diagnostics_and_log_say_that_there_is_no_black_box(
    stand, monkeypatch, capfd, black_box_s, level, text
):
    monkeypatch.setattr(recording, "get_recording_install_command", lambda: MISSING)
    monkeypatch.setattr(control_loop, "DIAGNOSTICS_S", 0.1)
    arrays = []
    stand.peer.create_subscription(DiagnosticArray, "/diagnostics", arrays.append, 10)
    stand.start(black_box_s=black_box_s)
    stand.until(lambda: arrays, "diagnostics")
    (status,) = [one for one in arrays[-1].status if one.name.endswith("recording")]
    assert (status.level, status.message.partition(", or")[0]) == (level, text)
    logged = [one for one in capfd.readouterr().err.splitlines() if "black box" in one]
    assert len(logged) == (level == DiagnosticStatus.WARN)
    assert all("WARN" in one for one in logged)
