"""Recordings of a policy node that runs in the test's process."""

from pathlib import Path

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("mcap")

from stand import Stand


@pytest.fixture
def stand(tmp_path: Path):
    one = Stand(tmp_path)
    yield one
    one.close()
