"""The e-stop over real ROS 2: it latches, and only its reset clears it."""

from __future__ import annotations

import time

import pytest
from rclpy.event_handler import PublisherEventCallbacks
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import JointState
from stand import SAFE, RosTime, Stand, nanoseconds
from std_msgs.msg import Bool
from std_srvs.srv import Trigger


def stop_by_topic(stand: Stand, value: bool = True, reliability=ReliabilityPolicy.RELIABLE) -> None:
    qos = QoSProfile(depth=1, reliability=reliability)
    quiet = PublisherEventCallbacks(use_default_callbacks=False)
    publisher = stand.peer.create_publisher(Bool, "policy/estop", qos, event_callbacks=quiet)
    stand.until(publisher.get_subscription_count, "the e-stop's subscriber")
    publisher.publish(Bool(data=value))
    if value:
        stand.until(lambda: stand.node._estop.reason, "the e-stop")


def stop_by_service(stand: Stand) -> None:
    assert stand.call(Trigger, "policy/estop").success


def clear(stand: Stand) -> Trigger.Response:
    return stand.call(Trigger, "policy/reset_estop")


@pytest.mark.parametrize("stop", [stop_by_topic, stop_by_service])
def test_the_safe_command_goes_out_at_once_and_keeps_going_out_until_the_reset(stand, stop):
    stand.start(mode="rate")
    for step in range(1, 5):
        stand.send(step)
        before = len(stand.commands)
        stand.until(lambda n=before: len(stand.commands) > n, "a command")
    stop(stand)
    stopped_ns = stand.node.get_clock().now().nanoseconds

    def later() -> list[JointState]:
        """What was sent after the stop; what was before may arrive later still."""
        return [one for one in stand.commands if nanoseconds(one) > stopped_ns]

    for step in range(5, 40):
        stand.send(step)
        stand.executor.spin_once(timeout_sec=0.01)
    stand.until(lambda: len(later()) > 10, "safe commands")
    assert all(list(one.effort) == SAFE for one in later())
    assert clear(stand).success
    count = len(stand.commands)
    for step in range(40, 60):
        stand.send(step)
        stand.executor.spin_once(timeout_sec=0.01)
    stand.until(
        lambda: any(list(one.effort) != SAFE for one in stand.commands[count:]), "the policy"
    )


@pytest.mark.parametrize("reliability", [ReliabilityPolicy.RELIABLE, ReliabilityPolicy.BEST_EFFORT])
def test_every_publisher_of_the_estop_is_heard_and_false_clears_nothing(stand, reliability):
    stand.start()
    stand.step(1)
    stop_by_topic(stand, reliability=reliability)
    stop_by_topic(stand, False, reliability)
    count = len(stand.commands)
    stand.send(2)
    stand.until(lambda: stand.commands[count:], "a command")
    assert stand.node._estop.reason == "e-stop by topic"
    assert list(stand.commands[-1].effort) == SAFE


def test_an_estop_that_a_publisher_keeps_stops_a_node_that_starts_later(stand):
    qos = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    stand.peer.create_publisher(Bool, "policy/estop", qos).publish(Bool(data=True))
    stand.start(mode="rate")
    stand.until(lambda: stand.node._estop.reason == "e-stop by topic", "the kept e-stop")
    clear(stand)
    for _ in range(20):
        stand.executor.spin_once(timeout_sec=0.02)
    assert not stand.node._estop.reason


def test_no_command_of_the_policy_precedes_an_estop_that_a_publisher_keeps(stand):
    """The executor does not spin between the configuration and the activation, as in `main`."""
    qos = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    publisher = stand.peer.create_publisher(Bool, "policy/estop", qos)
    publisher.publish(Bool(data=True))
    node = stand.start(mode="rate", activate=False)
    assert node.trigger_configure().to_label() == "transition_success"
    while not node.count_publishers("policy/estop"):  # discovery needs no executor
        time.sleep(0.01)
    assert node.trigger_activate().to_label() == "transition_success"
    assert node._estop.reason == "e-stop by topic"


def test_an_error_in_sending_the_safe_command_is_logged_and_the_watchdog_goes_on(
    stand, monkeypatch, capfd
):
    stand.start(mode="rate")
    stand.send(1)
    stand.until(lambda: stand.commands, "a command")
    (commands,) = [one for one in stand.node.publishers if one.topic_name == "/commands"]
    publish = commands.publish

    def fail(message: JointState) -> None:
        raise AssertionError("no network")

    monkeypatch.setattr(commands, "publish", fail)
    stop_by_service(stand)
    stand.until(lambda: "no network" in capfd.readouterr().err, "the log line")
    monkeypatch.setattr(commands, "publish", publish)
    count = len(stand.commands)
    stand.until(lambda: len(stand.commands) > count + 3, "the watchdog's safe commands")
    assert list(stand.commands[-1].effort) == SAFE


def test_in_lockstep_each_step_is_answered_by_the_safe_command(stand, reference):
    stand.start()
    stand.step(1)
    stop_by_service(stand)
    stand.until(lambda: len(stand.commands) >= 2, "the safe command at once")
    stand.send(1)
    stand.send(2)
    stand.until(lambda: stand.commands[-1].header.stamp.nanosec == 20_000_000, "step 2")
    assert all(list(one.effort) == SAFE for one in stand.commands[1:])
    assert clear(stand).success
    count = len(stand.commands)
    stand.send(3)
    stand.until(lambda: stand.commands[-1].header.stamp.nanosec == 30_000_000, "step 3")
    reference.step(1, SAFE)
    reference.step(2, SAFE)
    assert list(stand.commands[-1].effort) == reference.step(3), "it has seen the stop"
    assert len(stand.commands) >= count


def test_an_estop_survives_rewiring_a_new_model_and_every_transition(stand):
    node = stand.start(watchdog_s=0.0)
    stand.step(1)
    stop_by_service(stand)
    node.set_parameters([Parameter("sources.tilt.topic", value="tilt2")])
    node.set_parameters([Parameter("sources.tilt.topic", value="tilt")])
    assert node.set_parameters([Parameter("model", value=str(stand.model))])[0].successful
    assert stand.reset().success
    for transition in ("deactivate", "cleanup", "configure", "activate"):
        getattr(node, f"trigger_{transition}")()
        assert node._estop.reason == "e-stop by service"
    stand.connect()
    count = len(stand.commands)
    stand.send(2)
    stand.until(lambda: stand.commands[count:], "a command")
    assert all(list(one.effort) == SAFE for one in stand.commands[count:])
    assert clear(stand).success and clear(stand).message == "was not latched"


def test_an_estop_before_anything_is_configured_holds_from_the_first_command_on(stand):
    stand.start(activate=False)
    stop_by_service(stand)
    stand.node.trigger_configure()
    assert not stand.commands
    stand.node.trigger_activate()
    stand.connect()
    stand.send(1)
    stand.until(lambda: len(stand.commands) > 3, "safe commands")
    assert all(list(one.effort) == SAFE for one in stand.commands)
    stand.node.trigger_deactivate()


def test_after_the_reset_authority_grows_from_the_safe_command(stand):
    stand.start(ramp_s=0.05)
    gate = stand.node._loop.controller.gate
    for step in range(1, 8):
        stand.step(step)
    assert gate.authority == 1.0
    stop_by_service(stand)
    assert clear(stand).success
    stand.until(lambda: len(stand.commands) > 7, "the safe command")
    for step in range(8, 13):
        stand.answered(step)
        assert gate.authority == pytest.approx((step - 7) / 5)


def test_another_reason_for_the_safe_command_is_logged_too_and_other_figures_are_not(stand, capfd):
    step_on = RosTime(stand)
    for step in range(1, 5):
        step_on(step)
    assert stand.call(Trigger, "policy/estop").success
    step_on(5)
    for _ in range(14):  # the readings grow too old under the latched stop
        step_on.advance(1)
        stand.executor.spin_once(timeout_sec=0.02)
    assert stand.call(Trigger, "policy/reset_estop").success
    stand.until(
        lambda: (
            step_on.advance(1)
            or stand.node._loop.controller.decision.safe_cause == "min_present_share"
        ),
        "too little is left",
    )
    stand.until(lambda: step_on.advance(1) or stand.node._loop.ticks.count > 20, "more ticks")
    log = capfd.readouterr().err
    assert log.count("safe command: e-stop by service") == 1
    assert log.count("safe command: 0 of 4 channels present") == 1
