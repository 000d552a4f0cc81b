"""Check which ROS 2 installation this process would import, without importing it.

A mixture of two ROS 2 distributions is refused before rclpy loads the libraries of both
distributions.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
from pathlib import Path

__all__ = ["describe_ros_problem", "read_rclpy_version"]


def read_rclpy_version() -> tuple[int, ...]:
    """Return the version of the installed rclpy as numbers, such as (7, 1, 6); () if unknown."""
    try:
        version = importlib.metadata.version("rclpy")
    except importlib.metadata.PackageNotFoundError:
        return ()
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def describe_ros_problem() -> str:
    """Return in one line why ROS 2 cannot be used in this process, or "" if it can."""
    sourced, wheels = _find_sourced_rclpy(), _find_wheels_folder()
    if sourced is not None and wheels is not None and not sourced.parent.samefile(wheels):
        return (
            f"two ROS 2 at once: PyPI's ros-rclpy in {sys.prefix} and the sourced {sourced};"
            " start in a shell in which nothing is sourced (env -u PYTHONPATH -u LD_LIBRARY_PATH),"
            " or uninstall PyPI's ROS 2 packages from this environment"
        )
    version = read_rclpy_version()
    if version and version < (7,):
        return (
            f"rclpy {'.'.join(map(str, version))} is older than Jazzy's 7.1 and lacks post-set"
            " parameter callbacks: use ROS 2 Jazzy or newer"
        )
    return ""


def _find_sourced_rclpy() -> Path | None:
    """Return the folder of rclpy if a sourced ROS 2 has put it on PYTHONPATH, else None."""
    for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        if entry and (path := Path(entry, "rclpy")).is_dir():
            return path
    return None


def _find_wheels_folder() -> Path | None:
    """Return the folder in which PyPI's ROS 2 packages are installed, or None if they are not."""
    try:
        return Path(str(importlib.metadata.distribution("ros-rclpy").locate_file("")))
    except importlib.metadata.PackageNotFoundError:
        return None
