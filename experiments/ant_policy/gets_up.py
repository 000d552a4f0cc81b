"""Make a teacher for the Ant that gets up from the ground: a walking teacher joined to a reflex.

    python -m experiments.ant_policy.gets_up models/ant_teacher.safetensors runs/ant_up.safetensors

An Ant without torque for 2 s lies flat on its torso. Its motors are too weak to lift it without
momentum, and a teacher that has never been in this state stands still. The reflex is a linear
feedback from 21 readings to 8 torques, at full force nearly all the time, so that the Ant rocks
itself up. Random matrices are tried and the best is improved by CMA-ES. A matrix is scored by the
return of the first 150 steps, in which the teacher takes over as soon as the torso is up. The
reflex and the teacher become one relu network. Two of its units depend steeply on the height of the
torso, and switch between reflex and teacher.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import cma
import gymnasium
import numpy as np

from an_control.disturbance import TRAINING_SEEDS
from an_control.learning.teacher.teachers import Layers, Teacher, read_teacher
from an_control.policy import MlpSizes, read_model, write_model
from an_control_sim.gym.environments import find_environment_id, make_environment

LYING = -0.42
"""Height of the torso relative to a usual start, in m, below which the Ant lies on the ground."""
SPEED_SCALE = 3.0
"""Factor on the search's weights of all readings that are not joint positions."""
STEPS, UP_WITHIN = 150, 70
"""Steps of a trial, and steps within which the torso must be up."""
FALL = 100.0
"""Return that is subtracted for a fall."""
CANDIDATES, FINALISTS, GENERATIONS, POPULATION = 400, 4, 70, 12
FIRST_TRIALS, FINAL_TRIALS, TRIALS = 2, 8, 3
SIGMA, NOISE = 0.2, 0.15
"""Initial standard deviation of the search, and standard deviation of the action noise in it."""
STEEP, OFF = 1e3, 1e5
"""Weights of the switch: per metre of height, and on the units that it turns off."""
GAIN = 1.5
"""Factor from the clipped feedback to the argument of tanh."""


@dataclass(frozen=True)
class Reflex:
    """A controller that gets the Ant up: action = matrix @ (N readings, 1), clipped to [-1, 1].

    Attributes:
        matrix: The weights (A, N + 1) of A actions and N readings; the last column is a constant.
    """

    matrix: np.ndarray

    @classmethod
    def from_flat_weights(
        cls, unscaled_weights: np.ndarray, channels: list[str], action_count: int
    ) -> Reflex:
        """Create a reflex from a flat array of weights, as the random search and CMA-ES try them.

        A reflex uses n of the N readings: all except height, goal direction and foot contacts.

        Args:
            unscaled_weights: A * (n + 1) numbers: for each of A actions, the weights of the n
                readings and a constant. All but the constants and the weights of joint positions
                are multiplied by `SPEED_SCALE`.
            channels: The ids of all N readings.
            action_count: The number of actions.
        """
        matrix = np.zeros((action_count, len(channels) + 1))
        matrix[:, [*_find_indices_of_used_readings(channels), -1]] = unscaled_weights.reshape(
            action_count, -1
        ) * _compute_weight_scale(channels)
        return cls(matrix)

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Return the action (A,) for an observation (N,)."""
        action = self.matrix[:, :-1] @ observation + self.matrix[:, -1]
        return np.clip(action, -1.0, 1.0).astype(np.float32)


def _find_indices_of_used_readings(channels: list[str]) -> list[int]:
    """Return the indices of the readings that a reflex uses.

    It uses all readings except the height, the goal direction and the foot contacts.
    """
    unused = ("height", "goal.", "foot_")
    return [place for place, name in enumerate(channels) if not name.startswith(unused)]


def _compute_weight_scale(channels: list[str]) -> np.ndarray:
    """Return the factors that convert a candidate's unscaled weights of one action to weights.

    There is a factor for each reading that the reflex uses, and one for the constant.
    """
    names = [channels[place] for place in _find_indices_of_used_readings(channels)]
    scale = [1.0 if name.endswith(".position") else SPEED_SCALE for name in names]
    return np.array([*scale, 1.0])


class Trials:
    """Simulated trials: a reflex gets the Ant up from the ground, then a teacher makes it walk.

    Args:
        env: The environment.
        teacher: The walking teacher.
        channels: The ids of the readings.
    """

    def __init__(self, env: gymnasium.Env, teacher: Teacher, channels: list[str]) -> None:
        self._env, self._teacher, self._channels = env, teacher, channels
        assert env.action_space.shape is not None
        self._actions, self._height = env.action_space.shape[0], channels.index("height")
        self.weight_count = self._actions * (len(_find_indices_of_used_readings(channels)) + 1)
        """Number of weights of a candidate."""

    def make_reflex(self, unscaled_weights: np.ndarray) -> Reflex:
        """Create a reflex from a flat array of weights; see `Reflex.from_flat_weights`."""
        return Reflex.from_flat_weights(unscaled_weights, self._channels, self._actions)

    def measure_return(
        self, unscaled_weights: np.ndarray, seeds: np.ndarray, noise: float = 0.0
    ) -> float:
        """Play a trial for each seed with a reflex, and return the mean return less penalties.

        There is a penalty for a fall, and for not getting up. `unscaled_weights` are as in
        `Reflex.from_flat_weights`; `noise` is the standard deviation of noise on the actions.
        """
        reflex = self.make_reflex(unscaled_weights)
        return float(
            np.mean([self._play_trial_and_get_return(reflex, int(seed), noise) for seed in seeds])
        )

    def _play_trial_and_get_return(self, reflex: Reflex, seed: int, noise: float) -> float:
        """Play a trial; return its sum of rewards, less penalties for a fall or for not getting up.

        The reflex acts while the Ant lies on the ground, the teacher afterwards.
        """
        rng = np.random.default_rng(seed)
        observation, _ = self._env.reset(seed=seed, options={"start": "rest"})
        total, up = 0.0, False
        for step in range(STEPS):
            act = reflex if observation[self._height] < LYING else self._teacher
            action = act(observation) + noise * rng.standard_normal(self._actions)
            action = np.clip(action, -1.0, 1.0).astype(np.float32)
            observation, reward, fallen, _, _ = self._env.step(action)
            total += float(reward)
            up = up or observation[self._height] > LYING
            if fallen:
                return total - FALL
            if step == UP_WITHIN and not up:
                return total - (STEPS - step)
        return total


def search_reflex(trials: Trials, seed: int) -> Reflex:
    """Search for a reflex that gets the Ant up, by random candidates and then CMA-ES."""
    rng = np.random.default_rng(seed)
    found = []
    first = rng.integers(*TRAINING_SEEDS, FIRST_TRIALS)
    final = rng.integers(*TRAINING_SEEDS, FINAL_TRIALS)
    for number in range(CANDIDATES):
        numbers = rng.choice([0.5, 1.0, 2.0]) * rng.standard_normal(trials.weight_count)
        found.append((trials.measure_return(numbers, first), number, numbers))
        if (number + 1) % 50 == 0:
            print(f"candidate {number + 1}/{CANDIDATES}  best {max(found)[0]:.0f}", flush=True)
    finalists = [numbers for _, _, numbers in sorted(found, reverse=True)[:FINALISTS]]
    best = max(finalists, key=lambda numbers: trials.measure_return(numbers, final))
    options = {"popsize": POPULATION, "seed": seed + 1, "CMA_diagonal": True, "verbose": -9}
    evolution = cma.CMAEvolutionStrategy(best, SIGMA, options)
    for generation in range(GENERATIONS):
        candidates = evolution.ask()
        seeds = rng.integers(*TRAINING_SEEDS, TRIALS)
        scores = [trials.measure_return(numbers, seeds, NOISE) for numbers in candidates]
        evolution.tell(candidates, [-score for score in scores])
        if (generation + 1) % 10 == 0:
            median = np.median(scores)
            print(f"generation {generation + 1}/{GENERATIONS}  median {median:.0f}", flush=True)
    return trials.make_reflex(evolution.mean)


def join_reflex_and_teacher(
    layers: Layers, reflex: Reflex, height_index: int
) -> dict[str, np.ndarray]:
    """Return the weights of one network that gets the Ant up by a reflex and walks by a teacher.

    It acts like the reflex while the torso's height is below `LYING`, else like the teacher, whose
    weights and biases are `layers`. `height_index` is the index of the height in the readings.
    """
    (first, first_bias), (second, second_bias), (last, last_bias) = layers
    matrix, constant = reflex.matrix[:, :-1], reflex.matrix[:, -1]
    actions, units = len(matrix), len(second)
    at = np.eye(first.shape[1])[height_index]
    below, above = -STEEP * at, STEEP * at
    level = STEEP * LYING
    # The last three units: depth below LYING (scaled), the same less 1, and height above LYING.
    weight_0 = np.vstack([first, matrix, -matrix, below, below, above])
    bias_0 = np.concatenate([first_bias, constant, -constant, [level, level - 1.0, -level]])
    weight_1 = np.zeros((units + 2 * actions + 1, len(weight_0)))
    weight_1[:units, : len(first)] = second
    weight_1[:units, -3] = -OFF
    weight_1[units:-1, len(first) : -3] = np.eye(2 * actions)
    weight_1[units:-1, -1] = -OFF
    weight_1[-1, -3:] = 1.0, -1.0, 0.0  # 1 while it lies: cancels the teacher's last bias
    bias_1 = np.concatenate([second_bias, np.zeros(2 * actions + 1)])
    both = GAIN * np.hstack([np.eye(actions), -np.eye(actions)])
    weight_2 = np.hstack([last, both, -last_bias[:, None]])
    pairs = (weight_0, bias_0), (weight_1, bias_1), (weight_2, last_bias)
    return {
        f"head.{number}.{name}": array.astype(np.float32)
        for number, pair in enumerate(pairs)
        for name, array in zip(("weight", "bias"), pair, strict=True)
    }


def main() -> None:
    """Search for a reflex that gets the Ant up, join it to a teacher, and write the model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("teacher", type=Path, help="an MLP policy of the Ant")
    parser.add_argument("out", type=Path, help="the model file to write")
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of all random numbers (default: 1)"
    )
    given = parser.parse_args()
    env = make_environment(find_environment_id("ant"))
    try:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        model, teacher = read_model(given.teacher), read_teacher(str(given.teacher), env)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    if teacher.layers is None or len(teacher.layers) != 3 or teacher.output_function != "tanh":
        parser.error(f"{given.teacher}: must have two hidden relu layers and a tanh output")
    channels = list(model.task.channels)
    reflex = search_reflex(Trials(env, teacher, channels), given.seed)
    arrays = join_reflex_and_teacher(teacher.layers, reflex, channels.index("height"))
    assert isinstance(model.sizes, MlpSizes)
    head = [len(arrays[f"head.{number}.bias"]) for number in range(2)]
    sizes = replace(model.sizes, head=head)
    trained = {"how": "CMA-ES of a reflex that gets up", "seed": given.seed, "of": model.trained}
    write_model(given.out, replace(model, sizes=sizes, arrays=arrays, trained=trained))
    print(given.out)


if __name__ == "__main__":
    main()
