"""Short hashes of the numbers that a run learns from, which may change behind a file's name.

They are a part of the run's settings: a run whose teacher or start model has other numbers than
when it began is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from an_control.learning.runs.run_folder import CHECKPOINT
from an_control.policy import Model
from an_control.system.files import read_regular

DIGITS = 12


def digest(arrays: Iterable[np.ndarray], *words: str) -> str:
    """Of these arrays in this order, and of words that say what is done with them."""
    found = hashlib.sha256(json.dumps(words).encode())
    for array in arrays:
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()[:DIGITS]


def model_digest(model: Model | None, *words: str) -> str | None:
    """Of a model's arrays, None where there is none."""
    if model is None:
        return None
    return digest((model.arrays[name] for name in sorted(model.arrays)), *words)


def settings_with(folder: Path, **digests: str | None) -> dict[str, str]:
    """Those that there are, for the settings of the run in `folder`.

    A run that began before there were hashes continues without them.
    """
    known = {name: value for name, value in digests.items() if value is not None}
    if not (folder / CHECKPOINT).exists():
        return known
    try:
        begun = json.loads(read_regular(folder / "config.json"))
    except (OSError, ValueError):  # which `RunFolder` reports
        return known
    return {name: value for name, value in known.items() if name in begun}
