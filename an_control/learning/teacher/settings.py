"""Settings with which a teacher learns by stable-baselines3 or sb3-contrib."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import gymnasium

from an_control.learning.teacher.teachers import Output, Teacher
from an_control.learning.training_disturbances import Fault, check_sum_of_probabilities
from an_control_sim.gym.environments import count_action_numbers_by_choice

Algorithm = Literal["ppo", "sac", "td3", "tqc"]
WARM_UP = 5
"""Number of iterations at the start in which only the critic learns, if the actor is good already.
"""


@dataclass(frozen=True)
class TeacherSettings:
    """Settings of a teacher's training by reinforcement learning."""

    algorithm: Algorithm
    """Name of the algorithm."""
    environments: int
    """Number of environments, which run one after the other in one process."""
    iteration: int
    """Number of steps in one iteration, summed over all environments."""
    validate_every: int
    """Number of iterations from one validation to the next."""
    patience: int
    """Minimum number of steps without a better validation before the run may end for that reason.
    """
    hidden: tuple[int, ...]
    """Units of each hidden layer of actor and critics."""
    rate: float
    """Learning rate at the start. Over `decay` steps it falls linearly to a tenth of this."""
    decay: int
    """Number of steps over which the learning rate falls."""
    normalise_reward: bool
    """Divide rewards by the standard deviation of the discounted return."""
    options: dict[str, Any] = field(default_factory=dict)
    """Further arguments of the algorithm in stable-baselines3 or sb3-contrib, by name."""
    validation_episodes: int = 8
    """Number of episodes of a validation."""
    confirmation_episodes: int = 32
    """Number of further episodes of a validation whose mean return is the best so far. Without
    them, a teacher that falls in 2 of 100 episodes would often count as perfect."""
    burst: float = 0.003
    """Probability per step that a burst of random or zero actions begins."""
    faults: dict[Fault, float] = field(default_factory=dict)
    """Probability of each disturbance. An episode has at most one of them. In such an episode the
    teacher observes the disturbed readings."""
    warm_up: int = 0
    """Number of iterations at the start in which only the critic learns. It is more than 0 if the
    actor starts from a network that is good already."""
    noise: float | None = None
    """For PPO, the initial standard deviation of the actions; None for the library's default. For
    TD3, the standard deviation of the noise that is added to actions."""
    race: float = 0.0
    """Share of the run in which two kinds of exploration noise, independent and smooth, compete. 0
    means that only one kind is used.
    """

    def __post_init__(self) -> None:
        check_sum_of_probabilities(self.faults)


START_NOISE: dict[Output, float] = {"clip": 0.3, "tanh": 0.1}
"""A mapping from the output function of a network to the initial noise of PPO when it continues to
train that network. The value for tanh is small, because a network that was trained by TD3, which
ends in tanh, tolerates only little noise and small steps."""
SMOOTH: dict[str, Any] = {"gae_lambda": 0.92, "use_sde": True, "sde_sample_freq": 4}
"""Arguments of PPO for smooth exploration noise, which depends on the state and is drawn anew only
every four steps (Raffin et al. 2021, "Smooth Exploration for Robotic Reinforcement Learning")."""
INDEPENDENT_NOISE = 0.5
"""Initial standard deviation of independent exploration noise, which is drawn anew at every step.
"""

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


def choose_teacher_settings(
    env: gymnasium.Env[Any, Any],
    algorithm: Algorithm | Literal["auto"],
    start: Teacher | None = None,
) -> TeacherSettings:
    """Return the training settings that suit an environment.

    Args:
        env: The environment.
        algorithm: Name of the algorithm; "auto" is PPO.
        start: A relu network from which training starts; None for random weights.

    Raises:
        ValueError: The algorithm cannot learn discrete actions, or cannot start from a network.
    """
    settings = DEFAULTS["ppo" if algorithm == "auto" else algorithm]
    options = _get_options_without_smooth_noise(settings)
    hidden = settings.hidden
    if start is not None and start.layers is not None:
        hidden = tuple(len(bias) for _, bias in start.layers[:-1])
    if count_action_numbers_by_choice(env):
        if settings.algorithm != "ppo":
            raise ValueError(f"--algorithm {algorithm}: discrete actions need ppo")
        options |= {"ent_coef": 0.01}
        return replace(settings, noise=None, race=0.0, hidden=hidden, options=options)
    if start is None or start.layers is None:
        return settings
    if settings.algorithm != "ppo":
        raise ValueError(f"--algorithm {algorithm}: only ppo can continue a network")
    calm = start.output_function == "tanh"
    options |= {"batch_size": 1024, "n_epochs": 8}
    if calm:
        options |= {"batch_size": 4096, "target_kl": 0.015}
    return replace(
        settings,
        environments=2 * settings.environments if calm else settings.environments,
        iteration=(8 if calm else 2) * settings.iteration,
        validate_every=settings.validate_every // (4 if calm else 2),
        hidden=hidden,
        rate=1e-4 if calm else settings.rate,
        warm_up=WARM_UP,
        noise=START_NOISE[start.output_function],
        race=0.0,
        decay=4_000_000,
        options=options,
    )


def make_settings_of_competing_learners(settings: TeacherSettings) -> list[TeacherSettings]:
    """Return the settings of the algorithms that compete in a run.

    There is one for each kind of exploration noise, smooth and independent, because it is not known
    in advance which kind suits a robot. With independent noise PyBullet's hopper learns to stand
    still, and with smooth noise MuJoCo's cheetah stays slow.

    Args:
        settings: Settings with smooth noise. If their field `race` is 0, nothing competes, and only
            these settings are returned.
    """
    if not settings.race:
        return [settings]
    options = _get_options_without_smooth_noise(settings)
    return [settings, replace(settings, noise=INDEPENDENT_NOISE, options=options)]


def _get_options_without_smooth_noise(settings: TeacherSettings) -> dict[str, Any]:
    """Return the `options` of the settings without those that make the exploration noise smooth."""
    return {name: value for name, value in settings.options.items() if name not in SMOOTH}


def make_smoke_test_settings(settings: TeacherSettings) -> TeacherSettings:
    """Return settings with which a training takes only seconds, for a smoke test."""
    options = {**settings.options, "batch_size": 16}
    if "learning_starts" in options:
        options["learning_starts"] = 40
    return replace(
        settings,
        environments=min(2, settings.environments),
        iteration=64,
        validate_every=1,
        warm_up=min(settings.warm_up, 1),
        validation_episodes=1,
        confirmation_episodes=0,
        options=options,
    )
