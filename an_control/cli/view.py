"""The verb ``an-control view``, which shows the live page of a running robot."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from an_control.cli.common import InputError, require_packages
from an_control.view.process import NICE, PACKAGES

if TYPE_CHECKING:
    from an_control.view.server import PageServer

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class ViewCommand:
    """Serve a page on which you watch a running robot and rewire its sensors; prints its address.

    The page shows the robot, its policy's attention and the monitor's estimate of which signal
    arrives at which input slot. On it you can connect a signal to another slot or to several, or
    disconnect it. The command waits until a robot runs; Ctrl-C stops it.
    """

    namespace: str = ""
    """The robot's namespace, such as /ant; by default the namespace of the first policy node found.
    """
    port: int = 8765
    """The port; 0 takes any that is free."""
    host: str = LOOPBACK
    """The address to listen on. By default only this machine can open the page. With any other
    address, anyone who can reach it and has the page's address with its token can watch, rewire and
    stop the robot, over a connection that is not encrypted."""

    def run(self) -> int:
        """Serve the page until it is stopped, and return the exit status."""
        require_packages("ros", "rclpy")
        require_packages("view", *PACKAGES)
        if not 0 <= self.port <= 65535:
            raise InputError(f"--port {self.port}: must be from 0 to 65535")
        robot = f"/{self.namespace.strip('/')}" if self.namespace.strip("/") else ""
        from an_control.view.main import serve_live_page

        os.nice(NICE)  # before the ROS middleware starts threads, which inherit the niceness
        try:
            asyncio.run(serve_live_page(self.port, self.host, robot, self._print_page_address))
        except OSError as error:
            raise InputError(
                f"--host {self.host} --port {self.port}: cannot listen there"
                f" ({error.strerror or error})"
            ) from error
        return 0

    def _print_page_address(self, server: PageServer) -> None:
        """Print the address of the page, with a warning if other machines can reach the page."""
        if self.host != LOOPBACK:
            print(
                f"an-control view: listens on {self.host}: anyone with the address below can watch,"
                " rewire and stop the robot",
                file=sys.stderr,
            )
        print(server.address, flush=True)
