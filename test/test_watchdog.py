"""The ramp, the e-stop and the watchdog, without ROS and without waiting."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from an_control.control.command_safety import EStop, SafetyGate, Watchdog
from an_control.wiring import ActuatorConfig, CommandConfig, MessageConfig

STEP_S = 0.01
SAFE = [0.5, -0.25]
ANY = st.floats(allow_nan=True, allow_infinity=True)


def command(max_rate: float = 0.0, limit: float = 8.0) -> CommandConfig:
    actuators = tuple(
        ActuatorConfig(name, 1.0, 0.0, (-limit, limit), max_rate, safe)
        for name, safe in zip("ab", SAFE, strict=True)
    )
    message = MessageConfig("commands", "std_msgs/msg/Float64MultiArray", "data", actuators)
    return CommandConfig((message,))


@given(
    st.lists(st.tuples(ANY, ANY), max_size=30),
    st.sampled_from([0.0, 3.0]),
    st.sampled_from([0.0, 0.05]),
    st.sampled_from([8.0, 1.7e308]),
)
def test_nothing_leaves_the_gate_that_is_not_finite_or_over_a_limit(wanted, rate, ramp_s, limit):
    gate = SafetyGate(command(rate, limit), STEP_S, ramp_s)
    last = np.array(SAFE)
    with np.errstate(over="ignore"):
        for one in wanted:
            sent = gate(np.array(one))
            assert np.isfinite(sent).all() and (np.abs(sent) <= limit).all()
            if rate and np.isfinite(one).all():
                assert (np.abs(sent - last) <= rate * STEP_S + 1e-12).all()
            last = sent


def test_authority_grows_from_the_safe_command_to_the_policys_over_the_ramp():
    gate = SafetyGate(command(), STEP_S, ramp_s=0.1)
    wanted = np.array([6.0, -6.0])
    shares = [(gate(wanted) - SAFE) / (wanted - SAFE) for _ in range(12)]
    assert np.allclose(shares[:10], np.linspace(0.1, 1.0, 10)[:, None])
    assert gate(wanted).tolist() == wanted.tolist()
    assert gate.counts.ramped == 9


def test_every_safe_command_starts_the_ramp_again():
    gate = SafetyGate(command(), STEP_S, ramp_s=0.04)
    wanted = np.array([6.0, -6.0])
    first = [gate(wanted).tolist() for _ in range(6)]
    for interrupt in (
        gate.restart_ramp_and_get_safe_command,
        gate.restart_ramp_from_safe_command,
        lambda: gate(np.array([np.nan, 0.0])),
    ):
        interrupt()
        assert [gate(wanted).tolist() for _ in range(6)] == first


def test_without_a_ramp_the_first_command_is_the_policys_to_the_last_bit():
    gate = SafetyGate(command(), STEP_S)
    wanted = np.array([0.1 + 0.2, -1 / 3])
    assert gate(wanted).tolist() == wanted.tolist()


def test_an_estop_keeps_its_first_reason_until_it_is_reset():
    estop = EStop()
    assert estop.latch("a") and not estop.latch("b")
    assert estop.reason == "a"
    assert estop.reset() and not estop.reset()
    assert not estop.reason


class Watched:
    """A watchdog whose time is given; counts what it sends."""

    def __init__(self, timeout_s: float = 0.0175) -> None:
        self.estop, self.sent, self.trips = EStop(), 0, 0
        self.sendable, self.told = True, []
        self.dog = Watchdog(self._send, STEP_S, timeout_s, self.estop, self._trip)
        self.dog.record_command(0.0)

    def _send(self) -> bool:
        self.sent += self.sendable
        return self.sendable

    def _trip(self, sent: bool) -> None:
        self.trips += 1
        self.told.append(sent)

    def run(self, start_s: float, end_s: float) -> None:
        """Look as often as the thread would."""
        while start_s < end_s:
            start_s += self.dog.send_due_safe_command_and_get_wait_s(start_s)


def test_the_watchdog_says_nothing_while_commands_go_out():
    watched = Watched()
    for tick in range(100):
        watched.dog.record_command(tick * STEP_S)
        watched.run(tick * STEP_S, (tick + 1) * STEP_S)
    assert watched.sent == 0


def test_between_the_start_and_the_first_command_the_safe_one_goes_out_and_that_is_no_trip():
    watched = Watched()
    watched.dog.begun = False
    watched.run(0.0, 1.0)
    assert 95 <= watched.sent <= 100 and not watched.dog.tripped and watched.trips == 0
    watched.dog.record_command(1.0)
    watched.run(1.0, 2.0)
    assert watched.trips == 1


def test_the_safe_command_goes_out_within_two_periods_and_then_every_period():
    watched = Watched()
    watched.run(0.0, 2 * STEP_S)
    assert watched.sent == 1 and watched.dog.tripped
    watched.run(2 * STEP_S, 102 * STEP_S)
    assert 99 <= watched.sent <= 102
    assert watched.trips == 1


def test_a_command_ends_what_the_watchdog_does_and_the_next_silence_starts_it_again():
    watched = Watched()
    watched.run(0.0, 1.0)
    watched.dog.record_command(1.0)
    assert not watched.dog.tripped
    before = watched.sent
    watched.run(1.0, 1.01)
    assert watched.sent == before
    watched.run(1.01, 2.0)
    assert watched.trips == 2 and watched.dog.trips == 2


def test_a_safe_command_that_cannot_be_sent_is_a_trip_and_not_counted_as_sent():
    watched = Watched()
    watched.sendable = False
    watched.run(0.0, 1.0)
    assert (watched.trips, watched.dog.sent, watched.told) == (1, 0, [False])
    watched.sendable = True
    watched.run(1.0, 1.1)
    assert watched.dog.sent == watched.sent > 0


def test_a_silence_that_held_the_watchdog_up_too_counts_as_the_longest():
    watched = Watched()
    watched.dog.record_command(0.3)  # it could not look meanwhile, so it has not tripped
    watched.dog.record_command(0.31)
    assert watched.trips == 0 and watched.dog.longest_s == pytest.approx(0.3)


def test_the_time_before_the_first_command_is_no_silence():
    dog = Watchdog(lambda: True, STEP_S, 0.0175, EStop())
    dog.start()
    dog.stop()
    dog.record_command(dog._fed_s + 1.0)
    assert dog.longest_s == 0.0


def test_a_timeout_of_zero_watches_nothing_but_a_latched_estop():
    watched = Watched(timeout_s=0.0)
    watched.run(0.0, 100.0)
    assert watched.sent == 0
    watched.dog.begun = False
    watched.estop.latch("operator")
    watched.run(100.0, 101.0)
    assert 95 <= watched.sent <= 101 and not watched.dog.tripped
    watched.estop.reset()
    before = watched.sent
    watched.run(101.0, 102.0)
    assert watched.sent == before


def test_the_watchdogs_thread_works_while_another_is_busy_and_ends_when_told():
    sent = threading.Event()
    dog = Watchdog(lambda: sent.set() or True, STEP_S, 0.0175, EStop())
    threads = threading.active_count()
    dog.start()
    assert sent.wait(30.0)
    dog.stop()
    assert threading.active_count() == threads


@pytest.mark.parametrize("started", [False, True])
def test_stopping_a_watchdog_twice_does_nothing(started):
    dog = Watchdog(lambda: True, STEP_S, 1.0, EStop())
    if started:
        dog.start()
    dog.stop()
    dog.stop()
