"""Torch modules for two optional parts of a policy, the recurrent layer and the Set Transformer.

The recurrent layer, between the attention and the head, is an LSTM, a GRU, or a transformer of
Parisotto et al. 2019, "Stabilizing Transformers for Reinforcement Learning". As in Transformer-XL
(Dai et al. 2019), the state of the transformer holds what each layer received at earlier ticks. The
Set Transformer's blocks follow Lee et al. 2019, equations 6 to 11.

The modules compute the same as `an_control.policy.recurrence` and
`an_control.policy.set_transformer`, but for sequences of many episodes at once. Their weights can
be converted to the arrays of a model file and back.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from an_control.policy.set_transformer import make_positional_table
from an_control.policy.sizes import Encoder, RecurrenceSizes

State = tuple[Tensor, ...]
"""State of a recurrent layer, tensors (B, ...) for B episodes. All are zeros at the start of an
episode."""


def to_array(tensor: Tensor) -> np.ndarray:
    """Return a float32 copy of `tensor` as a numpy array, as a model file holds it."""
    array: np.ndarray = tensor.detach().cpu().numpy().astype(np.float32)
    return array.copy()


class RecurrenceModule(nn.Module):
    """Recurrent layer of a policy: an LSTM, a GRU or a transformer with U = `sizes.units` outputs.

    The object keeps no state between calls: `forward` takes the state and returns the next one.

    Args:
        inputs: Number of inputs at each tick.
        sizes: Kind and sizes of the layer.
        gate_bias: Initial bias b_g of the gates (only for the kind "gtrxl"). The larger it is, the
            less a layer changes its input at the start of the training.

    Raises:
        ValueError: The sizes do not fit each other.
    """

    core: nn.LSTM | nn.GRU | RecurrentTransformer

    def __init__(self, inputs: int, sizes: RecurrenceSizes, gate_bias: float = 2.0) -> None:
        super().__init__()
        sizes.check_consistency()
        self.sizes = sizes
        if sizes.kind == "lstm":
            self.core = nn.LSTM(inputs, sizes.units)
            bias = self.core.get_parameter("bias_ih_l0")
            with torch.no_grad():  # remember by default
                bias[sizes.units : 2 * sizes.units] += 1.0
        elif sizes.kind == "gru":
            self.core = nn.GRU(inputs, sizes.units)
        else:
            self.core = RecurrentTransformer(inputs, sizes, gate_bias)

    def make_initial_state(self, rows: int) -> State:
        """Return the state of U units at the start of B = `rows` episodes, as tensors of zeros.

        Returns:
            For an LSTM, the output and the cell, both (B, U). For a GRU, the output (B, U). For a
            transformer, the inputs of each layer at the previous ticks (B, layers, window - 1, U),
            and a mask (B, window - 1) that is 0 for ticks before the start of the episode, else 1.
        """
        units, layers, before = self.sizes.units, self.sizes.layers, self.sizes.window - 1
        shapes: list[tuple[int, ...]] = [(units,)] * (2 if self.sizes.kind == "lstm" else 1)
        if isinstance(self.core, RecurrentTransformer):
            shapes = [(layers, before, units), (before,)]
        some = next(self.parameters())
        return tuple(some.new_zeros(rows, *shape) for shape in shapes)

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Run the layer of U units over T ticks of B episodes.

        Args:
            x: Inputs (T, B, inputs).
            state: State before the first tick, from `make_initial_state` or an earlier call.

        Returns:
            The outputs (T, B, U), and the state after the last tick, through which gradients still
            flow.
        """
        if isinstance(self.core, RecurrentTransformer):
            return self.core(x, *state)
        if isinstance(self.core, nn.LSTM):
            outputs, (output, cell) = self.core(x, (state[0][None], state[1][None]))
            return outputs, (output[0], cell[0])
        outputs, output = self.core(x, state[0][None])
        return outputs, (output[0],)

    def compute_last_output(self, x: Tensor) -> Tensor:
        """Return the outputs (B, U) of U units at the last tick of B whole episodes.

        This is cheaper than `forward`, because the highest layer of a transformer computes only the
        last tick.

        Args:
            x: Inputs (T, B, inputs) of all ticks.
        """
        if isinstance(self.core, RecurrentTransformer):
            return self.core.compute_last_output(x)
        return self(x, self.make_initial_state(x.shape[1]))[0][-1]

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the weights as float32 arrays, by their names in a model file."""
        core = self.core
        parts: dict[str, Tensor] = dict(core.named_parameters())
        if not isinstance(core, RecurrentTransformer):
            weights = {"input": parts["weight_ih_l0"], "hidden": parts["weight_hh_l0"]}
            outer, inner = parts["bias_ih_l0"].clone(), parts["bias_hh_l0"]
            inside = 2 * core.hidden_size if isinstance(core, nn.GRU) else len(inner)
            outer[:inside] += inner[:inside]
            parts = {**weights, "bias": outer}
            if inside < len(inner):  # the new values' bias inside the reset
                parts["hidden_bias"] = inner[inside:]
        return {f"recurrence.{name}": to_array(part) for name, part in parts.items()}

    def load_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy the weights from a model file's arrays.

        Args:
            arrays: Arrays by name; only those whose names begin with "recurrence." are read.

        Raises:
            KeyError: An array is missing.
            RuntimeError: An array has another shape.
        """
        parts = {
            name.removeprefix("recurrence."): torch.tensor(array)
            for name, array in arrays.items()
            if name.startswith("recurrence.")
        }
        if not isinstance(self.core, RecurrentTransformer):
            inside = parts.get("hidden_bias", torch.zeros(0))
            parts = {
                "weight_ih_l0": parts["input"],
                "weight_hh_l0": parts["hidden"],
                "bias_ih_l0": parts["bias"],
                "bias_hh_l0": pad(inside, (len(parts["bias"]) - len(inside), 0)),
            }
        self.core.load_state_dict(parts)


class RecurrentTransformer(nn.Module):
    """Transformer in which each tick attends to itself and the W - 1 ticks before it.

    W is `sizes.window`. The object keeps no state between calls: `forward` takes the state, which
    covers the last W - 1 ticks, and returns the one for the next call. Inputs and outputs are
    (ticks, episodes, ...), but the layers inside take (episodes, ticks, ...).

    Args:
        inputs: Number of inputs at each tick.
        sizes: Kind and sizes of the layers.
        gate_bias: Initial bias of the gates (only for the kind "gtrxl").
    """

    def __init__(self, inputs: int, sizes: RecurrenceSizes, gate_bias: float) -> None:
        super().__init__()
        self.window = sizes.window
        self.input = nn.Linear(inputs, sizes.units)
        self.layers = nn.ModuleList(RecurrentLayer(sizes, gate_bias) for _ in range(sizes.layers))

    def forward(self, x: Tensor, memory: Tensor, filled: Tensor) -> tuple[Tensor, State]:
        """Run the transformer of U units over T ticks of B episodes.

        Args:
            x: Inputs (T, B, inputs).
            memory: Inputs of each layer at the W - 1 ticks before these T ticks, as an array (B,
                layers, W - 1, U).
            filled: Mask (B, W - 1) of those ticks, 0 for ticks before the start of the episode,
                else 1.

        Returns:
            The outputs (T, B, U), and the state after the last tick, which is a pair: the next
            call's `memory` and `filled`.
        """
        steps = len(x)
        filled = pad(filled, (0, steps), value=1.0)
        x = self.input(x).transpose(0, 1)
        seen = []
        for layer, before in zip(self.layers, memory.unbind(1), strict=True):
            seen.append(torch.cat([before, x], 1))
            x = layer(seen[-1], steps, filled)
        memory = torch.stack([states[:, steps:] for states in seen], 1)
        return x.transpose(0, 1), (memory, filled[:, steps:])

    def compute_last_output(self, x: Tensor) -> Tensor:
        """Return the outputs (B, U) of U units at the last tick of B whole episodes.

        This is cheaper than `forward`, because the highest layer computes only the last tick.

        Args:
            x: Inputs (T, B, inputs) of all ticks.
        """
        steps, before, x = len(x), self.window - 1, self.input(x).transpose(0, 1)
        filled = pad(x.new_ones(x.shape[:2]), (before, 0))
        *lower, highest = self.layers
        for layer in lower:
            x = layer(pad(x, (0, 0, before, 0)), steps, filled)
        seen: Tensor = pad(x, (0, 0, before, 0))[:, -self.window :]
        heard: Tensor = highest(seen, 1, filled[:, -self.window :])
        return heard[:, 0]


class RecurrentLayer(nn.Module):
    """Transformer layer: attention over a window of ticks, then a network for each tick alone.

    Args:
        sizes: Kind and sizes of the layer.
        gate_bias: Initial bias of the gates (only for the kind "gtrxl").
    """

    ages: Tensor

    def __init__(self, sizes: RecurrenceSizes, gate_bias: float) -> None:
        super().__init__()
        units, self.heads = sizes.units, sizes.heads
        self.norms_first = sizes.kind != "trxl"
        self.query, self.key, self.value = (_make_weight_matrix(units, units) for _ in range(3))
        self.relative = _make_weight_matrix(units, units)
        self.output = _make_weight_matrix(units, units)
        self.content_bias = nn.Parameter(torch.zeros(self.heads, units // self.heads))
        self.position_bias = nn.Parameter(torch.zeros(self.heads, units // self.heads))
        widths = (units, 4 * units), (4 * units, units)
        self.network = nn.ModuleList(nn.Linear(*width) for width in widths)
        self.attention_norm, self.network_norm = nn.LayerNorm(units), nn.LayerNorm(units)
        if sizes.kind == "gtrxl":
            self.attention_gate = RecurrenceGate(units, gate_bias)
            self.network_gate = RecurrenceGate(units, gate_bias)
        ages = make_positional_table(sizes.window, units)[::-1].astype(
            np.float32
        )  # the oldest first
        self.register_buffer("ages", torch.from_numpy(ages.copy()), persistent=False)

    def forward(self, states: Tensor, steps: int, filled: Tensor) -> Tensor:
        """Run the layer over T ticks of B episodes and return its outputs (B, T, U).

        The layer has U units, and each tick attends to a window of W ticks that ends with it.

        Args:
            states: Inputs (B, W - 1 + T, U) at the W - 1 ticks before the sequence and at the T
                ticks of the sequence itself.
            steps: Number T of ticks of the sequence.
            filled: Mask (B, W - 1 + T) of those ticks, 0 for ticks before the start of the episode,
                else 1.
        """
        x = states[:, -steps:]
        y = self._compute_attention(
            self.attention_norm(states) if self.norms_first else states, steps, filled
        )
        x = self._combine_input_and_output("attention", x, y)
        first, last = self.network
        y = last(first(self.network_norm(x) if self.norms_first else x).relu())
        return self._combine_input_and_output("network", x, y)

    def _compute_attention(self, states: Tensor, steps: int, filled: Tensor) -> Tensor:
        """Return the output of the attention with relative positions; arguments as in `forward`."""
        # H is the number of attention heads, D the length of a head's vectors.
        query = self._split_heads(linear(states[:, -steps:], self.query))  # (B, H, T, D)
        key = self._split_heads(linear(states, self.key))  # (B, H, W - 1 + T, D)
        value = self._split_heads(linear(states, self.value))
        relative = self._split_heads(linear(self.ages, self.relative))  # (H, W, D)
        content_scores = (query + self.content_bias[:, None]) @ key.mT
        position_scores = (query + self.position_bias[:, None]) @ relative.mT
        scores = (
            content_scores + _convert_to_scores_by_absolute_position(position_scores)
        ) * query.shape[-1] ** -0.5
        scores = scores.masked_fill(filled[:, None, None] == 0, -torch.inf)
        heard = scores.softmax(-1) @ value
        return linear(heard.transpose(1, 2).flatten(2), self.output)

    def _split_heads(self, x: Tensor) -> Tensor:
        """Reshape x from (..., n, H * D) to (..., H, n, D), for H heads with D numbers each."""
        return x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def _combine_input_and_output(self, submodule: str, x: Tensor, y: Tensor) -> Tensor:
        """Combine the input x and the output y of a submodule, as residual connections do.

        Depending on the kind of the layer, the result (B, T, U) is the normalised sum of x and y,
        the sum x + relu(y), or a gate (`RecurrenceGate`) of x and relu(y).
        """
        if not self.norms_first:
            return getattr(self, f"{submodule}_norm")(x + y)
        gate = getattr(self, f"{submodule}_gate", torch.add)
        return gate(x, y.relu())


class RecurrenceGate(nn.Module):
    """GRU gate g(x, y) of GTrXL (Parisotto et al. 2019), which replaces the residual sum x + y.

    A weight matrix (3 U, U) has U rows each for the reset gate, the update gate and the new value.

    Args:
        units: Number of units U.
        bias: Initial bias of the update gate; the larger it is, the closer the output of the gate
            is to x.
    """

    def __init__(self, units: int, bias: float) -> None:
        super().__init__()
        self.input = _make_weight_matrix(3 * units, units)
        self.hidden = _make_weight_matrix(3 * units, units)
        self.bias = nn.Parameter(torch.full((units,), bias))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return a value (..., U) between x and a new value that is computed from x and y.

        Args:
            x: Input (..., U) of the sublayer whose residual sum x + y the gate replaces.
            y: Output (..., U) of this sublayer.
        """
        units = len(self.bias)
        y_reset, y_update, y_new = linear(y, self.input).chunk(3, -1)
        x_reset, x_update = linear(x, self.hidden[: 2 * units]).chunk(2, -1)
        reset = (y_reset + x_reset).sigmoid()
        update = (y_update + x_update - self.bias).sigmoid()
        new = (y_new + linear(reset * x, self.hidden[2 * units :])).tanh()
        return x + update * (new - x)


def _convert_to_scores_by_absolute_position(relative_scores: Tensor) -> Tensor:
    """Convert scores (..., T, W) by relative position to (..., T, W - 1 + T) by absolute position.

    Tick t of T attends to a window of W ticks, the columns t to t + W - 1 of the result. In all
    other columns its scores are -inf.
    """
    steps, window = relative_scores.shape[-2:]
    wide = pad(
        relative_scores, (0, steps), value=-torch.inf
    )  # a place too wide: each row slips one
    cut = wide.flatten(-2)[..., : steps * (window - 1 + steps)]
    return cut.unflatten(-1, (steps, window - 1 + steps))


def _make_weight_matrix(rows: int, columns: int) -> nn.Parameter:
    """Return a trainable matrix (rows, columns), initialised like the weights of `nn.Linear`."""
    return nn.Linear(columns, rows, bias=False).get_parameter("weight")


class MultiheadAttentionBlock(nn.Module):
    """Multihead attention block MAB(X, Y) of the Set Transformer (Lee et al. 2019, equation 6).

    Args:
        width: Length d of each vector.
        heads: Number of attention heads.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self._heads = heads
        self.query, self.key, self.value, self.output = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        self.feed_forward = nn.Linear(width, width)
        self.attention_norm, self.norm = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor, y: Tensor, present: Tensor | None = None) -> Tensor:
        """Return the block's output (..., m, d).

        Args:
            x: The m vectors of length d (..., m, d) from which the queries are computed.
            y: The n vectors (..., n, d) from which the keys and values are computed.
            present: Weight (..., n) of each vector in `y`: how many equal vectors it stands for. A
                vector with weight 0 is left out. None gives every vector the weight 1.
        """
        query, key, value = (
            layer(rows).unflatten(-1, (self._heads, -1)).transpose(-3, -2)
            for layer, rows in ((self.query, x), (self.key, y), (self.value, y))
        )
        scores = query @ key.transpose(-1, -2) / x.shape[-1] ** 0.5
        if present is not None:  # the softmax over no row at all shall be 0, not NaN
            number = present[..., None, None, :]
            scores = (scores + number.log().clamp(min=-1e9)).softmax(-1)
            scores = scores * (number > 0)
        else:
            scores = scores.softmax(-1)
        seen = (scores @ value).transpose(-3, -2).flatten(-2)
        hidden = self.attention_norm(x + self.output(seen))
        out: Tensor = self.norm(hidden + torch.relu(self.feed_forward(hidden)))
        return out


class SetEncoder(nn.Module):
    """Set Transformer encoder (SAB or ISAB): self-attention between the outputs of N channels.

    Args:
        kind: With "sab", each channel attends to every channel. With "isab", the channels attend to
            a few learned vectors (inducing points), which attend to the channels.
        width: Length d of the output vector of each channel's network.
        heads: Number of attention heads.
        inducing: Number of inducing points (isab).
    """

    def __init__(self, kind: Encoder, width: int, heads: int, inducing: int) -> None:
        super().__init__()
        if kind == "isab":
            self.inducing = nn.Parameter(torch.randn(inducing, width) / width**0.5)
            self.gather = MultiheadAttentionBlock(width, heads)
            self.spread = MultiheadAttentionBlock(width, heads)
        else:
            self.block = MultiheadAttentionBlock(width, heads)
        self._kind = kind

    def forward(self, x: Tensor, present: Tensor) -> Tensor:
        """Return the encoded outputs (..., N, d).

        Args:
            x: Outputs (..., N, d) of the channels' networks.
            present: Mask (..., N), 1 for channels that are attended to, 0 for missing channels.
        """
        if self._kind == "sab":
            out: Tensor = self.block(x, x, present)
            return out
        points = self.inducing.expand(*x.shape[:-2], -1, -1)
        spread: Tensor = self.spread(x, self.gather(points, x, present))
        return spread

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the weights as arrays, by their names in a model file."""
        return _export_arrays(self, {"block.": "encoder.", "": "encoder."})

    def load_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy the weights from a model file's arrays."""
        _load_arrays_into_module(self, arrays, {"block.": "encoder.", "": "encoder."})


class SetPooling(nn.Module):
    """Set Transformer pooling (PMA): M learned seed vectors attend to the N channels.

    Args:
        seeds: Number M of seed vectors.
        width: Length d of the output vector of each channel's network.
        heads: Number of attention heads.
    """

    def __init__(self, seeds: int, width: int, heads: int) -> None:
        super().__init__()
        self.seeds = nn.Parameter(torch.randn(seeds, width) / width**0.5)
        self.input = nn.Linear(width, width)
        self.block = MultiheadAttentionBlock(width, heads)

    def forward(self, z: Tensor, present: Tensor) -> Tensor:
        """Return M vectors (..., M, d) that summarise the outputs of all channels.

        Args:
            z: Outputs (..., N, d) of the channels' networks.
            present: Mask (..., N), 1 for channels that are attended to, 0 for missing channels.
        """
        seeds = self.seeds.expand(*z.shape[:-2], -1, -1)
        pooled: Tensor = self.block(seeds, torch.relu(self.input(z)), present)
        return pooled

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the weights as arrays, by their names in a model file."""
        return _export_arrays(self, {"block.": "pooling.", "": "pooling."})

    def load_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy the weights from a model file's arrays."""
        _load_arrays_into_module(self, arrays, {"block.": "pooling.", "": "pooling."})


def _convert_to_array_name(name: str, prefixes: Mapping[str, str]) -> str:
    """Return a torch parameter's name in a model file, with its first matching prefix replaced."""
    prefix = next(one for one in prefixes if name.startswith(one))
    plain = prefixes[prefix] + name.removeprefix(prefix)
    bare = plain.removesuffix(".weight")
    return bare if bare.endswith((".query", ".key", ".value", ".output")) else plain


def _export_arrays(module: nn.Module, prefixes: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Return a module's parameters as arrays, by their names in a model file."""
    return {
        _convert_to_array_name(name, prefixes): to_array(one)
        for name, one in module.named_parameters()
    }


def _load_arrays_into_module(
    module: nn.Module, arrays: Mapping[str, np.ndarray], prefixes: Mapping[str, str]
) -> None:
    """Copy a model file's arrays into a module's parameters."""
    with torch.no_grad():
        for name, one in module.named_parameters():
            one.copy_(torch.from_numpy(arrays[_convert_to_array_name(name, prefixes)].copy()))
