"""What every executable here shares: rclpy without its signal handlers, and a clean stop.

rclpy's own handlers close the context at once, under the feet of whoever is publishing. Here a
signal is only noted; the loop that runs sees it within SLICE_S and ends in its own order.
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
"""The longest single wait, and so the longest that a signal goes unnoticed."""


@contextmanager
def ros(args: Sequence[str] | None = None) -> Iterator[None]:
    """rclpy from here to the end of the block. Raises ValueError for arguments it cannot take."""
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


def new_node(make: Callable[[], AnyNode]) -> AnyNode:
    """The node that `make` makes. Raises ValueError where ROS refuses it, without keys, say."""
    try:
        return make()
    except RuntimeError as error:
        raise ValueError(f"cannot start: {error}") from None


@contextmanager
def ros_node(name: str, namespace: str) -> Iterator[Node]:
    """A node of that name, with rclpy from here to the end of the block."""
    with ros([]):
        node = QuietNode(name, namespace=namespace)
        try:
            yield node
        finally:
            node.destroy_node()


@contextmanager
def signals(call: Callable[[], None] = lambda: None) -> Iterator[Callable[[], bool]]:
    """Note SIGINT and SIGTERM instead of dying of them; gives a function that says if one came.

    `call` is called in the handler. What came in a block around this one counts too. Only for the
    main thread.
    """
    outer = signal.getsignal(signal.SIGINT)
    note = _Note(call, outer.came if isinstance(outer, _Note) else [])
    before = {one: signal.signal(one, note) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(note.came)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


class _Note:
    """A signal handler that appends to `came` and then calls `call`."""

    def __init__(self, call: Callable[[], None], came: list[int]) -> None:
        self._call, self.came = call, came

    def __call__(self, number: int, frame: object) -> None:
        self.came.append(number)
        self._call()


def new_executor(context: Context) -> Executor:
    """Return the events executor where rclpy has it (a third of the cost), else another.

    To be driven by `spin_once` only.
    """
    executor = events_executor(context)
    return SingleThreadedExecutor(context=context) if executor is None else executor
