"""Format a mean over episodes with its standard error, as every command prints it."""

from __future__ import annotations

import math


def format_mean_with_standard_error(mean: float, sd: float, count: int) -> str:
    """Format a mean over episodes together with its standard error as text.

    A single episode has no standard error.

    Args:
        mean: The mean.
        sd: The standard deviation over the episodes, which divides by `count` (numpy's ddof 0).
        count: The number of episodes.
    """
    if count < 2:
        return f"{mean:.4g}"
    error = sd / math.sqrt(count - 1)
    return f"{mean:.4g} +- {error:.{0 if error >= 10.0 else 1}f} (standard error)"
