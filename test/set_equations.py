"""The Set Transformer's parts of a policy, equation by equation: what the policies are held to.

Lee et al. 2019, "Set Transformer: A Framework for Attention-based Permutation-Invariant Neural
Networks", equations 6 to 11. N channels, M queries, d units of a neuron, h heads.
"""

from __future__ import annotations

import numpy as np


class SetEquations:
    """The paper's blocks, with the arrays and sizes of a model."""

    def __init__(self, weight: dict[str, np.ndarray], sizes) -> None:
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
