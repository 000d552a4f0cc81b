"""Sets up rclpy without its signal handlers, and shuts it down; all executables here use this.

rclpy's own handlers close the context at once, while other code may be publishing. Here a signal is
only recorded; the running loop notices it within `SLICE_S` and ends by itself.
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

from an_control.ros.distributions import create_events_executor
from an_control.ros.graph import QuietNode

AnyNode = TypeVar("AnyNode", bound=Node)
RELIABLE = QoSProfile(depth=10)
SLICE_S = 0.05
"""Longest single wait in seconds, and so the longest time before a signal is noticed."""


@contextmanager
def initialise_ros(args: Sequence[str] | None = None) -> Iterator[None]:
    """Initialise rclpy for a `with` block, and shut it down at the end of the block.

    Args:
        args: ROS arguments; None for the arguments of this process.

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


def create_node(make: Callable[[], AnyNode]) -> AnyNode:
    """Create a node by calling a function; turn a refusal by ROS into a ValueError.

    Args:
        make: Creates the node, which is returned.

    Raises:
        ValueError: ROS refuses to create it, for example without security keys.
    """
    try:
        return make()
    except RuntimeError as error:
        raise ValueError(f"cannot start: {error}") from None


@contextmanager
def initialise_ros_and_create_node(name: str, namespace: str) -> Iterator[Node]:
    """Initialise rclpy and create a node for a `with` block.

    At the end of the block the node is destroyed and rclpy is shut down.

    Args:
        name: The name of the node.
        namespace: The namespace of the node.

    Yields:
        The node.
    """
    with initialise_ros([]):
        node = QuietNode(name, namespace=namespace)
        try:
            yield node
        finally:
            node.destroy_node()


@contextmanager
def catch_signals(on_signal: Callable[[], None] = lambda: None) -> Iterator[Callable[[], bool]]:
    """Catch SIGINT and SIGTERM within a `with` block, so that they do not end the process.

    Use it on the main thread only.

    Args:
        on_signal: Called in the signal handler.

    Yields:
        A function that returns whether a signal has arrived since the block began. In nested
        blocks, it counts from the beginning of the outermost one.
    """
    outer = signal.getsignal(signal.SIGINT)
    note = _SignalHandler(on_signal, outer.received if isinstance(outer, _SignalHandler) else [])
    before = {one: signal.signal(one, note) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(note.received)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


class _SignalHandler:
    """A handler of SIGINT and SIGTERM that stores the number of each signal and calls a function.

    Args:
        call: The function.
        received: The list to which the number of each signal is appended.
    """

    def __init__(self, call: Callable[[], None], received: list[int]) -> None:
        self._call, self.received = call, received

    def __call__(self, number: int, frame: object) -> None:
        self.received.append(number)
        self._call()


def make_events_executor(context: Context) -> Executor:
    """Return rclpy's events executor, or a single-threaded one if this rclpy has none.

    The events executor needs only a third of the processor time. Call only `spin_once` on it.
    """
    executor = create_events_executor(context)
    return SingleThreadedExecutor(context=context) if executor is None else executor
