"""The random streams of an episode: everything follows from (seed, episode).

Two random things never share a stream: noise channels or faults do not change which permutations
an episode draws.
"""

from __future__ import annotations

import numpy as np

TRAINING_SEEDS = (2**31, 2**32)
"""Range of the environment seeds of training; those of evaluation lie below (`episode_seed`)."""


def episode_seed(seed: int, episode: int) -> int:
    """The seed (0 .. 2**31-1) that episode `episode` of a run gives to `env.reset(seed=...)`."""
    return int(np.random.SeedSequence([seed, episode]).generate_state(1)[0] >> 1)


class Streams:
    """A generator for each random thing of an episode, made when it is first asked for.

    A new one goes last: the others then draw as before.
    """

    permutation: np.random.Generator
    missing: np.random.Generator
    noise: np.random.Generator
    faults: np.random.Generator
    copies: np.random.Generator
    jitter: np.random.Generator
    ranges: np.random.Generator
    delivery: np.random.Generator
    commands: np.random.Generator
    garbage: np.random.Generator

    def __init__(self, seed: int, episode: int) -> None:
        self._entropy = [seed, episode, 1]
        self._places: np.ndarray | None = None

    def places(self, count: int) -> np.ndarray:
        """Return a place from 0 to 1 for each of so many ranges, the same ones in all calls."""
        if self._places is None:
            self._places = self.ranges.random(count)
        return self._places

    def __getattr__(self, name: str) -> np.random.Generator:
        if name not in NAMES:
            raise AttributeError(name)
        key = np.random.SeedSequence(self._entropy, spawn_key=(NAMES.index(name),))
        made = np.random.default_rng(key)
        setattr(self, name, made)
        return made


NAMES = tuple(Streams.__annotations__)
