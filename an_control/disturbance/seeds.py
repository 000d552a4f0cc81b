"""The random generators of an episode, which all follow from (seed, episode).

No two kinds of random numbers share a generator, so that noise channels or faults do not change
which permutations an episode draws.
"""

from __future__ import annotations

import numpy as np

TRAINING_SEEDS = (2**31, 2**32)
"""The lowest seed of training's environments, and the bound above them; evaluation's seeds are
lower (see `derive_episode_seed`)."""


def derive_episode_seed(seed: int, episode: int) -> int:
    """Return the environment seed of an episode, from 0 to 2**31 - 1.

    Args:
        seed: The seed of the run.
        episode: The number of the episode.
    """
    return int(np.random.SeedSequence([seed, episode]).generate_state(1)[0] >> 1)


class RandomStreams:
    """The random generators of an episode: one attribute for each use, such as `noise`.

    A generator is made when its attribute is first read. A new attribute must be added behind all
    others in the class, so that the other generators draw the same numbers as before.

    Args:
        seed: The seed of the run.
        episode: The number of the episode.
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
    bias: np.random.Generator

    def __init__(self, seed: int, episode: int) -> None:
        self._entropy = [seed, episode, 1]
        self._places: np.ndarray | None = None

    def draw_fraction_of_each_range(self, range_count: int) -> np.ndarray:
        """Return a random number from 0 to 1 for each setting with a range, as (range_count,).

        It says where in its range, from low (0) to high (1), the setting's value for this episode
        lies. The first call draws the numbers; later calls return the same ones.

        Args:
            range_count: The number of settings that can have a range, equal in all calls.
        """
        if self._places is None:
            self._places = self.ranges.random(range_count)
        return self._places

    def __getattr__(self, name: str) -> np.random.Generator:
        if name not in NAMES:
            raise AttributeError(name)
        key = np.random.SeedSequence(self._entropy, spawn_key=(NAMES.index(name),))
        made = np.random.default_rng(key)
        setattr(self, name, made)
        return made


NAMES = tuple(RandomStreams.__annotations__)
