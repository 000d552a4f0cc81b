"""The Ant, and two policies to walk it: a random one, and the authors' where it can be had."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pybullet")

import gymnasium

from an_control.learning.import_authors import import_policy_of_authors
from an_control.policy import Model, write_model
from an_control.policy.random_model import make_random_model
from an_control_sim.envs.tasks import ANT_SIZES


@pytest.fixture(scope="session")
def ant() -> Iterator[gymnasium.Env[Any, Any]]:
    environment = gymnasium.make("an_control_sim:an_control/Ant-v0", disable_env_checker=True)
    yield environment
    environment.close()


@pytest.fixture(scope="session")
def random_ant() -> Model:
    return make_random_model(ANT_SIZES, seed=7, gain=2.0)


@pytest.fixture(scope="session")
def authors_ant(shared: Path) -> Model:
    return import_policy_of_authors(shared / "reference/official/ant_pi.npz", "ant_pi")


@pytest.fixture(scope="session")
def authors_file(authors_ant: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("authors") / "ant_pi.safetensors"
    write_model(path, authors_ant)
    return path
