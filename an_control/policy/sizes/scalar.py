"""The sizes of the policies for scalar channels."""

from __future__ import annotations

from dataclasses import dataclass
from reprlib import repr as short
from typing import ClassVar, Literal

from an_control.policy.sizes.recurrence import RecurrenceSizes
from an_control.policy.sizes.set_transformer import (
    Encoder,
    check_parts,
    encoder_shapes,
    pooling_shapes,
)
from an_control.policy.sizes.shapes import Shapes, head_shapes, memory_shapes


@dataclass(frozen=True)
class AttentionSizes:
    """The AttentionNeuron (Tang & Ha 2021, sections 3.1-3.2) for scalar channels.

    A neuron is an LSTM of `neuron` units; or, where `stack` is over 0, a layer of `neuron` tanh
    units that sees the `stack` newest readings of its channel and has no other state. `inputs` are
    a reading and, where asked for, its change since the last tick.

    Not in the paper (`an_control.policy.reference_extensions` has the equations):

    products              the neuron also sees its inputs times the previous action
    attention             the paper's ``tanh``; for each channel a ``softmax`` over the queries,
                          whose last query stands for "none of them"; or ``pma``, in which each
                          query attends to the neurons' outputs and nothing is multiplied by
                          readings
    encoder               lets the neurons' outputs attend to each other first: to all (``sab``), or
                          by way of `inducing` points (``isab``); `heads` of the encoder and of pma
    memory                GRU units (0: none) by which the head behind softmax attention imputes
                          missing channels
    outlier_weighting     the head weighs a reading less the farther it is from the expected one
    prediction_attention  the attention also asks which query expected a channel's reading
    reset_on_jump         all neurons are reset where most readings jump at once
    recurrence            a memory behind the message, whose output enters the head
    normalise             the nominal number of channels, so that added ones make the message no
                          larger; 0 leaves the sums as they are. Sums behind tanh attention are
                          multiplied by it over the number present, which changes no bit while
                          these are as many; those behind softmax attention are divided by their
                          attention where that is over 1.
    """

    actions: int
    neuron: int
    queries: int
    key: int
    inputs: list[str]
    head: list[int]
    products: bool = False
    attention: Literal["tanh", "softmax", "pma"] = "tanh"
    activation: Literal["tanh", "relu"] = "tanh"
    output: Literal["tanh", "clip"] = "tanh"
    memory: int = 0
    stack: int = 0
    outlier_weighting: bool = False
    reset_on_jump: bool = False
    prediction_attention: bool = False
    normalise: int = 0
    encoder: Encoder = "none"
    inducing: int = 0
    heads: int = 1
    recurrence: RecurrenceSizes | None = None

    @property
    def compiles(self) -> bool:
        """Whether compiled code knows all of its parts."""
        return not self.compares and self.recurrence is None

    @property
    def compiles_in_rollouts(self) -> bool:
        """Whether the compiled rollouts, which play many episodes at once, know them too."""
        return self.compiles and not self.memory and not self.reset_on_jump

    @property
    def compares(self) -> bool:
        """Whether channels are compared with each other: an encoder or pma."""
        return self.encoder != "none" or self.attention == "pma"

    @property
    def features(self) -> int:
        """How many inputs a neuron has of its channel."""
        return self.stack or len(self.inputs)

    @property
    def message(self) -> int:
        """Length of the attention message, which is the head's input where it has no memory."""
        if self.attention == "pma":
            return self.queries * self.neuron
        return self.queries if self.attention == "tanh" else 2 * (self.queries - 1)

    def shapes(self) -> Shapes:
        units, features = self.neuron if self.stack else 4 * self.neuron, self.features
        recurrent = {} if self.stack else {"neuron.hidden": (units, self.neuron)}
        shapes: Shapes = {
            "neuron.input": (units, features),
            "neuron.action": (units, self.actions),
            **recurrent,
            "neuron.bias": (units,),
            **encoder_shapes(self.encoder, self.neuron, self.inducing),
        }
        if self.attention == "pma":
            shapes |= pooling_shapes(self.queries, self.neuron)
        else:
            shapes |= {
                "attention.queries": (self.queries, self.key),
                "attention.key": (self.key, self.neuron),
                "attention.key_bias": (self.key,),
            }
        if self.products:
            shapes["neuron.products"] = (units, features, self.actions)
        if self.recurrence is not None:
            shapes |= self.recurrence.shapes(self.message)
            return shapes | head_shapes(self.recurrence.units, self.head, self.actions)
        if not self.memory:
            return shapes | head_shapes(self.message, self.head, self.actions)
        units, message = self.memory, self.message
        shapes |= memory_shapes(units, message + self.actions) | {
            "expectation.weight": (message // 2, units + message + self.actions),
            "expectation.bias": (message // 2,),
        }
        if self.outlier_weighting:
            shapes["memory.log_outlier_weight"] = (message // 2,)
        if self.prediction_attention:
            shapes["attention.prediction"] = (4, message // 2)
        return shapes | head_shapes(message // 2 + units, self.head, self.actions)

    def check(self) -> None:
        """ValueError where the numbers do not fit each other."""
        if self.memory and self.attention != "softmax":
            raise ValueError(f"sizes.memory: {self.memory}, {self.attention} attention allows 0")
        if self.normalise and self.attention == "pma":
            raise ValueError(f"sizes.normalise: {self.normalise}, pma attention allows 0")
        if self.attention == "pma" and self.key != self.neuron:
            raise ValueError(
                f"sizes.key: {self.key}, pma attention allows its neurons' {self.neuron}"
            )
        check_parts(self, self.neuron, "neurons' {} units")
        if self.memory and self.recurrence is not None:
            raise ValueError(f"sizes.memory: {self.memory}, a recurrence allows 0")
        if self.recurrence is not None:
            self.recurrence.check()
        if self.memory and self.normalise:
            raise ValueError(f"sizes.normalise: {self.normalise}, a head with memory allows 0")
        if self.stack and self.inputs != ["value"]:
            raise ValueError(f"sizes.inputs: {short(self.inputs)}, a stack allows ['value']")
        for name in ("outlier_weighting", "prediction_attention"):
            if getattr(self, name) and not self.memory:
                raise ValueError(f"sizes.{name}: true, a head without memory allows false")
        if self.attention == "softmax" and self.queries < 2:
            raise ValueError(f"sizes.queries: {self.queries}, softmax attention needs at least 2")


def paper_sizes(
    actions: int,
    queries: int,
    hidden_layers: int,
    neuron: int = 8,
    key: int = 32,
    stack: int = 0,
    normalise: int = 0,
    encoder: Encoder = "none",
    inducing: int = 0,
    heads: int = 1,
    recurrence: RecurrenceSizes | None = None,
) -> AttentionSizes:
    """The paper's form for continuous control: raw readings, tanh attention, an even head; with
    further parts where they are asked for."""
    return AttentionSizes(
        actions=actions,
        neuron=neuron,
        queries=queries,
        key=key,
        inputs=["value"],
        head=[queries] * hidden_layers,
        stack=stack,
        normalise=normalise,
        encoder=encoder,
        inducing=inducing,
        heads=heads,
        recurrence=recurrence,
    )


@dataclass(frozen=True)
class MlpSizes:
    """An MLP on the nominal channels in their order: the baseline that rewiring breaks."""

    compiles_in_rollouts: ClassVar[bool] = True
    channels: int
    actions: int
    head: list[int]
    activation: Literal["tanh", "relu"] = "tanh"
    output: Literal["tanh", "clip"] = "tanh"

    def shapes(self) -> Shapes:
        return head_shapes(self.channels, self.head, self.actions)
