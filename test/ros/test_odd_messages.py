"""Messages that no wiring foresaw: stray names, several publishers of one topic, late ones."""

from __future__ import annotations

import time
from array import array

import pytest
from sensor_msgs.msg import JointState
from stand import IDS, JOINTS, STEP_NS, RosTime, readings_of, set_stamp, stamp_of

from an_control.ros import inputs
from an_control.ros.diagnostics import LINES

SECOND_NS = 10**9


def wild(stand) -> None:
    """Wire every joint position that there is, in place of the two by name."""
    text = stand.wiring.read_text()
    written = [line for line in text.splitlines() if "position[" in line]
    text = text.replace(
        "\n".join(written), '  "*.position": {source: joints, field: "position[*]"}'
    )
    stand.wiring.write_text(text)


def status(stand):
    return stand.node._loop.controller.table.list_source_statuses(0)


def wait_for(stand, step: int) -> None:
    """Until every source has a message of the step."""
    stamp_ns = stamp_of(step)
    stand.until(lambda: all(one.stamp_ns == stamp_ns for one in status(stand)), f"step {step}")


def now_present(stand) -> set[str]:
    return set(stand.node._loop.controller.table.read(stand.node._loop._clock.now_ns()).ids)


def send_parts(tick: RosTime, stand, step: int) -> None:
    """A step whose joints come in a message each."""
    tick.advance(1)
    left, right, x, y = readings_of(step)
    stand.send_joints(stamp_of(step), (left,), JOINTS[:1])
    stand.send_joints(stamp_of(step) + 1, (right,), JOINTS[1:])
    stand.send_tilt(stamp_of(step), x, y)


def lose_the_right_joint(stand) -> None:
    """A node in real time whose joint messages have the left joint alone for ten periods."""
    tick = RosTime(stand)
    tick(1)
    for step in range(2, 12):
        tick.advance(1)
        stand.send_joints(stamp_of(step), readings_of(step)[:1], JOINTS[:1])
        stand.send_tilt(stamp_of(step), *readings_of(step)[2:])
        wait_for(stand, step)


def test_one_message_with_stray_names_does_not_stop_the_robot(stand, capfd):
    wild(stand)
    tick = RosTime(stand)
    for step in range(1, 11):
        tick(step)
    tick.advance(1)
    stand.send_joints(stamp_of(11), (1.0,) * 7, (*JOINTS, "v", "w", "x", "y", "z"))
    stand.send_tilt(stamp_of(11), 1.0, 1.0)
    controller = stand.node._loop.controller
    tick.until(lambda: "z.position" in controller.table.ids)
    for step in range(12, 40):
        tick(step)
        assert controller.decision.safe_reason == ""
    assert controller.table.expected_channel_count <= 4
    assert "z.position new: expected once they have come for 1 s" in capfd.readouterr().err


def test_the_diagnostics_of_a_source_name_what_is_missing_and_count_strays(stand):
    lose_the_right_joint(stand)
    report = stand.node._loop.diagnostics
    now_present(stand)
    status = report.make_message(True, stand.node._loop._clock.now_ns()).status
    (joints,) = [one for one in status if one.name.endswith("source joints")]
    found = {pair.key: pair.value for pair in joints.values}
    assert found["missing"] == "right.position"
    assert (found["not yet expected"], found["dropped"]) == ("0", "0")


def test_two_publishers_may_share_the_joints_of_one_topic(stand):
    tick = RosTime(stand)
    for step in range(1, 20):
        send_parts(tick, stand, step)
        stand.until(lambda: now_present(stand) == set(IDS), f"all readings of step {step}")
    assert stand.node._loop.controller.decision.safe_reason == ""


def test_joints_of_a_publisher_that_stops_grow_old_by_themselves(stand):
    lose_the_right_joint(stand)
    controller = stand.node._loop.controller
    readings = controller.table.read(stand.node._loop._clock.now_ns())
    assert set(readings.ids) == {"left.position", "tilt.x", "tilt.y"}
    assert (controller.decision.safe_reason, readings.expected) == ("", 4)


def test_an_array_that_flickers_leaves_a_handful_of_lines_in_the_log(stand, capfd):
    text = stand.wiring.read_text()
    stand.wiring.write_text(text.replace('"position[left]"', '"velocity[left]"'))
    tick = RosTime(stand)
    for step in range(1, 200):
        message = JointState(name=list(JOINTS), position=array("d", [1.0, 1.0]))
        if step % 20 < 10:  # missing for longer than it may be old
            message.velocity = array("d", [1.0, 1.0])
        tick.advance(1)
        set_stamp(message.header.stamp, stamp_of(step))
        stand.joints.publish(message)
        stand.send_tilt(stamp_of(step), 1.0, 1.0)
        wait_for(stand, step)
        stand.node._loop._run_tick(None)
    log = capfd.readouterr().err
    assert 2 <= log.count("left.position") <= LINES


def steady(stand, monkeypatch) -> list[int]:
    """A node in real time; what the test adds to the clocks is the first of the list.

    A second number in it is the time at which the steady clock stands still.
    """
    ahead = [0]
    clock, wall = time.monotonic_ns, time.time_ns
    monkeypatch.setattr(time, "monotonic_ns", lambda: ahead[1] if ahead[1:] else clock() + ahead[0])
    monkeypatch.setattr(inputs, "read_wall_clock_ns", lambda: wall() + ahead[0])
    monkeypatch.setattr(inputs, "read_steady_clock_ns", lambda: wall() + ahead[0])
    stand.start(mode="rate")
    return ahead


@pytest.mark.parametrize("stand", ["single_threaded", "events"], indirect=True)
def test_readings_that_waited_while_the_node_stood_still_do_not_count(stand, monkeypatch):
    ahead = steady(stand, monkeypatch)
    for step in range(1, 10):
        stand.send(step)
        wait_for(stand, step)
    stand.send(10)  # it waits in the queues while the node stands still
    ahead[0] = 2 * SECOND_NS
    ahead.append(time.monotonic_ns())  # the queues are emptied at once, however busy the machine is
    wait_for(stand, 10)
    assert now_present(stand) == set()


def test_lateness_is_what_a_message_took_longer_than_the_quickest_lately():
    late = inputs.MessageDelay()
    offset_ns = -37 * SECOND_NS  # between the clocks
    assert late(offset_ns, 5) == 0
    assert late(offset_ns + 10, 10) == 0
    assert late(offset_ns + 20, 20 + 7) == 7
    for step in range(1000):
        assert late(step * STEP_NS + offset_ns, step * STEP_NS + 3) == 3


@pytest.mark.parametrize("steps", [2, 3, 500])
def test_a_clock_that_is_set_back_is_followed_after_a_few_messages(steps):
    late = inputs.MessageDelay()
    for step in range(2000):
        assert late(step * STEP_NS, step * STEP_NS) == 0
    lates = [late((step - steps) * STEP_NS, step * STEP_NS) for step in range(2000, 5000)]
    assert lates[:2] == [steps * STEP_NS] * 2
    assert set(lates[inputs.LIVE_MESSAGES :]) == {0}
    assert late(5000 * STEP_NS, 5000 * STEP_NS) == 0  # and set forward again
    assert late(5001 * STEP_NS, 5001 * STEP_NS + 7) == 7


def test_old_messages_that_come_again_at_once_stay_old():
    late = inputs.MessageDelay()
    for step in range(2000):
        late(step * STEP_NS, step * STEP_NS)
    for step in range(1000, 1100):
        now_ns = 2000 * STEP_NS + step
        assert late(step * STEP_NS, now_ns) == now_ns - step * STEP_NS
    for step in range(2001, 2010):
        assert late(step * STEP_NS, step * STEP_NS) == 0


def test_a_network_that_slows_down_is_followed_after_a_while():
    late = inputs.MessageDelay()
    for step in range(2000):
        assert late(step * STEP_NS, step * STEP_NS) == 0
    lates = [late(step * STEP_NS, (step + 500) * STEP_NS) for step in range(2000, 5000)]
    assert lates[0] == 500 * STEP_NS and lates[-1] == 0
    assert lates.index(0) * STEP_NS <= 2.1 * inputs.MEMORY_NS


def test_a_node_whose_own_clock_is_set_does_not_take_fresh_messages_for_old_ones(monkeypatch):
    arrivals, ahead_ns = inputs.Arrivals(STEP_NS), 0
    now_ns = 10 * SECOND_NS
    monkeypatch.setattr(inputs, "read_wall_clock_ns", lambda: now_ns + ahead_ns)
    monkeypatch.setattr(inputs, "read_steady_clock_ns", lambda: now_ns)

    def find_lateness_ns() -> int:
        info = {"source_timestamp": now_ns, "publisher_gid": {"data": b"1"}}
        return now_ns - arrivals.estimate_arrival_at_process_ns(info, now_ns)

    for _ in range(100):
        now_ns += STEP_NS
        assert find_lateness_ns() == 0
    ahead_ns = SECOND_NS // 3
    for _ in range(100):
        now_ns += STEP_NS
        assert find_lateness_ns() == 0


def test_a_clock_that_is_set_is_followed_as_soon_with_one_message_a_second():
    late = inputs.MessageDelay()
    for second in range(300):
        assert late(second * SECOND_NS, second * SECOND_NS) == 0
    lates = [late((second - 5) * SECOND_NS, second * SECOND_NS) for second in range(300, 340)]
    assert lates.index(0) <= inputs.LIVE_MESSAGES


def test_what_waited_through_a_long_sleep_is_late_by_all_of_it():
    late = inputs.MessageDelay()
    for step in range(2000):
        late(step * STEP_NS, step * STEP_NS)
    for step in range(2000, 2010):
        assert late(step * STEP_NS, step * STEP_NS + 3600 * SECOND_NS) == 3600 * SECOND_NS


def test_publishers_whose_clocks_differ_share_a_topic():
    arrivals = inputs.Arrivals(STEP_NS)
    now_ns = time.time_ns()
    for clock_ns, gid in ((now_ns, b"a"), (now_ns - 90 * SECOND_NS, b"b")):
        info = {"source_timestamp": clock_ns, "publisher_gid": {"data": gid}}
        assert arrivals.estimate_arrival_at_process_ns(info, 1000) == 1000


def test_without_source_timestamps_what_comes_right_after_a_gap_counts_as_from_before_it():
    arrivals = inputs.Arrivals(STEP_NS)
    for step in range(5):
        arrivals.record_tick(step * STEP_NS)
        assert (
            arrivals.estimate_arrival_at_process_ns(None, step * STEP_NS + 1) == step * STEP_NS + 1
        )
    gap_ns = 4 * STEP_NS
    assert arrivals.estimate_arrival_at_process_ns(None, gap_ns + SECOND_NS) == gap_ns
    arrivals.record_tick(gap_ns + SECOND_NS)
    assert arrivals.estimate_arrival_at_process_ns(None, gap_ns + SECOND_NS + STEP_NS) == gap_ns
    after_ns = gap_ns + SECOND_NS + STEP_NS + 1
    assert arrivals.estimate_arrival_at_process_ns(None, after_ns) == after_ns
