"""The page of a simulated robot: two processes beside the test, and one for the page."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

START = "import sys; from an_control.cli import main; sys.exit(main())"
START_S, END_S = 120.0, 30.0


class Simulation:
    """`an-control sim` with its page, in a process group of its own."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        self.log = folder / "sim.log"
        self.domain = int(os.environ["ROS_DOMAIN_ID"])
        """Where its nodes are; a test that shares a simulation is in another one."""
        words = ["sim", *map(str, arguments), "--view", "--view-port", "0"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", START, *words],
                stdout=log, stderr=subprocess.STDOUT, cwd=folder, start_new_session=True,
            )  # fmt: skip

    @property
    def text(self) -> str:
        return self.log.read_text()

    def address(self) -> str:
        """Of the page, once it is printed."""
        until = time.monotonic() + START_S
        while not (found := re.search(r"http://\S+/", self.text)):
            assert self.process.poll() is None and time.monotonic() < until, self.text
            time.sleep(0.05)
        return found[0]

    def children(self, word: str) -> list[int]:
        """Processes that it has started whose command line has this word."""
        found = []
        for path in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            for pid in path.read_text().split():
                line = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
                if word in line:
                    found.append(int(pid))
        return found

    def close(self) -> None:
        """Ctrl-C, and the end of it all."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(END_S)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()


@contextmanager
def simulation(folder: Path, *arguments: object) -> Iterator[Simulation]:
    started = Simulation(folder, *arguments)
    try:
        yield started
    finally:
        started.close()


@pytest.fixture
def simulate(tmp_path: Path) -> Iterator[Callable[..., Simulation]]:
    """Starts a simulation with its page; all of them end with the test."""
    started: list[Simulation] = []

    def start(*arguments: object) -> Simulation:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        started.append(Simulation(folder, *arguments))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulation]:
    """A cart-pole in real time, episode after episode."""
    folder = tmp_path_factory.mktemp("cartpole")
    with simulation(folder, "cartpole", "--realtime", "--episodes", "1000") as started:
        yield started
