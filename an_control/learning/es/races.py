"""What keeps a search from stalling: races of starts, a number of episodes that follows the noise,
and when a search has stalled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from an_control.learning.es.optimisers import finite

MIN_RELIABLE, MAX_RELIABLE = 0.5, 0.9
"""Of the variance between candidates, the share that is theirs: with less more episodes are played,
with more fewer."""
MEMORY = 10
"""Generations over which that share is averaged."""
MIN_VALIDATIONS = 20
PATIENCE = 0.2
"""A search is given so many validations without a new best one, a third of all, and this share of
the run: the mean learns ever more slowly, so late gains take long."""
MIN_SIGMA = 1e-3
"""Of the first standard deviation."""
MAX_EQUAL = 10
"""Generations in a row in which all candidates return the same."""


class Race:
    """Successive halving (Karnin et al. 2013): contenders take turns, a generation each, and at
    even shares of the race's time the worse half leaves, until one is left.

    Args:
        count: how many contenders begin.
        begin, end: when, as a share of the run (0 to 1).
    """

    def __init__(self, count: int, begin: float, end: float) -> None:
        self.count, self.turn = count, 0
        halvings = math.ceil(math.log2(count))
        self._ends = np.linspace(begin, end, halvings + 1)[1:].tolist()

    @property
    def over(self) -> bool:
        return self.count == 1

    def next(self, progress: float) -> bool:
        """The next one's turn; whether it is time to `halve`: all have had as many."""
        self.turn = (self.turn + 1) % self.count
        return not self.over and self.turn == 0 and progress >= self._ends[0]

    def halve(self, scores: Sequence[float]) -> list[int]:
        """Who is left by these scores, the best first; NaN, of episodes that failed, is last."""
        ranks = finite(np.array(scores))
        ranked = sorted(range(self.count), key=lambda contender: -ranks[contender])
        self.count, self.turn = math.ceil(self.count / 2), 0
        self._ends = self._ends[1:]
        return ranked[: self.count]

    def rescale(self, ratio: float) -> None:
        """The run has another length: what was at a share of it is at `ratio` times that now."""
        self._ends = [ratio * end for end in self._ends]

    def state(self) -> dict[str, Any]:
        return {"count": self.count, "turn": self.turn, "ends": self._ends}

    def restore(self, state: dict[str, Any]) -> None:
        self.count, self.turn, self._ends = state["count"], state["turn"], list(state["ends"])


class EpisodeCount:
    """How many episodes each candidate plays: twice as many where chance decides the ranks, half as
    many where it hardly does.

    All candidates play the same episodes. So of the returns (P, R), what is left without the
    candidates' and the episodes' means is noise; the variance between candidates' means, without
    what that noise gives to it, is theirs.
    """

    def __init__(self, least: int, most: int) -> None:
        self._least, self._most = least, max(least, most)
        self.now = least
        self.reliable: float | None = None

    def see(self, returns: np.ndarray) -> None:
        """A generation's returns (P, R); rows with a NaN say nothing."""
        returns = returns[np.isfinite(returns).all(axis=1)]
        candidates, episodes = returns.shape
        if candidates < 2 or episodes < 2:
            return
        means = returns.mean(axis=1)
        rest = returns - means[:, None] - returns.mean(axis=0) + returns.mean()
        noise = float((rest**2).sum()) / ((candidates - 1) * (episodes - 1)) / episodes
        between = float(means.var(ddof=1))
        reliable = max(0.0, 1.0 - noise / between) if between > 0.0 else 1.0
        if self.reliable is None:
            self.reliable = reliable
        self.reliable += (reliable - self.reliable) / MEMORY
        if self.reliable < MIN_RELIABLE and 2 * self.now <= self._most:
            self.now, self.reliable = 2 * self.now, None
        elif self.reliable > MAX_RELIABLE and self.now // 2 >= self._least:
            self.now, self.reliable = self.now // 2, None

    def state(self) -> dict[str, Any]:
        return {"now": self.now, "reliable": self.reliable}

    def restore(self, state: dict[str, Any]) -> None:
        self.now, self.reliable = state["now"], state["reliable"]


class Stall:
    """Knows a search that will not get further."""

    def __init__(self, first_sigma: float) -> None:
        self._min_sigma = MIN_SIGMA * first_sigma
        self.start_over()

    def start_over(self) -> None:
        self._validations: list[float] = []
        self._progress: list[float] = []
        """Of the run, at each of these validations."""
        self._equal = 0

    def see(self, returns: np.ndarray) -> None:
        """A generation's returns (P, R); rows with a NaN say nothing."""
        means = returns.mean(axis=1)
        self._equal = self._equal + 1 if np.ptp(means[np.isfinite(means)]) == 0.0 else 0

    def found(self, sigma: float, validation: float, error: float, progress: float) -> str | None:
        """Why the search has stalled, or None: its sigma, a validation with its standard error, and
        the run's progress (0 to 1)."""
        self._validations.append(-math.inf if math.isnan(validation) else validation)
        self._progress.append(progress)
        if self._equal >= MAX_EQUAL:
            return f"all candidates return the same in {self._equal} generations"
        if sigma < self._min_sigma:
            return f"sigma {sigma:.2g} is below {self._min_sigma:.2g}"
        lately = sum(then > progress - PATIENCE for then in self._progress)
        waited = max(MIN_VALIDATIONS, len(self._validations) // 3, lately)
        before, after = self._validations[:-waited], self._validations[-waited:]
        if before and max(after) <= max(before) + error:
            return f"no better validation in {waited}"
        return None

    def rescale(self, ratio: float) -> None:
        """See `Race.rescale`."""
        self._progress = [ratio * then for then in self._progress]

    def state(self) -> dict[str, Any]:
        validations = {"validations": self._validations, "progress": self._progress}
        return {**validations, "equal": self._equal}

    def restore(self, state: dict[str, Any]) -> None:
        self._validations, self._equal = list(state["validations"]), state["equal"]
        self._progress = list(state["progress"])
