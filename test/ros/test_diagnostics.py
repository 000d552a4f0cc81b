"""/diagnostics says how each part is doing; the log says only what changed."""

from __future__ import annotations

import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from stand import STEP_NS, Stand
from std_srvs.srv import Trigger

from an_control.ros.diagnostics import TickTimes

OK, WARN, ERROR = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR


class Board:
    """The newest diagnostics by part."""

    def __init__(self, stand: Stand) -> None:
        self._stand, self._arrays = stand, []
        stand.peer.create_subscription(DiagnosticArray, "/diagnostics", self._arrays.append, 10)
        stand.until(lambda: stand.peer.count_publishers("/diagnostics"), "diagnostics matched")

    def read(self) -> dict[str, DiagnosticStatus]:
        """The next report but one: it began after now."""
        wanted = len(self._arrays) + 2
        self._stand.until(lambda: len(self._arrays) >= wanted, "diagnostics")
        return {one.name.partition(": ")[2]: one for one in self._arrays[-1].status}


def values(status: DiagnosticStatus) -> dict[str, str]:
    return {pair.key: pair.value for pair in status.values}


def test_every_part_has_a_status_with_its_figures(stand):
    stand.start()
    board = Board(stand)
    for step in range(1, 31):
        stand.step(step)
    parts = board.read()
    assert set(parts) == {
        "policy", "gate", "watchdog", "e-stop", "wiring", "source joints", "source tilt",
    }  # fmt: skip
    policy = values(parts["policy"])
    assert policy["ticks"] == "30" and policy["model"] == str(stand.model)
    assert 0 < float(policy["tick p50 [us]"]) <= float(policy["tick p99 [us]"])
    assert float(policy["tick p99 [us]"]) <= float(policy["tick max [us]"])
    assert {"missed deadlines"} <= policy.keys()
    assert {"not_finite", "limited", "rate_limited", "authority"} <= values(parts["gate"]).keys()
    joints = values(parts["source joints"])
    assert joints["present share"] == "1.00" and joints["messages"] == "30"
    assert joints["publishers"] == "1" and float(joints["rate [Hz]"]) >= 0
    assert all(one.level == OK for one in parts.values()), parts


def test_what_is_wrong_shows_in_its_status_and_once_in_the_log(stand, capfd):
    stand.start()
    board = Board(stand)
    stand.step(1)
    stand.call(Trigger, "policy/estop")
    twin = stand.peer.create_publisher(type(stand.commands[0]), "commands", 10)
    parts = board.read()
    assert parts["e-stop"].level == ERROR and parts["e-stop"].message == "e-stop by service"
    assert parts["wiring"].level == ERROR and values(parts["wiring"])["commanding"] == "2"
    board.read()
    log = capfd.readouterr().err
    assert log.count("2 publishers command commands") == 1
    assert log.count("e-stop by service") == 1
    stand.peer.destroy_publisher(twin)
    stand.call(Trigger, "policy/reset_estop")
    parts = board.read()
    assert parts["e-stop"].level == OK and parts["wiring"].level == OK


def test_a_tick_that_is_too_long_or_too_late_misses_its_deadline():
    step_s = STEP_NS / 1e9
    for paced, missed in ((True, 2), (False, 1)):
        ticks = TickTimes(step_s, paced=paced)
        ticks.add(0.0, 0.001, age_s=0.002)
        ticks.add(step_s, 2.5 * step_s, age_s=0.003)
        ticks.add(2.9 * step_s, 3.0 * step_s, age_s=0.004)
        assert ticks.missed == missed
        assert ticks.count == 3
        assert ticks.age_ms(50.0) == pytest.approx(3.0)
