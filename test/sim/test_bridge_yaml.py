"""What a simulation YAML may say, how anything else is refused, and the messages it makes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

pytest.importorskip("rclpy")
from std_msgs.msg import Float64MultiArray

from an_control.system.share import find_share_path
from an_control.wiring import WiringError
from an_control_sim.bridge.publishers import SensorTopic
from an_control_sim.bridge.robot import SimulatedRobot
from an_control_sim.bridge.simulation_file import (
    ExpressionError,
    SimulatedTopicConfig,
    load_simulation,
    parse_expression,
)

GOOD = """
an_control_simulation: 1
environment: test/Still-v0
step_s: 0.02
publish:
  joints:
    type: sensor_msgs/msg/JointState
    fields: {name: [a, b], position: "observation[0:2]", header.frame_id: base}
command:
  topic: commands
  type: std_msgs/msg/Float64MultiArray
  field: data
  actuators: {push: {scale: 2.0, offset: 1.0, safe: 1.0}}
"""


class StillEnv(gymnasium.Env):
    """Never moves; `action_space` and `observation` as asked for."""

    def __init__(self, actions: int = 0, picture: bool = False) -> None:
        box, discrete = gymnasium.spaces.Box, gymnasium.spaces.Discrete
        self.action_space = discrete(actions) if actions else box(-1.0, 1.0, (1,), np.float32)
        self.observation_space = box(-9.0, 9.0, (3,), np.float32)
        self._observation = np.array([0.5, -0.25, 2.0], np.float32)
        if picture:
            self._observation = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
            self.observation_space = box(0, 255, (4, 5, 3), np.uint8)
        self.given: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        return self._observation, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        return self._observation, float(action), False, False, {}


gymnasium.register("test/Still-v0", StillEnv)


def robot(tmp_path: Path, *changes: tuple[str, str], text: str = GOOD) -> SimulatedRobot:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "still.yaml"
    path.write_text(text)
    return SimulatedRobot(load_simulation(path))


@pytest.mark.parametrize(
    ("change", "key", "said"),
    [
        (("step_s: 0.02", "step_s: 0.02\nspeed: 3"), "speed", "environment, step_s, publish"),
        (("step_s: 0.02", "step_s: -1"), "step_s", "-1 is not allowed; allowed: seconds"),
        (("step_s: 0.02\n", ""), "", "'step_s'"),
        (("simulation: 1", "simulation: 2"), "an_control_simulation", "the version"),
        (("test/Still-v0", "test/Gone-v0"), "environment", "registered with gymnasium"),
        (("test/Still-v0", "../os:test/Still-v0"), "environment", "MODULE:ID"),
        (("test/Still-v0", "no_such_robots:a/Still-v0"), "environment", "No module named"),
        (("test/Still-v0", "broken_robots:a/Still-v0"), "environment", "ZeroDivisionError"),
        (("step_s", "options: {wings: 2}\nstep_s"), "environment", "wings"),
        (("step_s", "options: {id: x}\nstep_s"), "options.id", "no id here"),
        (
            ("step_s", "options: {disable_env_checker: true}\nstep_s"),
            "options.disable_env_checker",
            "it is set already",
        ),
        (("JointState", "JointStat"), "publish.joints.type", "JointStat"),
        (("sensor_msgs/msg/J", "no_msgs/msg/J"), "publish.joints.type", "no_msgs"),
        (("position:", "place:"), "publish.joints.fields.place", "velocity"),
        (("header.frame_id", "header.frame"), "publish.joints.fields.header.frame", "frame_id"),
        (("[0:2]", "[0:4]"), "publish.joints.fields.position", "4"),
        (("[0:2]", "[1:4:2]"), "publish.joints.fields.position", "4"),
        (("[0:2]", "[0,3]"), "publish.joints.fields.position", "out of bounds"),
        (("[0:2]", "[0+1]"), "publish.joints.fields.position", "observation[a:b]"),
        (("observation[0:2]", "sensors.wind"), "publish.joints.fields.position", "none"),
        (("observation[0:2]", "hello"), "publish.joints.fields.position", "double[]"),
        (("[a, b]", "[a, b, c]"), "publish.joints.fields.position", "3 numbers, one for each"),
        (("position:", "velocity: [1.0], position:"), "publish.joints.fields.velocity", "2 numb"),
        (("[a, b]", "7"), "publish.joints.fields.name", "string[]"),
        (("[a, b]", "observation"), "publish.joints.fields.name", "string[]"),
        (("base", "3"), "publish.joints.fields.header.frame_id", "string"),
        (("scale: 2.0", "scale: 0"), "command.actuators.push.scale", "other than 0"),
        (("safe: 1.0", "safe: .nan"), "command.actuators.push.safe", "finite"),
        ((", safe: 1.0", ""), "command.actuators.push", "'safe'"),
        (("field: data", "field: dat"), "command.field", "data"),
        (("push:", "pull: {scale: 1, safe: 0}, push:"), "command.actuators", "1 actuators"),
        (("topic: commands", "topic: 3 commands"), "command.topic", "topic name"),
        (("topic: commands", "topic: joints"), "command.topic", "not under publish"),
    ],
)
def test_what_does_not_fit_is_refused_by_file_key_value_and_what_is_allowed(
    tmp_path, monkeypatch, change, key, said
):
    (tmp_path / "broken_robots.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WiringError) as raised:
        robot(tmp_path, change)
    assert raised.value.key == key
    assert "still.yaml" in str(raised.value) and said in str(raised.value)


@pytest.mark.parametrize(
    "text", ["", "[]", "a: {", "a: 1\na: 2", "&x 1", "!!python/name:os.system"]
)
def test_what_is_no_plain_yaml_is_refused(tmp_path, text):
    with pytest.raises(WiringError, match=r"still\.yaml"):
        robot(tmp_path, text=text)


def test_a_missing_file_is_named():
    with pytest.raises(WiringError, match=r"gone\.yaml"):
        load_simulation("gone.yaml")


def test_an_environment_of_a_module_in_the_current_directory_is_served(tmp_path, monkeypatch):
    (tmp_path / "my_robots.py").write_text(
        "import gymnasium\nstill = gymnasium.registry['test/Still-v0'].entry_point\n"
        "gymnasium.register('mine/Still-v0', still)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one not in ("", str(tmp_path))])
    one = robot(tmp_path, ("test/Still-v0", "my_robots:mine/Still-v0"))
    one.fill_sensor_messages(0)
    assert list(one.sensor_topics[0].message.position) == [0.5, -0.25]


def test_the_first_episode_is_played_in_a_fresh_environment(tmp_path):
    class CountsResetsEnv(StillEnv):
        resets = 0

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
            self.resets += 1
            return np.full(3, self.resets, np.float32), {}

    gymnasium.register("test/CountsResets-v0", CountsResetsEnv)
    one = robot(tmp_path, ("test/Still-v0", "test/CountsResets-v0"))
    one.reset(5)
    one.fill_sensor_messages(0)
    assert list(one.sensor_topics[0].message.position) == [1.0, 1.0]


def test_interleaved_positions_and_velocities_become_a_proper_joint_state(tmp_path):
    text = GOOD.replace(
        'name: [a, b], position: "observation[0:2]"',
        'name: [a, b], position: "observation[0:3:2]", velocity: "observation[2, 1]"',
    )
    one = robot(tmp_path, text=text)
    one.fill_sensor_messages(0)
    message = one.sensor_topics[0].message
    assert list(message.position) == [0.5, 2.0] and list(message.velocity) == [2.0, -0.25]


@pytest.mark.parametrize(
    "text",
    ["observation", "observation[2]", "sensors.goal[0:2]", "observation[1:9:2]", "sensors.a[0, 2]"],
)
def test_expressions_are_recognised_by_their_form(text):
    expression = parse_expression(text)
    assert expression is not None and expression.text == text


@pytest.mark.parametrize(
    "text", ["base", "observations", "", "sensor.x", "[0]", "torso_observation"]
)
def test_any_other_text_is_a_plain_string(text):
    assert parse_expression(text) is None


@pytest.mark.parametrize(
    "text",
    ["observation[0]+1", "observation[", "observation[x]", "sensors", "sensors.a.b", "sensors[0]",
     "observation.__class__", "sensors.goal(1)", "observation[1][2]",
     "observation[0:4:0]", "observation[1,]"],
)  # fmt: skip
def test_nothing_in_an_expression_is_ever_evaluated(text):
    with pytest.raises(ExpressionError):
        parse_expression(text)


def filled(kind: Any, fields: dict[str, Any], sensors: dict[str, Any]) -> Any:
    values = {
        path: (parse_expression(value) or value) if isinstance(value, str) else value
        for path, value in fields.items()
    }
    sensor_topic = SensorTopic(SimulatedTopicConfig("topic", "", values), kind, "file")
    sensor_topic.check_expressions_fit_fields(np.zeros(3, np.float32), sensors)
    return sensor_topic.fill_message(np.zeros(3, np.float32), sensors, 3_000_000_004)


def test_values_are_cast_to_exactly_the_type_of_their_field():
    from nav_msgs.msg import Odometry
    from sensor_msgs.msg import BatteryState, Imu

    sensors = {
        "v": np.array([1.5, 2.5, 3.5], np.float32), "q": [0, 0, 0, 1], "n": np.float32(2.5),
        "cov": np.arange(9.0), "flag": np.int64(1), "count": np.float64(3.0),
    }  # fmt: skip
    imu = filled(
        Imu,
        {"angular_velocity": "sensors.v", "orientation": "sensors.q",
         "angular_velocity_covariance": "sensors.cov",
         "linear_acceleration_covariance": [-1, 0, 0, 0, 0, 0, 0, 0, 0]},
        sensors,
    )  # fmt: skip
    assert (imu.angular_velocity.x, imu.angular_velocity.z) == (1.5, 3.5)
    assert imu.orientation.w == 1.0 and isinstance(imu.orientation.w, float)
    assert imu.angular_velocity_covariance.tolist() == list(range(9))
    assert imu.linear_acceleration_covariance[0] == -1.0
    assert (imu.header.stamp.sec, imu.header.stamp.nanosec) == (3, 4)
    battery = filled(
        BatteryState,
        {"present": "sensors.flag", "voltage": "sensors.n", "cell_voltage": "sensors.v",
         "power_supply_status": "sensors.count", "location": "here"},
        sensors,
    )  # fmt: skip
    assert battery.present is True and battery.voltage == 2.5 and battery.location == "here"
    assert battery.cell_voltage.typecode == "f" and battery.power_supply_status == 3
    odometry = filled(Odometry, {"pose.pose.position.z": "sensors.n"}, sensors)
    assert odometry.pose.pose.position.z == 2.5


def test_a_vector_of_the_wrong_length_is_refused_before_anything_runs():
    from geometry_msgs.msg import Vector3Stamped

    with pytest.raises(WiringError, match=r"publish\.topic\.fields\.vector"):
        filled(Vector3Stamped, {"vector": "sensors.v"}, {"v": [1.0, 2.0]})


def test_a_picture_becomes_an_image_message(tmp_path):
    from sensor_msgs.msg import Image

    text = GOOD.replace("step_s", "options: {picture: true}\nstep_s").replace(
        'fields: {name: [a, b], position: "observation[0:2]", header.frame_id: base}',
        "fields: {data: observation}",
    ).replace("sensor_msgs/msg/JointState", "sensor_msgs/msg/Image")  # fmt: skip
    shown = robot(tmp_path, text=text)
    shown.fill_sensor_messages(1)
    image = shown.sensor_topics[0].message
    assert isinstance(image, Image)
    assert (image.height, image.width, image.step, image.encoding) == (4, 5, 15, "rgb8")
    assert bytes(image.data) == bytes(range(60))


def test_a_command_becomes_the_action_by_scale_and_offset(tmp_path):
    one = robot(tmp_path)
    read = one.commands.read_commands
    assert read(Float64MultiArray(data=[2.0])).tolist() == [0.5]
    assert one.commands.safe.tolist() == [0.0]
    assert one.commands.make_action(np.array([7.0])).tolist() == [1.0], "within the action space"
    with pytest.raises(ValueError, match="2 values for 1 actuators"):
        read(Float64MultiArray(data=[1.0, 2.0]))


TWO_TOPICS = """command:
  - topic: cmd_vel
    type: geometry_msgs/msg/TwistStamped
    actuators: {forward: {scale: 2.0, safe: 1.0, field: twist.linear.x}}
  - topic: arm
    type: trajectory_msgs/msg/JointTrajectory
    field: points[0].positions
    actuators: {lift: {scale: 4.0, safe: 0.0}}
"""


def test_a_command_of_two_topics_is_there_once_both_have_come(tmp_path):
    from geometry_msgs.msg import TwistStamped
    from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

    text = GOOD[: GOOD.index("command:")] + TWO_TOPICS
    commands = robot(tmp_path, ("step_s", "options: {actions: 2}\nstep_s"), text=text).commands
    assert commands.topics_and_message_classes == [
        ("cmd_vel", TwistStamped),
        ("arm", JointTrajectory),
    ]
    assert commands.safe.tolist() == [0.5, 0.0]
    twist = TwistStamped()
    twist.twist.linear.x = 1.0
    arm = JointTrajectory(joint_names=["lift"], points=[JointTrajectoryPoint(positions=[1.0])])
    commands.store_commands(twist, 3.0, 0)
    assert commands.newest_command is None
    commands.store_commands(arm, 5.0, 1)
    assert commands.newest_command.tolist() == [0.5, 0.25] and commands.last_command_time_s == 3.0
    with pytest.raises(ValueError, match=r"no points\[0\]"):
        commands.store_commands(JointTrajectory(joint_names=["lift"]), 6.0, 1)
    assert commands.last_command_time_s == 3.0
    commands.clear_commands()
    assert commands.newest_command is None


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (("topic: arm", "topic: cmd_vel"), "command[1].topic"),
        (("lift:", "forward:"), "command[1].actuators.forward"),
        (("twist.linear.x", "twist.linear.w"), "command[0].actuators.forward.field"),
        (("    field: points[0].positions\n", ""), "command[1].actuators.lift"),
        (("topic: arm", "topic: joints"), "command[1].topic"),
    ],
)
def test_what_does_not_fit_of_several_command_topics_is_named_by_its_place(tmp_path, change, key):
    text = GOOD[: GOOD.index("command:")] + TWO_TOPICS
    with pytest.raises(WiringError) as raised:
        robot(tmp_path, ("step_s", "options: {actions: 2}\nstep_s"), change, text=text)
    assert raised.value.key == key


def test_a_discrete_environment_takes_an_index_or_the_largest_of_n(tmp_path):
    options = ("step_s", "options: {actions: 3}\nstep_s")
    index = robot(tmp_path, options, (", offset: 1.0", "")).commands
    assert [index.make_action(np.array([value])) for value in (-4.0, 1.2, 9.0)] == [0, 1, 2]
    three = "{a: {scale: 1, safe: 0}, b: {scale: 1, safe: 0}, c: {scale: 1, safe: 0}}"
    largest = robot(
        tmp_path, options, ("{push: {scale: 2.0, offset: 1.0, safe: 1.0}}", three)
    ).commands
    assert largest.make_action(np.array([-3.0, 5.0, 2.0])) == 1


def test_the_ants_yaml_serves_every_sensor_on_five_topics():
    pytest.importorskip("pybullet")
    ant = SimulatedRobot(load_simulation(find_share_path("config/ant_sim.yaml")))
    ant.reset(3)
    ant.fill_sensor_messages(1_000_000_000)
    topics = {sensor_topic.topic: sensor_topic.message for sensor_topic in ant.sensor_topics}
    assert set(topics) == {"joint_states", "imu", "odometry", "goal", "foot_contacts"}
    assert len(topics["joint_states"].name) == len(topics["joint_states"].position) == 8
    assert np.hypot(topics["goal"].vector.x, topics["goal"].vector.y) == pytest.approx(1.0)
    ant.close()
