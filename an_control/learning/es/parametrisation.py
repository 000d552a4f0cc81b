"""Parametrisations ("forms"), which describe a policy by one vector for an optimiser to change."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from an_control.policy import AttentionSizes, MlpSizes, Model, Sizes
from an_control.policy.set_transformer import make_positional_table
from an_control.policy.sizes import Encoder, RecurrenceSizes, Shapes, make_paper_sizes
from an_control.policy.task import Task

LARGEST = 1e5
"""Largest absolute value of a weight, because the reader of model files refuses larger ones."""


class PolicyForm(ABC):
    """Interface of a parametrisation: it computes a policy from the vector that a search changes.

    One vector describes one policy. It holds the policy's free parameters: the numbers of some
    arrays, one after another. The weights of the policy, which may be more numbers, are computed
    from the free parameters. All policies of one parametrisation have the same layer sizes.
    """

    @property
    @abstractmethod
    def sizes(self) -> AttentionSizes | MlpSizes:
        """Return the layer sizes, which are the same for all policies of this parametrisation."""

    @property
    @abstractmethod
    def free_parameter_shapes(self) -> Shapes:
        """Return the shape of each array of free parameters by name, in their order in a vector.

        A vector describes one policy; it holds the elements of these arrays, one array after
        another.
        """

    @abstractmethod
    def compute_model_arrays(self, free_parameters: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute the weights of P policies from their free parameters, the contents of P vectors.

        Args:
            free_parameters: Arrays (P, ...) by name, with the policy as first index. The method may
                change this dict.

        Returns:
            The arrays of the model files (P, ...) by name, with the policy as first index.
        """

    @abstractmethod
    def to_vector(self, model: Model) -> np.ndarray:
        """Return the vector (size,) that describes a policy; this is the inverse of `make_model`.

        Raises:
            ValueError: No vector describes the policy, for example because its layer sizes differ.
        """

    @property
    def vector_size(self) -> int:
        """Return the number of elements of the vector that describes one policy."""
        return sum(map(math.prod, self.free_parameter_shapes.values()))

    @property
    def typical_element_magnitudes(self) -> np.ndarray:
        """Return the usual magnitude of each element of a policy's vector, as an array (size,).

        A random start vector is drawn with these standard deviations. In a search from random
        starts, the optimiser sees each vector divided by these magnitudes.
        """
        return compute_typical_weight_magnitudes(self.free_parameter_shapes)

    def make_models(self, vectors: np.ndarray, task: Task, trained: dict[str, Any]) -> list[Model]:
        """Return the policies that P vectors describe.

        Args:
            vectors: Vectors (P, size). Elements that a model file would refuse as too large are
                clipped.
            task: Description of the task, which the models store.
            trained: Facts about the training, which the models store.
        """
        found = self.compute_model_arrays(
            split_vectors_into_arrays(
                np.clip(vectors, -LARGEST, LARGEST), self.free_parameter_shapes
            )
        )
        arrays = {name: array.astype(np.float32) for name, array in found.items()}
        kind = "mlp" if isinstance(self.sizes, MlpSizes) else "attention_neuron"
        return [
            Model(kind, self.sizes, {name: one[i] for name, one in arrays.items()}, task, trained)
            for i in range(len(vectors))
        ]

    def make_model(self, vector: np.ndarray, task: Task, trained: dict[str, Any]) -> Model:
        """Return the policy that one vector (size,) describes; see `make_models`."""
        return self.make_models(vector[None], task, trained)[0]


@dataclass(frozen=True)
class WholeModelForm(PolicyForm):
    """Parametrisation whose vectors hold all weights of a policy, one array after another.

    Attributes:
        whole: Layer sizes of the policies.
    """

    whole: AttentionSizes | MlpSizes

    @property
    def sizes(self) -> AttentionSizes | MlpSizes:
        """Return the layer sizes, which are the same for all policies of this parametrisation."""
        return self.whole

    @property
    def free_parameter_shapes(self) -> Shapes:
        """Return the shape of each array of the policy's model file by name.

        A vector describes one policy; it holds the elements of these arrays, in this order.
        """
        return self.whole.list_array_shapes()

    def compute_model_arrays(self, free_parameters: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return `free_parameters` itself, because here the free parameters are all weights."""
        return free_parameters

    def to_vector(self, model: Model) -> np.ndarray:
        """Return the vector (size,) that describes a policy.

        Raises:
            ValueError: The policy has other sizes.
        """
        _check_same_sizes(model, self.sizes)
        return join_arrays_to_vector(model.arrays, self.sizes.list_array_shapes())


@dataclass(frozen=True)
class PaperForm(PolicyForm):
    """Parametrisation of the AttentionNeuron paper's policy by as few numbers as possible.

    The queries of this policy are fixed, a sinusoidal positional table. The authors of the paper
    trained more numbers than have an effect. Two biases of the LSTM act only as their sum, and the
    projections of queries and keys only as their product. With one action and 16 queries, 417
    numbers describe exactly the same policies as the authors' 913.

    The attributes are the layer sizes of the policy, with the same names as in `AttentionSizes`.
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
        """Return the layer sizes, which are the same for all policies of this parametrisation."""
        return make_paper_sizes(**{one.name: getattr(self, one.name) for one in fields(self)})

    @cached_property
    def _positional_table_svd(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the SVD of the positional table: (M, rank), singular values, (rank, d)."""
        left, stretch, right = np.linalg.svd(
            make_positional_table(self.queries, self.neuron), full_matrices=False
        )
        rank = int((stretch > 1e-4 * stretch[0]).sum())
        return left[:, :rank], stretch[:rank], right[:rank]

    @cached_property
    def free_parameter_shapes(self) -> Shapes:
        """Return the names and shapes of the arrays that form a vector, in their order in it.

        They are the arrays of the model file, except that one array `scores` (rank, d) replaces
        those of the attention. Here rank is the matrix rank of the fixed table of queries, and d is
        the number of outputs of a sensory neuron.
        """
        shapes = {
            name: shape
            for name, shape in self.sizes.list_array_shapes().items()
            if not name.startswith("attention.")
        }
        return shapes | {"scores": (len(self._positional_table_svd[1]), self.neuron)}

    @property
    def attention_score_basis(self) -> np.ndarray:
        """Return the matrix (M, rank) that turns the parameters `scores` into attention scores.

        The scores of a channel for M queries are `attention_score_basis @ scores @ h`. Here
        `scores` has the shape (rank, d), and h (d,) is the output of the channel's small network,
        its sensory neuron.
        """
        return self._positional_table_svd[0]

    def compute_model_arrays(self, free_parameters: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute the model files' arrays of P policies from the policies' free parameters.

        Args:
            free_parameters: Arrays (P, ...) by name, each with a shape of `free_parameter_shapes`
                behind the index of the policy. The method changes this dict.

        Returns:
            The arrays of the model files (P, ...) by name, with the policy as first index.
        """
        _, stretch, right = self._positional_table_svd
        product = right.T @ (free_parameters.pop("scores") / stretch[:, None])
        left, gain, keys = np.linalg.svd(product)
        query, key = (np.zeros((len(product), self.key, self.neuron)) for _ in range(2))
        some = min(self.key, self.neuron)  # the product's rank is no higher
        query[:, :some] = (left * np.sqrt(gain)[:, None]).swapaxes(1, 2)[:, :some]
        key[:, :some] = (np.sqrt(gain)[:, :, None] * keys)[:, :some]
        return free_parameters | self._compose_attention_arrays(query, key)

    def _compose_attention_arrays(
        self, query_projection: np.ndarray, key_projection: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Compute attention arrays of P policies from projections (P, k, d) of queries and keys."""
        table = make_positional_table(self.queries, self.neuron)
        return {
            "attention.queries": table @ query_projection.swapaxes(1, 2),
            "attention.key": key_projection,
            "attention.key_bias": np.zeros(key_projection.shape[:2]),
        }

    def to_vector(self, model: Model) -> np.ndarray:
        """Return the vector (size,) that describes a policy.

        Raises:
            ValueError: The policy has other sizes, or its attention does not have the fixed
                queries.
        """
        _check_same_sizes(model, self.sizes)
        if not self.can_represent_model_attention(model):
            raise ValueError("its queries or key biases do not have the authors' form")
        arrays = {name: array.astype(np.float64) for name, array in model.arrays.items()}
        own_arrays = self._compute_own_parameters(arrays)
        return join_arrays_to_vector(arrays | own_arrays, self.free_parameter_shapes)

    def _compute_own_parameters(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute those free parameters that are not arrays of the model file."""
        scores = arrays["attention.queries"] @ arrays["attention.key"]
        return {"scores": self._positional_table_svd[0].T @ scores}

    def can_represent_model_attention(self, model: Model) -> bool:
        """Return whether this parametrisation can describe the attention of a model.

        It can if the keys have no bias and the queries come from the paper's fixed table. The
        attention scores are then, up to float32 rounding, linear combinations of the columns of
        `attention_score_basis`, which is what this method tests.

        Args:
            model: A model with the layer sizes of this parametrisation.
        """
        arrays = {name: array.astype(np.float64) for name, array in model.arrays.items()}
        scores = arrays["attention.queries"] @ arrays["attention.key"]
        within = self._positional_table_svd[0] @ (self._positional_table_svd[0].T @ scores)
        near = np.allclose(within, scores, rtol=0.0, atol=1e-3 * (1.0 + np.abs(scores).max()))
        return near and not arrays["attention.key_bias"].any()


@dataclass(frozen=True)
class RedundantPaperForm(PaperForm):
    """Parametrisation of the AttentionNeuron paper's policy by all numbers that its authors used.

    With one action and 16 queries these are 913. They include two biases of the LSTM, and the
    projections of queries and keys. `PaperForm` describes the same policies by fewer numbers.
    """

    @cached_property
    def free_parameter_shapes(self) -> Shapes:
        """Return the shape of each array of free parameters by name, in their order in a vector."""
        shapes = dict(super().free_parameter_shapes)
        d = shapes.pop("scores")[1]
        second = {} if self.stack else {"neuron.second_bias": shapes["neuron.bias"]}
        return shapes | second | {"query": (self.key, d), "key": (self.key, d)}

    def compute_model_arrays(self, free_parameters: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute the model files' arrays of P policies from the policies' free parameters.

        Args:
            free_parameters: Arrays (P, ...) by name, each with a shape of `free_parameter_shapes`
                behind the index of the policy. The method changes this dict.

        Returns:
            The arrays of the model files (P, ...) by name, with the policy as first index.
        """
        if not self.stack:
            free_parameters["neuron.bias"] = free_parameters["neuron.bias"] + free_parameters.pop(
                "neuron.second_bias"
            )
        return free_parameters | self._compose_attention_arrays(
            free_parameters.pop("query"), free_parameters.pop("key")
        )

    def _compute_own_parameters(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute those free parameters that are not arrays of the model file."""
        table = make_positional_table(self.queries, self.neuron)
        queries = np.linalg.lstsq(table, arrays["attention.queries"], rcond=1e-4)[0]
        own = {"query": queries.T, "key": arrays["attention.key"]}
        if not self.stack:
            own["neuron.second_bias"] = np.zeros_like(arrays["neuron.bias"])
        return own


def choose_policy_parametrisation(model: Model) -> PolicyForm:
    """Choose a parametrisation that can describe a policy, so that a search can start from it.

    It is `PaperForm` if the policy has the form of the AttentionNeuron paper. Otherwise it is
    `WholeModelForm`, in which all weights are free.

    Raises:
        ValueError: The policy does not take scalar channels.
    """
    sizes = model.sizes
    if isinstance(sizes, AttentionSizes):
        authors = PaperForm(
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
        if sizes == authors.sizes and authors.can_represent_model_attention(model):
            return authors
    if not isinstance(sizes, AttentionSizes | MlpSizes):
        raise ValueError(
            f"--start-model: a policy of kind {model.kind} (allowed: attention_neuron, mlp)"
        )
    return WholeModelForm(sizes)


def compute_typical_weight_magnitudes(shapes: Shapes) -> np.ndarray:
    """Return the usual magnitude of each number in arrays of the given shapes, as a vector (size,).

    For weights it is 1 / sqrt(number of inputs), because the outputs of a layer are then as large
    as its inputs. For biases it is 0.1, and for attention scores 1.
    """

    def compute_scale(name: str, shape: tuple[int, ...]) -> float:
        if name == "scores":
            return 1.0
        return 0.1 if len(shape) < 2 else 1.0 / math.sqrt(math.prod(shape[1:]))

    return np.concatenate(
        [np.full(math.prod(shape), compute_scale(name, shape)) for name, shape in shapes.items()]
    )


def split_vectors_into_arrays(vectors: np.ndarray, shapes: Shapes) -> dict[str, np.ndarray]:
    """Split P vectors into named arrays; inverse of `join_arrays_to_vector`.

    A vector stores some weights, such as the bias of a gate, as differences from a default value.
    The arrays contain the weights themselves.

    Args:
        vectors: Vectors (P, size).
        shapes: Names and shapes of the arrays, in the order in which a vector holds them.

    Returns:
        Arrays (P, ...) by name.
    """
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    parts = np.split(vectors, ends[:-1], 1)
    return {
        name: part.reshape(len(vectors), *shape) + _get_default_weight(name)
        for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }


def join_arrays_to_vector(arrays: Mapping[str, np.ndarray], shapes: Shapes) -> np.ndarray:
    """Join named arrays of one policy into a vector (size,) float64.

    This is the inverse of `split_vectors_into_arrays` for one vector.

    Args:
        arrays: Arrays by name.
        shapes: Names and shapes of the arrays to join, in the order in which the vector holds them.
    """
    parts = [arrays[name].ravel().astype(np.float64) - _get_default_weight(name) for name in shapes]
    return np.concatenate(parts)


def _get_default_weight(array_name: str) -> float:
    """Return the default value of an array's weights, which a vector stores as differences from it.

    It is 1 for the weights of normalisations, and 2 for the bias b_g of gates, so that a gate lets
    most of its input pass (Parisotto et al. 2019). For all other arrays it is 0.
    """
    if array_name.endswith("norm.weight"):
        return 1.0
    return 2.0 if array_name.endswith("gate.bias") else 0.0


def _check_same_sizes(model: Model, sizes: Sizes) -> None:
    """Raise ValueError if the layer sizes of a model are not the given ones."""
    if model.sizes != sizes:
        raise ValueError(f"its sizes are {model.sizes}, but this run needs {sizes}")
