"""The page's process: rclpy and the web server in one loop, until a signal ends it.

The page as a process of its own, for who starts it beside a robot.
"""

from __future__ import annotations

import asyncio
import importlib.util
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import rclpy
from rclpy.context import Context
from rclpy.signals import SignalHandlerOptions

from an_control.ros.graph import QuietNode
from an_control.ros.shared_memory import without_shared_memory
from an_control.system.interrupts import bound
from an_control.view.live import Live
from an_control.view.server import LOOPBACK, Server, listen

if TYPE_CHECKING:
    from launch.actions import ExecuteProcess
    from rclpy.node import Node


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
    stopped = asyncio.Event()
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with serving(port, host, robot) as (server, looking):
        started(server)
        ended = asyncio.ensure_future(stopped.wait())
        await asyncio.wait((looking, ended), return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if looking.done():
            looking.result()


@asynccontextmanager
async def serving(
    port: int, host: str = LOOPBACK, robot: str = ""
) -> AsyncIterator[tuple[Server, asyncio.Future[None]]]:
    """The server while the block runs, and what looks at the robot, which ends only by an error."""
    listening = listen(port, host)
    context = Context()
    with without_shared_memory():
        rclpy.init(args=[], context=context, signal_handler_options=SignalHandlerOptions.NO)
        calls, listener = (
            QuietNode(name, context=context, start_parameter_services=False, enable_rosout=False)
            for name in ("an_control_view", "an_control_view_listener")
        )
    live = Live(calls, listener, robot)
    try:
        server = Server(live, listening, host)
        looking = asyncio.ensure_future(live.run())
        try:
            yield server, looking
        finally:
            looking.cancel()
            await asyncio.wait((looking,))
            await server.close()
    finally:
        live.close()
        for node in (calls, listener):
            node.destroy_node()
        rclpy.shutdown(context=context)


PACKAGES = ("tornado", "msgspec")
"""What it needs beside ROS 2."""
NICE = 10
"""By so much the page's process gives way to the robot's, where cores are few."""

START_S, SETTLE_S, LOOK_S = 30.0, 1.0, 0.05
"""How long the page may take to find the policy, and then to read the parameters of its nodes."""


def command(namespace: str, port: int | str) -> list[str]:
    """The command line that shows the robot of a namespace."""
    robot = f"/{namespace.strip('/')}" if namespace.strip("/") else ""
    arguments = ["--namespace", robot] if robot else []
    return bound([sys.executable, "-m", "an_control", "view", *arguments, "--port", str(port)])


def wait_for_page(
    page: subprocess.Popen[bytes], node: Node, policy: str, stopped: Callable[[], bool]
) -> None:
    """Wait until the page watches the policy node of that name, START_S at most.

    What a robot does in real time meanwhile would suffer: the page's start takes a processor for
    seconds, and joining and calling delay the nodes that are there. Ends where the page has ended.
    """
    until_s = time.monotonic() + START_S
    while not stopped() and page.poll() is None and time.monotonic() < until_s:
        if node.count_subscribers(f"{policy}/channels"):
            time.sleep(SETTLE_S)
            return
        time.sleep(LOOK_S)


def page(namespace: str, port: int | str) -> ExecuteProcess:
    """The action of a launch file; the launch does not end with it.

    RuntimeError where a package is not installed, before anything has started.
    """
    from launch.actions import ExecuteProcess

    if missing := [one for one in PACKAGES if importlib.util.find_spec(one) is None]:
        raise RuntimeError(f"view:=true needs {missing[0]}: pip install 'an_control[view]'")
    return ExecuteProcess(cmd=command(namespace, port), name="view", output="screen")
