"""The student's sensory neurons as torch modules: an LSTM, or a layer on stacked readings.

Each sees T steps of B rows with N slots, shares its weights among all slots, and exports to the
policy's arrays. It learns on combinations of a channel's inputs (F of them), `basis` (F, F) times
what the policy gets, since readings change little from step to step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from an_control.learning.arrays import array_of

CHANGE_GAIN = 3.0
"""Changes between steps enter as this multiple (folded on export)."""

State = tuple[Tensor, Tensor]
"""Two parts (B, N, .), zeros where a neuron is reset."""


class LstmNeuron(nn.LSTM):
    """An LSTM on the reading, and its change if `change`. State: outputs h and cells c."""

    weight_ih_l0: nn.Parameter
    weight_hh_l0: nn.Parameter
    bias_ih_l0: nn.Parameter
    bias_hh_l0: nn.Parameter

    def __init__(self, actions: int, units: int, products: bool, change: bool = True) -> None:
        super().__init__(_width(1 + change, actions, products), units)
        self.actions, self.products = actions, products
        self.inputs = ("value", "change") if change else ("value",)
        self.basis = np.diag([1.0, CHANGE_GAIN][: 1 + change])
        with torch.no_grad():  # remember by default
            self.bias_ih_l0[units : 2 * units] += 1.0

    def begin(self, rows: int, slots: int) -> State:
        """The state at the begin of episodes."""
        zeros = self.weight_hh_l0.new_zeros(rows, slots, self.hidden_size)
        return zeros, zeros

    def advance(
        self, values: Tensor, change: Tensor, previous: Tensor, state: State
    ) -> tuple[Tensor, State]:
        """Outputs (T, B, N, d); `values`, `change` (T, B, N), previous actions (T, B, A)."""
        own = torch.stack([values, CHANGE_GAIN * change][: len(self.inputs)], -1)
        steps, rows, slots = values.shape
        outputs, (output, cell) = self(
            _entering(own, previous, self.products).reshape(steps, rows * slots, -1),
            (state[0].flatten(0, 1)[None], state[1].flatten(0, 1)[None]),
        )
        shape = rows, slots, self.hidden_size
        return outputs.reshape(steps, *shape), (output.view(shape), cell.view(shape))

    def arrays(self) -> dict[str, np.ndarray]:
        """The policy's arrays."""
        return {
            **_exported(self.weight_ih_l0, self.basis, self.actions),
            "neuron.hidden": array_of(self.weight_hh_l0),
            "neuron.bias": array_of(self.bias_ih_l0 + self.bias_hh_l0),
        }

    def begin_as(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take over a policy's arrays."""
        with torch.no_grad():
            self.weight_ih_l0.copy_(_imported(arrays, self.basis))
            self.weight_hh_l0.copy_(torch.from_numpy(arrays["neuron.hidden"].copy()))
            self.bias_ih_l0.copy_(torch.from_numpy(arrays["neuron.bias"].copy()))
            self.bias_hh_l0.zero_()


class StackedNeuron(nn.Linear):
    """A layer of tanh units on the newest readings. State: those before, and 1 where there are."""

    inputs = ("value",)

    def __init__(self, actions: int, units: int, products: bool, stack: int) -> None:
        super().__init__(_width(stack, actions, products), units)
        self.actions, self.products, self.stack = actions, products, stack
        self.basis = CHANGE_GAIN * (np.eye(stack, k=-1) - np.eye(stack))
        self.basis[0] = np.eye(stack)[0]

    def begin(self, rows: int, slots: int) -> State:
        """The state at the begin of episodes."""
        return tuple(self.weight.new_zeros(rows, slots, n) for n in (self.stack - 1, 1))  # type: ignore[return-value]

    def advance(
        self, values: Tensor, change: Tensor, previous: Tensor, state: State
    ) -> tuple[Tensor, State]:
        """Outputs (T, B, N, d); `values`, `change` (T, B, N), previous actions (T, B, A)."""
        older, known = state
        older = torch.where(known > 0, older, values[0].unsqueeze(-1))
        line = torch.cat([older.flip(-1).movedim(-1, 0), values])  # oldest first
        readings = line.unfold(0, self.stack, 1).flip(-1)
        own = readings @ torch.as_tensor(self.basis.T, dtype=values.dtype, device=values.device)
        outputs = torch.tanh(self(_entering(own, previous, self.products)))
        return outputs, (readings[-1][..., : self.stack - 1], torch.ones_like(known))

    def arrays(self) -> dict[str, np.ndarray]:
        """The policy's arrays."""
        exported = _exported(self.weight, self.basis, self.actions)
        return exported | {"neuron.bias": array_of(self.bias)}

    def begin_as(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take over a policy's arrays."""
        with torch.no_grad():
            self.weight.copy_(_imported(arrays, self.basis))
            self.bias.copy_(torch.from_numpy(arrays["neuron.bias"].copy()))


def _width(inputs: int, actions: int, products: bool) -> int:
    return inputs + actions + (inputs * actions if products else 0)


def _entering(own: Tensor, previous: Tensor, products: bool) -> Tensor:
    """What enters the neurons, (T, B, N, .): their own inputs, the previous action, products."""
    shared = previous.unsqueeze(2).expand(-1, -1, own.shape[2], -1)
    parts = [own, shared]
    if products:
        parts.append((own.unsqueeze(-1) * shared.unsqueeze(-2)).flatten(-2))
    return torch.cat(parts, -1)


def _exported(weight: Tensor, basis: np.ndarray, actions: int) -> dict[str, Any]:
    """A policy's arrays, from what is learned."""
    own, shared, *products = np.split(array_of(weight), _ends(weight.shape[1], basis, actions), 1)
    arrays = {"neuron.input": (own @ basis).astype(np.float32), "neuron.action": shared}
    for part in products:
        each = part.reshape(len(part), len(basis), actions)
        arrays["neuron.products"] = np.einsum("ufa,fg->uga", each, basis).astype(np.float32)
    return arrays


def _ends(width: int, basis: np.ndarray, actions: int) -> list[int]:
    ends = [len(basis), len(basis) + actions]
    return [end for end in ends if end < width]


def _imported(arrays: Mapping[str, np.ndarray], basis: np.ndarray) -> Tensor:
    """What is learned, from a policy's arrays."""
    back = np.linalg.inv(basis)
    parts = [arrays["neuron.input"] @ back, arrays["neuron.action"]]
    if "neuron.products" in arrays:
        products = np.einsum("ufa,fg->uga", arrays["neuron.products"], back)
        parts.append(products.reshape(len(products), -1))
    return torch.from_numpy(np.concatenate(parts, 1).astype(np.float32))
