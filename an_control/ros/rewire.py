"""Announced rewiring of a running policy node from outside: by its parameters, or its file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import rclpy
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.parameter_client import AsyncParameterClient
from rclpy.task import Future
from std_srvs.srv import Trigger

from an_control.ros.temporary_node import temporary_node
from an_control.ros.wiring_parameters import PREFIXES

ANSWER_S = 1.0
"""After this a call is made again: the first answer of a node just found can be lost."""


def rewire(node: str, changes: Mapping[str, str], timeout_s: float) -> str:
    """Set these parameters, all or nothing; why not, or an empty string.

    Keys are those of `Wiring.rewirable`. Raises ValueError where `node` is no name, TimeoutError
    where it does not answer.
    """
    with _caller(node) as caller:
        client = AsyncParameterClient(caller, node)
        if not client.wait_for_services(timeout_sec=timeout_s):
            return f"no node {node} within {timeout_s:g} s"
        until_s = time.monotonic() + timeout_s
        listed = _answer(caller, lambda: client.list_parameters(list(PREFIXES), 0), until_s)
        for key in changes:
            if key not in listed.result.names:
                return f"{node} has no {_unknown(key, listed.result.names)}"
        parameters = [Parameter(key, value=value) for key, value in changes.items()]
        answer = _answer(caller, lambda: client.set_parameters_atomically(parameters), until_s)
        return "" if answer.result.successful else str(answer.result.reason or "refused")


def reload_wiring(node: str, timeout_s: float) -> str:
    """Let the node read its wiring's file again; why it did not, or an empty string.

    Raises as `rewire` does.
    """
    with _caller(node) as caller:
        client: Any = caller.create_client(Trigger, f"{node}/reload_wiring")
        if not client.wait_for_service(timeout_sec=timeout_s):
            return f"no node {node} within {timeout_s:g} s"
        until_s = time.monotonic() + timeout_s
        answer = _answer(caller, lambda: client.call_async(Trigger.Request()), until_s)
        return "" if answer.success else str(answer.message or "refused")


def _unknown(key: str, names: list[str]) -> str:
    """A key that is not there, in words, with those of its kind that are."""
    kind, _, rest = key.partition(".")
    name = rest.rpartition(".")[0]
    there = (one.partition(".")[2].rpartition(".")[0] for one in names if one.startswith(kind))
    present = ", ".join(sorted(set(there))) or "none: is it configured?"
    return f"{kind.removesuffix('s')} {name!r}; it has {present}"


@contextmanager
def _caller(node: str) -> Iterator[Node]:
    """Calls this node; ValueError where that is no node's name."""
    try:
        with temporary_node("an_control_rewire") as caller:
            yield caller
    except ValueError as error:
        raise ValueError(f"{node!r} is not the name of a node") from error


def _answer(caller: Node, call: Callable[[], Future[Any]], until_s: float) -> Any:
    """The answer to `call`, which may be made more than once. Raises TimeoutError."""
    while (left_s := until_s - time.monotonic()) > 0.0:
        future = call()
        rclpy.spin_until_future_complete(caller, future, timeout_sec=min(ANSWER_S, left_s))
        if future.done():
            return future.result()
    raise TimeoutError
