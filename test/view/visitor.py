"""A visitor of the page without a browser: a web-socket client."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

LIMIT_S = 60.0


def origin_of(address: str) -> str:
    return "/".join(address.split("/")[:3])


class Visitor:
    """Keeps the newest update of each kind; asks, and waits for the reply."""

    def __init__(self, connection: WebSocketClientConnection) -> None:
        self._connection = connection
        self.newest: dict[str, Any] = {}
        self.counts: dict[str, int] = {}
        self.replies: list[Any] = []
        self._number = 0
        self.closed = False

    async def hear(self) -> None:
        """Take updates until the connection ends."""
        while (message := await self._connection.read_message()) is not None:
            if isinstance(message, bytes):
                kind, update = "picture", message
            else:
                update = json.loads(message)
                kind = update["is"]
            self.counts[kind] = self.counts.get(kind, 0) + 1
            self.newest[kind] = update
            if kind == "reply":
                self.replies.append(update)
        self.closed = True

    async def until(self, ready: Callable[[], Any], what: str, limit_s: float = LIMIT_S) -> Any:
        """Wait for a condition."""
        end_s = time.monotonic() + limit_s
        while not (found := ready()):
            assert time.monotonic() < end_s, f"waited {limit_s:g} s in vain: {what}\n{self.newest}"
            await asyncio.sleep(0.005)
        return found

    async def state(self, state: str) -> None:
        await self.until(lambda: self.newest.get("robot", {}).get("state") == state, state)

    async def say(self, text: str | bytes) -> None:
        """Send whatever it is."""
        await self._connection.write_message(text, binary=isinstance(text, bytes))

    async def ask(self, command: str, **values: Any) -> Any:
        """Send a command; its reply."""
        self._number += 1
        number = self._number
        await self.say(json.dumps({"do": command, "id": number, **values}))
        replied = lambda: [one for one in self.replies if one["id"] == number]  # noqa: E731
        return (await self.until(replied, f"reply to {command}"))[0]

    async def done(self, command: str, **values: Any) -> None:
        """Send a command that is carried out."""
        reply = await self.ask(command, **values)
        assert reply["ok"], reply

    def wires(self) -> dict[str, tuple[str, str]]:
        """By slot its signal and its channel."""
        wires = self.newest.get("wiring", {}).get("wires", [])
        return {one["slot"]: (one["signal"], one["channel"]) for one in wires}


async def connected(address: str, **headers: str) -> WebSocketClientConnection:
    """A connection that says that it comes from the page."""
    given = {"Origin": origin_of(address)} | {k.capitalize(): v for k, v in headers.items()}
    url = address.replace("http", "ws", 1) + "live"
    return await websocket_connect(HTTPRequest(url, headers=given))


@asynccontextmanager
async def visiting(address: str) -> AsyncIterator[Visitor]:
    """A visitor of the page at an address."""
    connection = await connected(address)
    visitor = Visitor(connection)
    hearing = asyncio.ensure_future(visitor.hear())
    try:
        yield visitor
    finally:
        connection.close()
        await asyncio.wait((hearing,), timeout=5.0)
        hearing.cancel()
