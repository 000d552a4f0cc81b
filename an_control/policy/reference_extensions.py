"""What our models add to the paper's AttentionNeuron, in plain numpy; read `reference` first.

A model file's sizes say which of these a policy has. The engines compute the same and are tested
against it. N channels, n queries that stand for channels, H units of the head's memory.

The memory behind the message, equation by equation in plain numpy; read `reference` first.

Parisotto et al. 2019, "Stabilizing Transformers for Reinforcement Learning": the transformer, its
identity map reordering (TrXL-I) and its gates (GTrXL); attention by Dai et al. 2019,
"Transformer-XL". Nothing here is fast: every state is kept, and all that a tick needs
is computed anew. `recurrence` computes the same and is tested against it.

U units, n positions in the window.

The Set Transformer's parts of a policy in plain numpy; read `reference` first.

Lee et al. 2019, "Set Transformer: A Framework for Attention-based Permutation-Invariant Neural
Networks", equations 6 to 11. N channels, M queries, d units of a neuron, h heads.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from an_control.policy.model_file import Model
from an_control.policy.reference import Neuron, Reference, logistic
from an_control.policy.sizes.scalar import PartSizes, RecurrenceSizes

JUMP_LIMIT = 0.18
MAX_LOG = 20.0


class ExtendedReference(Reference):
    """The paper's policy with every extension that its sizes name."""

    def reset(self) -> None:
        super().reset()
        self.reset_neurons()
        self.usual_jump: dict[str, float] = {}
        self.units = np.zeros(self.sizes.memory)
        self.seen = self.share = np.zeros(self.sizes.queries - 1)

    def reset_neurons(self) -> None:
        """All that a neuron knows goes; the previous action and the head's memory stay."""
        self.neurons = {}
        self.newest: dict[str, list[float]] = {}
        self.evidence: dict[str, np.ndarray] = {}

    def step(self, readings: dict[str, float]) -> np.ndarray:
        if self.sizes.reset_on_jump and self.jumped(readings):
            self.reset_neurons()
        if self.sizes.memory:
            self.units, self.expected = self.expect()
        return super().step(readings)

    # Reset on jump: neurons whose channels were all rewired at once start again.

    def jumped(self, readings: dict[str, float]) -> bool:
        """Whether most readings jump farther than twice what is usual for them."""
        excess = []
        for name, reading in readings.items():
            last, usual = self.newest.get(name, [reading])[0], self.usual_jump.get(name, 0.0)
            jump = min(abs(reading - last), 1.0)
            excess.append(max(jump - 2.0 * usual, 0.0))
            self.usual_jump[name] = 0.9 * usual + 0.1 * jump
        return sum(excess) > JUMP_LIMIT * len(excess)

    # The neuron: its reading's change, products with the previous action, stacked readings.

    def neuron(self, name: str, reading: float) -> np.ndarray:
        newest = self.newest.get(name, [reading] * max(self.sizes.stack, 1))
        self.newest[name] = [reading, *newest][: max(self.sizes.stack, 1)]
        if self.sizes.stack:  # a layer of tanh units that keeps no other state
            return np.tanh(self.drive(np.array(self.newest[name])))
        inputs = [reading, reading - newest[0]][: len(self.sizes.inputs)]
        state = self.neurons.get(name) or Neuron(*np.zeros((2, self.sizes.neuron)))
        self.neurons[name] = self.lstm(state, np.array(inputs))
        return self.neurons[name].output

    def drive(self, inputs: np.ndarray) -> np.ndarray:
        drive = super().drive(inputs)
        if self.sizes.products:
            products = self.weight["neuron.products"] @ self.previous_action
            drive = drive + products @ inputs
        return drive

    # Attention and message: softmax over the queries, sums that added channels leave as they are.

    def message(self, readings: dict[str, float]) -> np.ndarray:
        o, normalise = np.array(list(readings.values())), self.sizes.normalise
        columns = [self.column(name, reading) for name, reading in readings.items()]
        attention = np.array(columns).reshape(len(o), self.sizes.queries).T
        if self.sizes.attention == "tanh":
            scale = normalise / max(1, len(o)) if normalise else 1.0
            return np.tanh(attention @ o * scale)
        attention = attention[:-1]  # the last query stands for none of the channels
        if self.sizes.memory:
            attention = attention**2
        total, mass = attention @ o, attention.sum(axis=1)
        if self.sizes.memory:
            return self.known(total, mass)
        if normalise:
            total, mass = total / np.maximum(mass, 1.0), np.minimum(mass, 1.0)
        return np.concatenate([total, mass - 1.0])

    def column(self, name: str, reading: float) -> np.ndarray:
        """(M,): a channel's attention."""
        key = self.key(name, reading)
        if self.sizes.attention == "tanh":
            return self.attention(key)
        scores = self.weight["attention.queries"] @ key
        if self.sizes.prediction_attention:
            scores[:-1] += self.fit(name, reading)
        shares = np.exp(scores - scores.max())
        return np.asarray(shares / shares.sum())

    # Prediction attention: which query expected this reading tells, too, which channel it is.

    def fit(self, name: str, reading: float) -> np.ndarray:
        """(n,): a channel's evidence for each query, which fades from tick to tick."""
        width, loss, gain, keep = self.weight["attention.prediction"]
        error = np.exp(np.minimum(width, MAX_LOG)) * (reading - self.expected) ** 2
        before = self.evidence.get(name, np.zeros(len(gain)))
        self.evidence[name] = logistic(keep) * before + gain - loss * error / (1.0 + error)
        return self.evidence[name]

    # Memory: the head imputes what no channel reads, and gives outliers less weight.

    def expect(self) -> tuple[np.ndarray, np.ndarray]:
        """The memory's units (H,) after this tick, and the readings (n,) that it expects now."""
        lately = np.concatenate([self.seen, self.share, self.previous_action])
        units = gru(self.weight, lately, self.units)
        expected = self.weight["expectation.weight"] @ np.concatenate([units, lately])
        return units, expected + self.weight["expectation.bias"]

    def known(self, total: np.ndarray, mass: np.ndarray) -> np.ndarray:
        """(n + H,), the head's input: what was expected, corrected by what is read."""
        share = np.minimum(mass, 1.0)
        news = total / np.maximum(mass, 1.0) - share * self.expected
        trust = np.ones(len(news))
        if self.sizes.outlier_weighting:
            weight = np.exp(np.minimum(self.weight["memory.log_outlier_weight"], MAX_LOG))
            trust = 1.0 / (1.0 + weight * news**2)
        self.seen, self.share = self.expected + trust * news, trust * share
        return np.concatenate([self.seen, self.units])

    def head(self, x: np.ndarray) -> np.ndarray:
        last = len(self.sizes.head)
        for layer in range(last + 1):
            x = self.weight[f"head.{layer}.weight"] @ x + self.weight[f"head.{layer}.bias"]
            if layer < last:
                x = np.tanh(x) if self.sizes.activation == "tanh" else np.maximum(x, 0.0)
        return np.tanh(x) if self.sizes.output == "tanh" else np.clip(x, -1.0, 1.0)


def gru(weight: dict[str, np.ndarray], inputs: np.ndarray, units: np.ndarray) -> np.ndarray:
    """GRU units (H,) after a tick (Cho et al. 2014); gates in the order reset, update, new."""
    x_reset, x_update, x_new = np.split(weight["memory.input"] @ inputs + weight["memory.bias"], 3)
    h_reset, h_update, h_new = np.split(weight["memory.hidden"] @ units, 3)
    reset, update = logistic(x_reset + h_reset), logistic(x_update + h_update)
    new = np.tanh(x_new + reset * (h_new + weight["memory.hidden_bias"]))
    return np.asarray((1.0 - update) * new + update * units)


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


class SetEquations:
    """The paper's blocks, with the arrays and sizes of a model."""

    def __init__(self, weight: dict[str, np.ndarray], sizes: PartSizes) -> None:
        self.weight, self.sizes = weight, sizes

    def encode(self, x: np.ndarray) -> np.ndarray:
        """(N, d): SAB(X) = MAB(X, X); ISAB(X) = MAB(X, H) with H = MAB(I, X)."""
        if self.sizes.encoder == "sab":
            return self.block("encoder", x, x)
        if self.sizes.encoder == "isab":
            h = self.block("encoder.gather", self.weight["encoder.inducing"], x)
            return self.block("encoder.spread", x, h)
        return x

    def pool(self, z: np.ndarray) -> np.ndarray:
        """(M, d): PMA(Z) = MAB(S, rFF(Z))."""
        return self.block(
            "pooling", self.weight["pooling.seeds"], self.row_wise("pooling.input", z)
        )

    def block(self, name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """MAB(X, Y) = LayerNorm(H + rFF(H)) with H = LayerNorm(X + Multihead(X, Y, Y))."""
        h = self.normalise(f"{name}.attention_norm", x + self.multihead(name, x, y))
        return self.normalise(f"{name}.norm", h + self.row_wise(f"{name}.feed_forward", h))

    def multihead(self, name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Equation 3: concat(O_1 .. O_h) W^O, O_j = softmax(Q_j K_j^T / sqrt(d)) V_j."""
        d, h = x.shape[1], self.sizes.heads
        heads = []
        for part in np.split(np.arange(d), h):
            query, key, value = (
                rows @ self.weight[f"{name}.{what}"][part].T
                for rows, what in ((x, "query"), (y, "key"), (y, "value"))
            )
            shares = np.exp(query @ key.T / np.sqrt(d))
            heads.append(shares / np.maximum(shares.sum(1, keepdims=True), 1e-300) @ value)
        return np.concatenate(heads, axis=1) @ self.weight[f"{name}.output"].T

    def row_wise(self, name: str, rows: np.ndarray) -> np.ndarray:
        """rFF: the same layer for every row."""
        return np.maximum(rows @ self.weight[f"{name}.weight"].T + self.weight[f"{name}.bias"], 0.0)

    def normalise(self, name: str, rows: np.ndarray) -> np.ndarray:
        """LayerNorm (Ba et al. 2016), with PyTorch's 1e-5 beside the variance."""
        mean, variance = rows.mean(1, keepdims=True), rows.var(1, keepdims=True)
        plain = (rows - mean) / np.sqrt(variance + 1e-5)
        return plain * self.weight[f"{name}.weight"] + self.weight[f"{name}.bias"]


class SetReference(ExtendedReference):
    """The policy with an encoder between the channels, pooling by attention (PMA), or both; and
    with a recurrence behind the message."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.parts = SetEquations(self.weight, self.sizes)

    def reset(self) -> None:
        super().reset()
        if self.sizes.recurrence is not None:
            self.recurrence = ReferenceRecurrence(self.sizes.recurrence, self.weight)

    def head(self, x: np.ndarray) -> np.ndarray:
        return super().head(x if self.sizes.recurrence is None else self.recurrence.step(x))

    def message(self, readings: dict[str, float]) -> np.ndarray:
        """The message as without an encoder, or with pma (M d,), what is pooled."""
        rows = [super(SetReference, self).neuron(name, value) for name, value in readings.items()]
        outputs = self.parts.encode(np.array(rows).reshape(-1, self.sizes.neuron))
        self.outputs = dict(zip(readings, outputs, strict=True))
        if self.sizes.attention == "pma":
            return self.parts.pool(outputs).ravel()
        return super().message(readings)

    def neuron(self, name: str, reading: float) -> np.ndarray:
        """(d,): what the encoder made of the neuron's output at this tick."""
        return self.outputs[name]
