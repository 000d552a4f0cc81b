"""Which numbers a survey finds in messages."""

import pytest

pytest.importorskip("rclpy")

from diagnostic_msgs.msg import DiagnosticStatus
from sensor_msgs.msg import JointState, Range
from std_msgs.msg import ByteMultiArray

from an_control.commissioning.draft import draft_wiring_of_robot
from an_control.commissioning.survey import (
    Survey,
    SurveyedTopic,
    iterate_message_number_ranges,
    update_topic_statistics,
)
from an_control.wiring.draft import Draft


def test_a_byte_is_a_number() -> None:
    assert [*iterate_message_number_ranges(DiagnosticStatus(level=b"\2"))] == [("level", 2.0, 2.0)]
    found = [*iterate_message_number_ranges(ByteMultiArray(data=[b"\1", b"\xff"]))]
    assert found[-2:] == [("data[0]", 1.0, 1.0), ("data[1]", 255.0, 255.0)]


def test_a_reading_that_is_not_a_number_does_not_hide_the_others() -> None:
    topic = SurveyedTopic("/range", "sensor_msgs/msg/Range")
    for now_s, distance in enumerate([0.5, float("nan"), 2.0, float("inf"), 1.0, float("nan")]):
        update_topic_statistics(topic, Range(range=distance), True, float(now_s))
    assert topic.ranges["range"] == (0.5, 2.0)


def draft_of_joints(names: list[str]) -> Draft:
    topic = SurveyedTopic("/joint_states", "sensor_msgs/msg/JointState")
    for tick in range(3):
        message = JointState(name=names, position=[0.1 * tick] * len(names))
        update_topic_statistics(topic, message, True, float(tick))
    return draft_wiring_of_robot("bot", Survey((topic,), ()), "")


def test_joints_whose_names_differ_only_in_a_blank_are_different_channels_and_actuators() -> None:
    draft = draft_of_joints(["a b", "a_b", "a*b"])
    names = ["a_b_2", "a_b", "a_b_3"]
    assert [config.id for config, _ in draft.channels] == [f"{one}.position" for one in names]
    assert [config.name for config, _ in draft.actuators] == names
    assert "'a b' cannot be" in draft.actuators[0][1] and "cannot" not in draft.actuators[1][1]


def test_a_joint_with_a_quotation_mark_at_an_end_of_its_name_is_drafted_as_a_joint() -> None:
    draft = draft_of_joints(['2"', '"*', "hip"])
    names = ['2"', '"_', "hip"]
    assert [config.id for config, _ in draft.channels] == [f"{one}.position" for one in names]
    assert [config.name for config, _ in draft.actuators] == names
