"""A node for a moment in a running system: for verbs that ask or listen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import rclpy
from rclpy.exceptions import NameValidationException
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from an_control.ros.quiet_node import QuietNode

DISCOVERY_S = 10.0
"""How long others may take to be found: a node that misses DDS's first announcements, as on a busy
machine, hears the next ones after 3 s."""


@contextmanager
def temporary_node(name: str, namespace: str = "") -> Iterator[Node]:
    """A node, with rclpy from here to the end of the block; Ctrl-C is left to the caller.

    Raises ValueError where ROS takes no such name, also for one that is used in the block.
    """
    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    try:
        node = QuietNode(name, namespace=namespace)
        try:
            yield node
        finally:
            node.destroy_node()
    except NameValidationException as error:
        raise ValueError(" ".join(str(error).split())) from error
    finally:
        rclpy.try_shutdown()
