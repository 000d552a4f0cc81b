"""Import the policies that the authors of the AttentionNeuron paper published as npz files.

Such a file holds one flat array ``params`` with all parameters of the policy, as written by the
directory es_attention of the repository google/brain-tokyo-workshop. The four arrays of the LSTM
cell come first, then the query and key projections, then the network that computes the actions. The
array does not contain the inputs of the query projection, because these are a fixed sinusoidal
table (section 3.2 of the paper).
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from an_control.policy.model_file import Model, ModelError
from an_control.policy.set_transformer import make_positional_table
from an_control.policy.sizes import (
    CAR_RACING_SIZES,
    PONG_SIZES,
    AttentionSizes,
    ConvolutionSizes,
    MlpSizes,
    Sizes,
    TopPatchesSizes,
    VisionSizes,
    make_paper_sizes,
)
from an_control.policy.task import Task
from an_control.system.files import describe_read_error, read_regular_file
from an_control_sim.envs.tasks import ANT_TASK, CAR_RACING_TASK, CARTPOLE_TASK, PONG_TASK

MAX_PARAMS = 10_000_000
"""Maximum number of parameters of a policy."""


class _ParameterReader:
    """Reader that cuts a flat parameter vector into arrays, from front to back.

    Args:
        flat: The parameter vector.
    """

    def __init__(self, flat: np.ndarray) -> None:
        self.flat = flat.astype(np.float64)
        self.at = 0

    def __call__(self, *shape: int) -> np.ndarray:
        """Return the next parameters of the vector as an array of the given shape."""
        size = int(np.prod(shape))
        if self.at + size > len(self.flat):
            raise ValueError(f"params has {len(self.flat)} numbers, too few for this kind")
        cut = self.flat[self.at : self.at + size].reshape(shape)
        self.at += size
        return cut

    def check_all_parameters_read(self) -> None:
        """Raise ValueError unless all parameters have been read."""
        if self.at != len(self.flat):
            raise ValueError(f"params has {len(self.flat)} numbers, this kind has {self.at}")


def _read_attention_arrays(
    reader: _ParameterReader, sizes: AttentionSizes, bias: bool = False, scale: float = 1.0
) -> dict[str, np.ndarray]:
    """Return the weights of a policy for scalar channels; attention scores are divided by `scale`.

    With `bias` the query and key projections have a bias.
    """
    gates, d, key = 4 * sizes.neuron, sizes.neuron, sizes.key
    inputs = reader(gates, 1 + sizes.actions)
    arrays = {
        "neuron.input": inputs[:, :1],
        "neuron.action": inputs[:, 1:],
        "neuron.hidden": reader(gates, d),
        "neuron.bias": reader(gates) + reader(gates),
    }
    query = reader(key, d)
    query_bias = reader(key) if bias else np.zeros(key)
    arrays["attention.queries"] = (
        make_positional_table(sizes.queries, d) @ query.T + query_bias
    ) / scale
    arrays["attention.key"] = reader(key, d)
    arrays["attention.key_bias"] = reader(key) if bias else np.zeros(key)
    return arrays | _read_dense_layer_arrays(reader, [sizes.queries, *sizes.head], sizes.actions)


def _read_mlp_arrays(reader: _ParameterReader, sizes: MlpSizes) -> dict[str, np.ndarray]:
    """Return the weights of an MLP policy."""
    return _read_dense_layer_arrays(reader, [sizes.channels, *sizes.head], sizes.actions)


def _read_vision_arrays(
    reader: _ParameterReader, sizes: VisionSizes, frames_last: bool
) -> dict[str, np.ndarray]:
    """Return the weights of the queries, keys and values of a policy for image patches.

    With `frames_last` the numbers of a patch have the order (row, column, frame).
    """
    message, actions, pixels = sizes.message, sizes.actions, sizes.patch**2
    changes = sizes.stack - 1
    arrays = {
        "query.weight": reader(message, sizes.positions),
        "query.bias": reader(message),
    }
    key = reader(message, changes * pixels + actions)
    change = key[:, :-actions]
    if frames_last:
        change = change.reshape(message, pixels, changes).transpose(0, 2, 1)
    arrays |= {
        "key.change": change.reshape(message, -1),
        "key.action": key[:, -actions:],
        "key.bias": reader(message),
        "value.weight": reader(message, sizes.stack * pixels),
        "value.bias": reader(message),
    }
    if sizes.norm_weights:
        arrays["value_norm.weight"], arrays["value_norm.bias"] = reader(pixels), reader(pixels)
        arrays["message_norm.weight"] = reader(message)
        arrays["message_norm.bias"] = reader(message)
    return arrays


def _read_top_patches_arrays(
    reader: _ParameterReader, sizes: TopPatchesSizes
) -> dict[str, np.ndarray]:
    """Return the weights of the policy for CarRacing."""
    message, hidden, actions = sizes.message, sizes.hidden, sizes.actions
    arrays = _read_vision_arrays(reader, sizes, frames_last=True)
    for name in ("query", "key"):
        arrays[f"self_attention.{name}"] = reader(sizes.self_attention, message)
        arrays[f"self_attention.{name}_bias"] = reader(sizes.self_attention)
    return arrays | {
        "memory.input": reader(4 * hidden, 2 * sizes.top),
        "memory.hidden": reader(4 * hidden, hidden),
        "memory.bias": reader(4 * hidden) + reader(4 * hidden),
        "action.weight": reader(actions, hidden),
        "action.bias": reader(actions),
        "mixing.0.weight": reader(hidden, hidden + actions),
        "mixing.0.bias": reader(hidden),
        "mixing.1.weight": reader(1, hidden),
        "mixing.1.bias": reader(1),
    }


def _read_convolution_arrays(
    reader: _ParameterReader, sizes: ConvolutionSizes
) -> dict[str, np.ndarray]:
    """Return the weights of the convolutional policy for PuzzlePong."""
    arrays = _read_vision_arrays(reader, sizes, frames_last=False)
    return arrays | {name: reader(*shape) for name, shape in sizes.list_head_shapes().items()}


def _read_dense_layer_arrays(
    reader: _ParameterReader, widths: list[int], actions: int
) -> dict[str, np.ndarray]:
    """Return the weights of a stack of dense layers, by their names in a model file."""
    arrays = {}
    for layer, (width_in, width_out) in enumerate(zip(widths, [*widths[1:], actions], strict=True)):
        arrays[f"head.{layer}.weight"] = reader(width_out, width_in)
        arrays[f"head.{layer}.bias"] = reader(width_out)
    return arrays


class _AuthorsKind(NamedTuple):
    """Kind of policy that the authors published, and how to read its arrays."""

    model_kind: str
    task: Task
    sizes: Sizes
    read_arrays: Callable[[_ParameterReader, Any], dict[str, np.ndarray]]


_KINDS = {
    "cartpole_pi": _AuthorsKind(
        "attention_neuron", CARTPOLE_TASK, make_paper_sizes(1, 16, 0), _read_attention_arrays
    ),
    "ant_pi": _AuthorsKind(
        "attention_neuron",
        ANT_TASK,
        make_paper_sizes(8, 32, 1),
        partial(_read_attention_arrays, bias=True, scale=float(np.sqrt(32.0))),
    ),
    "carracing_pi": _AuthorsKind(
        "vision_top_patches", CAR_RACING_TASK, CAR_RACING_SIZES, _read_top_patches_arrays
    ),
    "puzzle_pong": _AuthorsKind(
        "vision_convolution", PONG_TASK, PONG_SIZES, _read_convolution_arrays
    ),
    "ant_mlp": _AuthorsKind(
        "mlp", ANT_TASK, MlpSizes(channels=28, actions=8, head=[32, 32]), _read_mlp_arrays
    ),
}
AUTHORS_KINDS = tuple(_KINDS)


def import_policy_of_authors(path: str | os.PathLike[str], kind: str) -> Model:
    """Read a policy of the AttentionNeuron paper's authors from an ``.npz`` file.

    Args:
        path: The file.
        kind: One of `AUTHORS_KINDS`. It decides the task of the policy and the layout of its
            parameters.

    Raises:
        ModelError: The kind is unknown or the file is not valid; the message names file and reason.
    """
    if kind not in _KINDS:
        raise ModelError(f"{path}: kind {kind!r} is not one of {', '.join(_KINDS)}")
    known = _KINDS[kind]
    try:
        flat = _read_parameter_vector(path)
        if flat.ndim != 1 or flat.size > MAX_PARAMS or flat.dtype.kind != "f":
            raise ValueError(f"params is {flat.dtype} of shape {flat.shape}, not a float vector")
        take = _ParameterReader(flat)
        arrays = {
            name: np.ascontiguousarray(value, np.float32)
            for name, value in known.read_arrays(take, known.sizes).items()
        }
        take.check_all_parameters_read()
        model = Model(
            known.model_kind,
            known.sizes,
            arrays,
            known.task,
            {"by": "the AttentionNeuron authors", "parameters": int(flat.size)},
        )
        model.check_arrays()
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: {describe_read_error(error)}") from error
    return model


def _read_parameter_vector(path: str | os.PathLike[str]) -> np.ndarray:
    """Return the array ``params`` of an ``.npz`` file."""
    try:
        with zipfile.ZipFile(io.BytesIO(read_regular_file(path))) as archive:
            if archive.getinfo("params.npy").file_size > 8 * MAX_PARAMS + 1024:
                raise ValueError(f"params has more than {MAX_PARAMS} numbers")
            return np.lib.format.read_array(
                io.BytesIO(archive.read("params.npy")), allow_pickle=False
            )
    except (OSError, ValueError):
        raise
    except KeyError:
        raise ValueError("holds no array 'params'") from None
    except Exception as error:  # zipfile and zlib let many kinds through for a damaged archive
        raise ValueError(f"not a valid .npz file ({error})") from error
