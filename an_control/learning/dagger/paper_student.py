"""A student built as in the paper: fixed queries, tanh attention, and a head of one layer.

It has the trainable numbers of the parametrisation `PaperForm`. Optional parts are learned queries,
pooling by attention (PMA), an encoder between the sensory neurons and the attention, and a
recurrence between attention and head. In training it also learns which channel each input slot
carries, by a layer that the exported policy does not have.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from an_control.learning.dagger.settings import StudentSizes
from an_control.learning.dagger.streams import StreamBatch
from an_control.learning.dagger.student import LstmNeuron, StackedNeuron, StudentParts, StudentState
from an_control.learning.es.parametrisation import (
    PaperForm,
    join_arrays_to_vector,
    split_vectors_into_arrays,
)
from an_control.learning.recurrence import to_array
from an_control.policy import Model
from an_control.policy.task import Task

FIRST_WEIGHTS = 0.35
"""Bound of the sensory neurons' uniform initial weights."""
CHANNEL_UNTIL = 0.6
"""Progress (0..1) of the run at which the weight of the channel loss has faded to 0."""


class PaperStudent(nn.Module):
    """Torch module of a student built as the policy in the paper (Tang & Ha 2021).

    Shapes in this class: T steps, B episodes, N input slots, A actions, n channels.

    Args:
        channels: Number n of channels.
        actions: Number A of actions.
        sizes: Sizes and optional parts of the network.
    """

    def __init__(self, channels: int, actions: int, sizes: StudentSizes) -> None:
        super().__init__()
        self.sizes, self.channels = sizes, channels
        self.form = PaperForm(
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
        if isinstance(self.neuron, LstmNeuron):  # initial forget bias 1; one bias, not two
            with torch.no_grad():
                self.neuron.bias_ih_l0[sizes.neuron : 2 * sizes.neuron] += 1.0
                self.neuron.bias_hh_l0.zero_()
            self.neuron.bias_hh_l0.requires_grad_(False)
        self.queries = sizes.pma or sizes.learned_queries or self.form.queries
        self.basis: Tensor
        basis = (
            self.form.attention_score_basis
            if not sizes.learned_queries
            else np.eye(sizes.learned_queries)
        )
        self.register_buffer("basis", torch.from_numpy(basis.astype(np.float32)), persistent=False)
        self.parts = StudentParts(sizes, self.queries)
        self.scores = nn.Parameter(0.8 * torch.randn(self.basis.shape[1], sizes.neuron))
        self.out = nn.Linear(self.parts.width, actions)
        nn.init.normal_(self.out.weight, 0.0, 0.25)
        nn.init.zeros_(self.out.bias)
        self.channel = nn.Linear(sizes.neuron, channels + 1)

    def load_all_weights(self, model: Model) -> None:
        """Copy all weights of a model that is built as in the paper and has the same sizes.

        Raises:
            ValueError: The student has parts that the paper's policy lacks, such as an encoder, or
                the model does not fit.
        """
        if not self._has_paper_form:
            raise ValueError(
                "--start-model: only the paper's own form, without other parts, can start from a"
                " model"
            )
        rows = split_vectors_into_arrays(
            self.form.to_vector(model)[None], self.form.free_parameter_shapes
        )
        arrays = {name: row[0] for name, row in rows.items()}
        hidden = {"neuron.hidden": arrays["neuron.hidden"]} if "neuron.hidden" in arrays else {}
        names = ("neuron.input", "neuron.action", "neuron.bias")
        self.neuron.load_arrays({name: arrays[name] for name in names} | hidden)
        with torch.no_grad():
            self.scores.copy_(torch.from_numpy(arrays["scores"]))
            self.out.weight.copy_(torch.from_numpy(arrays["head.0.weight"]))
            self.out.bias.copy_(torch.from_numpy(arrays["head.0.bias"]))

    def make_initial_state(self, rows: int, slots: int) -> StudentState:
        """Return the zero state at the start of `rows` episodes.

        Args:
            rows: Number B of episodes.
            slots: Number N of input slots of each episode.
        """
        none = self.scores.new_zeros(rows, slots, 0)
        neurons = self.neuron.make_initial_state(rows, slots)
        return StudentState(
            *neurons, none[:, 0], none[:, 0], none, self.parts.make_initial_state(rows)
        )

    def forward(
        self, batch: StreamBatch, state: StudentState
    ) -> tuple[Tensor, Tensor, StudentState]:
        """Run the student over a batch of T steps.

        Args:
            batch: Inputs of the steps.
            state: State before the first step.

        Returns:
            Actions (T, B, A) before their tanh, scores (T, B, N, n + 1), and the state after the
            last step. The scores say how likely a slot carries each channel; the last one stands
            for "no channel".
        """
        outputs, (first, second) = self.neuron.run_steps(
            batch.values, batch.change, batch.previous, (state.first, state.second)
        )
        message = self._compute_attention_message(
            batch, self.parts.encode_neuron_outputs(outputs, batch.present)
        )
        message, recurrence = self.parts.run_recurrence(message, state.recurrence)
        action: Tensor = self.out(message)
        state = state._replace(first=first, second=second, recurrence=recurrence)
        return action, self.channel(outputs), state

    def _compute_attention_message(self, batch: StreamBatch, encoded: Tensor) -> Tensor:
        """Compute the message (T, B, M), the weighted sums over the readings of all slots."""
        if self.parts.pooling is not None:
            pooled: Tensor = self.parts.pooling(encoded, batch.present).flatten(-2)
            return pooled
        attention = torch.tanh(encoded @ (self.basis @ self.scores).T)
        sums = ((batch.values * batch.present).unsqueeze(-2) @ attention).squeeze(-2)
        if self.sizes.normalise:
            sums = sums * self.channels / batch.present.sum(-1, keepdim=True).clamp(min=1.0)
        return torch.tanh(sums)

    def compute_loss(
        self, batch: StreamBatch, state: StudentState, channel_loss_weight: float, progress: float
    ) -> tuple[Tensor, StudentState, dict[str, float]]:
        """Compute the loss of the student on a batch, the sum of an action loss and a channel loss.

        The action loss is the cross-entropy of a choice between -1 and 1 for each action. The
        channel loss teaches the sensory neurons which channel each slot carries; its weight falls
        to 0 during the run.

        Args:
            batch: T steps of B episodes.
            state: State before the batch.
            channel_loss_weight: Weight of the channel loss at the start of the run.
            progress: Finished share (0..1) of the run.

        Returns:
            The loss; the state after the batch, without gradients; and the two losses by name, for
            the metrics.
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
        share = channel_loss_weight * max(0.0, 1.0 - progress / CHANNEL_UNTIL)
        figures = {"action_loss": acting.item(), "channel_loss": naming.item()}
        return acting + share * naming, state.detach(), figures

    def make_model(self, task: Task, trained: dict[str, Any]) -> Model:
        """Return a model (the contents of a model file) with the student's weights.

        Args:
            task: Channels, actuators and other properties of the robot.
            trained: How the model was trained, for the file's header.
        """
        arrays = {
            **self.neuron.to_arrays(),
            "head.0.weight": to_array(self.out.weight),
            "head.0.bias": to_array(self.out.bias),
        }
        if self._has_paper_form:
            arrays["scores"] = to_array(self.scores)
            return self.form.make_model(
                join_arrays_to_vector(arrays, self.form.free_parameter_shapes), task, trained
            )
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
            **self.sizes.encoder_and_recurrence_sizes,
        )
        return Model("attention_neuron", sizes, arrays | self.parts.to_arrays(), task, trained)

    @property
    def _has_paper_form(self) -> bool:
        """Return whether the student has the paper's fixed queries and no optional parts."""
        sizes = self.sizes
        return (
            not (sizes.pma or sizes.learned_queries or sizes.recurrence) and sizes.encoder == "none"
        )
