"""Models with random weights, which are the start of learning and serve tests and benchmarks."""

from __future__ import annotations

import math

import numpy as np

from an_control.policy.model_file import Model
from an_control.policy.sizes import Sizes, get_model_kind
from an_control.policy.task import Task


def make_random_model(
    sizes: Sizes, seed: int = 0, gain: float = 1.0, task: Task | None = None
) -> Model:
    """Make a model with random weights; the same arguments give the same model.

    Weights are uniform within ``gain / sqrt(fan-in)``, as PyTorch initialises layers. The fixed
    queries, which no input feeds, are uniform within `gain`; a layer norm's weights lie around 1.

    Args:
        sizes: The sizes of the model, which imply its kind.
        seed: The seed of the random generator for the weights.
        gain: The factor on all weights; 0 makes every action 0.
        task: The description of the task to store in the model.
    """
    rng = np.random.default_rng(seed)
    arrays = {}
    for name, shape in sizes.list_array_shapes().items():
        fan_in = 1 if name == "attention.queries" else math.prod(shape[1:] or shape)
        limit = gain / math.sqrt(fan_in)
        array = rng.uniform(-limit, limit, shape) + name.endswith("norm.weight")
        arrays[name] = array.astype(np.float32)
    return Model(
        get_model_kind(sizes), sizes, arrays, task or Task(), {"by": "random_model", "seed": seed}
    )
