"""Convert torch tensors to the numpy arrays of a model file."""

from __future__ import annotations

import numpy as np
from torch import Tensor


def to_array(tensor: Tensor) -> np.ndarray:
    """Return a float32 copy of `tensor` as a numpy array."""
    array: np.ndarray = tensor.detach().cpu().numpy().astype(np.float32)
    return array.copy()
