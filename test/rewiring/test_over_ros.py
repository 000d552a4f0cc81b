"""The paper's claim over ROS 2: shuffled sensors, no announcement, and the Ant walks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rclpy")

from program import Program

from an_control import load_policy
from an_control.disturbance import DisturbanceSettings, Shuffle
from an_control.learning.evaluation.evaluate import play_episodes
from an_control_sim.envs.ant import ANT_CHANNELS

SEED = 4


def walked(folder: Path, model: Path, episodes: int, *more: object) -> list[dict[str, Any]]:
    path = folder / f"{episodes}.json"
    ended = Program(folder).run(
        "sim", "ant", "--model", model, "--episodes", episodes, "--seed", SEED,
        "--json", path, *more,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    found: list[dict[str, Any]] = json.loads(path.read_text())["episodes"]
    return found


@pytest.mark.slow
def test_shuffled_at_the_reset_the_authors_ant_returns_2450_the_same_everywhere(
    authors_file, ant, tmp_path
):
    ten = walked(tmp_path, authors_file, 10, "--shuffle", "reset")
    returns = [one["return"] for one in ten]
    assert sum(returns) / len(returns) >= 2450
    assert all(one["timeouts"] == 0 and one["shuffles"] == 1 for one in ten)
    again = walked(tmp_path, authors_file, 2, "--shuffle", "reset")
    assert [one["return"] for one in again] == returns[:2]
    policy, settings = load_policy(authors_file), DisturbanceSettings(Shuffle(True))
    alone = play_episodes(policy, ant, ANT_CHANNELS, 2, SEED, settings)
    assert [one.total for one in alone] == returns[:2]


def test_announced_at_every_step_the_return_over_ros_is_that_of_the_plain_walk(
    authors_file, ant, tmp_path
):
    (one,) = walked(tmp_path, authors_file, 1, "--shuffle", "1", "--announce")
    assert one["shuffles"] == one["steps"] - 1 and one["timeouts"] == 0
    plain = play_episodes(
        load_policy(authors_file), ant, ANT_CHANNELS, 1, SEED, DisturbanceSettings()
    )
    assert [one["return"]] == [result.total for result in plain]
