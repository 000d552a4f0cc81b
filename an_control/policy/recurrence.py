"""Recurrent layers between a policy's attention message and its head, in numpy, tick by tick.

They are an LSTM (Hochreiter & Schmidhuber 1997), a GRU (Cho et al. 2014), or a transformer of
Parisotto et al. 2019, "Stabilizing Transformers for Reinforcement Learning". This is the plain one
(TrXL), the one with identity map reordering (TrXL-I) or the gated one (GTrXL), with the attention
of Dai et al. 2019, "Transformer-XL". The layers of a transformer keep their inputs of the last
`window` ticks.

U is the number of units, n the number of ticks in the window so far.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from an_control.policy.set_transformer import apply_layer_norm, make_positional_table
from an_control.policy.sizes import RecurrenceSizes


def compute_logistic(x: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + e^-x), in a form that cannot overflow."""
    return np.asarray(0.5 * np.tanh(0.5 * x) + 0.5)


def step_lstm(gate_sums: np.ndarray, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute one step of an LSTM of U units.

    Args:
        gate_sums: The gates' weighted sums (..., 4U) in the order input, forget, candidate, output.
        cells: The cells (..., U) before the step.

    Returns:
        The outputs (..., U) and the cells (..., U) after the step.
    """
    units = cells.shape[-1]
    enter, forget, candidate, leave = (
        gate_sums[..., gate * units : (gate + 1) * units] for gate in range(4)
    )
    cells = compute_logistic(forget) * cells + compute_logistic(enter) * np.tanh(candidate)
    return compute_logistic(leave) * np.tanh(cells), cells


def step_gru(
    arrays: Mapping[str, np.ndarray], prefix: str, inputs: np.ndarray, units: np.ndarray
) -> np.ndarray:
    """Compute one step of a GRU of U units; return the values (U,) of the units after it.

    Args:
        arrays: Arrays by name; ``prefix.input``, ``.bias``, ``.hidden`` and ``.hidden_bias`` are
            used, with rows in the order of the gates reset, update, new.
        prefix: The prefix of these arrays' names.
        inputs: The input vector.
        units: The units (U,) before the step.
    """
    entering = arrays[f"{prefix}.input"] @ inputs + arrays[f"{prefix}.bias"]
    x_reset, x_update, x_new = entering.reshape(3, -1)
    h_reset, h_update, h_new = (arrays[f"{prefix}.hidden"] @ units).reshape(3, -1)
    reset, update = compute_logistic(x_reset + h_reset), compute_logistic(x_update + h_update)
    new = np.tanh(x_new + reset * (h_new + arrays[f"{prefix}.hidden_bias"]))
    return np.asarray((1.0 - update) * new + update * units)


class RecurrentLayers:
    """The recurrent layers of a policy (LSTM, GRU or transformer), with their state.

    Args:
        sizes: The sizes of the layers.
        arrays: A model's arrays, of which those named ``recurrence.*`` are used.
    """

    def __init__(self, sizes: RecurrenceSizes, arrays: Mapping[str, np.ndarray]) -> None:
        self._sizes = sizes
        self._weight = {
            name: array.astype(np.float64)
            for name, array in arrays.items()
            if name.startswith("recurrence.")
        }
        self._ages = make_positional_table(sizes.window, sizes.units)[::-1]
        self.reset()

    def reset(self) -> None:
        """Start an episode with zero state."""
        sizes = self._sizes
        self._output = self._cells = np.zeros(sizes.units)
        self._states = [np.zeros((0, sizes.units)) for _ in range(sizes.layers)]
        """The inputs (n, U) of each layer in the window, the oldest first."""

    def step(self, x: np.ndarray) -> np.ndarray:
        """Compute one tick for the input vector `x`; return the output (U,) of U units, float64."""
        weight = self._weight
        if self._sizes.kind == "gru":
            self._output = step_gru(weight, "recurrence", x, self._output)
            return self._output
        if self._sizes.kind == "lstm":
            sums = weight["recurrence.input"] @ x + weight["recurrence.hidden"] @ self._output
            self._output, self._cells = step_lstm(sums + weight["recurrence.bias"], self._cells)
            return self._output
        x = weight["recurrence.input.weight"] @ x + weight["recurrence.input.bias"]
        for layer, states in enumerate(self._states):
            states = self._states[layer] = np.vstack([states, x])[-self._sizes.window :]
            x = self._apply_transformer_layer(f"recurrence.layers.{layer}", states)
        return x

    def _apply_transformer_layer(self, name: str, states: np.ndarray) -> np.ndarray:
        """Return the output (U,) of a transformer's layer: attention, then a position-wise network.

        Args:
            name: The prefix of the names of the layer's arrays.
            states: (n, U) the inputs of the layer in the last n ticks, the oldest first.
        """
        if self._sizes.kind == "trxl":  # norms after the sums
            x = self._apply_layer_norm(
                f"{name}.attention", states[-1] + self._compute_attention_output(name, states)
            )
            return self._apply_layer_norm(
                f"{name}.network", x + self._apply_position_wise_network(name, x)
            )
        y = self._compute_attention_output(
            name, self._apply_layer_norm(f"{name}.attention", states)
        )
        x = self.add_residual(f"{name}.attention", states[-1], np.maximum(y, 0.0))
        y = self._apply_position_wise_network(name, self._apply_layer_norm(f"{name}.network", x))
        return self.add_residual(f"{name}.network", x, np.maximum(y, 0.0))

    def _compute_attention_output(self, name: str, states: np.ndarray) -> np.ndarray:
        """Return the output (U,) of the attention of the newest tick to the last n ticks.

        Args:
            name: The prefix of the names of the layer's arrays.
            states: (n, U) the inputs of the attention in these ticks, the oldest first.
        """
        heads, width = self._sizes.heads, self._sizes.units // self._sizes.heads

        def project_to_heads(projection: str, rows: np.ndarray) -> np.ndarray:
            """Return a projection of rows (n, U), split into (n, heads, U / heads).

            Args:
                projection: The name of the projection, such as "query".
                rows: The rows.
            """
            return (rows @ self._weight[f"{name}.{projection}"].T).reshape(-1, heads, width)

        query, keys = project_to_heads("query", states[-1:]), project_to_heads("key", states)
        values = project_to_heads("value", states)
        ages = project_to_heads("relative", self._ages[-len(states) :])
        scores = ((query + self._weight[f"{name}.content_bias"]) * keys).sum(axis=2)
        scores += ((query + self._weight[f"{name}.position_bias"]) * ages).sum(axis=2)
        shares = np.exp((scores - scores.max(axis=0)) / np.sqrt(width))
        shares /= shares.sum(axis=0)
        heard = (shares[:, :, None] * values).sum(axis=0)
        return np.asarray(self._weight[f"{name}.output"] @ heard.ravel())

    def _apply_position_wise_network(self, name: str, x: np.ndarray) -> np.ndarray:
        """Return the output (U,) of the position-wise network of the layer `name` for `x` (U,)."""
        weight = self._weight
        hidden = weight[f"{name}.network.0.weight"] @ x + weight[f"{name}.network.0.bias"]
        out = weight[f"{name}.network.1.weight"] @ np.maximum(hidden, 0.0)
        return np.asarray(out + weight[f"{name}.network.1.bias"])

    def _apply_layer_norm(self, name: str, x: np.ndarray) -> np.ndarray:
        """Return the layer norm of rows (..., U), with the weights of the norm `name`."""
        weight = self._weight
        return apply_layer_norm(x, weight[f"{name}_norm.weight"], weight[f"{name}_norm.bias"])

    def add_residual(
        self, name: str, submodule_input: np.ndarray, submodule_output: np.ndarray
    ) -> np.ndarray:
        """Return the sum of the output and the input of a transformer's submodule.

        For ``gtrxl`` the two are not added, but combined by the GRU gate g(input, output).

        Args:
            name: The prefix of the names of the gate's arrays.
            submodule_input: (U,) the input of the submodule.
            submodule_output: (U,) the output of the submodule.
        """
        if self._sizes.kind == "trxl-i":
            return submodule_input + submodule_output
        units = len(submodule_input)
        hidden = self._weight[f"{name}_gate.hidden"]
        y_reset, y_update, y_new = (self._weight[f"{name}_gate.input"] @ submodule_output).reshape(
            3, -1
        )
        x_reset, x_update = (hidden[: 2 * units] @ submodule_input).reshape(2, -1)
        reset = compute_logistic(y_reset + x_reset)
        update = compute_logistic(y_update + x_update - self._weight[f"{name}_gate.bias"])
        new = np.tanh(y_new + hidden[2 * units :] @ (reset * submodule_input))
        return np.asarray((1.0 - update) * submodule_input + update * new)
