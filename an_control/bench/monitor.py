"""What the identity monitor costs a tick, measured where it watches: in the model's own task."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

import numpy as np

from an_control.policy import EngineName, Model, make_policy
from an_control.policy.monitor.search import VERIFY_TICKS

EVERY = 100
STEPS = 1000


def monitor_rows(model: Model, engines: list[EngineName], seconds: float) -> list[dict[str, Any]]:
    """A row an engine: quantiles in us of what a monitored tick takes longer than one alone.

    All signals move every 100 steps. `quiet` are the ticks in which nothing is verified, `move`
    those in which signals move, `after` the ones in which that is verified; None where there was no
    such tick. At least one episode is played.
    """
    return [_row(model, engine, seconds) for engine in engines]


def _row(model: Model, engine: EngineName, seconds: float) -> dict[str, Any]:
    from an_control.learning.environments import environment_of, make_environment

    alone = make_policy(model, "off", engine=engine)
    monitored = make_policy(model, "match", engine=engine)
    taken: dict[str, list[int]] = {"quiet": [], "move": [], "after": []}
    rng, ids = np.random.default_rng(1), monitored.nominal_ids
    with closing(make_environment(environment_of(str(model.task["name"])))) as env:
        end_ns = time.perf_counter_ns() + int(seconds * 1e9)
        while not any(taken.values()) or time.perf_counter_ns() < end_ns:
            observation, _ = env.reset(seed=int(rng.integers(2**31)))
            alone.reset()
            monitored.reset()
            order = np.arange(len(ids))
            for step in range(STEPS):
                moved = step > 0 and step % EVERY == 0
                order = rng.permutation(order) if moved else order
                shown = np.asarray(observation, np.float32)[order]
                begin_ns = time.perf_counter_ns()
                alone.step_array(observation, ids)
                middle_ns = time.perf_counter_ns()
                action = monitored.step_array(shown, ids)
                cost_ns = time.perf_counter_ns() - middle_ns - (middle_ns - begin_ns)
                kind = "after" if step % EVERY <= VERIFY_TICKS else "quiet"
                taken["move" if moved else kind].append(cost_ns)
                observation, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    break
    row: dict[str, Any] = {"engine": engine}
    for kind, costs in taken.items():
        for share in (50, 99):
            found = float(np.percentile(costs, share)) / 1e3 if costs else None
            row[f"{kind}_p{share}_us"] = found
    return row
