"""In closed loop in the Ant no permutation of the channels changes one bit of any action.

An action that differed by a bit would send the robot elsewhere, and every later action with it.
"""

import numpy as np
import pytest

from an_control.load import make_policy
from an_control.policy.random_model import make_random_model
from an_control_sim.envs.tasks import ANT_SIZES

PERMUTATIONS = {"numba": 1000, "numpy": 100}
STEPS = 8
LONG = 300


@pytest.fixture(scope="module")
def ant():
    pytest.importorskip("pybullet", reason="the Ant needs pybullet")
    from an_control_sim.envs.ant import ANT_CHANNELS, AntEnv

    env = AntEnv()
    env.ids = tuple(ANT_CHANNELS)
    yield env
    env.close()


def walk(env, policy, steps, wiring):
    """The bytes of all actions and of the last observation; `wiring` gives order and ids a tick."""
    observation, _ = env.reset(seed=3)
    policy.reset()
    trace = []
    for _ in range(steps):
        order, ids = wiring()
        action = policy.step_array(observation[order], ids)
        trace.append(action.tobytes())
        observation, *_ = env.step(action)
    return trace, observation.tobytes()


@pytest.mark.slow
def test_a_thousand_permutations_walk_the_same_way(ant, engine):
    """Half of them behind the same ids, half with their ids."""
    policy = make_policy(make_random_model(ANT_SIZES, seed=2, gain=2.0), engine=engine)
    expected = walk(ant, policy, STEPS, lambda: (slice(None), ant.ids))
    rng = np.random.default_rng(0)
    for number in range(PERMUTATIONS[engine]):
        order = rng.permutation(len(ant.ids))
        ids = ant.ids if number % 2 else tuple(ant.ids[i] for i in order)
        assert walk(ant, policy, STEPS, lambda order=order, ids=ids: (order, ids)) == expected


def test_a_new_permutation_at_every_tick_walks_the_same_way(ant, engine):
    policy = make_policy(make_random_model(ANT_SIZES, seed=2, gain=2.0), engine=engine)
    expected = walk(ant, policy, LONG, lambda: (slice(None), ant.ids))
    rng = np.random.default_rng(1)

    def rewired():
        order = rng.permutation(len(ant.ids))
        return order, tuple(ant.ids[i] for i in order)

    assert walk(ant, policy, LONG, rewired) == expected
