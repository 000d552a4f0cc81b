"""What the tests of offline learning share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from an_control.system.environment_output import OUTPUT

CARTPOLE = "an_control_sim:an_control/CartPoleSwingUpHarder-v0"
HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _forget_what_environments_printed():
    """Keep what a test's environments print out of the run folder of the next test."""
    yield
    OUTPUT._reset()


@pytest.fixture
def broken(monkeypatch):
    """Lets environments of broken.py be named, also in worker processes."""
    monkeypatch.setenv("PYTHONPATH", f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.syspath_prepend(str(HERE))
    return lambda name: f"broken:an_control_test/{name}-v0"


@pytest.fixture(scope="session")
def cartpole():
    """The CartPole environment."""
    pytest.importorskip("numba", reason="needs the sim extra")
    from an_control_sim.gym.environments import make_environment

    env = make_environment(CARTPOLE)
    yield env
    env.close()


@pytest.fixture(scope="session")
def fused(cartpole) -> Iterator:
    """The compiled engine for it, on two threads."""
    from an_control.learning.rollout.compiled.engine import FusedEngine

    inner = cartpole.unwrapped
    engine = FusedEngine(inner.batch, inner.channels, 1, 2)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def processes(cartpole) -> Iterator:
    """Two worker processes for it."""
    from an_control.learning.rollout.processes import ProcessEngine

    engine = ProcessEngine(CARTPOLE, cartpole.unwrapped.channels, 2)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def people():
    """Random policies of the authors' size, most of which swing the pole."""
    from an_control.learning.es.parametrisation import PaperForm
    from an_control_sim.envs.tasks import CARTPOLE_TASK

    rng, form = np.random.default_rng(0), PaperForm()
    return [
        form.make_model(rng.normal(0.0, 0.3, form.vector_size), CARTPOLE_TASK, {})
        for _ in range(12)
    ]
