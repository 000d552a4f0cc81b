"""stable-baselines3 and sb3-contrib: one of their algorithms, iteration by iteration.

Its whole state can be saved and restored, so that a run that was killed repeats its last
iterations to the same bits, where the environment does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from an_control.learning.runs.checkpoint import as_tensors
from an_control.learning.teacher.actor import Normalisation, actor_layers, linear_parts, means
from an_control.learning.teacher.replay_file import ReplayFile
from an_control.learning.teacher.settings import TeacherSettings
from an_control.learning.teacher.teachers import Layers, Teacher
from an_control.learning.teacher.training_episodes import TrainingEpisodes
from an_control_sim.gym.failure import Failures

CLIP = 10.0
"""Standard deviations at which the networks' inputs are clipped while they learn."""
SEEN = 0.01
"""Standard deviation from which on a normalised input has taught the networks something."""
REPLAY = "replay.f32"
BUFFER = 300_000
"""Transitions that the off-policy algorithms remember."""
FIGURES = (
    "approx_kl",
    "explained_variance",
    "std",
    "actor_loss",
    "critic_loss",
    "ent_coef",
)
"""Of the library's log, those that a metrics line takes over."""
COUNTERS = ("num_timesteps", "_n_updates", "_episode_num")
LAST = ("_last_obs", "_last_original_obs", "_last_episode_starts")


class Library:
    """One algorithm and its environments.

    `start` is a relu network from which PPO's actor begins, its output clipped or squashed;
    observations are then not normalised.
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
        self.failures = Failures()
        """Of the episodes since they were asked for."""
        self._episodes = [
            TrainingEpisodes(env, settings.burst, int(one), settings.faults, self.failures)
            for env, one in zip(envs, seeds, strict=True)
        ]
        self._vectorised = VecNormalize(
            DummyVecEnv([partial(_same, one) for one in self._episodes]),
            norm_obs=start is None,
            norm_reward=settings.normalise_reward,
            clip_obs=CLIP,
            gamma=settings.options["gamma"],
            epsilon=1e-6,
        )
        self._algorithm = _algorithm(self._vectorised, settings, seed)
        self._algorithm.set_logger(Logger(folder=None, output_formats=[]))
        self._random = _random_state()
        """Of torch and numpy, which the library draws from: each algorithm has its own."""
        self._replay = None
        if settings.algorithm != "ppo":
            self._replay = ReplayFile(folder / REPLAY, self._algorithm.replay_buffer)
        self._squashed = settings.algorithm != "ppo" or (
            start is not None and start.output == "tanh"
        )
        if start is not None:
            self._start_actor(start)

    @property
    def steps(self) -> int:
        """Of the environments, so far."""
        return int(self._algorithm.num_timesteps)

    def learn(self) -> dict[str, Any]:
        """One iteration; its figures."""
        algorithm = self._algorithm
        _set_random_state(self._random)
        algorithm.learn(self._settings.iteration, log_interval=None, reset_num_timesteps=False)
        self._random = _random_state()
        known = algorithm.logger.name_to_value
        line = {name: float(known[f"train/{name}"]) for name in FIGURES if f"train/{name}" in known}
        returns = [total for one in self._episodes for total in one.returns]
        for one in self._episodes:
            one.returns.clear()
        if returns:
            line["return"] = float(np.mean(returns))
        return line | self.failures.figures()

    def freeze_actor(self, frozen: bool) -> None:
        """Whether the next iterations leave PPO's actor as it is."""
        if self._settings.warm_up:
            policy = self._algorithm.policy
            own = (p for part in linear_parts(policy) for p in part.parameters())
            for parameter in (policy.log_std, *own):
                parameter.requires_grad_(not frozen)

    def actor(self) -> tuple[Layers, bool]:
        """The actor's layers, and whether tanh squashes its output."""
        return actor_layers(self._algorithm), self._squashed

    def normalisation(self) -> Normalisation:
        """Of the actor's inputs; sd is inf where a channel never varied: its weights were never
        learned, and dividing them by next to nothing would make the least noise count."""
        vectorised = self._vectorised
        if not vectorised.norm_obs:
            width = actor_layers(self._algorithm)[0][0].shape[1]
            return Normalisation(np.zeros(width), np.ones(width))
        known: Any = vectorised.obs_rms
        varied = known.var > SEEN**2 * (known.var + vectorised.epsilon)
        sd = np.where(varied, np.sqrt(known.var + vectorised.epsilon), np.inf)
        return Normalisation(known.mean.copy(), sd)

    def largest_logit(self, choices: Sequence[int]) -> float:
        """The largest distance of a logit from the mean of its choice's, in the newest rollout; of
        a bit's, from 0."""
        *hidden, (weight, bias) = actor_layers(self._algorithm)
        x = self._algorithm.rollout_buffer.observations.reshape(-1, hidden[0][0].shape[1])
        for hidden_weight, hidden_bias in hidden:
            x = np.maximum(x @ hidden_weight.T + hidden_bias, 0.0)
        logits = x @ weight.T + bias
        return float(np.abs(logits - means(logits.T, choices).T).max())

    def state(self) -> dict[str, Any]:
        """What `restore` continues from; the replay buffer is kept in a file of its own."""
        algorithm, vectorised = self._algorithm, self._vectorised
        state: dict[str, Any] = {
            "parameters": algorithm.get_parameters(),
            "counters": {name: getattr(algorithm, name) for name in COUNTERS},
            "last": {name: getattr(algorithm, name) for name in LAST},
            "returns": vectorised.returns,
            "episodes": [one.state() for one in self._episodes],
            "random": self._random,
            "actions": algorithm.action_space.np_random.bit_generator.state,
        }
        for name in ("obs_rms", "ret_rms"):
            if (known := getattr(vectorised, name, None)) is not None:
                state[name] = {"mean": known.mean, "var": known.var, "count": known.count}
        if self._replay is not None:
            self._replay.append(self.steps)
            if (temperature := getattr(algorithm, "log_ent_coef", None)) is not None:
                state["temperature"] = temperature
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state of the same settings; RunError where its replay file is gone."""
        algorithm, vectorised = self._algorithm, self._vectorised
        algorithm.set_parameters(as_tensors(state["parameters"]), exact_match=True)
        for name, value in {**state["counters"], **state["last"]}.items():
            setattr(algorithm, name, value)
        vectorised.returns = state["returns"]
        for name in {"obs_rms", "ret_rms"} & state.keys():
            for key, value in state[name].items():
                setattr(getattr(vectorised, name), key, value)
        for one, episode in zip(self._episodes, state["episodes"], strict=True):
            one.restore(episode)
        if self._replay is not None:
            self._replay.restore(self.steps)
        if "temperature" in state:
            with torch.no_grad():
                algorithm.log_ent_coef.copy_(torch.from_numpy(state["temperature"]))
        self._random = state["random"]
        algorithm.action_space.np_random.bit_generator.state = state["actions"]

    def close(self) -> None:
        self._vectorised.close()

    def _start_actor(self, start: Teacher) -> None:
        policy = self._algorithm.policy
        if self._squashed:
            policy.action_net = torch.nn.Sequential(policy.action_net, torch.nn.Tanh())
        assert start.layers is not None
        with torch.no_grad():
            for part, (weight, bias) in zip(linear_parts(policy), start.layers, strict=True):
                part.weight.copy_(torch.from_numpy(weight))
                part.bias.copy_(torch.from_numpy(bias))


def _random_state() -> dict[str, Any]:
    return {"torch": torch.get_rng_state().numpy(), "numpy": np.random.get_state()}


def _set_random_state(state: dict[str, Any]) -> None:
    torch.set_rng_state(torch.from_numpy(state["torch"]))
    np.random.set_state(tuple(state["numpy"]))


def _same(env: TrainingEpisodes) -> TrainingEpisodes:
    return env


def _algorithm(vectorised: Any, settings: TeacherSettings, seed: int) -> Any:
    """The library's algorithm with these settings."""
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

    def rate(_: float) -> float:
        done = algorithm.num_timesteps if algorithm is not None else 0
        return settings.rate * (1.0 - 0.9 * min(1.0, done / settings.decay))

    library = sb3_contrib if settings.algorithm == "tqc" else stable_baselines3
    algorithm: Any = None
    algorithm = getattr(library, settings.algorithm.upper())(
        "MlpPolicy",
        vectorised,
        learning_rate=rate,
        policy_kwargs=network,
        seed=seed % 2**32,
        device="cpu",
        **options,
    )
    return algorithm
