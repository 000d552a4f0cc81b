"""Measures an environment's readings under random actions, to choose units for them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import lru_cache

import numpy as np

from an_control.disturbance import TRAINING_SEEDS
from an_control.system.environment_output import OUTPUT
from an_control_sim.gym.environments import (
    TASK_ENVIRONMENTS,
    AdaptedEnvironment,
    find_adapter,
    has_patch_observations,
    make_environment,
)
from an_control_sim.gym.failure import BrokenEnvironmentError, FailureCounter
from an_control_sim.gym.units import UNSCALED, Units, choose_units

STEPS = 400
MAX_NAMES = 5


@lru_cache(maxsize=8)
def measure_units(environment: str) -> Units:
    """Choose units for an environment's readings from their values under random actions.

    Units are a scale and an offset for each reading. The readings of this package's own tasks are
    not changed. The result is reproducible if the environment's episodes depend only on the seed.

    Args:
        environment: A gymnasium id, or ``module:id``.

    Raises:
        ValueError: The environment cannot be made.
        BrokenEnvironmentError: No episode can be played.
    """
    if environment in TASK_ENVIRONMENTS.values():
        return UNSCALED
    with closing(make_environment(environment)) as env:
        if has_patch_observations(env):
            return UNSCALED
        adapted = find_adapter(env)
        assert adapted.readings is not None
        scalable = adapted.readings.scalable
        if not scalable.any():
            return UNSCALED
        rows = _collect_numbers_under_random_actions(adapted)
    _report_never_finite_readings(environment, adapted.readings.ids, np.array(rows, np.float64))
    resolution = max(np.finfo(row.dtype).eps if row.dtype.kind == "f" else 0.0 for row in rows)
    return choose_units(np.array(rows, np.float64), scalable, float(resolution))


def _report_never_finite_readings(
    environment: str, ids: Sequence[str], readings: np.ndarray
) -> None:
    """Tell the user, by a note in the output, which readings were never a finite number.

    Args:
        environment: The gymnasium id.
        ids: The ids of the N readings.
        readings: The readings (T, N) of T steps.

    Raises:
        BrokenEnvironmentError: No reading was ever finite.
    """
    never = [
        name for name, there in zip(ids, np.isfinite(readings).any(0), strict=True) if not there
    ]
    if len(never) == len(ids):
        raise BrokenEnvironmentError(
            f"environment {environment!r}: no reading is a finite number in {len(readings)} steps"
            " of random actions"
        )
    if never:
        OUTPUT.add_note(
            f"environment {environment!r}: {', '.join(never[:MAX_NAMES])} gave no finite number in"
            f" {len(readings)} steps of random actions: nothing is learned from it"
        )


def _collect_numbers_under_random_actions(env: AdaptedEnvironment) -> list[np.ndarray]:
    """Play `STEPS` steps of random actions, and return the observed numbers (N,) of each step.

    The numbers are in the environment's own units. After an episode that fails, a new one begins.
    """
    rng, failures = np.random.default_rng(0), FailureCounter()
    shape = env.action_space.shape
    rows: list[np.ndarray] = []
    while len(rows) < STEPS:
        try:
            env.reset(seed=int(rng.integers(*TRAINING_SEEDS)))
            rows.append(env.numbers.copy())
            over = False
            while not over and len(rows) < STEPS:
                action = rng.uniform(-1.0, 1.0, shape).astype(np.float32)
                _, _, terminated, truncated, _ = env.step(action)
                rows.append(env.numbers.copy())
                over = terminated or truncated
        except BrokenEnvironmentError as failure:
            failures.count_failure(failure)
        else:
            failures.reset_consecutive_failures()
    return rows
