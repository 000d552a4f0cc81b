"""A checkpoint's file format: arrays, numbers and text, nested in dicts and lists.

The file is a safetensors file. Its arrays are numbered; the header holds the rest as JSON, with
`{"array": number}` in an array's place. Reading one runs no code.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

HEADER = "state"
ARRAY = "array"


class CheckpointError(ValueError):
    """Bytes that hold no checkpoint; the message says why."""


def pack(state: dict[str, Any]) -> bytes:
    """The bytes of a state; torch's tensors are stored as arrays. TypeError for other objects."""
    arrays: dict[str, np.ndarray] = {}

    def plain(value: Any) -> Any:
        if hasattr(value, "detach"):
            value = value.detach().cpu().numpy()
        if isinstance(value, np.ndarray):
            name = str(len(arrays))
            arrays[name] = np.array(value, order="C")
            return {ARRAY: name}
        if isinstance(value, dict):
            return {"items": [[plain(key), plain(entry)] for key, entry in value.items()]}
        if isinstance(value, list | tuple):
            return [plain(entry) for entry in value]
        return value.item() if isinstance(value, np.generic) else value

    header = json.dumps(plain(state))
    return save(arrays, {HEADER: header})


def unpack(content: bytes) -> dict[str, Any]:
    """The state that `pack` was given: arrays are numpy's, tuples lists. CheckpointError."""
    try:
        arrays = load(content)
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])["__metadata__"][HEADER]
        state: dict[str, Any] = _nested(json.loads(header), arrays)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"not a checkpoint: {error}") from error
    return state


def _nested(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_nested(entry, arrays) for entry in value]
    if not isinstance(value, dict):
        return value
    if ARRAY in value:
        return arrays[value[ARRAY]]
    return {_nested(key, arrays): _nested(entry, arrays) for key, entry in value["items"]}


def as_tensors(value: Any) -> Any:
    """The same state with torch's tensors in place of arrays, as `load_state_dict` takes them."""
    import torch

    if isinstance(value, np.ndarray):
        return torch.tensor(value)
    if isinstance(value, dict):
        return {key: as_tensors(entry) for key, entry in value.items()}
    return [as_tensors(entry) for entry in value] if isinstance(value, list) else value
