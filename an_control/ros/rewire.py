"""Announced rewiring of a running policy node from outside: by its parameters, or its file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import rclpy
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.parameter_client import AsyncParameterClient
from rclpy.task import Future
from std_srvs.srv import Trigger


def rewire(node: str, changes: Mapping[str, str], timeout_s: float) -> str:
    """Set these parameters, all or nothing; why not, or an empty string.

    Keys are those of `Wiring.rewirable`.
    """
    with _caller() as caller:
        client = AsyncParameterClient(caller, node)
        if not client.wait_for_services(timeout_sec=timeout_s):
            return f"no node {node} within {timeout_s:g} s"
        parameters = [Parameter(key, value=value) for key, value in changes.items()]
        response = _answer(caller, client.set_parameters_atomically(parameters), timeout_s)
        if response is None:
            return f"{node} did not answer within {timeout_s:g} s"
        result = response.result
        return "" if result.successful else str(result.reason or "refused")


def reload_wiring(node: str, timeout_s: float) -> str:
    """Let the node read its wiring's file again; why it did not, or an empty string."""
    with _caller() as caller:
        client: Any = caller.create_client(Trigger, f"{node}/reload_wiring")
        if not client.wait_for_service(timeout_sec=timeout_s):
            return f"no node {node} within {timeout_s:g} s"
        response = _answer(caller, client.call_async(Trigger.Request()), timeout_s)
        if response is None:
            return f"{node} did not answer within {timeout_s:g} s"
        return "" if response.success else str(response.message or "refused")


@contextmanager
def _caller() -> Iterator[Node]:
    rclpy.init(args=[])
    caller = rclpy.create_node("an_control_rewire")
    try:
        yield caller
    finally:
        caller.destroy_node()
        rclpy.try_shutdown()


def _answer(caller: Node, future: Future[Any], timeout_s: float) -> Any:
    rclpy.spin_until_future_complete(caller, future, timeout_sec=timeout_s)
    return future.result()
