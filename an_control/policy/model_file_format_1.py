"""What model files of format 1 call by other names than format 2, which alone is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KINDS = {"ordered": "mlp"}
SIZES = {
    "startle": "reset_on_jump",
    "doubt": "outlier_weighting",
    "compare": "prediction_attention",
}
FORWARD = {"looks": "identity", "fill": "imputation"}
ARRAYS = {
    "memory.log_doubt": "memory.log_outlier_weight",
    "attention.comparison": "attention.prediction",
    "fill.roughest": "imputation.max_roughness",
}


def renamed_header(header: Mapping[str, Any]) -> dict[str, Any]:
    """A header of format 1 in the names of format 2; what is not valid stays for later checks."""
    new = dict(header)
    if isinstance(header["kind"], str):
        new["kind"] = KINDS.get(header["kind"], header["kind"])
    for part, names in (("sizes", SIZES), ("forward", FORWARD)):
        if isinstance(header.get(part), dict):
            new[part] = _renamed(part, header[part], names)
    return new


def renamed_arrays(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays by the names of format 2; the first part of a name is that of a network."""
    names = dict(ARRAYS)
    for name in arrays:
        network, _, rest = name.partition(".")
        if network in FORWARD:
            names.setdefault(name, f"{FORWARD[network]}.{rest}")
    return _renamed("arrays", arrays, names)


def _renamed(part: str, items: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    for old, new in names.items():
        if old in items and new in items:
            raise ValueError(f"{part}: {old!r} and {new!r} are the same, allowed is one of them")
    return {names.get(key, key): value for key, value in items.items()}
