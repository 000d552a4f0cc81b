"""Hints: in training, neurons are told which channel they read; ever fewer of them, then none.

A policy that knows its channels is found quickly, one that has to find them out hardly ever: until
it balances, what tells channels apart is worth nothing. So each channel has a code, searched like
the weights, that its neuron adds to its gates. First all neurons get theirs; then each gets it in a
falling share of the episodes, so that a neuron without it learns among others that do their work.
At the end there are no codes left: the policy is one of the form without hints.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from an_control.learning.es.parametrisation import Authors, Form
from an_control.learning.rollout.compiled.engine import Hints
from an_control.policy import AttentionSizes, Model
from an_control.policy.sizes import Shapes

ALL_UNTIL, NONE_FROM = 0.2, 0.6
"""Shares of the run: until when all neurons are told, and from when on none."""
CODE_SCALE = 0.5
"""How large a code's numbers usually are."""


@dataclass(frozen=True)
class Hinted(Form):
    """The form `own`, and a code for each of its task's channels."""

    own: Authors
    channels: int

    def __post_init__(self) -> None:
        if self.own.stack:
            raise ValueError("hints: only neurons with an LSTM take them")

    @property
    def sizes(self) -> AttentionSizes:
        return self.own.sizes

    @property
    def shapes(self) -> Shapes:
        return {**self.own.shapes, "codes": (self.channels, 4 * self.own.neuron)}

    @property
    def scales(self) -> np.ndarray:
        codes = np.full(self.size - self.own.size, CODE_SCALE)
        return np.concatenate([self.own.scales, codes])

    def arrays(self, free: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Without the codes: a model has none."""
        del free["codes"]
        return self.own.arrays(free)

    def vector(self, model: Model) -> np.ndarray:
        """With codes of zeros."""
        own = self.own.vector(model)
        return np.concatenate([own, np.zeros(self.size - len(own))])

    def hints(
        self, vectors: np.ndarray, share: float, episodes: int, rng: np.random.Generator
    ) -> Hints:
        """For policies (P, size): each channel's neuron is told in this share of the episodes."""
        codes = vectors[:, self.own.size :].reshape(-1, *self.shapes["codes"])
        told = rng.random((episodes, self.channels)) < share
        return Hints(np.ascontiguousarray(codes, np.float32), told.astype(np.float32))


def share_at(progress: float) -> float:
    """In what share of the episodes a neuron is told, at this progress (0 to 1) of the run."""
    return float(np.clip((NONE_FROM - progress) / (NONE_FROM - ALL_UNTIL), 0.0, 1.0))
