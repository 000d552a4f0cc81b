"""The sizes of the policies for scalar channels.

The sizes of the memory behind a policy's message, and the arrays that they imply.

The shapes of the Set Transformer's parts (Lee et al. 2019), of one width d throughout.

The shapes of what several kinds of policy are made of, and the bounds of every size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from reprlib import repr as short
from typing import Any, ClassVar, Literal, Protocol, get_args

Shapes = dict[str, tuple[int, ...]]

MAX_SIZE = 65_536
MAX_LAYERS = 16
"""Hidden layers of a network."""


def head_shapes(inputs: int, hidden: list[int], actions: int) -> Shapes:
    """Of the head's layers, see `layer_shapes`."""
    return layer_shapes("head", [inputs, *hidden, actions])


def memory_shapes(units: int, inputs: int) -> Shapes:
    """Of GRU units, whose gates are in the order reset, update, new."""
    return {
        "memory.input": (3 * units, inputs),
        "memory.hidden": (3 * units, units),
        "memory.bias": (3 * units,),
        "memory.hidden_bias": (units,),
    }


def layer_shapes(name: str, widths: list[int]) -> Shapes:
    """Of a network's layers: weights (out, in) and biases (out,)."""
    shapes: Shapes = {}
    for layer, (width_in, width_out) in enumerate(pairwise(widths)):
        shapes[f"{name}.{layer}.weight"] = (width_out, width_in)
        shapes[f"{name}.{layer}.bias"] = (width_out,)
    return shapes


Encoder = Literal["none", "isab", "sab"]


class PartSizes(Protocol):
    """What a policy's sizes say of these parts."""

    @property
    def attention(self) -> str: ...
    @property
    def encoder(self) -> Encoder: ...
    @property
    def inducing(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def compares(self) -> bool: ...


def check_parts(sizes: PartSizes, width: int, divided: str) -> None:
    """ValueError where the numbers do not fit each other or the blocks' `width`, which is what
    `divided` says in words."""
    if (sizes.inducing > 0) != (sizes.encoder == "isab"):
        raise ValueError(
            f"sizes.inducing: {sizes.inducing}, encoder {sizes.encoder} "
            + ("needs at least 1" if sizes.encoder == "isab" else "allows 0")
        )
    if sizes.heads > 1 and not sizes.compares:
        raise ValueError(
            f"sizes.heads: {sizes.heads}, {sizes.attention} attention without an encoder allows 1"
        )
    if width % sizes.heads:
        raise ValueError(f"sizes.heads: {sizes.heads} does not divide the {divided.format(width)}")


def block_shapes(name: str, width: int) -> Shapes:
    """Of a multihead attention block, MAB: its attention, its row-wise layer, a norm after each."""
    square, row = (width, width), (width,)
    return {
        f"{name}.query": square,
        f"{name}.key": square,
        f"{name}.value": square,
        f"{name}.output": square,
        f"{name}.attention_norm.weight": row,
        f"{name}.attention_norm.bias": row,
        f"{name}.feed_forward.weight": square,
        f"{name}.feed_forward.bias": row,
        f"{name}.norm.weight": row,
        f"{name}.norm.bias": row,
    }


def encoder_shapes(kind: Encoder, width: int, inducing: int) -> Shapes:
    """Of the encoder between the channels: one block for SAB, two and the points for ISAB."""
    if kind == "sab":
        return block_shapes("encoder", width)
    if kind == "isab":
        return {
            "encoder.inducing": (inducing, width),
            **block_shapes("encoder.gather", width),
            **block_shapes("encoder.spread", width),
        }
    return {}


def pooling_shapes(seeds: int, width: int) -> Shapes:
    """Of the pooling by multihead attention, PMA, with its row-wise layer before."""
    return {
        "pooling.seeds": (seeds, width),
        "pooling.input.weight": (width, width),
        "pooling.input.bias": (width,),
        **block_shapes("pooling", width),
    }


Kind = Literal["lstm", "gru", "trxl", "trxl-i", "gtrxl"]
MAX_WINDOW = 4_096
"""Ticks; what is kept of them takes memory that no array of the file stands for."""
MOST = {"layers": MAX_LAYERS, "window": MAX_WINDOW}
GATES = {"lstm": 4, "gru": 3}
"""Rows of the arrays for each unit; the gates are i, f, g, o and reset, update, new."""


@dataclass(frozen=True)
class RecurrenceSizes:
    """A memory from (inputs,) to (units,) at every tick.

    kind    ``lstm`` (Hochreiter & Schmidhuber 1997), ``gru`` (Cho et al. 2014), or a transformer
            of Parisotto et al. 2019: ``trxl``, ``trxl-i`` (norms moved to the submodules' inputs),
            ``gtrxl`` (and GRU gates in place of sums)
    layers  of a transformer
    heads   of its attention
    window  ticks that a layer sees, the present one included
    """

    kind: Kind
    units: int
    layers: int = 1
    heads: int = 1
    window: int = 1

    def shapes(self, inputs: int) -> Shapes:
        """The arrays' shapes; weights are (out, in)."""
        units = self.units
        if self.kind in GATES:
            rows = GATES[self.kind] * units
            shapes: Shapes = {
                "recurrence.input": (rows, inputs),
                "recurrence.hidden": (rows, units),
                "recurrence.bias": (rows,),
            }
            return shapes | ({"recurrence.hidden_bias": (units,)} if self.kind == "gru" else {})
        shapes = {"recurrence.input.weight": (units, inputs), "recurrence.input.bias": (units,)}
        for layer in range(self.layers):
            shapes |= self._layer_shapes(f"recurrence.layers.{layer}")
        return shapes

    def _layer_shapes(self, name: str) -> Shapes:
        units, square = self.units, (self.units, self.units)
        shapes: Shapes = {
            f"{name}.{part}": square for part in ("query", "key", "value", "relative", "output")
        }
        for part in ("content_bias", "position_bias"):
            shapes[f"{name}.{part}"] = (self.heads, units // self.heads)
        shapes |= layer_shapes(f"{name}.network", [units, 4 * units, units])
        for part in ("attention", "network"):
            shapes[f"{name}.{part}_norm.weight"] = shapes[f"{name}.{part}_norm.bias"] = (units,)
            if self.kind == "gtrxl":  # rows in the order reset, update, new
                shapes[f"{name}.{part}_gate.input"] = (3 * units, units)
                shapes[f"{name}.{part}_gate.hidden"] = (3 * units, units)
                shapes[f"{name}.{part}_gate.bias"] = (units,)
        return shapes

    def check(self) -> None:
        """ValueError where the numbers do not fit each other."""
        if self.kind in GATES:
            for key in ("layers", "heads", "window"):
                value = getattr(self, key)
                if value != 1:
                    raise ValueError(f"sizes.recurrence.{key}: {value}, {self.kind} allows 1")
        elif self.units % 2:
            raise ValueError(f"sizes.recurrence.units: {self.units}, {self.kind} needs an even one")
        elif self.units % self.heads:
            raise ValueError(
                f"sizes.recurrence.heads: {self.heads}, must divide units {self.units}"
            )

    @classmethod
    def read(cls, header: Any) -> RecurrenceSizes:
        """From a model file's header; ValueError names key, value and what is allowed."""
        if not isinstance(header, Mapping):
            raise ValueError(f"sizes.recurrence: {short(header)} is not an object")
        known = [field.name for field in fields(cls)]
        for key in header:
            if key not in known:
                raise ValueError(
                    f"sizes.recurrence.{str(key)[:80]}: unknown, allowed are {', '.join(known)}"
                )
        try:
            sizes = cls(**header)
        except TypeError as error:
            raise ValueError(f"sizes.recurrence: {error}") from None
        if sizes.kind not in get_args(Kind):
            allowed = ", ".join(get_args(Kind))
            raise ValueError(f"sizes.recurrence.kind: {short(sizes.kind)} is not one of {allowed}")
        for key in known[1:]:
            value, most = getattr(sizes, key), MOST.get(key, MAX_SIZE)
            if type(value) is not int or not 1 <= value <= most:
                raise ValueError(
                    f"sizes.recurrence.{key}: {short(value)} is not a whole number from 1 to {most}"
                )
        sizes.check()
        return sizes


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
