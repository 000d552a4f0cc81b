"""Measure how many environment steps per second training plays, with several implementations."""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from an_control.learning.es.parametrisation import PaperForm
from an_control.learning.evaluation.evaluate import play_episodes
from an_control.learning.import_authors import make_positional_table
from an_control.learning.rollout.compiled.engine import FusedEngine
from an_control.learning.rollout.engine import (
    NO_DISTURBANCE,
    EpisodeSeeds,
    RolloutEngine,
    draw_training_seeds,
)
from an_control.learning.rollout.processes import DaskEngine, ProcessEngine
from an_control.load import make_policy
from an_control.policy import Model, read_model
from an_control.system.share import find_share_path
from an_control_sim.envs.tasks import CARTPOLE_TASK
from an_control_sim.gym.environments import describe_task, find_environment_id, make_environment

POPULATION, ROLLOUTS = 256, 16
EPISODES = 10
"""Number of episodes that are played in a measurement of code that runs step by step."""
SHIPPED = "models/cartpole.safetensors"
NOISE = 0.02
"""Standard deviation of the random change of each weight of the shipped policy, as in its
training."""


def measure_training_speed(seconds: float) -> dict[str, Any]:
    """Measure the steps per second at which several implementations play CartPole episodes.

    The implementations are compiled rollouts on one and on two threads, the compiled policy called
    tick by tick, torch modules as the paper's authors use them, and the package EvoJAX.

    Args:
        seconds: Duration in seconds of each measurement.

    Returns:
        A dict. "rows" holds the median steps per second of each implementation. Other keys hold the
        settings, and ratios: the steps per second of the compiled rollouts on two threads, divided
        by those of another implementation. A ratio is None if a package for it is missing.
    """
    env = make_environment(find_environment_id("cartpole"))
    inner: Any = env.unwrapped
    rows: list[dict[str, Any]] = []
    people, starts = (
        _make_cartpole_population(),
        draw_training_seeds(np.random.default_rng(0), ROLLOUTS),
    )
    model = people[0]

    def add_row_and_return_rate(engine: str, steps_per_s: float) -> float:
        """Add the row of one implementation to the result, and return its steps per second."""
        rows.append({"engine": engine, "steps_per_s": steps_per_s})
        return steps_per_s

    fused = {}
    for threads in (1, 2):
        engine = FusedEngine(inner.batch, inner.channels, 1, threads)
        fused[threads] = add_row_and_return_rate(
            f"fused, {threads} thread{'s'[: threads - 1]}",
            _measure_steps_per_s(engine, people, starts, seconds),
        )
        if threads == 1:
            add_row_and_return_rate(
                "fused, a second of one core's time",
                _measure_steps_per_s(engine, people, starts, seconds, time.process_time),
            )
        engine.close()
    policy, settings = make_policy(model, "off"), (env, inner.channels, EPISODES, 1, NO_DISTURBANCE)
    tick = add_row_and_return_rate(
        "tick by tick, our compiled policy",
        measure_median_steps_per_s(
            lambda: sum(result.steps for result in play_episodes(policy, *settings)), seconds
        ),
    )
    authors = None
    if importlib.util.find_spec("torch") is not None:
        play = _make_rollout_with_authors_modules(model)
        play(env)
        authors = add_row_and_return_rate(
            "tick by tick, torch modules as the authors'",
            measure_median_steps_per_s(lambda: play(env), seconds),
        )
    env.close()
    evojax = None
    if importlib.util.find_spec("evojax") is not None:
        evojax = add_row_and_return_rate("EvoJAX, all cores", _measure_evojax_steps_per_s(seconds))
    return {
        "rows": rows,
        "model": str(find_share_path(SHIPPED)),
        "population": POPULATION,
        "rollouts": ROLLOUTS,
        "over_tick_by_tick": fused[2] / tick,
        "over_the_authors": None if authors is None else fused[2] / authors,
        "over_evojax": None if evojax is None else fused[2] / evojax,
    }


def measure_worker_speedup(task: str, seconds: float) -> dict[str, Any]:
    """Measure how much faster two worker processes play episodes than one, without and with Dask.

    Args:
        task: Short name of a task, such as "cartpole", or a gymnasium id.
        seconds: Duration in seconds of each measurement.

    Returns:
        A dict. "rows" holds a row for plain processes and, if Dask is installed, one for Dask: the
        steps per second of one and of two workers, and their ratio. "same_numbers" says whether all
        measurements gave the same returns (sums of rewards) to the last bit.
    """
    environment = find_environment_id(task)
    env = make_environment(environment)
    described = describe_task(env, task, environment)
    env.close()
    channels, actions = described.channels, len(described.actuators)
    form, rng = PaperForm(actions, 16), np.random.default_rng(0)
    people = [
        form.make_model(rng.normal(0.0, 0.3, form.vector_size), described, {}) for _ in range(16)
    ]
    starts, rows, numbers = draw_training_seeds(rng, 4), [], []
    for name in ("processes", "dask"):
        if name == "dask" and importlib.util.find_spec("distributed") is None:
            continue
        rates: list[float] = []
        for workers in (1, 2):
            engine: RolloutEngine = (
                ProcessEngine(environment, channels, workers)
                if name == "processes"
                else (DaskEngine(environment, channels, None, workers))
            )
            numbers.append(engine.play(people, starts).returns)
            rates.append(_measure_steps_per_s(engine, people, starts, seconds))
            engine.close()
        rows.append(
            {"engine": name, "one": rates[0], "two": rates[1], "ratio": rates[1] / rates[0]}
        )
    same = all(other.tobytes() == numbers[0].tobytes() for other in numbers)
    return {"task": task, "rows": rows, "same_numbers": same}


def _make_cartpole_population() -> list[Model]:
    """Return `POPULATION` (256) models: the shipped CartPole policy, and randomly changed ones."""
    form, rng = PaperForm(), np.random.default_rng(0)
    centre = form.to_vector(read_model(find_share_path(SHIPPED)))
    noise = NOISE * rng.standard_normal((POPULATION - 1, form.vector_size))
    vectors = [centre, *(centre + noise)]
    return [form.make_model(vector, CARTPOLE_TASK, {}) for vector in vectors]


def _measure_steps_per_s(
    engine: RolloutEngine,
    models: Sequence[Model],
    starts: Sequence[EpisodeSeeds],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the median steps per second with which an engine plays episodes."""
    engine.play(models[:2], starts[:2])
    return measure_median_steps_per_s(
        lambda: int(engine.play(models, starts).steps.sum()), seconds, clock
    )


def measure_median_steps_per_s(
    play: Callable[[], int], seconds: float, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Call `play` again and again, and return the median of its steps per second.

    Args:
        play: Function that plays episodes and returns their number of steps.
        seconds: Total duration of the calls.
        clock: Returns the time in seconds, of the wall clock or of the processor.
    """
    rates: list[float] = []
    end = time.perf_counter() + seconds
    while not rates or time.perf_counter() < end:
        begin = clock()
        steps = play()
        rates.append(steps / (clock() - begin))
    return statistics.median(rates)


def _measure_evojax_steps_per_s(seconds: float) -> float:
    """Return the steps per second of the package EvoJAX, with its own CartPole and policy.

    EvoJAX plays all episodes for an equal number of steps, and continues to compute steps of an
    episode that has ended. Those steps count here too.
    """
    import logging

    from evojax.policy.mlp_pi import PermutationInvariantPolicy
    from evojax.sim_mgr import SimManager
    from evojax.task.cartpole import CartPoleSwingUp

    quiet = logging.getLogger("an_control.evojax")
    quiet.setLevel(logging.WARNING)
    task = CartPoleSwingUp(harder=True)
    policy = PermutationInvariantPolicy(act_dim=1, hidden_dim=16, logger=quiet)
    manager = SimManager(
        n_repeats=ROLLOUTS,
        test_n_repeats=1,
        pop_size=POPULATION,
        n_evaluations=1,
        policy_net=policy,
        train_vec_task=task,
        valid_vec_task=task,
        logger=quiet,
    )
    people = np.random.default_rng(0).normal(0.0, 0.1, (POPULATION, policy.num_params))

    def play_population_and_count_steps() -> int:
        """Play all episodes of the population in EvoJAX, and return their total number of steps."""
        np.asarray(manager.eval_params(params=people, test=False)[0])
        return POPULATION * ROLLOUTS * task.max_steps

    play_population_and_count_steps()
    return measure_median_steps_per_s(play_population_and_count_steps, seconds)


def _make_rollout_with_authors_modules(model: Model) -> Callable[[Any], int]:
    """Return a function that plays episodes with torch modules like the paper authors' own.

    As in the authors' code (Tang & Ha 2021), every step runs torch modules, and computes the
    projections of queries and keys anew. The function plays `EPISODES` (10) episodes in an
    environment, and returns the number of steps.
    """
    import torch
    from torch import nn

    torch.set_num_threads(1)
    arrays = {name: torch.from_numpy(array.copy()) for name, array in model.arrays.items()}
    queries, d = arrays["attention.queries"].shape[0], arrays["neuron.hidden"].shape[1]
    place = torch.from_numpy(make_positional_table(queries, d)).float()
    cell, key = nn.LSTMCell(2, d), nn.Linear(d, arrays["attention.key"].shape[0], bias=False)
    query, out = nn.Linear(d, key.out_features, bias=False), nn.Linear(queries, 1)
    with torch.no_grad():
        cell.weight_ih.copy_(torch.cat([arrays["neuron.input"], arrays["neuron.action"]], 1))
        cell.weight_hh.copy_(arrays["neuron.hidden"])
        cell.bias_ih.copy_(arrays["neuron.bias"])
        cell.bias_hh.zero_()
        key.weight.copy_(arrays["attention.key"])
        query.weight.copy_(torch.linalg.lstsq(place, arrays["attention.queries"]).solution.T)
        out.weight.copy_(arrays["head.0.weight"])
        out.bias.copy_(arrays["head.0.bias"])
    head = nn.Sequential(out, nn.Tanh())

    def play_episodes_and_count_steps(env: Any) -> int:
        """Play `EPISODES` (10) episodes in an environment, and return their number of steps."""
        steps = 0
        for seed in range(EPISODES):
            observation, _ = env.reset(seed=seed)
            state, previous, done = None, torch.zeros(1, 1), False
            while not done:
                with torch.no_grad():
                    readings = torch.from_numpy(observation.copy()).float().unsqueeze(-1)
                    inputs = torch.cat([readings, torch.vstack([previous] * len(readings))], -1)
                    state = cell(inputs, state)
                    attention = torch.tanh(torch.matmul(query(place), key(state[0]).T))
                    previous = head(torch.tanh(torch.matmul(attention, readings)).T)
                    action = previous.squeeze(0).numpy()
                observation, _, ended, truncated, _ = env.step(action)
                steps, done = steps + 1, ended or truncated
        return steps

    return play_episodes_and_count_steps
