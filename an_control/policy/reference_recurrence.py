"""The memory behind the message, equation by equation in plain numpy; read `reference` first.

Parisotto et al. 2019, "Stabilizing Transformers for Reinforcement Learning": the transformer, its
identity map reordering (TrXL-I) and its gates (GTrXL); attention by Dai et al. 2019,
"Transformer-XL". Nothing here is fast: every state is kept, and all that a tick needs
is computed anew. `recurrence` computes the same and is tested against it.

U units, n positions in the window.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from an_control.policy.reference import logistic
from an_control.policy.sizes.recurrence import RecurrenceSizes

EPSILON = 1e-5


class ReferenceRecurrence:
    """One tick at a time; float64."""

    def __init__(self, sizes: RecurrenceSizes, arrays: Mapping[str, np.ndarray]) -> None:
        self.sizes = sizes
        self.weight = {
            name.removeprefix("recurrence."): array.astype(np.float64)
            for name, array in arrays.items()
        }
        self.reset()

    def reset(self) -> None:
        """Start an episode: nothing is remembered."""
        self.output = self.cell = np.zeros(self.sizes.units)
        self.history: list[list[np.ndarray]] = [[] for _ in range(self.sizes.layers)]

    def step(self, x: np.ndarray) -> np.ndarray:
        """(U,) for the inputs `x`."""
        if self.sizes.kind == "lstm":
            return self.lstm(x)
        return self.gru(x) if self.sizes.kind == "gru" else self.transformer(x)

    def lstm(self, x: np.ndarray) -> np.ndarray:
        """Hochreiter & Schmidhuber 1997."""
        weight = self.weight
        sums = weight["input"] @ x + weight["hidden"] @ self.output + weight["bias"]
        i, f, g, o = np.split(sums, 4)
        self.cell = logistic(f) * self.cell + logistic(i) * np.tanh(g)
        self.output = logistic(o) * np.tanh(self.cell)
        return self.output

    def gru(self, x: np.ndarray) -> np.ndarray:
        """Cho et al. 2014."""
        weight = self.weight
        x_reset, x_update, x_new = np.split(weight["input"] @ x + weight["bias"], 3)
        h_reset, h_update, h_new = np.split(weight["hidden"] @ self.output, 3)
        reset, update = logistic(x_reset + h_reset), logistic(x_update + h_update)
        new = np.tanh(x_new + reset * (h_new + weight["hidden_bias"]))
        self.output = (1.0 - update) * new + update * self.output
        return self.output

    def transformer(self, x: np.ndarray) -> np.ndarray:
        """The layers one after the other; each sees the states of the one below."""
        e = self.weight["input.weight"] @ x + self.weight["input.bias"]
        for layer, history in enumerate(self.history):
            history.append(e)
            e = self.block(f"layers.{layer}", history[-self.sizes.window :])
        return e

    def block(self, name: str, states: list[np.ndarray]) -> np.ndarray:
        """A layer (U,): attention over `states`, oldest first, and a position-wise network."""
        if self.sizes.kind == "trxl":  # norms after the sums
            y = self.attention(name, states)
            e = self.norm(f"{name}.attention", states[-1] + y)
            return self.norm(f"{name}.network", e + self.network(name, e))
        y = self.attention(name, [self.norm(f"{name}.attention", state) for state in states])
        e = self.add(f"{name}.attention", states[-1], np.maximum(y, 0.0))
        y = self.network(name, self.norm(f"{name}.network", e))
        return self.add(f"{name}.network", e, np.maximum(y, 0.0))

    def attention(self, name: str, states: list[np.ndarray]) -> np.ndarray:
        """(U,): what the newest of the states (n, U) hears of them all, itself among them."""
        query, key, value, relative = (
            self.weight[f"{name}.{part}"] for part in ("query", "key", "value", "relative")
        )
        u, v = self.weight[f"{name}.content_bias"], self.weight[f"{name}.position_bias"]
        width = self.sizes.units // self.sizes.heads
        heard = []
        for head in range(self.sizes.heads):
            rows = slice(head * width, (head + 1) * width)
            q = query[rows] @ states[-1]
            scores = np.array(
                [
                    (q + u[head]) @ (key[rows] @ state) + (q + v[head]) @ (relative[rows] @ r)
                    for state, r in zip(states, self.ages(len(states)), strict=True)
                ]
            )
            shares = np.exp(scores / np.sqrt(width))
            shares /= shares.sum()
            heard.append(sum(s * (value[rows] @ e) for s, e in zip(shares, states, strict=True)))
        return np.asarray(self.weight[f"{name}.output"] @ np.concatenate(heard))

    def ages(self, positions: int) -> list[np.ndarray]:
        """R, sines and cosines (U,) of each position's age; the oldest comes first."""
        units = self.sizes.units
        rates = [10000.0 ** (-2 * pair / units) for pair in range(units // 2)]
        return [
            np.array([wave(age * rate) for rate in rates for wave in (np.sin, np.cos)])
            for age in reversed(range(positions))
        ]

    def network(self, name: str, x: np.ndarray) -> np.ndarray:
        """(U,): the position-wise network f."""
        weight = self.weight
        hidden = weight[f"{name}.network.0.weight"] @ x + weight[f"{name}.network.0.bias"]
        out = weight[f"{name}.network.1.weight"] @ np.maximum(hidden, 0.0)
        return np.asarray(out + weight[f"{name}.network.1.bias"])

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        """Layer norm (Ba et al. 2016)."""
        x = (x - x.mean()) / np.sqrt(x.var() + EPSILON)
        return np.asarray(x * self.weight[f"{name}_norm.weight"] + self.weight[f"{name}_norm.bias"])

    def add(self, name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The residual sum x + y (U,), or g(x, y), the GRU gate."""
        if self.sizes.kind == "trxl-i":
            return x + y
        w_reset, w_update, w_new = np.split(self.weight[f"{name}_gate.input"], 3)
        u_reset, u_update, u_new = np.split(self.weight[f"{name}_gate.hidden"], 3)
        r = logistic(w_reset @ y + u_reset @ x)
        z = logistic(w_update @ y + u_update @ x - self.weight[f"{name}_gate.bias"])
        h = np.tanh(w_new @ y + u_new @ (r * x))
        return np.asarray((1.0 - z) * x + z * h)
