"""The web server of the live page and its web socket, for users who know a secret token.

It listens on the loopback interface unless another address is given. A request must have the token
in its path and name this server as its host, so that no foreign page can reach the server by
another host name. The web socket must be opened by this very page. The page fetches nothing from
other servers, and its content security policy forbids it.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import secrets
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from tornado.httpserver import HTTPServer
from tornado.web import Application, HTTPError, RequestHandler, StaticFileHandler
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from an_control.view import schema
from an_control.view.clients import BrowserClient, BrowserClients

LOG = logging.getLogger(__name__)
PAGE = Path(__file__).with_name("page")
LOOPBACK = "127.0.0.1"
MOST_BYTES = 65536
"""Maximum length of a message in bytes; a longer one closes its connection."""
PENDING = 32
"""Maximum number of commands of one browser that wait to be carried out."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class ShownRobot(Protocol):
    """Interface of a robot, running or recorded, that the page shows."""

    clients: BrowserClients

    def add_client(self, client: BrowserClient) -> None:
        """Send a new browser the present state, and all updates from now on."""

    async def execute_browser_command(self, command: schema.Command) -> schema.ReplyUpdate:
        """Carry out a command of a browser, and return the reply."""


class _GuardedHandler(RequestHandler):
    """A request handler that refuses requests without the token or for another host."""

    def initialize(self, server: PageServer) -> None:
        """Store the page's server, which knows the token."""
        self.server = server

    def set_default_headers(self) -> None:
        """Set the security headers of every response."""
        self.clear_header("Server")
        for name, value in HEADERS.items():
            self.set_header(name, value)

    def prepare(self) -> None:
        """Refuse a request without the token or for another host, by status 403."""
        if not self.server.allows_host(self.request.host):
            raise HTTPError(403, reason="another host")
        token = self.request.path.split("/")[1]
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            raise HTTPError(403, reason="wrong token")


class _FileHandler(_GuardedHandler, StaticFileHandler):
    """A request handler that serves the page's files."""

    def initialize(self, server: PageServer, **options: Any) -> None:  # type: ignore[override]
        """Store the page's server, and the options of the file handler."""
        _GuardedHandler.initialize(self, server)
        StaticFileHandler.initialize(self, **options)

    def set_extra_headers(self, path: str) -> None:
        """Set the header that forbids the browser to cache the file."""
        self.set_header("Cache-Control", "no-store")


class _NotFoundHandler(_GuardedHandler):
    """A request handler for unknown paths."""

    def get(self) -> None:
        """Respond that the path is not found, by status 404."""
        raise HTTPError(404)


class _SocketHandler(_GuardedHandler, WebSocketHandler):
    """A handler for the web socket of one browser."""

    client: BrowserClient | None = None

    def check_origin(self, origin: str) -> bool:
        """Return whether the socket was opened by a page of this server."""
        return urlsplit(origin).netloc == self.request.host

    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Open the socket, or refuse a request that names no origin."""
        if not self.request.headers.get("Origin"):
            raise HTTPError(403, reason="no origin")
        await super().get(*args, **kwargs)

    def open(self, *args: str, **kwargs: str) -> None:
        """Send the present state to the browser, and all updates from now on."""
        self.set_nodelay(True)
        self._pending: set[asyncio.Task[None]] = set()
        self.client = BrowserClient(self._send)
        self.server.live.add_client(self.client)
        self._sender = asyncio.ensure_future(self._send_queued_messages(self.client))

    async def _send_queued_messages(self, client: BrowserClient) -> None:
        """Send the client's messages until the connection ends."""
        with suppress(WebSocketClosedError, asyncio.CancelledError):
            await client.run()

    async def _send(self, message: bytes, binary: bool) -> None:
        """Send one message to the browser."""
        await self.write_message(message if binary else message.decode(), binary=binary)

    def on_message(self, message: str | bytes) -> None:
        """Carry out a command of the browser, or reply why it is refused.

        An e-stop is carried out at once; other commands may have to wait.
        """
        assert self.client is not None
        try:
            command = schema.decode_command(message)
            if len(self._pending) >= PENDING and not isinstance(command, schema.EStopCommand):
                raise ValueError(f"more than {PENDING} commands at once")
        except ValueError as error:
            self.server.live.clients.refused += 1
            self._reply(schema.ReplyUpdate(0, False, f"refused: {error}"))
            return
        task = asyncio.ensure_future(self._carry_out(command))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def _carry_out(self, command: schema.Command) -> None:
        """Carry out a command, and send the reply to the browser."""
        try:
            reply = await self.server.live.execute_browser_command(command)
        except Exception as error:  # the browser must be told that it was not done
            name = schema.get_message_tag(command)
            LOG.exception("%s failed", name)
            reply = schema.ReplyUpdate(command.id, False, f"{name}: an unexpected error: {error!r}")
        self._reply(reply)

    def _reply(self, reply: schema.ReplyUpdate) -> None:
        """Send a reply if the browser is still connected."""
        if self.client is not None:
            self.client.enqueue(schema.encode_update(reply))

    def on_close(self) -> None:
        """Remove the browser, whose connection has ended."""
        if self.client is not None:
            self.server.live.clients.remove(self.client)
            self._sender.cancel()
            self.client = None


def open_listening_socket(port: int, host: str = LOOPBACK) -> socket.socket:
    """Return a TCP socket that listens on a port.

    Args:
        port: The port; 0 for any free one.
        host: The address to listen on.

    Raises:
        OSError: The port is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.create_server((host, port), family=family)
    made.setblocking(False)
    return made


class PageServer:
    """The web server of the live page, which accepts only requests with a random token.

    Args:
        live: The robot that is shown.
        listening: The socket that the server listens on.
        host: The address that the socket listens on.
    """

    def __init__(self, live: ShownRobot, listening: socket.socket, host: str = LOOPBACK) -> None:
        self.live, self.token = live, secrets.token_urlsafe(16)
        self._host = host
        self._names = self._list_own_host_names()
        self.port: int = listening.getsockname()[1]
        own = {"server": self}
        files = {"path": str(PAGE), "default_filename": "index.html"}
        application = Application(
            [
                (r"/[^/]+/live", _SocketHandler, own),
                (r"/[^/]+/((?:[\w-]+\.(?:html|css|js|svg))?)", _FileHandler, own | files),
                (r"/.*", _NotFoundHandler, own),
            ],
            compress_response=True,
            websocket_max_message_size=MOST_BYTES,
            websocket_ping_interval=20,
            log_function=lambda handler: None,
        )
        self._server = HTTPServer(application, max_body_size=1, max_header_size=16384)
        self._server.add_sockets([listening])

    @property
    def address(self) -> str:
        """The address to open in a browser, with the token."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        if self._host in ("0.0.0.0", "::"):
            host = socket.gethostname()
        return f"http://{host}:{self.port}/{self.token}/"

    def allows_host(self, host: str) -> bool:
        """Return whether a request may be answered: the host that it names must be this machine.

        If the server listens beyond loopback, any IP address is allowed. The port is not checked,
        because a request through a tunnel or a container may name another port.

        Args:
            host: The host, and perhaps the port, that the request names.
        """
        with suppress(ValueError):
            name = urlsplit(f"//{host}").hostname or ""
            if name in self._names:
                return True
            if not self._is_loopback:
                ipaddress.ip_address(name)  # an IP address cannot be another page's name
                return True
        return False

    def _list_own_host_names(self) -> set[str]:
        """Return the names by which a browser can address this machine."""
        names = {"localhost", LOOPBACK, "::1", self._host}
        if not self._is_loopback:
            name = socket.gethostname()
            names |= {name, f"{name.partition('.')[0]}.local", socket.getfqdn()}
        return {name.lower() for name in names}

    @property
    def _is_loopback(self) -> bool:
        """Whether the server listens on the loopback interface only."""
        with suppress(ValueError):
            return ipaddress.ip_address(self._host).is_loopback
        return self._host == "localhost"

    async def close(self) -> None:
        """Stop listening and close all connections."""
        self._server.stop()
        await self._server.close_all_connections()
