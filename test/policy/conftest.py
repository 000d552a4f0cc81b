"""Models of every form, and sequences of readings to feed them."""

from importlib.util import find_spec
from itertools import product

import pytest

from an_control.load import make_policy
from an_control.policy import AttentionSizes
from an_control.policy.random_model import make_random_model

FORMS = {
    f"{attention}-{'change' if change else 'value'}{'-products' if products else ''}"
    f"-{activation}-{output}-head{len(head)}-d{neuron}": AttentionSizes(
        actions=actions,
        neuron=neuron,
        queries=queries,
        key=5,
        inputs=["value", "change"] if change else ["value"],
        head=head,
        products=products,
        attention=attention,
        activation=activation,
        output=output,
    )
    for (attention, change, products), (activation, output, head, neuron, actions, queries) in zip(
        product(("tanh", "softmax"), (False, True), (False, True)),
        (
            ("tanh", "tanh", [], 8, 1, 16),
            ("relu", "clip", [7], 3, 2, 5),
            ("tanh", "clip", [16, 9], 12, 8, 33),
            ("relu", "tanh", [4], 1, 3, 2),
            ("relu", "clip", [], 8, 8, 32),
            ("tanh", "tanh", [32], 16, 8, 9),
            ("relu", "tanh", [64, 64], 5, 6, 2),
            ("tanh", "clip", [3], 24, 1, 40),
        ),
        strict=True,
    )
}
"""One model of each combination of attention, inputs and products; the rest of the sizes vary."""

EXPECTING = {
    "memory6-change-products": AttentionSizes(
        8, 8, 9, 5, ["value", "change"], [7], True, "softmax", "relu", "clip", memory=6
    ),
    "memory5-all-extensions": AttentionSizes(
        3,
        6,
        8,
        4,
        ["value", "change"],
        [5],
        attention="softmax",
        memory=5,
        outlier_weighting=True,
        reset_on_jump=True,
        prediction_attention=True,
    ),
    "memory1-value": AttentionSizes(2, 3, 5, 4, ["value"], [], attention="softmax", memory=1),
}
"""Heads that expect what they will read."""
STACKED = {
    "stack4-authors": AttentionSizes(1, 12, 16, 32, ["value"], [], stack=4),
    "stack1-softmax": AttentionSizes(
        2, 5, 6, 4, ["value"], [7], attention="softmax", activation="relu", stack=1
    ),
    "stack3-products-memory": AttentionSizes(
        8, 12, 9, 5, ["value"], [7], True, "softmax", "relu", "clip", memory=6, stack=3
    ),
}
"""Neurons that see their newest readings, and remember nothing else."""
NORMALISED = {
    "normalised-tanh": AttentionSizes(2, 6, 9, 4, ["value"], [5], normalise=28),
    "normalised-softmax": AttentionSizes(
        2, 6, 9, 4, ["value", "change"], [5], attention="softmax", normalise=28
    ),
    "normalised-stack": AttentionSizes(2, 6, 9, 4, ["value"], [5], stack=2, normalise=28),
}
"""Sums over channels that are scaled to the nominal number of them."""
FORMS |= EXPECTING | STACKED | NORMALISED

ENGINES = ["numpy", "numba"] if find_spec("numba") else ["numpy"]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=list(FORMS))
def model(request: pytest.FixtureRequest):
    """A random model of one of the forms, its weights large enough to saturate now and then."""
    return make_random_model(FORMS[request.param], seed=len(request.param), gain=2.0)


@pytest.fixture(params=list(EXPECTING))
def expecting(request: pytest.FixtureRequest):
    """Sizes of a policy whose head has a memory."""
    return EXPECTING[request.param]


@pytest.fixture(scope="session")
def permutable():
    """A policy of every form and engine, for tests that draw one."""
    return [
        make_policy(make_random_model(sizes, seed=7, gain=2.0), engine=engine)
        for sizes in FORMS.values()
        for engine in ENGINES
    ]
