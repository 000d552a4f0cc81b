"""Calls of services from the web server's loop: when one is made again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from threading import Thread

import pytest

pytest.importorskip("rclpy")
import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from std_srvs.srv import SetBool, Trigger

from an_control.view import clients as calls_module
from an_control.view.clients import ServiceCalls, UnansweredCallError


class Slow:
    """Services that answer late, and count their calls."""

    def __init__(self, node: Node) -> None:
        self.called, self.late_s = 0, 0.0
        node.create_service(Trigger, "/restart", self._answer)
        node.create_service(SetBool, "/pause", self._answer)

    def _answer(self, request: object, response: Trigger.Response) -> Trigger.Response:
        self.called += 1
        time.sleep(self.late_s)
        response.success = True
        return response


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Slow, ServiceCalls]]:
    monkeypatch.setattr(calls_module, "ANSWER_S", 0.2)
    context = Context()
    rclpy.init(args=[], context=context)
    server, client = (Node(name, context=context) for name in ("server", "client"))
    services, executor = Slow(server), SingleThreadedExecutor(context=context)
    executor.add_node(server)
    thread = Thread(target=executor.spin)
    thread.start()
    calls = ServiceCalls(client, limit_s=20.0)
    yield services, calls
    executor.shutdown()
    thread.join()
    calls.close()
    for node in server, client:
        node.destroy_node()
    rclpy.shutdown(context=context)


def test_a_trigger_that_is_slow_to_answer_is_called_once(slow):
    """A robot that took a second to restart was restarted twice."""
    services, calls = slow
    assert asyncio.run(calls.call_trigger_service("/restart")) == ""
    services.called, services.late_s = 0, 0.7
    assert asyncio.run(calls.call_trigger_service("/restart")) == ""
    assert services.called == 1


def test_what_may_be_set_twice_is_called_again_and_any_answer_counts(slow):
    """The first answer of a node just found can be lost; one that came late was thrown away."""
    services, calls = slow
    services.late_s = 0.7
    assert asyncio.run(calls.call_set_bool("/pause", True)) == ""
    until_s = time.monotonic() + 100.0
    while services.called < 2 and time.monotonic() < until_s:
        time.sleep(0.01)
    assert services.called >= 2


def test_a_service_that_is_not_there_is_said_to_be_silent(slow):
    _, calls = slow
    calls._limit_s = 0.1
    with pytest.raises(UnansweredCallError, match=r"/gone did not answer within 0\.1 s"):
        asyncio.run(calls.call_trigger_service("/gone"))
