"""Queues of messages to the connected browsers, and calls of other nodes' services.

Of each kind of update a browser gets only the newest, so that no messages pile up for a slow
browser. Calls of services are awaited in the web server's event loop.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from rcl_interfaces.srv import GetParameters, ListParameters, SetParametersAtomically
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter, parameter_value_to_python
from std_srvs.srv import SetBool, Trigger

from an_control.view import schema

MOST_UPDATES = 64
"""Maximum number of messages from `enqueue` that may wait for one browser."""
PICTURE = "picture"
Send = Callable[[bytes, bool], Awaitable[None]]
RefusalReason = str
"""The reason why a node refused a request, in words; "" if it did what was asked."""


class BrowserClient:
    """A queue of messages to one browser, which may be slow.

    Updates that `enqueue_replacing_same_kind` adds replace waiting ones of the same kind, so that
    only the newest of each kind waits.

    Args:
        send: An async function that sends one message, and returns when the connection has accepted
            it. Its second argument says whether the message is binary (True) or text.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: dict[str, bytes] = {}
        self._updates: deque[str] = deque()
        self._numbers = itertools.count()
        self._ready = asyncio.Event()
        self.closed = False

    def enqueue_replacing_same_kind(self, update_kind: str, message: bytes) -> None:
        """Put an update into the queue, in place of a waiting one of the same kind.

        Args:
            update_kind: The kind of update; any text.
            message: The encoded update.
        """
        self._waiting[update_kind] = message
        self._ready.set()

    def enqueue(self, message: bytes) -> None:
        """Append a message to the queue; no later message replaces it.

        If more than 64 (`MOST_UPDATES`) such messages wait, the oldest is dropped.
        """
        name = f"update {next(self._numbers)}"
        self._updates.append(name)
        if len(self._updates) > MOST_UPDATES:
            self._waiting.pop(self._updates.popleft(), None)
        self.enqueue_replacing_same_kind(name, message)

    async def run(self) -> None:
        """Send messages until the client is closed, in the order in which they were queued."""
        while not self.closed:
            await self._ready.wait()
            while not self.closed and self._waiting:
                name = next(iter(self._waiting))
                await self._send(self._waiting.pop(name), name == PICTURE)
            self._ready.clear()

    def close(self) -> None:
        """Stop sending messages."""
        self.closed = True
        self._ready.set()


class BrowserClients:
    """The set of all connected browsers."""

    def __init__(self) -> None:
        self._clients: set[BrowserClient] = set()
        self.refused = 0
        """The number of messages from browsers that were refused."""

    def __len__(self) -> int:
        return len(self._clients)

    def add(self, client: BrowserClient) -> None:
        """Add a browser, which gets all updates from now on."""
        self._clients.add(client)

    def remove(self, client: BrowserClient) -> None:
        """Stop sending to a browser, and remove it."""
        client.close()
        self._clients.discard(client)

    def publish(self, update: schema.Update | bytes) -> None:
        """Put an update into the queues of all browsers, in place of a waiting one of its kind.

        Args:
            update: The update, or the bytes of a picture.
        """
        if not self._clients:
            return
        name = PICTURE if isinstance(update, bytes) else schema.get_message_tag(update)
        message = update if isinstance(update, bytes) else schema.encode_update(update)
        self.publish_encoded(name, message)

    def publish_encoded(self, update_kind: str, message: bytes) -> None:
        """Put an encoded update into all browsers' queues, in place of a waiting one of its kind.

        Args:
            update_kind: The kind of update.
            message: The encoded update, or the bytes of a picture.
        """
        for client in self._clients:
            client.enqueue_replacing_same_kind(update_kind, message)


LIMIT_S = 5.0
ANSWER_S = 1.0
"""Time after which a call is repeated, because the first answer of a new node can be lost.

A Trigger is not repeated once its service has answered, because triggering twice may differ from
triggering once.
"""
SLICE_S = 0.001


class UnansweredCallError(Exception):
    """An error that a node did not answer a service call; the text names the service."""


class ServiceCalls:
    """A client for the services and parameters of other nodes; several calls may run at a time.

    Args:
        node: The node that makes the calls.
        limit_s: Maximum time to wait for each answer.
    """

    def __init__(self, node: Node, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._node = node
        self._executor = SingleThreadedExecutor(context=node.context)
        self._executor.add_node(node)
        self._clients: dict[str, Any] = {}
        self._answered: set[str] = set()

    async def call_trigger_service(self, service: str) -> RefusalReason:
        """Call a service of type std_srvs/Trigger; return why it refused, or "".

        Raises:
            UnansweredCallError: The node did not answer.
        """
        return _explain_refusal(await self._call_service(Trigger, service, Trigger.Request()))

    async def call_set_bool(self, service: str, value: bool) -> RefusalReason:
        """Call a service of type std_srvs/SetBool; return why it refused, or "".

        Args:
            service: The full name of the service.
            value: The value of the request.

        Raises:
            UnansweredCallError: The node did not answer.
        """
        return _explain_refusal(
            await self._call_service(SetBool, service, SetBool.Request(data=value))
        )

    async def set_parameters(self, node: str, values: Mapping[str, Any]) -> RefusalReason:
        """Set parameters of a node, all or none; return why they were refused, or "".

        Args:
            node: The full name of the node.
            values: The new value of each parameter.

        Raises:
            UnansweredCallError: The node did not answer.
        """
        messages = [Parameter(key, value=one).to_parameter_msg() for key, one in values.items()]
        request = SetParametersAtomically.Request(parameters=messages)
        service = f"{node}/set_parameters_atomically"
        result = (await self._call_service(SetParametersAtomically, service, request)).result
        return "" if result.successful else str(result.reason or "refused")

    async def get_parameters(self, node: str, names: Sequence[str]) -> dict[str, Any]:
        """Return the values of some parameters, by name, as far as these are declared and set.

        Args:
            node: The full name of the node.
            names: The names of the parameters.

        Raises:
            UnansweredCallError: The node did not answer.
        """
        request = GetParameters.Request(names=list(names))
        values = (await self._call_service(GetParameters, f"{node}/get_parameters", request)).values
        plain = map(parameter_value_to_python, values)
        found = dict(zip(names, plain, strict=False))
        return {key: value for key, value in found.items() if value is not None}

    async def get_parameters_with_prefixes(
        self, node: str, prefixes: Sequence[str]
    ) -> dict[str, Any]:
        """Return the values, by name, of all parameters whose names begin with one of the prefixes.

        Args:
            node: The full name of the node.
            prefixes: The prefixes, without the dot after them.

        Raises:
            UnansweredCallError: The node did not answer.
        """
        request = ListParameters.Request(prefixes=list(prefixes), depth=0)
        listed = await self._call_service(ListParameters, f"{node}/list_parameters", request)
        names = list(listed.result.names)
        return await self.get_parameters(node, names) if names else {}

    async def _call_service(self, type_: Any, service: str, request: Any) -> Any:
        """Call a service and return its response.

        Raise UnansweredCallError if the node does not answer in time.
        """
        client = self._clients.get(service)
        if client is None:
            client = self._clients[service] = self._node.create_client(type_, service)
        repeats = type_ is not Trigger or service not in self._answered
        until_s = again_s = time.monotonic() + self._limit_s
        futures: list[Any] = []
        try:
            while (now_s := time.monotonic()) < until_s:
                if (not futures or now_s >= again_s) and client.service_is_ready():
                    futures.append(client.call_async(request))
                    again_s = now_s + ANSWER_S if repeats else until_s
                self._executor.spin_once(timeout_sec=0.0)
                if (answered := next((one for one in futures if one.done()), None)) is not None:
                    self._answered.add(service)
                    return answered.result()
                await asyncio.sleep(SLICE_S if futures else 10 * SLICE_S)
        finally:
            for future in futures:
                client.remove_pending_request(future)
        raise UnansweredCallError(f"{service} did not answer within {self._limit_s:g} s")

    def close(self) -> None:
        """Destroy all clients of services."""
        for client in self._clients.values():
            self._node.destroy_client(client)
        self._clients.clear()
        self._executor.remove_node(self._node)
        self._executor.shutdown()


def _explain_refusal(response: Any) -> RefusalReason:
    """Return the reason why a service refused, or "" if it did what was asked."""
    return "" if response.success else str(response.message or "refused")
