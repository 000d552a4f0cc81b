"""Does a node stand still while others join and leave? A stress of the middleware, not of ours.

    python scripts/join_and_leave.py [MINUTES]

Eight processes, four in each of two ROS domains, start a node with three topics, talk for up to
0.6 s and end it, again and again. Prints how many nodes there were, and the Python stack of each
process that stood still for 40 s. Stacks of the middleware: `gdb -p PID -batch -ex "thread apply
all bt"`, while it stands.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

DOMAINS, EACH, STANDSTILL_S = ("91", "92"), 4, 40
ONE = f"""
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


def main(minutes: float) -> None:
    environment = {**os.environ, "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", ONE],
            env={**environment, "ROS_DOMAIN_ID": domain},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for domain in DOMAINS
        for _ in range(EACH)
    ]  # fmt: skip
    time.sleep(60.0 * minutes)
    nodes, stacks = 0, []
    for process in processes:
        process.send_signal(signal.SIGINT)  # a killed one leaves ports locked
        try:
            out, errors = process.communicate(timeout=10.0)
        except subprocess.TimeoutExpired:
            process.kill()
            out, errors = process.communicate()
        nodes += out.count("one")
        if "Timeout" in errors:
            stacks.append(errors[errors.index("Timeout") :])
    print(f"{nodes} nodes, {len(stacks)} of {len(processes)} processes stood still", *stacks)


if __name__ == "__main__":
    main(float(sys.argv[1]) if sys.argv[1:] else 5.0)
