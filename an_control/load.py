"""Load a policy from a model file, with its engine, recovery and monitor."""

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from an_control.monitor.excitation import read_excitation
from an_control.monitor.exciting_policy import ExcitingPolicy
from an_control.monitor.forward_model import ForwardModel
from an_control.monitor.hand_over import HandOverPolicy
from an_control.monitor.monitor import IdentityMonitor
from an_control.monitor.monitored_policy import MonitoredPolicy
from an_control.monitor.recovery import RecoveringPolicy, resolve_stillness_threshold
from an_control.policy.attention_neuron import AttentionNeuron
from an_control.policy.interface import Policy
from an_control.policy.mlp import MlpPolicy
from an_control.policy.model_file import Model, ModelError, read_model
from an_control.policy.onnx_policy import OnnxPolicy
from an_control.policy.reference_engine import ReferenceEngine
from an_control.policy.sizes import ForeignSizes, MlpSizes, Monitor, OrderedSizes, VisionSizes
from an_control.policy.vision.kernels import PLAIN
from an_control.policy.vision.vision_neuron import VisionNeuron
from an_control.system.share import find_share_path

EngineName = Literal["numpy", "numba"]
Companion = Literal["hand_over", "excitation"]


def load_policy(
    path: str | os.PathLike[str],
    monitor: Monitor | None = None,
    *,
    engine: EngineName | None = None,
    keep_ticks: int | None = None,
    recovery: float | None = None,
) -> Policy:
    """Load the policy in a model file, ready to act.

    The policy follows Tang & Ha 2021, "The Sensory Neuron as a Transformer: Permutation-Invariant
    Neural Networks for Reinforcement Learning" (arXiv 2109.02869), or is an MLP.

    Args:
        path: A ``.safetensors`` model file, an ``.onnx`` file of another tool, or the name of a
            shipped model such as "ant". If a file of that name exists, the file is loaded instead.
        monitor: What to do if sensor signals arrive on other channels than they were wired to:
            "off" (nothing), "reset" (reset the state of the channels concerned), "match" (find each
            signal and give it to the policy under its own id), or None for the model file's
            setting. Only a model with a forward model, which predicts the readings, can have a
            monitor.
        engine: "numba" (compiled at this call) or "numpy" (the plain equations, for all models);
            None: numba if it is installed and can compute the model.
        keep_ticks: Number of control steps for which the state of a channel without readings is
            kept; None: the ticks of one second.
        recovery: The mean change of the readings from one control step to the next, in their units,
            below which the robot counts as standing still. Random actions are then sent to free it
            (see `an_control.monitor.RecoveringPolicy`). 0: never; None: the model file's value.

    Returns:
        A policy whose code is compiled, because it has computed one tick and was then reset.

    Raises:
        ModelError: The file is not a valid model, or an argument does not fit it; the message names
            the file and the reason.

    Example:
        >>> import an_control
        >>> from an_control.policy import make_paper_sizes, write_model
        >>> from an_control.policy.random_model import make_random_model
        >>> sizes = make_paper_sizes(actions=2, queries=4, hidden_layers=1)
        >>> write_model("small.safetensors", make_random_model(sizes))
        >>> policy = an_control.load_policy("small.safetensors", engine="numpy")
        >>> action = policy.step({"hip.position": 0.3, "hip.velocity": -1.2})
        >>> action.shape, action.dtype
        ((2,), dtype('float32'))
        >>> policy.reset()
        >>> swapped = policy.step({"hip.velocity": -1.2, "hip.position": 0.3})
        >>> bool((action == swapped).all())  # to the last bit, in any order
        True
    """
    model = read_model(find_model_path(path))
    try:
        policy = make_policy(
            model, monitor, engine=engine, keep_ticks=keep_ticks, recovery=recovery
        )
        warm_up_policy(policy)
    except ValueError as error:
        raise ModelError(f"{path}: {error}") from error
    return policy


def find_model_path(path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return the path of a model file, given either the path or the name of a shipped model.

    If a file has the name of a shipped model, the file comes first.

    Args:
        path: The path of a model file, or the name of a shipped model such as "ant".

    Raises:
        ModelError: `path` is empty, or it is a plain name such as "ant", without folder and suffix,
            but neither a file nor a shipped model.
    """
    name = os.fspath(path)
    if not name:
        raise ModelError("the path of the model file is empty")
    if Path(name).name != name or Path(name).suffix or os.path.isfile(name):
        return path
    shipped = {one.stem: one for one in find_share_path("models").glob("*.safetensors")}
    if name not in shipped:
        raise ModelError(
            f"{path}: neither a file nor a shipped model ({', '.join(sorted(shipped))})"
        )
    return shipped[name]


def make_policy(
    model: Model,
    monitor: Monitor | None = None,
    *,
    engine: EngineName | None = None,
    keep_ticks: int | None = None,
    recovery: float | None = None,
) -> Policy:
    """Return a policy that computes the actions of a model which is already in memory.

    Args:
        model: The model, as `an_control.policy.read_model` returns it.
        monitor: The reaction to rewired sensors, "off", "reset" or "match" (see `load_policy`);
            None: the model's default.
        engine: "numba" or "numpy"; None: numba if it is installed and can compute the model.
        keep_ticks: Number of ticks for which a missing channel's state is kept; None: the ticks of
            one second.
        recovery: The mean change of the readings per tick, in their units, below which the robot
            counts as standing still and gets random actions. 0: never; None: the model's value.

    Returns:
        The policy, which also frees a robot that stands still and reacts to rewired sensors if
        `recovery` and `monitor` say so.

    Raises:
        ValueError: The engine is unknown or not installed, or monitor or recovery do not fit the
            model.
    """
    setting = resolve_monitor_setting(model, monitor)
    if setting == "off" and monitor is None:
        _check_can_act_unmonitored(model)
    policy = _make_unmonitored_policy(model, engine, keep_ticks)
    if stillness_threshold := resolve_stillness_threshold(model, recovery):
        policy = RecoveringPolicy(policy, stillness_threshold)
    if setting == "off" or policy.reading_shape:
        return policy
    ordered = not policy.permutation_invariant
    watching = IdentityMonitor(ForwardModel(model), ordered=ordered)
    monitored = MonitoredPolicy(policy, watching, setting)
    if setting != "match":
        return monitored
    if excitation := _get_companion_path(model, "excitation"):
        return ExcitingPolicy(monitored, read_excitation(excitation))
    if student := _get_companion_path(model, "hand_over"):
        return HandOverPolicy(monitored, make_policy(read_model(student), "off", engine=engine))
    return monitored


def _get_companion_path(model: Model, key: Companion) -> Path | None:
    """Return the path of a file that a policy names beside its own; None if it names none.

    Both kinds are for a policy that needs its channels in a fixed order. A student is a second
    policy that takes them in any order, and acts until the monitor has found that order. An
    excitation is a set of small motions, from whose effects the monitor finds it before the policy
    acts.

    Args:
        model: The model of the policy.
        key: "hand_over" for the student's model file, "excitation" for the excitation.
    """
    if model.network is None:
        return None
    name = getattr(model.network.layout, key)
    return Path(model.network.file).parent / name if name else None


def _check_can_act_unmonitored(model: Model) -> None:
    """Check that a model whose monitor is off can act without one.

    It cannot if its file names a student or an excitation (small motions before the policy acts),
    because both need a monitor that finds the order of the channels.

    Raises:
        ValueError: The model needs a monitor; the message names the key that says so.
    """
    keys: tuple[Companion, ...] = get_args(Companion)
    for key in keys:
        if _get_companion_path(model, key):
            raise ValueError(
                f"{key}: needs a monitor that is on (an-control train-monitor makes one;"
                " with the monitor set to 'off' the policy acts at once)"
            )


def resolve_monitor_setting(model: Model, requested: Monitor | None) -> Monitor:
    """Return the monitor setting to use: the requested one, or else the model file's default.

    Args:
        model: The model.
        requested: What to do if sensors are rewired: "off", "reset" or "match" (see
            `load_policy`); None: the model's default.

    Raises:
        ValueError: The setting is unknown. Or it is "reset" or "match", but the model has no
            forward model, which a monitor needs to predict the readings.
    """
    if requested not in (None, *get_args(Monitor)):
        allowed = ", ".join(map(repr, get_args(Monitor)))
        raise ValueError(f"monitor: {requested!r} is not one of {allowed}")
    if model.forward is None and requested not in (None, "off"):
        how = "" if isinstance(model.sizes, VisionSizes) else " (an-control train-monitor adds one)"
        raise ValueError(
            f"monitor: {requested!r} needs a forward model, which this model does not have{how};"
            " allowed is 'off'"
        )
    return requested or ("off" if model.forward is None else model.forward.default_monitor_setting)


def _make_unmonitored_policy(
    model: Model, engine: EngineName | None, keep_ticks: int | None
) -> Policy:
    """Return the policy of a model without monitor and recovery, computed by the chosen engine.

    Args:
        model: The model.
        engine: "numba", "numpy" or None, as for `load_policy`.
        keep_ticks: Number of ticks for which the state of a missing channel is kept; None: the
            ticks of one second.

    Raises:
        ValueError: The engine is unknown, not installed, or cannot compute the model.
    """
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
        if not _should_use_numba(engine):
            return VisionNeuron(model, PLAIN)
        from an_control.policy.vision.numba_kernels import COMPILED

        return VisionNeuron(model, COMPILED)
    if engine == "numba" and not sizes.can_be_compiled:
        raise ValueError(
            "engine: 'numba' does not support sizes.encoder, pma attention or sizes.recurrence;"
            " allowed is 'numpy'"
        )
    if not sizes.can_be_compiled or not _should_use_numba(engine):
        return AttentionNeuron(model, ReferenceEngine(model), keep_ticks)
    from an_control.policy.numba_engine import NumbaEngine

    return AttentionNeuron(model, NumbaEngine(model), keep_ticks)


def warm_up_policy(policy: Policy) -> None:
    """Compile a policy's code by computing one control step on zero readings, then reset it.

    Call it before the first real control step, which compilation would delay.
    """
    names = policy.nominal_ids or _make_numbered_channel_ids(policy.model)
    shape = policy.reading_shape
    policy.step_array(np.zeros((len(names), *shape), np.uint8 if shape else np.float64), names)
    policy.reset()


def _should_use_numba(engine: EngineName | None) -> bool:
    """Return whether numba should compute the policy.

    Args:
        engine: The requested engine, "numba" or "numpy"; None: numba if it can be used.

    Raises:
        ValueError: Numba was requested but cannot be used.
    """
    if engine == "numpy":
        return False
    missing = _describe_numba_problem()
    if missing and engine == "numba":
        raise ValueError(f"engine: 'numba' {missing}")
    return not missing


def _describe_numba_problem() -> str:
    """Return why numba cannot be used, as text that continues the word "numba"; "" if it can.

    If numba is installed but cannot be imported, also issue a Python warning.
    """
    if importlib.util.find_spec("numba") is None:
        return "is not installed (pip install numba)"
    try:
        importlib.import_module("numba")
    except ImportError as error:
        warnings.warn(f"policies are not compiled, numba fails: {error}", stacklevel=2)
        return f"cannot be imported: {error}"
    return ""


def _make_numbered_channel_ids(model: Model) -> tuple[str, ...]:
    """Return channel ids "0", "1", ... for a model whose file names no channels."""
    channels = model.sizes.channels if isinstance(model.sizes, OrderedSizes) else 1
    return tuple(str(i) for i in range(channels))
