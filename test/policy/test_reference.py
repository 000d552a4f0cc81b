"""Both engines compute the plain equations, with channels that come and go, in any sizes."""

from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from an_control.load import make_policy
from an_control.policy import AttentionSizes
from an_control.policy.random_model import random_model
from an_control.policy.reference import Reference
from an_control.policy.reference_extensions import ExtendedReference
from an_control.policy.sizes import paper_sizes

AGREEMENT = 1e-5
ENGINES = ["numpy", "numba"] if find_spec("numba") else ["numpy"]


def readings_of(rng, channels=12, missing=3):
    """One tick's readings: float32, in any order, up to `missing` channels without one."""
    there = rng.permutation(channels)[: rng.integers(channels - missing, channels + 1)]
    return {f"channel_{i}": float(np.float32(rng.standard_normal())) for i in there}


def assert_agreement(model, engine, reference, ticks=60):
    """The same previous action goes into both: the recurrence through it can be chaotic."""
    policy, rng = make_policy(model, engine=engine, keep_ticks=ticks), np.random.default_rng(2)
    for _ in range(ticks):
        reference.previous_action = policy.previous_action.astype(np.float64)
        readings = readings_of(rng)
        action, expected = policy.step(readings), reference.step(readings)
        np.testing.assert_allclose(action, expected, rtol=0, atol=AGREEMENT)


def test_the_engines_compute_the_plain_equations(model, engine):
    assert_agreement(model, engine, ExtendedReference(model))


@settings(max_examples=20, deadline=None)
@given(
    sizes=st.builds(
        paper_sizes,
        actions=st.integers(1, 9),
        queries=st.integers(1, 40),
        hidden_layers=st.integers(0, 2),
        neuron=st.integers(1, 20),
        key=st.integers(1, 33),
    ),
    engine=st.sampled_from(ENGINES),
)
def test_the_engines_compute_the_papers_equations_in_any_sizes(sizes, engine):
    model = random_model(sizes, gain=1.5)
    assert_agreement(model, engine, Reference(model), ticks=20)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_engines_compute_every_extension_in_any_sizes(data):
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
    sizes.check()
    model = random_model(sizes, seed=1, gain=1.5)
    engine = draw(st.sampled_from(ENGINES))
    assert_agreement(model, engine, ExtendedReference(model), ticks=20)


def test_without_extensions_both_references_are_one():
    model, rng = random_model(paper_sizes(2, 9, 1), gain=2.0), np.random.default_rng(0)
    plain, extended = Reference(model), ExtendedReference(model)
    for _ in range(20):
        readings = readings_of(rng)
        np.testing.assert_allclose(plain.step(readings), extended.step(readings), atol=1e-12)


@pytest.mark.parametrize("resets", [False, True])
def test_readings_that_all_jump_reset_the_neurons(resets):
    sizes = AttentionSizes(2, 4, 5, 4, ["value", "change"], [], reset_on_jump=True)
    reference = ExtendedReference(random_model(sizes))
    for step in range(30):
        reference.step({f"channel_{i}": np.sin(0.1 * step + i) for i in range(8)})
    order = np.arange(8)[::-1] if resets else np.arange(8)
    assert reference.jumped({f"channel_{i}": np.sin(3.0 + order[i]) for i in range(8)}) == resets
