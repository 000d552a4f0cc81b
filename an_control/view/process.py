"""The page as a process of its own, for who starts it beside a robot."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

from an_control.system.children import bound

if TYPE_CHECKING:
    from launch.actions import ExecuteProcess

PACKAGES = ("tornado", "msgspec")
"""What it needs beside ROS 2."""
NICE = 10
"""By so much the page's process gives way to the robot's, where cores are few."""


def command(namespace: str, port: int | str) -> list[str]:
    """The command line that shows the robot of a namespace."""
    robot = f"/{namespace.strip('/')}" if namespace.strip("/") else ""
    arguments = ["--namespace", robot] if robot else []
    return bound([sys.executable, "-m", "an_control", "view", *arguments, "--port", str(port)])


def page(namespace: str, port: int | str) -> ExecuteProcess:
    """The action of a launch file; the launch does not end with it.

    RuntimeError where a package is not installed, before anything has started.
    """
    from launch.actions import ExecuteProcess

    if missing := [one for one in PACKAGES if importlib.util.find_spec(one) is None]:
        raise RuntimeError(f"view:=true needs {missing[0]}: pip install 'an_control[view]'")
    return ExecuteProcess(cmd=command(namespace, port), name="view", output="screen")
