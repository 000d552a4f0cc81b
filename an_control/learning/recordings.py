"""Make training episodes from recordings (ROS bags) of a real robot instead of a simulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from an_control.control.model_wiring_check import RATE_TOLERANCE, ActionCommandConverter
from an_control.learning.forward_model.episodes import EpisodeTrace
from an_control.learning.rollout.episode import NewestReadings
from an_control.policy import Model
from an_control.policy.task import Task
from an_control.record.arrays import RecordedArrays, read_arrays
from an_control.record.reader import Bag, load_recorded_wiring
from an_control.wiring import Wiring

STALL = 10.0
"""Limit of a pause between two control ticks, as a multiple of the usual period of the ticks. A
longer pause ends the episode."""
MIN_TICKS = 10
"""An episode of this many control ticks or fewer is left out."""


def read_recorded_traces(
    paths: Sequence[Path], model_path: Path, model: Model, unknown: float = 0.0
) -> list[EpisodeTrace]:
    """Read recordings as episodes that have the channels and actions of a model.

    The recorded commands are converted to actions of the model, whether a policy or another
    controller sent them. A missing reading is replaced by the channel's newest one.

    Args:
        paths: Files of the recordings, made by policy nodes.
        model_path: The model's file, for error texts.
        model: The model.
        unknown: Value of a channel before its first reading in an episode.

    Raises:
        ValueError: A recording cannot be read, lacks channels or actuators of the model, or has
            another control rate than the first one.
    """
    traces: list[EpisodeTrace] = []
    for path, arrays, wiring in _read_recordings_of_one_rate(paths):
        order = ActionCommandConverter(wiring, str(model_path), model)
        traces += _iterate_recorded_episodes(
            path, arrays, model.task.channels, order.convert_to_action, unknown
        )
    _check_any_episode(traces, paths)
    return traces


def read_task_and_traces(paths: Sequence[Path], task_name: str) -> tuple[Task, list[EpisodeTrace]]:
    """Read recordings of a robot as episodes, and describe the robot as a task.

    The channels, actuators and control rate of the task are those of the first recording. A missing
    reading is replaced by the channel's newest one.

    Args:
        paths: Files of the recordings, made by policy nodes.
        task_name: Name to give to the task.

    Raises:
        ValueError: A recording cannot be read, lacks channels or actuators of the first recording,
            or has another control rate.
    """
    task: Task | None = None
    traces: list[EpisodeTrace] = []
    for path, arrays, wiring in _read_recordings_of_one_rate(paths):
        task = task or Task(task_name, "", arrays.ids, arrays.actuators, 1.0 / wiring.rate_hz)
        if arrays.actuators != task.actuators:
            raise ValueError(f"--bag {path}: its actuators are not those of {paths[0]}")
        traces += _iterate_recorded_episodes(
            path, arrays, task.channels, wiring.command.convert_to_action
        )
    _check_any_episode(traces, paths)
    assert task is not None
    return task, traces


def _read_recordings_of_one_rate(
    paths: Sequence[Path],
) -> Iterator[tuple[Path, RecordedArrays, Wiring]]:
    """Yield path, content and wiring of each recording; refuse other rates than the first one's."""
    first_hz = 0.0
    for path in paths:
        arrays = read_arrays(Bag(path))
        wiring = load_recorded_wiring(arrays.wiring, path)
        first_hz = first_hz or wiring.rate_hz
        if abs(first_hz / wiring.rate_hz - 1.0) > RATE_TOLERANCE:
            raise ValueError(
                f"--bag {path}: has {wiring.rate_hz:g} ticks per second, but {paths[0]} has"
                f" {first_hz:g}"
            )
        yield path, arrays, wiring


def _check_any_episode(traces: Sequence[EpisodeTrace], paths: Sequence[Path]) -> None:
    """Raise ValueError if the recordings have no episode that is long enough."""
    if not traces:
        names = ", ".join(map(str, paths))
        raise ValueError(f"--bag {names}: no episode of more than {MIN_TICKS} ticks")


def _iterate_recorded_episodes(
    path: Path,
    arrays: RecordedArrays,
    channels: Sequence[str],
    convert_to_action: Callable[[np.ndarray], np.ndarray],
    unknown: float = 0.0,
) -> Iterator[EpisodeTrace]:
    """Yield the episodes of one recording, which is cut at each reset and each long pause."""
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
        actions = [convert_to_action(arrays.commands[tick]) for tick in ticks[:-1]]
        filled = np.array([newest(readings[tick]) for tick in ticks])
        was_read = np.logical_or.accumulate(~np.isnan(readings[ticks]))
        yield EpisodeTrace(
            np.where(was_read, filled, unknown),
            np.clip(np.array(actions), -1.0, 1.0).astype(np.float32),
            disturbed=False,
        )
