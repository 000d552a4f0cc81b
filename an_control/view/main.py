"""The page's process: rclpy and the web server in one loop, until a signal ends it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress

import rclpy
from rclpy.context import Context
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from an_control.view.live import Live
from an_control.view.server import LOOPBACK, Server

SIGNALS = (signal.SIGINT, signal.SIGTERM)


async def serve(
    port: int,
    host: str = LOOPBACK,
    robot: str = "",
    started: Callable[[Server], None] = lambda server: None,
) -> None:
    """Serve the page of a robot until SIGINT or SIGTERM; OSError where the port is taken.

    `started` gets the server once it listens.
    """
    context = Context()
    rclpy.init(args=[], context=context, signal_handler_options=SignalHandlerOptions.NO)
    calls, listener = (
        Node(name, context=context, start_parameter_services=False, enable_rosout=False)
        for name in ("an_control_view", "an_control_view_listener")
    )
    live = Live(calls, listener, robot)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    try:
        server = Server(live, port, host)
        for number in SIGNALS:
            loop.add_signal_handler(number, stopped.set)
        started(server)
        looking = asyncio.ensure_future(live.run())
        ended = asyncio.ensure_future(stopped.wait())
        await asyncio.wait((looking, ended), return_when=asyncio.FIRST_COMPLETED)
        if looking.done():
            looking.result()
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking
        await server.close()
    finally:
        live.close()
        for node in (calls, listener):
            node.destroy_node()
        rclpy.shutdown(context=context)
