"""Remove one part of a policy, to measure how much the part contributes (an ablation)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from an_control.learning.rollout.evaluation_protocol import RemovablePart
from an_control.policy import AttentionSizes, Model


def remove_part(model: Model, part: RemovablePart) -> Model:
    """Return a copy of the model without one of its parts.

    Args:
        model: A model of kind attention_neuron.
        part: "attention": the keys no longer depend on the readings, so that every channel gets the
            same weight. "queries": every query is replaced by the mean of all queries, so that all
            elements of the attention message are equal. "action": no sensory neuron receives the
            previous action (a recurrent layer after the attention still receives it).

    Raises:
        ValueError: The model has no such part.
    """
    arrays = dict(model.arrays)
    if not isinstance(model.sizes, AttentionSizes) or "attention.key" not in arrays:
        raise ValueError(f"without={part}: only for an attention_neuron with keys and queries")
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
