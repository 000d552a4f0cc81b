"""Returns of episodes, where NaN stands for one that failed: it is left out of every mean."""

from __future__ import annotations

import numpy as np


def finite_returns(returns: np.ndarray) -> np.ndarray:
    """Those that are finite (K,)."""
    known = np.isfinite(returns)
    return returns.ravel() if known.all() else returns[known]


def mean_return(returns: np.ndarray) -> float:
    """The mean of those that are finite; -inf, the worst of all, where none is."""
    known = finite_returns(returns)
    return float(known.mean()) if known.size else -np.inf


def standard_error(returns: np.ndarray) -> float:
    """The standard error of `mean_return`; 0 where none is finite."""
    known = finite_returns(returns)
    return float(known.std() / np.sqrt(known.size)) if known.size else 0.0


def failures(returns: np.ndarray) -> int:
    """How many episodes failed."""
    return returns.size - finite_returns(returns).size


def playable(returns: np.ndarray) -> np.ndarray:
    """Of candidates' returns (P, R) the episodes that did not fail for all; else all of them."""
    some = np.isfinite(returns).any(axis=0)
    return returns[:, some] if some.any() and not some.all() else returns
