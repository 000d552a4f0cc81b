"""Text for a mean over episodes with its standard error, as every command prints it."""

from __future__ import annotations

import math


def format_mean(mean: float, sd: float, count: int) -> str:
    """Return the mean of `count` episodes with its standard error, as text.

    A single episode has no standard error. `sd` is the standard deviation with ddof 0.
    """
    if count < 2:
        return f"{mean:.4g}"
    error = sd / math.sqrt(count - 1)
    return f"{mean:.4g} +- {error:.{0 if error >= 10.0 else 1}f} (standard error)"
