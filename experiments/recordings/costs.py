"""Measure the cost of recordings for a policy node that controls the walking Ant at 60 Hz.

Three nodes in one process get the same messages. One records nothing, one has the black box (a
recording of only the newest seconds), and one records everything. The nodes take turns of one
second. CPU time is measured, because other processes on the machine change it little. The first
figure is the time of the whole process with the threads that write. The second is the time of each
tick (control step) on the thread that runs it, from the first message to the command.
"""

from __future__ import annotations

import gc
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from an_control.system.share import find_share_path

STEP_S, STEP_NS = 0.0165, 16_500_000
BLOCK_TICKS = 60
"""Ticks (control steps) that a node makes before the turn of the next node."""
REST_S = 0.6
"""Seconds after a node's turn in which the thread of the recording writes what is left."""
WARM_BLOCKS = 3
KINDS = ("nothing", "black box", "recording")
COMMANDED_S = [0.0]
"""CPU time of the thread at the newest command of any node."""


def patch_rclpy_to_time_commands() -> None:
    """Patch rclpy so that each published command stores the thread's CPU time in `COMMANDED_S`."""
    from rclpy.publisher import Publisher

    publish = Publisher.publish

    def publish_and_time(publisher: Any, message: Any) -> None:
        """Publish a message, and store the time if the message is a command."""
        publish(publisher, message)
        if publisher.topic_name.endswith("/joint_commands"):
            COMMANDED_S[0] = time.thread_time()

    mock.patch.object(Publisher, "publish", publish_and_time).start()


class MeasuredNode:
    """A policy node whose CPU time is measured; messages are passed to its callbacks directly.

    Args:
        kind: What the node records, one of `KINDS`.
        folder: The folder for the recording or the black boxes of the node.
    """

    def __init__(self, kind: str, folder: Path) -> None:
        from rclpy.parameter import Parameter

        from an_control.ros.node import PolicyNode

        self.kind = kind
        self.node = PolicyNode(namespace="/" + kind.replace(" ", "_"))
        values: dict[str, Any] = {
            "wiring": str(find_share_path("config/ant.yaml")),
            "model": str(find_share_path("models/ant.safetensors")),
            "mode": "lockstep",
            "record": str(folder) if kind == "recording" else "",
            "black_box": str(folder),
            "black_box_s": 30.0 if kind == "black box" else 0.0,
        }
        self.node.set_parameters([Parameter(name, value=value) for name, value in values.items()])
        self.node.trigger_configure()
        self.node.trigger_activate()
        prefix = self.node.get_namespace() + "/"
        self._callbacks: dict[str, Any] = {
            one.topic_name.removeprefix(prefix): one.callback for one in self.node.subscriptions
        }
        self.cpu_s: list[float] = []
        """CPU time of the process in each block of ticks, in seconds."""
        self.command_s: list[float] = []
        """CPU time of the thread in each tick, from the first message to the command, in
        seconds."""
        self.tick_s: list[float] = []
        """CPU time of the thread in each whole tick, in seconds. It includes the work after the
        command, in which notes for the recording become messages."""

    def run_tick(self, messages: dict[str, Any]) -> None:
        """Pass the messages of one tick (control step) to the node, and store the tick's CPU times.

        With the last message the node acts. The times are appended to `tick_s` and `command_s`.
        """
        begin_s = time.thread_time()
        for topic, message in messages.items():
            self._callbacks[topic](message)
        self.tick_s.append(time.thread_time() - begin_s)
        self.command_s.append(COMMANDED_S[0] - begin_s)

    def run_block_of_ticks(
        self, messages_by_tick: list[dict[str, bytes]], classes: dict[str, Any], first_tick: int
    ) -> None:
        """Run ticks (control steps) at the Ant's rate, then pause while the recorder writes.

        The CPU time of the process, pause included, is appended to `cpu_s`. For each tick,
        `messages_by_tick` has the serialised messages by topic; `classes` has their classes.
        """
        from rclpy.serialization import deserialize_message

        from an_control.ros.outputs import set_stamp

        begin_s, next_s = time.process_time(), time.monotonic()
        for number, row in enumerate(messages_by_tick, first_tick):
            messages = {
                topic: deserialize_message(data, classes[topic]) for topic, data in row.items()
            }
            for message in messages.values():
                set_stamp(message.header.stamp, 10**18 + number * STEP_NS)
            next_s = max(next_s + STEP_S, time.monotonic() - 10 * STEP_S)
            time.sleep(max(0.0, next_s - time.monotonic()))
            self.run_tick(messages)
        time.sleep(REST_S)
        self.cpu_s.append(time.process_time() - begin_s)

    def discard_measured_times(self) -> None:
        """Forget the times of the warm-up, in which caches were still cold."""
        for one in self.cpu_s, self.command_s, self.tick_s:
            one.clear()


def collect_messages_of_walk(
    node: MeasuredNode, ticks: int
) -> tuple[list[dict[str, bytes]], dict[str, Any]]:
    """Let a node control the walking Ant, and return the messages that the node got.

    Returns:
        For each tick the serialised messages by topic, and the message class of each topic.
    """
    from rclpy.serialization import deserialize_message, serialize_message
    from sensor_msgs.msg import JointState

    from an_control.wiring import load_wiring
    from campaign.robot_under_test import endless_ant

    robot, rows = endless_ant(), []
    command = JointState(name=list(load_wiring(find_share_path("config/ant.yaml")).command.names))
    classes = {one.topic: type(one.message) for one in robot.sensor_topics}
    for number in range(ticks):
        robot.fill_sensor_messages(10**17 + number * STEP_NS)
        row = {one.topic: serialize_message(one.message) for one in robot.sensor_topics}
        rows.append(row)
        node.run_tick(
            {topic: deserialize_message(data, classes[topic]) for topic, data in row.items()}
        )
        if node.node.last_command is not None:
            command.effort = node.node.last_command.tolist()
            robot.step(robot.commands.read_commands(command))
    robot.close()
    return rows, classes


def measure_recording_costs(blocks: int) -> dict[str, Any]:
    """Measure the CPU time of policy nodes that record nothing, the newest seconds, or everything.

    The nodes take turns. Each runs `blocks` blocks of `BLOCK_TICKS` ticks (control steps).

    Returns:
        "ticks": the number of ticks of each node. "kinds": a list with a dict for each node, in
        which "core_percent" is the CPU time in % of a core, "more_percent" is how much more that is
        than for the node that records nothing, and keys that end with "_us" are in microseconds a
        tick.
    """
    from an_control.system.priority import exclude_existing_objects_from_gc
    from an_control_sim.process import initialise_ros

    patch_rclpy_to_time_commands()
    with (
        initialise_ros(["--ros-args", "--log-level", "fatal"]),
        tempfile.TemporaryDirectory() as folder,
    ):
        nodes = [MeasuredNode(kind, Path(folder) / kind.replace(" ", "_")) for kind in KINDS]
        rows, classes = collect_messages_of_walk(nodes[0], (blocks + WARM_BLOCKS) * BLOCK_TICKS)
        exclude_existing_objects_from_gc()  # as the policy node's main does
        for block in range(blocks + WARM_BLOCKS):
            if block == WARM_BLOCKS:
                for node in nodes:
                    node.discard_measured_times()
            begin = block * BLOCK_TICKS
            for place in range(len(nodes)):  # nobody is always the first to see new messages
                node = nodes[(place + block) % len(nodes)]
                node.run_block_of_ticks(rows[begin : begin + BLOCK_TICKS], classes, begin)
        gc.unfreeze()
        recorder = nodes[1].node._recorder
        assert recorder is not None
        found = {
            "ticks": blocks * BLOCK_TICKS,
            "kinds": [_compare_costs(nodes[0], one) for one in nodes],
        }
        for node in nodes:
            node.node.destroy_node()
    return found


def _compare_costs(plain_node: MeasuredNode, node: MeasuredNode) -> dict[str, Any]:
    """Return a node's CPU times by name, and how much they exceed those of the plain node."""
    lasts_s = BLOCK_TICKS * STEP_S
    more = [100.0 * (a - b) / lasts_s for a, b in zip(node.cpu_s, plain_node.cpu_s, strict=True)]
    quarters = statistics.quantiles(more, n=4) if len(more) > 1 else [0.0, 0.0, 0.0]
    found: dict[str, Any] = {
        "kind": node.kind,
        "core_percent": 100.0 * statistics.median(node.cpu_s) / lasts_s,
        "more_percent": statistics.median(more),
        "more_percent_quarters": [quarters[0], quarters[2]],
        "after_command_us": 1e6
        * float(np.mean(node.tick_s) - np.mean(node.command_s) - np.mean(plain_node.tick_s)
                + np.mean(plain_node.command_s)),
    }  # fmt: skip
    for share in (50, 95, 99):
        own = np.percentile(node.command_s, share)
        its = np.percentile(plain_node.command_s, share)
        found[f"p{share}_us"] = 1e6 * float(own)
        found[f"p{share}_more_percent"] = 100.0 * float(own / its - 1.0)
    return found


def print_costs(results: dict[str, Any]) -> None:
    """Print a table of the CPU times that `measure_recording_costs` returned."""
    print(f"{results['ticks']} ticks of each")
    for one in results["kinds"]:
        low, high = one["more_percent_quarters"]
        print(
            f"{one['kind']:>10}: {one['core_percent']:.2f} % of a core,"
            f" {one['more_percent']:+.2f} % (quartiles {low:+.2f} to {high:+.2f});"
            f" after the command {one['after_command_us']:+.0f} us a tick; up to it"
            + "".join(
                f" p{share} {one[f'p{share}_us']:.0f} us ({one[f'p{share}_more_percent']:+.1f} %)"
                for share in (50, 95, 99)
            )
        )


def measure_black_box_memory(seconds: float) -> dict[str, Any]:
    """Measure how much memory a policy node's black box takes on the walking Ant.

    The black box is a recording of only the newest seconds.

    Returns:
        By name: "seconds" and "messages" that were recorded, "taken_mib" (the memory in MiB), and
        "counted_mib" (the memory by the recorder's own count).
    """
    import tracemalloc

    from an_control_sim.process import initialise_ros

    ticks = round(seconds / STEP_S)
    with (
        initialise_ros(["--ros-args", "--log-level", "fatal"]),
        tempfile.TemporaryDirectory() as folder,
    ):
        node = MeasuredNode("black box", Path(folder))
        collect_messages_of_walk(node, 200)
        recorder = node.node._recorder
        assert recorder is not None and recorder._black_box is not None
        box = recorder._black_box
        recorder.flush(even_if_few=True)
        box._seconds = 1e6  # ticks are faster here
        box._batches.clear()
        box._bytes = 0
        tracemalloc.start()
        collect_messages_of_walk(node, ticks)
        recorder.flush(even_if_few=True)
        counted, before = box._bytes, tracemalloc.get_traced_memory()[0]
        messages = sum(len(batch.notes) for batch in box._batches)
        box._batches.clear()
        gc.collect()
        taken = before - tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        node.node.destroy_node()
    return {
        "seconds": seconds,
        "messages": messages,
        "taken_mib": taken / 2**20,
        "counted_mib": counted / 2**20,
    }


def run_cost_measurements(blocks: int, path: Path | None, *, memory: bool) -> int:
    """Measure what recording costs a policy node, print it, and return the exit status.

    If `memory` is True, the memory of the black box, a recording of only the newest seconds, is
    measured. Otherwise the CPU time is measured in `blocks` blocks of 60 ticks for each kind of
    recording. If `path` is given, the figures are also written to this JSON file.
    """
    found = measure_black_box_memory(30.0) if memory else measure_recording_costs(blocks)
    if memory:
        print(
            f"{found['seconds']:.0f} s of the Ant: {found['messages']} messages take"
            f" {found['taken_mib']:.1f} MiB (counted as {found['counted_mib']:.1f})"
        )
    else:
        print_costs(found)
    if path is not None:
        path.write_text(json.dumps(found, indent=1) + "\n")
    return 0
