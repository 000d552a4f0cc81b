"""Announced rewiring: the ids travel with their signals, and nothing is lost, not one bit."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from an_control.disturbance import DisturbanceSettings, Shuffle
from an_control.learning.evaluation.evaluate import play_episodes
from an_control.load import make_policy
from an_control.policy import Model
from an_control_sim.envs.ant import ANT_CHANNELS

Env = gymnasium.Env[Any, Any]
MODELS = pytest.mark.parametrize("model", ["random_ant", "authors_ant"])
ENGINES = pytest.mark.parametrize("engine", ["numpy", "numba"])


@pytest.fixture
def policy(model: str, engine: str, request: pytest.FixtureRequest) -> Any:
    if engine == "numba":
        pytest.importorskip("numba")
    found: Model = request.getfixturevalue(model)
    return make_policy(found, engine=engine)  # type: ignore[arg-type]


def walk(policy: Any, ant: Env, steps: int, seed: int | None = None) -> list[tuple[float, bytes]]:
    """Reward and action of each step; with a seed, a new permutation of (values, ids) at each."""
    rng = None if seed is None else np.random.default_rng(seed)
    observation, _ = ant.reset(seed=11)
    policy.reset()
    seen = []
    for _ in range(steps):
        values, ids = observation, ANT_CHANNELS
        if rng is not None:
            order = rng.permutation(len(ids))
            values, ids = observation[order], tuple(ids[i] for i in order)
        action = policy.step_array(values, ids)
        observation, reward, fallen, late, _ = ant.step(action)
        seen.append((float(reward), action.tobytes()))
        if fallen or late:
            break
    return seen


@MODELS
@ENGINES
def test_a_new_permutation_at_every_tick_changes_no_bit_of_an_episode(policy, ant):
    plain = walk(policy, ant, 1000)
    assert len(plain) > 50
    assert walk(policy, ant, 1000, seed=1) == plain


@MODELS
@ENGINES
def test_so_it_does_through_the_scrambler_that_the_simulator_uses(policy, ant):
    def returns(disturbance: DisturbanceSettings) -> list[tuple[float, int]]:
        results = play_episodes(policy, ant, ANT_CHANNELS, 1, 3, disturbance)
        return [(one.total, one.steps) for one in results]

    plain = returns(DisturbanceSettings())
    assert returns(DisturbanceSettings(Shuffle(True, 1), announce=True)) == plain


def test_permuted_once_at_the_reset_even_unannounced_the_authors_ant_loses_little(authors_ant, ant):
    policy = make_policy(authors_ant)
    (one,) = play_episodes(policy, ant, ANT_CHANNELS, 1, 3, DisturbanceSettings(Shuffle(True)))
    assert one.total > 2400


def test_a_channel_that_goes_and_comes_back_finds_its_own_state(authors_ant, ant):
    """Dropping channels for 5 ticks and permuting them together equals dropping them alone."""
    policy = make_policy(authors_ant)

    def tail(permuted: bool) -> list[bytes]:
        rng = np.random.default_rng(5)
        policy.reset()
        observation, _ = ant.reset(seed=2)
        actions = []
        for step in range(120):
            kept = np.arange(len(ANT_CHANNELS))
            if 40 <= step < 45:
                kept = kept[3:]
            if permuted:
                kept = rng.permutation(kept)
            ids = tuple(ANT_CHANNELS[i] for i in kept)
            action = policy.step_array(observation[kept], ids)
            observation, *_ = ant.step(action)
            actions.append(action.tobytes())
        return actions

    assert tail(permuted=True) == tail(permuted=False)
