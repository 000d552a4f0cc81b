"""Participants that join the policy node's domain, listen to its commands, and leave or vanish."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter_client import AsyncParameterClient
from rclpy.signals import SignalHandlerOptions

from an_control.wiring.messages import message_class

SLICE_S = 0.002


@contextmanager
def joining(
    topic: str, type_: str, node: str, count: int, stay_s: float, *, vanish: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """`count` participants join at once, from a process that ends with the block at the latest.

    Each subscribes to `topic`, of `type_`, and asks `node` for a parameter. After `stay_s` they
    leave, or `vanish` as if they were killed, which DDS notices after 20 s.
    """
    arguments = [topic, type_, node, str(count), str(stay_s), str(int(vanish))]
    process = subprocess.Popen([sys.executable, "-m", __name__, *arguments])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class Joiner:
    """One participant: a subscription and a client of parameters."""

    def __init__(self, name: str, topic: str, type_: str, node: str) -> None:
        self._context = Context()
        rclpy.init(args=[], context=self._context, signal_handler_options=SignalHandlerOptions.NO)
        self._node = Node(name, context=self._context)
        self._node.create_subscription(message_class(type_), topic, lambda message: None, 10)
        self._client = AsyncParameterClient(self._node, node)
        self._asked = False
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)

    def spin(self) -> None:
        """Listen for a moment; asks as soon as there is somebody to ask."""
        if not self._asked and self._client.services_are_ready():
            self._asked = True
            self._client.get_parameters(["model"])
        self._executor.spin_once(timeout_sec=SLICE_S)

    def close(self) -> None:
        """Leave."""
        self._executor.remove_node(self._node)
        self._executor.shutdown()
        self._node.destroy_node()
        rclpy.shutdown(context=self._context)


def main(topic: str, type_: str, node: str, count: str, stay_s: str, vanish: str) -> None:
    """What `joining` starts."""
    joiners = [Joiner(f"joiner_{number}", topic, type_, node) for number in range(int(count))]
    end_s = time.monotonic() + float(stay_s)
    while time.monotonic() < end_s:
        for joiner in joiners:
            joiner.spin()
    if int(vanish):
        os._exit(0)
    for joiner in joiners:
        joiner.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
