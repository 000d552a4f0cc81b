"""Teachers, the policies that a student imitates, and hashes of the models that a run learns from.

A teacher takes the whole observation, in the environment's order. The hashes are stored in the
settings of a training run. A run is not continued if the content of its teacher's or its start
model's file has changed, although the file has the same name.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from an_control.learning.rollout.episode import NewestReadings
from an_control.learning.runs.run_folder import CHECKPOINT
from an_control.load import make_policy
from an_control.policy import MlpSizes, Model, read_model
from an_control.policy.mlp import get_head_layers
from an_control.policy.onnx_file import has_onnx_suffix
from an_control.system.files import describe_read_error, read_regular_file
from an_control_sim.gym.environments import describe_task, import_module
from an_control_sim.gym.spaces import (
    decode_choices,
    encode_choices_as_numbers,
    make_action_conversion,
)
from an_control_sim.gym.units import UNSCALED, Units

DIGITS = 12
"""Number of hexadecimal characters of a hash."""


def hash_arrays(arrays: Iterable[np.ndarray], *labels: str) -> str:
    """Return a short hash of arrays and labels.

    Args:
        arrays: The arrays, whose order matters.
        labels: Texts that also enter the hash, such as the name of the activation function.
    """
    found = hashlib.sha256(json.dumps(labels).encode())
    for array in arrays:
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()[:DIGITS]


def hash_model(model: Model | None, *labels: str) -> str | None:
    """Return a short hash of the arrays of a model; None if the model is None.

    Args:
        model: The model.
        labels: Texts that also enter the hash.
    """
    if model is None:
        return None
    return hash_arrays((model.arrays[name] for name in sorted(model.arrays)), *labels)


def select_model_hashes_to_store(folder: Path, **hashes: str | None) -> dict[str, str]:
    """Return, by name, the hashes of models that a run stores in its settings.

    A new run stores all of them. A run that an older version of this program began may store only
    some. For such a run only these are returned, because its settings must not change.

    Args:
        folder: The run's folder.
        hashes: Hashes of models that the run uses, by name. A hash that is None is left out.
    """
    known = {name: value for name, value in hashes.items() if value is not None}
    if not (folder / CHECKPOINT).exists():
        return known
    try:
        begun = json.loads(read_regular_file(folder / "config.json"))
    except (OSError, ValueError):  # which `RunFolder` reports
        return known
    return {name: value for name, value in known.items() if name in begun}


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
Output = Literal["clip", "tanh"]


@dataclass(frozen=True, eq=False)
class Teacher:
    """A teacher, a policy that acts on whole observations in a fixed order.

    Attributes:
        function: Maps an observation (N,) without NaN to an action (A,), which is clipped to
            [-1, 1].
        digest: Short hash of the weights that the function uses; None if they are not known.
        units: Offsets and scales by which the readings for the teacher are normalised.
        layers: Weight (out, in) and bias (out,) of each layer, if the teacher is a relu network.
            They can be copied into the head of a student (the layers that compute the actions).
        output_function: Name of the function that is applied to the output of the last layer.
    """

    function: Callable[[np.ndarray], np.ndarray]
    digest: str | None = None
    units: Units = UNSCALED
    layers: Layers | None = None
    output_function: Output = "clip"

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Return the action (A,) float32 in [-1, 1] for an observation (N,) without NaN."""
        return np.clip(self.function(observation), -1.0, 1.0).astype(np.float32)


def make_network_teacher(
    layers: Sequence[tuple[np.ndarray, np.ndarray]],
    output_function: Output = "clip",
    units: Units = UNSCALED,
) -> Teacher:
    """Return a teacher that is a relu network, whose output is clipped or passed through tanh.

    Args:
        layers: Weight (out, in) and bias (out,) of each layer.
        output_function: Name of the function that is applied to the output of the last layer.
        units: Offsets and scales by which the readings that the network takes are normalised.
    """
    exact = tuple(
        (np.asarray(weight, np.float64), np.asarray(bias, np.float64)) for weight, bias in layers
    )
    *hidden, (last_weight, last_bias) = exact

    def act(observation: np.ndarray) -> np.ndarray:
        """Return the output of the network (A,) for an observation (N,)."""
        x = observation
        for weight, bias in hidden:
            x = np.maximum(weight @ x + bias, 0.0)
        x = last_weight @ x + last_bias
        return np.tanh(x) if output_function == "tanh" else x

    digest = hash_arrays((part for pair in exact for part in pair), output_function)
    return Teacher(act, digest, units, exact, output_function)


def make_choice_teacher(teacher: Teacher, choices: Sequence[int]) -> Teacher:
    """Return a teacher that chooses discrete actions by the numbers that another teacher returns.

    The returned teacher's action is 1 for each chosen option and -1 for all others.

    Args:
        teacher: The other teacher, which returns a number for each option. In each group, the
            option with the largest number is chosen.
        choices: Number of options of each group, for example (3, 1). A group of one option stands
            for a bit, which is on if its number is positive.
    """

    def act(observation: np.ndarray) -> np.ndarray:
        """Return 1 for each chosen option and -1 for all others (A,), for an observation (N,)."""
        made = encode_choices_as_numbers(choices, decode_choices(choices, teacher(observation)))
        return np.where(made > 0.0, 1.0, -1.0)

    return replace(teacher, function=act)


def convert_teacher_to_units(teacher: Teacher, units: Units) -> Teacher:
    """Return a teacher that acts like the given one, but takes readings in other units.

    Args:
        teacher: The given teacher, whose `units` say how its own readings are normalised.
        units: Offsets and scales by which the readings for the returned teacher are normalised.
    """
    own = teacher.units
    if own == units:
        return teacher
    if teacher.layers is None:
        return replace(
            teacher,
            function=lambda readings: teacher(own.to_readings(units.to_numbers(readings))),
            units=units,
        )
    (weight, bias), *others = teacher.layers
    ones, zeros = np.ones(weight.shape[1]), np.zeros(weight.shape[1])
    scale = np.array(own.scale or ones) / np.array(units.scale or ones)
    offset = np.array(own.offset or zeros) - scale * np.array(units.offset or zeros)
    layers = [(weight * scale, bias + weight @ offset), *others]
    return replace(
        make_network_teacher(layers, teacher.output_function, units), digest=teacher.digest
    )


ALGORITHMS = ("a2c", "ddpg", "ppo", "sac", "td3")
"""Algorithms of stable-baselines3 that support continuous actions (the gymnasium space Box)."""


def read_teacher(teacher_option: str, env: gymnasium.Env[Any, Any]) -> Teacher:
    """Read the teacher that a text on the command line names.

    Args:
        teacher_option: One of these texts:

            - ``FILE.safetensors``: the model file of an MLP policy,
            - ``FILE.onnx``: a network that keeps no state,
            - ``ALGORITHM:FILE.zip``: a file of stable-baselines3, such as ``ppo:walker.zip``,
            - ``python:MODULE:FUNCTION``: a function from an observation (N,) to an action (A,).

        env: The environment in which the teacher acts.

    Raises:
        ValueError: The text names no teacher, or a teacher with other readings or actuators than
            the environment.
    """
    algorithm, colon, path = teacher_option.partition(":")
    if algorithm == "python":
        return _import_teacher_function(teacher_option, path, env)
    if colon and algorithm in ALGORITHMS:
        return _load_stable_baselines_teacher(algorithm, Path(path), env)
    if has_onnx_suffix(teacher_option):
        return _load_onnx_teacher(teacher_option, env)
    if not teacher_option.endswith(".safetensors"):
        raise ValueError(
            f"teacher {teacher_option!r}: must be a .safetensors or .onnx file, ALGORITHM:FILE.zip"
            f" with an algorithm of {', '.join(ALGORITHMS)}, or python:MODULE:FUNCTION"
        )
    model = read_model(Path(teacher_option))
    if not isinstance(model.sizes, MlpSizes):
        raise ValueError(f"teacher {teacher_option}: must be an MLP policy, not {model.kind}")
    _check_teacher_fits(teacher_option, env, (model.sizes.channels,), (model.sizes.actions,))
    if model.sizes.activation == "relu":
        layers = get_head_layers(model.arrays, len(model.sizes.head) + 1)
        return make_network_teacher(layers, model.sizes.output, Units.from_task(model.task))
    policy = make_policy(model, "off")
    ids = policy.nominal_ids or tuple(map(str, range(model.sizes.channels)))
    return Teacher(
        lambda observation: policy.step_array(observation, ids),
        hash_model(model, model.sizes.activation, model.sizes.output),
        Units.from_task(model.task),
    )


def _load_onnx_teacher(path: str, env: gymnasium.Env[Any, Any]) -> Teacher:
    """Read an ONNX file, a network of another tool, as a teacher."""
    model = read_model(Path(path), monitor=False)
    network = model.network
    assert network is not None
    layout = network.layout
    if network.states or layout.history.length > 1 or layout.has_computed_terms:
        raise ValueError(
            f"teacher {path}: reads states, a history, the previous action or a phase; a teacher"
            " must act on one observation alone"
        )
    _check_teacher_fits(path, env, (len(layout.channels),), (network.action.size,))
    policy = make_policy(model, "off")
    channels = describe_task(env, "", "").channels
    ids = channels if set(channels) == set(policy.nominal_ids) else policy.nominal_ids
    return Teacher(lambda observation: policy.step_array(observation, ids), network.sha256[:DIGITS])


def _import_teacher_function(
    teacher_option: str, module_and_name: str, env: gymnasium.Env[Any, Any]
) -> Teacher:
    """Import a teacher "MODULE:FUNCTION", and try it on the environment's first observation."""
    module, _, name = module_and_name.partition(":")
    observation = NewestReadings()(env.reset(seed=0)[0])
    try:
        function = getattr(import_module(module), name)
        action = np.asarray(function(observation), np.float32)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"teacher {teacher_option}: {error}") from error
    except Exception as error:  # any error of the user's function
        raise ValueError(f"teacher {teacher_option}: {type(error).__name__}: {error}") from error
    if action.shape != env.action_space.shape:
        raise ValueError(
            f"teacher {teacher_option}: returns an action of shape {action.shape}, but the"
            f" environment takes {env.action_space.shape}"
        )
    return Teacher(function)


def _load_stable_baselines_teacher(
    algorithm: str, path: Path, env: gymnasium.Env[Any, Any]
) -> Teacher:
    """Read a saved algorithm of stable-baselines3 as a teacher, without its exploration noise."""
    if importlib.util.find_spec("stable_baselines3") is None:
        raise ValueError(
            f"teacher {algorithm}:{path}: stable-baselines3 is not installed"
            " (pip install 'an_control[train]')"
        )
    import stable_baselines3

    try:
        learner = getattr(stable_baselines3, algorithm.upper()).load(path, device="cpu")
    except (OSError, KeyError, ValueError, TypeError, RuntimeError, AttributeError) as error:
        raise ValueError(f"teacher {algorithm}:{path}: {describe_read_error(error)}") from error
    readings, actions = learner.observation_space, learner.action_space
    if not isinstance(readings, spaces.Box) or not isinstance(actions, spaces.Box):
        raise ValueError(
            f"teacher {algorithm}:{path}: needs Box spaces, but has {readings} and {actions}"
        )
    flat = (int(np.prod(readings.shape)),), (int(np.prod(actions.shape)),)
    _check_teacher_fits(f"{algorithm}:{path}", env, *flat)

    unit = make_action_conversion(actions).to_numbers

    def act(observation: np.ndarray) -> np.ndarray:
        action, _ = learner.predict(observation.reshape(readings.shape), deterministic=True)
        return unit(action)

    numbers = (part.numpy(force=True) for part in learner.policy.state_dict().values())
    return Teacher(act, hash_arrays(numbers, algorithm))


def _check_teacher_fits(
    name: str,
    env: gymnasium.Env[Any, Any],
    reading_shape: tuple[int, ...],
    action_shape: tuple[int, ...],
) -> None:
    """Raise ValueError unless a teacher has the environment's numbers of readings and actions."""
    wanted = env.observation_space.shape, env.action_space.shape
    if (reading_shape, action_shape) != wanted:
        raise ValueError(
            f"teacher {name}: takes {reading_shape[0]} readings and returns {action_shape[0]}"
            f" actions, but the environment has {wanted[0]} and {wanted[1]}"
        )


def find_task_teacher(task: str) -> Teacher | None:
    """Return the teacher that this package contains for a task, or None if there is none."""
    return load_pybullet_ant_teacher() if task == "ant" else None


def load_pybullet_ant_teacher() -> Teacher:
    """Return the ant policy that is an example in the PyPI package `pybullet`, an MLP 28-128-64-8.

    Its arrays are read from the Python source of the example, which is not run.

    Raises:
        ValueError: The package is not installed, or the example does not contain the expected
            arrays.
    """
    spec = importlib.util.find_spec("pybullet_envs")
    if spec is None or not spec.submodule_search_locations:
        raise ValueError("teacher: the package pybullet is not installed (pip install pybullet)")
    path = Path(spec.submodule_search_locations[0]) / PACKAGED_ANT
    try:
        arrays = _parse_ant_arrays(path.read_text(encoding="utf-8"))
        weights, biases = arrays[::2], arrays[1::2]
        return make_network_teacher([(w.T, b) for w, b in zip(weights, biases, strict=True)])
    except (OSError, SyntaxError, KeyError, ValueError) as error:
        raise ValueError(f"teacher: {path}: {error!r}") from error


def _parse_ant_arrays(source: str) -> list[np.ndarray]:
    """Return the arrays of the ant policy from Python source, which is not run."""
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            (target,) = node.targets
            if isinstance(target, ast.Name) and target.id in PACKAGED_ARRAYS:
                found[target.id] = np.array(ast.literal_eval(node.value.args[0]), np.float64)
    return [found[name] for name in PACKAGED_ARRAYS]
