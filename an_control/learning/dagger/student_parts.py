"""What a student may have between its neurons and its head: encoder, pooling, recurrence."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor, nn

from an_control.learning.dagger.student_sizes import StudentSizes
from an_control.learning.recurrence import RecurrenceModule
from an_control.learning.set_transformer import SetEncoder, SetPooling

State = tuple[Tensor, ...]


class StudentParts(nn.Module):
    """The parts that `sizes` name, each of which may be absent; `message` numbers are the message,
    where nothing is pooled. T steps, B rows, N slots, d units of a neuron.
    """

    def __init__(self, sizes: StudentSizes, message: int) -> None:
        super().__init__()
        width, heads = sizes.neuron, sizes.heads
        self.encoder = self.pooling = self.recurrence = None
        if sizes.encoder != "none":
            self.encoder = SetEncoder(sizes.encoder, width, heads, sizes.inducing)
        self.width = message
        """How many numbers enter the head."""
        if sizes.pma:
            self.pooling, self.width = SetPooling(sizes.pma, width, heads), sizes.pma * width
        if sizes.recurrence is not None:
            self.recurrence = RecurrenceModule(self.width, sizes.recurrence)
            self.width = sizes.recurrence.units

    def encode(self, outputs: Tensor, present: Tensor) -> Tensor:
        """The neurons' outputs (T, B, N, d) behind the encoder."""
        return outputs if self.encoder is None else self.encoder(outputs, present)

    def remember(self, message: Tensor, state: State) -> tuple[Tensor, State]:
        """What enters the head (T, B, .), of the message (T, B, .), and the state after it."""
        if self.recurrence is None:
            return message, state
        remembered: tuple[Tensor, State] = self.recurrence(message, state)
        return remembered

    def start(self, rows: int) -> State:
        """The recurrence's state at the start of episodes."""
        return () if self.recurrence is None else self.recurrence.start(rows)

    def arrays(self) -> dict[str, np.ndarray]:
        """A model file's arrays."""
        parts = self.encoder, self.pooling, self.recurrence
        return {k: v for part in parts if part is not None for k, v in part.arrays().items()}

    def begin_as(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take over the arrays of those parts that a model has as well."""
        for name in ("encoder", "pooling", "recurrence"):
            part = getattr(self, name)
            if part is not None and any(one.startswith(f"{name}.") for one in arrays):
                part.begin_as(arrays)
