"""By a timer at a fixed rate: a tick a period, on what is fresh; /clock makes the time here."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from rosgraph_msgs.msg import Clock
from stand import IDS, JOINTS, SAFE, SCALE, STEP_NS, nanoseconds, readings_of, stamp_of

BOTH = pytest.mark.parametrize("stand", ["single_threaded", "events"], indirect=True)


class Time:
    """Makes ROS time; a call is one tick of the node, and gives its command."""

    def __init__(self, stand) -> None:
        self._stand = stand
        self._publisher = stand.peer.create_publisher(Clock, "/clock", 10)
        self.step = 0

    def start(self, **parameters) -> None:
        """The node is activated at step 0, readings come by the robot's own stamps."""
        stand = self._stand
        node = stand.start(
            activate=False, mode="rate", trigger="timer", use_sim_time=True, **parameters
        )
        stand.until(self._publisher.get_subscription_count, "/clock matched")
        self._set(node)
        node.trigger_configure()
        node.trigger_activate()
        stand.connect()

    def __call__(self, steps: int = 1) -> list[float]:
        self.step += steps
        before = len(self._stand.commands)
        self._set(self._stand.node)
        self._stand.until(lambda: len(self._stand.commands) > before, f"tick {self.step}")
        (command,) = self._stand.commands[before:]
        assert nanoseconds(command) == stamp_of(self.step)
        return list(command.effort)

    def _set(self, node) -> None:
        message = Clock()
        message.clock.sec, message.clock.nanosec = divmod(stamp_of(self.step), 10**9)
        self._publisher.publish(message)
        clock = node.get_clock()
        self._stand.until(
            lambda: clock.now().nanoseconds == stamp_of(self.step), f"the clock at {self.step}"
        )


def heard(stand, joints=None, tilt=None) -> None:
    """Send readings and wait until the node has them."""
    table = stand.node._loop.controller.table
    before = sum(source.messages for source in table.list_source_statuses(0))
    if joints is not None:
        stand.send_joints(0, joints)
    if tilt is not None:
        stand.send_tilt(0, *tilt)
    count = before + (joints is not None) + (tilt is not None)
    stand.until(
        lambda: sum(s.messages for s in table.list_source_statuses(0)) == count, "the readings"
    )


def hear_step(stand, step: int) -> None:
    readings = readings_of(step)
    heard(stand, readings[:2], readings[2:])


@BOTH
def test_every_period_of_ros_time_has_one_tick_on_the_newest_readings(stand, reference):
    tick = Time(stand)
    tick.start()
    for step in range(1, 20):
        hear_step(stand, step)
        assert tick() == reference.step(step)
    assert len(stand.commands) == 19


def test_a_clock_that_jumps_ahead_gives_one_tick_not_many(stand, reference):
    tick = Time(stand)
    tick.start()
    hear_step(stand, 1)
    assert tick() == reference.step(1)
    hear_step(stand, 2)
    assert tick(3) == reference.step(2)
    assert tick()
    assert len(stand.commands) == 3


def test_a_source_older_than_its_greatest_age_is_missing_until_it_comes_again(stand, reference):
    tick = Time(stand)
    tick.start()
    hear_step(stand, 1)
    assert tick() == reference.step(1)
    heard(stand, joints=readings_of(2)[:2])
    both = dict(zip(IDS, [*readings_of(2)[:2], *readings_of(1)[2:]], strict=True))
    expected = reference(both)
    for _ in range(4):
        assert tick() == expected, "a tick without a new reading repeats the command"
    heard(stand, joints=readings_of(3)[:2])
    joints = dict(zip(IDS, readings_of(3)[:2], strict=False))
    assert tick() == reference(joints)
    hear_step(stand, 4)
    assert tick() == reference.step(4)


def test_silence_gives_the_safe_command_until_readings_come_again(stand, capfd):
    tick = Time(stand)
    tick.start()
    assert tick() == SAFE
    hear_step(stand, 1)
    assert tick() != SAFE
    commands = [tick() for _ in range(8)]
    assert all(one != SAFE for one in commands[:3])
    assert all(one == SAFE for one in commands[-3:])
    hear_step(stand, 2)
    assert tick() != SAFE
    log = capfd.readouterr().err
    assert log.count("safe command: 0 of 4 channels present") == 1
    assert log.count("acting: 4 of 4 channels, 100.0 Hz") == 1
    assert log.count("acting again: 4 of 4 channels") == 1
    assert log.count("source 'joints' lost") == 1 and log.count("source 'joints' recovered") == 1


@BOTH
def test_a_clock_set_back_makes_readings_missing_and_ticks_go_on(stand, reference):
    tick = Time(stand)
    tick.start()
    tick(100)
    hear_step(stand, 1)
    assert tick() == reference.step(1)
    tick.step = 10
    tick._set(stand.node)
    assert tick() == SAFE
    reference.policy.previous_action = np.array(SAFE) / SCALE
    hear_step(stand, 2)
    assert tick() == reference.step(2)


@BOTH
def test_what_readings_hold_never_makes_a_command_that_is_not_finite(stand):
    tick = Time(stand)
    tick.start()
    values = (float("nan"), float("inf"), -float("inf"), 1e308, 0.0)
    for left, x in itertools.product(values, values):
        heard(stand, (left, 1.0), (x, -1.0))
        assert np.all(np.abs(tick()) <= 8.0)
    for positions, names in (((), ()), ((1.0,), JOINTS), ((1.0, 2.0), ()), ((1.0,) * 9, JOINTS)):
        stand.send_joints(0, positions, names)
        heard(stand, tilt=(0.0, float("nan")))
        assert np.all(np.abs(tick()) <= 8.0)
    assert stand.state() == "active"


def test_limits_and_rates_of_change_hold_on_the_wire(stand):
    text = stand.wiring.read_text()
    stand.wiring.write_text(text.replace("max_rate: 0, safe: 0.5", "max_rate: 50, safe: 0.5"))
    tick = Time(stand)
    tick.start()
    last = SAFE[0]
    for step in range(1, 30):
        hear_step(stand, 3 * step)
        left, right = tick()
        assert abs(left - last) <= 50 * STEP_NS / 1e9 + 1e-12
        assert abs(left) <= 8 and abs(right) <= 8
        last = left
    assert stand.node._loop.controller.gate.counts.rate_limited > 5


@BOTH
def test_without_ros_time_it_ticks_by_the_steady_clock_at_the_rate(stand):
    stand.start(mode="rate")
    begin_s, ticks = time.monotonic(), 60
    first = len(stand.commands)
    stand.until(lambda: len(stand.commands) >= first + ticks, "60 ticks")
    took_s = time.monotonic() - begin_s
    assert took_s >= (ticks - 2) * 0.01
    assert took_s < 10 * ticks * 0.01
    assert all(list(one.effort) == SAFE for one in stand.commands)
