"""Convert recorded readings and commands to arrays, for diagnosis, training and export."""

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
    GATE_NUMBERS,
    GATE_TOPIC,
    NONE,
    TICK_NUMBERS,
    TICK_TOPIC,
    TYPES,
    BagError,
    CommandKind,
    decode_event,
    decode_joint_state,
)
from an_control.record.reader import Bag, make_two_nodes_error

MAX_TICKS = 20_000_000
"""Maximum number of ticks; a longer recording is refused, as it would not fit into memory."""


@dataclass(frozen=True)
class RecordedArrays:
    """Readings and commands of T recorded ticks (control steps), of N channels and A actuators.

    Attributes:
        ids: Ids of the channels (N).
        actuators: Names of the actuators (A).
        time_ns: Time of day of each tick (T,) in ns.
        stamp_ns: Simulated time of each tick (T,) in ns if simulator and node ran in lockstep;
            otherwise -1.
        episode: Number of the episode of each tick (T,), from 0; a reset or an activation starts a
            new one. Ticks of the inactive node belong to no episode: -1 in the first period of
            inactivity, -2 in the second and so on. But if the node was never active in the whole
            recording, its ticks are numbered like the ticks of episodes.
        readings: Readings of the channels, float32 (T, N); NaN if a channel was missing.
        wanted: Commands of the policy, before limits, float64 (T, A) in physical units; NaN before
            the first one.
        commands: Newest command on the robot's topics at the end of each tick, before the next one
            begins, float64 (T, A) in physical units. Usually the node sent it in this tick, but
            another node may have sent one after that. If none was sent in the tick, it is the
            newest one of earlier ticks, or NaN before the first one. Commands that were only
            proposed (in shadow mode) do not count.
        wiring: Text of the wiring file, which says where readings come from and commands go.
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
    """Read a policy node's recording into arrays, without ROS.

    Args:
        bag: The recording.

    Raises:
        BagError: The bag cannot be read, or is not a recording of a policy node whose channels are
            numbers (images are not recorded as readings).
    """
    rows: list[tuple[int, int, int, tuple[str, ...], NDArray[np.float32]]] = []
    active_parts: set[int] = set()
    stamp_ns = NONE
    wanted: list[NDArray[np.float64] | None] = []
    commands: list[NDArray[np.float64] | None] = []
    actuators: tuple[str, ...] = ()
    newest: NDArray[np.float64] | None = None
    node, part, wiring = "", 0, ""
    is_active = False
    kind, was_sent = int(CommandKind.POLICY), True  # of the next command
    is_between_ticks = False
    for entry in bag.iterate_entries():
        if entry.topic.endswith(f"/{EVENTS}") and entry.type == TYPES[EVENTS]:
            node, before = entry.topic.removesuffix(EVENTS), node
            if before not in ("", node):
                raise make_two_nodes_error(bag, before, node)
        if not node or not entry.topic.startswith(node):
            continue
        name = entry.topic.removeprefix(node)
        if TYPES.get(name) != entry.type:
            continue
        if name == EVENTS:
            event = decode_event(entry.data)
            change = event["event"]
            if change in ("activate", "deactivate"):
                is_active = change == "activate"
            if change == "wiring":
                wiring = wiring or str(event.get("text", ""))
            if entry.sequence:  # only repeated, at the start of a file
                continue
            if change in ("reset", "activate", "deactivate"):
                part += bool(rows) and rows[-1][2] == part
        elif name == TICK_TOPIC:
            stamp_ns = TICK_NUMBERS.decode_numbers(entry.data)[2]
            is_between_ticks = False
        elif name == GATE_TOPIC:
            kind, *_, number = GATE_NUMBERS.decode_numbers(entry.data)[:5]
            was_sent = number != NONE
        elif name == COMMAND and was_sent:
            actuators, newest = decode_joint_state(entry.data)
            if kind == CommandKind.OTHER and is_between_ticks:
                commands[-1] = newest
        elif name == CHANNELS:
            ids, values = decode_joint_state(entry.data)
            if len(ids) != len(values):
                raise BagError(f"{bag.path}: readings of {len(ids)} ids and {len(values)} values")
            rows.append((entry.log_ns, stamp_ns, part, ids, values.astype(np.float32)))
            if is_active:
                active_parts.add(part)
            wanted.append(None)
            commands.append(newest)
            is_between_ticks = True
            if len(rows) > MAX_TICKS:
                raise BagError(f"{bag.path}: has more than {MAX_TICKS} ticks")
        elif name == ACTION and wanted:
            actuators, wanted[-1] = decode_joint_state(entry.data)
    if not rows:
        why = bag.format_first_notes()
        raise BagError(f"{bag.path}: has no readings of a policy node{why}")
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
        _number_episodes([row[2] for row in rows], active_parts),
        readings,
        _stack_commands(wanted, len(actuators), bag),
        _stack_commands(commands, len(actuators), bag),
        wiring,
    )


def _number_episodes(parts: list[int], active_parts: set[int]) -> NDArray[np.int64]:
    """Return the number of the episode of each tick (T,).

    Args:
        parts: Number of the part of the recording to which each of the T ticks belongs; a reset, an
            activation and a deactivation each start a new part if the present one has ticks.
        active_parts: Parts in which the node was active. They are the episodes, with the numbers 0,
            1 and so on; the other parts get -1, -2 and so on. If there are none, all parts are
            episodes.
    """
    numbers: dict[int, int] = {}
    counts = {True: 0, False: 0}
    for part in dict.fromkeys(parts):
        is_episode = part in active_parts or not active_parts
        counts[is_episode] += 1
        numbers[part] = counts[is_episode] - 1 if is_episode else -counts[is_episode]
    return np.array([numbers[part] for part in parts], np.int64)


def _stack_commands(
    rows: list[NDArray[np.float64] | None], actuator_count: int, bag: Bag
) -> NDArray[np.float64]:
    """Return the commands of T ticks as one array (T, A).

    A tick without a command becomes a row of NaN. Raise BagError if the numbers of actuators
    differ.
    """
    stacked = np.full((len(rows), actuator_count), np.nan)
    for place, row in enumerate(rows):
        if row is not None:
            if len(row) != actuator_count:
                raise BagError(
                    f"{bag.path}: commands of {len(row)} and of {actuator_count} actuators"
                )
            stacked[place] = row
    return stacked


def _make_table_columns(arrays: RecordedArrays) -> dict[str, NDArray[np.generic]]:
    """Return a recording as the columns of a table: a mapping from column name to T values."""
    columns: dict[str, NDArray[np.generic]] = {
        "time_ns": arrays.time_ns,
        "episode": np.where(arrays.episode < 0, None, arrays.episode),  # type: ignore[call-overload]
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
    """Write the recording as CSV with one row for each tick.

    A missing value is an empty cell. Each number has all digits that are needed to read exactly
    this number back.

    Args:
        path: Path of the file to write.
        arrays: The recording.
    """
    columns = _make_table_columns(arrays)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in zip(*columns.values(), strict=True):
            writer.writerow(map(_format_cell, row))


def _format_cell(value: np.generic | int | None) -> str:
    """Return a value of a table as text from which exactly it can be read; "" if it is missing."""
    if value is None or value != value:
        return ""
    return repr(value.item() if isinstance(value, np.generic) else value)


def write_parquet(path: Path, arrays: RecordedArrays) -> None:
    """Write the recording as Parquet with one row for each tick; needs pyarrow.

    A missing value is null.

    Args:
        path: Path of the file to write.
        arrays: The recording.
    """
    import pyarrow
    from pyarrow import parquet

    columns = {
        name: pyarrow.array(values, from_pandas=True)
        for name, values in _make_table_columns(arrays).items()
    }
    parquet.write_table(pyarrow.table(columns), path)
