"""The live page as a process of its own, for programs that start it beside a robot."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from an_control.system.interrupts import wrap_command_to_end_with_parent

if TYPE_CHECKING:
    from launch.actions import ExecuteProcess
    from rclpy.node import Node

PACKAGES = ("tornado", "msgspec")
"""Python packages that the page needs in addition to ROS 2."""
NICE = 10
"""Nice value of the page's process, so that the robot's processes run first."""

START_S, SETTLE_S, LOOK_S = 30.0, 1.0, 0.05
"""Times in seconds: the longest wait until the page finds the policy, the wait after that for the
page to read parameters, and the interval between two checks."""


def make_live_page_command_line(namespace: str, port: int | str) -> list[str]:
    """Return the command line of a process that serves the live page of a robot.

    Args:
        namespace: The namespace of the robot.
        port: The port of the web server.
    """
    robot = f"/{namespace.strip('/')}" if namespace.strip("/") else ""
    arguments = ["--namespace", robot] if robot else []
    return [sys.executable, "-m", "an_control", "view", *arguments, "--port", str(port)]


def wait_until_page_watches_policy(
    page: subprocess.Popen[bytes], node: Node, policy: str, stopped: Callable[[], bool]
) -> None:
    """Wait until the live page watches a policy node or has ended, but at most 30 s (`START_S`).

    A robot that runs in real time should start after this wait, because the start of the page uses
    a processor for seconds, and its discovery and service calls delay nodes that already run.

    Args:
        page: The process of the page.
        node: The node whose view of the ROS graph is used.
        policy: The full name of the policy node.
        stopped: Returns whether to stop waiting, because the caller is to end.
    """
    until_s = time.monotonic() + START_S
    while not stopped() and page.poll() is None and time.monotonic() < until_s:
        if node.count_subscribers(f"{policy}/channels"):
            time.sleep(SETTLE_S)
            return
        time.sleep(LOOK_S)


def make_live_page_launch_action(namespace: str, port: int | str) -> ExecuteProcess:
    """Return the launch action that starts the live page; the launch goes on if the page ends.

    Args:
        namespace: The namespace of the robot.
        port: The port of the web server.

    Raises:
        RuntimeError: A package is not installed, so that the page could not start.
    """
    from launch.actions import ExecuteProcess

    if missing := [one for one in PACKAGES if importlib.util.find_spec(one) is None]:
        raise RuntimeError(f"view:=true needs {missing[0]}: pip install 'an_control[view]'")
    command = wrap_command_to_end_with_parent(make_live_page_command_line(namespace, port))
    return ExecuteProcess(cmd=command, name="view", output="screen")
