"""The random streams of an episode: everything follows from (seed, episode).

Two random things never share a stream: noise channels or faults do not change which permutations
an episode draws.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

TRAINING_SEEDS = (2**31, 2**32)
"""Range of the environment seeds of training; those of evaluation lie below (`episode_seed`)."""


def episode_seed(seed: int, episode: int) -> int:
    """The seed (0 .. 2**31-1) that episode `episode` of a run gives to `env.reset(seed=...)`."""
    return int(np.random.SeedSequence([seed, episode]).generate_state(1)[0] >> 1)


class Streams(NamedTuple):
    """A generator for each random thing. A new one goes last: the others then draw as before."""

    permutation: np.random.Generator
    missing: np.random.Generator
    noise: np.random.Generator
    faults: np.random.Generator
    copies: np.random.Generator
    jitter: np.random.Generator
    ranges: np.random.Generator
    delivery: np.random.Generator
    commands: np.random.Generator

    @classmethod
    def of(cls, seed: int, episode: int) -> Streams:
        """The streams of an episode, from their beginning."""
        root = np.random.SeedSequence([seed, episode, 1])
        return cls(*map(np.random.default_rng, root.spawn(len(cls._fields))))
