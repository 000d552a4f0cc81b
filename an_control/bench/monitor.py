"""Measure how much time the identity monitor adds to a tick (control step) of a policy.

The identity monitor sits between the sensor readings and the policy. It detects readings that
arrive on another channel than before (rewiring) without announcement. The policy runs in the task
that it was trained for.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

import numpy as np

from an_control.load import EngineName, make_policy
from an_control.monitor.settings import MONITOR
from an_control.policy import Model

EVERY = 100
STEPS = 1000
IMPOSSIBLE_TICKS = 500
"""Number of ticks (control steps) after each episode in which the readings fit no channels."""
QUIET, MOVE, VERIFIED, IMPOSSIBLE = (
    "nothing happens",
    "signals move",
    "a move is verified",
    "nothing explains the readings",
)


def measure_monitor_overhead(
    model: Model, engines: list[EngineName], seconds: float
) -> list[dict[str, Any]]:
    """Measure how much longer a control step (tick) takes with the identity monitor.

    The monitor finds out which reading belongs to which channel. The readings are shuffled among
    the channels every 100 steps. After each episode come 500 ticks with readings that fit no
    channels: each channel repeats old ones in random order. At least one episode is played.

    Args:
        model: A model with a monitor.
        engines: Names of the engines to measure.
        seconds: Duration in seconds for each engine.

    Returns:
        One row for each engine and kind of tick, with the median, the 99th percentile and the
        maximum of the additional time in microseconds. There are four kinds of tick: nothing
        happens; the readings were just shuffled; the monitor verifies a shuffle that it has found;
        the readings fit no channels. A value is None if there was no tick of this kind.
    """
    return [
        row for engine in engines for row in _measure_overhead_with_engine(model, engine, seconds)
    ]


def _measure_overhead_with_engine(
    model: Model, engine: EngineName, seconds: float
) -> list[dict[str, Any]]:
    """Return the rows for one engine, one for each kind of tick; see `measure_monitor_overhead`."""
    from an_control_sim.gym.environments import find_environment_id, make_environment
    from an_control_sim.gym.units import Units

    alone = make_policy(model, "off", engine=engine)
    monitored = make_policy(model, "match", engine=engine)
    taken: dict[str, list[int]] = {QUIET: [], MOVE: [], VERIFIED: [], IMPOSSIBLE: []}
    rng, ids = np.random.default_rng(1), monitored.nominal_ids

    def step_both_policies(
        ordered: np.ndarray, as_they_arrive: np.ndarray, tick_kind: str
    ) -> np.ndarray:
        """Step the policy without and with the monitor, and store how much the times differ.

        The first gets the readings (N,) in the order of the model's channels, the second in the
        order of their arrival, and its action is returned.
        """
        begin_ns = time.perf_counter_ns()
        alone.step_array(ordered, ids)
        middle_ns = time.perf_counter_ns()
        action = monitored.step_array(as_they_arrive, ids)
        taken[tick_kind].append(time.perf_counter_ns() - middle_ns - (middle_ns - begin_ns))
        return action

    units = Units.from_task(model.task)
    with closing(make_environment(find_environment_id(model.task.name), units)) as env:
        end_ns = time.perf_counter_ns() + int(seconds * 1e9)
        while not any(taken.values()) or time.perf_counter_ns() < end_ns:
            observation, _ = env.reset(seed=int(rng.integers(2**31)))
            alone.reset()
            monitored.reset()
            order = np.arange(len(ids))
            seen: list[np.ndarray] = []
            for step in range(STEPS):
                moved = step > 0 and step % EVERY == 0
                order = rng.permutation(order) if moved else order
                seen.append(np.asarray(observation, np.float32))
                kind = VERIFIED if step % EVERY <= MONITOR.search.verify_ticks else QUIET
                action = step_both_policies(seen[-1], seen[-1][order], MOVE if moved else kind)
                observation, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    break
            for readings in rng.permuted(rng.choice(seen, IMPOSSIBLE_TICKS), axis=0):
                step_both_policies(readings, readings, IMPOSSIBLE)
    return [
        {"engine": engine, "tick": kind, **_summarise_durations_us(costs)}
        for kind, costs in taken.items()
    ]


def _summarise_durations_us(durations_ns: list[int]) -> dict[str, float | None]:
    """Return the median, the 99th percentile and the maximum of durations."""
    if not durations_ns:
        return {"p50_us": None, "p99_us": None, "max_us": None}
    p50, p99, longest = (float(np.percentile(durations_ns, share)) / 1e3 for share in (50, 99, 100))
    return {"p50_us": p50, "p99_us": p99, "max_us": longest}
