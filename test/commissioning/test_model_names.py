"""A draft that knows the model: its channels get the fields that were heard, or say SET THIS."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("rclpy")

import yaml

from an_control.commissioning import model_names
from an_control.commissioning.draft import UNUSED, draft_wiring_of_robot
from an_control.commissioning.survey import SubscribedTopic, Survey, SurveyedTopic
from an_control.wiring import load_wiring

TWIST, JOINTS, IMU = "geometry_msgs/msg/Twist", "sensor_msgs/msg/JointState", "sensor_msgs/msg/Imu"


def topic(name, type_, ranges, joints=(), messages=100):
    return SurveyedTopic(
        name, type_, ("/driver",), messages, 0.0, 2.0, 0.03, True, ranges, joints
    )  # fmt: skip


def base(goal=1):
    """A base with a camera mast, as it is heard."""
    odom = {"twist.twist.linear.x": (-0.4, 0.5), "twist.twist.angular.z": (-1.0, 1.0)}
    imu = {"angular_velocity.z": (-1.0, 1.0), "linear_acceleration.x": (0.1, 0.1)}
    joints = ("mast_pan", "mast_tilt")
    return Survey(
        (
            topic("/bot/odom", "nav_msgs/msg/Odometry", odom),
            topic("/bot/imu/data", IMU, imu),
            topic("/bot/mast/joint_states", JOINTS,
                  {f"position[{name}]": (-0.2, 0.3) for name in joints}, joints),
            topic("/bot/goal", "geometry_msgs/msg/PoseStamped",
                  {"pose.position.x": (2.0, 2.0)}, messages=goal),
        ),
        (
            SubscribedTopic("/bot/cmd_vel", TWIST, ("/base",)),
            SubscribedTopic("/bot/mast/cmd", JOINTS, ("/mast",)),
        ),
    )  # fmt: skip


def model(channels, actuators=("linear.x", "angular.z"), step_s=0.05):
    task = SimpleNamespace(channels=channels, actuators=actuators, step_s=step_s)
    return SimpleNamespace(task=task, forward=None, arrays={})


@pytest.fixture(autouse=True)
def _no_ranges(monkeypatch):
    monkeypatch.setattr(
        "an_control.commissioning.model_names.get_channel_ranges_in_training", lambda model: {}
    )


def load(draft, tmp_path):
    path = tmp_path / "bot.yaml"
    path.write_text(draft.format_yaml())
    return load_wiring(path)


def test_two_command_topics_are_both_drafted_each_with_its_own_actuators(tmp_path):
    wiring = load(draft_wiring_of_robot("bot", base(), "/bot"), tmp_path)
    mast, drive = wiring.command.messages
    assert (mast.topic, drive.topic) == ("mast/cmd", "cmd_vel")
    assert [one.name for one in mast.actuators] == ["mast_pan", "mast_tilt"]
    assert [one.field for one in drive.actuators] == ["linear.x", "angular.z"]
    assert mast.field == "position", "only positions are measured"


def test_a_goal_that_is_sent_once_is_a_channel_and_never_stale(tmp_path):
    wiring = load(draft_wiring_of_robot("bot", base(), "/bot"), tmp_path)
    assert wiring.find_source("goal").max_age_s == 0.0
    assert "goal.pose.position.x" in [one.id for one in wiring.channels]
    wiring = load(draft_wiring_of_robot("bot", base(goal=50), "/bot"), tmp_path)
    assert wiring.find_source("goal").max_age_s > 0.0


def test_the_models_ids_are_filled_in_and_its_rate(tmp_path):
    known = model(("mast_pan.position", "imu.angular_velocity.z", "odom.linear.x"))
    draft = draft_wiring_of_robot("bot", base(), "/bot", known)
    wiring = load(draft, tmp_path)
    fields = {one.id: (one.source, one.field) for one in wiring.channels}
    assert fields == {
        "mast_pan.position": ("joint_states", "position[mast_pan]"),
        "imu.angular_velocity.z": ("imu_data", "angular_velocity.z")
        if "imu_data" in {one.name for one in wiring.sources}
        else ("data", "angular_velocity.z"),
        "odom.linear.x": ("odom", "twist.twist.linear.x"),
    }
    assert wiring.rate_hz == pytest.approx(20.0)
    rest = draft.aside[draft.aside.index(UNUSED) :]
    assert any("position[mast_tilt]" in one for one in rest)
    assert yaml.safe_load(draft.format_yaml())["robot"] == "bot"


def test_what_is_doubtful_or_was_not_heard_says_set_this(tmp_path):
    known = model(("mast.yaw", "lidar.front"))
    text = draft_wiring_of_robot("bot", base(), "/bot", known).format_yaml()
    (line,) = [one for one in text.splitlines() if one.startswith("  mast.yaw:")]
    assert "position[mast_pan]" in line and "SET THIS: is it mast.yaw?" in line
    assert "# SET THIS: lidar.front: nothing like it was heard" in text


def test_values_far_outside_of_the_training_make_a_match_doubtful_and_say_both_ranges(monkeypatch):
    known = model(("mast_pan.position",))
    sure = draft_wiring_of_robot("bot", base(), "/bot", known).format_yaml()
    assert "SET THIS: is it" not in sure
    ranges = {"mast_pan.position": (-30.0, -20.0)}
    monkeypatch.setattr(
        "an_control.commissioning.model_names.get_channel_ranges_in_training", lambda _: ranges
    )
    text = draft_wiring_of_robot("bot", base(), "/bot", known).format_yaml()
    assert "SET THIS: is it mast_pan.position? -0.2 .. 0.3, in training -30 .. -20" in text


def test_a_model_of_another_robot_is_refused():
    with pytest.raises(ValueError, match="nothing that was heard is like a channel of the model"):
        draft_wiring_of_robot("bot", base(), "/bot", model(("xyzzy",)))


def test_topics_whose_names_spell_the_same_get_sources_of_their_own():
    names = "/a/b", "/c/b", "/c_b"
    topics = tuple(topic(name, IMU, {"angular_velocity.z": (-1.0, 1.0)}) for name in names)
    draft = draft_wiring_of_robot("walker", Survey(topics, base().subscribed), "/")
    sources = {source.topic: source.name for source, _ in draft.sources}
    assert sources == {"/a/b": "b", "/c/b": "c_b", "/c_b": "c_b_2"}


def test_the_time_of_a_match_does_not_grow_with_the_third_power_of_the_channels(monkeypatch):
    """Each name of a field or actuator is prepared once, not again for each of the model's."""
    made = []
    matcher = model_names.SequenceMatcher
    monkeypatch.setattr(
        model_names, "SequenceMatcher", lambda *how: made.append(how) or matcher(*how)
    )
    names = [f"axle_{number}" for number in range(30)]
    ranges = {f"position[{name}]": (-0.2, 0.3) for name in names}
    survey = Survey((topic("/bot/joint_states", JOINTS, ranges, tuple(names)),), ())
    ids = [f"{name}.position" for name in names]
    draft = draft_wiring_of_robot("bot", survey, "/bot", model(ids))
    assert [config.id for config, _ in draft.channels] == ids
    assert len(made) <= 3 * len(names)
