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

from an_control_sim.bridge.process import RELIABLE
from campaign import child
from campaign.stage import Stage

START_S, END_S, DISCOVERY_S = 60.0, 30.0, 0.5


@contextmanager
def joins(stage: Stage, count: int, over_s: float) -> Iterator[None]:
    """So many participants join the domain and leave it."""
    with _strangers(stage, [["joins", str(count), str(over_s)]]) as (process,):
        yield
        stage.until(lambda: process.poll() is not None, END_S)
        if process.poll() != 0:
            stage.complaints.append(f"not all of the {count} participants came and went")


@contextmanager
def parameter_calls(
    stage: Stage, changes: list[dict[str, Any]], rate_hz: float, clients: int = 1
) -> Iterator[None]:
    """Clients set the node's parameters so often each, by turns as `changes` says."""
    command = ["calls", str(rate_hz), json.dumps(changes)]
    with _strangers(stage, [command] * clients):
        yield


@contextmanager
def rewires(stage: Stage, source: str, rate_hz: float) -> Iterator[None]:
    """A source is moved to another topic and back so often; its messages come on both."""
    with moved(stage, source) as (topic, other):
        changes = [{f"sources.{source}.topic": one} for one in (other, topic)]
        with _strangers(stage, [["calls", str(rate_hz), json.dumps(changes)]]):
            yield


@contextmanager
def moved(stage: Stage, source: str) -> Iterator[tuple[str, str]]:
    """A source's messages go out on a second topic, too; both topics."""
    (topic,) = [one.topic for one in stage.wiring.sources if one.name == source]
    other = f"{topic}_moved"
    kind = stage.publishers[topic].msg_type
    stage.publishers[other] = stage.node.create_publisher(kind, other, RELIABLE)

    def both(name: str, message: Any) -> None:
        stage.publish(name, message)
        if name == topic:
            stage.publish(other, message)

    stage.deliver = both
    stage.play(DISCOVERY_S)
    yield topic, other
    stage.play(DISCOVERY_S)
    stage.deliver = stage.publish
    stage.node.destroy_publisher(stage.publishers.pop(other))


@contextmanager
def two_clocks(stage: Stage, offset_s: float) -> Iterator[None]:
    """A second simulator says on /clock what time it is there."""
    publisher = stage.node.create_publisher(Clock, "/clock", RELIABLE)
    first = next(iter(stage.publishers))

    def both(topic: str, message: Any) -> None:
        if topic == first:
            clock = Clock(clock=message.header.stamp)
            clock.clock.sec += int(offset_s)
            publisher.publish(clock)
            clock.clock.sec -= int(offset_s)
        stage.publish(topic, message)

    stage.deliver = both
    yield
    stage.deliver = stage.publish
    stage.node.destroy_publisher(publisher)


@contextmanager
def _strangers(
    stage: Stage, commands: Sequence[Sequence[str]]
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes of `campaign.stranger`; the fault begins when all are ready."""
    module = [sys.executable, "-m", "campaign.stranger"]
    processes = [child.start([*module, *one], stdout=subprocess.PIPE) for one in commands]
    heard = [process.stdout for process in processes if process.stdout is not None]
    try:
        if not stage.until(lambda: len(select.select(heard, [], [], 0)[0]) == len(heard), START_S):
            stage.complaints.append("a process of the campaign's own did not start")
        stage.begin()
        yield processes
    finally:
        for process in processes:
            process.terminate()
        stage.until(lambda: all(process.poll() is not None for process in processes), END_S)
        for process in processes:
            process.kill()
            process.communicate()
