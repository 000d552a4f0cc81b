"""The sizes of a policy in a model file's header, and the shapes of the arrays that they imply.

Sizes come from untrusted files, so every number is bounded before a shape is built from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from reprlib import repr as short
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_type_hints

Shapes = dict[str, tuple[int, ...]]
T = TypeVar("T")

MAX_SIZE = 65_536
MAX_LAYERS = 16
"""The largest number of hidden layers of a network."""


def list_head_shapes(inputs: int, hidden: list[int], actions: int) -> Shapes:
    """Return the shapes, by name, of the layers between the attention message and the action.

    Args:
        inputs: The number of inputs of the first layer.
        hidden: The widths of the hidden layers.
        actions: The number of outputs of the last layer.
    """
    return list_layer_shapes("head", [inputs, *hidden, actions])


def list_memory_shapes(units: int, inputs: int) -> Shapes:
    """Return the shapes, by name, of the weights of the memory in a policy's head, which is a GRU.

    The rows of the GRU's gates are in the order reset, update, new.

    Args:
        units: The number of the GRU's units.
        inputs: The number of its inputs.
    """
    return {
        "memory.input": (3 * units, inputs),
        "memory.hidden": (3 * units, units),
        "memory.bias": (3 * units,),
        "memory.hidden_bias": (units,),
    }


def list_layer_shapes(name: str, widths: list[int]) -> Shapes:
    """Return the shapes, by name, of a network's weights (out, in) and biases (out,).

    Args:
        name: The prefix of the arrays' names.
        widths: The number of inputs, then the number of outputs of each layer.
    """
    shapes: Shapes = {}
    for layer, (width_in, width_out) in enumerate(pairwise(widths)):
        shapes[f"{name}.{layer}.weight"] = (width_out, width_in)
        shapes[f"{name}.{layer}.bias"] = (width_out,)
    return shapes


Encoder = Literal["none", "isab", "sab"]


def check_attention_part_sizes(
    sizes: AttentionSizes | VisionSizes, width: int, width_description: str
) -> None:
    """Check that the sizes of attention, encoder and heads fit each other.

    Args:
        sizes: The sizes to check.
        width: The width of the attention blocks, which the number of heads must divide.
        width_description: The text for the width in the error message, with ``{}`` in place of the
            number.

    Raises:
        ValueError: The sizes do not fit; the message names key, value and what is allowed.
    """
    if (sizes.inducing > 0) != (sizes.encoder == "isab"):
        raise ValueError(
            f"sizes.inducing: {sizes.inducing}, encoder {sizes.encoder} "
            + ("needs at least 1" if sizes.encoder == "isab" else "allows 0")
        )
    if sizes.heads > 1 and not sizes.compares_channels:
        raise ValueError(
            f"sizes.heads: {sizes.heads}, {sizes.attention} attention without an encoder allows 1"
        )
    if width % sizes.heads:
        raise ValueError(
            f"sizes.heads: {sizes.heads} does not divide the {width_description.format(width)}"
        )


def list_attention_block_shapes(name: str, width: int) -> Shapes:
    """Return the shapes, by name, of a multihead attention block's arrays.

    They are those of the attention, a row-wise layer and two layer norms.

    Args:
        name: The prefix of the arrays' names.
        width: The width of the block.
    """
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


def list_encoder_shapes(kind: Encoder, width: int, inducing: int) -> Shapes:
    """Return the shapes, by name, of the arrays of an encoder; empty for ``none``.

    Args:
        kind: ``sab`` (one block), ``isab`` (two blocks and inducing points) or ``none``.
        width: The width of the blocks.
        inducing: The number of inducing points of ``isab``.
    """
    if kind == "sab":
        return list_attention_block_shapes("encoder", width)
    if kind == "isab":
        return {
            "encoder.inducing": (inducing, width),
            **list_attention_block_shapes("encoder.gather", width),
            **list_attention_block_shapes("encoder.spread", width),
        }
    return {}


def list_pooling_shapes(seeds: int, width: int) -> Shapes:
    """Return the shapes, by name, of the arrays of pooling by multihead attention (PMA).

    Args:
        seeds: The number of learned queries (seeds).
        width: The width of the block.
    """
    return {
        "pooling.seeds": (seeds, width),
        "pooling.input.weight": (width, width),
        "pooling.input.bias": (width,),
        **list_attention_block_shapes("pooling", width),
    }


Kind = Literal["lstm", "gru", "trxl", "trxl-i", "gtrxl"]
MAX_WINDOW = 4_096
"""The largest window in ticks. The bound is needed because the window takes memory although no
array in the file has its size."""
GATES = {"lstm": 4, "gru": 3}
"""The number of gates, each of which has one row in an array for each unit. The order of an
``lstm`` is input, forget, candidate, output; that of a ``gru`` is reset, update, new."""


@dataclass(frozen=True)
class RecurrenceSizes:
    """The sizes of recurrent layers between the attention message and the head.

    Once a tick the layers take a vector and return a vector of length `units`.

    Attributes:
        kind: ``lstm`` (Hochreiter & Schmidhuber 1997), ``gru`` (Cho et al. 2014), or a transformer
            of Parisotto et al. 2019: ``trxl``, ``trxl-i`` (norms moved to the submodules' inputs),
            ``gtrxl`` (the same, and GRU gates in place of sums).
        units: The width of the output.
        layers: The number of layers of a transformer.
        heads: The number of attention heads of a transformer.
        window: The number of ticks that a transformer's layer sees, the present one included.
    """

    kind: Kind
    units: int
    layers: int = 1
    heads: int = 1
    window: int = 1

    def list_array_shapes(self, inputs: int) -> Shapes:
        """Return the shape that each of the layers' arrays must have, by name.

        Weights are (out, in).

        Args:
            inputs: The number of inputs of the first layer.
        """
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
            shapes |= self._list_transformer_layer_shapes(f"recurrence.layers.{layer}")
        return shapes

    def _list_transformer_layer_shapes(self, name: str) -> Shapes:
        """Return the shapes, by name, of the arrays of a transformer's layer.

        Args:
            name: The prefix of the arrays' names.
        """
        units, square = self.units, (self.units, self.units)
        shapes: Shapes = {
            f"{name}.{part}": square for part in ("query", "key", "value", "relative", "output")
        }
        for part in ("content_bias", "position_bias"):
            shapes[f"{name}.{part}"] = (self.heads, units // self.heads)
        shapes |= list_layer_shapes(f"{name}.network", [units, 4 * units, units])
        for part in ("attention", "network"):
            shapes[f"{name}.{part}_norm.weight"] = shapes[f"{name}.{part}_norm.bias"] = (units,)
            if self.kind == "gtrxl":  # rows in the order reset, update, new
                shapes[f"{name}.{part}_gate.input"] = (3 * units, units)
                shapes[f"{name}.{part}_gate.hidden"] = (3 * units, units)
                shapes[f"{name}.{part}_gate.bias"] = (units,)
        return shapes

    def check_consistency(self) -> None:
        """Check that the sizes are consistent with each other.

        Raises:
            ValueError: They are not; the message names key, value and what is allowed.
        """
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
    def from_header(cls, header: Any) -> RecurrenceSizes:
        """Return the sizes that a part of a model file's header describes.

        Args:
            header: Only that part, the mapping at ``["sizes"]["recurrence"]`` of the whole header,
                as it was read from JSON.

        Raises:
            ValueError: A value is not allowed; the message names key, value and what is allowed.
        """
        sizes = _parse_fields(cls, "sizes.recurrence", header)
        sizes.check_consistency()
        return sizes


@dataclass(frozen=True)
class AttentionSizes:
    """The sizes of an AttentionNeuron for scalar channels (Tang & Ha 2021, sections 3.1-3.2).

    Each channel has a neuron, which is an LSTM of `neuron` units. If `stack` is over 0 it is
    instead a layer of `neuron` tanh units on the `stack` newest readings of its channel, without
    other state. The names in `inputs` are ``value``, a reading, and optionally ``change``, its
    change since the last tick.

    The following attributes describe additions to the paper. Their equations are in
    `an_control.policy.reference_engine`.

    Attributes:
        products: Whether the neuron also gets the products of its inputs and the previous action.
        attention: The paper's ``tanh``; ``softmax`` over the queries, of which each stands for a
            channel and the last for none; or ``pma`` (pooling by multihead attention), in which the
            queries attend to the neurons' outputs instead of weighting the readings.
        encoder: The way in which the neurons' outputs attend to each other before the attention:
            each to all (``sab``), by way of `inducing` points (``isab``), or not at all (``none``).
        inducing: The number of inducing points.
        heads: The number of attention heads of encoder and PMA.
        memory: The number of GRU units (0: none) with which the head estimates missing channels;
            only for softmax attention.
        outlier_weighting: Whether the head gives a reading less weight the farther it is from the
            expected one.
        prediction_attention: Whether a query's attention to a reading also depends on how near the
            reading is to the one that the memory predicts for this query.
        reset_on_jump: Whether all neurons are reset if most readings change abruptly.
        recurrence: The recurrent layers between the attention message, which sums up all channels,
            and the head, which turns it into the action; None for none.
        normalise: The usual number of channels, so that additional channels do not make the
            attention message larger; 0: no scaling. With tanh attention, sums over the channels are
            multiplied by `normalise` / (number of channels with a reading). With softmax attention,
            a query's sum over the channels is divided by the sum of its attention weights, if that
            is over 1.
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
    def can_be_compiled(self) -> bool:
        """Whether the compiled engine (numba) can compute all parts of the policy."""
        return not self.compares_channels and self.recurrence is None

    @property
    def can_be_compiled_in_rollouts(self) -> bool:
        """Whether the compiled code that simulates training episodes can compute the policy."""
        return self.can_be_compiled and not self.memory and not self.reset_on_jump

    @property
    def compares_channels(self) -> bool:
        """Whether an encoder or attention pooling (PMA) compares channels with each other."""
        return self.encoder != "none" or self.attention == "pma"

    @property
    def inputs_per_neuron(self) -> int:
        """The number of inputs that each neuron gets from its channel."""
        return self.stack or len(self.inputs)

    @property
    def message_length(self) -> int:
        """The length of the attention message."""
        if self.attention == "pma":
            return self.queries * self.neuron
        return self.queries if self.attention == "tanh" else 2 * (self.queries - 1)

    def list_array_shapes(self) -> Shapes:
        """Return the shape that each of the policy's arrays must have, by name.

        Weights are (out, in).
        """
        units, features = self.neuron if self.stack else 4 * self.neuron, self.inputs_per_neuron
        recurrent = {} if self.stack else {"neuron.hidden": (units, self.neuron)}
        shapes: Shapes = {
            "neuron.input": (units, features),
            "neuron.action": (units, self.actions),
            **recurrent,
            "neuron.bias": (units,),
            **list_encoder_shapes(self.encoder, self.neuron, self.inducing),
        }
        if self.attention == "pma":
            shapes |= list_pooling_shapes(self.queries, self.neuron)
        else:
            shapes |= {
                "attention.queries": (self.queries, self.key),
                "attention.key": (self.key, self.neuron),
                "attention.key_bias": (self.key,),
            }
        if self.products:
            shapes["neuron.products"] = (units, features, self.actions)
        if self.recurrence is not None:
            shapes |= self.recurrence.list_array_shapes(self.message_length)
            return shapes | list_head_shapes(self.recurrence.units, self.head, self.actions)
        if not self.memory:
            return shapes | list_head_shapes(self.message_length, self.head, self.actions)
        units, message = self.memory, self.message_length
        shapes |= list_memory_shapes(units, message + self.actions) | {
            "expectation.weight": (message // 2, units + message + self.actions),
            "expectation.bias": (message // 2,),
        }
        if self.outlier_weighting:
            shapes["memory.log_outlier_weight"] = (message // 2,)
        if self.prediction_attention:
            shapes["attention.prediction"] = (4, message // 2)
        return shapes | list_head_shapes(message // 2 + units, self.head, self.actions)

    def check_consistency(self) -> None:
        """Check that the sizes are consistent with each other.

        Raises:
            ValueError: They are not; the message names key, value and what is allowed.
        """
        if self.memory and self.attention != "softmax":
            raise ValueError(f"sizes.memory: {self.memory}, {self.attention} attention allows 0")
        if self.normalise and self.attention == "pma":
            raise ValueError(f"sizes.normalise: {self.normalise}, pma attention allows 0")
        if self.attention == "pma" and self.key != self.neuron:
            raise ValueError(
                f"sizes.key: {self.key}, pma attention allows its neurons' {self.neuron}"
            )
        check_attention_part_sizes(self, self.neuron, "neurons' {} units")
        if self.memory and self.recurrence is not None:
            raise ValueError(f"sizes.memory: {self.memory}, a recurrence allows 0")
        if self.recurrence is not None:
            self.recurrence.check_consistency()
        if self.memory and self.normalise:
            raise ValueError(f"sizes.normalise: {self.normalise}, a head with memory allows 0")
        if self.stack and self.inputs != ["value"]:
            raise ValueError(f"sizes.inputs: {short(self.inputs)}, a stack allows ['value']")
        for name in ("outlier_weighting", "prediction_attention"):
            if getattr(self, name) and not self.memory:
                raise ValueError(f"sizes.{name}: true, a head without memory allows false")
        if self.attention == "softmax" and self.queries < 2:
            raise ValueError(f"sizes.queries: {self.queries}, softmax attention needs at least 2")


def make_paper_sizes(
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
    """Return the sizes of the paper's policies for continuous control, with optional further parts.

    They take raw readings, have tanh attention, and a head whose hidden layers are as wide as there
    are queries. The last five arguments are not from the paper; see `AttentionSizes`.

    Args:
        actions: The number of actions.
        queries: The number of queries.
        hidden_layers: The number of hidden layers of the head.
        neuron: The number of units of a neuron.
        key: The width of a key.
        stack: The number of stacked readings; 0: the neurons are LSTMs.
        normalise: The number of channels to which sums over channels are scaled; 0: no scaling.
        encoder: The kind of encoder, by which channels attend to each other.
        inducing: The number of inducing points of the encoder ``isab``.
        heads: The number of attention heads of the encoder.
        recurrence: The recurrent layers before the head; None: there are none.
    """
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
    """The sizes of an MLP on channels in a fixed order, the baseline that fails after rewiring."""

    can_be_compiled_in_rollouts: ClassVar[bool] = True
    channels: int
    actions: int
    head: list[int]
    activation: Literal["tanh", "relu"] = "tanh"
    output: Literal["tanh", "clip"] = "tanh"

    def list_array_shapes(self) -> Shapes:
        """Return the shape that each of the policy's arrays must have, by name.

        Weights are (out, in).
        """
        return list_head_shapes(self.channels, self.head, self.actions)


@dataclass(frozen=True)
class ForeignSizes:
    """The sizes of a policy that another tool made and stored as an ONNX file.

    The model file beside the ONNX file holds only a monitor for this policy.
    """

    can_be_compiled_in_rollouts: ClassVar[bool] = False
    channels: int
    actions: int

    def list_array_shapes(self) -> Shapes:
        """Return an empty mapping, because the policy's arrays are in the ONNX file."""
        return {}


MAX_GRID = 64
"""The largest width of the grid of queries. Queries are compared with each other, which takes
memory for grid**4 numbers although no array in the file has that many."""
MAX_TABLE = 2**20
"""The largest number of elements of the positional table, which is `grid`**2 rows times `positions`
columns. The table is not stored in the file either."""


@dataclass(frozen=True)
class VisionSizes(ABC):
    """The sizes of an AttentionNeuron for image patches (Tang & Ha 2021, section 3.3, table 1).

    A channel is a patch of pixels in the last gray frames. Its key is computed from the differences
    between the frames and from the previous action, its value from each frame's patch after a layer
    norm. The attributes `encoder`, `inducing` and `heads` and ``pma`` attention are from the Set
    Transformer (Lee et al. 2019), not from the paper.

    Attributes:
        actions: The number of actions.
        grid: The side length of the square in which the queries are arranged. There are grid * grid
            queries, and each gives one row of the attention message.
        message: The length of such a row.
        stack: The number of frames.
        patch: The width and the height of a patch in pixels.
        positions: The number of columns of a fixed table of sines (see `make_positional_table`),
            which has a row for each query.
        norm_weights: Whether the layer norms of patches and message have learned weights.
        attention: The paper's ``softmax``, whose queries are computed from the table of
            `positions`; or ``pma``
            (pooling by multihead attention), whose queries are learned and attend to the sum of
            each patch's key and value.
        encoder: The way in which the patches' keys attend to each other before the attention: each
            to all (``sab``), by way of `inducing` points (``isab``), or not at all (``none``).
        inducing: The number of inducing points.
        heads: The number of attention heads of encoder and ``pma``.
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
        """The number of queries."""
        return self.grid**2

    @property
    def compares_channels(self) -> bool:
        """Whether an encoder or attention pooling (PMA) compares patches with each other."""
        return self.encoder != "none" or self.attention == "pma"

    def list_array_shapes(self) -> Shapes:
        """Return the shape that each of the policy's arrays must have, by name.

        Pixels are in the order (frame, row, column), the oldest frame first.
        """
        pixels, message = self.patch**2, self.message
        pma = self.attention == "pma"
        shapes: Shapes = {
            "key.change": (message, (self.stack - 1) * pixels),
            "key.action": (message, self.actions),
            "key.bias": (message,),
            "value.weight": (message, self.stack * pixels),
            "value.bias": (message,),
            **list_encoder_shapes(self.encoder, message, self.inducing),
        }
        if pma:
            shapes |= list_pooling_shapes(self.queries, message)
        else:
            queries = {"query.weight": (message, self.positions), "query.bias": (message,)}
            shapes = queries | shapes
        if self.norm_weights:
            shapes |= {"value_norm.weight": (pixels,), "value_norm.bias": (pixels,)}
        if self.norm_weights and not pma:
            shapes |= {"message_norm.weight": (message,), "message_norm.bias": (message,)}
        return shapes | self.list_head_shapes()

    @abstractmethod
    def list_head_shapes(self) -> Shapes:
        """Return the shapes, by name, of the weights from the attention message to the action."""

    def check_consistency(self) -> None:
        """Check that the sizes are consistent with each other.

        Raises:
            ValueError: They are not; the message names key, value and what is allowed.
        """
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
        check_attention_part_sizes(self, self.message, "message's {} numbers")


@dataclass(frozen=True)
class TopPatchesSizes(VisionSizes):
    """The sizes of the CarRacing policy, whose head looks at the positions of important patches.

    A self-attention of width `self_attention` scores the rows of the attention message, one for
    each patch. An LSTM of `hidden` units gets the image positions of the `top` patches with the
    highest scores.
    """

    self_attention: int
    top: int
    hidden: int

    def list_head_shapes(self) -> Shapes:
        """Return the shapes, by name, of the weights from the attention message to the action."""
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

    def check_consistency(self) -> None:
        """Check that the sizes are consistent with each other.

        Raises:
            ValueError: They are not; the message names key, value and what is allowed.
        """
        super().check_consistency()
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
"""The sizes of the AttentionNeuron authors' CarRacing policy."""


@dataclass(frozen=True)
class ConvolutionSizes(VisionSizes):
    """The sizes of the PuzzlePong policy, whose head convolves the attention message as an image.

    The head has two convolutions (windows of 4 x 4 pixels at a step of 2, then of 3 x 3), a hidden
    layer, and a layer that scores the A actions.

    Attributes:
        filters: The number of planes of each convolution.
        hidden: The number of units of the hidden layer.
        first_action: The index of the action that counts as the previous one in an episode's first
            tick, if `choice` is True.
        choice: True if the action is 1 at the index of the highest score and 0 elsewhere; False if
            it is the tanh of the scores.
        memory: The number of GRU units beside the hidden layer, which remember what no patch shows
            now; 0: none, as in the paper. The GRU gets the hidden units and the previous action,
            and the last layer gets the units of both.
    """

    filters: int
    hidden: int
    first_action: int
    choice: bool = True
    memory: int = 0

    @property
    def initial_action(self) -> list[float]:
        """The action (A,) that counts as the previous one in the first tick of an episode."""
        return [float(self.choice and i == self.first_action) for i in range(self.actions)]

    @property
    def convolution_side_lengths(self) -> tuple[int, int]:
        """The side lengths of the square outputs of the first and of the second convolution."""
        first = (self.grid - 4) // 2 + 1
        return first, first - 2

    def list_head_shapes(self) -> Shapes:
        """Return the shapes, by name, of the weights from the attention message to the action."""
        filters = self.filters
        inputs = filters * self.convolution_side_lengths[1] ** 2
        shapes: Shapes = {
            "convolution.0.weight": (filters, self.message, 4, 4),
            "convolution.0.bias": (filters,),
            "convolution.1.weight": (filters, filters, 3, 3),
            "convolution.1.bias": (filters,),
        }
        if self.memory:
            shapes |= list_memory_shapes(self.memory, self.hidden + self.actions)
        shapes |= list_head_shapes(inputs, [self.hidden], self.actions)
        return shapes | {"head.1.weight": (self.actions, self.hidden + self.memory)}

    def check_consistency(self) -> None:
        """Check that the sizes are consistent with each other.

        Raises:
            ValueError: They are not; the message names key, value and what is allowed.
        """
        super().check_consistency()
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
"""The sizes of the AttentionNeuron authors' PuzzlePong policy."""


MAY_BE_ZERO = (
    *("first_action", "memory", "stack", "normalise", "inducing", "imputation", "slow", "ticks"),
)
"""The whole numbers in a header that may be 0; all others are at least 1."""
MAX_NUMBER = 1e6
LARGEST = {
    "layers": MAX_LAYERS,
    "window": MAX_WINDOW,
    "slow": int(MAX_NUMBER),
    "ticks": int(MAX_NUMBER),
    "found": 1,
}
"""The largest values; of all others `MAX_SIZE` for whole numbers and `MAX_NUMBER` for the rest."""
INPUTS = (["value"], ["value", "change"])

Sizes = AttentionSizes | MlpSizes | ForeignSizes | TopPatchesSizes | ConvolutionSizes
OrderedSizes = MlpSizes | ForeignSizes
"""The sizes of policies that need their channels in a fixed order."""
KINDS: dict[str, type[Sizes]] = {
    "attention_neuron": AttentionSizes,
    "mlp": MlpSizes,
    "foreign": ForeignSizes,
    "vision_top_patches": TopPatchesSizes,
    "vision_convolution": ConvolutionSizes,
}


def get_model_kind(sizes: Sizes) -> str:
    """Return the name of the kind of model that has these sizes, for example "mlp"."""
    return next(kind for kind, cls in KINDS.items() if cls is type(sizes))


def parse_model_sizes(kind: str, header: Mapping[str, Any]) -> Sizes:
    """Return the sizes in a model file's header.

    Args:
        kind: The kind of model, such as ``mlp``.
        header: The value of the header's key ``sizes``.

    Raises:
        ValueError: A value is not allowed; the message names key, value and what is allowed.
    """
    if kind not in KINDS:
        raise ValueError(f"kind: {short(kind)} is not one of {', '.join(KINDS)}")
    cls = KINDS[kind]
    if header.get("recurrence") is not None:
        recurrence = RecurrenceSizes.from_header(header["recurrence"])
        header = {**header, "recurrence": recurrence}
    sizes = _parse_fields(cls, "sizes", header)
    if not isinstance(sizes, OrderedSizes):
        sizes.check_consistency()
    return sizes


def _parse_fields(cls: type[T], name: str, header: Any) -> T:
    """Return an object of a dataclass of sizes, whose fields are checked by their types.

    Args:
        cls: The dataclass.
        name: The key of the header, for errors.
        header: Its value, a mapping from the names of the fields to their values.

    Raises:
        ValueError: A value is not allowed; the message names key, value and what is allowed.
    """
    types = get_type_hints(cls)
    known = [one.name for one in fields(cls)]  # type: ignore[arg-type]
    if not isinstance(header, Mapping):
        raise ValueError(f"{name}: {short(header)} is not an object")
    for key in header:
        if key not in known:
            raise ValueError(f"{name}.{str(key)[:80]}: unknown, allowed are {', '.join(known)}")
    try:
        sizes = cls(**header)
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from None
    for key, value in vars(sizes).items():
        if key not in ("recurrence", "validation"):  # they are checked already
            _check_field(f"{name}.{key}", value, types[key])
    return sizes


def _check_field(key: str, value: Any, kind: Any) -> None:
    """Check one value in a model file's header by the type of its field.

    Args:
        key: The value's key, such as ``sizes.queries``.
        value: The value.
        kind: The type of its field.

    Raises:
        ValueError: The value is not allowed.
    """
    shown, name = short(value), key.rpartition(".")[2]
    choices = (False, True) if kind is bool else INPUTS if name == "inputs" else get_args(kind)
    if kind == list[int]:
        if not isinstance(value, list) or len(value) > MAX_LAYERS:
            raise ValueError(f"{key}: {shown} is not a list of at most {MAX_LAYERS} widths")
        for layer, width in enumerate(value):
            _check_field(f"{key}[{layer}]", width, int)
    elif name == "binary":
        if not isinstance(value, list):
            raise ValueError(f"{key}: {shown} is not a list of channel ids")
    elif choices:
        if not any(value == choice and type(value) is type(choice) for choice in choices):
            raise ValueError(f"{key}: {shown} is not one of {', '.join(map(repr, choices))}")
    elif kind is float:
        most = LARGEST.get(name, MAX_NUMBER)
        if type(value) not in (int, float) or not 0 <= value <= most:
            raise ValueError(f"{key}: {shown} is not a number from 0 to {most:g}")
    else:
        least, most = int(name not in MAY_BE_ZERO), LARGEST.get(name, MAX_SIZE)
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"{key}: {shown} is not a whole number from {least} to {most}")


Monitor = Literal["off", "reset", "match"]
WINDOW = 12
"""The largest number of ticks of readings by which the monitor's identity classifier (a network)
judges an input slot."""
MIN_FOUND = 0.5
"""The share of the moved signals that a monitor must find in its validation to pass."""


@dataclass(frozen=True)
class MonitorValidation:
    """The measured behaviour of a monitor in episodes that it was not trained on.

    A monitor detects rewirings: sensor signals that arrive at other input slots than before.

    Attributes:
        max_excess: Readings with a larger excess do not fit the model. The excess is how far their
            negative log-likelihood is above its usual value, in nats a tick.
        min_gain: Nats by which another assignment of signals to slots must explain the readings
            better to replace the present one.
        slow: The most channels that wrongly seemed to have a slow sensor at the same time. A slow
            sensor repeats each reading for some ticks.
        ticks: The number of simulated ticks of robots without rewiring.
        false_moves_hour: Rewirings per hour that the monitor wrongly reported in these ticks.
        found: Share (0 to 1) of moved signals that the monitor found in their new input slots. It
            was measured in other ticks, in which signals were moved.
    """

    max_excess: float
    min_gain: float
    slow: int
    ticks: int
    false_moves_hour: float
    found: float

    @property
    def has_passed(self) -> bool:
        """Whether the monitor works so well that it may be on by default.

        It must have reported no false rewiring, and must have found at least the share `MIN_FOUND`
        of the signals that moved to another input slot.
        """
        return not self.false_moves_hour and self.found >= MIN_FOUND

    def __str__(self) -> str:
        return (
            f"in {self.ticks} ticks on robots whose signals stayed where they are wired it reported"
            f" {self.false_moves_hour:.3g} wrong moves an hour (allowed: 0), and it found"
            f" {self.found:.0%} of the signals that did move (at least {MIN_FOUND:.0%})"
        )

    @classmethod
    def from_header(cls, header: Any) -> MonitorValidation:
        """Return the validation that a part of a model file's header describes.

        Args:
            header: Only that part, the mapping at ``["forward"]["validation"]`` of the whole
                header, as it was read from JSON.

        Raises:
            ValueError: A value is not allowed; the message names key, value and what is allowed.
        """
        return _parse_fields(cls, "forward.validation", header)


@dataclass(frozen=True)
class ForwardSizes:
    """The sizes of the monitor's networks, and what the monitor does by default.

    Attributes:
        hidden: Units in each hidden layer of the network that predicts the next readings.
        identity: Units in each of the two layers of the network that identifies which channel's
            signal a sensor sends.
        binary: Ids of the channels that read 0 or 1.
        monitor: The default setting of a monitor that passed its validation.
        imputation: Units in each of the two layers of the network that estimates missing channels;
            0: there is none.
        validation: The monitor's measured behaviour; None if it was not measured.
    """

    hidden: list[int]
    identity: int
    binary: list[str]
    monitor: Monitor = "match"
    imputation: int = 0
    validation: MonitorValidation | None = None

    @property
    def default_monitor_setting(self) -> Monitor:
        """The monitor's setting if the user chooses none.

        It is "off" for a monitor that failed its validation, else the value of `monitor`.
        """
        return "off" if self.monitor_default_off_reason else self.monitor

    @property
    def monitor_default_off_reason(self) -> str:
        """A message on why the monitor is off by default and what to do; "" if it is on by default.

        It is off if it failed its validation.
        """
        validation = self.validation
        if self.monitor == "off" or validation is None or validation.has_passed:
            return ""
        return (
            f"the monitor is off: {validation}; train it for longer (an-control train-monitor), or"
            f" use it as it is with monitor {self.monitor!r}"
        )

    def list_array_shapes(self, channels: int, actions: int) -> Shapes:
        """Return the shape that each of the networks' arrays must have, by name.

        Weights are (out, in).

        Args:
            channels: The number of channels.
            actions: The number of actions.
        """
        common = WINDOW * (actions + 1)
        imputation: Shapes = {}
        if self.imputation:
            widths = [3 * channels + actions, self.imputation, self.imputation, channels]
            imputation = {
                "imputation.typical": (3, channels),
                "imputation.max_roughness": (1,),
                **list_layer_shapes("imputation", widths),
            }
        return {
            **imputation,
            **list_layer_shapes("forward", [channels + actions, *self.hidden, 2 * channels]),
            "forward.step": (channels,),
            "forward.usual": (channels,),
            "identity.units": (2,),
            "identity.common": (self.identity, common),
            **list_layer_shapes("identity", [2 * WINDOW, self.identity, self.identity, channels]),
        }

    @classmethod
    def from_header(cls, header: Any, channels: Sequence[str]) -> ForwardSizes:
        """Return the sizes that a part of a model file's header describes.

        Args:
            header: Only that part, the mapping at ``["forward"]`` of the whole header, as it was
                read from JSON.
            channels: The ids of the task's channels.

        Raises:
            ValueError: A value is not allowed; the message names key, value and what is allowed.
        """
        if isinstance(header, Mapping) and header.get("validation") is not None:
            validation = MonitorValidation.from_header(header["validation"])
            header = {**header, "validation": validation}
        sizes = _parse_fields(cls, "forward", header)
        if "monitor" not in header:  # the default is for new models, not for damaged files
            raise ValueError(f"forward: lacks 'monitor', one of {', '.join(get_args(Monitor))}")
        if not channels:
            raise ValueError("forward: needs task.channels, the ids that it is about")
        if not sizes.hidden:
            raise ValueError(f"forward.hidden: [] is not a list of 1 to {MAX_LAYERS} widths")
        if any(name not in channels for name in sizes.binary):
            raise ValueError(
                f"forward.binary: {short(sizes.binary)} is not a list out of task.channels"
            )
        return sizes
