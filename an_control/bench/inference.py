"""Measure the duration of a policy step on one core, by number of channels and engine.

The measurement runs in its own process, because the BLAS library reads its number of threads when
it is loaded, and the calling process has loaded it already. With more than one thread a small
matrix product takes ten times as long.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from an_control.load import EngineName, make_policy
from an_control.policy import Model, Policy, read_model
from an_control.policy.random_model import make_random_model
from an_control.policy.sizes import (
    CAR_RACING_SIZES,
    PONG_SIZES,
    AttentionSizes,
    RecurrenceSizes,
    Sizes,
    VisionSizes,
)
from an_control.policy.task import Task
from an_control.system.interrupts import wrap_command_to_end_with_parent
from an_control_sim.envs.tasks import ANT_SIZES, ANT_TASK, CAR_RACING_TASK, PONG_TASK

CHANNELS = (28, 100, 1_000, 10_000)
STACKED_SIZES = replace(ANT_SIZES, neuron=32, stack=4)
RANDOM: tuple[tuple[Sizes, Task], ...] = (
    (ANT_SIZES, ANT_TASK),
    (STACKED_SIZES, ANT_TASK),
    (CAR_RACING_SIZES, CAR_RACING_TASK),
    (PONG_SIZES, PONG_TASK),
)
"""Sizes and tasks of the policies that are measured if no model is given: the policies of the
paper's authors, and their Ant policy with stacked (several successive) readings."""
GTRXL = RecurrenceSizes("gtrxl", units=32, layers=2, heads=4, window=64)
PARTS: dict[str, dict[str, Any]] = {
    "none": {},
    "sab": {"encoder": "sab"},
    "isab, 16 points": {"encoder": "isab", "inducing": 16},
    "pma, 4 seeds": {"attention": "pma", "queries": 4, "key": ANT_SIZES.neuron},
    "lstm, 32 units": {"recurrence": RecurrenceSizes("lstm", units=32)},
    "gru, 32 units": {"recurrence": RecurrenceSizes("gru", units=32)},
    **{
        f"{kind}, 2 layers, 32 units, 64 ticks": {"recurrence": replace(GTRXL, kind=kind)}
        for kind in ("trxl", "trxl-i", "gtrxl")
    },
}
"""Architecture variants for `bench parts`: a mapping from a description to the sizes that differ
from those of the authors' Ant policy."""
MOST_ALL_TO_ALL = 1_000
"""Largest number of channels for an encoder in which every channel attends to every other, because
the RAM that it needs grows with the square of the number."""
WARM_UP_TICKS = 50
FEWEST_TICKS = 30
INPUTS = 16
ONE_THREAD = {
    f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL", "BLIS", "VECLIB_MAXIMUM")
}

Row = dict[str, Any]


def measure_tick_time_on_one_core(
    model: Path | None, seconds: float, *, compare_variants: bool = False
) -> Iterator[Row]:
    """Measure how long one policy step takes, in a separate process that uses one core.

    Args:
        model: Path of a model file; None measures policies with random weights, in the sizes of the
            paper authors' policies for Ant, CarRacing and Pong.
        seconds: Duration of the measurement of each row.
        compare_variants: Whether to measure an Ant policy in each architecture variant of `PARTS`
            (other encoders, attention or recurrence); `model` is then None.

    Yields:
        A dict with the measured times for each engine ("numpy" or "numba") and number of channels;
        see `measure_policy_tick_time`.

    Raises:
        RuntimeError: The other process failed.
    """
    command = [sys.executable, "-m", "an_control.bench.inference", str(seconds)]
    command += [str(model)] if model is not None else ["--parts"] * compare_variants
    with subprocess.Popen(
        wrap_command_to_end_with_parent(command),
        env=os.environ | ONE_THREAD,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C interrupts this process only
    ) as process:
        assert process.stdout is not None
        try:
            yield from map(json.loads, process.stdout)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with status {process.returncode}")


def compute_tick_time_growth_with_channels(
    rows: Iterable[Row], group_by: str = "engine"
) -> dict[str, float]:
    """Compute whether the duration of a policy step grows linearly with the number of channels.

    Args:
        rows: Rows of `measure_tick_time_on_one_core`.
        group_by: Column to group the rows by: "engine", or "parts" for the architecture variant.

    Returns:
        A ratio by the name of the engine or variant: the time per additional channel between 1000
        and 10000 channels, divided by that between 100 and 1000. 1 means linear growth; a larger
        ratio means faster growth.
    """
    time_us = {
        (row[group_by], row["channels"]): row["step_array_p50_us"]
        for row in rows
        if row["inputs"] == "readings"
    }
    low, middle, high = CHANNELS[1:]
    ratios = {}
    for engine in {engine for engine, channels in time_us if channels == high}:
        among_few = (time_us[engine, middle] - time_us[engine, low]) / (middle - low)
        among_many = (time_us[engine, high] - time_us[engine, middle]) / (high - middle)
        ratios[engine] = among_many / among_few
    return dict(sorted(ratios.items()))


def measure_policy_tick_time(policy: Policy, channels: int, seconds: float) -> Row:
    """Measure how long a policy's methods `step` and `step_array` take, with random readings.

    Args:
        policy: The policy, which is reset first.
        channels: Number of channels of which the policy gets a reading in each step.
        seconds: Duration of the whole measurement, half of it for each of the two methods.

    Returns:
        A dict with the keys "task", "engine", "channels", and "inputs": what a neuron of the policy
        gets in a tick, "readings" for one reading, "stacked" for several successive ones, or
        "patches" for image patches. The keys "step_p50_us", "step_p99_us", "step_array_p50_us" and
        "step_array_p99_us" have the median and the 99th percentile of the methods' durations in
        microseconds.
    """
    ids = tuple(f"channel_{i}" for i in range(channels))
    rng = np.random.default_rng(0)
    readings: list[dict[str, Any]]
    inputs: np.ndarray
    if policy.reading_shape:
        shape = INPUTS, channels, *policy.reading_shape
        inputs = rng.integers(0, 256, shape).astype(np.uint8)
        readings = [dict(zip(ids, patches, strict=True)) for patches in inputs]
    else:
        inputs = rng.standard_normal((INPUTS, channels))
        readings = [dict(zip(ids, values.tolist(), strict=True)) for values in inputs]
    policy.reset()
    by_array = _measure_median_and_p99_duration_us(
        lambda i: policy.step_array(inputs[i], ids), seconds / 2
    )
    by_id = _measure_median_and_p99_duration_us(lambda i: policy.step(readings[i]), seconds / 2)
    return {
        "task": policy.model.task.name or "?",
        "inputs": _describe_neuron_input(policy.model.sizes),
        "engine": policy.engine,
        "channels": channels,
        "step_array_p50_us": by_array[0],
        "step_array_p99_us": by_array[1],
        "step_p50_us": by_id[0],
        "step_p99_us": by_id[1],
    }


def _describe_neuron_input(sizes: Sizes) -> str:
    """Return what each sensory neuron of a policy receives in a tick, as a word.

    The word is "patches" for image patches, "stacked" for several successive readings, or
    "readings" for one reading.
    """
    if isinstance(sizes, VisionSizes):
        return "patches"
    return "stacked" if isinstance(sizes, AttentionSizes) and sizes.stack else "readings"


def _measure_median_and_p99_duration_us(
    make_step: Callable[[int], object], seconds: float
) -> tuple[float, float]:
    """Call a function repeatedly, and return the median and the 99th percentile of its duration.

    The function gets the index (0 to `INPUTS` - 1) of the prepared readings to use.
    """
    clock_ns = time.perf_counter_ns
    for i in range(WARM_UP_TICKS):
        make_step(i % INPUTS)
    taken_ns: list[int] = []
    end_ns = clock_ns() + int(seconds * 1e9)
    now_ns = clock_ns()
    while now_ns < end_ns or len(taken_ns) < FEWEST_TICKS:
        number = len(taken_ns) % INPUTS
        begin_ns = clock_ns()
        make_step(number)
        now_ns = clock_ns()
        taken_ns.append(now_ns - begin_ns)
    p50, p99 = np.quantile(taken_ns, (0.5, 0.99)) / 1e3
    return float(p50), float(p99)


def main(seconds: str, policies: str | None = None) -> None:
    """Measure durations of policy steps in this process, and print each row as a line of JSON.

    Args:
        seconds: Duration of the measurement of each row, as text.
        policies: Which policies to measure: the path of a model file; "--parts" for the
            architecture variants in `PARTS`; or None for policies with random weights.
    """
    models: dict[str, Model]
    if policies == "--parts":
        models = {
            parts: make_random_model(replace(ANT_SIZES, **changes), task=ANT_TASK)
            for parts, changes in PARTS.items()
        }
    elif policies is not None:
        models = {"": read_model(policies)}
    else:
        models = {
            str(place): make_random_model(sizes, task=task)
            for place, (sizes, task) in enumerate(RANDOM)
        }
    for parts, model in models.items():
        for engine in _list_supported_engines(model.sizes, policies == "--parts"):
            policy = make_policy(model, "off", engine=engine)
            for channels in _choose_channel_counts(model):
                row = {"parts": parts, **measure_policy_tick_time(policy, channels, float(seconds))}
                print(json.dumps(row), flush=True)


def _list_supported_engines(sizes: Sizes, compare_variants: bool) -> list[EngineName]:
    """Return the names of the engines with which a policy is to be measured.

    They are "numpy" and, if numba is installed and can compile the policy, "numba".
    """
    compiles = not isinstance(sizes, AttentionSizes) or sizes.can_be_compiled
    installed = importlib.util.find_spec("numba") is not None
    return ["numpy", "numba"] if compiles and installed and not compare_variants else ["numpy"]


def _choose_channel_counts(model: Model) -> tuple[int, ...]:
    """Return the numbers of channels with which a model's policy is to be measured.

    A policy that reads image patches is measured with the number of patches in its task. An encoder
    in which every channel attends to every other is not measured with the largest number, because
    the RAM that it needs grows with the square of the number.
    """
    if isinstance(model.sizes, VisionSizes):
        return (len(model.task.channels) or 256,)
    if isinstance(model.sizes, AttentionSizes) and model.sizes.encoder == "sab":
        return tuple(channels for channels in CHANNELS if channels <= MOST_ALL_TO_ALL)
    return CHANNELS


if __name__ == "__main__":
    main(*sys.argv[1:])
