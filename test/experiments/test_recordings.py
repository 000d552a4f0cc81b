"""The Ant is recorded under a policy node, to learn from."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("mcap")
pytest.importorskip("rclpy")
pytest.importorskip("pybullet")

from rclpy.logging import LoggingSeverity, set_logger_level

from an_control.learning.recordings import read_task_and_traces
from experiments.recordings import driving


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """The node that records quiets the whole process's log."""
    yield
    set_logger_level("", LoggingSeverity.INFO)


def test_driving_is_recorded_as_episodes_with_rewards(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(driving, "EPISODE_TICKS", 30)
    model = Path("models/ant_teacher.safetensors").absolute()
    driving.record_noisy_ant_episodes(tmp_path / "bag", model, episodes=2, seed=3, max_noise_sd=0.1)
    task, traces = read_task_and_traces([tmp_path / "bag"], "ant")
    assert len(task.channels) == 28
    assert [len(one.actions) > 20 for one in traces] == [True, True]
    returns = json.loads((tmp_path / "bag.json").read_text())["returns"]
    assert len(returns) == 2
    assert all(returns)
