"""Fixtures of the tests over real ROS 2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rclpy")

from stand import Reference, Stand


class Lines(list[str]):
    """What has been logged to the console by now, without time and name.

    /rosout would not do: a node of an earlier test that still lives takes its name there.
    """

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        super().__init__()
        self._capfd = capfd

    def __iter__(self) -> Iterator[str]:
        lines = self._capfd.readouterr().err.splitlines()
        self.extend(line.rpartition("]: ")[2] for line in lines)
        return super().__iter__()


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> list[str]:
    """What the node logs, line by line."""
    return Lines(capfd)


@pytest.fixture
def stand(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stand]:
    """Single-threaded, or the executor that an indirect parameter names."""
    one = Stand(tmp_path, getattr(request, "param", "single_threaded"))
    yield one
    one.close()


@pytest.fixture
def reference(stand: Stand) -> Reference:
    return Reference(stand.model)
