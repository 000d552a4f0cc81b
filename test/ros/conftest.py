"""Fixtures of the tests over real ROS 2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rclpy")

from stand import Reference, Stand


@pytest.fixture
def stand(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stand]:
    """Single-threaded, or the executor that an indirect parameter names."""
    one = Stand(tmp_path, getattr(request, "param", "single_threaded"))
    yield one
    one.close()


@pytest.fixture
def reference(stand: Stand) -> Reference:
    return Reference(stand.model)
