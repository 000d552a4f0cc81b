"""How a robot's signals may be wired, and which faults of a wiring are tried.

A recording holds raw readings, as the fields of the messages carry them. `Wires` say what a model
would read and command through a wiring with these numbers; a fault is another set of wires.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True)
class Recording:
    """What a robot read and was commanded, tick by tick.

    Args:
        ids: the N channels, in the model's order.
        raw: (T, N) what their fields carried, before scale and offset; NaN where missing.
        actions: (T, A) the action that followed the readings of the same tick, in [-1, 1].
        scale, offset: (N,) as they are wired: a reading is raw * scale + offset.
        clip: (N, 2) bounds of the readings, infinite where there are none.
        starts: (T,) True where a tick does not follow from the one before, as after a reset.
        groups: channels that are likely to be wrong together, such as those of one source.
    """

    ids: tuple[str, ...]
    raw: np.ndarray
    actions: np.ndarray
    scale: np.ndarray
    offset: np.ndarray
    clip: np.ndarray
    starts: np.ndarray
    actuators: tuple[str, ...] = ()
    groups: Mapping[str, tuple[int, ...]] | None = None

    @classmethod
    def from_readings(
        cls,
        readings: np.ndarray,
        ids: Sequence[str],
        actions: np.ndarray,
        *,
        actuators: Sequence[str] = (),
        scale: np.ndarray | None = None,
        offset: np.ndarray | None = None,
        clip: np.ndarray | None = None,
        starts: np.ndarray | None = None,
        groups: Mapping[str, tuple[int, ...]] | None = None,
    ) -> Recording:
        """Return a recording of readings (T, N) that a wiring of this scale and offset made."""
        count = len(ids)
        scale = np.ones(count) if scale is None else np.asarray(scale, float)
        offset = np.zeros(count) if offset is None else np.asarray(offset, float)
        starts = np.zeros(len(readings), bool) if starts is None else np.array(starts, bool)
        clip = np.tile([-np.inf, np.inf], (count, 1)) if clip is None else np.asarray(clip, float)
        names = tuple(actuators) or tuple(f"action.{i}" for i in range(actions.shape[1]))
        raw = (np.asarray(readings, float) - offset) / scale
        return cls(tuple(ids), raw, np.asarray(actions), scale, offset, clip, starts, names, groups)


@dataclass(frozen=True)
class Wires:
    """One set of wires; as the recording was made, or as it may have to be.

    Args:
        slots: (N,) the channel of the recording whose field feeds each channel.
        scale, offset: (N,) of the readings.
        delay: (N,) ticks by which a channel is late.
        unusable: (N,) channels whose readings tell nothing: stuck, or noise only.
        motors: (A,) the element of the action that moves each actuator.
        gain: (A,) by which the robot acts more than was commanded; negative where reversed.
    """

    slots: np.ndarray
    scale: np.ndarray
    offset: np.ndarray
    delay: np.ndarray
    unusable: np.ndarray
    motors: np.ndarray
    gain: np.ndarray

    @classmethod
    def from_recording(cls, recording: Recording) -> Wires:
        """Return the wires as they are configured."""
        count, actions = len(recording.ids), recording.actions.shape[1]
        return cls(
            np.arange(count),
            recording.scale,
            recording.offset,
            np.zeros(count, int),
            np.zeros(count, bool),
            np.arange(actions),
            np.ones(actions),
        )

    def scaled(self, channels: Sequence[int], factor: float) -> Wires:
        """Return the wires with the scale of these channels times a factor."""
        scale = self.scale.copy()
        scale[list(channels)] *= factor
        return replace(self, scale=scale)

    def shifted(self, channel: int, offset: float) -> Wires:
        """Return the wires with another offset of a channel."""
        offsets = self.offset.copy()
        offsets[channel] = offset
        return replace(self, offset=offsets)

    def delayed(self, channel: int, ticks: int) -> Wires:
        """Return the wires with a channel that is late by so many ticks."""
        delay = self.delay.copy()
        delay[channel] = ticks
        return replace(self, delay=delay)

    def without(self, channel: int) -> Wires:
        """Return the wires with a channel that tells nothing."""
        unusable = self.unusable.copy()
        unusable[channel] = True
        return replace(self, unusable=unusable)

    def permuted(self, channels: Sequence[int], others: Sequence[int]) -> Wires:
        """Return the wires with these channels fed by what feeds the others now."""
        slots = self.slots.copy()
        slots[list(channels)] = self.slots[list(others)]
        return replace(self, slots=slots)

    def driven(self, motors: Sequence[int], factor: float) -> Wires:
        """Return the wires with the gain of these motors times a factor."""
        gain = self.gain.copy()
        gain[list(motors)] *= factor
        return replace(self, gain=gain)

    def crossed(self, motors: Sequence[int], others: Sequence[int]) -> Wires:
        """Return the wires with these motors moved by the others' actions."""
        moved = self.motors.copy()
        moved[list(motors)] = self.motors[list(others)]
        return replace(self, motors=moved)


UNITS = {
    180.0 / np.pi: "degrees instead of radians",
    np.pi / 180.0: "radians instead of degrees",
    1000.0: "thousandths, such as millimetres instead of metres",
    0.001: "thousands, such as metres instead of millimetres",
    30.0 / np.pi: "revolutions per minute instead of radians per second",
    np.pi / 30.0: "radians per second instead of revolutions per minute",
    2.0 * np.pi: "radians instead of turns",
    0.5 / np.pi: "turns instead of radians",
    9.80665: "m/s^2 instead of g",
    1.0 / 9.80665: "g instead of m/s^2",
    100.0: "hundredths, such as centimetres instead of metres",
    0.01: "hundreds, such as metres instead of centimetres",
}
"""By how many times too large a reading is, what its unit may be."""
ROUND = (10.0, 0.1, 2.0, 0.5, 4.0, 0.25, 5.0, 0.2, 20.0, 0.05)
"""Other factors that are likelier than those near them."""
FACTORS = (1000.0, 180 / np.pi, 16.0, 10.0, 5.0, 3.0, 2.0)
"""Factors that are tried at first, their inverses too; what is found is refined."""
MOTOR_FACTORS = (-1.0, 0.0, 0.1, 0.25, 0.5, 2.0, 4.0)
MAX_DELAY = 3
"""Ticks."""
MOST_CLASSES = 4
"""Kinds of channels of a part, such as positions, that may change places together."""
MOST_INDICES = 8
"""Numbered parts, such as legs, of which all exchanges are tried."""


class Hypothesis(NamedTuple):
    """A fault that may explain the recording."""

    kind: str
    """sign, scale, offset, inverted, delay, unusable, swapped, permuted, motor reversed, motor
    gain, motor dead, motors swapped, motors permuted."""
    members: tuple[int, ...]
    """Channels, or for a kind that begins with "motor" actuators."""
    wires: Wires
    """As they would have to be."""
    name: str = ""
    """Of the group, where it is one."""

    @property
    def of_motors(self) -> bool:
        """Return whether it concerns motors."""
        return self.kind.startswith("motor")

    @property
    def of_group(self) -> bool:
        """Return whether several channels share one correction."""
        return len(self.members) > 1 and self.kind not in ("swapped", "motors swapped")

    @property
    def penalty(self) -> float:
        """Return the nats that it must explain beside its evidence, for what it assumes."""
        return PENALTIES.get(self.kind, 8.0) + 0.5 * len(self.members)


PENALTIES = {"scale": 12.0, "offset": 14.0, "motor gain": 14.0, "unusable": 14.0, "delay": 12.0}


def groups_of(ids: Sequence[str], given: Mapping[str, tuple[int, ...]] | None) -> dict[str, tuple]:
    """Return groups of channels that one mistake may concern, by name: two channels or more.

    Those that are given, those that share the first or the last part of their ids or the one number
    in them, and those whose ids differ in a number alone.
    """
    found: dict[str, list[int]] = {}
    for number, id_ in enumerate(ids):
        first, _, _ = id_.partition(".")
        _, _, last = id_.rpartition(".")
        for name in {f"{first}.*", f"*.{last}", re.sub(r"\d+", "*", id_)} - {id_}:
            found.setdefault(name, []).append(number)
        numbers = re.findall(r"\d+", id_)
        if len(numbers) == 1:
            found.setdefault(f"part {numbers[0]}", []).append(number)
    groups = {name: tuple(members) for name, members in (given or {}).items()}
    groups |= {name: tuple(members) for name, members in found.items()}
    unique = {members: name for name, members in groups.items() if len(members) > 1}
    return {name: members for members, name in unique.items()}


def exchanges(
    ids: Sequence[str], groups: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """Yield whole parts of a robot that may be exchanged, as (name, channels, what feeds them).

    Parts are numbered (legs 1 to 4) or named left and right; all their channels change places, or
    those that are also in a group.
    """
    families: dict[tuple[str, ...], dict[str, dict[str, int]]] = {}
    patterns: dict[str, dict[str, int]] = {}
    for number, id_ in enumerate(ids):
        for pattern, index in _indexed(id_):
            patterns.setdefault(pattern, {})[index] = number
    for pattern, by_index in patterns.items():
        if 2 <= len(by_index) <= MOST_INDICES:
            families.setdefault(tuple(sorted(by_index)), {})[pattern] = by_index
    seen = set()
    for indices, family in families.items():
        selections = [(pattern, [one]) for pattern, one in family.items()]
        for part in (0, -1):
            classes: dict[str, list[dict[str, int]]] = {}
            for pattern, one in family.items():
                classes.setdefault(pattern.split(".")[part].replace("*", ""), []).append(one)
            for count in range(1, min(len(classes), MOST_CLASSES) + 1):
                for chosen in combinations(classes, count):
                    selected = [one for name in chosen for one in classes[name]]
                    selections.append((", ".join(chosen), selected))
        for name, members in groups.items():
            inside = [one for one in family.values() if set(one.values()) <= set(members)]
            selections.append((name, inside))
        for name, selected in selections:
            for to, text in _moves(indices):
                channels = tuple(one[i] for one in selected for i in indices if to[i] != i)
                others = tuple(one[to[i]] for one in selected for i in indices if to[i] != i)
                if len(channels) > 2 and (channels, others) not in seen:
                    seen.add((channels, others))
                    yield f"{text} ({name})", channels, others


def _indexed(id_: str) -> Iterator[tuple[str, str]]:
    """Yield each way to take a number or a side out of an id, as (pattern, number or side)."""
    for match in re.finditer(r"\d+", id_):
        yield f"{id_[: match.start()]}*{id_[match.end() :]}", match.group()
    for match in re.finditer(r"left|right|front|rear|back", id_, re.IGNORECASE):
        side = match.group().lower()
        kind = "*side" if side in ("left", "right") else "*end"
        yield f"{id_[: match.start()]}{kind}{id_[match.end() :]}", side


def _moves(indices: tuple[str, ...]) -> Iterator[tuple[dict[str, str], str]]:
    """Yield rotations, exchanges of two and the reverse of numbered parts, with a text."""
    count = len(indices)
    for turn in range(1, count):
        to = {i: indices[(place + turn) % count] for place, i in enumerate(indices)}
        yield to, f"rotated by {turn}" if count > 2 else f"{indices[0]} and {indices[1]} exchanged"
    if count > 2:
        for one, two in combinations(indices, 2):
            yield {i: {one: two, two: one}.get(i, i) for i in indices}, f"{one} and {two} exchanged"
    if count > 3:
        yield dict(zip(indices, reversed(indices), strict=True)), "reversed"
