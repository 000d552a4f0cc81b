"""Another controller on the command topics: whatever it sends, ours stays within its limits."""

from __future__ import annotations

import time
from array import array

import numpy as np
import pytest
from rclpy.parameter import Parameter
from sensor_msgs.msg import JointState
from stand import Stand, nanoseconds, readings_of, stamp_of, tiny_model
from std_srvs.srv import Trigger

JOINTS = tuple(f"j{number}" for number in range(6))
PERIOD_NS = 20_000_000
HEAD = """
an_control_wiring: 1
robot: arm
rate_hz: 50
min_present_share: 0.5
sources:
  joints: {topic: joint_states, type: sensor_msgs/msg/JointState, max_age_s: 10}
  tilt: {topic: tilt, type: geometry_msgs/msg/Vector3Stamped, max_age_s: 10}
channels:
  "*.position": {source: joints, field: "position[*]"}
  tilt.x: {source: tilt, field: vector.x}
command:
  topic: commands
  type: sensor_msgs/msg/JointState
  field: position
  measured: {source: joints, field: "position[*]"}
  actuators:
"""
ACTUATOR = "    {}: {{scale: 3.0, limits: [-1, 1], max_rate: {}, safe: {}}}\n"
FOREIGN = {
    "far outside": [20.0] * 6,
    "the other way": [-20.0] * 6,
    "not finite": [float("nan")] * 6,
    "infinite": [float("inf")] * 6,
    "of another length": [20.0] * 5,
}


class Arm:
    """Six joints that are commanded by position, by the node and by others."""

    def __init__(self, stand: Stand, rate: float, safe: str, **parameters) -> None:
        self.stand, self.step = stand, 0
        lines = "".join(ACTUATOR.format(joint, rate, safe) for joint in JOINTS)
        stand.wiring.write_text(HEAD + lines)
        tiny_model(stand.model, actions=6, step_s=0.02)
        self.others = stand.peer.create_publisher(JointState, "commands", 10)
        self.node = stand.start(activate=False, **parameters)
        assert self.node.trigger_configure().to_label() == "transition_success"
        stand.until(self.others.get_subscription_count, "the other controller is heard")

    def send(self) -> int:
        self.step += 1
        stamp_ns = stamp_of(0) + self.step * PERIOD_NS
        self.stand.send_joints(stamp_ns, np.sin(0.3 * self.step + np.arange(6.0)), JOINTS)
        self.stand.send_tilt(stamp_ns, *readings_of(self.step)[:2])
        return stamp_ns

    def command(self, values: list[float]) -> None:
        """Command as another controller would."""
        names = list(JOINTS[: len(values)])
        self.others.publish(JointState(name=names, position=array("d", values)))

    def heard(self, values: list[float]) -> None:
        """Command as another controller would, and wait until the node has heard it."""
        before = len(self.stand.commands)
        self.command(values)
        self.stand.until(lambda: len(self.stand.commands) > before, "the other command")
        for _ in range(5):
            self.stand.executor.spin_once(timeout_sec=0.01)

    def connect(self) -> None:
        """Wait until the robot and the node, beside the other controller, hear each other."""
        self.stand.until(self.stand.joints.get_subscription_count, "joint_states")
        self.stand.until(self.stand.tilt.get_subscription_count, "tilt")
        self.stand.until(lambda: self.stand.peer.count_publishers("commands") == 2, "it commands")
        (publisher,) = self.node._loop._output._publishers
        self.stand.until(publisher.get_subscription_count, "its commands are heard")

    def take_over(self) -> None:
        self.node.set_parameters([Parameter("shadow", value=False)])
        self.connect()
        self.stand.commands.clear()

    def answers(self, count: int) -> np.ndarray:
        """(count, 6) the node's commands of as many steps of lockstep."""
        for _ in range(count):
            stamp_ns = self.send()
            self.stand.until(
                lambda stamp_ns=stamp_ns: any(
                    nanoseconds(one) == stamp_ns for one in self.stand.commands
                ),
                "an answer",
            )
        return np.array([one.position for one in self.stand.commands])


@pytest.mark.parametrize(
    ("kind", "safe"), [*((kind, "0.0") for kind in FOREIGN), ("far outside", "hold")]
)
def test_after_another_controller_every_command_is_within_the_limits(stand, kind, safe):
    foreign, arm = FOREIGN[kind], Arm(stand, 2.0, safe, shadow=True)
    arm.node.trigger_activate()
    controller = arm.node._loop.controller
    for _ in range(3):
        stamp_ns = arm.send()
        stand.until(lambda s=stamp_ns: controller.stepped_ns == s, "a step that is watched")
        arm.heard(foreign)
    arm.take_over()
    sent = arm.answers(100)
    assert len(sent) >= 100
    assert np.abs(sent).max() <= 1.0
    assert np.abs(np.diff(sent, axis=0)).max() <= 2.0 * 0.02 + 1e-12


def test_foreign_commands_in_a_stop_a_swap_and_a_rewiring_leave_ours_within_the_limits(stand):
    arm = Arm(stand, 2.0, "0.0", shadow=True, ramp_s=0.2)
    arm.node.trigger_activate()
    changes = (
        lambda: stand.call(Trigger, "policy/estop"),
        lambda: stand.call(Trigger, "policy/reset_estop"),
        lambda: arm.node.set_parameters([Parameter("model", value=str(stand.model))]),
        lambda: arm.node.set_parameters([Parameter("sources.tilt.topic", value="tilt2")]),
        lambda: stand.call(Trigger, "policy/reload_wiring"),
        lambda: stand.call(Trigger, "policy/reset_state"),
    )
    for change in changes:
        arm.node.set_parameters([Parameter("shadow", value=True)])
        arm.heard([20.0] * 6)
        change()
        arm.heard([-20.0] * 6)
        arm.take_over()
        assert np.abs(arm.answers(8)).max() <= 1.0


def test_configured_again_with_narrower_limits_the_commands_stay_within_them(stand):
    arm = Arm(stand, 2.0, "0.0")
    arm.node.trigger_activate()
    arm.connect()
    arm.answers(60)
    arm.node.trigger_deactivate()
    arm.node.trigger_cleanup()
    stand.wiring.write_text(stand.wiring.read_text().replace("[-1, 1]", "[-0.1, 0.2]"))
    arm.node.trigger_configure()
    arm.heard([20.0] * 6)
    arm.node.trigger_activate()
    arm.connect()
    stand.commands.clear()
    sent = arm.answers(30)
    assert sent.min() >= -0.1 and sent.max() <= 0.2


def test_switched_to_shadow_the_executor_is_not_held_up_by_a_listener_that_hangs(
    stand, monkeypatch
):
    arm = Arm(stand, 2.0, "0.0")
    arm.node.trigger_activate()
    arm.connect()
    arm.answers(3)
    output = arm.node._loop._output
    monkeypatch.setattr(
        "an_control.ros.outputs._have_all_messages_arrived", lambda publisher: False
    )
    begin_s = time.monotonic()
    arm.node.set_parameters([Parameter("shadow", value=True)])
    assert time.monotonic() - begin_s < 0.25
    assert output._retiring
    monkeypatch.undo()
    stand.until(lambda: not output._retiring, "the publisher is given up")
    assert not [one for one in arm.node.publishers if one.topic_name == "/commands"]


def test_the_greatest_rate_holds_over_any_second_of_real_time(stand):
    arm = Arm(stand, 0.5, "0.0", mode="rate", watchdog_s=0.0)
    heard: list[tuple[float, list[float]]] = []
    stand.peer.create_subscription(
        JointState,
        "commands",
        lambda message: heard.append((time.monotonic(), list(message.position))),
        100,
    )
    arm.node.trigger_activate()
    arm.connect()
    end_s, next_s = time.monotonic() + 3.0, 0.0
    while time.monotonic() < end_s:
        if time.monotonic() >= next_s:
            arm.send()
            next_s = time.monotonic() + 1 / 45
        stand.executor.spin_once(timeout_sec=0.002)
    times_s, values = np.array([at for at, _ in heard]), np.array([one for _, one in heard])
    for first in range(0, len(times_s), 5):
        within = (times_s >= times_s[first]) & (times_s <= times_s[first] + 1.0)
        assert np.abs(values[within] - values[first]).max() <= 0.5 * 1.02
    assert np.ptp(values, axis=0).max() > 0.3
