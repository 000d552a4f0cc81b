"""The browsers that are connected: each gets the newest of everything, and nothing piles up."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from an_control.view import schema

REPLIES = 64
"""Replies that may wait for a client; the oldest are dropped."""
Send = Callable[[bytes, bool], Awaitable[None]]


class Client:
    """One browser, which may be slow: of each kind of update only the newest waits for it.

    send: sends one message, binary or text, and returns once the connection has taken it.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._newest: dict[str, bytes] = {}
        self._replies: deque[bytes] = deque(maxlen=REPLIES)
        self._ready = asyncio.Event()
        self.closed = False

    def offer(self, name: str, message: bytes) -> None:
        """An update by its name; it takes the place of one that still waits."""
        if name == "reply":
            self._replies.append(message)
        else:
            self._newest.pop(name, None)
            self._newest[name] = message
        self._ready.set()

    @property
    def waiting(self) -> int:
        """Messages that wait."""
        return len(self._newest) + len(self._replies)

    async def run(self) -> None:
        """Send until the client is closed."""
        while not self.closed:
            await self._ready.wait()
            while not self.closed and self.waiting:
                if self._replies:
                    await self._send(self._replies.popleft(), False)
                    continue
                name = next(iter(self._newest))
                await self._send(self._newest.pop(name), name == "picture")
            self._ready.clear()

    def close(self) -> None:
        """Send no more."""
        self.closed = True
        self._ready.set()


class Clients:
    """All of them."""

    def __init__(self) -> None:
        self._clients: set[Client] = set()
        self.refused = 0
        """Messages that were none."""

    def __len__(self) -> int:
        return len(self._clients)

    def add(self, client: Client) -> None:
        self._clients.add(client)

    def remove(self, client: Client) -> None:
        client.close()
        self._clients.discard(client)

    def publish(self, update: schema.Update | bytes) -> None:
        """Offer an update to all; one with a picture is bytes."""
        if not self._clients:
            return
        name = "picture" if isinstance(update, bytes) else schema.name_of(update)
        message = update if isinstance(update, bytes) else schema.encode(update)
        for client in self._clients:
            client.offer(name, message)
