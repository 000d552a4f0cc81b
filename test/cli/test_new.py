"""`an-control new`: drafts that are valid as written and run at once."""

from __future__ import annotations

import json
import math
import threading
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rclpy")
pytest.importorskip("gymnasium")
from geometry_msgs.msg import TwistStamped
from live_robot import Robot
from sensor_msgs.msg import CompressedImage, Image, Imu, JointState, LaserScan, Range
from std_msgs.msg import Float64MultiArray

from an_control import load_policy
from an_control.cli import main
from an_control.commissioning.draft import draft_wiring_of_robot
from an_control.commissioning.survey import (
    Survey,
    SurveyedTopic,
    survey_topics,
    update_topic_statistics,
)
from an_control.disturbance import DisturbanceSettings, Shuffle
from an_control.learning.evaluation.evaluate import play_episodes
from an_control.policy import AttentionSizes, MlpSizes, write_model
from an_control.policy.random_model import make_random_model
from an_control.wiring import load_wiring
from an_control_sim.bridge.draft import draft_wiring_and_simulation_files, format_index_expression
from an_control_sim.bridge.simulation_file import load_simulation
from an_control_sim.bridge.simulator_node import (
    check_wiring_fits_simulation,
    find_unpublished_sources,
)
from an_control_sim.gym.environments import describe_task, make_environment

LEGS = """
import gymnasium
import numpy as np


class Legs(gymnasium.Env):
    channels = ["height", "hip.position", "hip.velocity", "knee.position", "knee.velocity"]
    actuators = ["hip", "knee"]
    step_s = 0.01
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (5,), np.float64)
    action_space = gymnasium.spaces.Box(np.float32([-0.4, 0.0]), np.float32([0.4, 3.0]))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.state = 0, self.np_random.normal(size=5)
        return self.state, {}

    def step(self, action):
        self.steps += 1
        self.state = 0.9 * self.state + 0.3 * np.resize(np.tanh(action), 5)
        return self.state, float(self.state.sum()), False, self.steps >= 40, {}


gymnasium.register("legs/Legs-v0", Legs)
"""


def write_module(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    """The id of the environment of a module like `LEGS`, with names that no other test uses."""
    name = f"legs_{zlib.crc32(text.encode())}"
    monkeypatch.syspath_prepend(folder)
    (folder / f"{name}.py").write_text(text.replace("legs/Legs", f"legs/{name}"))
    return f"{name}:legs/{name}-v0"


def draft(folder: Path, environment: str, *, ordered: bool = False) -> tuple[Path, Path, Path]:
    """What `new` writes for an environment, and a random model of it."""
    assert main(["new", "mine", "--env", environment, "--out", str(folder)]) == 0
    env = make_environment(environment)
    task = describe_task(env, "mine", environment)
    env.close()
    channels, actions = len(task.channels), len(task.actuators)
    sizes = (
        MlpSizes(channels, actions, [8])
        if ordered
        else AttentionSizes(actions, neuron=4, queries=6, key=3, inputs=["value"], head=[5])
    )
    model = folder / "mine.safetensors"
    write_model(model, make_random_model(sizes, seed=3, gain=3.0, task=task))
    return folder / "mine_sim.yaml", folder / "mine.yaml", model


@pytest.mark.parametrize(
    ("environment", "ordered", "shuffle"),
    [
        ("Pendulum-v1", True, Shuffle()),
        ("CartPole-v1", False, Shuffle()),
        ("Hopper-v5", True, Shuffle()),
        ("my_legs:legs/Legs-v0", False, Shuffle(True, 10)),
    ],
)
def test_a_drafted_simulation_returns_what_the_environment_returns_to_the_last_bit(
    program, tmp_path, monkeypatch, environment, ordered, shuffle
):
    if environment.startswith("Hopper"):
        pytest.importorskip("mujoco")
    (tmp_path / "my_legs.py").write_text(LEGS)
    monkeypatch.chdir(tmp_path)
    simulation, wiring, model = draft(tmp_path, environment, ordered=ordered)
    result = tmp_path / "r.json"
    ended = program.run(
        "sim", "--simulation", simulation, "--wiring", wiring, "--model", model, "--seed", 4,
        "--episodes", 2, "--shuffle", shuffle, "--json", result,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "safe command" not in ended.stdout
    over_ros = json.loads(result.read_text())
    assert over_ros["task"] == "mine" and over_ros["success_share"] is None
    env = make_environment(environment)
    policy = load_policy(model)
    alone = play_episodes(policy, env, policy.nominal_ids, 2, 4, DisturbanceSettings(shuffle))
    env.close()
    assert [one["return"] for one in over_ros["episodes"]] == [one.total for one in alone]
    assert [one["shuffles"] for one in over_ros["episodes"]] == [one.shuffles for one in alone]


def test_interleaved_joints_go_out_as_joint_states_and_the_rest_by_id(tmp_path, monkeypatch):
    (tmp_path / "my_legs.py").write_text(LEGS)
    monkeypatch.chdir(tmp_path)
    simulation, wiring, _ = draft(tmp_path, "my_legs:legs/Legs-v0")
    topics = {one.topic: one.fields for one in load_simulation(simulation).publish}
    assert topics["joint_states"]["name"] == ["hip", "knee"]
    assert topics["joint_states"]["position"].text == "observation[1:4:2]"
    assert topics["joint_states"]["velocity"].text == "observation[2:5:2]"
    assert topics["readings"]["name"] == ["height"]
    wired = load_wiring(wiring)
    assert [one.id for one in wired.channels][:2] == ["height", "hip.position"]
    hip, knee = wired.command.actuators
    assert (hip.name, hip.safe, knee.limits, knee.offset) == ("hip", 0.0, (0.0, 3.0), 1.5)
    assert hip.limits[1] == float(np.float32(0.4))
    check_wiring_fits_simulation(load_simulation(simulation), wired, lockstep=True)
    assert find_unpublished_sources(load_simulation(simulation), wired) == []


@pytest.fixture
def robot() -> Iterator[Robot]:
    one = Robot("/bot")
    yield one
    one.close()


def scan(message: LaserScan, wave: float) -> None:
    message.ranges = array("f", [2.0 + wave] * 60)


def turn(message: Imu, wave: float) -> None:
    message.orientation.z, message.orientation.w = math.sin(wave / 4), math.cos(wave / 4)
    message.angular_velocity.z = wave


def test_a_running_robot_is_drafted_from_its_topics_types_names_rates_and_ranges(
    tmp_path, robot, capsys
):
    robot.joints(("hip", "knee"))
    robot.publish("imu/data", Imu(), turn)
    robot.publish("scan", LaserScan(range_max=8.0), scan)
    robot.publish("camera/image_raw", Image())
    robot.publish("wheel_cmd", Float64MultiArray(data=[0.5]))
    for topic in ("wheel_cmd", "leg_controller/commands"):
        robot.node.create_subscription(Float64MultiArray, topic, lambda message: None, 10)
    robot.start()
    arguments = ["--live", "--namespace", "/bot", "--seconds", "4", "--out", str(tmp_path)]
    assert main(["new", "mine", *arguments]) == 0
    said, text = capsys.readouterr().out, (tmp_path / "mine.yaml").read_text()
    wired = load_wiring(tmp_path / "mine.yaml")
    assert {one.name: one.topic for one in wired.sources} == {
        "joint_states": "joint_states", "imu_data": "imu/data", "scan": "scan",
    }  # fmt: skip
    fields = {one.id: one.field for one in wired.channels}
    assert fields["hip.position"] == "position[hip]" and fields["scan.ranges.*"] == "ranges[*]"
    assert fields["imu_data.yaw"] == "yaw(orientation)" and "imu_data.roll" not in fields
    (beams,) = [one for one in wired.channels if one.id == "scan.ranges.*"]
    assert (beams.inf, beams.valid) == (8.0, (0.0, 8.0))
    assert "scan.range_max" not in fields and "range_max  (always 8)" in text
    assert wired.command.names == ("hip", "knee")
    assert list(wired.command.topic_keys) == ["leg_controller/commands"]
    assert "somebody listens to /bot/wheel_cmd" in text
    assert "/bot/camera/image_raw is a camera" in text
    assert 5.0 < wired.rate_hz < 110.0
    (hip,) = [line for line in text.splitlines() if line.startswith("  hip.position")]
    low, high = map(float, hip.rpartition("# ")[2].split(" .. "))
    assert -0.5 <= low < -0.3 and 0.3 < high <= 0.5
    assert "best effort" not in said and "by /bot/robot" in said
    assert "an-control check" in said


@pytest.mark.parametrize(
    ("periods", "rate_hz", "finger_s"), [((2, 2), 50.0, None), ((1, 20), 100.0, 0.6)]
)
def test_drivers_that_share_a_topic_have_their_own_rates_and_gaps(
    tmp_path, periods, rate_hz, finger_s
):
    topic = SurveyedTopic("/bot/joint_states", "sensor_msgs/msg/JointState", ("/arm", "/hand"))
    for tick in range(400):  # hundredths of a second
        for name, period in zip(("arm", "finger"), periods, strict=True):
            if tick % period == 0:
                message = JointState(name=[name], position=array("d", [0.1 * tick]))
                update_topic_statistics(topic, message, True, 0.01 * tick)
    draft = draft_wiring_of_robot("bot", Survey((topic,), ()), "/bot")
    ((_, comment),) = draft.sources
    assert draft.rate_hz == pytest.approx(rate_hz, rel=0.02)
    (tmp_path / "bot.yaml").write_text(draft.format_yaml())
    drafted = load_wiring(tmp_path / "bot.yaml")
    assert drafted.sources[0].max_age_s <= 0.1
    ages_s = {one.id: one.max_age_s for one in drafted.channels}
    assert ages_s == {"arm.position": None, "finger.position": finger_s}
    assert comment.startswith(f"{topic.rate_hz:.3g} Hz")


def test_a_topic_slower_than_the_control_rate_is_drafted_with_its_own_rate(tmp_path):
    topics = []
    for name, period in (("joint_states", 1), ("gripper/joint_states", 10)):
        topic = SurveyedTopic(f"/bot/{name}", "sensor_msgs/msg/JointState", ("/driver",))
        for tick in range(0, 400, period):  # hundredths of a second
            message = JointState(name=[f"joint_{period}"], position=array("d", [0.1 * tick]))
            update_topic_statistics(topic, message, True, 0.01 * tick)
        topics.append(topic)
    draft = draft_wiring_of_robot("bot", Survey(tuple(topics), ()), "/bot")
    (tmp_path / "bot.yaml").write_text(draft.format_yaml())
    drafted = load_wiring(tmp_path / "bot.yaml")
    assert drafted.rate_hz == pytest.approx(100.0)
    assert [one.rate_hz for one in drafted.sources] == [None, pytest.approx(10.0)]


def test_a_driver_that_starts_late_and_ends_early_has_the_rate_at_which_it_sends():
    topic = SurveyedTopic("/bot/joint_states", "sensor_msgs/msg/JointState", ("/arm", "/hand"))
    for tick in range(400):  # hundredths of a second
        if 200 <= tick < 300:
            update_topic_statistics(topic, JointState(name=["arm"]), True, 0.01 * tick)
        if tick % 5 == 0:
            update_topic_statistics(topic, JointState(name=["finger"]), True, 0.01 * tick)
    assert topic.rate_hz == pytest.approx(100.0)


def test_a_reading_that_is_nan_at_times_keeps_its_range_and_its_channel():
    topic = SurveyedTopic("/bot/sonar", "sensor_msgs/msg/Range", ("/sonar",))
    for tick, value in enumerate((0.5, math.nan, 2.0, 1.0, math.nan)):
        update_topic_statistics(topic, Range(range=value), True, 0.1 * tick)
    assert topic.ranges["range"] == (0.5, 2.0)
    draft = draft_wiring_of_robot("bot", Survey((topic,), ()), "/bot")
    assert [config.field for config, _ in draft.channels] == ["range"]


def test_joints_with_blanks_in_their_names_are_drafted(tmp_path, robot):
    robot.joints(("left hip", "knee*"))
    robot.node.create_subscription(Float64MultiArray, "wheel_cmd", lambda message: None, 10)
    robot.start()
    arguments = ["--live", "--namespace", "/bot", "--seconds", "3", "--out", str(tmp_path)]
    assert main(["new", "odd", *arguments]) == 0
    drafted = load_wiring(tmp_path / "odd.yaml")
    fields = {one.id: one.field for one in drafted.channels}
    assert fields["left_hip.position"] == "position[left hip]"
    assert fields["knee_.position"] == "position[knee*]"
    assert drafted.command.names == ("left_hip", "knee_")
    assert "'left hip' cannot be the name of an actuator" in (tmp_path / "odd.yaml").read_text()


def test_a_running_base_is_driven_by_its_twist(tmp_path, robot):
    robot.publish("scan", LaserScan(), scan)
    robot.node.create_subscription(TwistStamped, "cmd_vel", lambda message: None, 10)
    robot.start()
    arguments = ["--live", "--namespace", "/bot", "--seconds", "3", "--out", str(tmp_path)]
    assert main(["new", "base", *arguments]) == 0
    (message,) = load_wiring(tmp_path / "base.yaml").command.messages
    assert (message.topic, message.type) == ("cmd_vel", "geometry_msgs/msg/TwistStamped")
    fields = {one.name: one.field for one in message.actuators}
    assert fields == {"linear.x": "twist.linear.x", "angular.z": "twist.angular.z"}


def test_what_a_policy_node_proposes_is_no_sensor_and_no_place_for_commands(robot):
    robot.joints(("hip", "knee"))
    for name in ("proposed", "proposed/arm"):
        topic = f"{robot.node.get_name()}/{name}"
        robot.publish(topic, JointState(name=["hip"], position=[0.0]))
        robot.node.create_subscription(JointState, topic, lambda message: None, 10)
    robot.start()
    found = survey_topics("/bot", 1.0)
    assert [one.name for one in found.topics] == ["/bot/joint_states"] and found.subscribed == ()


def test_a_robot_that_is_found_late_is_listened_to_for_the_whole_time(robot):
    robot.joints(("hip", "knee"))
    late = threading.Timer(2.0, robot.start)
    late.start()
    (topic,) = survey_topics("/bot", 1.0).topics
    late.join()
    assert topic.last_s - topic.first_s > 0.5


def test_a_robot_with_a_camera_only_is_referred_to_the_page_on_cameras(tmp_path, robot, capsys):
    robot.publish("camera/image_raw/compressed", CompressedImage())
    robot.start()
    arguments = ["--live", "--namespace", "/bot", "--seconds", "0.3", "--out", str(tmp_path)]
    assert main(["new", "mine", *arguments]) == 2
    said = capsys.readouterr().err
    assert "/bot/camera/image_raw/compressed is a camera" in said
    assert "see docs/how-to/cameras.md" in said


def test_without_a_running_robot_it_ends_with_2(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("an_control.commissioning.survey.DISCOVERY_S", 0.3)
    arguments = ["--live", "--namespace", "/nobody", "--seconds", "60", "--out", str(tmp_path)]
    assert main(["new", "mine", *arguments]) == 2
    said = capsys.readouterr().err
    assert "no topic with numbers was heard" in said and "ROS_DOMAIN_ID" in said
    assert list(tmp_path.iterdir()) == []


def test_it_overwrites_only_where_it_is_told_to(tmp_path, capsys):
    arguments = ["new", "mine", "--env", "CartPole-v1", "--out", str(tmp_path)]
    (tmp_path / "mine_sim.yaml").write_text("precious")
    assert main(arguments) == 2
    assert "mine_sim.yaml: is there already" in capsys.readouterr().err
    assert (tmp_path / "mine_sim.yaml").read_text() == "precious"
    assert not (tmp_path / "mine.yaml").exists()
    assert main([*arguments, "--force", "--json", str(tmp_path / "r.json")]) == 0
    assert "4 channels: observation.0" in capsys.readouterr().out
    assert json.loads((tmp_path / "r.json").read_text())["actuators"] == ["action.0", "action.1"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mine"], "give either --env ID, --live or --bag BAG"),
        (["my robot", "--live"], "must be a name"),
        (["mine", "--env", "Gone-v7"], "Gone-v7"),
        (["mine", "--live", "--seconds", "0"], "--seconds 0"),
    ],
)
def test_bad_input_ends_it_with_2_and_writes_nothing(tmp_path, capsys, arguments, said):
    assert main(["new", *arguments, "--out", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "changed", "said"),
    [
        (
            'actuators = ["hip"',
            'actuators = ["left hip"',
            "draft would not be valid: mine.yaml: com",
        ),
        ("step_s = 0.01", "step_s = 0.0", "Legs: its attribute step_s is 0.0; it must be the seco"),
        ("step_s = 0.01", "step_s = None", "Legs: its attribute step_s is None; it must be the se"),
    ],
)
def test_an_environment_of_which_no_valid_files_can_be_made_is_named(
    tmp_path, monkeypatch, capsys, line, changed, said
):
    environment = write_module(tmp_path, monkeypatch, LEGS.replace(line, changed))
    out = tmp_path / "out"
    assert main(["new", "mine", "--env", environment, "--out", str(out)]) == 2
    assert said in capsys.readouterr().err
    assert not out.exists()


def test_an_environment_may_observe_a_single_number_that_is_no_array(tmp_path, monkeypatch):
    text = LEGS.replace("inf, (5,), np.float64", "inf, (), np.float64")
    text = text.replace("return self.state,", "return np.array(self.state[0]),")
    text = text.replace(
        '"height", "hip.position", "hip.velocity", "knee.position", "knee.vel', '"vel'
    )
    simulation, _, _ = draft(tmp_path, write_module(tmp_path, monkeypatch, text))
    assert load_simulation(simulation).publish[0].fields["position"].text == "observation"


def test_an_environment_that_shows_an_image_is_referred_to_the_page_on_cameras():
    pytest.importorskip("ale_py")
    with pytest.raises(ValueError, match=r"docs/how-to/cameras\.md"):
        draft_wiring_and_simulation_files("pong", "an_control_sim:an_control/PuzzlePong-v0")


@pytest.mark.parametrize(
    ("places", "size", "text"),
    [
        ((0, 1, 2), 3, "observation"),
        ((0,), 1, "observation"),
        ((1, 2), 3, "observation[1:3]"),
        ((8, 10, 12), 24, "observation[8:13:2]"),
        ((4,), 9, "observation[4:5]"),
        ((3, 1), 9, "observation[3,1]"),
        ((0, 1, 5), 9, "observation[0,1,5]"),
    ],
)
def test_places_of_the_observation_are_named_as_shortly_as_they_can_be(places, size, text):
    assert format_index_expression(places, size) == text


def test_a_robot_may_have_a_name_that_yaml_takes_for_something_else(tmp_path):
    assert main(["new", "null", "--env", "Pendulum-v1", "--out", str(tmp_path)]) == 0
    assert load_wiring(tmp_path / "null.yaml").robot == "null"
