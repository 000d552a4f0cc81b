"""Forms: a policy as one vector of numbers, for optimisers that know nothing else."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from an_control.policy import AttentionSizes, MlpSizes, Model, Sizes
from an_control.policy.set_transformer import positional_table
from an_control.policy.sizes import Encoder, RecurrenceSizes, Shapes, paper_sizes
from an_control.policy.task import Task

LARGEST = 1e5
"""Numbers are kept within this: a model file refuses larger weights."""


class Form(ABC):
    """One family of policies: `size` numbers each."""

    @property
    @abstractmethod
    def sizes(self) -> AttentionSizes | MlpSizes: ...

    @property
    @abstractmethod
    def shapes(self) -> Shapes:
        """What is free, by name."""

    @abstractmethod
    def arrays(self, free: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The arrays of P policies' model files (P, ...), from what is free of each."""

    @abstractmethod
    def vector(self, model: Model) -> np.ndarray:
        """The vector (size,) of a policy of this family; ValueError where it is none."""

    @property
    def size(self) -> int:
        return sum(map(math.prod, self.shapes.values()))

    @property
    def scales(self) -> np.ndarray:
        """How large its numbers usually are (size,): random starts have these standard deviations,
        and searches from nothing measure by them."""
        return layer_scales(self.shapes)

    def models(self, vectors: np.ndarray, task: Task, trained: dict[str, Any]) -> list[Model]:
        """The policies of vectors (P, size)."""
        found = self.arrays(split(np.clip(vectors, -LARGEST, LARGEST), self.shapes))
        arrays = {name: array.astype(np.float32) for name, array in found.items()}
        kind = "mlp" if isinstance(self.sizes, MlpSizes) else "attention_neuron"
        return [
            Model(kind, self.sizes, {name: one[i] for name, one in arrays.items()}, task, trained)
            for i in range(len(vectors))
        ]

    def model(self, vector: np.ndarray, task: Task, trained: dict[str, Any]) -> Model:
        """The policy of a vector (size,)."""
        return self.models(vector[None], task, trained)[0]


@dataclass(frozen=True)
class Whole(Form):
    """Every number of every array is free."""

    whole: AttentionSizes | MlpSizes

    @property
    def sizes(self) -> AttentionSizes | MlpSizes:
        return self.whole

    @property
    def shapes(self) -> Shapes:
        return self.whole.shapes()

    def arrays(self, free: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return free

    def vector(self, model: Model) -> np.ndarray:
        _same_sizes(model, self.sizes)
        return join(model.arrays, self.sizes.shapes())


@dataclass(frozen=True)
class Authors(Form):
    """The AttentionNeuron with the authors' fixed queries, without what is degenerate in theirs.

    Their two LSTM biases act as one, and their queries' projection and keys only as the product of
    the two, which the positional table lets vary within `rank` columns: with one action and 16
    queries 417 numbers stand for their 913, and map back exactly.
    """

    actions: int = 1
    queries: int = 16
    hidden_layers: int = 0
    neuron: int = 8
    key: int = 32
    stack: int = 0
    normalise: int = 0
    encoder: Encoder = "none"
    inducing: int = 0
    heads: int = 1
    recurrence: RecurrenceSizes | None = None

    @cached_property
    def sizes(self) -> AttentionSizes:
        return paper_sizes(**{one.name: getattr(self, one.name) for one in fields(self)})

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The positional table's factors (M, rank), (rank,), (rank, d), largest first."""
        left, stretch, right = np.linalg.svd(
            positional_table(self.queries, self.neuron), full_matrices=False
        )
        rank = int((stretch > 1e-4 * stretch[0]).sum())
        return left[:, :rank], stretch[:rank], right[:rank]

    @cached_property
    def shapes(self) -> Shapes:
        """What is free, by name: as in the model file, but for `scores` (rank, d)."""
        shapes = {
            name: shape
            for name, shape in self.sizes.shapes().items()
            if not name.startswith("attention.")
        }
        return shapes | {"scores": (len(self._table[1]), self.neuron)}

    @property
    def scores_basis(self) -> np.ndarray:
        """(M, rank): attention scores are this times the free `scores` times a neuron's output."""
        return self._table[0]

    def arrays(self, free: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        _, stretch, right = self._table
        product = right.T @ (free.pop("scores") / stretch[:, None])
        left, gain, keys = np.linalg.svd(product)
        query, key = (np.zeros((len(product), self.key, self.neuron)) for _ in range(2))
        some = min(self.key, self.neuron)  # the product's rank is no higher
        query[:, :some] = (left * np.sqrt(gain)[:, None]).swapaxes(1, 2)[:, :some]
        key[:, :some] = (np.sqrt(gain)[:, :, None] * keys)[:, :some]
        return free | self._attention(query, key)

    def _attention(self, query: np.ndarray, key: np.ndarray) -> dict[str, np.ndarray]:
        """The arrays of P policies' attention, from projections (P, k, d) of queries and keys."""
        table = positional_table(self.queries, self.neuron)
        return {
            "attention.queries": table @ query.swapaxes(1, 2),
            "attention.key": key,
            "attention.key_bias": np.zeros(key.shape[:2]),
        }

    def vector(self, model: Model) -> np.ndarray:
        _same_sizes(model, self.sizes)
        if not self.holds(model):
            raise ValueError("its queries or key biases are none of the authors' form")
        arrays = {name: array.astype(np.float64) for name, array in model.arrays.items()}
        scores = arrays["attention.queries"] @ arrays["attention.key"]
        arrays["scores"] = self._table[0].T @ scores
        return join(arrays, self.shapes)

    def holds(self, model: Model) -> bool:
        """Whether the scores lie within the basis and no key has a bias, to float32 rounding."""
        arrays = {name: array.astype(np.float64) for name, array in model.arrays.items()}
        scores = arrays["attention.queries"] @ arrays["attention.key"]
        within = self._table[0] @ (self._table[0].T @ scores)
        near = np.allclose(within, scores, rtol=0.0, atol=1e-3 * (1.0 + np.abs(scores).max()))
        return near and not arrays["attention.key_bias"].any()


@dataclass(frozen=True)
class AuthorsRaw(Authors):
    """The same policies by the authors' own numbers: two LSTM biases, the queries' projection and
    the keys (with one action and 16 queries 913)."""

    @cached_property
    def shapes(self) -> Shapes:
        shapes = dict(super().shapes)
        d = shapes.pop("scores")[1]
        second = {} if self.stack else {"neuron.second_bias": shapes["neuron.bias"]}
        return shapes | second | {"query": (self.key, d), "key": (self.key, d)}

    def arrays(self, free: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if not self.stack:
            free["neuron.bias"] = free["neuron.bias"] + free.pop("neuron.second_bias")
        return free | self._attention(free.pop("query"), free.pop("key"))

    def vector(self, model: Model) -> np.ndarray:
        _same_sizes(model, self.sizes)
        if not self.holds(model):
            raise ValueError("its queries or key biases are none of the authors' form")
        arrays = {name: array.astype(np.float64) for name, array in model.arrays.items()}
        table = positional_table(self.queries, self.neuron)
        queries = np.linalg.lstsq(table, arrays["attention.queries"], rcond=1e-4)[0]
        arrays |= {"query": queries.T, "key": arrays["attention.key"]}
        if not self.stack:
            arrays["neuron.second_bias"] = np.zeros_like(arrays["neuron.bias"])
        return join(arrays, self.shapes)


def form_of(model: Model) -> Form:
    """The form of a policy: the authors' where it is one of theirs, else with all numbers free."""
    sizes = model.sizes
    if isinstance(sizes, AttentionSizes):
        authors = Authors(
            sizes.actions,
            sizes.queries,
            len(sizes.head),
            sizes.neuron,
            sizes.key,
            sizes.stack,
            sizes.normalise,
            sizes.encoder,
            sizes.inducing,
            sizes.heads,
            sizes.recurrence,
        )
        if sizes == authors.sizes and authors.holds(model):
            return authors
    if not isinstance(sizes, AttentionSizes | MlpSizes):
        raise ValueError(
            f"start: a policy of kind {model.kind}, only those of channels are searched"
        )
    return Whole(sizes)


def layer_scales(shapes: Shapes) -> np.ndarray:
    """(size,): of weights 1 / sqrt(a unit's inputs), so that a layer's outputs are as large as its
    inputs; of biases 0.1; of attention scores 1."""

    def scale(name: str, shape: tuple[int, ...]) -> float:
        if name == "scores":
            return 1.0
        return 0.1 if len(shape) < 2 else 1.0 / math.sqrt(math.prod(shape[1:]))

    return np.concatenate(
        [np.full(math.prod(shape), scale(name, shape)) for name, shape in shapes.items()]
    )


def split(vectors: np.ndarray, shapes: Shapes) -> dict[str, np.ndarray]:
    """The arrays (P, ...) of vectors (P, size), in the order of `shapes`."""
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    parts = np.split(vectors, ends[:-1], 1)
    return {
        name: part.reshape(len(vectors), *shape) + _centre(name)
        for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }


def join(arrays: Mapping[str, np.ndarray], shapes: Shapes) -> np.ndarray:
    """The vector of these arrays, float64."""
    parts = [arrays[name].ravel().astype(np.float64) - _centre(name) for name in shapes]
    return np.concatenate(parts)


def _centre(name: str) -> float:
    """What a vector of zeros stands for: norms that scale nothing, and gates that let most of
    their input pass (Parisotto et al. 2019, b_g = 2)."""
    if name.endswith("norm.weight"):
        return 1.0
    return 2.0 if name.endswith("gate.bias") else 0.0


def _same_sizes(model: Model, sizes: Sizes) -> None:
    if model.sizes != sizes:
        raise ValueError(f"its sizes are {model.sizes}, but {sizes} are learned here")
