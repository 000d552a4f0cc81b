"""How a teacher learns: the algorithms of stable-baselines3 and sb3-contrib, and their settings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import gymnasium

from an_control.learning.teacher.teachers import Output, Teacher
from an_control.learning.training_disturbances import Fault, check_probabilities
from an_control_sim.gym.environments import find_choices

Algorithm = Literal["ppo", "sac", "td3", "tqc"]
WARM_UP = 5
"""Iterations that the critic needs before it can tell a good actor how to improve."""


@dataclass(frozen=True)
class TeacherSettings:
    """What decides a run beside its seed; `options` are the library's own arguments."""

    algorithm: Algorithm
    environments: int
    """Side by side, in one process."""
    iteration: int
    """Steps of an iteration, of all environments together."""
    validate_every: int
    """Iterations."""
    patience: int
    """Steps without a better validation that a run always has before it may end."""
    hidden: tuple[int, ...]
    """Units of the layers of actor and critics."""
    rate: float
    """Learning rate; falls linearly to a tenth in `decay` steps."""
    decay: int
    normalise_reward: bool
    """Divide rewards by the standard deviation of the discounted return."""
    options: dict[str, Any] = field(default_factory=dict)
    validation_episodes: int = 8
    burst: float = 0.003
    """Chance a step that a burst of random or missing actions begins."""
    faults: dict[Fault, float] = field(default_factory=dict)
    """Chance an episode of each disturbance; what it observes is then what arrives."""
    warm_up: int = 0
    """First iterations, which train the critic alone; for an actor that can act already."""
    noise: float | None = None
    """PPO: the first standard deviation of the actions; None: the library's. TD3: that of the noise
    on its actions."""
    race: float = 0.0
    """Share of the run in which independent noise races with smooth noise; 0: there is no race."""

    def __post_init__(self) -> None:
        check_probabilities(self.faults)


START_NOISE: dict[Output, float] = {"clip": 0.3, "tanh": 0.1}
"""PPO's first noise, by the output of the network that it continues. What TD3 found, which ends in
tanh, bears little noise and small steps only."""
SMOOTH: dict[str, Any] = {"gae_lambda": 0.92, "use_sde": True, "sde_sample_freq": 4}
"""Noise that depends on the state and stays for four steps (Raffin et al. 2021, "Smooth
Exploration for Robotic Reinforcement Learning")."""
INDEPENDENT_NOISE = 0.5
"""The first standard deviation of noise that is drawn anew at every step."""

DEFAULTS: dict[Algorithm, TeacherSettings] = {
    "ppo": TeacherSettings(
        "ppo",
        environments=16,
        iteration=4096,
        validate_every=16,
        patience=200_000,
        hidden=(128, 64),
        rate=3e-4,
        decay=2_000_000,
        normalise_reward=True,
        noise=0.2,
        race=0.2,
        options={"batch_size": 256, "n_epochs": 10, "gamma": 0.99, "target_kl": 0.03} | SMOOTH,
    ),
    "sac": TeacherSettings(
        "sac",
        environments=1,
        iteration=512,
        validate_every=5,
        patience=20_000,
        hidden=(256, 256),
        rate=7e-4,
        decay=300_000,
        normalise_reward=False,
        options={"batch_size": 128, "gamma": 0.99, "tau": 0.01, "learning_starts": 2000},
    ),
}
DEFAULTS["tqc"] = replace(
    DEFAULTS["sac"],
    algorithm="tqc",
    options={**DEFAULTS["sac"].options, "top_quantiles_to_drop_per_net": 2},
)
DEFAULTS["td3"] = replace(
    DEFAULTS["sac"],
    algorithm="td3",
    validate_every=20,
    patience=200_000,
    rate=1e-3,
    decay=1_000_000,
    noise=0.1,
    options={"batch_size": 128, "gamma": 0.98, "tau": 0.005, "learning_starts": 10_000},
)


def settings_for(
    env: gymnasium.Env[Any, Any],
    algorithm: Algorithm | Literal["auto"],
    start: Teacher | None = None,
) -> TeacherSettings:
    """The settings for this environment, and for the network to start from, if any.

    "auto" is PPO. ValueError where the algorithm cannot learn actions that are choices, or
    cannot start from a network.
    """
    settings = DEFAULTS["ppo" if algorithm == "auto" else algorithm]
    options = _without_smooth(settings)
    if find_choices(env):
        if settings.algorithm != "ppo":
            raise ValueError(f"algorithm {algorithm!r}: actions that are choices allow ppo")
        return replace(settings, noise=None, race=0.0, options={**options, "ent_coef": 0.01})
    if start is None or start.layers is None:
        return settings
    if settings.algorithm != "ppo":
        raise ValueError(f"algorithm {algorithm!r}: a network to start from is continued by ppo")
    calm = start.output == "tanh"
    options |= {"batch_size": 1024, "n_epochs": 8}
    if calm:
        options |= {"batch_size": 4096, "target_kl": 0.015}
    return replace(
        settings,
        environments=2 * settings.environments if calm else settings.environments,
        iteration=(8 if calm else 2) * settings.iteration,
        validate_every=settings.validate_every // (4 if calm else 2),
        hidden=tuple(len(bias) for _, bias in start.layers[:-1]),
        rate=1e-4 if calm else settings.rate,
        warm_up=WARM_UP,
        noise=START_NOISE[start.output],
        race=0.0,
        decay=4_000_000,
        options=options,
    )


def contenders(settings: TeacherSettings) -> list[TeacherSettings]:
    """The settings of those that race, or these alone.

    Which noise suits a robot is not known before: PyBullet's hopper learns to stand still where it
    is shaken at every step, MuJoCo's cheetah stays slow where the noise is smooth.
    """
    if not settings.race:
        return [settings]
    options = _without_smooth(settings)
    return [settings, replace(settings, noise=INDEPENDENT_NOISE, options=options)]


def _without_smooth(settings: TeacherSettings) -> dict[str, Any]:
    return {name: value for name, value in settings.options.items() if name not in SMOOTH}


def smoke(settings: TeacherSettings) -> TeacherSettings:
    """The same in seconds; learns next to nothing."""
    options = {**settings.options, "batch_size": 16}
    if "learning_starts" in options:
        options["learning_starts"] = 40
    return replace(
        settings,
        environments=min(2, settings.environments),
        iteration=64,
        validate_every=1,
        hidden=settings.hidden if settings.warm_up else (16,),
        warm_up=min(settings.warm_up, 1),
        validation_episodes=1,
        options=options,
    )
