"""The shapes of what several kinds of policy are made of, and the bounds of every size."""

from __future__ import annotations

from itertools import pairwise

Shapes = dict[str, tuple[int, ...]]

MAX_SIZE = 65_536
MAX_LAYERS = 16
"""Hidden layers of a network."""


def head_shapes(inputs: int, hidden: list[int], actions: int) -> Shapes:
    """Of the head's layers, see `layer_shapes`."""
    return layer_shapes("head", [inputs, *hidden, actions])


def memory_shapes(units: int, inputs: int) -> Shapes:
    """Of GRU units, whose gates are in the order reset, update, new."""
    return {
        "memory.input": (3 * units, inputs),
        "memory.hidden": (3 * units, units),
        "memory.bias": (3 * units,),
        "memory.hidden_bias": (units,),
    }


def layer_shapes(name: str, widths: list[int]) -> Shapes:
    """Of a network's layers: weights (out, in) and biases (out,)."""
    shapes: Shapes = {}
    for layer, (width_in, width_out) in enumerate(pairwise(widths)):
        shapes[f"{name}.{layer}.weight"] = (width_out, width_in)
        shapes[f"{name}.{layer}.bias"] = (width_out,)
    return shapes
