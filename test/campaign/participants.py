"""Faults of others in the robot's ROS domain: who joins, calls, moves a topic, or has a clock."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rosgraph_msgs.msg import Clock

from an_control_sim.process import RELIABLE
from campaign import child
from campaign.robot_under_test import RobotUnderTest

START_S, END_S, DISCOVERY_S = 120.0, 30.0, 0.5


@contextmanager
def joins(robot: RobotUnderTest, count: int, over_s: float) -> Iterator[None]:
    """So many participants join the domain and leave it."""
    with _participants(robot, [["joins", str(count), str(over_s)]]) as (process,):
        yield
        robot.until(lambda: process.poll() is not None, END_S)
        if process.poll() != 0:
            robot.complaints.append(f"not all of the {count} participants came and went")


@contextmanager
def parameter_calls(
    robot: RobotUnderTest, changes: list[dict[str, Any]], rate_hz: float, clients: int = 1
) -> Iterator[None]:
    """Clients set the node's parameters so often each, by turns as `changes` says."""
    command = ["calls", str(rate_hz), json.dumps(changes)]
    with _participants(robot, [command] * clients):
        yield


@contextmanager
def rewires(robot: RobotUnderTest, source: str, rate_hz: float) -> Iterator[None]:
    """A source is moved to another topic and back so often; its messages come on both."""
    with moved(robot, source) as (topic, other):
        changes = [{f"sources.{source}.topic": one} for one in (other, topic)]
        with _participants(robot, [["calls", str(rate_hz), json.dumps(changes)]]):
            yield


@contextmanager
def moved(robot: RobotUnderTest, source: str) -> Iterator[tuple[str, str]]:
    """A source's messages go out on a second topic, too; both topics."""
    (topic,) = [one.topic for one in robot.wiring.sources if one.name == source]
    other = f"{topic}_moved"
    kind = robot.publishers[topic].msg_type
    robot.publishers[other] = robot.node.create_publisher(kind, other, RELIABLE)

    def both(name: str, message: Any) -> None:
        robot.publish(name, message)
        if name == topic:
            robot.publish(other, message)

    robot.deliver = both
    robot.play(DISCOVERY_S)
    yield topic, other
    robot.play(DISCOVERY_S)
    robot.deliver = robot.publish
    robot.node.destroy_publisher(robot.publishers.pop(other))


@contextmanager
def two_clocks(robot: RobotUnderTest, offset_s: float) -> Iterator[None]:
    """A second simulator says on /clock what time it is there."""
    publisher = robot.node.create_publisher(Clock, "/clock", RELIABLE)
    first = next(iter(robot.publishers))

    def both(topic: str, message: Any) -> None:
        if topic == first:
            clock = Clock(clock=message.header.stamp)
            clock.clock.sec += int(offset_s)
            publisher.publish(clock)
            clock.clock.sec -= int(offset_s)
        robot.publish(topic, message)

    robot.deliver = both
    yield
    robot.deliver = robot.publish
    robot.node.destroy_publisher(publisher)


@contextmanager
def _participants(
    robot: RobotUnderTest, commands: Sequence[Sequence[str]]
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes of `campaign.participant`; the fault begins when all are ready."""
    module = [sys.executable, "-m", "campaign.participant"]
    processes = [child.start([*module, *one], stdout=subprocess.PIPE) for one in commands]
    heard = [process.stdout for process in processes if process.stdout is not None]
    try:
        if not robot.until(lambda: len(select.select(heard, [], [], 0)[0]) == len(heard), START_S):
            robot.complaints.append("a process of the campaign's own did not start")
        robot.begin()
        yield processes
    finally:
        for process in processes:
            process.terminate()
        robot.until(lambda: all(process.poll() is not None for process in processes), END_S)
        for process in processes:
            process.kill()
            process.communicate()
