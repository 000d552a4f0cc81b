"""Parameters: described, bounded, fixed while configured; topics rewire at any time."""

from __future__ import annotations

from typing import Any

import pytest
from geometry_msgs.msg import Vector3Stamped
from rcl_interfaces.msg import Parameter as ParameterMessage
from rcl_interfaces.srv import DescribeParameters, ListParameters, SetParametersAtomically
from rclpy.parameter import Parameter
from sensor_msgs.msg import JointState
from stand import JOINTS, Stand, nanoseconds, readings_of, stamp_of

from an_control.ros.outputs import set_stamp

BOTH = pytest.mark.parametrize("stand", ["single_threaded", "events"], indirect=True)
STRINGS = {"wiring", "model", "mode", "engine", "executor", "monitor"}


def set_parameters(stand: Stand, **values: Any) -> str:
    """Over the service, all or none; the reason for a refusal, empty where it was done.

    A double underscore stands for a dot.
    """
    changes: list[ParameterMessage] = [
        Parameter(name.replace("__", "."), value=value).to_parameter_msg()
        for name, value in values.items()
    ]
    request = SetParametersAtomically.Request(parameters=changes)
    result = stand.call(SetParametersAtomically, "policy/set_parameters_atomically", request).result
    assert result.successful or result.reason
    return str(result.reason)


class Swapped:
    """Further topics for the same sensors; which topic a source is on can change at every step."""

    def __init__(self, stand: Stand) -> None:
        self._stand = stand
        node = stand.peer
        self.joints = {
            t: node.create_publisher(JointState, t, 10) for t in ("joints_1", "joints_2")
        }
        self.tilt = {t: node.create_publisher(Vector3Stamped, t, 10) for t in ("tilt_1", "tilt_2")}

    def step(self, step: int, joints: str, tilt: str) -> list[float]:
        """Send a step on these topics until its command comes, as the simulator does."""
        stand = self._stand
        left, right, x, y = map(float, readings_of(step))
        positions = JointState(name=list(JOINTS), position=[left, right])
        direction = Vector3Stamped()
        direction.vector.x, direction.vector.y = x, y
        for message in (positions, direction):
            set_stamp(message.header.stamp, stamp_of(step))

        def answered() -> bool:
            self.joints[joints].publish(positions)
            self.tilt[tilt].publish(direction)
            for _ in range(10):
                stand.executor.spin_once(timeout_sec=0.02)
                if stand.commands and nanoseconds(stand.commands[-1]) == stamp_of(step):
                    return True
            return False

        stand.until(answered, f"the command of step {step}")
        return list(stand.commands[-1].effort)


def test_every_parameter_is_described_and_numbers_have_a_range(stand):
    stand.start()
    names = set(stand.call(ListParameters, "policy/list_parameters").result.names)
    assert STRINGS | {"autostart", "check_rate", "lockstep_wait_s", "use_sim_time"} <= names
    assert {"sources.joints.topic", "sources.tilt.topic"} <= names
    ours = sorted(names - {"use_sim_time", "start_type_description_service"})
    request = DescribeParameters.Request(names=ours)
    for one in stand.call(DescribeParameters, "policy/describe_parameters", request).descriptors:
        assert one.description, one.name
        if one.name == "lockstep_wait_s":
            (bounds,) = one.floating_point_range
            assert 0 < bounds.from_value < bounds.to_value
        if one.name in ("mode", "engine", "executor"):
            assert one.additional_constraints.startswith("one of ")


@BOTH
def test_topics_swapped_while_it_runs_cost_no_step_and_change_no_bit(stand, reference):
    swapped = Swapped(stand)
    stand.start(
        activate=False,
        options=None,
        **{"sources.joints.topic": "joints_1", "sources.tilt.topic": "tilt_1"},
    )
    stand.node.trigger_configure()
    stand.node.trigger_activate()
    for step in range(60):
        joints, tilt = f"joints_{1 + step // 3 % 2}", f"tilt_{1 + step // 5 % 2}"
        if step % 3 == 0 or step % 5 == 0:
            assert not set_parameters(stand, sources__joints__topic=joints)
            assert not set_parameters(stand, sources__tilt__topic=tilt)
        assert swapped.step(step, joints, tilt) == reference.step(step)
    assert {nanoseconds(one) for one in stand.commands} == {stamp_of(step) for step in range(60)}


def test_sources_of_one_type_swap_their_topics_at_once(stand):
    """Twice the same type, so that only the pair of changes together makes sense."""
    text = stand.wiring.read_text()
    text = text.replace("topic: tilt, type: geometry_msgs/msg/Vector3Stamped", "topic: other, "
                        "type: sensor_msgs/msg/JointState")  # fmt: skip
    text = text.replace("vector.x", '"position[left]"').replace("vector.y", '"position[right]"')
    stand.wiring.write_text(text)
    other = stand.peer.create_publisher(JointState, "other", 10)
    stand.start(activate=False).trigger_configure()
    stand.node.trigger_activate()
    stand.until(lambda: other.get_subscription_count(), "other matched")
    stand.until(lambda: stand.joints.get_subscription_count(), "joint_states matched")
    stand.until(lambda: stand.peer.count_publishers("commands"), "commands matched")

    def step(number: int, joints: Any, tilt: Any) -> list[float]:
        for publisher, (left, right) in (
            (joints, readings_of(number)[:2]),
            (tilt, readings_of(number)[2:]),
        ):
            message = JointState(name=list(JOINTS), position=[float(left), float(right)])
            set_stamp(message.header.stamp, stamp_of(number))
            publisher.publish(message)
        count = len(stand.commands) + 1
        stand.until(lambda: len(stand.commands) == count, f"step {number}")
        return list(stand.commands[-1].effort)

    plain = [step(number, stand.joints, other) for number in range(30)]
    assert stand.reset().success
    swapped = []
    for number in range(30):
        topics = ["joint_states", "other"][:: (-1) ** number]
        assert not set_parameters(
            stand, sources__joints__topic=topics[0], sources__tilt__topic=topics[1]
        )
        swapped.append(step(number, *[stand.joints, other][:: (-1) ** number]))
    assert swapped == plain


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("a//b", "topic name"),
        ("a b", "topic name"),
        ("", "topic name"),
        ("9x", "topic name"),
        ("{robot}/x", "topic name"),
        ("x" * 300, "topic name"),
        ("tilt", "geometry_msgs/msg/Vector3Stamped"),
        (5, "type"),
        (None, "undeclared"),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_a_reason_and_the_old_wiring_stays(
    stand, reference, topic, said
):
    stand.start()
    assert list(stand.step(1).effort) == reference.step(1)
    reason = set_parameters(stand, sources__tilt__topic="elsewhere", sources__joints__topic=topic)
    assert said in reason, reason
    assert list(stand.step(2).effort) == reference.step(2)
    assert stand.node.get_parameter("sources.tilt.topic").value == "tilt"


def test_a_source_that_is_not_there_is_refused(stand):
    stand.start()
    assert set_parameters(stand, sources__lidar__topic="scan")
    stand.step(1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("wiring", "w.yaml"),
        ("mode", "rate"),
        ("engine", "numba"),
        ("check_rate", False),
        ("lockstep_wait_s", 1.0),
        ("use_sim_time", True),
    ],
)
def test_what_shapes_the_node_cannot_be_set_while_it_is_configured(stand, name, value):
    stand.start()
    reason = set_parameters(stand, **{name: value})
    assert name in reason and "unconfigured" in reason
    stand.node.trigger_deactivate()
    stand.node.trigger_cleanup()
    assert not set_parameters(stand, **{name: value})


def test_what_has_that_value_already_may_be_set_again(stand):
    stand.start()
    same = {"executor": "single_threaded", "mode": "lockstep", "use_sim_time": False}
    assert not set_parameters(stand, **same)


def test_the_executor_can_be_chosen_only_at_the_start(stand):
    stand.start(activate=False)
    assert "when the node is started" in set_parameters(stand, executor="events")
    assert stand.node.get_parameter("executor").value == "single_threaded"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("mode", "sometimes", "rate, lockstep"),
        ("engine", "torch", "auto, numpy, numba"),
        ("executor", "multi", "single_threaded, events"),
        ("lockstep_wait_s", 1000.0, "range"),
        ("lockstep_wait_s", "1", "type"),
        ("thread_priority", 99, "range"),
        ("autostart", "yes", "type"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_naming_what_is(stand, name, value, said):
    stand.start(activate=False)
    reason = set_parameters(stand, **{name: value})
    assert name in reason or "type" in reason
    assert said in reason


def test_an_off_that_ros_reads_as_a_boolean_turns_the_monitor_off(stand):
    node = stand.start(activate=False, monitor=False)
    assert node.get_parameter("monitor").value == "off"
    assert not set_parameters(stand, monitor="match")
    assert not set_parameters(stand, monitor=False)
    assert node.get_parameter("monitor").value == "off"
    assert set_parameters(stand, mode=False)
    assert node.get_parameter("mode").value == "lockstep"


def test_an_integer_is_a_value_of_a_parameter_that_is_a_float(stand):
    node = stand.start(activate=False, watchdog_s=1)
    assert node.get_parameter("watchdog_s").value == 1.0
    assert not set_parameters(stand, lockstep_wait_s=2)
    assert node.get_parameter("lockstep_wait_s").value == 2.0
    assert set_parameters(stand, lockstep_wait_s=61)
    assert set_parameters(stand, wiring=1)


def test_a_launch_may_name_topics_and_they_come_back_after_a_cleanup(stand):
    node = stand.start(activate=False, **{"sources.joints.topic": "arm/joint_states"})
    node.trigger_configure()
    assert node.get_parameter("sources.joints.topic").value == "arm/joint_states"
    assert not set_parameters(stand, sources__joints__topic="leg/joint_states")
    node.trigger_cleanup()
    assert not node.has_parameter("sources.joints.topic")
    node.trigger_configure()
    assert node.get_parameter("sources.joints.topic").value == "arm/joint_states"


@pytest.mark.parametrize("topic", ["a//b", 5, ""])
def test_a_launch_that_names_no_topic_fails_to_configure_with_one_error(stand, capfd, topic):
    node = stand.start(activate=False, **{"sources.joints.topic": topic})
    assert node.trigger_configure().to_label() == "transition_failure"
    (error,) = [line for line in capfd.readouterr().err.splitlines() if "[ERROR]" in line]
    assert "sources.joints.topic" in error
    assert stand.state() == "unconfigured"


def test_what_is_set_for_a_parameter_that_the_node_does_not_have_is_named(stand, capfd):
    names = {"watchdogs": 1.0, "sources.joints.topik": "x", "sources.joints.topic": "joint_states"}
    node = stand.start(activate=False, **names)
    assert node.trigger_configure().to_label() == "transition_success"
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "has no parameter" in line]
    assert "no parameter sources.joints.topik, watchdogs: what was set" in line


def test_a_parameter_cannot_be_deleted(stand):
    node = stand.start(activate=False)
    assert "monitor_corrects: cannot be deleted" in set_parameters(stand, monitor_corrects=None)
    assert node.trigger_configure().to_label() == "transition_success"


def test_names_follow_namespaces_and_remaps(stand, reference):
    arguments = ["--ros-args", "-r", "__ns:=/ant", "-r", "joint_states:=/robot/joints"]
    arguments += ["-r", "commands:=/robot/commands"]
    node = stand.start(activate=False, options={"cli_args": arguments})
    node.trigger_configure()
    names = {one.topic_name for one in (*node.publishers, *node.subscriptions)}
    assert {"/robot/joints", "/ant/tilt", "/robot/commands", "/ant/policy/attention"} <= names
    assert node.get_fully_qualified_name() == "/ant/policy"


def test_unknown_parameters_are_refused(stand):
    stand.start()
    assert set_parameters(stand, wirring="x")
