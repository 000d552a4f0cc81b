"""Load a policy from a model file, or make one of a model: engine, recovery, monitor."""

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from an_control.monitor.forward_model import ForwardModel
from an_control.monitor.hand_over import HandOverPolicy
from an_control.monitor.monitor import IdentityMonitor
from an_control.monitor.monitored_policy import MonitoredPolicy
from an_control.monitor.recovery import RecoveringPolicy, recovery_of
from an_control.policy.attention_neuron import AttentionNeuron
from an_control.policy.mlp import MlpPolicy
from an_control.policy.model_file import Model, ModelError, read_model
from an_control.policy.onnx_policy import OnnxPolicy
from an_control.policy.protocol import Policy
from an_control.policy.reference import Reference
from an_control.policy.sizes import ForeignSizes, MlpSizes, Monitor, OrderedSizes, VisionSizes
from an_control.policy.vision.kernels import PLAIN
from an_control.policy.vision.vision_neuron import VisionNeuron

EngineName = Literal["numpy", "numba"]


def load_policy(
    path: str | os.PathLike[str],
    monitor: Monitor | None = None,
    *,
    engine: EngineName | None = None,
    keep_ticks: int | None = None,
    recovery: float | None = None,
) -> Policy:
    """Load the policy in a model file.

    Args:
        path: a ``.safetensors`` model file, or an ``.onnx`` file of another tool.
        monitor: what watches for unannounced rewiring: "off", "reset", "match", or None for what
            the model file says; only a model with a forward model can have one.
        engine: "numba" (compiled, here and now) or "numpy" (the plain equations of `reference`, and
            what numba does not know); None takes numba where it is installed and knows the model.
        keep_ticks: see `AttentionNeuron`.
        recovery: push a robot that stands still, one whose readings change by less than this at a
            tick (see `RecoveringPolicy`); 0: never, None: as the model file says.

    Raises:
        ModelError: the file is not a valid model; names the file and the reason.
    """
    model = read_model(path)
    try:
        policy = make_policy(
            model, monitor, engine=engine, keep_ticks=keep_ticks, recovery=recovery
        )
        dry_run(policy)
    except ValueError as error:
        raise ModelError(f"{path}: {error}") from error
    return policy


def make_policy(
    model: Model,
    monitor: Monitor | None = None,
    *,
    engine: EngineName | None = None,
    keep_ticks: int | None = None,
    recovery: float | None = None,
) -> Policy:
    """Make the policy of a model in memory, see `load_policy`.

    ValueError where the engine is unknown or not there, or monitor or recovery cannot be.
    """
    setting = monitor_of(model, monitor)
    policy = _unmonitored(model, engine, keep_ticks)
    if least_change := recovery_of(model, recovery):
        policy = RecoveringPolicy(policy, least_change)
    if setting == "off" or policy.reading_shape:
        return policy
    ordered = not policy.permutation_invariant
    watching = IdentityMonitor(ForwardModel(model), ordered=ordered)
    monitored = MonitoredPolicy(policy, watching, setting)
    student = _student_path(model)
    if student is None or setting != "match":
        return monitored
    return HandOverPolicy(monitored, make_policy(read_model(student), "off", engine=engine))


def _student_path(model: Model) -> Path | None:
    """Return the model file of the student that acts until the order of the channels is known."""
    if model.network is None or not model.network.layout.hand_over:
        return None
    return Path(model.network.file).parent / model.network.layout.hand_over


def monitor_of(model: Model, asked: Monitor | None) -> Monitor:
    """Return what the monitor will do: what is asked for, or what the model says.

    ValueError where the model carries no forward model to watch its channels by.
    """
    if asked not in (None, *get_args(Monitor)):
        allowed = ", ".join(map(repr, get_args(Monitor)))
        raise ValueError(f"monitor: {asked!r} is not one of {allowed}")
    if model.forward is None and asked not in (None, "off"):
        raise ValueError(
            f"monitor: {asked!r}, but this model carries no forward model of its channels to"
            " watch them by (an-control train-monitor makes one); allowed is 'off'"
        )
    return asked or ("off" if model.forward is None else model.forward.default)


def monitor_warning(model: Model, asked: Monitor | None) -> str:
    """Return why the monitor is off although nobody asked for that, and what to do, or ""."""
    return "" if asked is not None or model.forward is None else model.forward.why_off


def _unmonitored(model: Model, engine: EngineName | None, keep_ticks: int | None) -> Policy:
    if engine not in (None, *get_args(EngineName)):
        raise ValueError(f"engine: {engine!r} is not one of {', '.join(get_args(EngineName))}")
    sizes = model.sizes
    if isinstance(sizes, MlpSizes):
        return MlpPolicy(model)
    if isinstance(sizes, ForeignSizes):
        if model.network is None:
            raise ValueError("holds only the monitor of an ONNX file, which is the policy")
        return OnnxPolicy(model)
    if isinstance(sizes, VisionSizes):
        if not _compiled(engine):
            return VisionNeuron(model, PLAIN)
        from an_control.policy.vision.numba_kernels import COMPILED

        return VisionNeuron(model, COMPILED)
    if engine == "numba" and not sizes.compiles:
        raise ValueError(
            "engine: 'numba' knows no sizes.encoder, no pma attention and no sizes.recurrence;"
            " allowed is 'numpy'"
        )
    if not sizes.compiles or not _compiled(engine):
        return AttentionNeuron(model, Reference(model), keep_ticks)
    from an_control.policy.numba_engine import NumbaEngine

    return AttentionNeuron(model, NumbaEngine(model), keep_ticks)


def dry_run(policy: Policy) -> None:
    """Compute one tick on zeros, then reset; this compiles what is not compiled yet."""
    names = policy.nominal_ids or _numbered(policy.model)
    shape = policy.reading_shape
    policy.step_array(np.zeros((len(names), *shape), np.uint8 if shape else np.float64), names)
    policy.reset()


def _compiled(name: EngineName | None) -> bool:
    """Return whether the engine is to be numba; ValueError where it is asked for and not there."""
    if name == "numpy":
        return False
    missing = _numba_missing()
    if missing and name == "numba":
        raise ValueError(f"engine: 'numba' {missing}")
    return not missing


def _numba_missing() -> str:
    """Return why nothing can be compiled, or ""; warn of a numba that is installed but fails."""
    if importlib.util.find_spec("numba") is None:
        return "is not installed (pip install numba)"
    try:
        importlib.import_module("numba")
    except ImportError as error:
        warnings.warn(f"policies are not compiled, numba fails: {error}", stacklevel=2)
        return f"cannot be imported: {error}"
    return ""


def _numbered(model: Model) -> tuple[str, ...]:
    channels = model.sizes.channels if isinstance(model.sizes, OrderedSizes) else 1
    return tuple(str(i) for i in range(channels))
