"""Set up rclpy without its signal handlers, and stop cleanly; all executables here use this.

rclpy's own handlers close the context at once, while other code may be publishing. Here a signal is
only noted; the running loop sees it within `SLICE_S` and ends in its own order.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import rclpy
from rclpy.context import Context
from rclpy.executors import Executor, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.signals import SignalHandlerOptions

from an_control.ros.distributions import events_executor
from an_control.ros.graph import QuietNode

AnyNode = TypeVar("AnyNode", bound=Node)
RELIABLE = QoSProfile(depth=10)
SLICE_S = 0.05
"""Longest single wait in seconds, and so the longest time before a signal is noticed."""


@contextmanager
def ros_context(args: Sequence[str] | None = None) -> Iterator[None]:
    """Initialise rclpy for the block and shut it down at its end.

    Raises:
        ValueError: rclpy refuses the arguments.
    """
    try:
        rclpy.init(
            args=None if args is None else list(args),
            signal_handler_options=SignalHandlerOptions.NO,
        )
    except RuntimeError as error:
        raise ValueError(f"ROS arguments: {error}") from None
    try:
        yield
    finally:
        rclpy.try_shutdown()


def make_node(make: Callable[[], AnyNode]) -> AnyNode:
    """Return the node that `make` creates.

    Raises:
        ValueError: ROS refuses to create it, for example without security keys.
    """
    try:
        return make()
    except RuntimeError as error:
        raise ValueError(f"cannot start: {error}") from None


@contextmanager
def ros_node(name: str, namespace: str) -> Iterator[Node]:
    """Initialise rclpy and create a node for the block; destroy both at its end."""
    with ros_context([]):
        node = QuietNode(name, namespace=namespace)
        try:
            yield node
        finally:
            node.destroy_node()


@contextmanager
def catch_signals(call: Callable[[], None] = lambda: None) -> Iterator[Callable[[], bool]]:
    """Note SIGINT and SIGTERM in the block instead of ending the process.

    The block gets a function that returns whether one came, there or in a block around it. Use it
    on the main thread only.

    Args:
        call: Called in the signal handler.
    """
    outer = signal.getsignal(signal.SIGINT)
    note = _SignalHandler(call, outer.came if isinstance(outer, _SignalHandler) else [])
    before = {one: signal.signal(one, note) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(note.came)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


class _SignalHandler:
    """Signal handler that appends to `came` and then calls `call`."""

    def __init__(self, call: Callable[[], None], came: list[int]) -> None:
        self._call, self.came = call, came

    def __call__(self, number: int, frame: object) -> None:
        self.came.append(number)
        self._call()


def make_events_executor(context: Context) -> Executor:
    """Return rclpy's events executor, or a single-threaded one if rclpy has none.

    The events executor costs a third of the time. Run the executor with `spin_once` only.
    """
    executor = events_executor(context)
    return SingleThreadedExecutor(context=context) if executor is None else executor
