"""Reinforcement learning by stable-baselines3 or sb3-contrib, one iteration at a time.

The whole state of the algorithm can be saved and restored. A run that was killed repeats the
iterations after its checkpoint, and gets the same numbers to the last bit, if the environment
repeats its own exactly. The replay buffer of an off-policy algorithm is kept in a file beside the
checkpoint, to which data are only appended. The part of the actor without random noise is exported
as the MLP of a model file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from an_control.learning.runs.run_folder import RunError, convert_arrays_to_tensors
from an_control.learning.teacher.settings import TeacherSettings
from an_control.learning.teacher.teachers import Layers, Output, Teacher
from an_control.learning.teacher.training_episodes import TrainingEpisodes
from an_control.policy import MlpSizes, Model
from an_control.policy.task import Task
from an_control_sim.gym.failure import FailureCounter

PARTS = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")
"""Arrays of a replay buffer. The record of a transition in the file holds one entry of each, in
this order."""


class ReplayFile:
    """File that stores a replay buffer, with one record of float32 numbers for each transition.

    A checkpoint says how many records belong to it. Later records, written by a run that was killed
    before its next checkpoint, are dropped.

    Args:
        path: The file.
        buffer: The replay buffer of stable-baselines3.
    """

    def __init__(self, path: Path, buffer: Any) -> None:
        self._path, self._buffer = path, buffer
        self._kept = 0

    def append_new_transitions(self, total_added: int) -> None:
        """Append to the file the transitions that the buffer has gained since the last call.

        Args:
            total_added: Number of transitions that were ever added to the buffer.

        Raises:
            RunError: The file cannot be written.
        """
        if total_added == self._kept:
            return
        places = np.arange(self._kept, total_added) % self._buffer.buffer_size
        rows = [getattr(self._buffer, part)[places].reshape(len(places), -1) for part in PARTS]
        records = np.concatenate(rows, axis=1, dtype=np.float32)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("r+b" if self._path.exists() else "wb") as file:
                file.seek(self._kept * records.shape[1] * 4)
                file.truncate()
                file.write(records.tobytes())
        except OSError as error:
            raise RunError(f"{self._path}: {error.strerror}") from error
        self._kept = total_added

    def load_transitions_into_buffer(self, total_added: int) -> None:
        """Fill the buffer from the file with the transitions of a checkpoint.

        Args:
            total_added: Number of transitions that had been added to the buffer before the
                checkpoint, including those that were overwritten since.

        Raises:
            RunError: The file cannot be read, or has fewer records than the checkpoint says.
        """
        buffer = self._buffer
        widths = [int(np.prod(getattr(buffer, part).shape[1:])) for part in PARTS]
        width, size = sum(widths), buffer.buffer_size
        first = max(0, total_added - size)
        try:
            numbers = np.fromfile(
                self._path, "<f4", (total_added - first) * width, offset=first * width * 4
            )
        except OSError as error:
            raise RunError(f"{self._path}: {error.strerror}") from error
        if len(numbers) != (total_added - first) * width:
            raise RunError(
                f"{self._path}: is shorter than the checkpoint says; start the run again"
            )
        columns = np.split(numbers.reshape(-1, width), np.cumsum(widths)[:-1], axis=1)
        places = np.arange(first, total_added) % size
        for part, column in zip(PARTS, columns, strict=True):
            array = getattr(buffer, part)
            array[places] = column.reshape(len(places), *array.shape[1:])
        buffer.pos, buffer.full = total_added % size, total_added >= size
        self._kept = total_added


def list_actor_layers(policy: Any) -> Sequence[nn.Linear]:
    """Return the torch layers of an actor, in the order from the observation to the action.

    Args:
        policy: Policy of an algorithm of stable-baselines3.
    """
    if hasattr(policy, "action_net"):
        last = policy.action_net
        last = last if isinstance(last, nn.Sequential) else (last,)
        parts = [*policy.mlp_extractor.policy_net, *last]
    else:
        actor = policy.actor
        mean = actor.mu if isinstance(actor.mu, nn.Sequential) else (actor.mu,)
        parts = [*getattr(actor, "latent_pi", ()), *mean]
    return [part for part in parts if isinstance(part, nn.Linear)]


def fold_normalisation_into_layers(layers: Layers, mean: np.ndarray, sd: np.ndarray) -> Layers:
    """Change the layers of a network so that they take observations that are not normalised.

    The returned layers give the same results as `layers` for (observation - mean) / sd.

    Args:
        layers: Pairs of weight and bias, one for each layer, which take normalised observations.
        mean: Mean of each channel (N,) float64.
        sd: Standard deviation of each channel (N,) float64; inf for a channel that is ignored.
    """
    (weight, bias), *others = layers
    weight = weight / sd
    return ((weight, bias - weight @ mean), *others)


def replace_logits_by_group_mean(logits: np.ndarray, choices: Sequence[int]) -> np.ndarray:
    """Replace each logit by the mean logit of its group, for discrete actions with several groups.

    In each group of options one option is chosen. For example, the logits 1, 3, 5 with `choices`
    (2, 1) become 2, 2, 0.

    Args:
        logits: Logits (A, ...) of all options, one group after the other. They may also be the rows
            of a layer's weights from which the logits are computed.
        choices: Number of options of each group. For a group of one option the mean is taken to be
            0.

    Returns:
        The means (A, ...).
    """
    parts, first = [], 0
    for count in choices:
        part = logits[first : first + count]
        own = part.mean(0, keepdims=True) if count > 1 else np.zeros_like(part)
        parts.append(np.broadcast_to(own, part.shape))
        first += count
    return np.concatenate(parts)


def centre_and_scale_logit_layer(
    layers: Layers, choices: Sequence[int], largest_logit: float
) -> Layers:
    """Scale the last layer so that the logits lie between -1 and 1, without changing the choices.

    The mean of the logits of a group is subtracted from each of them. All logits are then divided
    by `largest_logit`.

    Args:
        layers: Pairs of weight and bias, one for each layer; the last one computes the logits.
        choices: Number of options of each group of discrete actions.
        largest_logit: Largest absolute value of a logit, after the mean of its group was
            subtracted.

    Returns:
        The layers with a new last layer.
    """
    *hidden, (weight, bias) = layers
    weight = weight - replace_logits_by_group_mean(weight, choices)
    bias = bias - replace_logits_by_group_mean(bias, choices)
    return (*hidden, (weight / largest_logit, bias / largest_logit))


def make_mlp_model(layers: Layers, output: Output, task: Task, trained: dict[str, Any]) -> Model:
    """Return a model, which can be written to a model file, with the weights of a relu network.

    Args:
        layers: Pairs of weight and bias, one for each layer.
        output: Name of the function that is applied to the output of the last layer, "clip" or
            "tanh".
        task: The task for the model file.
        trained: How the network was trained, for the file's header.
    """
    arrays = {}
    for place, (weight, bias) in enumerate(layers):
        arrays[f"head.{place}.weight"] = np.ascontiguousarray(weight, np.float32)
        arrays[f"head.{place}.bias"] = np.ascontiguousarray(bias, np.float32)
    hidden = [len(bias) for _, bias in layers[:-1]]
    channels, actions = layers[0][0].shape[1], len(layers[-1][1])
    sizes = MlpSizes(channels, actions, hidden, activation="relu", output=output)
    return Model("mlp", sizes, arrays, task, trained)


CLIP = 10.0
"""Largest absolute value of a normalised input in training; larger ones are clipped to it."""
SEEN = 0.01
"""Minimum standard deviation of a normalised input. If an input varied less, the networks are taken
to have learned nothing about it."""
REPLAY = "replay.f32"
BUFFER = 300_000
"""Number of transitions in the replay buffer of an off-policy algorithm."""
FIGURES = (
    "approx_kl",
    "explained_variance",
    "std",
    "actor_loss",
    "critic_loss",
    "ent_coef",
)
"""Names of those values in the library's log that are copied to the metrics."""
COUNTERS = ("num_timesteps", "_n_updates", "_episode_num")
"""Attributes of the library's algorithm that are counters; checkpoints contain them."""
LAST = ("_last_obs", "_last_original_obs", "_last_episode_starts")
"""Attributes of the library's algorithm that describe its newest step; checkpoints contain them."""


class LibraryAlgorithm:
    """Algorithm of stable-baselines3 or sb3-contrib, with its environments.

    Args:
        folder: The run's folder, in which a replay buffer is stored.
        envs: The environments.
        settings: The algorithm and its settings.
        seed: Seed of all random numbers.
        start: A relu network whose weights PPO's actor starts with; None for random weights. With
            such a start, observations are not normalised.
    """

    def __init__(
        self,
        folder: Path,
        envs: list[gymnasium.Env[Any, Any]],
        settings: TeacherSettings,
        seed: int,
        start: Teacher | None,
    ) -> None:
        from stable_baselines3.common.logger import Logger
        from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

        torch.set_num_threads(1)
        self._settings = settings
        seeds = np.random.default_rng(seed).integers(2**63, size=len(envs))
        self.failures = FailureCounter()
        """Counter of the episodes that have failed since the metrics were last read."""
        self._episodes = [
            TrainingEpisodes(env, settings.burst, int(one), settings.faults, self.failures)
            for env, one in zip(envs, seeds, strict=True)
        ]
        self._vectorised = VecNormalize(
            DummyVecEnv([lambda env=one: env for one in self._episodes]),  # type: ignore[misc]
            norm_obs=start is None,
            norm_reward=settings.normalise_reward,
            clip_obs=CLIP,
            gamma=settings.options["gamma"],
            epsilon=1e-6,
        )
        self._algorithm = _make_algorithm(self._vectorised, settings, seed)
        self._algorithm.set_logger(Logger(folder=None, output_formats=[]))
        self._random = _get_global_random_states()
        """State of the global random generators of torch and numpy. Each algorithm keeps a state of
        its own, because the library draws from these generators."""
        self._replay = None
        if settings.algorithm != "ppo":
            self._replay = ReplayFile(folder / REPLAY, self._algorithm.replay_buffer)
        continuous = isinstance(self._algorithm.action_space, gymnasium.spaces.Box)
        self.squashed = settings.algorithm != "ppo" or (
            start is not None and start.output_function == "tanh" and continuous
        )
        """Whether a tanh follows the last layer of the actor. Logits of discrete actions need none:
        it does not change which is the largest, but keeps them too close together to learn."""
        if start is not None:
            self._copy_start_network_into_actor(start)

    @property
    def environment_steps(self) -> int:
        """Return how many steps of the environments the algorithm has trained on so far."""
        return int(self._algorithm.num_timesteps)

    def train_iteration(self) -> dict[str, Any]:
        """Train for one iteration and return the metrics of the iteration, by name."""
        algorithm = self._algorithm
        _set_global_random_states(self._random)
        algorithm.learn(self._settings.iteration, log_interval=None, reset_num_timesteps=False)
        self._random = _get_global_random_states()
        known = algorithm.logger.name_to_value
        line = {name: float(known[f"train/{name}"]) for name in FIGURES if f"train/{name}" in known}
        returns = [total for one in self._episodes for total in one.returns]
        for one in self._episodes:
            one.returns.clear()
        if returns:
            line["return"] = float(np.mean(returns))
        return line | self.failures.pop_failure_metrics()

    def set_actor_frozen(self, frozen: bool) -> None:
        """Set whether PPO's actor stops learning, so that only the critic learns.

        Without a warm-up in the settings (iterations at the start for the critic alone) this does
        nothing.

        Args:
            frozen: True to keep the actor's weights constant, False to let the actor learn.
        """
        if self._settings.warm_up:
            policy = self._algorithm.policy
            own = (p for part in list_actor_layers(policy) for p in part.parameters())
            for parameter in (policy.log_std, *own):
                parameter.requires_grad_(not frozen)

    def export_actor_layers(self) -> Layers:
        """Return the weights (out, in) and biases (out,) of the actor's layers as float64.

        For PPO the output of the last layer is the mean action, or the logits of discrete actions.
        For SAC, TD3 and TQC it is the value to which tanh is applied.
        """
        return tuple(
            (part.weight.detach().double().numpy(), part.bias.detach().double().numpy())
            for part in list_actor_layers(self._algorithm.policy)
        )

    def compute_observation_mean_and_sd(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation (N,) by which training normalised the actor's inputs.

        A channel that hardly varied in training gets sd = inf, so that it is ignored. The reason is
        that the networks have learned nothing about it, and that a division by its tiny standard
        deviation would amplify the slightest noise.
        """
        vectorised = self._vectorised
        if not vectorised.norm_obs:
            width = self.export_actor_layers()[0][0].shape[1]
            return np.zeros(width), np.ones(width)
        known: Any = vectorised.obs_rms
        varied = known.var > SEEN**2 * (known.var + vectorised.epsilon)
        sd = np.where(varied, np.sqrt(known.var + vectorised.epsilon), np.inf)
        return known.mean.copy(), sd

    def compute_largest_logit(self, choices: Sequence[int]) -> float:
        """Return the largest absolute value of PPO's centred logits in the newest iteration.

        A logit is centred by subtracting the mean logit of its group of options.

        Args:
            choices: Number of options of each group of discrete actions.
        """
        layers = self.export_actor_layers()
        *hidden, (weight, bias) = layers
        x = self._algorithm.rollout_buffer.observations.reshape(-1, layers[0][0].shape[1])
        for hidden_weight, hidden_bias in hidden:
            x = np.maximum(x @ hidden_weight.T + hidden_bias, 0.0)
        logits = x @ weight.T + bias
        return float(np.abs(logits - replace_logits_by_group_mean(logits.T, choices).T).max())

    def make_checkpoint(self) -> dict[str, Any]:
        """Return the state from which `restore` continues, without the replay buffer.

        The replay buffer has a file of its own, see `ReplayFile`.
        """
        algorithm, vectorised = self._algorithm, self._vectorised
        state: dict[str, Any] = {
            "parameters": algorithm.get_parameters(),
            "counters": {name: getattr(algorithm, name) for name in COUNTERS},
            "last": {name: getattr(algorithm, name) for name in LAST},
            "returns": vectorised.returns,
            "episodes": [one.make_checkpoint() for one in self._episodes],
            "random": self._random,
            "actions": algorithm.action_space.np_random.bit_generator.state,
        }
        for name in ("obs_rms", "ret_rms"):
            if (known := getattr(vectorised, name, None)) is not None:
                state[name] = {"mean": known.mean, "var": known.var, "count": known.count}
        if self._replay is not None:
            self._replay.append_new_transitions(self.environment_steps)
            if (temperature := getattr(algorithm, "log_ent_coef", None)) is not None:
                state["temperature"] = temperature
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Set the state to a checkpoint that an algorithm with the same settings has made.

        Raises:
            RunError: The file of the replay buffer is missing, or has fewer records than the
                checkpoint says.
        """
        algorithm, vectorised = self._algorithm, self._vectorised
        algorithm.set_parameters(convert_arrays_to_tensors(state["parameters"]), exact_match=True)
        for name, value in {**state["counters"], **state["last"]}.items():
            setattr(algorithm, name, value)
        vectorised.returns = state["returns"]
        for name in {"obs_rms", "ret_rms"} & state.keys():
            for key, value in state[name].items():
                setattr(getattr(vectorised, name), key, value)
        for one, episode in zip(self._episodes, state["episodes"], strict=True):
            one.restore(episode)
        if self._replay is not None:
            self._replay.load_transitions_into_buffer(self.environment_steps)
        if "temperature" in state:
            with torch.no_grad():
                algorithm.log_ent_coef.copy_(torch.from_numpy(state["temperature"]))
        self._random = state["random"]
        algorithm.action_space.np_random.bit_generator.state = state["actions"]

    def close(self) -> None:
        """Close the environments."""
        self._vectorised.close()

    def _copy_start_network_into_actor(self, start: Teacher) -> None:
        """Copy a teacher's relu network into PPO's actor."""
        policy = self._algorithm.policy
        if self.squashed:
            policy.action_net = torch.nn.Sequential(policy.action_net, torch.nn.Tanh())
        assert start.layers is not None
        with torch.no_grad():
            for part, (weight, bias) in zip(list_actor_layers(policy), start.layers, strict=True):
                part.weight.copy_(torch.from_numpy(weight))
                part.bias.copy_(torch.from_numpy(bias))


def _get_global_random_states() -> dict[str, Any]:
    """Return the states of the global random generators of torch and numpy."""
    return {"torch": torch.get_rng_state().numpy(), "numpy": np.random.get_state()}


def _set_global_random_states(state: dict[str, Any]) -> None:
    """Set the global generators of torch and numpy to the states in a dict."""
    torch.set_rng_state(torch.from_numpy(state["torch"]))
    np.random.set_state(tuple(state["numpy"]))


def _make_algorithm(vectorised: Any, settings: TeacherSettings, seed: int) -> Any:
    """Return a new algorithm of stable-baselines3 or sb3-contrib."""
    import sb3_contrib
    import stable_baselines3
    from stable_baselines3.common.noise import NormalActionNoise

    options = dict(settings.options)
    network: dict[str, Any] = {
        "net_arch": list(settings.hidden),
        "activation_fn": torch.nn.ReLU,
    }
    if settings.algorithm == "td3":
        assert settings.noise is not None
        actions = np.ones(vectorised.action_space.shape)
        options["action_noise"] = NormalActionNoise(0.0 * actions, settings.noise * actions)
    elif settings.noise is not None:
        network["log_std_init"] = math.log(settings.noise)
    if settings.algorithm == "ppo":
        options["n_steps"] = settings.iteration // settings.environments
    else:
        options |= {"buffer_size": BUFFER, "train_freq": 32, "gradient_steps": 32}

    def compute_learning_rate(_: float) -> float:
        done = algorithm.num_timesteps if algorithm is not None else 0
        return settings.rate * (1.0 - 0.9 * min(1.0, done / settings.decay))

    library = sb3_contrib if settings.algorithm == "tqc" else stable_baselines3
    algorithm: Any = None
    algorithm = getattr(library, settings.algorithm.upper())(
        "MlpPolicy",
        vectorised,
        learning_rate=compute_learning_rate,
        policy_kwargs=network,
        seed=seed % 2**32,
        device="cpu",
        **options,
    )
    return algorithm
