"""The Fast DDS profile that ships: UDP on this machine alone, without shared memory."""

from __future__ import annotations

import os
import subprocess
import sys

from an_control.system.share import find_share_path

PROGRAM = """
import rclpy, time
from pathlib import Path
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from std_msgs.msg import Bool

nodes, heard = [], []
for name in ("one", "two"):
    context = Context()
    rclpy.init(args=[], context=context)
    nodes.append(Node(name, context=context))
publisher = nodes[0].create_publisher(Bool, "said", 10)
nodes[1].create_subscription(Bool, "said", heard.append, 10)
executor = SingleThreadedExecutor(context=nodes[1].context)
executor.add_node(nodes[1])
until_s = time.monotonic() + 100.0
while not heard and time.monotonic() < until_s:
    publisher.publish(Bool(data=True))
    executor.spin_once(timeout_sec=0.05)
print(bool(heard), "/dev/shm/fastdds" in Path("/proc/self/maps").read_text())
"""


def heard_and_shared(**environment: str) -> list[str]:
    """Whether one participant hears another, and whether they use shared memory."""
    env = {**os.environ, **environment}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True
    )
    return result.stdout.split()


def test_with_the_loopback_profile_participants_hear_each_other_without_shared_memory():
    profile = str(find_share_path("config/fastdds_loopback.xml"))
    assert heard_and_shared(
        FASTDDS_DEFAULT_PROFILES_FILE=profile, ROS_AUTOMATIC_DISCOVERY_RANGE="SYSTEM_DEFAULT"
    ) == ["True", "False"]
