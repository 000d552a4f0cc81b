"""Estimate what evolution costs on many machines from the costs of its parts on this one.

    python -m experiments scaling [--seconds 10] [--json FILE]

A generation asks the optimiser for candidates, sends each worker its tasks, waits until the last
task is played, and tells the optimiser the results. A task is a number of episodes for one worker,
as when Dask is used. One scheduler sends the tasks one after the other, so the duration is:

    generation = optimiser + max(tasks x message, rounds x task),  rounds = ceil(tasks / workers)

The estimate leaves out differences between machines: networks, other load, and starts of workers.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from an_control.bench.training import measure_median_steps_per_s
from an_control.learning.es.optimisers import make_optimiser
from an_control.learning.es.parametrisation import PaperForm
from an_control.learning.rollout.engine import draw_training_seeds
from an_control.learning.rollout.episode import play_pickled_model
from an_control.learning.rollout.processes import (
    RolloutTask,
    count_episodes_per_task,
    split_into_tasks,
)
from an_control_sim.gym.environments import describe_task, find_environment_id, make_environment

POPULATION, ROLLOUTS = 256, 16
"""Number of candidates, and of episodes for each candidate, in Tang & Ha 2021 (appendix)."""
WORKERS = (1, 2, 16, 256, 1000)
GENERATIONS = 20
"""Number of generations over which the optimiser is timed; they are several, because CMA-ES does
not decompose its covariance matrix in each one."""


class GenerationCosts(NamedTuple):
    """The measured costs from which the duration of a generation of evolution is estimated.

    Attributes:
        episode_s: Seconds of one episode of full length.
        optimiser_s: Seconds in which the optimiser computes all candidates, and updates its state
            by their results.
        message_s: Seconds to send a task to a worker and receive an empty result.
    """

    episode_s: float
    optimiser_s: float
    message_s: float


def estimate_generation_time(costs: GenerationCosts, workers: int) -> dict[str, Any]:
    """Estimate how long a generation of evolution takes on a number of workers.

    Returns:
        By name: "generation_s", the duration; "speed_up" over one worker; "efficiency", speed_up /
        workers; "bound", what takes longest: "optimiser", "playing" or "messages"; and "workers".
    """
    played, bound = _estimate_playing_time_and_bottleneck(costs, workers)
    whole = costs.optimiser_s + played
    alone = costs.optimiser_s + _estimate_playing_time_and_bottleneck(costs, 1)[0]
    if costs.optimiser_s > played:
        bound = "optimiser"
    return {
        "workers": workers,
        "generation_s": whole,
        "speed_up": alone / whole,
        "efficiency": alone / whole / workers,
        "bound": bound,
    }


def _estimate_playing_time_and_bottleneck(
    costs: GenerationCosts, workers: int
) -> tuple[float, str]:
    """Return the seconds until all tasks of a generation are played, and what limits them."""
    episodes = count_episodes_per_task(POPULATION, ROLLOUTS, workers)
    tasks = POPULATION * -(-ROLLOUTS // episodes)
    sent, rounds = tasks * costs.message_s, -(-tasks // workers)
    playing = rounds * episodes * costs.episode_s
    return max(sent, playing), "messages" if sent > playing else "playing"


def measure_evolution_scaling(task: str, seconds: float) -> dict[str, Any]:
    """Measure the costs of evolution on this machine; estimate its duration on many workers.

    Episodes are played for `seconds`. The result has the fields of `GenerationCosts`, and two
    more: "numbers" is the number of a policy's parameters, "rows" is the result of
    `estimate_generation_time`.
    """
    environment = find_environment_id(task)
    env = make_environment(environment)
    described = describe_task(env, task, environment)
    limit = env.spec.max_episode_steps if env.spec is not None else None
    env.close()
    form = PaperForm(len(described.actuators), 16)
    people = [form.make_model(np.zeros(form.vector_size), described, {})] * POPULATION
    starts = draw_training_seeds(np.random.default_rng(0), ROLLOUTS)
    tasks = split_into_tasks(environment, described.channels, people, starts, workers=1)
    costs = GenerationCosts(
        _measure_episode_s(tasks[0], limit or 1000, seconds),
        _measure_optimiser_s(form.vector_size),
        _measure_task_transfer_s(tasks),
    )
    rows = [estimate_generation_time(costs, workers) for workers in WORKERS]
    return {"task": task, "numbers": form.vector_size, **costs._asdict(), "rows": rows}


def _measure_episode_s(task: RolloutTask, episode_steps: int, seconds: float) -> float:
    """Measure the time per step in short episodes, and return the seconds of a full episode."""
    name, channels, model, starts, disturbance = task.arguments

    def play_and_count_steps() -> int:
        """Play episodes and return their number of steps."""
        return int(play_pickled_model(name, channels, model, starts[:4], disturbance).steps.sum())

    play_and_count_steps()
    return episode_steps / measure_median_steps_per_s(
        play_and_count_steps, seconds, time.process_time
    )


def _measure_optimiser_s(parameter_count: int) -> float:
    """Measure the seconds that CMA-ES itself needs for a generation, for this many parameters."""
    rng = np.random.default_rng(0)
    optimiser = make_optimiser("cma", np.zeros(parameter_count), 0.1, POPULATION)
    begin = time.perf_counter()
    for _ in range(GENERATIONS):
        candidates = optimiser.ask(rng)
        optimiser.tell(-(candidates**2).sum(axis=1), 0.0)
    return (time.perf_counter() - begin) / GENERATIONS


def _measure_task_transfer_s(tasks: list[RolloutTask]) -> float:
    """Measure the seconds to send a task of real size to a Dask worker and get an answer."""
    import distributed

    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as all_,
        distributed.Client(all_) as client,
    ):

        def measure_seconds_per_task() -> float:
            """Send all tasks and return the seconds for each."""
            begin = time.perf_counter()
            client.gather([client.submit(_do_nothing, *one.arguments, pure=False) for one in tasks])
            return (time.perf_counter() - begin) / len(tasks)

        measure_seconds_per_task()
        return statistics.median(measure_seconds_per_task() for _ in range(3))


def _do_nothing(*arguments: object) -> None:
    """Do nothing, so that only the message to a worker is measured."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Estimate how evolution scales to many workers; print a table and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="seconds for each figure (default: 1)"
    )
    parser.add_argument("--json", type=Path, help="also write the result here")
    given = parser.parse_args(arguments)
    task = "ant" if importlib.util.find_spec("pybullet") else "cartpole"
    result = measure_evolution_scaling(task, given.seconds)
    for name, what in (
        ("episode_s", "an episode of full length"),
        ("optimiser_s", f"CMA-ES over {result['numbers']:,} numbers, a generation"),
        ("message_s", "a task sent through Dask and back"),
    ):
        print(f"{what}: {1e3 * result[name]:,.3g} ms")
    print(f"{task}, {POPULATION} x {ROLLOUTS} episodes, a generation")
    print("| workers | seconds | speed-up | efficiency | bottleneck |\n|---|---|---|---|---|")
    for row in result["rows"]:
        figures = f"{row['generation_s']:,.1f} | {row['speed_up']:,.1f} | {row['efficiency']:.2f}"
        print(f"| {row['workers']:,} | {figures} | {row['bound']} |")
    if given.json:
        given.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0
