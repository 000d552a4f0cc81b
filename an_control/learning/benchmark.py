"""How fast training plays episodes here: the engines beside a rollout as the authors wrote it."""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from an_control.learning.evaluate import evaluate
from an_control.learning.forms import Authors
from an_control.learning.fused.engine import FusedEngine
from an_control.learning.processes import Dask, Processes
from an_control.learning.rollouts import NOTHING, Engine, Start, training_starts
from an_control.learning.tasks import describe, environment_of, make_environment
from an_control.policy import Model, make_policy, read_model
from an_control.policy.tasks import CARTPOLE_TASK
from an_control.share import share_path

POPULATION, ROLLOUTS = 256, 16
NOISE = 0.02
"""The population's standard deviation about the shipped policy, as in its training."""
EVOJAX_STEPS_PER_S = 455_000
"""EvoJAX's permutation-invariant CartPole, population 256 x 16, measured once on another day."""


def training_benchmark(seconds: float) -> dict[str, Any]:
    """Rows of steps a second, each rate the median over about `seconds`; and what they come to."""
    env = make_environment(environment_of("cartpole"))
    inner: Any = env.unwrapped
    rows: list[dict[str, Any]] = []
    people, starts = _population(), training_starts(np.random.default_rng(0), ROLLOUTS)
    model = people[0]

    def row(engine: str, rate: float) -> float:
        rows.append({"engine": engine, "steps_per_s": rate})
        return rate

    fused = {}
    for threads in (1, 2):
        engine = FusedEngine(inner.lanes, inner.channels, 1, threads)
        fused[threads] = row(
            f"fused, {threads} thread{'s'[: threads - 1]}", _rate(engine, people, starts, seconds)
        )
        engine.close()
    policy, what = make_policy(model), (env, inner.channels, 2, 1, NOTHING)
    tick = row(
        "tick by tick, our compiled policy",
        _median(lambda: sum(result.steps for result in evaluate(policy, *what)), seconds),
    )
    authors = None
    if importlib.util.find_spec("torch") is not None:
        _as_the_authors(env, model)
        authors = row(
            "tick by tick, torch modules as the authors'",
            _median(lambda: _as_the_authors(env, model), seconds),
        )
    env.close()
    if importlib.util.find_spec("evojax") is None:
        print(f"EvoJAX is not installed; its rate was {EVOJAX_STEPS_PER_S:,} on another day")
    return {
        "rows": rows,
        "population": POPULATION,
        "rollouts": ROLLOUTS,
        "over_tick_by_tick": fused[2] / tick,
        "over_the_authors": None if authors is None else fused[2] / authors,
        "over_evojax_then": fused[2] / EVOJAX_STEPS_PER_S,
    }


def workers_benchmark(task: str, seconds: float) -> dict[str, Any]:
    """Rates of one and of two workers, processes and Dask, and whether their numbers agree."""
    environment = environment_of(task)
    env = make_environment(environment)
    described = describe(env, task, environment)
    env.close()
    channels, actions = described["channels"], len(described["actuators"])
    form, rng = Authors(actions, 16), np.random.default_rng(0)
    people = [form.model(rng.normal(0.0, 0.3, form.size), described, {}) for _ in range(16)]
    starts, rows, numbers = training_starts(rng, 4), [], []
    for name in ("processes", "dask"):
        if name == "dask" and importlib.util.find_spec("distributed") is None:
            continue
        rates: list[float] = []
        for workers in (1, 2):
            engine: Engine = (
                Processes(environment, channels, workers)
                if name == "processes"
                else (Dask(environment, channels, None, workers))
            )
            numbers.append(engine.play(people, starts).returns)
            rates.append(_rate(engine, people, starts, seconds))
            engine.close()
        rows.append(
            {"engine": name, "one": rates[0], "two": rates[1], "ratio": rates[1] / rates[0]}
        )
    same = all(other.tobytes() == numbers[0].tobytes() for other in numbers)
    return {"task": task, "rows": rows, "same_numbers": same}


def _population() -> list[Model]:
    """The shipped policy and candidates about it."""
    form, rng = Authors(), np.random.default_rng(0)
    centre = form.vector(read_model(share_path("models/cartpole.safetensors")))
    noise = NOISE * rng.standard_normal((POPULATION - 1, form.size))
    vectors = [centre, *(centre + noise)]
    return [form.model(vector, CARTPOLE_TASK, {}) for vector in vectors]


def _rate(
    engine: Engine, people: Sequence[Model], starts: Sequence[Start], seconds: float
) -> float:
    engine.play(people[:2], starts[:2])
    return _median(lambda: int(engine.play(people, starts).steps.sum()), seconds)


def _median(play: Callable[[], int], seconds: float) -> float:
    """The median of the rates of calls that each return how many steps they played."""
    rates: list[float] = []
    end = time.perf_counter() + seconds
    while not rates or time.perf_counter() < end:
        begin = time.perf_counter()
        steps = play()
        rates.append(steps / (time.perf_counter() - begin))
    return statistics.median(rates)


def _as_the_authors(env: Any, model: Model) -> int:
    """One episode with the policy as torch modules, a tick at a time; its steps."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    arrays = {name: torch.from_numpy(array.copy()) for name, array in model.arrays.items()}
    cell, query = nn.LSTMCell(2, 8), arrays["attention.queries"]
    cell.weight_ih.data = torch.cat([arrays["neuron.input"], arrays["neuron.action"]], 1)
    cell.weight_hh.data, cell.bias_ih.data = arrays["neuron.hidden"], arrays["neuron.bias"]
    cell.bias_hh.data.zero_()
    out = nn.Linear(16, 1)
    out.weight.data, out.bias.data = arrays["head.0.weight"], arrays["head.0.bias"]
    observation, _ = env.reset(seed=1)
    state, previous = None, torch.zeros(1)
    steps, done = 0, False
    with torch.no_grad():
        while not done:
            readings = torch.from_numpy(observation)
            inputs = torch.stack([readings, previous.expand(5)], -1)
            state = cell(inputs, state)
            attention = torch.tanh(query @ (state[0] @ arrays["attention.key"].T).T)
            previous = torch.tanh(out(torch.tanh(attention @ readings)))
            observation, _, ended, truncated, _ = env.step(previous.numpy())
            steps, done = steps + 1, ended or truncated
    return steps
