"""The page as a process of its own, for who starts it beside a robot."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from an_control.system.interrupts import bound

if TYPE_CHECKING:
    from launch.actions import ExecuteProcess
    from rclpy.node import Node

PACKAGES = ("tornado", "msgspec")
"""What it needs beside ROS 2."""
NICE = 10
"""By so much the page's process gives way to the robot's, where cores are few."""

START_S, SETTLE_S, LOOK_S = 30.0, 1.0, 0.05
"""How long the page may take to find the policy, and then to read the parameters of its nodes."""


def command(namespace: str, port: int | str) -> list[str]:
    """The command line that shows the robot of a namespace."""
    robot = f"/{namespace.strip('/')}" if namespace.strip("/") else ""
    arguments = ["--namespace", robot] if robot else []
    return bound([sys.executable, "-m", "an_control", "view", *arguments, "--port", str(port)])


def wait_for_page(
    page: subprocess.Popen[bytes], node: Node, policy: str, stopped: Callable[[], bool]
) -> None:
    """Wait until the page watches the policy node of that name, START_S at most.

    What a robot does in real time meanwhile would suffer: the page's start takes a processor for
    seconds, and joining and calling delay the nodes that are there. Ends where the page has ended.
    """
    until_s = time.monotonic() + START_S
    while not stopped() and page.poll() is None and time.monotonic() < until_s:
        if node.count_subscribers(f"{policy}/channels"):
            time.sleep(SETTLE_S)
            return
        time.sleep(LOOK_S)


def page(namespace: str, port: int | str) -> ExecuteProcess:
    """The action of a launch file; the launch does not end with it.

    RuntimeError where a package is not installed, before anything has started.
    """
    from launch.actions import ExecuteProcess

    if missing := [one for one in PACKAGES if importlib.util.find_spec(one) is None]:
        raise RuntimeError(f"view:=true needs {missing[0]}: pip install 'an_control[view]'")
    return ExecuteProcess(cmd=command(namespace, port), name="view", output="screen")
