"""The student: the policy core's softmax AttentionNeuron as a torch module.

It computes what `an_control.policy` computes (Tang & Ha 2021, section 3; for each channel a softmax
over the queries, one query a nominal channel and the last one "none of them"), for whole pieces of
many episodes at once, and exports to its model file.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from an_control.learning.teachers import Layers
from an_control.policy import AttentionSizes, Model

CHANGE_GAIN = 3.0
"""Changes between steps are small: the neuron's input is this multiple (folded on export)."""

State = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class StudentSizes:
    """`neuron` LSTM units a channel, `key` numbers a key, `head` the hidden layers."""

    neuron: int = 32
    key: int = 32
    head: tuple[int, ...] = (128, 64)
    products: bool = False


class Student(nn.Module):
    """One query a nominal channel; T steps, B episodes, N channel slots, A actions."""

    def __init__(self, channels: int, actions: int, sizes: StudentSizes) -> None:
        super().__init__()
        self.channels, self.actions, self.sizes = channels, actions, sizes
        features = 2 + actions + (2 * actions if sizes.products else 0)
        self.neuron = nn.LSTM(features, sizes.neuron)
        self.key = nn.Linear(sizes.neuron, sizes.key)
        self.queries = nn.Parameter(torch.randn(channels + 1, sizes.key) / sizes.key**0.5)
        widths = [2 * channels, *sizes.head, actions]
        self.head = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        with torch.no_grad():  # remember by default
            self._lstm["bias_ih_l0"][sizes.neuron : 2 * sizes.neuron] += 1.0

    @property
    def _lstm(self) -> dict[str, nn.Parameter]:
        return dict(self.neuron.named_parameters())

    @property
    def _layers(self) -> list[nn.Linear]:
        return [layer for layer in self.head if isinstance(layer, nn.Linear)]

    def start_head(self, layers: Layers) -> None:
        """Let the head begin as the teacher's network, blind to the mass of the message."""
        if tuple(len(bias) for _, bias in layers[:-1]) != self.sizes.head:
            raise ValueError(
                f"head: {self.sizes.head}, but the teacher's is"
                f" {tuple(len(bias) for _, bias in layers[:-1])}"
            )
        with torch.no_grad():
            for layer, (weight, bias) in zip(self._layers, layers, strict=True):
                layer.weight.zero_()
                layer.weight[:, : weight.shape[1]] = torch.from_numpy(weight)
                layer.bias.copy_(torch.from_numpy(bias))

    def identify(
        self, values: Tensor, change: Tensor, previous: Tensor, state: State | None = None
    ) -> tuple[Tensor, State]:
        """Scores (T, B, N, channels + 1) of every slot against the queries, and the state.

        `values` and `change` are (T, B, N), `previous` the previous actions (T, B, A).
        """
        steps, batch, slots = values.shape
        own = torch.stack([values, CHANGE_GAIN * change], -1)
        shared = previous.unsqueeze(2).expand(-1, -1, slots, -1)
        inputs = [own, shared]
        if self.sizes.products:
            inputs.append((own.unsqueeze(-1) * shared.unsqueeze(-2)).flatten(-2))
        outputs, state = self.neuron(torch.cat(inputs, -1).reshape(steps, batch * slots, -1), state)
        scores = self.key(outputs) @ self.queries.T
        return scores.reshape(steps, batch, slots, -1), state

    @staticmethod
    def route(scores: Tensor, values: Tensor, present: Tensor) -> Tensor:
        """The message (T, B, 2 channels): routed values, and the mass of each query less one."""
        weights = scores.softmax(-1)[..., :-1] * present.unsqueeze(-1)
        routed = (values.unsqueeze(-2) @ weights).squeeze(-2)
        return torch.cat([routed, weights.sum(2) - 1.0], -1)

    def act(self, message: Tensor) -> Tensor:
        """The action (..., A) before it is clipped to [-1, 1]."""
        *hidden, last = self._layers
        for layer in hidden:
            message = torch.relu(layer(message))
        out: Tensor = last(message)
        return out

    def model(self, task: dict[str, Any], trained: dict[str, Any]) -> Model:
        """This student as a policy's model."""
        lstm = self._lstm
        inputs = _array(lstm["weight_ih_l0"])
        inputs[:, 1] *= CHANGE_GAIN
        end = 2 + self.actions
        arrays = {
            "neuron.input": inputs[:, :2],
            "neuron.action": inputs[:, 2:end],
            "neuron.hidden": _array(lstm["weight_hh_l0"]),
            "neuron.bias": _array(lstm["bias_ih_l0"] + lstm["bias_hh_l0"]),
            "attention.queries": _array(self.queries),
            "attention.key": _array(self.key.weight),
            "attention.key_bias": _array(self.key.bias),
        }
        if self.sizes.products:
            products = inputs[:, end:].reshape(-1, 2, self.actions).copy()
            products[:, 1] *= CHANGE_GAIN
            arrays["neuron.products"] = products
        for place, layer in enumerate(self._layers):
            arrays[f"head.{place}.weight"] = _array(layer.weight)
            arrays[f"head.{place}.bias"] = _array(layer.bias)
        arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        sizes = AttentionSizes(
            actions=self.actions,
            neuron=self.sizes.neuron,
            queries=self.channels + 1,
            key=self.sizes.key,
            inputs=["value", "change"],
            head=list(self.sizes.head),
            products=self.sizes.products,
            attention="softmax",
            activation="relu",
            output="clip",
        )
        return Model("attention_neuron", sizes, arrays, task, trained)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy().astype(np.float32).copy()
