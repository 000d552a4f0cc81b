"""The recorder of a policy node, as its parameters ask for it."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

import rclpy.logging
from rclpy.node import Node
from rclpy.serialization import serialize_message

from an_control.control.controller import Controller
from an_control.record.layout import Limits
from an_control.record.recorder import NodeRecorder, RecordOptions, missing_package
from an_control.ros.settings import Settings

MB = 1e6
FOLDER = "black_boxes"
"""Of the black boxes, in the folder of ROS's log files."""


def describe_missing_black_box(node: Node) -> str:
    """Return why a policy node that is to have a black box has none, and what to do, else ""."""
    if not node.get_parameter("black_box_s").value or not (missing := missing_package()):
        return ""
    return f"no black box, because mcap is not installed: {missing}, or set black_box_s to 0"


def make_recorder(node: Node, settings: Settings, controller: Controller) -> NodeRecorder | None:
    """Return what records this node, None where nothing is to be recorded.

    Raises ValueError where recording is asked for and cannot be.
    """
    if not settings.record and settings.black_box_s <= 0.0:
        return None
    if missing := missing_package():
        if settings.record:
            raise ValueError(f"parameter record: needs mcap: {missing}")
        node.get_logger().warning(describe_missing_black_box(node), once=True)
        return None
    logs = Path(str(rclpy.logging.get_logging_directory()))
    options = RecordOptions(
        folder=Path(settings.record).expanduser() if settings.record else None,
        limits=Limits(
            int(settings.record_split_mb * MB),
            settings.record_split_s,
            int(settings.record_max_mb * MB),
        ),
        black_box_folder=Path(settings.black_box).expanduser()
        if settings.black_box
        else logs / FOLDER,
        black_box_s=settings.black_box_s,
    )
    simulated = bool(node.get_parameter("use_sim_time").value)
    offset_ns = 0 if simulated else time.time_ns() - time.monotonic_ns()

    def log(text: str) -> None:
        node.get_logger().error(text)

    return NodeRecorder(
        options,
        node.get_fully_qualified_name(),
        controller,
        asdict(settings),
        serialize_message,
        offset_ns,
        log,
    )
