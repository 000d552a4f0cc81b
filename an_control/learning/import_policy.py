"""Convert policies of Stable-Baselines3 and TorchScript to ONNX files, which a robot can read.

No Python code that these files may contain is run. Of a Stable-Baselines3 zip, torch reads the
weights in its mode `weights_only`, and the settings are read as plain text. Of the pickle file of a
VecNormalize (the wrapper of Stable-Baselines3 that normalises observations), only the arrays are
read. A TorchScript file, however, is a program, which torch runs in its interpreter.
"""

from __future__ import annotations

import io
import json
import math
import pickle
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from an_control.policy.model_file import ModelError
from an_control.policy.onnx_export import OnnxGraphBuilder
from an_control.system.files import describe_read_error, read_regular_file

try:
    from numpy._core import multiarray
except ImportError:  # numpy 1
    from numpy.core import multiarray  # type: ignore[no-redef]

MAX_BYTES = 256 * 2**20
"""Maximum size of a file in bytes."""
ACTIVATIONS = {"Tanh": "Tanh", "ReLU": "Relu", "ELU": "Elu", "SELU": "Selu"}
"""A mapping from the name of each supported activation function in torch to the ONNX operator that
computes it."""
EXTRACTORS = "FlattenExtractor", "CombinedExtractor"
"""The features extractors that only put the observations in a row."""
ACTOR_CRITIC = ("mlp_extractor.shared_net", "mlp_extractor.policy_net"), "action_net"
"""Names in a PPO or A2C policy of the hidden layers and of the output layer of its actor (the
network that computes the actions). Only versions before 1.8 have layers shared with the critic."""
CLIP_MEAN = 2.0
"""The default bound of an action before the tanh, in SAC and TQC with `use_sde`."""
TRIES, TOLERANCE = 32, 1e-4
"""Number of random inputs on which a converted network is compared with the original, and the
largest difference of an action that is allowed."""


class PolicyNames(NamedTuple):
    """Names of the inputs and actions of an imported policy.

    The user gives these names, because the imported file contains none.

    Attributes:
        channels: Ids of the channels (sensor signals) that the inputs read, in the order of the
            inputs; empty if not known.
        actuators: Names of the actuators that the actions drive, in the order of the actions; empty
            if not known.
        step_s: Period of the control ticks in seconds; None if not known.
        task: Name of the task.
    """

    channels: tuple[str, ...] = ()
    actuators: tuple[str, ...] = ()
    step_s: float | None = None
    task: str = ""

    def make_metadata(self, inputs: int, actions: int) -> dict[str, str]:
        """Return these names as metadata to be written into an ONNX file.

        Args:
            inputs: Number of inputs of the network.
            actions: Number of actions that the network returns.

        Raises:
            ValueError: The number of names is not the number of inputs or of actions.
        """
        channels = self.channels or tuple(f"observation.{i}" for i in range(inputs))
        actuators = self.actuators or tuple(f"action.{i}" for i in range(actions))
        for what, names, count in (("inputs", channels, inputs), ("actions", actuators, actions)):
            if len(names) != count:
                raise ValueError(f"has {count} {what}, but the task {self.task!r} has {len(names)}")
        step = "" if self.step_s is None else repr(self.step_s)
        found = {"task": self.task, "step_s": step}
        found |= {"observation_names": ",".join(channels), "joint_names": ",".join(actuators)}
        return {key: text for key, text in found.items() if text}


@dataclass(frozen=True)
class VecNormalisation:
    """Normalisation of observations by clip((observation - mean) / sd), as in VecNormalize.

    VecNormalize is a class of Stable-Baselines3.

    Attributes:
        mean: Mean of each input (N,).
        sd: Standard deviation sqrt(variance + epsilon) of each input (N,).
        clip: Largest absolute value of a normalised observation; larger ones are clipped to it.
    """

    mean: np.ndarray
    sd: np.ndarray
    clip: float


def import_policy(path: Path, names: PolicyNames, normalise: Path | None = None) -> bytes:
    """Convert a policy of Stable-Baselines3 or TorchScript to the content of an ONNX file.

    Args:
        path: The file of the policy, either a zip of Stable-Baselines3 or a TorchScript file.
        names: Names of the policy's inputs and actions.
        normalise: File of the VecNormalize (normalisation of observations) with which a policy of
            Stable-Baselines3 was trained; None if it was trained without one.

    Raises:
        ModelError: The file holds no such policy, or a policy of a kind that this function cannot
            convert.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(_read_zip_content(path))) as archive:
            files = archive.namelist()
            if "policy.pth" in files:
                normalisation = None if normalise is None else read_normalisation(normalise)
                return _convert_stable_baselines_to_onnx(archive, names, normalisation)
        if not any("/code/" in one for one in files):
            raise ValueError(
                "holds neither a policy of Stable-Baselines3 (policy.pth) nor TorchScript; weights"
                " alone are not a policy: save it as TorchScript or ONNX"
            )
        if normalise is not None:
            raise ValueError("TorchScript normalises by itself: leave out --normalise")
        return _convert_torchscript_to_onnx(path, names)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ModelError(f"{path}: {describe_read_error(error)}") from error


def _read_zip_content(path: Path) -> bytes:
    """Read a file and return its bytes, after checking that it is a zip file."""
    content = read_regular_file(path, MAX_BYTES)
    if len(content) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES} bytes, the maximum for a policy")
    if not content.startswith(b"PK\x03\x04"):
        raise ValueError("neither a zip of Stable-Baselines3 nor TorchScript")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(one.file_size for one in archive.infolist()) > MAX_BYTES:
            raise ValueError(f"unpacks to more than {MAX_BYTES} bytes, the maximum for a policy")
    return content


def _convert_stable_baselines_to_onnx(
    archive: zipfile.ZipFile, names: PolicyNames, normalisation: VecNormalisation | None
) -> bytes:
    """Convert a policy of Stable-Baselines3 to the content of an ONNX file."""
    settings, weights = _read_algorithm_settings(archive), _read_weights(archive)
    hidden, last, squashed, clipped = _find_actor_layers(weights)
    inputs, actions = (hidden[0] if hidden else last)[0].shape[1], len(last[1])
    import onnx

    graph = OnnxGraphBuilder(onnx)
    x = graph.add_input("obs", (1, inputs))
    if normalisation is not None:
        if len(normalisation.mean) != inputs:
            count = len(normalisation.mean)
            raise ValueError(f"has {inputs} inputs, but its VecNormalize has {count}")
        x = graph("Div", graph("Sub", x, normalisation.mean[None]), normalisation.sd[None])
        x = graph("Clip", x, -normalisation.clip, normalisation.clip)
    activation = _find_onnx_activation_operator(settings, default="ReLU" if squashed else "Tanh")
    for weight, bias in hidden:
        x = graph(activation, graph("Add", graph("MatMul", x, weight.T), bias[None]))
    x = graph("Add", graph("MatMul", x, last[0].T), last[1][None])
    if clipped:
        bound = _read_policy_options(settings).get("clip_mean", CLIP_MEAN)
        if not isinstance(bound, int | float) or not 0.0 < bound < math.inf:
            raise ValueError(f"clip_mean {str(bound)[:40]}: must be a number over 0")
        x = graph("Clip", x, -float(bound), float(bound))
    if squashed:
        x = graph("Tanh", x)
    else:
        low, high = _read_action_bounds(settings, actions)
        x = graph("Min", graph("Max", x, low[None]), high[None])
        x = graph("Sub", graph("Mul", graph("Sub", x, low[None]), 2.0 / (high - low)[None]), 1.0)
    graph.add_output("actions", x, (1, actions))
    return graph.to_bytes({**names.make_metadata(inputs, actions), "action_limit": "1"})


def _read_algorithm_settings(archive: zipfile.ZipFile) -> Mapping[str, Any]:
    """Return the settings of the algorithm in a zip of Stable-Baselines3.

    Pickled values are not unpickled; the settings contain them as text.
    """
    try:
        settings = json.loads(archive.read("data"))
    except (KeyError, ValueError, RecursionError) as error:
        raise ValueError(f"its settings (data) cannot be read ({error})") from None
    if not isinstance(settings, dict):
        raise ValueError("its settings (data) are not an object")
    space = settings.get("action_space")
    if not isinstance(space, dict) or ".Box'" not in str(space.get(":type:")):
        raise ValueError("its actions are not a Box of numbers; only these are converted")
    options = _read_policy_options(settings)
    if options.get("squash_output"):
        raise ValueError("squash_output is not converted; export it as ONNX")
    kind = settings.get("policy_class")
    module = str(kind.get("__module__")) if isinstance(kind, dict) else ""
    if not module.startswith(("stable_baselines3.", "sb3_contrib.")):
        raise ValueError(
            f"its policy class is of {module[:40]!r}, so its network may be another; allowed are"
            " those of stable_baselines3 and sb3_contrib: export it as ONNX"
        )
    extractor = _get_class_name(options.get("features_extractor_class", EXTRACTORS[0]))
    if extractor not in EXTRACTORS:
        raise ValueError(
            f"features extractor {extractor[:40]!r}; allowed are {', '.join(EXTRACTORS)}: export it"
            " as ONNX"
        )
    return settings


def _read_policy_options(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the `policy_kwargs` of the algorithm, in which objects are texts."""
    options = settings.get("policy_kwargs")
    return options if isinstance(options, dict) else {}


def _get_class_name(text: object) -> str:
    """Return the name of a class without its module, of a text such as "<class 'a.b.Name'>"."""
    return str(text).rpartition(".")[2].rstrip("'>")


def _read_weights(archive: zipfile.ZipFile) -> dict[str, np.ndarray]:
    """Return the weights in a zip of Stable-Baselines3, by their names in torch."""
    import torch

    try:
        state = torch.load(io.BytesIO(archive.read("policy.pth")), "cpu", weights_only=True)
        return {str(name): tensor.double().numpy() for name, tensor in state.items()}
    except (pickle.UnpicklingError, RuntimeError, AttributeError, EOFError, KeyError) as error:
        raise ValueError(f"its weights cannot be read ({str(error)[:100]})") from None


Layer = tuple[np.ndarray, np.ndarray]


class ActorLayers(NamedTuple):
    """The layers of the actor, the network of a policy that computes the actions.

    A layer is a pair of weights (outputs, inputs) and biases (outputs,).

    Attributes:
        hidden: The hidden layers, each followed by the activation function.
        last: The output layer.
        squashed: Whether the output layer is followed by a tanh.
        clipped: Whether outputs are clipped to a range before the tanh, as in SAC with `use_sde`.
    """

    hidden: list[Layer]
    last: Layer
    squashed: bool
    clipped: bool = False


def _find_actor_layers(weights: Mapping[str, np.ndarray]) -> ActorLayers:
    """Find the layers of the actor among the weights, which have their names in torch."""
    if any("lstm" in name for name in weights):
        raise ValueError("a recurrent policy, which is not converted; export it as ONNX")
    if any(re.match(r"(actor\.)?(pi_)?features_extractor\..*weight", name) for name in weights):
        raise ValueError("has a features extractor with weights, which is not converted")
    if "action_net.weight" in weights:
        hidden = [
            layer
            for name in ACTOR_CRITIC[0]
            for layer in _get_linear_layers_of_sequential(weights, name)
        ]
        return ActorLayers(hidden, _get_linear_layer(weights, ACTOR_CRITIC[1]), squashed=False)
    latent = _get_linear_layers_of_sequential(weights, "actor.latent_pi")
    if "actor.mu.weight" in weights:
        return ActorLayers(latent, _get_linear_layer(weights, "actor.mu"), squashed=True)
    if layers := _get_linear_layers_of_sequential(weights, "actor.mu"):
        clipped = "actor.log_std" in weights
        return ActorLayers([*latent, *layers[:-1]], layers[-1], squashed=True, clipped=clipped)
    raise ValueError("has no actor of PPO, A2C, SAC, TQC, TD3 or DDPG with an MLP")


def _get_linear_layer(weights: Mapping[str, np.ndarray], name: str) -> Layer:
    """Return the weight matrix (outputs, inputs) and the bias (outputs,) of a linear layer."""
    weight, bias = weights.get(f"{name}.weight"), weights.get(f"{name}.bias")
    if weight is None or bias is None or weight.ndim != 2 or bias.shape != weight.shape[:1]:
        raise ValueError(f"layer {name} is not a linear layer with weight and bias")
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        raise ValueError(f"layer {name} holds a number that is not finite")
    return weight, bias


def _get_linear_layers_of_sequential(weights: Mapping[str, np.ndarray], name: str) -> list[Layer]:
    """Return the linear layers of a torch Sequential, in order; a norm among them is refused."""
    own = [one.removeprefix(f"{name}.") for one in weights if one.startswith(f"{name}.")]
    places = sorted({int(place) for one in own if (place := one.partition(".")[0]).isdigit()})
    layers = [_get_linear_layer(weights, f"{name}.{place}") for place in places]
    if len(own) != 2 * len(places):
        raise ValueError(f"{name} has layers that are not linear, which are not converted")
    return layers


def _find_onnx_activation_operator(settings: Mapping[str, Any], default: str) -> str:
    """Return the ONNX operator of the activation function between the layers."""
    given = _read_policy_options(settings).get("activation_fn")
    found = default if given is None else _get_class_name(given)
    if found not in ACTIVATIONS:
        raise ValueError(f"activation {found[:40]!r}; allowed are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[found]


def _read_action_bounds(settings: Mapping[str, Any], actions: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and the highest allowed value of each action, as two arrays (A,)."""
    space, ends = settings["action_space"], []
    for key in ("low", "high"):
        text = str(space.get(key)).replace("[", " ").replace("]", " ")
        try:
            numbers = np.array([float(one) for one in text.split()])
        except ValueError:  # a long array is abbreviated by "..."
            numbers = np.zeros(0)
        if len(numbers) != actions:
            try:
                numbers = np.full(actions, float(space.get(f"{key}_repr")))
            except (TypeError, ValueError):
                raise ValueError(f"the {key} of its action space cannot be read") from None
        ends.append(numbers)
    low, high = ends
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise ValueError("its actions are not bounded, so nothing says what is the largest one")
    return low, high


class _InertObject:
    """Object without code that replaces a pickled object of any class other than an array.

    It stores the pickled state (the attributes) of the replaced object.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        """Store the pickled state."""
        self.state = state


def _make_array_from_buffer(
    content: Any, dtype: np.dtype, shape: Sequence[int], order: Literal["C", "F"]
) -> np.ndarray:
    """Return an array of these bytes, as numpy does for the pickles that CPython 3.14 writes."""
    return np.frombuffer(content, dtype).reshape(shape, order=order)


class _ArrayUnpickler(pickle.Unpickler):
    """Reader of a pickle file that creates no objects but arrays, and runs no code of the file."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the object to use for a class or function that the pickle file names.

        It is numpy's own class or function if an array is made by it; otherwise `_InertObject`.
        """
        if module.split(".")[0] == "numpy":
            if (module, name) == ("numpy", "ndarray"):
                return np.ndarray
            if (module, name) == ("numpy", "dtype"):
                return np.dtype
            if module.endswith("multiarray") and name in ("_reconstruct", "scalar"):
                return getattr(multiarray, name)
            if module.endswith("numeric") and name == "_frombuffer":
                return _make_array_from_buffer
        return _InertObject


def read_normalisation(path: Path) -> VecNormalisation:
    """Read the normalisation of observations from the file of a VecNormalize.

    The file is a pickle, but no code from it is run, because every object other than an array is
    replaced by an inert one.

    Raises:
        ModelError: The file holds no VecNormalize of plain observations.
    """
    try:
        content = read_regular_file(path, MAX_BYTES)
        if len(content) > MAX_BYTES:
            raise ValueError(f"larger than {MAX_BYTES} bytes")
        state = _ArrayUnpickler(io.BytesIO(content)).load().state
        if not state["norm_obs"]:
            raise ValueError("normalises no observations: leave it out")
        if isinstance(state["obs_rms"], dict):
            raise ValueError("normalises observations of the type Dict, which are not converted")
        running, clip = state["obs_rms"].state, float(state["clip_obs"])
        mean, variance = (np.array(running[key], np.float64) for key in ("mean", "var"))
        sd = np.sqrt(variance + float(state["epsilon"]))
        if mean.ndim != 1 or sd.shape != mean.shape or not (np.isfinite(mean) & (sd > 0)).all():
            raise ValueError("its mean and variance are not those of plain observations")
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: {describe_read_error(error)}") from error
    except Exception as error:  # a pickle can be broken in any way
        problem = f"not a file of a VecNormalize ({type(error).__name__})"
        raise ModelError(f"{path}: {problem}") from error
    if not clip > 0.0 or math.isnan(clip):
        raise ModelError(f"{path}: clip_obs {clip} is not over 0")
    return VecNormalisation(mean, sd, clip)


def _convert_torchscript_to_onnx(path: Path, names: PolicyNames) -> bytes:
    """Convert a TorchScript network with one input and one output to ONNX."""
    import onnx
    import torch

    try:
        network = torch.jit.load(str(path), "cpu").eval()
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"not a TorchScript file that torch can read ({_shorten_error(error)})"
        ) from None
    inputs = len(names.channels) or _count_inputs(network)
    rng = np.random.default_rng(0)
    tries = rng.normal(size=(TRIES, 1, inputs)).astype(np.float32)
    try:
        with torch.no_grad():
            expected = [network(torch.from_numpy(one)).numpy() for one in tries]
            again = [network(torch.from_numpy(one)).numpy() for one in tries]
    except (RuntimeError, AttributeError, TypeError) as error:
        raise ValueError(
            f"does not map {inputs} inputs to actions ({_shorten_error(error)})"
        ) from None
    if not np.allclose(expected, again, atol=1e-6):
        raise ValueError(
            "gives other actions for the same inputs later: it keeps its state inside, or draws at"
            " random; export it as ONNX with its states as inputs and outputs"
        )
    model = onnx.load_model_from_string(_convert_network_to_onnx(network, inputs))
    onnx.helper.set_model_props(model, names.make_metadata(inputs, expected[0].size))
    content: bytes = model.SerializeToString()
    _check_converted_actions(content, tries, expected)
    return content


def _convert_network_to_onnx(network: Any, inputs: int) -> bytes:
    """Convert a TorchScript network to ONNX by torch, and return the content of the ONNX file."""
    import warnings

    import torch

    content: Any = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(
                network,
                (torch.zeros(1, inputs),),
                content,
                input_names=["obs"],
                output_names=["actions"],
                dynamo=False,  # torch.export takes no TorchScript
            )
        except Exception as error:  # torch raises many kinds here
            raise ValueError(f"torch cannot convert it ({_shorten_error(error)})") from None
    found: bytes = content.getvalue()
    return found


def _check_converted_actions(
    content: bytes, inputs: np.ndarray, expected_actions: Sequence[np.ndarray]
) -> None:
    """Raise ValueError unless the converted network returns the same actions as the original."""
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    for one, actions in zip(inputs, expected_actions, strict=True):
        (found,) = session.run(None, {"obs": one})
        if not np.allclose(found, actions, atol=TOLERANCE, rtol=TOLERANCE):
            raise ValueError("its conversion gives other actions than the original")


def _count_inputs(network: Any) -> int:
    """Return the number of inputs of a TorchScript network's first layer."""
    for _, tensor in network.named_parameters():
        if tensor.ndim == 2:
            return int(tensor.shape[1])
    raise ValueError("does not say how many inputs it has: give its task with --task")


def _shorten_error(error: Exception) -> str:
    """Return the last line of an error's text, shortened; the error's type if there is no text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:150] if lines else type(error).__name__
