"""The sizes of the policies for image patches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Literal

from an_control.policy.sizes.scalar import (
    Encoder,
    Shapes,
    check_parts,
    encoder_shapes,
    head_shapes,
    memory_shapes,
    pooling_shapes,
)

MAX_GRID = 64
"""A grid's queries are compared with each other, and it is in no array: 64**4 is enough."""
MAX_TABLE = 2**20
"""The positional table of `grid`**2 rows and `positions` columns is in no array either."""


@dataclass(frozen=True)
class VisionSizes(ABC):
    """The AttentionNeuron for image patches (Tang & Ha 2021, section 3.3, table 1).

    A channel is a patch of `patch` x `patch` pixels in the last `stack` gray frames. Its key comes
    from the differences between the frames and the previous action, its value from each frame's
    patch, layer-normed. The `grid` x `grid` queries come from a fixed positional table of
    `positions` columns. `norm_weights` gives both layer norms weights of their own.

    Not in the paper, but in the Set Transformer (Lee et al. 2019): an `encoder` lets the patches'
    keys attend to each other first, to all (``sab``) or by way of `inducing` points (``isab``).
    With ``pma`` attention key and value are one, their sum, and learned seeds, one for each place
    of the grid, attend to it; there are no positions. `heads` of the encoder and of pma.
    """

    actions: int
    grid: int
    message: int
    stack: int
    patch: int
    positions: int
    norm_weights: bool
    attention: Literal["softmax", "pma"] = field(default="softmax", kw_only=True)
    encoder: Encoder = field(default="none", kw_only=True)
    inducing: int = field(default=0, kw_only=True)
    heads: int = field(default=1, kw_only=True)

    @property
    def queries(self) -> int:
        return self.grid**2

    @property
    def compares(self) -> bool:
        """Whether patches are compared with each other: an encoder or pma."""
        return self.encoder != "none" or self.attention == "pma"

    def shapes(self) -> Shapes:
        """The arrays' shapes; pixels are in the order (frame, row, column), oldest frame first."""
        pixels, message = self.patch**2, self.message
        pma = self.attention == "pma"
        shapes: Shapes = {
            "key.change": (message, (self.stack - 1) * pixels),
            "key.action": (message, self.actions),
            "key.bias": (message,),
            "value.weight": (message, self.stack * pixels),
            "value.bias": (message,),
            **encoder_shapes(self.encoder, message, self.inducing),
        }
        if pma:
            shapes |= pooling_shapes(self.queries, message)
        else:
            queries = {"query.weight": (message, self.positions), "query.bias": (message,)}
            shapes = queries | shapes
        if self.norm_weights:
            shapes |= {"value_norm.weight": (pixels,), "value_norm.bias": (pixels,)}
        if self.norm_weights and not pma:
            shapes |= {"message_norm.weight": (message,), "message_norm.bias": (message,)}
        return shapes | self.head_shapes()

    @abstractmethod
    def head_shapes(self) -> Shapes:
        """The shapes of the arrays behind the message."""

    def check(self) -> None:
        """ValueError where the numbers do not fit each other."""
        if self.grid > MAX_GRID:
            raise ValueError(f"sizes.grid: {self.grid} is not from 1 to {MAX_GRID}")
        if self.queries * self.positions > MAX_TABLE:
            most = MAX_TABLE // self.queries
            raise ValueError(
                f"sizes.positions: {self.positions} is not from 1 to {most}, with a grid of"
                f" {self.grid}"
            )
        if self.stack < 2:
            raise ValueError(f"sizes.stack: {self.stack}, differences need at least 2 frames")
        check_parts(self, self.message, "message's {} numbers")


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
