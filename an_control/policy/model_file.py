"""The model file: safetensors with a JSON header, checked before anything is built from it.

No pickle, no code: a file from an untrusted place either is a model of known kind, with arrays of
the names, shapes and finite values that its sizes imply, or is refused with a reason.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from an_control.policy.forward_model import ForwardSizes
from an_control.policy.sizes import AttentionSizes, Sizes, VisionSizes, sizes_from

FORMAT = 1
LARGEST_FILE = 256 * 2**20
LARGEST_HEADER = 2**20
LARGEST_WEIGHT = 1e6
"""Larger weights than any trained one; below it no product in a tick can overflow."""
SHORTEST_STEP_S, LONGEST_STEP_S = 1e-6, 3600.0
TASK_KEYS: dict[str, Any] = {
    "name": str,
    "environment": str,
    "channels": list,
    "actuators": list,
    "step_s": (int, float),
    "ramp_s": (int, float),
    "repeats": bool,
}
LONGEST_RAMP_S = 3600.0


class ModelError(ValueError):
    """A model that cannot be used; the message names the file and the reason."""


@dataclass(frozen=True)
class Model:
    """A policy's arrays (float32) and what is known of it.

    `task` describes what it was trained for (``name``, ``environment``, ``channels`` and
    ``actuators`` in the environment's order, ``step_s``; ``ramp_s``, the longest soft start that it
    was trained with, and ``repeats``, whether it was trained to step on readings that it has seen
    before), `trained` how; both may be empty.
    `forward` describes the forward model that the arrays ``forward.*`` are, where there is one.
    """

    kind: str
    sizes: Sizes
    arrays: dict[str, np.ndarray]
    task: dict[str, Any] = field(default_factory=dict)
    trained: dict[str, Any] = field(default_factory=dict)
    forward: ForwardSizes | None = None

    @property
    def parameters(self) -> int:
        """How many numbers the arrays hold."""
        return sum(array.size for array in self.arrays.values())

    def normalised(self, channels: int) -> Model:
        """The same policy with its sums over channels scaled to so many of them (0: not scaled).

        ValueError where it has no such sums.
        """
        if not isinstance(self.sizes, AttentionSizes):
            raise ValueError(f"normalise: a policy of kind {self.kind} has no sums over channels")
        return replace(self, sizes=replace(self.sizes, normalise=channels))

    def check(self) -> None:
        """ValueError unless the arrays are those that the sizes imply, float32 and finite."""
        shapes = self.sizes.shapes()
        if self.forward is not None:
            if isinstance(self.sizes, VisionSizes):
                raise ValueError("forward: there is none for image patches")
            channels = len(self.task.get("channels", []))
            shapes |= self.forward.shapes(channels, self.sizes.actions)
        if missing := sorted(shapes.keys() - self.arrays.keys()):
            raise ValueError(f"array {missing[0]!r} is missing")
        if extra := sorted(self.arrays.keys() - shapes.keys()):
            raise ValueError(f"array {extra[0]!r} is unknown, allowed are {', '.join(shapes)}")
        for name, shape in shapes.items():
            array = self.arrays[name]
            if array.dtype != np.float32:
                raise ValueError(f"array {name!r} is {array.dtype}, not float32")
            if array.shape != shape:
                raise ValueError(f"array {name!r} has shape {array.shape}, its sizes say {shape}")
            if not (np.abs(array) <= LARGEST_WEIGHT).all():
                raise ValueError(
                    f"array {name!r} holds a value that is not finite or over {LARGEST_WEIGHT:g}"
                )


def write_model(path: str | os.PathLike[str], model: Model) -> None:
    """Write `model` atomically: the file is whole or not there; ModelError if it is not sound."""
    path = Path(path)
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
            described["forward"] = asdict(model.forward)
        header = json.dumps(described, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{path}: {error}") from error
    arrays = {name: np.ascontiguousarray(array) for name, array in model.arrays.items()}
    content = safetensors.numpy.save(arrays, metadata={"an_control": header})
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.chmod(partial, 0o644)
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise


def read_model(path: str | os.PathLike[str]) -> Model:
    """Read and check a model file; ModelError names the file and the reason."""
    path = Path(path)
    try:
        return _decode(_content(path))
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        RecursionError,
        safetensors.SafetensorError,
    ) as error:
        raise ModelError(f"{path}: {error}") from error


def _content(path: Path) -> bytes:
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("not a regular file")
    if found.st_size > LARGEST_FILE:
        raise ValueError(f"larger than {LARGEST_FILE} bytes, which no model is")
    with path.open("rb") as file:
        return file.read(found.st_size)


def _decode(content: bytes) -> Model:
    header = _header(content)
    kind, sizes = header["kind"], header["sizes"]
    if not isinstance(kind, str) or not isinstance(sizes, dict):
        raise ValueError("kind must be a string and sizes an object")
    for key in ("task", "trained"):
        if not isinstance(header[key], dict):
            raise ValueError(f"{key}: {header[key]!r} is not an object")
    _check_task(header["task"])
    arrays = {}
    for name, tensor in safetensors.deserialize(content):
        if tensor["dtype"] != "F32":
            raise ValueError(f"array {name!r} is {tensor['dtype']}, not F32")
        array = np.frombuffer(bytes(tensor["data"]), np.float32).reshape(tensor["shape"])
        arrays[name] = array
    forward = None
    if "forward" in header:
        forward = ForwardSizes.read(header["forward"], header["task"].get("channels", []))
    task, trained = header["task"], header["trained"]
    model = Model(kind, sizes_from(kind, sizes), arrays, task, trained, forward)
    model.check()
    return model


def _header(content: bytes) -> dict[str, Any]:
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(LARGEST_HEADER, len(content) - 8):
        raise ValueError("not a safetensors file, or cut short")
    tensors = json.loads(content[8 : 8 + length])
    metadata = tensors.get("__metadata__") if isinstance(tensors, dict) else None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("an_control"), str):
        raise ValueError("a safetensors file, but without an an_control header")
    header = json.loads(metadata["an_control"])
    if not isinstance(header, dict) or header.get("an_control") != FORMAT:
        raise ValueError(f"an_control header is not of format {FORMAT}")
    for key in ("kind", "sizes", "task", "trained"):
        if key not in header:
            raise ValueError(f"header lacks {key!r}")
    return header


def _check_task(task: Mapping[str, Any]) -> None:
    for key, value in task.items():
        if key not in TASK_KEYS:
            raise ValueError(f"task.{key}: unknown, allowed are {', '.join(TASK_KEYS)}")
        kind = TASK_KEYS[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"task.{key}: {value!r} is of the wrong type")
    for key in ("channels", "actuators"):
        names = task.get(key, [])
        if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
            raise ValueError(f"task.{key}: must be a list of strings that differ")
    ramp_s = task.get("ramp_s", 0.0)
    if not 0.0 <= ramp_s <= LONGEST_RAMP_S:
        raise ValueError(f"task.ramp_s: {ramp_s!r} is not between 0 and {LONGEST_RAMP_S:g} s")
    step_s = task.get("step_s", 1.0)
    if not SHORTEST_STEP_S <= step_s <= LONGEST_STEP_S:
        raise ValueError(
            f"task.step_s: {step_s!r} is not between {SHORTEST_STEP_S:g} and {LONGEST_STEP_S:g} s"
        )
