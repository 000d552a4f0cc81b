"""The compiled engine computes the plain equations, with channels that come and go, in any sizes.

`test_recorded_vectors` holds both to the authors' own code.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from an_control.load import make_policy
from an_control.policy import AttentionSizes
from an_control.policy.random_model import make_random_model
from an_control.policy.sizes import make_paper_sizes

pytest.importorskip("numba", reason="the compiled engine needs numba")
AGREEMENT = 1e-5


def readings_of(rng, channels=12, missing=3):
    """One tick's readings: float32, in any order, up to `missing` channels without one."""
    there = rng.permutation(channels)[: rng.integers(channels - missing, channels + 1)]
    return {f"channel_{i}": float(np.float32(rng.standard_normal())) for i in there}


def assert_agreement(model, ticks=60):
    """The same previous action goes into both: the recurrence through it can be chaotic."""
    plain, compiled = (
        make_policy(model, engine=engine, keep_ticks=ticks) for engine in ("numpy", "numba")
    )
    rng = np.random.default_rng(2)
    for _ in range(ticks):
        plain.previous_action = compiled.previous_action
        readings = readings_of(rng)
        action, expected = compiled.step(readings), plain.step(readings)
        np.testing.assert_allclose(action, expected, rtol=0, atol=AGREEMENT)


@settings(max_examples=20, deadline=None)
@given(
    sizes=st.builds(
        make_paper_sizes,
        actions=st.integers(1, 9),
        queries=st.integers(1, 40),
        hidden_layers=st.integers(0, 2),
        neuron=st.integers(1, 20),
        key=st.integers(1, 33),
    ),
)
def test_the_papers_equations_are_compiled_in_any_sizes(sizes):
    assert_agreement(make_random_model(sizes, gain=1.5), ticks=20)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_every_extension_is_compiled_in_any_sizes(data):
    draw, number = data.draw, st.integers
    softmax, memory, stack = draw(st.booleans()), draw(number(0, 9)), draw(number(0, 4))
    memory = memory if softmax else 0
    sizes = AttentionSizes(
        actions=draw(number(1, 9)),
        neuron=draw(number(1, 20)),
        queries=draw(number(2, 40)),
        key=draw(number(1, 33)),
        inputs=["value"] if stack or draw(st.booleans()) else ["value", "change"],
        head=draw(st.lists(number(1, 40), max_size=2)),
        products=draw(st.booleans()),
        attention="softmax" if softmax else "tanh",
        activation=draw(st.sampled_from(["tanh", "relu"])),
        output=draw(st.sampled_from(["tanh", "clip"])),
        memory=memory,
        stack=stack,
        outlier_weighting=bool(memory) and draw(st.booleans()),
        reset_on_jump=draw(st.booleans()),
        prediction_attention=bool(memory) and draw(st.booleans()),
        normalise=0 if memory else draw(st.sampled_from([0, 10])),
    )
    sizes.check_consistency()
    assert_agreement(make_random_model(sizes, seed=1, gain=1.5), ticks=20)
