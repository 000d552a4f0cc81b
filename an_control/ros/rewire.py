"""Announced rewiring of a running policy node from outside, through its parameters."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import rclpy
from rclpy.exceptions import NameValidationException
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.parameter_client import AsyncParameterClient
from rclpy.task import Future

from an_control.ros.parameters import SOURCES, source_of, topic_parameter

ANSWER_S = 1.0
"""After this a call is made again: the first answer of a node just found can be lost."""


def rewire(node: str, topics: dict[str, str], timeout_s: float) -> str:
    """Set the topic of each source, all or nothing; why not, or an empty string.

    Raises ValueError where `node` is no name.
    """
    until_s = time.monotonic() + timeout_s
    rclpy.init(args=[])
    caller = rclpy.create_node("an_control_rewire")
    try:
        client = AsyncParameterClient(caller, node)
        if not client.wait_for_services(timeout_sec=timeout_s):
            return f"no node {node} within {timeout_s:g} s"
        listed = _answer(caller, lambda: client.list_parameters([SOURCES], 0), until_s)
        known = [source_of(name) for name in listed.result.names]
        for source in topics:
            if source not in known:
                present = ", ".join(sorted(filter(None, known))) or "none: is it configured?"
                return f"{node} has no source {source!r}; it has {present}"
        changes = [
            Parameter(topic_parameter(source), value=topic) for source, topic in topics.items()
        ]
        answer = _answer(caller, lambda: client.set_parameters_atomically(changes), until_s)
        return "" if answer.result.successful else str(answer.result.reason or "refused")
    except TimeoutError:
        return f"{node} did not answer within {timeout_s:g} s"
    except NameValidationException as error:
        raise ValueError(f"{node!r} is not the name of a node") from error
    finally:
        caller.destroy_node()
        rclpy.try_shutdown()


def _answer(caller: Node, call: Callable[[], Future[Any]], until_s: float) -> Any:
    """The answer to `call`, which may be made more than once. Raises TimeoutError."""
    while (left_s := until_s - time.monotonic()) > 0.0:
        future = call()
        rclpy.spin_until_future_complete(caller, future, timeout_sec=min(ANSWER_S, left_s))
        if future.done():
            return future.result()
    raise TimeoutError
