"""What torch has learned, as a model file keeps it."""

from __future__ import annotations

import numpy as np
from torch import Tensor


def array_of(tensor: Tensor) -> np.ndarray:
    """A copy in float32."""
    array: np.ndarray = tensor.detach().cpu().numpy().astype(np.float32)
    return array.copy()
