"""The sizes of a student, as a recipe names them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from an_control.learning.yaml_settings import Positive
from an_control.policy.sizes import Encoder, RecurrenceSizes


@dataclass(frozen=True)
class StudentSizes:
    """`neuron` units a channel, `key` numbers a key, `head` the hidden layers.

    A channel's neuron is an LSTM, or a layer on its `stack` newest readings where that is over 0.
    `memory` GRU units of the head expect what no channel shows; 0 for a head without. With
    `outlier_weighting` a reading counts the less the farther it lies from what was expected, with
    `prediction_attention` the attention also asks which query expected the reading. With
    `reset_on_jump` all neurons are reset where most readings jump at once.

    A student in the `paper`'s form has fixed queries, tanh attention and one linear layer; of the
    others it takes `neuron`, `stack`, `normalise` and what follows `output`.
    """

    neuron: Positive = 32
    key: Positive = 32
    head: tuple[int, ...] = (128, 64)
    products: bool = False
    memory: int = 0
    stack: int = 0
    outlier_weighting: bool = False
    reset_on_jump: bool = False
    prediction_attention: bool = False
    normalise: bool = False
    """Divide the sums over channels by their attention where that is over 1."""
    paper: bool = False
    output: Literal["clip", "tanh"] = "clip"
    """What is done to the head's last layer; by `distill` as the teacher does."""
    encoder: Encoder = "none"
    """Lets the neurons' outputs attend to each other first (Lee et al. 2019), all to all (sab) or
    by way of `inducing` points (isab)."""
    inducing: Positive = 16
    heads: Positive = 1
    """Of the encoder and of `pma`."""
    learned_queries: int = 0
    """In the paper's form: so many learned queries in place of its fixed ones; 0: fixed."""
    pma: int = 0
    """So many seeds pool the neurons' outputs by multihead attention, in place of the attention
    that multiplies the readings; 0: none do."""
    recurrence: RecurrenceSizes | None = None
    """A memory behind the message; not beside `memory`."""

    def __post_init__(self) -> None:
        if self.neuron % self.heads:
            raise ValueError(
                f"heads: {self.heads} does not divide the neurons' {self.neuron} units"
            )
        if self.pma and (self.memory or self.normalise or self.learned_queries):
            raise ValueError(
                f"pma: {self.pma}, beside memory, normalise or learned_queries it must be 0"
            )
        if self.learned_queries and not self.paper:
            raise ValueError(
                f"learned_queries: {self.learned_queries}, only the paper's form has other queries"
            )
        if self.recurrence is not None:
            self.recurrence.check()
            if self.memory:
                raise ValueError(f"memory: {self.memory}, beside a recurrence it must be 0")

    @property
    def parts(self) -> dict[str, Any]:
        """The sizes of encoder and pooling that an `AttentionSizes` has."""
        points = self.inducing if self.encoder == "isab" else 0
        heads = self.heads if self.encoder != "none" or self.pma else 1
        return {
            "encoder": self.encoder,
            "inducing": points,
            "heads": heads,
            "recurrence": self.recurrence,
        }
