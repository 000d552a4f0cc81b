"""A wiring rewired: by the places in its file, checked as the file is, all together or not."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from an_control.system.share import find_share_path
from an_control.wiring import Wiring, WiringError, load_wiring

ANT = load_wiring(find_share_path("config/ant.yaml"))


def test_what_can_be_rewired_is_keyed_as_in_the_file() -> None:
    values = ANT.rewirable_settings
    assert values["sources.joints.topic"] == "joint_states"
    assert values["channels.hip_1.position.source"] == "joints"
    assert values["channels.hip_1.position.field"] == "position[hip_1]"
    assert len(values) == len(ANT.sources) + 2 * len(ANT.channels)
    assert ANT.with_changes(values) == ANT.with_changes({}) == ANT


def test_changes_are_taken_together_and_the_old_wiring_stays() -> None:
    changes = {
        "sources.imu.topic": "other/imu",
        "channels.roll.source": "odometry",
        "channels.roll.field": "roll(pose.pose.orientation)",
    }
    new = ANT.with_changes(changes)
    assert new.find_source("imu").topic == "other/imu" and ANT.find_source("imu").topic == "imu"
    assert {
        k: v for k, v in new.rewirable_settings.items() if ANT.rewirable_settings[k] != v
    } == changes
    assert (new.command, new.rate_hz, new.file) == (ANT.command, ANT.rate_hz, ANT.file)
    assert [c.scale for c in new.channels] == [c.scale for c in ANT.channels]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("sources.imu.topik", "x", "did you mean sources.imu.topic?"),
        ("sources.imu.type", "std_msgs/msg/Bool", "sources.imu.type"),
        ("channels.roll.scale", 2.0, "channels.roll.scale"),
        ("sources.imu.topic", "a//b", "topic name"),
        ("sources.imu.topic", None, "topic name"),
        ("sources.imu.topic", "joint_commands", "other than command.topic"),
        ("channels.roll.source", "camera", "joints, imu"),
        ("channels.roll.field", "position[*]", "one number"),
        ("channels.roll.field", "", "channels.roll.field"),
        ("channels.roll.field", 3, "channels.roll.field"),
    ],
)
def test_what_the_file_could_not_hold_is_refused_naming_it(key: str, value: Any, said: str) -> None:
    with pytest.raises(WiringError) as caught:
        ANT.with_changes({key: value, "sources.goal.topic": "elsewhere"})
    assert said in str(caught.value) and key in str(caught.value)


def test_a_wildcard_stays_one() -> None:
    channel = dataclasses.replace(ANT.channels[0], id="*", source="joints", field="position[*]")
    wild: Wiring = dataclasses.replace(ANT, channels=(channel,))
    assert wild.with_changes({"channels.*.field": "velocity[*]"}).channels[0].field == "velocity[*]"
    with pytest.raises(WiringError, match="several numbers"):
        wild.with_changes({"channels.*.field": "velocity[hip_1]"})
