"""Teachers: what a student imitates. A teacher sees the whole observation in its nominal order."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

PACKAGED_ANT = Path("examples") / "enjoy_TF_AntBulletEnv_v0_2017may.py"
PACKAGED_ARRAYS = (
    "weights_dense1_w",
    "weights_dense1_b",
    "weights_dense2_w",
    "weights_dense2_b",
    "weights_final_w",
    "weights_final_b",
)

Layers = tuple[tuple[np.ndarray, np.ndarray], ...]


class Teacher(Protocol):
    """Acts on observations; may be the network from which the student's head starts."""

    @property
    def layers(self) -> Layers | None:
        """(weight (out, in), bias (out,)) of a relu network with clipped output, or None."""

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """The action (A,) float32 in [-1, 1] for an observation (N,)."""


class NetworkTeacher:
    """A relu network whose output is clipped to [-1, 1]."""

    def __init__(self, layers: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        self.layers: Layers | None = tuple(
            (np.asarray(weight, np.float64), np.asarray(bias, np.float64))
            for weight, bias in layers
        )

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        assert self.layers is not None
        *hidden, (weight, bias) = self.layers
        x = observation
        for hidden_weight, hidden_bias in hidden:
            x = np.maximum(hidden_weight @ x + hidden_bias, 0.0)
        return np.clip(weight @ x + bias, -1.0, 1.0).astype(np.float32)


def packaged_ant_teacher() -> NetworkTeacher:
    """The ant policy that the PyPI package `pybullet` carries among its examples (28-128-64-8).

    Its arrays are read from the example's syntax tree; the example itself is not run. ValueError
    where the package or the example is not as expected.
    """
    spec = importlib.util.find_spec("pybullet_envs")
    if spec is None or not spec.submodule_search_locations:
        raise ValueError("teacher: the package pybullet is not installed (pip install pybullet)")
    path = Path(spec.submodule_search_locations[0]) / PACKAGED_ANT
    try:
        arrays = _arrays(path.read_text(encoding="utf-8"))
        weights, biases = arrays[::2], arrays[1::2]
        return NetworkTeacher([(w.T, b) for w, b in zip(weights, biases, strict=True)])
    except (OSError, SyntaxError, KeyError, ValueError) as error:
        raise ValueError(f"teacher: {path}: {error!r}") from error


def _arrays(source: str) -> list[np.ndarray]:
    """The arrays of the assignments ``NAME = np.array(LITERAL)`` in this source."""
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            (target,) = node.targets
            if isinstance(target, ast.Name) and target.id in PACKAGED_ARRAYS:
                found[target.id] = np.array(ast.literal_eval(node.value.args[0]), np.float64)
    return [found[name] for name in PACKAGED_ARRAYS]
