"""Supervised tasks that only a network with a memory (a recurrent network) can solve.

The inputs do not depend on the answers, so the tasks can be learned by supervision, and every
memory learns from the same episodes.

RepeatPrevious is popgym's (Morad et al. 2023, "POPGym: Benchmarking Partially Observable
Reinforcement Learning"): name the suit of the card some steps ago. The T-maze is Bakker's (2002,
"Reinforcement Learning with Long Short-Term Memory", with noise), passive as in Ni et al. 2023
("When Do Transformers Shine in RL?"): a sign at the start shows where to turn at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np

F32 = np.float32
SUITS = 4
RECORDED = 4_000
"""Number of recorded popgym episodes from which batches for training are drawn."""
PLAYED = 100
"""Number of episodes in which a score is measured; they are not used in training."""
FIRST_PLAYED = 1_000_000
"""Seed of the first of the `PLAYED` episodes."""


class MemoryBatch(NamedTuple):
    """Inputs and right answers of B episodes of T steps, for the training of a recurrent network.

    Attributes:
        seen: The F inputs at each step (T, B, F) float32.
        right: The right answers (B, T), or (B,) if only the final step counts; -1 where no answer
            counts.
    """

    seen: np.ndarray
    right: np.ndarray


Answers = Callable[[np.ndarray], np.ndarray]
"""A function from inputs (T, B, F) to answers with the shape of `MemoryBatch.right`."""


class MemoryTask(Protocol):
    """The interface of a task that tests whether a recurrent network remembers earlier inputs.

    Attributes:
        name: The name in tables.
        features: The number of inputs F.
        answers: The number of possible answers.
        steps: The number of steps of the longest episode.
        last: Whether only the answer of the final step counts.
    """

    name: str
    features: int
    answers: int
    steps: int
    last: bool

    def make_batch(self, rng: np.random.Generator, episodes: int) -> MemoryBatch:
        """Return a batch of random episodes for training."""

    def measure_share_of_right_answers(self, answer: Answers) -> float:
        """Return the share of right answers in episodes that are not used in training.

        Args:
            answer: The trained network: a function from inputs (T, B, F) of B episodes, T steps and
                F inputs to answers (B, T), or (B,) if only the final step counts.
        """


class RepeatPrevious:
    """popgym's task RepeatPrevious: name the suit of the card that came some steps ago.

    At each step the input is the suit of the newest card, one of four.

    Args:
        level: "Easy", "Medium" or "Hard": the card came 3, 31 or 63 steps ago.
    """

    features = answers = SUITS
    last = False

    def __init__(self, level: str) -> None:
        from popgym.envs import repeat_previous

        self.name = f"RepeatPrevious {level}"
        self._level = level
        self._env: Any = getattr(repeat_previous, f"RepeatPrevious{level}")()
        self.steps = int(self._env.deck.num_cards) - 1

    def make_batch(self, rng: np.random.Generator, episodes: int) -> MemoryBatch:
        """Return a batch of random episodes for training."""
        recorded = _record_card_suits(self._level)
        return self._make_batch(recorded[rng.integers(len(recorded), size=episodes)])

    def measure_share_of_right_answers(self, answer: Answers) -> float:
        """Return the share of right answers in new episodes; `answer` is the trained network."""
        suits = np.array(
            [_record_card_suits_of_episode(self._env, FIRST_PLAYED + one) for one in range(PLAYED)]
        )
        given = answer(self._make_batch(suits).seen)
        returns = [
            self._play_episode_and_sum_rewards(FIRST_PLAYED + one, row)
            for one, row in enumerate(given)
        ]
        return 0.5 + 0.5 * float(np.mean(returns))  # each step gives +- its share of 1

    def _play_episode_and_sum_rewards(self, seed: int, answers: np.ndarray) -> float:
        """Play an episode with these answers (T,) and return the sum of the rewards."""
        self._env.reset(seed=seed)
        return float(sum(self._env.step(int(one))[1] for one in answers))

    def _make_batch(self, suits: np.ndarray) -> MemoryBatch:
        """Return the batch for episodes in which the cards have these suits (B, T)."""
        ago = self._env.k - 1
        right = np.full(suits.shape, -1, np.int64)
        right[:, ago:] = suits[:, : suits.shape[1] - ago]
        return MemoryBatch(np.eye(SUITS, dtype=F32)[suits].swapaxes(0, 1), right)


@lru_cache
def _record_card_suits(level: str) -> np.ndarray:
    """Play E = `RECORDED` episodes of popgym's environment and return the cards' suits (E, T)."""
    env = RepeatPrevious(level)._env
    return np.array([_record_card_suits_of_episode(env, seed) for seed in range(RECORDED)])


def _record_card_suits_of_episode(env: Any, seed: int) -> np.ndarray:
    """Play one episode and return the suits (T,) of its cards."""
    suits, over = [env.reset(seed=seed)[0]], False
    while not over:
        seen, _, over, _, _ = env.step(0)
        suits.append(seen)
    return np.array(suits[:-1])  # the last input gets no answer


class TMaze:
    """A memory task: a sign at the start of a corridor shows where to turn at its end.

    An input has three numbers: the sign is (0, 1, 1) for left or (1, 1, 0) for right, a step in the
    corridor is (a, 0, b) with random a and b from 0 to 1, and its end is (0, 1, 0). In training,
    corridors are often shorter, so that short ones are learned first.

    Args:
        length: The number of steps in the corridor; in training the maximum.
    """

    features, answers, last = 3, 2, True

    def __init__(self, length: int = 1_500) -> None:
        self.name = f"T-maze {length:,}"
        self._length = length
        self.steps = length + 2

    def make_batch(self, rng: np.random.Generator, episodes: int) -> MemoryBatch:
        """Return a batch of random episodes for training."""
        length = round(float(np.exp(rng.uniform(0.0, np.log(self._length)))))
        return self._make_batch(rng, episodes, length)

    def measure_share_of_right_answers(self, answer: Answers) -> float:
        """Return the share of right answers in new episodes; `answer` is the trained network."""
        seen, right = self._make_batch(np.random.default_rng(FIRST_PLAYED), PLAYED, self._length)
        return float((answer(seen) == right).mean())

    def _make_batch(self, rng: np.random.Generator, episodes: int, length: int) -> MemoryBatch:
        """Return a batch of random episodes."""
        seen = rng.random((length + 2, episodes, 3), F32)
        right = rng.integers(2, size=episodes)
        seen[:, :, 1] = 0.0
        seen[0] = np.stack([right, np.ones(episodes), 1 - right], 1)
        seen[-1] = [0.0, 1.0, 0.0]
        return MemoryBatch(seen, right)
