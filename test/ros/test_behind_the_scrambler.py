"""A policy node behind the scrambler stops as it does on the robot itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from geometry_msgs.msg import Vector3Stamped
from rclpy.parameter import Parameter
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from stand import JOINTS, SAFE, STEP_NS, Stand, nanoseconds, readings_of, stamp_of

from an_control.disturbance import DisturbanceSettings
from an_control.ros.graph import QuietNode
from an_control.ros.outputs import set_stamp
from an_control.wiring import load_wiring
from an_control_sim.scrambler.scrambler import LOCKSTEP_WAIT_S, Scrambler, ScramblerNode
from an_control_sim.scrambler.wiring import derive_scrambled_wiring, write_wiring

MAX_AGE = 5
"""Ticks after which a reading is too old."""


def wire(stand: Stand, *, required: bool, scrambled: bool) -> Path:
    """The robot's wiring; the node reads by it, or by the one that is derived from it."""
    share = 0.1 if required else 0.8
    text = stand.wiring.read_text().replace("share: 0.5", f"share: {share}")
    if required:
        text = text.replace("Vector3Stamped, max", "Vector3Stamped, required: true, max")
    robot = stand.wiring.with_name("robot.yaml")
    robot.write_text(text)
    stand.wiring = robot
    if scrambled:
        stand.wiring = robot.with_name("scrambled.yaml")
        write_wiring(derive_scrambled_wiring(load_wiring(robot)), stand.wiring)
    return robot


class Ticks:
    """A tick of the node at each period of a ROS time of its own, on what has come by then."""

    def __init__(self, stand: Stand, *, required: bool, scrambled: bool) -> None:
        self._stand, self.step = stand, 0
        robot = wire(stand, required=required, scrambled=scrambled)
        self._clock = stand.peer.create_publisher(Clock, "/clock", 10)
        node = stand.start(activate=False, mode="rate", trigger="timer", use_sim_time=True)
        stand.until(self._clock.get_subscription_count, "/clock matched")
        self._advance()
        node.trigger_configure()
        node.trigger_activate()
        stand.until(lambda: stand.peer.count_publishers("commands") == 1, "commands matched")
        self._scrambler: Scrambler | None = None
        if scrambled:
            between = stand.add(QuietNode("between", context=stand.context))
            self._scrambler = Scrambler(between, load_wiring(robot), DisturbanceSettings(), 1)
            stand.until(self._scrambler._publisher.get_subscription_count, "scrambled matched")
        self._tilt_read = required or not scrambled
        if self._tilt_read:
            stand.until(stand.tilt.get_subscription_count, "tilt matched")

    def __call__(self, *, tilt: bool) -> list[float]:
        """The command of the next period, in which the joints are heard, and `tilt` or not."""
        stamp_ns, (left, right, x, y) = stamp_of(self.step), readings_of(self.step)
        self.step += 1
        messages: dict[str, Any] = {
            "joint_states": JointState(name=list(JOINTS), position=[float(left), float(right)])
        }
        if tilt:
            messages["tilt"] = Vector3Stamped()
            messages["tilt"].vector.x, messages["tilt"].vector.y = float(x), float(y)
        table = self._stand.node._loop.controller.table
        before = sum(source.messages for source in table.list_source_statuses(0))
        for topic, message in messages.items():
            set_stamp(message.header.stamp, stamp_ns)
            publisher = self._stand.joints if topic == "joint_states" else self._stand.tilt
            publisher.publish(message)
            if self._scrambler is not None:
                self._scrambler.store_message(topic, message)
        if self._scrambler is not None:
            self._scrambler.disturb_messages_of_step(stamp_ns, stamp_of(self.step))
            self._scrambler.publish_disturbed_messages()
        came = 1 + (tilt and self._tilt_read)
        self._stand.until(
            lambda: sum(one.messages for one in table.list_source_statuses(0)) == before + came,
            "the readings",
        )
        commands = len(self._stand.commands)
        self._advance()
        self._stand.until(lambda: len(self._stand.commands) > commands, f"tick {self.step}")
        return list(self._stand.commands[-1].effort)

    def _advance(self) -> None:
        message, now_ns = Clock(), stamp_of(self.step)
        message.clock.sec, message.clock.nanosec = divmod(now_ns, 10**9)
        self._clock.publish(message)
        clock = self._stand.node.get_clock()
        self._stand.until(lambda: clock.now().nanoseconds == now_ns, f"the clock at {self.step}")


@pytest.mark.parametrize("scrambled", [False, True])
@pytest.mark.parametrize("required", [True, False])
def test_a_silent_sensor_gives_the_safe_command_at_the_same_tick_behind_the_scrambler(
    stand, required, scrambled
):
    """A required one, and one without which too few channels are left."""
    tick = Ticks(stand, required=required, scrambled=scrambled)
    assert all(tick(tilt=True) != SAFE for _ in range(10))
    silent = [tick(tilt=False) == SAFE for _ in range(2 * MAX_AGE)]
    # A reading comes a period before the tick that reads it first.
    assert silent.index(True) == MAX_AGE - 1 and all(silent[MAX_AGE - 1 :])
    assert tick(tilt=True) != SAFE


def scrambler_node(stand: Stand, robot: Path) -> ScramblerNode:
    values = {"wiring": str(robot), "mode": "lockstep"}
    node = ScramblerNode(
        context=stand.context,
        parameter_overrides=[Parameter(name, value=value) for name, value in values.items()],
    )
    stand.add(node)
    stand.until(lambda: node._scrambler._publisher.get_subscription_count() == 1, "scrambled")
    return node


def activate(stand: Stand, **parameters: Any) -> None:
    node = stand.start(activate=False, **parameters)
    assert node.trigger_configure().to_label() == "transition_success"
    assert node.trigger_activate().to_label() == "transition_success"
    stand.until(lambda: stand.peer.count_publishers("commands") == 1, "commands matched")


def command_of(stand: Stand, step: int) -> Callable[[], list[Any]]:
    return lambda: [one for one in stand.commands if nanoseconds(one) == stamp_of(step)]


def test_in_lockstep_a_silent_required_sensor_gives_the_safe_command_behind_the_scrambler(
    stand, capfd
):
    robot = wire(stand, required=True, scrambled=True)
    activate(stand, lockstep_wait_s=0.05)
    scrambler_node(stand, robot)
    stand.until(lambda: stand.joints.get_subscription_count() == 1, "joint_states matched")
    stand.until(lambda: stand.tilt.get_subscription_count() == 2, "tilt matched")
    answered = stand.answered(1)
    assert list(answered.effort) != SAFE
    begin_s = time.monotonic()
    stand.send_joints(stamp_of(2), readings_of(2)[:2])
    stand.until(command_of(stand, 2), "the command without tilt")
    assert time.monotonic() - begin_s >= LOCKSTEP_WAIT_S
    assert list(command_of(stand, 2)()[0].effort) == SAFE
    assert "safe command: required source 'tilt' is missing" in capfd.readouterr().err
    assert list(stand.answered(3).effort) != SAFE


def test_the_scrambler_of_its_own_repeats_no_old_readings_to_the_policy(stand):
    """The policy would take them for new ones, and step on them."""
    robot = load_wiring(wire(stand, required=False, scrambled=True))
    between = stand.add(QuietNode("between", context=stand.context))
    scrambler, sent = Scrambler(between, robot, DisturbanceSettings(), 1), []
    scrambler._publisher = type("Ear", (), {"publish": staticmethod(sent.append)})
    joints, now_ns = JointState(name=list(JOINTS), position=[1.0, 2.0]), stamp_of(1)

    def ticks(count: int) -> int:
        nonlocal now_ns
        before = len(sent)
        for _ in range(count):
            scrambler.disturb_messages_of_step(now_ns, now_ns)
            scrambler.publish_disturbed_messages()
            now_ns += STEP_NS
        return len(sent) - before

    assert ticks(3) == 0
    set_stamp(joints.header.stamp, now_ns)
    scrambler.store_message("joint_states", joints)
    assert ticks(MAX_AGE) == 1
    assert ticks(MAX_AGE) == 1, "that they are missing now"
    assert all(value != value for value in sent[-1].position)
