"""Creates the recorder of a policy node as the node's parameters ask for it."""

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
"""The folder of the black boxes (the last seconds before a stop) within ROS's log folder."""


def make_recorder(node: Node, settings: Settings, controller: Controller) -> NodeRecorder | None:
    """Create the recorder of a policy node, or return None if nothing is to be recorded.

    Args:
        node: The policy node.
        settings: The values of its parameters, which say what is recorded and where.
        controller: The controller, whose wiring and model are recorded.

    Raises:
        ValueError: Recording is requested but a package for it is not installed.
    """
    if not settings.record and settings.black_box_s <= 0.0:
        return None
    if missing := missing_package():
        if settings.record:
            raise ValueError(f"parameter record: needs mcap: {missing}")
        node.get_logger().info(f"no black box, as mcap is not installed: {missing}", once=True)
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
