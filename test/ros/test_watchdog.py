"""The watchdog over real ROS 2: whatever holds the executor, the safe command goes out."""

from __future__ import annotations

import itertools
import threading
import time

import pytest
from stand import SAFE, Stand, readings_of, stamp_of

from an_control.control.controller import Controller

PERIOD_S = 0.01
BOTH = pytest.mark.parametrize("stand", ["single_threaded", "events"], indirect=True)


class Listener:
    """Hears commands on a thread of its own, as another machine would."""

    def __init__(self, stand: Stand) -> None:
        import rclpy
        from rclpy.executors import SingleThreadedExecutor
        from rclpy.qos import QoSProfile
        from sensor_msgs.msg import JointState

        self.heard: list[tuple[float, list[float]]] = []
        self._node = rclpy.create_node("listener", context=stand.context)
        self._node.create_subscription(
            JointState, "commands", self._receive, QoSProfile(depth=1000)
        )
        self._executor = SingleThreadedExecutor(context=stand.context)
        self._executor.add_node(self._node)
        self._end = False
        self._thread = threading.Thread(target=self._spin)
        self._thread.start()

    def _receive(self, message) -> None:
        self.heard.append((time.monotonic(), list(message.effort)))

    def _spin(self) -> None:
        while not self._end:
            self._executor.spin_once(timeout_sec=0.05)

    def since(self, begin_s: float) -> list[list[float]]:
        return [values for at_s, values in self.heard if at_s >= begin_s]

    def close(self) -> None:
        self._end = True
        self._thread.join()
        self._executor.shutdown()
        self._node.destroy_node()


@pytest.fixture
def listener(stand):
    one = Listener(stand)
    yield one
    one.close()


def act(stand: Stand, steps: range) -> None:
    """Feed the node in real time until it acts."""
    for step in steps:
        stand.send(step)
        before = len(stand.commands)
        stand.until(lambda n=before: len(stand.commands) > n, "a command")
    steps_on = itertools.count(steps.stop)

    def acts() -> bool:
        stand.send(next(steps_on))
        return list(stand.commands[-1].effort) != SAFE

    stand.until(acts, "the policy acts")


def hang(monkeypatch, hang_s: float) -> None:
    """The next tick takes that long."""
    tick = Controller.decide

    def late(controller, *arguments):
        monkeypatch.setattr(Controller, "decide", tick)
        time.sleep(hang_s)
        return tick(controller, *arguments)

    monkeypatch.setattr(Controller, "decide", late)


@BOTH
def test_while_a_tick_hangs_the_safe_command_goes_out_every_period(stand, listener, monkeypatch):
    stand.start(mode="rate", watchdog_s=-1.0)
    stand.until(lambda: listener.heard, "the listener hears")
    act(stand, range(1, 8))
    hang(monkeypatch, 0.5)
    begin_s = time.monotonic()
    stand.executor.spin_once(timeout_sec=0.1)
    stand.until(lambda: time.monotonic() - begin_s > 0.5, "the hanging tick")
    during = [values for at_s, values in listener.heard if 0.1 < at_s - begin_s < 0.5]
    assert during and all(values == SAFE for values in during)
    assert len(during) >= 10
    assert stand.node._loop._guard.watchdog.trips >= 1


def sent_during(output, tick, monkeypatch) -> list[list[float]]:
    """What goes out from now on until the tick that `tick` makes has ended, it included."""
    sent: list[list[float]] = []
    send = output.send

    def record(values, stamp_ns, kind):
        sent.append(values.tolist())
        return send(values, stamp_ns, kind)

    monkeypatch.setattr(output, "send", record)
    tick()
    monkeypatch.setattr(output, "send", send)
    return sent


def test_the_command_of_a_tick_that_came_too_late_is_not_sent(stand, monkeypatch, capfd):
    stand.start(mode="rate", watchdog_s=-1.0)
    act(stand, range(1, 8))
    loop = stand.node._loop
    hang(monkeypatch, 0.3)
    # On a busy machine a trip may be under way already.
    trips = loop._guard.watchdog.trips - loop._guard.watchdog.tripped
    sent = sent_during(loop._output, lambda: loop._run_tick(None), monkeypatch)
    assert loop._guard.watchdog.trips > trips
    assert len(sent) >= 2 and sent[0] == sent[-1] == SAFE
    assert all(one == SAFE for one in sent)
    assert not loop._guard.watchdog.tripped
    act(stand, range(8, 30))
    assert "watchdog: no command for 0.0175 s" in capfd.readouterr().err


def test_after_a_trip_the_next_fresh_action_goes_out_at_once(stand, listener):
    stand.wiring.write_text(stand.wiring.read_text().replace("max_age_s: 0.05", "max_age_s: 1.0"))
    stand.start(mode="rate", watchdog_s=-1.0)
    stand.until(lambda: listener.heard, "the listener hears")
    act(stand, range(1, 8))
    watchdog, trips = stand.node._loop._guard.watchdog, stand.node._loop._guard.watchdog.trips
    time.sleep(0.1)
    assert watchdog.trips > trips
    before = len(stand.commands)
    stand.send(9)
    stand.until(lambda: not watchdog.tripped, "a tick")
    stand.until(lambda: len(stand.commands) > before, "the commands since")
    stand.until(lambda: list(stand.commands[-1].effort) != SAFE, "the policy's command")
    first = next(one for one in stand.commands[before:] if list(one.effort) != SAFE)
    count = sum(list(one.effort) == SAFE for one in stand.commands[before:])
    assert list(first.effort) != SAFE and count <= watchdog.sent
    assert watchdog.longest_s >= 0.05


def test_an_executor_that_stalls_does_not_stop_the_safe_command(stand, listener):
    stand.start(mode="rate", watchdog_s=-1.0)
    stand.until(lambda: listener.heard, "the listener hears")
    act(stand, range(1, 8))
    begin_s = time.monotonic()
    time.sleep(0.3)
    heard = listener.since(begin_s + 0.05)
    assert len(heard) >= 8 and all(values == SAFE for values in heard)
    act(stand, range(8, 16))


def test_a_ros_clock_that_stops_gives_the_safe_command(stand, listener, capfd):
    from rosgraph_msgs.msg import Clock

    clock = stand.peer.create_publisher(Clock, "/clock", 10)
    stand.start(mode="rate", watchdog_s=-1.0, use_sim_time=True)
    stand.until(clock.get_subscription_count, "/clock matched")
    begin_s = time.monotonic()
    stand.until(lambda: len(listener.since(begin_s)) > 10, "safe commands without a clock")
    assert all(values == SAFE for values in listener.since(begin_s))
    message, steps = Clock(), itertools.count(1)

    def acts_after_another_step():
        step, passed_ns = next(steps), int((time.monotonic() - begin_s) * 1e9)
        message.clock.sec, message.clock.nanosec = divmod(10**12 + passed_ns, 10**9)
        clock.publish(message)
        stand.send_joints(0, readings_of(step)[:2])
        stand.send_tilt(0, *readings_of(step)[2:])
        stand.executor.spin_once(timeout_sec=0.005)
        return any(v != SAFE for v in listener.since(begin_s))

    stand.until(acts_after_another_step, "the policy acts")
    watchdog = stand.node._loop._guard.watchdog
    stand.until(lambda: watchdog.tripped, "the clock has stopped again")
    said, log = "ROS time stands still or is slow: /clock", []
    stand.until(lambda: log.append(capfd.readouterr().err) or said in "".join(log), "the log")
    assert stand.node.trigger_deactivate().to_label() == "transition_success"
    assert not watchdog.tripped, "nothing is watched any more"


def test_in_lockstep_the_watchdog_is_off_unless_asked_for(stand, listener, capfd):
    stand.start(watchdog_s=-1.0)
    stand.step(1)
    assert "the watchdog is off" in capfd.readouterr().err
    assert not stand.node._loop._guard.watchdog.timeout_s
    stand.node.trigger_deactivate()
    stand.node.trigger_cleanup()
    from rclpy.parameter import Parameter

    stand.node.set_parameters([Parameter("watchdog_s", value=0.05)])
    stand.node.trigger_configure()
    stand.node.trigger_activate()
    stand.connect()
    begin_s = time.monotonic()
    stand.until(lambda: len(listener.since(begin_s)) > 3, "the watchdog's safe commands")
    assert all(values == SAFE for values in listener.since(begin_s))
    stand.send(2)
    stand.until(lambda: not stand.node._loop._guard.watchdog.tripped, "a tick")


class Blocked:
    """A publisher whose next message takes 0.1 s, as while Fast DDS waits for a participant."""

    def __init__(self, output) -> None:
        self._output, (self._publisher,) = output, output._publishers
        output._publishers = output._targets = [self]

    def publish(self, message) -> None:
        self._output._publishers = self._output._targets = [self._publisher]
        time.sleep(0.1)
        self._publisher.publish(message)


def test_a_publish_that_blocks_is_logged_and_counted_and_does_not_hold_up_the_end(
    stand, listener, capfd
):
    node = stand.start(mode="rate", watchdog_s=-1.0)
    act(stand, range(1, 8))
    blocked = Blocked(node._loop._output)
    act(stand, range(8, 16))
    assert blocked not in node._loop._output._publishers
    stand.until(lambda: node._loop._guard.watchdog.longest_s >= 0.1, "the silence counted")
    assert "s to send a command, which delayed all others" in capfd.readouterr().err
    Blocked(node._loop._output)
    begin_s = time.monotonic()
    assert node.trigger_deactivate().to_label() == "transition_success"
    assert time.monotonic() - begin_s < 5.0
    stand.until(lambda: listener.heard[-1][1] == SAFE, "the safe command last")


def test_nothing_is_sent_by_the_watchdog_after_deactivation(stand):
    node = stand.start(mode="rate", watchdog_s=-1.0)
    stand.until(lambda: stand.commands, "a command")
    node.trigger_deactivate()
    assert not [one for one in threading.enumerate() if one.name == "watchdog"]


def test_timeouts_that_are_off_are_named_at_the_start(stand, capfd):
    stand.wiring.write_text(stand.wiring.read_text().replace("max_age_s: 0.05", "max_age_s: 0", 1))
    stand.start(mode="rate")
    log = capfd.readouterr().err
    assert "messages of any age count (max_age_s is 0): source 'joints'" in log
    assert "the watchdog is off" in log


def test_a_required_source_that_is_silent_gives_the_safe_command_however_few_channels_it_has(
    stand, capfd
):
    text = stand.wiring.read_text().replace("min_present_share: 0.5", "min_present_share: 0.1")
    stand.wiring.write_text(
        text.replace("Vector3Stamped, max", "Vector3Stamped, required: true, max")
    )
    stand.start(lockstep_wait_s=0.05)
    assert list(stand.step(1).effort) != SAFE
    stand.send_joints(stamp_of(2), readings_of(2)[:2])
    stand.until(lambda: len(stand.commands) == 2, "the command without tilt")
    assert list(stand.commands[-1].effort) == SAFE
    assert list(stand.step(3).effort) != SAFE
    assert "safe command: required source 'tilt' is missing" in capfd.readouterr().err
