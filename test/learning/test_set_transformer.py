# ruff: noqa: E402
"""The Set Transformer's torch modules compute what the policy does, and can be learned."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")

from an_control.learning.recurrence import SetEncoder, SetPooling
from an_control.policy.set_transformer import AttentionPooling, Encoder

WIDTH, HEADS, CHANNELS, ROWS = 8, 2, 9, 5


def some_present(rng):
    present = rng.random((ROWS, CHANNELS)) < 0.6
    present[0] = True
    present[1] = False
    return present


def in_numpy(module):
    """The policy's part with the module's weights, in float64 and nothing rounded."""
    arrays = {name: array.astype(np.float64) for name, array in module.to_arrays().items()}
    if isinstance(module, SetPooling):
        part = AttentionPooling(arrays, HEADS)
        return lambda rows: part(rows)[0]
    return Encoder(arrays, HEADS)


def parts():
    torch.manual_seed(0)
    return {
        "sab": SetEncoder("sab", WIDTH, HEADS, 0),
        "isab": SetEncoder("isab", WIDTH, HEADS, 4),
        "pma": SetPooling(3, WIDTH, HEADS),
    }


@pytest.mark.parametrize("name", parts())
def test_a_module_computes_what_the_policy_does_on_the_channels_that_are_present(name):
    module, rng = parts()[name], np.random.default_rng(1)
    values, present = rng.uniform(-1.0, 1.0, (ROWS, CHANNELS, WIDTH)), some_present(rng)
    with torch.no_grad():
        found = module(torch.tensor(values).float(), torch.tensor(present).float()).numpy()
    policy = in_numpy(module)
    for row, there, out in zip(values, present, found, strict=True):
        seen = out if name == "pma" else out[there]
        np.testing.assert_allclose(policy(row[there]), seen, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", parts())
def test_the_gradients_are_right(name):
    module, rng = parts()[name].double(), np.random.default_rng(2)
    present = torch.tensor(some_present(rng)).double()
    values = torch.tensor(rng.uniform(-1.0, 1.0, (ROWS, CHANNELS, WIDTH)), requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: module(x, present), (values,))


@pytest.mark.parametrize("name", parts())
def test_a_module_takes_over_a_models_arrays(name):
    module = parts()[name]
    arrays = {key: array + 0.5 for key, array in module.to_arrays().items()}
    module.load_arrays(arrays)
    again = module.to_arrays()
    assert arrays.keys() == again.keys()
    assert all((array == again[key]).all() for key, array in arrays.items())
