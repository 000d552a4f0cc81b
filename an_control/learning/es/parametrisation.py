"""Forms: families of policies, each policy written as one vector for an optimiser."""

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
"""Bound of the absolute value of a weight; a model file refuses larger ones."""


class PolicyForm(ABC):
    """A family of policies, each of which is a vector of `size` numbers."""

    @property
    @abstractmethod
    def sizes(self) -> AttentionSizes | MlpSizes:
        """Return the policies' sizes."""

    @property
    @abstractmethod
    def shapes(self) -> Shapes:
        """Return the names and shapes of the free arrays of which a vector consists."""

    @abstractmethod
    def to_arrays(self, free: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the model file arrays (P, ...) of P policies for their free arrays (P, ...)."""

    @abstractmethod
    def to_vector(self, model: Model) -> np.ndarray:
        """Return the vector (size,) that describes a policy; the inverse of `make_model`.

        Raises:
            ValueError: The policy is not of this family.
        """

    @property
    def size(self) -> int:
        """Return the length of a vector."""
        return sum(map(math.prod, self.shapes.values()))

    @property
    def scales(self) -> np.ndarray:
        """Return the usual size (size,) of each number.

        Random starts have these standard deviations, and searches without a start model use them as
        units.
        """
        return layer_scales(self.shapes)

    def models(self, vectors: np.ndarray, task: Task, trained: dict[str, Any]) -> list[Model]:
        """Return the policies that vectors (P, size) describe.

        Args:
            vectors: (P, size); numbers beyond the bounds of a model file are clipped.
            task: The task for the model file.
            trained: How the policies were made, for the model file.
        """
        found = self.to_arrays(split_vectors(np.clip(vectors, -LARGEST, LARGEST), self.shapes))
        arrays = {name: array.astype(np.float32) for name, array in found.items()}
        kind = "mlp" if isinstance(self.sizes, MlpSizes) else "attention_neuron"
        return [
            Model(kind, self.sizes, {name: one[i] for name, one in arrays.items()}, task, trained)
            for i in range(len(vectors))
        ]

    def make_model(self, vector: np.ndarray, task: Task, trained: dict[str, Any]) -> Model:
        """Return the policy that a vector (size,) describes; see `models`."""
        return self.models(vector[None], task, trained)[0]


@dataclass(frozen=True)
class Whole(PolicyForm):
    """The family of policies in which every number of every array is free."""

    whole: AttentionSizes | MlpSizes

    @property
    def sizes(self) -> AttentionSizes | MlpSizes:
        """Return the policies' sizes."""
        return self.whole

    @property
    def shapes(self) -> Shapes:
        """Return the names and shapes of the model file's arrays."""
        return self.whole.shapes()

    def to_arrays(self, free: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the free arrays, which are the model file's."""
        return free

    def to_vector(self, model: Model) -> np.ndarray:
        """Return the vector (size,) of a policy.

        Raises:
            ValueError: The policy has other sizes.
        """
        _check_same_sizes(model, self.sizes)
        return join_arrays(model.arrays, self.sizes.shapes())


@dataclass(frozen=True)
class Authors(PolicyForm):
    """The AttentionNeuron with the authors' fixed queries, without their redundant numbers.

    The authors' two LSTM biases act as one, and their query projection and keys act only as a
    product, whose rank the positional table limits. So with one action and 16 queries 417 numbers
    stand for the authors' 913, and map back to them exactly.
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
        """Return the policies' sizes."""
        return paper_sizes(**{one.name: getattr(self, one.name) for one in fields(self)})

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the factors of the positional table's singular value decomposition.

        They have the shapes (M, rank), (rank,) and (rank, d), with the largest singular value
        first.
        """
        left, stretch, right = np.linalg.svd(
            positional_table(self.queries, self.neuron), full_matrices=False
        )
        rank = int((stretch > 1e-4 * stretch[0]).sum())
        return left[:, :rank], stretch[:rank], right[:rank]

    @cached_property
    def shapes(self) -> Shapes:
        """Return the names and shapes of the free arrays.

        They are those of the model file, but `scores` (rank, d) replaces the attention's arrays.
        """
        shapes = {
            name: shape
            for name, shape in self.sizes.shapes().items()
            if not name.startswith("attention.")
        }
        return shapes | {"scores": (len(self._table[1]), self.neuron)}

    @property
    def scores_basis(self) -> np.ndarray:
        """Return the matrix (M, rank) that maps the free `scores` to attention scores.

        The scores are this matrix times `scores` times a neuron's output.
        """
        return self._table[0]

    def to_arrays(self, free: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the model file arrays (P, ...) of P policies for their free arrays (P, ...)."""
        _, stretch, right = self._table
        product = right.T @ (free.pop("scores") / stretch[:, None])
        left, gain, keys = np.linalg.svd(product)
        query, key = (np.zeros((len(product), self.key, self.neuron)) for _ in range(2))
        some = min(self.key, self.neuron)  # the product's rank is no higher
        query[:, :some] = (left * np.sqrt(gain)[:, None]).swapaxes(1, 2)[:, :some]
        key[:, :some] = (np.sqrt(gain)[:, :, None] * keys)[:, :some]
        return free | self._attention_arrays(query, key)

    def _attention_arrays(self, query: np.ndarray, key: np.ndarray) -> dict[str, np.ndarray]:
        """Return the attention's arrays for P query and key projections (P, k, d)."""
        table = positional_table(self.queries, self.neuron)
        return {
            "attention.queries": table @ query.swapaxes(1, 2),
            "attention.key": key,
            "attention.key_bias": np.zeros(key.shape[:2]),
        }

    def to_vector(self, model: Model) -> np.ndarray:
        """Return the vector (size,) of a policy.

        Raises:
            ValueError: The policy has other sizes, or its attention is not of the authors' form.
        """
        _check_same_sizes(model, self.sizes)
        if not self.is_authors_form(model):
            raise ValueError("its queries or key biases do not have the authors' form")
        arrays = {name: array.astype(np.float64) for name, array in model.arrays.items()}
        scores = arrays["attention.queries"] @ arrays["attention.key"]
        arrays["scores"] = self._table[0].T @ scores
        return join_arrays(arrays, self.shapes)

    def is_authors_form(self, model: Model) -> bool:
        """Return whether the attention of a model with these sizes is of the authors' form.

        Up to float32 rounding, its scores must lie within the basis; its keys must have no bias.
        """
        arrays = {name: array.astype(np.float64) for name, array in model.arrays.items()}
        scores = arrays["attention.queries"] @ arrays["attention.key"]
        within = self._table[0] @ (self._table[0].T @ scores)
        near = np.allclose(within, scores, rtol=0.0, atol=1e-3 * (1.0 + np.abs(scores).max()))
        return near and not arrays["attention.key_bias"].any()


@dataclass(frozen=True)
class AuthorsRaw(Authors):
    """The same policies as `Authors`, with all of the authors' own numbers.

    These have two LSTM biases, the queries' projection, and the keys: 913 numbers with one action
    and 16 queries.
    """

    @cached_property
    def shapes(self) -> Shapes:
        """Return the names and shapes of the free arrays."""
        shapes = dict(super().shapes)
        d = shapes.pop("scores")[1]
        second = {} if self.stack else {"neuron.second_bias": shapes["neuron.bias"]}
        return shapes | second | {"query": (self.key, d), "key": (self.key, d)}

    def to_arrays(self, free: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the model file arrays (P, ...) of P policies for their free arrays (P, ...)."""
        if not self.stack:
            free["neuron.bias"] = free["neuron.bias"] + free.pop("neuron.second_bias")
        return free | self._attention_arrays(free.pop("query"), free.pop("key"))

    def to_vector(self, model: Model) -> np.ndarray:
        """Return the vector (size,) of a policy.

        Raises:
            ValueError: The policy has other sizes, or its attention is not of the authors' form.
        """
        _check_same_sizes(model, self.sizes)
        if not self.is_authors_form(model):
            raise ValueError("its queries or key biases do not have the authors' form")
        arrays = {name: array.astype(np.float64) for name, array in model.arrays.items()}
        table = positional_table(self.queries, self.neuron)
        queries = np.linalg.lstsq(table, arrays["attention.queries"], rcond=1e-4)[0]
        arrays |= {"query": queries.T, "key": arrays["attention.key"]}
        if not self.stack:
            arrays["neuron.second_bias"] = np.zeros_like(arrays["neuron.bias"])
        return join_arrays(arrays, self.shapes)


def form_for_model(model: Model) -> PolicyForm:
    """Return the form of a policy: `Authors` where it fits, else `Whole`.

    Raises:
        ValueError: The policy does not take scalar channels.
    """
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
        if sizes == authors.sizes and authors.is_authors_form(model):
            return authors
    if not isinstance(sizes, AttentionSizes | MlpSizes):
        raise ValueError(f"start: a policy of kind {model.kind} (allowed: attention_neuron, mlp)")
    return Whole(sizes)


def layer_scales(shapes: Shapes) -> np.ndarray:
    """Return the usual size (size,) of each number in arrays of these shapes.

    It is 1 / sqrt(inputs) for weights, so that a layer's outputs are as large as its inputs, 0.1
    for biases, and 1 for attention scores.
    """

    def scale(name: str, shape: tuple[int, ...]) -> float:
        if name == "scores":
            return 1.0
        return 0.1 if len(shape) < 2 else 1.0 / math.sqrt(math.prod(shape[1:]))

    return np.concatenate(
        [np.full(math.prod(shape), scale(name, shape)) for name, shape in shapes.items()]
    )


def split_vectors(vectors: np.ndarray, shapes: Shapes) -> dict[str, np.ndarray]:
    """Split vectors (P, size) into named arrays (P, ...), in the order of `shapes`."""
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    parts = np.split(vectors, ends[:-1], 1)
    return {
        name: part.reshape(len(vectors), *shape) + _value_at_zero(name)
        for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }


def join_arrays(arrays: Mapping[str, np.ndarray], shapes: Shapes) -> np.ndarray:
    """Join named arrays into one vector, as float64; the inverse of `split_vectors`."""
    parts = [arrays[name].ravel().astype(np.float64) - _value_at_zero(name) for name in shapes]
    return np.concatenate(parts)


def _value_at_zero(name: str) -> float:
    """Return the value of a weight whose number in the vector is 0.

    Norms start with weight 1, and gates let most of their input pass (Parisotto et al. 2019, b_g =
    2).
    """
    if name.endswith("norm.weight"):
        return 1.0
    return 2.0 if name.endswith("gate.bias") else 0.0


def _check_same_sizes(model: Model, sizes: Sizes) -> None:
    if model.sizes != sizes:
        raise ValueError(f"its sizes are {model.sizes}, but this run needs {sizes}")
