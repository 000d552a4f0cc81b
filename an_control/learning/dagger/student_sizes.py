"""The sizes of a student, as a recipe names them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from an_control.learning.yaml_settings import Positive


@dataclass(frozen=True)
class StudentSizes:
    """`neuron` units a channel, `key` numbers a key, `head` the hidden layers.

    A channel's neuron is an LSTM, or a layer on its `stack` newest readings where that is over 0.
    `memory` GRU units of the head expect what no channel shows; 0 for a head without. With
    `outlier_weighting` a reading counts the less the farther it lies from what was expected, with
    `prediction_attention` the attention also asks which query expected the reading. With
    `reset_on_jump` all neurons are reset where most readings jump at once.

    A student in the `paper`'s form has fixed queries, tanh attention and one linear layer; of the
    others it takes `neuron`, `stack` and `normalise`.
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
