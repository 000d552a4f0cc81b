"""The process of the live page, with rclpy and the web server in one event loop."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import rclpy
from rclpy.context import Context
from rclpy.signals import SignalHandlerOptions

from an_control.ros.graph import QuietNode
from an_control.ros.temporary_node import disable_shared_memory
from an_control.view.live import LiveRobot
from an_control.view.recorded import RecordedFrames, RecordedRobot
from an_control.view.server import LOOPBACK, PageServer, open_listening_socket

SIGNALS = (signal.SIGINT, signal.SIGTERM)


async def serve_live_page(
    port: int,
    host: str = LOOPBACK,
    robot: str = "",
    on_start: Callable[[PageServer], None] = lambda server: None,
) -> None:
    """Serve the live page of a robot until SIGINT or SIGTERM.

    Args:
        port: Port to listen on; 0 for any free one.
        host: Address to listen on.
        robot: Namespace of the robot; "": the robot of the first policy node.
        on_start: A function that is called with the server once the server listens.

    Raises:
        OSError: The port is taken.
    """
    stopped = asyncio.Event()
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with run_live_page_server(port, host, robot) as (server, looking):
        on_start(server)
        ended = asyncio.ensure_future(stopped.wait())
        await asyncio.wait((looking, ended), return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if looking.done():
            looking.result()


async def serve_recording(
    frames: RecordedFrames,
    port: int,
    on_start: Callable[[PageServer], None],
    on_replayed: Callable[[], None],
) -> None:
    """Serve the page of a recording until SIGINT or SIGTERM.

    Meanwhile the recording is replayed: the commands are computed again from the recorded messages.

    Args:
        frames: The recording, and the messages for the page, which the replay stores in it.
        port: Port to listen on, on the loopback interface; 0 for any free one.
        on_start: A function that is called with the server once the server listens.
        on_replayed: A function that is called once the whole recording has been replayed.

    Raises:
        OSError: The port is taken.
        BagError: The recording cannot be replayed.
        WiringError: The recorded or given wiring cannot be used.
        ModelError: The recorded or given model cannot be used.
    """
    stopped, stop_replay = asyncio.Event(), threading.Event()
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with _run_page_server(RecordedRobot(frames), open_listening_socket(port), LOOPBACK) as (
        server,
        showing,
    ):
        on_start(server)
        ended = asyncio.ensure_future(stopped.wait())
        replaying = asyncio.ensure_future(asyncio.to_thread(frames.replay_recording, stop_replay))
        try:
            await asyncio.wait((replaying, showing, ended), return_when=asyncio.FIRST_COMPLETED)
            if replaying.done():
                replaying.result()
                on_replayed()
                await asyncio.wait((showing, ended), return_when=asyncio.FIRST_COMPLETED)
            if showing.done():
                showing.result()
        finally:
            ended.cancel()
            stop_replay.set()
            await asyncio.wait((replaying,))


@asynccontextmanager
async def _run_page_server(
    shown: LiveRobot | RecordedRobot, listening: socket.socket, host: str
) -> AsyncIterator[tuple[PageServer, asyncio.Future[None]]]:
    """Run the web server of a page while a `with` block runs.

    Yield the server, and the task that sends updates to the browsers.
    """
    server = PageServer(shown, listening, host)
    showing = asyncio.ensure_future(shown.run())
    try:
        yield server, showing
    finally:
        showing.cancel()
        await asyncio.wait((showing,))
        await server.close()


@asynccontextmanager
async def run_live_page_server(
    port: int, host: str = LOOPBACK, robot: str = ""
) -> AsyncIterator[tuple[PageServer, asyncio.Future[None]]]:
    """Run the live page's web server, and watch a robot, while a `with` block runs.

    Yield the server, and the task that watches the robot. This task ends only by an error.

    Args:
        port: Port to listen on; 0 for any free one.
        host: Address to listen on.
        robot: Namespace of the robot; "": the robot of the first policy node.
    """
    listening = open_listening_socket(port, host)
    context = Context()
    with disable_shared_memory():
        rclpy.init(args=[], context=context, signal_handler_options=SignalHandlerOptions.NO)
        calls, listener = (
            QuietNode(name, context=context, start_parameter_services=False, enable_rosout=False)
            for name in ("an_control_view", "an_control_view_listener")
        )
    live = LiveRobot(calls, listener, robot)
    try:
        async with _run_page_server(live, listening, host) as served:
            yield served
    finally:
        live.close()
        for node in (calls, listener):
            node.destroy_node()
        rclpy.shutdown(context=context)
