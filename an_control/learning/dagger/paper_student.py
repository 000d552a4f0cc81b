"""The student in the paper's form, as a torch module: fixed queries, tanh attention, one layer.

It has the free numbers of `Authors`; or learned queries, seeds that pool (PMA), an encoder between
the channels, a recurrence behind the message. Beside the action it learns which channel a slot
carries, by a layer on the neurons' outputs that the policy does not have.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from an_control.learning.arrays import to_array
from an_control.learning.dagger.settings import StudentSizes
from an_control.learning.dagger.streams import Batch
from an_control.learning.dagger.student import LstmNeuron, StackedNeuron, State, StudentParts
from an_control.learning.es.parametrisation import Authors, join, split
from an_control.policy import Model

FIRST_WEIGHTS = 0.35
CHANNEL_UNTIL = 0.6
"""The share of the run at which the channels' loss has faded out."""


class PaperStudent(nn.Module):
    """T steps, B episodes, N channel slots, A actions; n nominal channels."""

    def __init__(self, channels: int, actions: int, sizes: StudentSizes) -> None:
        super().__init__()
        self.sizes, self.channels = sizes, channels
        self.form = Authors(
            actions,
            neuron=sizes.neuron,
            stack=sizes.stack,
            normalise=channels if sizes.normalise else 0,
        )
        self.neuron = (
            StackedNeuron(actions, sizes.neuron, False, sizes.stack)
            if sizes.stack
            else LstmNeuron(actions, sizes.neuron, False, change=False)
        )
        for parameter in self.neuron.parameters():
            nn.init.uniform_(parameter, -FIRST_WEIGHTS, FIRST_WEIGHTS)
        if isinstance(self.neuron, LstmNeuron):  # remember by default; one bias, not two
            with torch.no_grad():
                self.neuron.bias_ih_l0[sizes.neuron : 2 * sizes.neuron] += 1.0
                self.neuron.bias_hh_l0.zero_()
            self.neuron.bias_hh_l0.requires_grad_(False)
        self.queries = sizes.pma or sizes.learned_queries or self.form.queries
        self.basis: Tensor
        basis = (
            self.form.scores_basis if not sizes.learned_queries else np.eye(sizes.learned_queries)
        )
        self.register_buffer("basis", torch.from_numpy(basis.astype(np.float32)), persistent=False)
        self.parts = StudentParts(sizes, self.queries)
        self.scores = nn.Parameter(0.8 * torch.randn(self.basis.shape[1], sizes.neuron))
        self.out = nn.Linear(self.parts.width, actions)
        nn.init.normal_(self.out.weight, 0.0, 0.25)
        nn.init.zeros_(self.out.bias)
        self.channel = nn.Linear(sizes.neuron, channels + 1)

    def start_neurons(self, model: Model) -> None:
        """Begin as a model of this form; ValueError where it is none."""
        if not self._is_authors:
            raise ValueError("start: only the paper's own form can begin as a model")
        rows = split(self.form.vector(model)[None], self.form.shapes)
        arrays = {name: row[0] for name, row in rows.items()}
        hidden = {"neuron.hidden": arrays["neuron.hidden"]} if "neuron.hidden" in arrays else {}
        names = ("neuron.input", "neuron.action", "neuron.bias")
        self.neuron.load_arrays({name: arrays[name] for name in names} | hidden)
        with torch.no_grad():
            self.scores.copy_(torch.from_numpy(arrays["scores"]))
            self.out.weight.copy_(torch.from_numpy(arrays["head.0.weight"]))
            self.out.bias.copy_(torch.from_numpy(arrays["head.0.bias"]))

    def start(self, rows: int, slots: int) -> State:
        """The state at the start of an episode in every row."""
        none = self.scores.new_zeros(rows, slots, 0)
        neurons = self.neuron.begin(rows, slots)
        return State(*neurons, none[:, 0], none[:, 0], none, self.parts.start(rows))

    def forward(self, batch: Batch, state: State) -> tuple[Tensor, Tensor, State]:
        """Actions (T, B, A) before their tanh, scores (T, B, N, n + 1) of channels, the state."""
        outputs, (first, second) = self.neuron.advance(
            batch.values, batch.change, batch.previous, (state.first, state.second)
        )
        message = self._message(batch, self.parts.encode(outputs, batch.present))
        message, recurrence = self.parts.remember(message, state.recurrence)
        action: Tensor = self.out(message)
        state = state._replace(first=first, second=second, recurrence=recurrence)
        return action, self.channel(outputs), state

    def _message(self, batch: Batch, encoded: Tensor) -> Tensor:
        """The message (T, B, .) of the neurons' outputs (T, B, N, d) behind the encoder."""
        if self.parts.pooling is not None:
            pooled: Tensor = self.parts.pooling(encoded, batch.present).flatten(-2)
            return pooled
        attention = torch.tanh(encoded @ (self.basis @ self.scores).T)
        sums = ((batch.values * batch.present).unsqueeze(-2) @ attention).squeeze(-2)
        if self.sizes.normalise:
            sums = sums * self.channels / batch.present.sum(-1, keepdim=True).clamp(min=1.0)
        return torch.tanh(sums)

    def loss(
        self, batch: Batch, state: State, channel_loss: float, progress: float
    ) -> tuple[Tensor, State, dict[str, float]]:
        """The loss at this progress (0..1) of the run, the state after the batch, and figures.

        An action's error is the cross-entropy of a choice between -1 and 1.
        """
        action, scores, state = self(batch, state)
        chance, steps = (1.0 + batch.labels) / 2.0, batch.counts.sum()
        wrong = nn.functional.binary_cross_entropy_with_logits(
            2.0 * action, chance, reduction="none"
        )
        acting = (wrong.sum(-1) * batch.counts).sum() / steps
        true = nn.functional.one_hot(batch.channel, self.channels + 1)
        mistaken = 0.5 * ((scores - true) ** 2).sum(-1) * batch.present
        naming = (mistaken.sum(-1) * batch.counts).sum() / steps
        share = channel_loss * max(0.0, 1.0 - progress / CHANNEL_UNTIL)
        figures = {"action_loss": acting.item(), "channel_loss": naming.item()}
        return acting + share * naming, state.detach(), figures

    def model(self, task: dict[str, Any], trained: dict[str, Any]) -> Model:
        """This student as a policy's model."""
        arrays = {
            **self.neuron.arrays(),
            "head.0.weight": to_array(self.out.weight),
            "head.0.bias": to_array(self.out.bias),
        }
        if self._is_authors:
            arrays["scores"] = to_array(self.scores)
            return self.form.model(join(arrays, self.form.shapes), task, trained)
        d = self.sizes.neuron
        if not self.sizes.pma:
            arrays |= {
                "attention.queries": to_array(self.basis @ self.scores),
                "attention.key": np.eye(d, dtype=np.float32),
                "attention.key_bias": np.zeros(d, np.float32),
            }
        sizes = replace(
            self.form.sizes,
            queries=self.queries,
            key=d,
            attention="pma" if self.sizes.pma else "tanh",
            **self.sizes.parts,
        )
        return Model("attention_neuron", sizes, arrays | self.parts.arrays(), task, trained)

    @property
    def _is_authors(self) -> bool:
        """Whether it has the authors' queries, and no parts that theirs has not."""
        sizes = self.sizes
        return (
            not (sizes.pma or sizes.learned_queries or sizes.recurrence) and sizes.encoder == "none"
        )
