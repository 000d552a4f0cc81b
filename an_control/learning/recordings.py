"""Episodes from recordings of a robot, in place of those of a simulator."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from an_control.control.acting import ActionOrder
from an_control.learning.forward_model.episodes import EpisodeTrace
from an_control.learning.rollout.episode import NewestReadings
from an_control.policy import Model
from an_control.policy.task import Task
from an_control.record.arrays import RecordedArrays, read_arrays
from an_control.record.reader import Bag
from an_control.wiring import Wiring, load_wiring

STALL = 10.0
"""An episode ends where the next tick comes after so many times the usual time."""
MIN_TICKS = 10
"""A shorter episode is left out."""


def recorded_traces(paths: Sequence[Path], model_path: Path, model: Model) -> list[EpisodeTrace]:
    """Return the episodes of these recordings, in the model's channels and actions.

    The command that went out counts as the action, whoever sent it; a missing reading is replaced
    by the channel's newest one.

    Args:
        paths: Recordings of policy nodes.
        model_path: The model's file, for errors.
        model: The model.

    Raises:
        ValueError: A recording cannot be read, or lacks channels or actuators of the model.
    """
    traces = [
        trace
        for path in paths
        for trace in _traces(path, read_arrays(Bag(path)), str(model_path), model)
    ]
    if not traces:
        names = ", ".join(map(str, paths))
        raise ValueError(f"--bag {names}: no episode of {MIN_TICKS} ticks or more")
    return traces


def _traces(
    path: Path, arrays: RecordedArrays, model_path: str, model: Model
) -> Iterator[EpisodeTrace]:
    """Yield the episodes of one recording."""
    order = ActionOrder(_wiring(arrays), model_path, model)
    yield from _episodes(path, arrays, model.task.channels, order.action)


def recorded_robot(paths: Sequence[Path], name: str) -> tuple[Task, list[EpisodeTrace]]:
    """Return the episodes of these recordings, and the task that they are.

    Channels and actuators are those of the first recording's wiring, in its order; its rate is the
    task's. A missing reading is replaced by the channel's newest one.

    Args:
        paths: Recordings of policy nodes, in shadow or not.
        name: The task's name.

    Raises:
        ValueError: A recording cannot be read, or lacks channels or actuators of the first one.
    """
    task: Task | None = None
    traces: list[EpisodeTrace] = []
    for path in paths:
        arrays = read_arrays(Bag(path))
        wiring = _wiring(arrays)
        if task is None:
            step_s = 1.0 / wiring.rate_hz
            task = Task(name, "", arrays.ids, arrays.actuators, step_s)
        if arrays.actuators != task.actuators:
            raise ValueError(f"--bag {path}: its actuators are not those of {paths[0]}")
        traces += _episodes(path, arrays, task.channels, wiring.command.action)
    if task is None or not traces:
        names = ", ".join(map(str, paths))
        raise ValueError(f"--bag {names}: no episode of {MIN_TICKS} ticks or more")
    return task, traces


def _wiring(arrays: RecordedArrays) -> Wiring:
    """Return the wiring that a recording holds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "wiring.yaml"
        path.write_text(arrays.wiring, encoding="utf-8")
        return load_wiring(path)


def _episodes(
    path: Path,
    arrays: RecordedArrays,
    channels: Sequence[str],
    action_of: Callable[[np.ndarray], np.ndarray],
) -> Iterator[EpisodeTrace]:
    """Yield the episodes of one recording, with these channels."""
    if lacking := [name for name in channels if name not in arrays.ids]:
        raise ValueError(f"--bag {path}: has no channel {', '.join(lacking[:5])}")
    places = [arrays.ids.index(name) for name in channels]
    readings = arrays.readings[:, places].astype(np.float64)
    known: NDArray[np.bool_] = np.array(np.isfinite(arrays.commands).all(axis=1))
    lockstep = len(arrays.stamp_ns) and (arrays.stamp_ns >= 0).all()
    passed_ns = np.diff(arrays.stamp_ns if lockstep else arrays.time_ns)
    usual_ns = np.median(passed_ns) if len(passed_ns) else 0.0
    ends = (np.diff(arrays.episode) != 0) | (passed_ns > STALL * usual_ns) | (passed_ns < 0)
    ends |= ~known[:-1]
    for ticks in np.split(np.arange(len(readings)), np.flatnonzero(ends) + 1):
        ticks = ticks[known[ticks]]
        if len(ticks) <= MIN_TICKS:
            continue
        newest = NewestReadings()
        actions = [action_of(arrays.commands[tick]) for tick in ticks[:-1]]
        yield EpisodeTrace(
            np.array([newest(readings[tick]) for tick in ticks]),
            np.clip(np.array(actions), -1.0, 1.0).astype(np.float32),
            disturbed=False,
        )
