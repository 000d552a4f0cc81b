"""Fixtures of the tests over real ROS 2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rclpy")

from stand import Reference, Stand


class Lines(list[str]):
    """What has been logged to the console by now, without time and name.

    /rosout would not do: a node of an earlier test that still lives takes its name there. It reads
    the file that pytest has put in the console's place: what another thread writes while capfd
    empties that file is lost.
    """

    def __init__(self) -> None:
        super().__init__()
        self._read = 0

    def __iter__(self) -> Iterator[str]:
        with open("/proc/self/fd/2", "rb") as console:
            console.seek(self._read)
            whole = console.read().rpartition(b"\n")[0]
        if whole:
            self._read += len(whole) + 1
            self.extend(line.rpartition("]: ")[2] for line in whole.decode().split("\n"))
        return super().__iter__()


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> list[str]:
    """What the node logs, line by line."""
    return Lines()


@pytest.fixture
def stand(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stand]:
    """Single-threaded, or the executor that an indirect parameter names."""
    one = Stand(tmp_path, getattr(request, "param", "single_threaded"))
    yield one
    one.close()


@pytest.fixture
def reference(stand: Stand) -> Reference:
    return Reference(stand.model)
