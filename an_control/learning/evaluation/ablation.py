"""A policy without one of its parts: what does the part contribute?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from an_control.learning.rollout.evaluation_protocol import Part
from an_control.policy import AttentionSizes, Model


def without(model: Model, part: Part) -> Model:
    """The same model with these weights taken out; ValueError for one without such a part.

    attention   the keys do not depend on what the neurons hold: every channel gets the same weight
    queries     every query is their mean: no place of the message differs from another one
    action      no neuron sees the previous action (where a memory does, it still sees it)
    """
    arrays = dict(model.arrays)
    if not isinstance(model.sizes, AttentionSizes) or "attention.key" not in arrays:
        raise ValueError(f"without={part}: needs an attention_neuron with keys and queries")
    if part == "attention":
        arrays["attention.key"] = np.zeros_like(arrays["attention.key"])
    elif part == "queries":
        queries = arrays["attention.queries"].copy()
        of_channels = queries if model.sizes.attention == "tanh" else queries[:-1]
        of_channels[:] = of_channels.mean(0)
        arrays["attention.queries"] = queries
    else:
        for name in ("neuron.action", "neuron.products"):
            if name in arrays:
                arrays[name] = np.zeros_like(arrays[name])
    return replace(model, arrays=arrays)
