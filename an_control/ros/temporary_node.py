"""A node for a moment in a running system: for verbs that ask or listen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import rclpy
from rclpy.exceptions import NameValidationException
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from an_control.ros.quiet_node import QuietNode
from an_control.ros.shared_memory import without_shared_memory

DISCOVERY_S = 10.0
"""How long others may take to be found: a node that misses DDS's first announcements, as on a busy
machine, hears the next ones after 3 s."""


@contextmanager
def temporary_node(name: str, namespace: str = "") -> Iterator[Node]:
    """A node, with rclpy from here to the end of the block; Ctrl-C is left to the caller.

    It joins with as little as it can, for the sake of the nodes that act: by UDP, without services
    and without a topic for its log.

    Raises ValueError where ROS takes no such name, also for one that is used in the block.
    """
    try:
        with without_shared_memory():
            rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
            node = QuietNode(
                name, namespace=namespace, start_parameter_services=False, enable_rosout=False
            )
        try:
            yield node
        finally:
            node.destroy_node()
    except NameValidationException as error:
        raise ValueError(" ".join(str(error).split())) from error
    finally:
        rclpy.try_shutdown()
