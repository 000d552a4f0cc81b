"""/diagnostics says how each part is doing; the log says only what changed."""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest
import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.context import Context
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import Imu, JointState
from stand import LATCHED, STEP_NS, Stand
from std_srvs.srv import Trigger

from an_control.ros import control_loop, diagnostics
from an_control.ros.diagnostics import TickTimes
from an_control.ros.graph import get_owner_node_name

OK, WARN, ERROR = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_loop, "DIAGNOSTICS_S", 0.2)
    monkeypatch.setattr(diagnostics, "SETTLING_REPORTS", 0)


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
        "policy", "gate", "watchdog", "e-stop", "recording", "wiring",
        "source joints", "source tilt",
    }  # fmt: skip
    policy = values(parts["policy"])
    assert policy["ticks"] == "30" and policy["model"] == str(stand.model)
    assert 0 < float(policy["tick p50 [us]"]) <= float(policy["tick p99 [us]"])
    assert float(policy["tick p99 [us]"]) <= float(policy["tick max [us]"])
    assert policy["recoveries"] == "0" and {"missed deadlines"} <= policy.keys()
    assert {"not_finite", "limited", "rate_limited", "authority"} <= values(parts["gate"]).keys()
    joints = values(parts["source joints"])
    assert joints["present share"] == "1.00" and joints["messages"] == "30"
    assert joints["publishers"] == "1" and float(joints["rate [Hz]"]) >= 0
    assert parts["recording"].message == "black box on: the last 30 s"
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
    who = "(/policy, /robot): stop one of them, or set the parameter shadow"
    assert log.count(f"2 publishers command /commands {who}") == 1
    assert log.count("e-stop by service") == 1
    stand.peer.destroy_publisher(twin)
    stand.call(Trigger, "policy/reset_estop")
    parts = board.read()
    assert parts["e-stop"].level == OK and parts["wiring"].level == OK


@pytest.fixture
def other() -> Iterator[Node]:
    """A node behind a participant of its own, where a topic may have another type."""
    context = Context()
    rclpy.init(args=[], context=context, signal_handler_options=SignalHandlerOptions.NO)
    node = Node("other", context=context)
    yield node
    node.destroy_node()
    rclpy.shutdown(context=context)


def test_a_publisher_of_another_type_is_named_and_does_not_count(stand, other, capfd):
    stand.peer.destroy_publisher(stand.joints)
    other.create_publisher(Imu, "joint_states", 10)
    other.create_publisher(Imu, "commands", 10)
    other.create_publisher(Imu, "policy/estop", 10)
    assert stand.start(activate=False).trigger_configure().to_label() == "transition_success"
    look = stand.node.get_publishers_info_by_topic
    for topic in ("policy/estop", "joint_states"):
        stand.until(
            lambda t=topic: [get_owner_node_name(one) for one in look(t)] == ["/other"], "the other"
        )
    parts = Board(stand).read()
    said = "publisher of sensor_msgs/msg/Imu (/other) on {}, expected {}"
    joints = parts["source joints"]
    assert joints.message == said.format("joint_states", "sensor_msgs/msg/JointState")
    assert joints.level == WARN and values(joints)["publishers"] == "0"
    wiring = parts["wiring"]
    assert said.format("/commands", "sensor_msgs/msg/JointState") in wiring.message
    assert wiring.level == WARN and values(wiring)["commanding"] == "1"
    assert parts["e-stop"].message == said.format("policy/estop", "std_msgs/msg/Bool")
    assert parts["e-stop"].level == ERROR
    assert parts["source tilt"].message == "no message yet on tilt"
    Board(stand).read()
    log = capfd.readouterr().err
    for part in ("source joints", "wiring", "e-stop"):
        assert log.count(f"{part}: publisher of sensor_msgs/msg/Imu (/other)") == 1


DEADLINE = QoSProfile(depth=1, deadline=Duration(seconds=1))


@pytest.mark.parametrize(
    ("type_", "qos", "said"),
    [
        (None, 10, "there is no subscription"),
        (Imu, 10, "subscription of sensor_msgs/msg/Imu (/other) on /commands, expected"),
        (JointState, LATCHED, "/other asks for another quality of service"),
        (JointState, DEADLINE, "/other asks for another quality of service"),
    ],
    ids=["none", "another type", "latched", "deadline"],
)
def test_commands_that_nobody_hears_are_a_warning(stand, other, type_, qos, said):
    for subscription in stand.peer.subscriptions:
        stand.peer.destroy_subscription(subscription)
    if type_ is not None:
        other.create_subscription(type_, "commands", lambda message: None, qos)
    assert stand.start(activate=False).trigger_configure().to_label() == "transition_success"
    known = {"/policy", "/other"} if type_ else {"/policy"}  # the node listens itself
    look = stand.node.get_subscriptions_info_by_topic
    stand.until(lambda: {get_owner_node_name(one) for one in look("commands")} == known, "known")
    wiring = Board(stand).read()["wiring"]
    assert wiring.level == WARN and said in wiring.message
    assert "nobody hears commands on /commands" in wiring.message
    stand.peer.create_subscription(JointState, "commands", lambda message: None, 10)
    stand.until(lambda: stand.node.count_subscribers("commands") > len(known), "one that hears")
    told = Board(stand).read()["wiring"].message
    assert "nobody" not in told
    deaf = f"not all hear commands on /commands: {said} (" in told
    assert deaf == (type_ is JointState), told
    assert told.endswith("): subscribe with the default quality of service") == deaf


def test_without_a_clock_diagnostics_and_log_say_that_none_is_published(stand, capfd):
    stand.start(mode="rate", trigger="timer", use_sim_time=True, watchdog_s=-1.0)
    status = Board(stand).read()["watchdog"]
    assert status.level == WARN and "is /clock published?" in status.message
    logged = []
    stand.until(
        lambda: logged.append(capfd.readouterr().err) or "watchdog: no command" in "".join(logged),
        "the log",
    )


def test_two_nodes_of_one_name_are_an_error(stand, capfd):
    node = stand.start(activate=False, options={"namespace": "/twins"})
    assert node.trigger_configure().to_label() == "transition_success"
    board = Board(stand)
    twin = stand.add(Node("policy", namespace="/twins", context=stand.context))
    assert "2 nodes are named /twins/policy" in board.read()["wiring"].message
    board.read()
    assert capfd.readouterr().err.count("2 nodes are named /twins/policy") == 1
    stand.executor.remove_node(twin)
    twin.destroy_node()
    assert board.read()["wiring"].level != ERROR


def test_a_tick_that_is_too_long_or_too_late_misses_its_deadline():
    step_s = STEP_NS / 1e9
    for real_time, missed in ((True, 2), (False, 1)):
        ticks = TickTimes(step_s, real_time=real_time)
        ticks.record_tick(0.0, 0.001, age_s=0.002)
        ticks.record_tick(step_s, 2.5 * step_s, age_s=0.003)
        ticks.record_tick(2.9 * step_s, 3.0 * step_s, age_s=0.004)
        assert ticks.missed == missed
        assert ticks.count == 3
        assert ticks.compute_reading_age_percentile_ms(50.0) == pytest.approx(3.0)


def test_the_time_in_which_a_node_was_inactive_is_no_missed_deadline():
    times = TickTimes(0.02, real_time=True)
    for tick in range(5):
        times.record_tick(0.02 * tick, 0.02 * tick + 0.001, 0.001)
    times.ignore_gap_before_next_tick()
    times.record_tick(60.0, 60.001, 0.001)
    assert times.missed == 0


def test_a_busy_node_reports_once_a_period_and_not_in_bursts(tmp_path, monkeypatch):
    """Its ticks take longer than a period, so that timers are due while messages are queued."""
    times, act = [], control_loop.Loop._run_tick
    monkeypatch.setattr(
        control_loop.Loop, "_publish_diagnostics", lambda self: times.append(time.monotonic())
    )

    def slowly(self, stamp_ns):
        time.sleep(0.015)
        act(self, stamp_ns)

    monkeypatch.setattr(control_loop.Loop, "_run_tick", slowly)
    with closing(Stand(tmp_path, "events")) as stand:
        stand.start(mode="rate")
        end_s, step = time.monotonic() + 100.0, 0
        while len(times) < 8 and time.monotonic() < end_s:
            step += 1
            stand.send(step)
            for _ in range(3):
                stand.executor.spin_once(timeout_sec=0.0)
    gaps_s = np.diff(times)
    assert len(gaps_s) > 5 and gaps_s.max() < 1.0, gaps_s
    assert np.median(gaps_s) > 0.1, gaps_s


def reports(stand, count: int, between) -> list:
    """The statuses of source joints of so many reports, a second of the node's clock apart."""
    loop, found = stand.node._loop, []
    now_ns = loop._clock.now_ns()
    for number in range(count):
        between(number)
        found.append(loop.diagnostics.make_message(True, now_ns + number * 10**9).status)
    return [next(s for s in one if s.name.endswith("source joints")) for one in found]


@pytest.mark.parametrize(
    ("hz", "words"),
    [
        (50, "but the policy runs at 100 Hz: some ticks have no new reading of it"),
        (200, "but the policy runs at 100 Hz: each tick reads its newest message"),
        (100, ""),
        (90, ""),
    ],
)
def test_a_source_at_another_rate_is_told_with_both_rates_and_the_remedy(stand, capfd, hz, words):
    stand.start(mode="rate")
    table = stand.node._loop.controller.table

    def send(number: int) -> None:
        for k in range(hz):
            message = JointState(name=["left", "right"], position=array("d", [0.0, 0.0]))
            table.store_message(
                "joints", message, None, stand.node._loop._clock.now_ns() + 10**9 * number + k
            )
        table.read(stand.node._loop._clock.now_ns() + 10**9 * number)

    last = reports(stand, 7, send)[-1]
    log = capfd.readouterr().err
    if not words:
        assert last.level == OK and "messages a second" not in log
        return
    assert last.level == WARN
    assert last.message.startswith(f"{hz} messages a second") and words in last.message
    assert f"set rate_hz: {hz} in the source" in last.message
    assert log.count("messages a second") == 1 and "[WARN]" in log


def test_an_error_that_comes_after_a_warning_is_logged_and_ends_nothing(stand, capfd):
    stand.start(mode="rate")
    table = stand.node._loop.controller.table

    def send(number: int) -> None:
        for k in range(200):
            message = JointState(name=["left", "right"], position=array("d", [0.0, 0.0]))
            table.store_message(
                "joints", message, None, stand.node._loop._clock.now_ns() + 10**9 * number + k
            )
        if number == 6:
            stand.peer.create_publisher(JointState, "commands", 10)
            stand.until(lambda: stand.node.count_publishers("commands") == 2, "another commander")

    reports(stand, 10, send)
    log = capfd.readouterr().err
    warned, failed = log.index("200 messages a second"), log.index("2 publishers command /commands")
    assert warned < failed and "[ERROR]" in log


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ([0, 0, 30, 100, 100, 100, 100], ""),
        ([100, 100, 100, 70, 0, 0, 0, 60, 100, 100, 100], ""),
        ([100, 100, 150, 200, 100, 100, 100], ""),
        ([100, 100, 150, 200, 200, 200, 200], "200 messages a second"),
        ([10, 10, 10, 10, 10], "set rate_hz: 10 in the source, and raise its max_age_s"),
    ],
)
def test_a_rate_that_only_begins_or_changes_is_no_wrong_rate(stand, capfd, counts, words):
    stand.start(mode="rate")
    table = stand.node._loop.controller.table

    def send(number: int) -> None:
        for k in range(counts[number]):
            message = JointState(name=["left", "right"], position=array("d", [0.0, 0.0]))
            table.store_message(
                "joints", message, None, stand.node._loop._clock.now_ns() + 10**9 * number + k
            )
        table.read(stand.node._loop._clock.now_ns() + 10**9 * number)

    told = [one for one in reports(stand, len(counts), send) if "messages a sec" in one.message]
    log = capfd.readouterr().err
    assert bool(told) == bool(words) and log.count("messages a second") == bool(words)
    assert words in log


def test_publishers_that_share_a_topic_have_no_rate_that_could_be_wrong(stand, capfd):
    stand.start(mode="rate")
    stand.peer.create_publisher(JointState, "joint_states", 10)
    look = stand.node.get_publishers_info_by_topic
    stand.until(lambda: len(look("joint_states")) == 2, "both publishers")
    table = stand.node._loop.controller.table

    def send(number: int) -> None:
        for k in range(200):
            message = JointState(name=["left", "right"], position=array("d", [0.0, 0.0]))
            table.store_message(
                "joints", message, None, stand.node._loop._clock.now_ns() + 10**9 * number + k
            )
        table.read(stand.node._loop._clock.now_ns() + 10**9 * number)

    assert reports(stand, 6, send)[-1].level == OK
    assert "messages a second" not in capfd.readouterr().err


def test_a_source_that_nothing_reads_is_a_warning_that_says_what_to_do(stand):
    text = stand.wiring.read_text()
    spare = "sources:\n  spare: {topic: spare, type: sensor_msgs/msg/Imu, max_age_s: 1}\n"
    stand.wiring.write_text(text.replace("sources:\n", spare))
    stand.start()
    stand.peer.create_publisher(Imu, "spare", 10).publish(Imu())
    status = Board(stand).read()["source spare"]
    assert status.level == WARN
    todo = "add one, or take the source out of"
    assert status.message == f"source 'spare' feeds no channel: {todo} {stand.wiring}"


def test_a_source_that_should_send_more_slowly_says_so_in_the_wiring(stand, capfd):
    text = stand.wiring.read_text()
    stand.wiring.write_text(
        text.replace("JointState, max_age_s: 0.05", "JointState, max_age_s: 0.05, rate_hz: 50")
    )
    stand.start(mode="rate")
    table = stand.node._loop.controller.table

    def send(number: int) -> None:
        for k in range(50):
            message = JointState(name=["left", "right"], position=array("d", [0.0, 0.0]))
            table.store_message(
                "joints", message, None, stand.node._loop._clock.now_ns() + 10**9 * number + k
            )
        table.read(stand.node._loop._clock.now_ns() + 10**9 * number)

    assert reports(stand, 7, send)[-1].level == OK
    assert "messages a second" not in capfd.readouterr().err


def test_stamps_of_another_day_are_told_once_with_what_to_do(stand, capfd):
    stand.start(mode="rate")
    loop = stand.node._loop
    table = loop.controller.table

    def send(number: int) -> None:
        message = JointState(name=["left", "right"], position=array("d", [0.0, 0.0]))
        now_ns = loop._clock.now_ns() + number * 10**9
        stamp_ns = loop._clock.read_ros_time_ns() + 86_400 * 10**9 + number
        table.store_message("joints", message, stamp_ns, now_ns)
        table.read(now_ns)

    last = reports(stand, 5, send)[-1]
    assert last.level == WARN and "s ahead of this node's clock" in last.message
    assert capfd.readouterr().err.count("ahead of this node's clock") == 1


@pytest.mark.parametrize("max_age_s", [0, 5])
def test_what_was_latched_long_ago_has_no_wrong_clock(stand, capfd, max_age_s):
    text = stand.wiring.read_text()
    stand.wiring.write_text(
        text.replace("JointState, max_age_s: 0.05", f"JointState, max_age_s: {max_age_s}")
    )
    stand.start(mode="rate")
    loop = stand.node._loop
    table, now_ns = loop.controller.table, loop._clock.now_ns()
    message = JointState(name=["left", "right"], position=array("d", [0.0, 0.0]))
    table.store_message("joints", message, loop._clock.read_ros_time_ns() - 3600 * 10**9, now_ns)
    table.read(now_ns)
    assert reports(stand, 4, lambda number: None)[-1].level == OK
    assert "clock" not in capfd.readouterr().err


def test_a_stamp_that_never_changes_is_told_as_that_and_not_as_silence(stand):
    stand.start(mode="rate")
    loop = stand.node._loop
    table, now_ns = loop.controller.table, loop._clock.now_ns()
    for k in range(100):
        message = JointState(name=["left", "right"], position=array("d", [0.0, 0.0]))
        table.store_message("joints", message, 12_500_000_000, now_ns + k * 10_000_000)
        table.read(now_ns + k * 10_000_000)
    said = [str(notice) for notice in table.pop_notices() if notice.kind == "lost"]
    (line,) = [one for one in said if "joints" in one]
    assert (
        "messages repeat the stamp 12.500000 s" in line and "give each message a new stamp" in line
    )
