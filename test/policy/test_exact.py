"""Sums on a grid are exact: the same to the last bit as in unbounded arithmetic, in any order."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from an_control.policy.exact_sums import (
    MAX_READING,
    ORDINARY,
    OUTPUT_BITS,
    compute_sum_rounding_number,
    round_weights_for_exact_products,
)


@settings(max_examples=50, deadline=None)
@given(
    scale=st.sampled_from([1e-6, 0.1, 1.0, 8.0, 1e6]),
    columns=st.integers(1, 17),
    seed=st.integers(0, 2**32 - 1),
)
def test_products_with_neuron_outputs_are_exact(scale, columns, seed):
    rng = np.random.default_rng(seed)
    weights = rng.uniform(-scale, scale, (4, columns))
    weights[0] = scale  # every output of 1 drives this row to its largest sum
    outputs = np.round(rng.uniform(-1, 1, (columns, 5)) * 2**OUTPUT_BITS) / 2**OUTPUT_BITS
    outputs[:, 0] = 1.0
    on_grid, _ = round_weights_for_exact_products(weights)
    product = on_grid @ outputs
    for row in range(4):
        for column in range(5):
            terms = zip(on_grid[row], outputs[:, column], strict=True)
            exact = sum(Fraction(float(w)) * Fraction(float(h)) for w, h in terms)
            assert Fraction(float(product[row, column])) == exact
    tolerance = np.abs(weights).sum(axis=1, keepdims=True) * 2.0 ** (OUTPUT_BITS - 52)
    assert (np.abs(on_grid - weights) <= tolerance).all()


@pytest.mark.parametrize("largest", [ORDINARY, 1e6, MAX_READING])
@pytest.mark.parametrize("channels", [1, 2, 28, 4096])
def test_sums_of_rounded_terms_are_exact_in_any_order(channels, largest):
    rng = np.random.default_rng(channels)
    shift = compute_sum_rounding_number(channels, largest)
    for terms in (rng.uniform(-largest, largest, channels), np.full(channels, largest)):
        rounded = (terms + shift) - shift
        exact = float(sum(Fraction(float(term)) for term in rounded))
        assert rounded.sum() == rounded[::-1].sum() == exact
        assert rounded.dot(np.ones(channels)) == exact
        running = 0.0
        for term in rng.permutation(rounded):
            running += term
        assert running == exact
        assert np.abs(rounded - terms).max() <= largest * channels * 2.0**-50
