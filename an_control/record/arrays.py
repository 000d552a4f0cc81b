"""Recorded readings and commands as arrays: for the doctor, for learning, and for export."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from an_control.record.layout import (
    ACTION,
    CHANNELS,
    COMMAND,
    EVENTS,
    NONE,
    TICK_NUMBERS,
    TICK_TOPIC,
    TYPES,
    BagError,
    read_event,
    read_joint_state,
)
from an_control.record.reader import Bag

MAX_TICKS = 20_000_000
"""A longer recording is refused: it would not fit into memory."""


@dataclass(frozen=True)
class RecordedArrays:
    """The ticks of a recording.

    Attributes:
        ids: The channels (N).
        actuators: The actuators (A).
        time_ns: The time of day of each tick (T,).
        stamp_ns: In lockstep the simulator's time of each tick (T,), else -1.
        episode: The number of the episode of each tick (T,); resets and activations begin one.
        readings: What was read, float32 (T, N); NaN where a channel was missing.
        wanted: What the policy asked for, float64 (T, A) in physical units; NaN before its first.
        commands: What went out last by then, whoever sent it, the same.
        wiring: The text of the wiring file.
    """

    ids: tuple[str, ...]
    actuators: tuple[str, ...]
    time_ns: NDArray[np.int64]
    stamp_ns: NDArray[np.int64]
    episode: NDArray[np.int64]
    readings: NDArray[np.float32]
    wanted: NDArray[np.float64]
    commands: NDArray[np.float64]
    wiring: str


def read_arrays(bag: Bag) -> RecordedArrays:
    """Return what a node's recording holds, without ROS.

    Raises:
        BagError: If the bag cannot be read, or is no recording of a policy node that reads numbers.
    """
    rows: list[tuple[int, int, int, tuple[str, ...], NDArray[np.float32]]] = []
    stamp_ns = NONE
    wanted: list[NDArray[np.float64] | None] = []
    commands: list[NDArray[np.float64] | None] = []
    actuators: tuple[str, ...] = ()
    newest: NDArray[np.float64] | None = None
    node, episode, wiring = "", 0, ""
    for entry in bag.entries():
        if not node and entry.topic.endswith(f"/{EVENTS}") and entry.type == TYPES[EVENTS]:
            node = entry.topic.removesuffix(EVENTS)
        if not node or not entry.topic.startswith(node):
            continue
        name = entry.topic.removeprefix(node)
        if TYPES.get(name) != entry.type:
            continue
        if name == EVENTS and entry.sequence == 0:
            event = read_event(entry.data)
            kind = event["event"]
            if kind == "wiring":
                wiring = wiring or str(event.get("text", ""))
            episode += kind in ("reset", "activate") and bool(rows) and rows[-1][2] == episode
        elif name == TICK_TOPIC:
            stamp_ns = TICK_NUMBERS.read(entry.data)[2]
        elif name == COMMAND:
            actuators, newest = read_joint_state(entry.data)
        elif name == CHANNELS:
            ids, values = read_joint_state(entry.data)
            if len(ids) != len(values):
                raise BagError(f"{bag.path}: readings of {len(ids)} ids and {len(values)} values")
            rows.append((entry.log_ns, stamp_ns, episode, ids, values.astype(np.float32)))
            wanted.append(None)
            commands.append(newest)
            if len(rows) > MAX_TICKS:
                raise BagError(f"{bag.path}: has more than {MAX_TICKS} ticks")
        elif name == ACTION and wanted:
            actuators, wanted[-1] = read_joint_state(entry.data)
    if not rows:
        raise BagError(f"{bag.path}: has no readings of a policy node")
    ids = tuple(
        dict.fromkeys(id_ for some in dict.fromkeys(row[3] for row in rows) for id_ in some)
    )
    places = {name: place for place, name in enumerate(ids)}
    readings = np.full((len(rows), len(ids)), np.nan, np.float32)
    known: dict[tuple[str, ...], NDArray[np.intp]] = {}
    for row, (_, _, _, some, values) in enumerate(rows):
        where = known.get(some)
        if where is None:
            where = known[some] = np.array([places[name] for name in some], np.intp)
        readings[row, where] = values
    return RecordedArrays(
        ids,
        actuators,
        np.array([row[0] for row in rows], np.int64),
        np.array([row[1] for row in rows], np.int64),
        np.array([row[2] for row in rows], np.int64),
        readings,
        _stacked(wanted, len(actuators), bag),
        _stacked(commands, len(actuators), bag),
        wiring,
    )


def _stacked(rows: list[NDArray[np.float64] | None], count: int, bag: Bag) -> NDArray[np.float64]:
    """Return the rows (T, A), NaN for those that are not there."""
    stacked = np.full((len(rows), count), np.nan)
    for place, row in enumerate(rows):
        if row is not None:
            if len(row) != count:
                raise BagError(f"{bag.path}: commands of {len(row)} and of {count} actuators")
            stacked[place] = row
    return stacked


def _columns(arrays: RecordedArrays) -> dict[str, NDArray[np.generic]]:
    """Return the columns of a table, by name."""
    columns: dict[str, NDArray[np.generic]] = {
        "time_ns": arrays.time_ns,
        "episode": arrays.episode,
    }
    parts = (
        ("reading", arrays.ids, arrays.readings),
        ("wanted", arrays.actuators, arrays.wanted),
        ("command", arrays.actuators, arrays.commands),
    )
    for kind, names, values in parts:
        for place, name in enumerate(names):
            columns[f"{kind}.{name}"] = values[:, place]
    return columns


def write_csv(path: Path, arrays: RecordedArrays) -> None:
    """Write a row for each tick; what is missing is empty, every number keeps each bit."""
    columns = _columns(arrays)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in zip(*columns.values(), strict=True):
            writer.writerow("" if one != one else repr(one.item()) for one in row)


def write_parquet(path: Path, arrays: RecordedArrays) -> None:
    """Write the same as Parquet; what is missing is null. Needs pyarrow."""
    import pyarrow
    from pyarrow import parquet

    columns = {
        name: pyarrow.array(values, from_pandas=True) for name, values in _columns(arrays).items()
    }
    parquet.write_table(pyarrow.table(columns), path)
