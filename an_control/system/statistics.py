"""A mean over episodes and how far it may be off, as every command prints it."""

from __future__ import annotations

import math


def with_error(mean: float, sd: float, count: int) -> str:
    """A mean over so many episodes with its standard error, from their sd (ddof 0).

    Without an error where there is only one.
    """
    if count < 2:
        return f"{mean:.4g}"
    error = sd / math.sqrt(count - 1)
    return f"{mean:.4g} +- {error:.{0 if error >= 10.0 else 1}f} (standard error)"
