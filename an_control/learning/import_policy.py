"""Convert policies of Stable-Baselines3 and TorchScript to ONNX, offline, for a robot to read.

Nothing is unpickled that could run code: of a Stable-Baselines3 zip its weights are read (by torch,
as weights alone) and the plain text of its settings; of the file of a VecNormalize the arrays.
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
from typing import Any, NamedTuple

import numpy as np

from an_control.policy.model_file import ModelError
from an_control.policy.onnx_export import Graph
from an_control.system.files import read_regular

try:
    from numpy._core import multiarray
except ImportError:  # numpy 1
    from numpy.core import multiarray  # type: ignore[no-redef]

MAX_BYTES = 256 * 2**20
ACTIVATIONS = {"Tanh": "Tanh", "ReLU": "Relu", "ELU": "Elu", "SELU": "Selu"}
"""Of torch, and the ONNX operators that compute them."""
ACTOR_CRITIC = "mlp_extractor.policy_net", "action_net"
TRIES, TOLERANCE = 32, 1e-4
"""Random inputs on which a converted network is compared with the original."""


class Names(NamedTuple):
    """What the numbers of a policy are; empty where nobody says.

    Attributes:
        channels, actuators: ids and names, in order.
        step_s: The period of its ticks.
        task: The name of its task.
    """

    channels: tuple[str, ...] = ()
    actuators: tuple[str, ...] = ()
    step_s: float | None = None
    task: str = ""

    def metadata(self, inputs: int, actions: int) -> dict[str, str]:
        """Return the metadata of an ONNX file; ValueError where the counts differ."""
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
    """What a VecNormalize does: clip((observation - mean) / sqrt(var + epsilon))."""

    mean: np.ndarray
    sd: np.ndarray
    clip: float


def import_policy(path: Path, names: Names, normalise: Path | None = None) -> bytes:
    """Return a policy of Stable-Baselines3 or TorchScript as the content of an ONNX file.

    Args:
        path: The zip of Stable-Baselines3, or the TorchScript file.
        names: Of its inputs and actions.
        normalise: The file of the VecNormalize that a Stable-Baselines3 policy learned behind.

    Raises:
        ModelError: The file holds no such policy, or one that this cannot convert.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(_content(path))) as archive:
            files = archive.namelist()
            if "policy.pth" in files:
                normalisation = None if normalise is None else read_normalisation(normalise)
                return _stable_baselines(archive, names, normalisation)
        if not any("/code/" in one for one in files):
            raise ValueError(
                "holds no policy of Stable-Baselines3 (policy.pth) and no TorchScript; weights"
                " alone are no policy: save it as TorchScript or ONNX"
            )
        if normalise is not None:
            raise ValueError("TorchScript normalises by itself: leave out --normalise")
        return _torchscript(path, names)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ModelError(f"{path}: {error}") from error


def _content(path: Path) -> bytes:
    content = read_regular(path, MAX_BYTES)
    if len(content) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES} bytes, which no policy is")
    if not content.startswith(b"PK\x03\x04"):
        raise ValueError("no zip of Stable-Baselines3 and no TorchScript")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(one.file_size for one in archive.infolist()) > MAX_BYTES:
            raise ValueError(f"unpacks to more than {MAX_BYTES} bytes, which no policy does")
    return content


def _stable_baselines(
    archive: zipfile.ZipFile, names: Names, normalisation: VecNormalisation | None
) -> bytes:
    settings, weights = _settings(archive), _weights(archive)
    hidden, last, squashed = _layers(weights)
    inputs, actions = (hidden[0] if hidden else last)[0].shape[1], len(last[1])
    import onnx

    graph = Graph(onnx)
    x = graph.input("obs", (1, inputs))
    if normalisation is not None:
        if len(normalisation.mean) != inputs:
            count = len(normalisation.mean)
            raise ValueError(f"has {inputs} inputs, but its VecNormalize has {count}")
        x = graph("Div", graph("Sub", x, normalisation.mean[None]), normalisation.sd[None])
        x = graph("Clip", x, -normalisation.clip, normalisation.clip)
    activation = _activation(settings, default="ReLU" if squashed else "Tanh")
    for weight, bias in hidden:
        x = graph(activation, graph("Add", graph("MatMul", x, weight.T), bias[None]))
    x = graph("Add", graph("MatMul", x, last[0].T), last[1][None])
    if squashed:
        x = graph("Tanh", x)
    else:
        low, high = _bounds(settings, actions)
        x = graph("Min", graph("Max", x, low[None]), high[None])
        x = graph("Sub", graph("Mul", graph("Sub", x, low[None]), 2.0 / (high - low)[None]), 1.0)
    graph.output("actions", x, (1, actions))
    return graph.content(names.metadata(inputs, actions))


def _settings(archive: zipfile.ZipFile) -> Mapping[str, Any]:
    """Return the settings of the algorithm, in which pickled values stay text."""
    try:
        settings = json.loads(archive.read("data"))
    except (KeyError, ValueError, RecursionError) as error:
        raise ValueError(f"its settings (data) cannot be read ({error})") from None
    if not isinstance(settings, dict):
        raise ValueError("its settings (data) are no object")
    space = settings.get("action_space")
    if not isinstance(space, dict) or ".Box'" not in str(space.get(":type:")):
        raise ValueError("its actions are no Box of numbers; only these are converted")
    options = settings.get("policy_kwargs")
    if isinstance(options, dict) and options.get("squash_output"):
        raise ValueError("squash_output is not converted; export it as ONNX")
    return settings


def _weights(archive: zipfile.ZipFile) -> dict[str, np.ndarray]:
    import torch

    try:
        state = torch.load(io.BytesIO(archive.read("policy.pth")), "cpu", weights_only=True)
        return {str(name): tensor.double().numpy() for name, tensor in state.items()}
    except (pickle.UnpicklingError, RuntimeError, AttributeError, EOFError, KeyError) as error:
        raise ValueError(f"its weights cannot be read ({str(error)[:100]})") from None


Layer = tuple[np.ndarray, np.ndarray]


def _layers(weights: Mapping[str, np.ndarray]) -> tuple[list[Layer], Layer, bool]:
    """Return the actor's hidden layers, its last one, and whether a tanh follows that."""
    if any("lstm" in name for name in weights):
        raise ValueError("a recurrent policy, which is not converted; export it as ONNX")
    if any(re.match(r"(actor\.)?(pi_)?features_extractor\..*weight", name) for name in weights):
        raise ValueError("has a features extractor with weights, which is not converted")
    if "action_net.weight" in weights:
        return _sequence(weights, ACTOR_CRITIC[0]), _layer(weights, ACTOR_CRITIC[1]), False
    if "actor.mu.weight" in weights:
        return _sequence(weights, "actor.latent_pi"), _layer(weights, "actor.mu"), True
    if layers := _sequence(weights, "actor.mu"):
        return layers[:-1], layers[-1], True
    raise ValueError("has no actor of PPO, A2C, SAC, TQC, TD3 or DDPG with an MLP")


def _layer(weights: Mapping[str, np.ndarray], name: str) -> Layer:
    weight, bias = weights.get(f"{name}.weight"), weights.get(f"{name}.bias")
    if weight is None or bias is None or weight.ndim != 2 or bias.shape != weight.shape[:1]:
        raise ValueError(f"layer {name} is no linear layer with weight and bias")
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        raise ValueError(f"layer {name} holds a number that is not finite")
    return weight, bias


def _sequence(weights: Mapping[str, np.ndarray], name: str) -> list[Layer]:
    pattern = re.compile(rf"{re.escape(name)}\.(\d+)\.weight")
    places = sorted(int(found[1]) for one in weights if (found := pattern.fullmatch(one)))
    return [_layer(weights, f"{name}.{place}") for place in places]


def _activation(settings: Mapping[str, Any], default: str) -> str:
    """Return the ONNX operator of the activation."""
    options = settings.get("policy_kwargs")
    given = options.get("activation_fn") if isinstance(options, dict) else None
    found = default if given is None else str(given).rpartition(".")[2].rstrip("'>")
    if found not in ACTIVATIONS:
        raise ValueError(f"activation {found[:40]!r}; allowed are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[found]


def _bounds(settings: Mapping[str, Any], actions: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and the highest action (A,)."""
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


class _Inert:
    """An object in place of one of a pickle that is no array; keeps its state, does nothing."""

    def __init__(self, *given: Any, **named: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _ArraysOnly(pickle.Unpickler):
    """Reads a pickle without running anything but numpy's making of arrays."""

    def find_class(self, module: str, name: str) -> Any:
        """Return numpy's own for arrays, and something inert for all else."""
        if module.split(".")[0] == "numpy":
            if (module, name) == ("numpy", "ndarray"):
                return np.ndarray
            if (module, name) == ("numpy", "dtype"):
                return np.dtype
            if module.endswith("multiarray") and name in ("_reconstruct", "scalar"):
                return getattr(multiarray, name)
        return _Inert


def read_normalisation(path: Path) -> VecNormalisation:
    """Return what the file of a VecNormalize does to observations.

    It is a pickle, and no code of it runs: all but its arrays is read as something inert.

    Raises:
        ModelError: The file holds no VecNormalize of plain observations.
    """
    try:
        content = read_regular(path, MAX_BYTES)
        if len(content) > MAX_BYTES:
            raise ValueError(f"larger than {MAX_BYTES} bytes")
        state = _ArraysOnly(io.BytesIO(content)).load().state
        if not state["norm_obs"]:
            raise ValueError("normalises no observations: leave it out")
        running, clip = state["obs_rms"].state, float(state["clip_obs"])
        mean, variance = (np.array(running[key], np.float64) for key in ("mean", "var"))
        sd = np.sqrt(variance + float(state["epsilon"]))
        if mean.ndim != 1 or sd.shape != mean.shape or not (np.isfinite(mean) & (sd > 0)).all():
            raise ValueError("its mean and variance are no numbers of plain observations")
    except OSError as error:
        raise ModelError(f"{path}: {error}") from error
    except ValueError as error:
        raise ModelError(f"{path}: {error}") from error
    except Exception as error:  # a pickle can be broken in any way
        raise ModelError(f"{path}: no file of a VecNormalize ({type(error).__name__})") from error
    if not clip > 0.0 or math.isnan(clip):
        raise ModelError(f"{path}: clip_obs {clip} is not over 0")
    return VecNormalisation(mean, sd, clip)


def _torchscript(path: Path, names: Names) -> bytes:
    """Return the ONNX file of a TorchScript network with one input and one output."""
    import onnx
    import torch

    try:
        network = torch.jit.load(str(path), "cpu").eval()
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"no TorchScript that torch can read ({_first_line(error)})") from None
    inputs = len(names.channels) or _width(network)
    rng = np.random.default_rng(0)
    tries = rng.normal(size=(TRIES, 1, inputs)).astype(np.float32)
    try:
        with torch.no_grad():
            expected = [network(torch.from_numpy(one)).numpy() for one in tries]
            again = [network(torch.from_numpy(one)).numpy() for one in tries]
    except (RuntimeError, AttributeError, TypeError) as error:
        raise ValueError(
            f"does not map {inputs} inputs to actions ({_first_line(error)})"
        ) from None
    if not np.allclose(expected, again, atol=1e-6):
        raise ValueError(
            "gives other actions for the same inputs later: it keeps its state inside, or draws at"
            " random; export it as ONNX with its states as inputs and outputs"
        )
    model = onnx.load_model_from_string(_converted(network, inputs))
    onnx.helper.set_model_props(model, names.metadata(inputs, expected[0].size))
    content: bytes = model.SerializeToString()
    _compare(content, tries, expected)
    return content


def _converted(network: Any, inputs: int) -> bytes:
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
            raise ValueError(f"torch cannot convert it ({_first_line(error)})") from None
    found: bytes = content.getvalue()
    return found


def _compare(content: bytes, tries: np.ndarray, expected: Sequence[np.ndarray]) -> None:
    """ValueError unless the converted network gives what the original does."""
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    for one, actions in zip(tries, expected, strict=True):
        (found,) = session.run(None, {"obs": one})
        if not np.allclose(found, actions, atol=TOLERANCE, rtol=TOLERANCE):
            raise ValueError("its conversion gives other actions than the original")


def _width(network: Any) -> int:
    """Return the inputs of the first layer of a TorchScript network."""
    for _, tensor in network.named_parameters():
        if tensor.ndim == 2:
            return int(tensor.shape[1])
    raise ValueError("does not say how many inputs it has: give its task with --task")


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:150] if lines else type(error).__name__
