"""Test whether a ROS 2 node hangs while other nodes join and leave.

Only ROS 2 and its middleware are tested, without this product.

    python -m experiments join_and_leave [--minutes 5]

Eight processes, four in each of two ROS domains, start a node with three topics, communicate for up
to 0.6 s and end it, again and again. The experiment prints how many nodes there were, and the
Python stack of each process that made no progress for 40 s. The middleware's own stacks show by
`gdb -p PID -batch -ex "thread apply all bt"` while a process hangs.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

DOMAINS, EACH, STANDSTILL_S = ("91", "92"), 4, 40
PROGRAM = f"""
import faulthandler, gc, random, time, rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.experimental.events_executor import EventsExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from std_msgs.msg import Float64MultiArray as Message

while True:
    faulthandler.dump_traceback_later({STANDSTILL_S})
    context = Context()
    rclpy.init(args=[], context=context, signal_handler_options=SignalHandlerOptions.NO)
    executor = random.choice([EventsExecutor, SingleThreadedExecutor])(context=context)
    node = Node(f"node_{{random.randrange(10**9)}}", context=context)
    executor.add_node(node)
    topics = [f"topic_{{i}}" for i in range(3)]
    ears = [node.create_subscription(Message, one, lambda message: None, 10) for one in topics]
    mouths = [node.create_publisher(Message, one, 10) for one in topics]
    end_s = time.monotonic() + random.uniform(0.0, 0.6)
    while time.monotonic() < end_s:
        for mouth in mouths:
            mouth.publish(Message(data=[0.0] * 20))
        executor.spin_once(timeout_sec=0.02)
    executor.remove_node(node)
    node.destroy_node()
    del node, ears, mouths
    executor.shutdown()
    rclpy.shutdown(context=context)
    executor = context = None
    gc.collect()
    faulthandler.cancel_dump_traceback_later()
    print("one", flush=True)
"""


def find_hangs_under_node_restarts(
    minutes: float, processes_per_domain: int
) -> tuple[int, list[str]]:
    """Start and end ROS nodes again and again, to see whether a process hangs.

    For `minutes`, several processes in each ROS domain do this at the same time.

    Returns:
        The number of nodes that were started and ended, and the Python stack, as text, of each
        process that hung.
    """
    environment = {**os.environ, "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", PROGRAM],
            env={**environment, "ROS_DOMAIN_ID": domain},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for domain in DOMAINS
        for _ in range(processes_per_domain)
    ]  # fmt: skip
    time.sleep(60.0 * minutes)
    nodes, stacks = 0, []
    for process in processes:
        process.send_signal(signal.SIGINT)  # killing it would leave ports locked
        try:
            out, errors = process.communicate(timeout=10.0)
        except subprocess.TimeoutExpired:
            process.kill()
            out, errors = process.communicate()
        nodes += out.count("one")
        if "Timeout" in errors:
            stacks.append(errors[errors.index("Timeout") :])
    return nodes, stacks


def main(arguments: Sequence[str] | None = None) -> int:
    """Test whether ROS nodes hang while others join and leave; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0, help="(default: 5)")
    parser.add_argument(
        "--processes", type=int, default=EACH, help="processes in each domain (default: 4)"
    )
    given = parser.parse_args(arguments)
    nodes, stacks = find_hangs_under_node_restarts(given.minutes, given.processes)
    still = f"{len(stacks)} of {given.processes * len(DOMAINS)} processes hung"
    print(f"{nodes} nodes, {still}", *stacks)
    return 0
