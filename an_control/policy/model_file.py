"""The model file: safetensors with a JSON header, checked before anything is built from it.

It holds no pickle and no code. A file from an untrusted place either is a model of a known kind,
with arrays of the names, shapes and finite values that its sizes imply, or is refused with a
reason.

An ONNX file is a model too, of kind "foreign". The model file of its monitor, which detects rewired
sensors, lies beside it and names the ONNX file by its hash.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from io import BytesIO, FileIO
from pathlib import Path
from reprlib import repr as short
from typing import Any

import numpy as np
import safetensors.numpy

from an_control.policy.onnx_file import (
    ForeignNetwork,
    get_monitor_path,
    has_onnx_suffix,
    read_onnx_network,
)
from an_control.policy.sizes import (
    AttentionSizes,
    ForeignSizes,
    ForwardSizes,
    Shapes,
    Sizes,
    VisionSizes,
    parse_model_sizes,
)
from an_control.policy.task import Task
from an_control.system.files import describe_read_error, open_regular_file, write_file
from an_control.wiring.checked_yaml import WiringError

FORMAT = 2
MAX_FILE_BYTES = 256 * 2**20
MAX_HEADER_BYTES = 2**19
"""The largest size of a header. It bounds the time for which parsing blocks all other threads."""
MAX_WEIGHT = 1e6
"""The largest magnitude of a weight. Trained weights are smaller; below it no product in a tick can
overflow."""
POLICY_HASH = "policy_sha256"
"""The key, in `trained` of a monitor's file, of the hash of the ONNX file that it belongs to."""
POSITIVE = ("identity.units",)
"""The names of arrays that other values are divided by, so that their values must be above 0."""
INVALID = (ValueError, KeyError, TypeError, RecursionError)
"""The exceptions that reading a header raises if it describes no model."""


class ModelError(ValueError):
    """An error raised if a model cannot be used; the message names the file and the reason."""


@dataclass(frozen=True)
class Model:
    """A policy in memory: its arrays (float32), and the description of its task and training.

    Attributes:
        kind: The kind of policy, such as ``attention_neuron``.
        sizes: The sizes of the policy, from which the arrays' shapes follow.
        arrays: The arrays by name.
        task: The task that the policy was trained for.
        trained: How it was trained, as JSON values; may be empty.
        forward: The sizes of the monitor's networks, whose arrays are ``forward.*``, ``identity.*``
            and ``imputation.*``; None if the model has none.
        network: The network of a policy of kind ``foreign``, else None.
    """

    kind: str
    sizes: Sizes
    arrays: dict[str, np.ndarray]
    task: Task = field(default_factory=Task)
    trained: dict[str, Any] = field(default_factory=dict)
    forward: ForwardSizes | None = None
    network: ForeignNetwork | None = field(default=None, repr=False)

    @property
    def parameter_count(self) -> int:
        """The number of parameters in the arrays and in the network."""
        own = 0 if self.network is None else self.network.parameters
        return own + sum(array.size for array in self.arrays.values())

    @property
    def monitor_default_off_reason(self) -> str:
        """A message on why the monitor is off by default and what to do.

        It is "" if the monitor, which detects rewired sensors, is on by default, or if there is
        none.
        """
        return "" if self.forward is None else self.forward.monitor_default_off_reason

    def copy_with_normalised_channel_sums(self, channel_count: int) -> Model:
        """Return a copy whose attention message does not grow if there are additional channels.

        The message consists of sums over the channels, which the copy scales; see `normalise` in
        `AttentionSizes`.

        Args:
            channel_count: The number of channels with which sums keep their size; 0: the sums are
                not scaled.

        Raises:
            ValueError: This kind of policy has no sums over channels.
        """
        if not isinstance(self.sizes, AttentionSizes):
            raise ValueError(f"normalise: a policy of kind {self.kind} has no sums over channels")
        return replace(self, sizes=replace(self.sizes, normalise=channel_count))

    def list_array_shapes(self) -> Shapes:
        """Return the shape that each array of the model must have, by name.

        The shapes follow from the sizes of the policy and of the monitor's networks. Whether the
        arrays have them is not checked here, but by `check_arrays`.

        Raises:
            ValueError: The parts of the model do not fit each other.
        """
        shapes = self.sizes.list_array_shapes()
        if self.forward is None:
            return shapes
        if isinstance(self.sizes, VisionSizes):
            raise ValueError("forward: there is none for image patches")
        return shapes | self.forward.list_array_shapes(len(self.task.channels), self.sizes.actions)

    def check_arrays(self) -> None:
        """Check that the arrays are float32, finite and of the shapes that the sizes imply.

        Raises:
            ValueError: An array is not valid; the message names it.
        """
        shapes = self.list_array_shapes()
        _check_array_names(self.arrays, shapes)
        for name, shape in shapes.items():
            array = self.arrays[name]
            if array.dtype != np.float32:
                raise ValueError(f"array {name!r} is {array.dtype}, not float32")
            _check_array_shape(name, array.shape, shape)
            _check_array_values(name, array)


def write_model(path: str | os.PathLike[str], model: Model) -> None:
    """Write a model file atomically, so that nobody can read a part of it.

    If the policy is of kind ``foreign``, its network is in an ONNX file already. Then only its
    monitor is written, as a model file.

    Args:
        path: The file to write; an existing one is replaced. If it is an ONNX file, this file stays
            and the monitor is written beside it (see `get_monitor_path`).
        model: The model.

    Raises:
        ModelError: The model is invalid; the message names the file and the reason.
        WriteError: The file cannot be written.
    """
    path = Path(path)
    if model.network is not None:
        trained = {**model.trained, POLICY_HASH: model.network.sha256}
        model = replace(model, network=None, trained=trained)
        path = get_monitor_path(path) if has_onnx_suffix(path) else path
    try:
        model.check_arrays()
        described = {
            "an_control": FORMAT,
            "kind": model.kind,
            "sizes": asdict(model.sizes),
            "task": model.task.to_header(),
            "trained": model.trained,
        }
        if model.forward is not None:
            sizes = asdict(model.forward)
            described["forward"] = {key: one for key, one in sizes.items() if one is not None}
        header = json.dumps(described, allow_nan=False)
        arrays = {name: np.ascontiguousarray(array) for name, array in model.arrays.items()}
        content = safetensors.numpy.save(arrays, metadata={"an_control": header})
        # Write nothing that cannot be read.
        _read_model_without_arrays(BytesIO(content), len(content))
    except INVALID as error:
        raise ModelError(f"{path}: {error}") from error
    write_file(path, content)


def read_model(path: str | os.PathLike[str], *, monitor: bool = True) -> Model:
    """Read and check a model file or an ONNX file.

    Args:
        path: A ``.safetensors`` or ``.onnx`` file.
        monitor: Whether to read the monitor that lies beside an ONNX file, too.

    Raises:
        ModelError: The file cannot be read or is not a valid model; the message names the file and
            the reason.
    """
    if has_onnx_suffix(path):
        return _read_foreign_model(Path(path), monitor)
    with _open_model_file(Path(path)) as file:
        model, places = _read_model_without_arrays(file, _get_file_size(file))
        arrays = {
            name: _read_array(file, name, shape, places)
            for name, shape in model.list_array_shapes().items()
        }
        return replace(model, arrays=arrays)


def read_header(path: str | os.PathLike[str], max_header_bytes: int) -> Model | None:
    """Read only the header of a model file, and return the model without its arrays.

    Args:
        path: A ``.safetensors`` model file.
        max_header_bytes: The largest header that is read.

    Returns:
        The model without its arrays; None if its header is larger than `max_header_bytes`, and for
        an ONNX file, which has no header.

    Raises:
        ModelError: The header is not valid, or does not fit the size of the file.
    """
    if has_onnx_suffix(path):
        return None
    with _open_model_file(Path(path)) as file:
        if max_header_bytes < int.from_bytes(file.read(8), "little") <= MAX_HEADER_BYTES:
            return None
        return _read_model_without_arrays(file, _get_file_size(file))[0]


def _read_foreign_model(path: Path, monitor: bool) -> Model:
    """Return the model of an ONNX file.

    Args:
        path: The path of the file.
        monitor: Whether to read the monitor's file beside it, too.

    Raises:
        ModelError: A file is not valid; the message names the file and the reason.
    """
    try:
        network = read_onnx_network(path)
    except WiringError as error:
        raise ModelError(str(error)) from error
    except (OSError, *INVALID) as error:
        raise ModelError(f"{path}: {describe_read_error(error)}") from error
    layout = network.layout
    task = Task(
        name=layout.task,
        channels=layout.channels,
        actuators=layout.actuators,
        step_s=layout.step_s or 0.0,
    )
    sizes = ForeignSizes(len(layout.channels), network.action.size)
    model = Model("foreign", sizes, {}, task, network=network)
    beside = get_monitor_path(path)
    return _attach_monitor(model, network, beside) if monitor and beside.exists() else model


def _attach_monitor(model: Model, network: ForeignNetwork, monitor_path: Path) -> Model:
    """Return a copy of a foreign policy's model with the monitor from a model file.

    Args:
        model: The foreign policy.
        network: Its network, whose hash must be the one in the monitor's file.
        monitor_path: The path of the monitor's file.

    Raises:
        ModelError: The file holds no monitor of this network; the message names the file and the
            remedy.
    """
    monitor = read_model(monitor_path)
    again = f"make it again (an-control train-monitor {network.file}), or remove it"
    if monitor.kind != model.kind or monitor.forward is None:
        raise ModelError(f"{monitor_path}: holds no monitor of an ONNX file; {again}")
    if monitor.trained.get(POLICY_HASH) != network.sha256:
        raise ModelError(
            f"{monitor_path}: is the monitor of another version of {network.file}; {again}"
        )
    for key in ("channels", "actuators"):
        if getattr(monitor.task, key) != getattr(model.task, key):
            raise ModelError(f"{monitor_path}: its {key} are not those of {network.file}; {again}")
    own = model.task
    task = replace(
        monitor.task, name=own.name or monitor.task.name, step_s=own.step_s or monitor.task.step_s
    )
    return replace(
        model, arrays=monitor.arrays, task=task, trained=monitor.trained, forward=monitor.forward
    )


@contextmanager
def _open_model_file(path: Path) -> Iterator[FileIO]:
    """Open a model file unbuffered, as a context that turns errors into `ModelError`.

    The message of such an error names the file.

    Args:
        path: The path of the file.
    """
    try:
        with open_regular_file(path) as file:
            if _get_file_size(file) > MAX_FILE_BYTES:
                raise ValueError(f"larger than {MAX_FILE_BYTES} bytes, the maximum for a model")
            yield file
    except (OSError, *INVALID) as error:
        raise ModelError(f"{path}: {describe_read_error(error)}") from error


def _get_file_size(file: FileIO) -> int:
    """Return the size of an open file in bytes."""
    return os.fstat(file.fileno()).st_size


def _read_model_without_arrays(file: FileIO | BytesIO, size: int) -> tuple[Model, dict[str, int]]:
    """Read the header of a model file.

    Args:
        file: The open file.
        size: Its size in bytes.

    Returns:
        A pair: the model without its arrays, and the offset in the file of each array, by name.

    Raises:
        ValueError: The header describes no model.
    """
    file.seek(0)
    start = 8 + int.from_bytes(file.read(8), "little")
    if size < 8 or start > size:
        raise ValueError("not a safetensors file, or truncated")
    if start > 8 + MAX_HEADER_BYTES:
        raise ValueError(f"a header of {start - 8} bytes; allowed are {MAX_HEADER_BYTES}")
    tensors = json.loads(file.read(start - 8).decode())
    header = _extract_project_header(tensors)
    kind, sizes, trained = header["kind"], header["sizes"], header["trained"]
    if not isinstance(kind, str) or not isinstance(sizes, dict):
        raise ValueError("kind must be a string and sizes an object")
    for key in ("task", "trained"):
        if not isinstance(header[key], dict):
            raise ValueError(f"{key}: {short(header[key])} is not an object")
    task = Task.from_header(header["task"])
    forward = None
    if "forward" in header:
        forward = ForwardSizes.from_header(header["forward"], task.channels)
    model = Model(kind, parse_model_sizes(kind, sizes), {}, task, trained, forward)
    return model, _compute_array_offsets(tensors, model.list_array_shapes(), start, size)


def _extract_project_header(tensors: Any) -> dict[str, Any]:
    """Return the header of this project, which a safetensors file keeps under `__metadata__`.

    Args:
        tensors: The header of the safetensors file as parsed JSON. `__metadata__` is removed from
            it, so that only the entries of the tensors are left.

    Raises:
        ValueError: The metadata holds no header of this project, or one of another format.
    """
    metadata = tensors.pop("__metadata__", None) if isinstance(tensors, dict) else None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("an_control"), str):
        raise ValueError("a safetensors file, but without an an_control header")
    header = json.loads(metadata["an_control"])
    if not isinstance(header, dict) or header.get("an_control") != FORMAT:
        raise ValueError(f"an_control header is not of format {FORMAT}")
    for key in ("kind", "sizes", "task", "trained"):
        if key not in header:
            raise ValueError(f"header lacks {key!r}")
    return header


def _compute_array_offsets(
    tensors: dict[str, Any], shapes: Shapes, start: int, size: int
) -> dict[str, int]:
    """Check the arrays' descriptions; return each array's offset in the file in bytes, by name.

    Args:
        tensors: The descriptions of the arrays in the safetensors header, by the array's name.
        shapes: The shapes that the arrays must have.
        start: The offset at which the arrays begin.
        size: The size of the file.

    Raises:
        ValueError: The arrays are not those of `shapes`, or do not fill the file from `start` to
            its end.
    """
    for name, tensor in tensors.items():
        if not isinstance(tensor, dict) or tensor.get("dtype") != "F32":
            kind = tensor.get("dtype") if isinstance(tensor, dict) else tensor
            raise ValueError(f"array {short(name)} is {short(kind)}, not F32")
    _check_array_names(tensors, shapes)
    places, origin = {}, start
    for name in sorted(tensors, key=lambda name: tensors[name]["data_offsets"]):
        _check_array_shape(name, tuple(tensors[name]["shape"]), shapes[name])
        places[name], start = start, start + 4 * math.prod(shapes[name])
        begin, end = tensors[name]["data_offsets"]
        if (origin + begin, origin + end) != (places[name], start):
            raise ValueError(f"array {name!r} does not lie where its shape says")
    if start != size:
        raise ValueError("truncated, or longer than its arrays")
    return places


def _read_array(
    file: FileIO, name: str, shape: tuple[int, ...], offsets: Mapping[str, int]
) -> np.ndarray:
    """Read one array of a model file; return it as read-only float32.

    Args:
        file: The open file.
        name: The name of the array.
        shape: Its shape.
        offsets: The offset in the file of each array, by name.

    Raises:
        ValueError: The file is truncated, or a value is not allowed.
    """
    array = np.empty(shape, "<f4")
    file.seek(offsets[name])
    view, done = array.data.cast("B"), 0
    while done < len(view):
        read = file.readinto(view[done:])
        if not read:
            raise ValueError("truncated")
        done += read
    _check_array_values(name, array)
    array.flags.writeable = False
    return array


def _check_array_names(names: Collection[str], shapes: Shapes) -> None:
    """Check that the names are exactly the keys of `shapes`.

    Args:
        names: The names of the arrays in a file.
        shapes: The arrays' shapes by name, as the sizes imply them.

    Raises:
        ValueError: An array is missing or unknown.
    """
    if missing := sorted(shapes.keys() - names):
        raise ValueError(f"array {missing[0]!r} is missing")
    if extra := sorted(set(names) - shapes.keys()):
        raise ValueError(f"array {short(extra[0])} is unknown, allowed are {', '.join(shapes)}")


def _check_array_shape(name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Check that the shape of an array is the expected one; raise ValueError if it is not."""
    if shape != expected:
        raise ValueError(f"array {name!r} has shape {shape}, its sizes say {expected}")


def _check_array_values(name: str, array: np.ndarray) -> None:
    """Check that the values of an array are finite and within bounds.

    Raises:
        ValueError: A value is not finite, or not within bounds.
    """
    if not -MAX_WEIGHT <= array.min() <= array.max() <= MAX_WEIGHT:  # allocates no memory
        raise ValueError(f"array {name!r} holds a value that is not finite or over {MAX_WEIGHT:g}")
    if name in POSITIVE and array.min() <= 0.0:
        raise ValueError(f"array {name!r} holds a value that is not greater than 0")
