"""The model file: safetensors with a JSON header, checked before anything is built from it.

No pickle, no code: a file from an untrusted place either is a model of known kind, with arrays of
the names, shapes and finite values that its sizes imply, or is refused with a reason.

An ONNX file is a model too, of kind "foreign"; what its monitor needs lies in a model file beside
it, which names the ONNX file by its hash.
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

from an_control.policy.onnx_file import ForeignNetwork, is_onnx, monitor_path, read_onnx
from an_control.policy.sizes import (
    AttentionSizes,
    ForeignSizes,
    ForwardSizes,
    Shapes,
    Sizes,
    VisionSizes,
    sizes_from,
)
from an_control.system.files import open_regular, write_whole
from an_control.wiring.checked_yaml import WiringError

FORMAT = 2
MAX_FILE_BYTES = 256 * 2**20
MAX_HEADER_BYTES = 2**19
"""Parsing it keeps the interpreter from all other threads."""
MAX_WEIGHT = 1e6
"""Larger weights than any trained one; below it no product in a tick can overflow."""
MIN_STEP_S, MAX_STEP_S = 1e-6, 3600.0
TASK_KEYS: dict[str, Any] = {
    "name": str,
    "environment": str,
    "channels": list,
    "actuators": list,
    "step_s": (int, float),
    "ramp_s": (int, float),
    "recovery": (int, float),
    "repeats": bool,
    "units": list,
}
MAX_RAMP_S = 3600.0
MAX_RECOVERY = 1.0
POLICY_HASH = "policy_sha256"
"""In `trained` of a monitor's file: the ONNX file that it belongs to."""
POSITIVE = ("identity.units",)
"""Arrays that others are divided by."""
INVALID = (ValueError, KeyError, TypeError, RecursionError)
"""What reading a header raises where it describes no model."""


class ModelError(ValueError):
    """A model that cannot be used; the message names the file and the reason."""


@dataclass(frozen=True)
class Model:
    """A policy's arrays (float32) and what is known of it.

    `task` describes what it was trained for (``name``, ``environment``, ``channels`` and
    ``actuators`` in the environment's order, ``step_s``; ``ramp_s``, the longest soft start that it
    was trained with; ``recovery``, the least change of a robot that moves, see `RecoveringPolicy`;
    ``repeats``, whether it was trained to step on readings that it has seen before; ``units``, a
    pair of scale and offset for each channel, where it was trained on numbers of the environment
    that are scaled so), `trained` how; both may be empty.
    `forward` describes the forward model that the arrays ``forward.*`` are, where there is one.
    `network` is that of a policy of kind ``foreign``.
    """

    kind: str
    sizes: Sizes
    arrays: dict[str, np.ndarray]
    task: dict[str, Any] = field(default_factory=dict)
    trained: dict[str, Any] = field(default_factory=dict)
    forward: ForwardSizes | None = None
    network: ForeignNetwork | None = field(default=None, repr=False)

    @property
    def parameters(self) -> int:
        """How many numbers the arrays hold."""
        own = 0 if self.network is None else self.network.parameters
        return own + sum(array.size for array in self.arrays.values())

    def normalised(self, channels: int) -> Model:
        """Return the policy with its sums over channels scaled to so many of them (0: not scaled).

        ValueError where it has no such sums.
        """
        if not isinstance(self.sizes, AttentionSizes):
            raise ValueError(f"normalise: a policy of kind {self.kind} has no sums over channels")
        return replace(self, sizes=replace(self.sizes, normalise=channels))

    def shapes(self) -> Shapes:
        """Return the names and shapes of its arrays; ValueError where its parts do not fit."""
        shapes = self.sizes.shapes()
        if self.forward is None:
            return shapes
        if isinstance(self.sizes, VisionSizes):
            raise ValueError("forward: there is none for image patches")
        return shapes | self.forward.shapes(len(self.task.get("channels", [])), self.sizes.actions)

    def check(self) -> None:
        """ValueError unless the arrays are those that the sizes imply, float32 and finite."""
        shapes = self.shapes()
        _check_names(self.arrays, shapes)
        for name, shape in shapes.items():
            array = self.arrays[name]
            if array.dtype != np.float32:
                raise ValueError(f"array {name!r} is {array.dtype}, not float32")
            _check_shape(name, array.shape, shape)
            _check_values(name, array)


def write_model(path: str | os.PathLike[str], model: Model) -> None:
    """Write `model` atomically: the file is complete or not there; ModelError if invalid.

    Of a foreign policy only its monitor is written: beside it where `path` is the ONNX file.
    """
    path = Path(path)
    if model.network is not None:
        trained = {**model.trained, POLICY_HASH: model.network.sha256}
        model = replace(model, network=None, trained=trained)
        path = monitor_path(path) if is_onnx(path) else path
    try:
        model.check()
        _check_task(model.task)
        described = {
            "an_control": FORMAT,
            "kind": model.kind,
            "sizes": asdict(model.sizes),
            "task": model.task,
            "trained": model.trained,
        }
        if model.forward is not None:
            sizes = asdict(model.forward)
            described["forward"] = {key: one for key, one in sizes.items() if one is not None}
        header = json.dumps(described, allow_nan=False)
        arrays = {name: np.ascontiguousarray(array) for name, array in model.arrays.items()}
        content = safetensors.numpy.save(arrays, metadata={"an_control": header})
        _described(BytesIO(content), len(content))  # what cannot be read is not written
    except INVALID as error:
        raise ModelError(f"{path}: {error}") from error
    write_whole(path, content)


def read_model(path: str | os.PathLike[str], *, monitor: bool = True) -> Model:
    """Read and check a model file or an ONNX file; ModelError names the file and the reason.

    Of an ONNX file, `monitor` is whether the monitor that lies beside it is read too.
    """
    if is_onnx(path):
        return _foreign(Path(path), monitor)
    with _opened(Path(path)) as file:
        model, places = _described(file, _size(file))
        arrays = {name: _array(file, name, shape, places) for name, shape in model.shapes().items()}
        return replace(model, arrays=arrays)


def read_header(path: str | os.PathLike[str], largest: int) -> Model | None:
    """Return the model without its arrays, or None if its header has more than `largest` bytes.

    Reads nothing behind the header; ModelError where no valid file of this size can have it. An
    ONNX file has no header.
    """
    if is_onnx(path):
        return None
    with _opened(Path(path)) as file:
        if largest < int.from_bytes(file.read(8), "little") <= MAX_HEADER_BYTES:
            return None
        return _described(file, _size(file))[0]


def _foreign(path: Path, monitor: bool) -> Model:
    """Return the policy of an ONNX file, with the monitor that lies beside it."""
    try:
        network = read_onnx(path)
    except WiringError as error:
        raise ModelError(str(error)) from error
    except (OSError, *INVALID) as error:
        raise ModelError(f"{path}: {error}") from error
    layout = network.layout
    task: dict[str, Any] = {
        "name": layout.task,
        "channels": list(layout.channels),
        "actuators": list(layout.actuators),
    }
    task = {key: value for key, value in task.items() if value}
    if layout.step_s is not None:
        task["step_s"] = layout.step_s
    sizes = ForeignSizes(len(layout.channels), network.action.size)
    model = Model("foreign", sizes, {}, task, network=network)
    beside = monitor_path(path)
    return _with_monitor(model, network, beside) if monitor and beside.exists() else model


def _with_monitor(model: Model, network: ForeignNetwork, beside: Path) -> Model:
    """Return the foreign policy with the monitor that lies beside it."""
    monitor = read_model(beside)
    again = f"make it again (an-control train-monitor {network.file}), or remove it"
    if monitor.kind != model.kind or monitor.forward is None:
        raise ModelError(f"{beside}: holds no monitor of an ONNX file; {again}")
    if monitor.trained.get(POLICY_HASH) != network.sha256:
        raise ModelError(f"{beside}: is the monitor of another version of {network.file}; {again}")
    for key in ("channels", "actuators"):
        if monitor.task.get(key) != model.task[key]:
            raise ModelError(f"{beside}: its {key} are not those of {network.file}; {again}")
    task = {**monitor.task, **model.task}
    return replace(
        model, arrays=monitor.arrays, task=task, trained=monitor.trained, forward=monitor.forward
    )


@contextmanager
def _opened(path: Path) -> Iterator[FileIO]:
    """Open the file, unbuffered; what goes wrong with it is a ModelError that names it."""
    try:
        with open_regular(path) as file:
            if _size(file) > MAX_FILE_BYTES:
                raise ValueError(f"larger than {MAX_FILE_BYTES} bytes, which no model is")
            yield file
    except (OSError, *INVALID) as error:
        raise ModelError(f"{path}: {error}") from error


def _size(file: FileIO) -> int:
    return os.fstat(file.fileno()).st_size


def _described(file: FileIO | BytesIO, size: int) -> tuple[Model, dict[str, int]]:
    """Return the model without its arrays, and where in the file each of these begins."""
    file.seek(0)
    start = 8 + int.from_bytes(file.read(8), "little")
    if size < 8 or start > size:
        raise ValueError("not a safetensors file, or cut short")
    if start > 8 + MAX_HEADER_BYTES:
        raise ValueError(f"a header of {start - 8} bytes; allowed are {MAX_HEADER_BYTES}")
    tensors = json.loads(file.read(start - 8).decode())
    header = _header(tensors)
    kind, sizes, task, trained = (header[key] for key in ("kind", "sizes", "task", "trained"))
    if not isinstance(kind, str) or not isinstance(sizes, dict):
        raise ValueError("kind must be a string and sizes an object")
    for key in ("task", "trained"):
        if not isinstance(header[key], dict):
            raise ValueError(f"{key}: {short(header[key])} is not an object")
    _check_task(task)
    forward = None
    if "forward" in header:
        forward = ForwardSizes.read(header["forward"], task.get("channels", []))
    model = Model(kind, sizes_from(kind, sizes), {}, task, trained, forward)
    return model, _places(tensors, model.shapes(), start, size)


def _header(tensors: Any) -> dict[str, Any]:
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


def _places(tensors: dict[str, Any], shapes: Shapes, start: int, size: int) -> dict[str, int]:
    """Where in the file each array begins; together they fill it from `start` to `size`."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, dict) or tensor.get("dtype") != "F32":
            kind = tensor.get("dtype") if isinstance(tensor, dict) else tensor
            raise ValueError(f"array {short(name)} is {short(kind)}, not F32")
    _check_names(tensors, shapes)
    places, origin = {}, start
    for name in sorted(tensors, key=lambda name: tensors[name]["data_offsets"]):
        _check_shape(name, tuple(tensors[name]["shape"]), shapes[name])
        places[name], start = start, start + 4 * math.prod(shapes[name])
        begin, end = tensors[name]["data_offsets"]
        if (origin + begin, origin + end) != (places[name], start):
            raise ValueError(f"array {name!r} does not lie where its shape says")
    if start != size:
        raise ValueError("cut short, or longer than its arrays")
    return places


def _array(
    file: FileIO, name: str, shape: tuple[int, ...], places: Mapping[str, int]
) -> np.ndarray:
    array = np.empty(shape, "<f4")
    file.seek(places[name])
    view, done = array.data.cast("B"), 0
    while done < len(view):
        read = file.readinto(view[done:])
        if not read:
            raise ValueError("cut short")
        done += read
    _check_values(name, array)
    array.flags.writeable = False
    return array


def _check_names(found: Collection[str], shapes: Shapes) -> None:
    if missing := sorted(shapes.keys() - found):
        raise ValueError(f"array {missing[0]!r} is missing")
    if extra := sorted(set(found) - shapes.keys()):
        raise ValueError(f"array {short(extra[0])} is unknown, allowed are {', '.join(shapes)}")


def _check_shape(name: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    if shape != wanted:
        raise ValueError(f"array {name!r} has shape {shape}, its sizes say {wanted}")


def _check_values(name: str, array: np.ndarray) -> None:
    if not -MAX_WEIGHT <= array.min() <= array.max() <= MAX_WEIGHT:  # takes no memory
        raise ValueError(f"array {name!r} holds a value that is not finite or over {MAX_WEIGHT:g}")
    if name in POSITIVE and array.min() <= 0.0:
        raise ValueError(f"array {name!r} holds a value that is not over 0")


def _check_task(task: Mapping[str, Any]) -> None:
    for key, value in task.items():
        if key not in TASK_KEYS:
            raise ValueError(f"task.{key}: unknown, allowed are {', '.join(TASK_KEYS)}")
        kind = TASK_KEYS[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"task.{key}: {short(value)} is of the wrong type")
    for key in ("channels", "actuators"):
        names = task.get(key, [])
        if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
            raise ValueError(f"task.{key}: must be a list of strings that differ")
    if "units" in task:
        _check_units(task["units"], len(task.get("channels", [])))
    ramp_s = task.get("ramp_s", 0.0)
    if not 0.0 <= ramp_s <= MAX_RAMP_S:
        raise ValueError(f"task.ramp_s: {ramp_s!r} is not between 0 and {MAX_RAMP_S:g} s")
    recovery = task.get("recovery", 0.0)
    if not 0.0 <= recovery <= MAX_RECOVERY:
        raise ValueError(f"task.recovery: {recovery!r} is not between 0 and {MAX_RECOVERY:g}")
    step_s = task.get("step_s", 1.0)
    if not MIN_STEP_S <= step_s <= MAX_STEP_S:
        raise ValueError(
            f"task.step_s: {step_s!r} is not between {MIN_STEP_S:g} and {MAX_STEP_S:g} s"
        )


def _check_units(units: list[Any], channels: int) -> None:
    """ValueError unless there is a scale, which is not 0, and an offset for each channel."""
    if len(units) != channels:
        raise ValueError(f"task.units: {len(units)} pairs for {channels} channels")
    for pair in units:
        numbers = isinstance(pair, list) and [type(one) in (int, float) for one in pair]
        if numbers != [True, True] or not all(map(math.isfinite, pair)) or not pair[0]:
            raise ValueError(f"task.units: {short(pair)} is no pair of scale and offset")
