"""What a policy is made of: the sizes in a model file's header and the arrays they imply.

Sizes come from untrusted files, so every number is bounded before a shape is built from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from reprlib import repr as short
from typing import Any, Literal

Shapes = dict[str, tuple[int, ...]]

LARGEST = 65_536
HEAD_LAYERS = 16
LARGEST_GRID = 64
"""A grid's queries are compared with each other, and it is in no array: 64**4 is enough."""
MAY_BE_ZERO = {f"sizes.{name}" for name in ("first_action", "memory", "stack", "normalise")}
CHOICES: dict[str, tuple[Any, ...]] = {
    "attention": ("tanh", "softmax"),
    "activation": ("tanh", "relu"),
    "output": ("tanh", "clip"),
    "inputs": (["value"], ["value", "change"]),
    "products": (False, True),
    "doubt": (False, True),
    "startle": (False, True),
    "compare": (False, True),
    "norm_weights": (False, True),
    "choice": (False, True),
}


@dataclass(frozen=True)
class AttentionSizes:
    """The AttentionNeuron (Tang & Ha 2021, sections 3.1-3.2) for scalar channels.

    A neuron is an LSTM of `neuron` units; or, where `stack` is over 0, a layer of `neuron` tanh
    units that sees the `stack` newest readings of its channel and remembers nothing else.

    Where `normalise`, the nominal number of channels, is over 0 (not in the paper), added channels
    make the message no larger: the sums behind tanh attention are multiplied by it over the number
    present, which changes no bit while these are as many; the sums behind softmax attention are
    divided by their attention where that is over 1.
    `attention` is the paper's ``tanh`` or a ``softmax`` over the queries for each channel, whose
    last query stands for "none of them". `products` adds the products of each channel's inputs
    with the previous action to the neuron's inputs. `memory` GRU units (0: none) let a head behind
    softmax attention fill in what no channel shows; with `doubt` it believes a reading the less the
    farther it lies from what was expected, with `compare` the attention also asks which query
    expected it (see `policy.scalar.memory`). With `startle` all neurons begin anew where most
    readings jump at once (see `policy.scalar.reset_on_jump`).
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
    memory: int = 0
    stack: int = 0
    doubt: bool = False
    startle: bool = False
    compare: bool = False
    normalise: int = 0

    @property
    def features(self) -> int:
        """How many inputs a neuron has of its channel."""
        return self.stack or len(self.inputs)

    @property
    def message(self) -> int:
        """Length of the attention message, which is the head's input where it has no memory."""
        return self.queries if self.attention == "tanh" else 2 * (self.queries - 1)

    def shapes(self) -> Shapes:
        units, features = self.neuron if self.stack else 4 * self.neuron, self.features
        recurrent = {} if self.stack else {"neuron.hidden": (units, self.neuron)}
        shapes: Shapes = {
            "neuron.input": (units, features),
            "neuron.action": (units, self.actions),
            **recurrent,
            "neuron.bias": (units,),
            "attention.queries": (self.queries, self.key),
            "attention.key": (self.key, self.neuron),
            "attention.key_bias": (self.key,),
        }
        if self.products:
            shapes["neuron.products"] = (units, features, self.actions)
        if not self.memory:
            return shapes | head_shapes(self.message, self.head, self.actions)
        units, message = self.memory, self.message
        shapes |= memory_shapes(units, message + self.actions) | {
            "expectation.weight": (message // 2, units + message + self.actions),
            "expectation.bias": (message // 2,),
        }
        if self.doubt:
            shapes["memory.log_doubt"] = (message // 2,)
        if self.compare:
            shapes["attention.comparison"] = (4, message // 2)
        return shapes | head_shapes(message // 2 + units, self.head, self.actions)

    def check(self) -> None:
        """ValueError where the numbers do not fit each other."""
        if self.memory and self.attention != "softmax":
            raise ValueError(f"sizes.memory: {self.memory}, tanh attention allows 0")
        if self.memory and self.normalise:
            raise ValueError(f"sizes.normalise: {self.normalise}, a head with memory allows 0")
        if self.stack and self.inputs != ["value"]:
            raise ValueError(f"sizes.inputs: {short(self.inputs)}, a stack allows ['value']")
        for name in ("doubt", "compare"):
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
) -> AttentionSizes:
    """The paper's form for continuous control: raw readings, tanh attention, an even head."""
    return AttentionSizes(
        actions=actions,
        neuron=neuron,
        queries=queries,
        key=key,
        inputs=["value"],
        head=[queries] * hidden_layers,
        stack=stack,
        normalise=normalise,
    )


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


@dataclass(frozen=True)
class VisionSizes:
    """The AttentionNeuron for image patches (Tang & Ha 2021, section 3.3, table 1).

    A channel is a patch of `patch` x `patch` pixels in the last `stack` gray frames. Its key comes
    from the differences between the frames and the previous action, its value from each frame's
    patch, layer-normed. The `grid` x `grid` queries come from a fixed positional table of
    `positions` columns. `norm_weights` gives both layer norms weights of their own.
    """

    actions: int
    grid: int
    message: int
    stack: int
    patch: int
    positions: int
    norm_weights: bool

    @property
    def queries(self) -> int:
        return self.grid**2

    def shapes(self) -> Shapes:
        """The arrays' shapes; pixels are in the order (frame, row, column), oldest frame first."""
        pixels, message = self.patch**2, self.message
        shapes: Shapes = {
            "query.weight": (message, self.positions),
            "query.bias": (message,),
            "key.change": (message, (self.stack - 1) * pixels),
            "key.action": (message, self.actions),
            "key.bias": (message,),
            "value.weight": (message, self.stack * pixels),
            "value.bias": (message,),
        }
        if self.norm_weights:
            shapes |= {
                "value_norm.weight": (pixels,),
                "value_norm.bias": (pixels,),
                "message_norm.weight": (message,),
                "message_norm.bias": (message,),
            }
        return shapes | self.head_shapes()

    def head_shapes(self) -> Shapes:
        """The shapes of the arrays behind the message."""
        raise NotImplementedError

    def check(self) -> None:
        """ValueError where the numbers do not fit each other."""
        if self.grid > LARGEST_GRID:
            raise ValueError(f"sizes.grid: {self.grid} is not from 1 to {LARGEST_GRID}")
        if self.stack < 2:
            raise ValueError(f"sizes.stack: {self.stack}, differences need at least 2 frames")


@dataclass(frozen=True)
class TopPatchesSizes(VisionSizes):
    """With the head of CarRacing: where the `top` rows of the message lie goes into an LSTM.

    The rows are chosen by a self-attention of width `self_attention`; `hidden` LSTM units.
    """

    self_attention: int
    top: int
    hidden: int

    def head_shapes(self) -> Shapes:
        hidden, actions = self.hidden, self.actions
        return {
            "self_attention.query": (self.self_attention, self.message),
            "self_attention.query_bias": (self.self_attention,),
            "self_attention.key": (self.self_attention, self.message),
            "self_attention.key_bias": (self.self_attention,),
            "memory.input": (4 * hidden, 2 * self.top),
            "memory.hidden": (4 * hidden, hidden),
            "memory.bias": (4 * hidden,),
            "action.weight": (actions, hidden),
            "action.bias": (actions,),
            "mixing.0.weight": (hidden, hidden + actions),
            "mixing.0.bias": (hidden,),
            "mixing.1.weight": (1, hidden),
            "mixing.1.bias": (1,),
        }

    def check(self) -> None:
        super().check()
        if self.top > self.queries:
            raise ValueError(f"sizes.top: {self.top} of {self.queries} queries")


CAR_RACING_SIZES = TopPatchesSizes(
    actions=3,
    grid=32,
    message=16,
    stack=4,
    patch=6,
    positions=8,
    norm_weights=False,
    self_attention=4,
    top=10,
    hidden=16,
)
"""Those of the AttentionNeuron authors' CarRacing policy."""


@dataclass(frozen=True)
class ConvolutionSizes(VisionSizes):
    """With the head of PuzzlePong: the message as an image, convolved; the best of `actions`.

    Two convolutions to `filters` planes (4 x 4 by steps of 2, 3 x 3), a layer of `hidden` units.
    `first_action` counts as the previous one at an episode's start. Where `choice` is False, the
    action is not one of several, but the tanh of the head's numbers, zeros at the start. `memory`
    GRU units (0: none, as in the paper) between both layers remember what no patch shows (see
    `policy.scalar.memory`): they see the layer of `hidden` units and the previous action, and the
    last layer sees both.
    """

    filters: int
    hidden: int
    first_action: int
    choice: bool = True
    memory: int = 0

    @property
    def start(self) -> list[float]:
        """What counts as the previous action at an episode's start."""
        return [float(self.choice and i == self.first_action) for i in range(self.actions)]

    @property
    def planes(self) -> tuple[int, int]:
        """Rows (and columns) of both convolutions' outputs."""
        first = (self.grid - 4) // 2 + 1
        return first, first - 2

    def head_shapes(self) -> Shapes:
        filters = self.filters
        inputs = filters * self.planes[1] ** 2
        shapes: Shapes = {
            "convolution.0.weight": (filters, self.message, 4, 4),
            "convolution.0.bias": (filters,),
            "convolution.1.weight": (filters, filters, 3, 3),
            "convolution.1.bias": (filters,),
        }
        if self.memory:
            shapes |= memory_shapes(self.memory, self.hidden + self.actions)
        shapes |= head_shapes(inputs, [self.hidden], self.actions)
        return shapes | {"head.1.weight": (self.actions, self.hidden + self.memory)}

    def check(self) -> None:
        super().check()
        if self.grid < 8:
            raise ValueError(f"sizes.grid: {self.grid}, the convolutions need at least 8")
        if self.first_action >= self.actions:
            raise ValueError(f"sizes.first_action: {self.first_action} of {self.actions} actions")


PONG_SIZES = ConvolutionSizes(
    actions=6,
    grid=20,
    message=32,
    stack=4,
    patch=6,
    positions=8,
    norm_weights=True,
    filters=64,
    hidden=512,
    first_action=3,
)
"""Those of the AttentionNeuron authors' PuzzlePong policy."""

Sizes = AttentionSizes | OrderedSizes | TopPatchesSizes | ConvolutionSizes
KINDS: dict[str, type[Sizes]] = {
    "attention_neuron": AttentionSizes,
    "ordered": OrderedSizes,
    "vision_top_patches": TopPatchesSizes,
    "vision_convolution": ConvolutionSizes,
}


def kind_of(sizes: Sizes) -> str:
    """The kind of model that has sizes of this class."""
    return next(kind for kind, cls in KINDS.items() if cls is type(sizes))


def head_shapes(inputs: int, hidden: list[int], actions: int) -> Shapes:
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


def sizes_from(kind: str, header: Mapping[str, Any]) -> Sizes:
    """The sizes in a header; ValueError names key, value and what was allowed."""
    if kind not in KINDS:
        raise ValueError(f"kind: {short(kind)} is not one of {', '.join(KINDS)}")
    cls = KINDS[kind]
    known = {field.name for field in fields(cls)}
    for key in header:
        if key not in known:
            raise ValueError(f"sizes.{key[:80]}: unknown, allowed are {', '.join(sorted(known))}")
    try:
        sizes = cls(**header)
    except TypeError as error:
        raise ValueError(f"sizes: {error}") from None
    for key, value in asdict(sizes).items():
        _check(f"sizes.{key}", value, CHOICES.get(key))
    if not isinstance(sizes, OrderedSizes):
        sizes.check()
    return sizes


def _check(key: str, value: Any, choices: tuple[Any, ...] | None) -> None:
    shown = short(value)
    if choices is not None:
        if not any(value == choice and type(value) is type(choice) for choice in choices):
            raise ValueError(f"{key}: {shown} is not one of {', '.join(map(repr, choices))}")
    elif key == "sizes.head":
        if not isinstance(value, list) or len(value) > HEAD_LAYERS:
            raise ValueError(f"{key}: {shown} is not a list of at most {HEAD_LAYERS} widths")
        for layer, width in enumerate(value):
            _check(f"{key}[{layer}]", width, None)
    else:
        least = 0 if key in MAY_BE_ZERO else 1
        if type(value) is not int or not least <= value <= LARGEST:
            raise ValueError(f"{key}: {shown} is not a whole number from {least} to {LARGEST}")
