"""The Set Transformer's parts as torch modules, exported to a model file's arrays.

They compute what `an_control.policy.set_transformer` computes (Lee et al. 2019, equations 6
to 11), for any leading dimensions; rows that are not present are attended to by nobody.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from an_control.learning.arrays import array_of
from an_control.policy.sizes.set_transformer import Encoder


class Block(nn.Module):
    """Multihead attention block, MAB(X, Y), of width d."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self._heads = heads
        self.query, self.key, self.value, self.output = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        self.feed_forward = nn.Linear(width, width)
        self.attention_norm, self.norm = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor, y: Tensor, present: Tensor | None = None) -> Tensor:
        """(..., m, d) from `x` (..., m, d), which attend to `y` (..., n, d): each row of it stands
        for `present` (..., n) equal ones, 0 or more."""
        query, key, value = (
            layer(rows).unflatten(-1, (self._heads, -1)).transpose(-3, -2)
            for layer, rows in ((self.query, x), (self.key, y), (self.value, y))
        )
        scores = query @ key.transpose(-1, -2) / x.shape[-1] ** 0.5
        if present is not None:  # a softmax over none of them is to be 0, not undefined
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
    """SAB or ISAB between the N channels, on their neurons' outputs (..., N, d)."""

    def __init__(self, kind: Encoder, width: int, heads: int, inducing: int) -> None:
        super().__init__()
        if kind == "isab":
            self.inducing = nn.Parameter(torch.randn(inducing, width) / width**0.5)
            self.gather, self.spread = Block(width, heads), Block(width, heads)
        else:
            self.block = Block(width, heads)
        self._kind = kind

    def forward(self, x: Tensor, present: Tensor) -> Tensor:
        """The outputs after it (..., N, d), where the channels that are `present` have 1."""
        if self._kind == "sab":
            out: Tensor = self.block(x, x, present)
            return out
        points = self.inducing.expand(*x.shape[:-2], -1, -1)
        spread: Tensor = self.spread(x, self.gather(points, x, present))
        return spread

    def arrays(self) -> dict[str, np.ndarray]:
        """A model file's arrays."""
        return _exported(self, {"block.": "encoder.", "": "encoder."})

    def begin_as(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take over a model's arrays."""
        _imported(self, arrays, {"block.": "encoder.", "": "encoder."})


class SetPooling(nn.Module):
    """PMA: M seeds attend to the N channels."""

    def __init__(self, seeds: int, width: int, heads: int) -> None:
        super().__init__()
        self.seeds = nn.Parameter(torch.randn(seeds, width) / width**0.5)
        self.input = nn.Linear(width, width)
        self.block = Block(width, heads)

    def forward(self, z: Tensor, present: Tensor) -> Tensor:
        """The message (..., M, d) of channels (..., N, d), of those that are `present`."""
        seeds = self.seeds.expand(*z.shape[:-2], -1, -1)
        pooled: Tensor = self.block(seeds, torch.relu(self.input(z)), present)
        return pooled

    def arrays(self) -> dict[str, np.ndarray]:
        """A model file's arrays."""
        return _exported(self, {"block.": "pooling.", "": "pooling."})

    def begin_as(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take over a model's arrays."""
        _imported(self, arrays, {"block.": "pooling.", "": "pooling."})


def _file_name(name: str, prefixes: Mapping[str, str]) -> str:
    """The file's name of a module's parameter: by the first prefix that it has."""
    prefix = next(one for one in prefixes if name.startswith(one))
    plain = prefixes[prefix] + name.removeprefix(prefix)
    bare = plain.removesuffix(".weight")
    return bare if bare.endswith((".query", ".key", ".value", ".output")) else plain


def _exported(module: nn.Module, prefixes: Mapping[str, str]) -> dict[str, np.ndarray]:
    return {_file_name(name, prefixes): array_of(one) for name, one in module.named_parameters()}


def _imported(
    module: nn.Module, arrays: Mapping[str, np.ndarray], prefixes: Mapping[str, str]
) -> None:
    with torch.no_grad():
        for name, one in module.named_parameters():
            one.copy_(torch.from_numpy(arrays[_file_name(name, prefixes)].copy()))
