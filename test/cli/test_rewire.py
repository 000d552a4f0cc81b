"""`an-control rewire`: announced rewiring of a running node, all sources or none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rclpy")

from stand import Stand


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    one = Stand(tmp_path)
    yield one
    one.close()


def rewire(program, stand: Stand, *arguments: object):
    """The verb, while the node runs here."""
    return stand.run_beside(lambda: program.run("rewire", *arguments))


def test_sources_are_read_from_their_new_topics(program, stand):
    stand.start()
    ended = rewire(program, stand, "/policy", "joints=arm/joints", "tilt=/arm/tilt")
    assert ended.returncode == 0, ended.stderr
    assert "joints now reads arm/joints" in ended.stdout
    assert stand.node.get_parameter("sources.joints.topic").value == "arm/joints"

    def topics() -> set[str]:
        return {one.topic_name for one in stand.node.subscriptions}

    assert {"/arm/joints", "/arm/tilt"} <= topics()
    stand.until(lambda: not {"/joint_states", "/tilt"} & topics(), "the old topics let go")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["joints=elsewhere", "tilt=a//b"], "a//b"),
        (["joints=elsewhere", "lidar=scan"], "no source 'lidar'; it has joints, tilt"),
        (["joints=elsewhere", "tilt=joint_states"], "sensor_msgs/msg/JointState"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason_and_nothing_is_rewired(
    program, stand, changes, said
):
    stand.start()
    ended = rewire(program, stand, "/policy", *changes)
    assert ended.returncode == 1
    assert said in ended.stderr and "Traceback" not in ended.stderr
    assert stand.node.get_parameter("sources.joints.topic").value == "joint_states"
    stand.step(1)


def test_without_the_node_it_ends_with_1_in_time(program):
    ended = program.run("rewire", "/nobody", "joints=x", "--timeout-s", "0.3")
    assert ended.returncode == 1
    assert "/nobody did not answer within 0.3 s" in ended.stderr


@pytest.mark.parametrize(
    "arguments", [["/policy"], ["/policy", "joints"], ["/policy", "a=b", "a=c"], ["no name", "a=b"]]
)
def test_bad_input_ends_it_with_2(program, arguments):
    ended = program.run("rewire", *arguments)
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
