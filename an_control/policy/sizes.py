"""What a policy is made of: the sizes in a model file's header and the arrays they imply.

Sizes come from untrusted files, so every number is bounded before a shape is built from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any, Literal

Shapes = dict[str, tuple[int, ...]]

LARGEST = 65_536
HEAD_LAYERS = 16
CHOICES: dict[str, tuple[Any, ...]] = {
    "attention": ("tanh", "softmax"),
    "activation": ("tanh", "relu"),
    "output": ("tanh", "clip"),
    "inputs": (["value"], ["value", "change"]),
    "products": (False, True),
}


@dataclass(frozen=True)
class AttentionSizes:
    """The AttentionNeuron (Tang & Ha 2021, sections 3.1-3.2) for scalar channels.

    `attention` is the paper's ``tanh`` or a ``softmax`` over the queries for each channel, whose
    last query stands for "none of them". `products` adds the products of each channel's inputs
    with the previous action to the neuron's inputs.
    """

    actions: int
    neuron: int
    queries: int
    key: int
    inputs: list[str]
    head: list[int]
    products: bool = False
    attention: Literal["tanh", "softmax"] = "tanh"
    activation: Literal["tanh", "relu"] = "tanh"
    output: Literal["tanh", "clip"] = "tanh"

    @property
    def message(self) -> int:
        """Length of the attention message, which is the head's input."""
        return self.queries if self.attention == "tanh" else 2 * (self.queries - 1)

    def shapes(self) -> Shapes:
        gates, features = 4 * self.neuron, len(self.inputs)
        shapes: Shapes = {
            "neuron.input": (gates, features),
            "neuron.action": (gates, self.actions),
            "neuron.hidden": (gates, self.neuron),
            "neuron.bias": (gates,),
            "attention.queries": (self.queries, self.key),
            "attention.key": (self.key, self.neuron),
            "attention.key_bias": (self.key,),
        }
        if self.products:
            shapes["neuron.products"] = (gates, features, self.actions)
        return shapes | head_shapes(self.message, self.head, self.actions)


@dataclass(frozen=True)
class OrderedSizes:
    """A plain network on the nominal channels in their order: the baseline that rewiring breaks."""

    channels: int
    actions: int
    head: list[int]
    activation: Literal["tanh", "relu"] = "tanh"
    output: Literal["tanh", "clip"] = "tanh"

    def shapes(self) -> Shapes:
        return head_shapes(self.channels, self.head, self.actions)


Sizes = AttentionSizes | OrderedSizes
KINDS: dict[str, type[AttentionSizes] | type[OrderedSizes]] = {
    "attention_neuron": AttentionSizes,
    "ordered": OrderedSizes,
}


def head_shapes(inputs: int, hidden: list[int], actions: int) -> Shapes:
    widths = [inputs, *hidden, actions]
    shapes: Shapes = {}
    for layer, (width_in, width_out) in enumerate(pairwise(widths)):
        shapes[f"head.{layer}.weight"] = (width_out, width_in)
        shapes[f"head.{layer}.bias"] = (width_out,)
    return shapes


def sizes_from(kind: str, header: Mapping[str, Any]) -> Sizes:
    """The sizes in a header; ValueError names key, value and what was allowed."""
    if kind not in KINDS:
        raise ValueError(f"kind: {kind!r} is not one of {', '.join(KINDS)}")
    cls = KINDS[kind]
    known = {field.name for field in fields(cls)}
    for key in header:
        if key not in known:
            raise ValueError(f"sizes.{key}: unknown, allowed are {', '.join(sorted(known))}")
    try:
        sizes = cls(**header)
    except TypeError as error:
        raise ValueError(f"sizes: {error}") from None
    for key, value in asdict(sizes).items():
        _check(f"sizes.{key}", value, CHOICES.get(key))
    if isinstance(sizes, AttentionSizes) and sizes.attention == "softmax" and sizes.queries < 2:
        raise ValueError(f"sizes.queries: {sizes.queries}, softmax attention needs at least 2")
    return sizes


def _check(key: str, value: Any, choices: tuple[Any, ...] | None) -> None:
    if choices is not None:
        if not any(value == choice and type(value) is type(choice) for choice in choices):
            raise ValueError(f"{key}: {value!r} is not one of {', '.join(map(repr, choices))}")
    elif key == "sizes.head":
        if not isinstance(value, list) or len(value) > HEAD_LAYERS:
            raise ValueError(f"{key}: {value!r} is not a list of at most {HEAD_LAYERS} widths")
        for layer, width in enumerate(value):
            _check(f"{key}[{layer}]", width, None)
    elif type(value) is not int or not 1 <= value <= LARGEST:
        raise ValueError(f"{key}: {value!r} is not a whole number from 1 to {LARGEST}")
