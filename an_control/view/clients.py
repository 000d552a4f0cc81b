"""The browsers that are connected: each gets the newest of everything, and nothing piles up."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable

from an_control.view import schema

MOST_UPDATES = 64
PICTURE = "picture"
Send = Callable[[bytes, bool], Awaitable[None]]


class Client:
    """One browser, which may be slow: of each kind of update only the newest waits for it.

    send: sends one message, binary or text, and returns once the connection has taken it.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: dict[str, bytes] = {}
        self._updates: deque[str] = deque()
        self._numbers = itertools.count()
        self._ready = asyncio.Event()
        self.closed = False

    def offer(self, name: str, message: bytes) -> None:
        """An update by its name, in the place of one that still waits."""
        self._waiting[name] = message
        self._ready.set()

    def tell(self, message: bytes) -> None:
        """A message that none replaces; of more than MOST_UPDATES the oldest is dropped."""
        name = f"update {next(self._numbers)}"
        self._updates.append(name)
        if len(self._updates) > MOST_UPDATES:
            self._waiting.pop(self._updates.popleft(), None)
        self.offer(name, message)

    @property
    def waiting(self) -> int:
        """Messages that wait."""
        return len(self._waiting)

    async def run(self) -> None:
        """Send until the client is closed, what has waited longest first."""
        while not self.closed:
            await self._ready.wait()
            while not self.closed and self._waiting:
                name = next(iter(self._waiting))
                await self._send(self._waiting.pop(name), name == PICTURE)
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
        name = PICTURE if isinstance(update, bytes) else schema.name_of(update)
        message = update if isinstance(update, bytes) else schema.encode(update)
        for client in self._clients:
            client.offer(name, message)
