"""The arrays of a vision model, folded into what a tick needs.

Pixels are whole numbers, so their products with weights on a fine enough grid add up without
rounding (see `exact`): what a patch's neuron gives does not depend on the patch's place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from an_control.policy.exact_sums import shifter
from an_control.policy.model_file import Model
from an_control.policy.set_transformer import positional_table
from an_control.policy.sizes import VisionSizes

WHITE = 255.0


@dataclass(frozen=True)
class VisionWeights:
    """Folded arrays, float64; p pixels a patch, m the message, M the queries, f the frames.

    Keys and values are scaled to within [-1, 1] by powers of two, which changes no bit.
    """

    queries: np.ndarray
    """(M, m): from a key to its scores, with the scale 1 / sqrt(m); (0, m) with pma."""
    parts: Mapping[str, np.ndarray]
    """Of encoder and pooling, as they are."""
    key_scale: np.ndarray
    """(m,): what undoes the keys' scaling."""
    key: np.ndarray
    """((f - 1) p, m): from the differences between frames."""
    key_action: np.ndarray
    """(m, A)"""
    key_bias: np.ndarray
    """(m,)"""
    value: np.ndarray
    """(f, p, m): from a frame's pixels over their standard deviation."""
    value_mean: np.ndarray
    """(f, 1, m): from a frame's mean pixel over the standard deviation."""
    value_bias: np.ndarray
    """(m,)"""
    value_scale: np.ndarray
    """(m,): what undoes the values' scaling."""
    norm_weight: np.ndarray
    """(m,) of the message's layer norm."""
    norm_bias: np.ndarray
    """(m,)"""

    @classmethod
    def of(cls, model: Model) -> VisionWeights:
        sizes = model.sizes
        assert isinstance(sizes, VisionSizes)
        array = {name: value.astype(np.float64) for name, value in model.arrays.items()}
        pixels, message, frames = sizes.patch**2, sizes.message, sizes.stack
        key, action, key_bias = (array[f"key.{name}"] for name in ("change", "action", "bias"))
        key_scale = _power_of_two(
            sum(np.abs(part).sum(1) for part in (key, action, key_bias[:, None]))
        )
        queries = np.zeros((0, message))
        if sizes.attention != "pma":
            table = positional_table(sizes.queries, sizes.positions)
            queries = table @ array["query.weight"].T + array["query.bias"]
        value = array["value.weight"].T.reshape(frames, pixels, message)
        value_bias = array["value.bias"] + np.einsum(
            "fpm,p->m", value, array.get("value_norm.bias", np.zeros(pixels))
        )
        value = value * array.get("value_norm.weight", np.ones(pixels))[:, None]
        # A normed frame's pixels have at most the length sqrt(p): Cauchy and Schwarz.
        longest = np.sqrt(pixels) * np.sqrt((value**2).sum(1)).sum(0)
        value_scale = _power_of_two(longest + np.abs(value_bias))
        value = _on_grid(value / value_scale, pixels * WHITE)
        return cls(
            queries=queries * key_scale / np.sqrt(message),
            parts={n: one for n, one in array.items() if n.startswith(("encoder.", "pooling."))},
            key_scale=key_scale,
            key=_on_grid(key.T / key_scale / WHITE, key.shape[1] * WHITE),
            key_action=action / key_scale[:, None],
            key_bias=key_bias / key_scale,
            value=value,
            value_mean=value.sum(1, keepdims=True),
            value_bias=value_bias / value_scale,
            value_scale=value_scale,
            norm_weight=array.get("message_norm.weight", np.ones(message)),
            norm_bias=array.get("message_norm.bias", np.zeros(message)),
        )


def _power_of_two(bound: np.ndarray) -> np.ndarray:
    """The least powers of two above `bound` and a little room for rounding."""
    return np.ldexp(1.0, np.frexp(bound * (1.0 + 2.0**-20))[1])


def _on_grid(weights: np.ndarray, largest_sum: float) -> np.ndarray:
    """`weights` on a grid on which their sums of whole numbers are exact.

    `largest_sum` is the largest sum of those numbers' magnitudes.
    """
    largest = max(float(np.abs(weights).max()), 2.0**-100)
    shift = shifter(np.float64(2.0 ** (np.frexp(largest * largest_sum * 2.0)[1] - 53.0)))
    return np.asarray((weights + shift) - shift)
