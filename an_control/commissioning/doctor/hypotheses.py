"""Define a recording of a robot, a candidate wiring, and the mistakes that the doctor considers.

A recording keeps the raw numbers of the message fields, before scale and offset. A candidate wiring
says how to turn them into the model's readings and actions, so that two candidates can be compared
on one recording. A hypothesis is a candidate that differs from another one by a single mistake.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np


@dataclass(frozen=True)
class Recording:
    """Readings and actions of a robot over T control ticks, for N channels and A actuators.

    Args:
        ids: Ids of the N channels, in the model's order.
        raw: (T, N) numbers of the message fields, before scale and offset; NaN where missing.
        actions: (T, A) actions in [-1, 1], each sent after the readings of the same tick.
        scale: (N,) factors of the wiring file; a reading is raw * scale + offset.
        offset: (N,) offsets of the wiring file, in the unit of the readings.
        clip: (N, 2) lower and upper bounds of the readings, infinite if there are none.
        starts: (T,) True for a tick that does not follow directly from the tick before it, as after
            a reset of the robot.
        actuators: Names of the A actuators, in the model's order.
        groups: Groups of channels that one mistake is likely to affect together, such as the
            channels of one topic: their indices, by group name.
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
        starts: np.ndarray | None = None,
    ) -> Recording:
        """Make a recording from scaled readings; the raw numbers are computed from them.

        Args:
            readings: (T, N) readings, after scale and offset; NaN where missing.
            ids: Ids of the N channels.
            actions: (T, A) actions in [-1, 1].
            actuators: Names of the actuators; by default "action.0", "action.1", ...
            scale: (N,) factors with which the readings were made; by default 1.
            offset: (N,) offsets with which the readings were made; by default 0.
            starts: (T,) True for a tick that does not directly follow the tick before it; by
                default False.
        """
        count = len(ids)
        scale = np.ones(count) if scale is None else np.asarray(scale, float)
        offset = np.zeros(count) if offset is None else np.asarray(offset, float)
        starts = np.zeros(len(readings), bool) if starts is None else np.array(starts, bool)
        clip = np.tile([-np.inf, np.inf], (count, 1))
        names = tuple(actuators) or tuple(f"action.{i}" for i in range(actions.shape[1]))
        raw = (np.asarray(readings, float) - offset) / scale
        return cls(tuple(ids), raw, np.asarray(actions), scale, offset, clip, starts, names)


@dataclass(frozen=True)
class CandidateWiring:
    """A supposition of how the robot is really wired, as arrays.

    The wiring file itself is one candidate (`from_recording`). The `with_...` methods return
    changed copies. N is the number of channels, A that of actuators.

    Args:
        slots: (N,) for each channel, the index of the recorded channel that holds its signal. Two
            swapped channels 0 and 1 have (1, 0); if the wiring file is right, it is (0, 1, ...).
        scale: (N,) factors by which raw numbers are multiplied to get readings.
        offset: (N,) offsets that are then added to get readings.
        delay: (N,) ticks by which each channel is late; 0 for most.
        unusable: (N,) True for channels that carry no information: stuck, or noise only.
        motors: (A,) for each actuator, the index of the action element that moves it.
        gain: (A,) how strongly each actuator reacts, relative to what the model expects: 1 as
            expected, 0 not at all, negative in the wrong direction.
    """

    slots: np.ndarray
    scale: np.ndarray
    offset: np.ndarray
    delay: np.ndarray
    unusable: np.ndarray
    motors: np.ndarray
    gain: np.ndarray

    @classmethod
    def from_recording(cls, recording: Recording) -> CandidateWiring:
        """Return the wiring that the recording's wiring file describes, without any correction."""
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

    def with_scale_factor(self, channels: Sequence[int], factor: float) -> CandidateWiring:
        """Return a copy in which the scales of these channels are multiplied by `factor`."""
        return self._with_values("scale", channels, self.scale[list(channels)] * factor)

    def with_offset(self, channel: int, offset: float) -> CandidateWiring:
        """Return a copy in which one channel has another offset.

        Args:
            channel: Index of the channel.
            offset: The number to add after scaling.
        """
        return self._with_values("offset", [channel], offset)

    def with_delay(self, channel: int, ticks: int) -> CandidateWiring:
        """Return a copy in which one channel is later than the others by a number of ticks."""
        return self._with_values("delay", [channel], ticks)

    def with_unusable_channel(self, channel: int) -> CandidateWiring:
        """Return a copy in which one channel counts as stuck or as noise only."""
        return self._with_values("unusable", [channel], True)

    def with_permuted_channels(
        self, channels: Sequence[int], others: Sequence[int]
    ) -> CandidateWiring:
        """Return a copy in which some channels have exchanged their signals.

        For example [0, 1] and [1, 0] swap the signals of the channels 0 and 1.

        Args:
            channels: Indices of the channels.
            others: For each of these channels, the index of the channel whose signal it gets.
        """
        return self._with_values("slots", channels, self.slots[list(others)])

    def with_motor_gain(self, motors: Sequence[int], factor: float) -> CandidateWiring:
        """Return a copy with the gains of these motors multiplied by `factor`."""
        return self._with_values("gain", motors, self.gain[list(motors)] * factor)

    def with_permuted_motors(self, motors: Sequence[int], others: Sequence[int]) -> CandidateWiring:
        """Return a copy in which some motors have exchanged their commands.

        For example [0, 1] and [1, 0] swap the commands of the motors 0 and 1.

        Args:
            motors: Indices of the motors.
            others: For each of these motors, the index of the motor whose commands it gets.
        """
        return self._with_values("motors", motors, self.motors[list(others)])

    def with_values_from(
        self, other: CandidateWiring, kind: str, members: Sequence[int]
    ) -> CandidateWiring:
        """Return a copy in which some channels or motors have the values of another wiring.

        Args:
            other: The wiring from which the values are taken.
            kind: Which values are taken: the name of an attribute of this class, or "line" for
                "scale" and "offset".
            members: Indices of the channels or motors whose values are replaced.
        """
        changed = self
        for name in ("scale", "offset") if kind == "line" else (kind,):
            changed = changed._with_values(name, members, getattr(other, name)[list(members)])
        return changed

    def _with_values(self, name: str, members: Sequence[int], values: Any) -> CandidateWiring:
        """Return a copy in which a field has other values for some channels or motors."""
        changed = getattr(self, name).copy()
        changed[list(members)] = values
        return replace(self, **{name: changed})


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
"""Names of confused units, by the factor by which the readings are then too large."""
ROUND = (10.0, 0.1, 2.0, 0.5, 4.0, 0.25, 5.0, 0.2, 20.0, 0.05)
"""Round factors that are more probable than their neighbours."""
FACTORS = (1000.0, 180 / np.pi, 16.0, 10.0, 5.0, 3.0, 2.0)
"""Scale factors that are tried first, with their inverses; the best ones are refined later."""
MOTOR_FACTORS = (-1.0, 0.0, 0.1, 0.25, 0.5, 2.0, 4.0)
"""Motor gains that are tried first."""
MAX_DELAY = 3
"""Longest delay in ticks that is tried."""
MOST_CLASSES = 4
"""Maximum number of kinds of channels (position, velocity, ...) whose joint exchange is tried."""
MOST_INDICES = 8
"""Maximum number of numbered parts (such as legs) of which all exchanges are tried."""


class Hypothesis(NamedTuple):
    """A supposed mistake in the wiring, with the wiring that would correct it."""

    kind: str
    """One of: sign, scale, offset, inverted, delay, unusable, swapped, permuted, motor reversed,
    motor gain, motor dead, motors swapped, motors permuted.
    """
    members: tuple[int, ...]
    """Indices of the affected channels, or of the affected actuators if the kind begins with
    "motor".
    """
    candidate: CandidateWiring
    """The wiring that is right if the hypothesis is true."""
    name: str = ""
    """Name of the affected group, or ""."""

    @property
    def concerns_motors(self) -> bool:
        """Return whether the supposed mistake concerns motors, not sensor channels."""
        return self.kind.startswith("motor")

    def has_common_channel_or_motor(self, other: Hypothesis) -> bool:
        """Return whether both hypotheses are about the same channel or the same motor."""
        return self.concerns_motors is other.concerns_motors and bool(
            {*self.members} & {*other.members}
        )

    def get_names(self, recording: Recording) -> tuple[str, ...]:
        """Return the ids of the affected channels, or the names of the affected actuators."""
        of = recording.actuators if self.concerns_motors else recording.ids
        return tuple(of[m] for m in self.members)

    @property
    def is_group_mistake(self) -> bool:
        """Return whether one mistake affects several channels or actuators, such as a wrong unit.

        A swap of just two is not a group.
        """
        return len(self.members) > 1 and self.kind not in ("swapped", "motors swapped")

    @property
    def penalty(self) -> float:
        """Return the nats by which the correction's gain in log-likelihood is reduced.

        The penalty grows with the number of affected channels. It is larger if a number is fitted,
        such as a scale, because a fitted number always explains a little. Each channel has an
        offset of its own, but a group has one scale.
        """
        fitted = len(self.members) if self.kind == "offset" else 1
        return PENALTIES.get(self.kind, 8.0) * fitted + 0.5 * len(self.members)


PENALTIES = {"scale": 12.0, "offset": 14.0, "motor gain": 14.0, "unusable": 14.0, "delay": 12.0}
"""Penalty in nats (see `Hypothesis.penalty`) by kind of mistake; other kinds have 8."""


def find_groups_of_similar_ids(
    ids: Sequence[str], more_groups: Mapping[str, tuple[int, ...]] | None
) -> dict[str, tuple]:
    """Find groups of channels or actuators that may share one mistake, by their ids.

    Ids form a group if they share the part before the first dot ("imu.*"), the part after the last
    dot ("*.position") or their only number ("hip_1", "ankle_1"), or if only their numbers differ
    ("hip_1", "hip_2").

    Args:
        ids: Ids of channels, or names of actuators.
        more_groups: Further groups to include, such as the channels of one topic: indices into
            `ids`, by group name. None for none.

    Returns:
        The indices into `ids` of each group, by group name.
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
    groups = {name: tuple(members) for name, members in (more_groups or {}).items()}
    groups |= {name: tuple(members) for name, members in found.items()}
    unique = {members: name for name, members in groups.items() if len(members) > 1}
    return {name: members for members, name in unique.items()}


def iterate_swaps_of_robot_parts(
    ids: Sequence[str], groups: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """Yield exchanges of whole parts of a robot that a wrong wiring may contain, such as two legs.

    Parts are found by numbers (legs 1 to 4) or words (left and right) in the ids. An exchange
    concerns all channels of two or more parts, only some kinds of them, such as positions, or only
    those in one of `groups`.

    Args:
        ids: Ids of channels, or names of actuators.
        groups: The indices into `ids` of each group, by group name; see
            `find_groups_of_similar_ids`.

    Yields:
        A description, such as "1 and 2 exchanged (position)"; the indices of the exchanged channels
        or actuators; and for each of these, the index of the one whose place it takes.
    """
    families: dict[tuple[str, ...], dict[str, dict[str, int]]] = {}
    patterns: dict[str, dict[str, int]] = {}
    for number, id_ in enumerate(ids):
        for pattern, index in _iterate_id_patterns_and_parts(id_):
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
            for to, text in _iterate_permutations_with_descriptions(indices):
                channels = tuple(one[i] for one in selected for i in indices if to[i] != i)
                others = tuple(one[to[i]] for one in selected for i in indices if to[i] != i)
                if len(channels) > 2 and (channels, others) not in seen:
                    seen.add((channels, others))
                    yield f"{text} ({name})", channels, others


def _iterate_id_patterns_and_parts(id_: str) -> Iterator[tuple[str, str]]:
    """Yield (pattern, part) for each number, or word such as "left" or "front", in an id.

    The part is this number or word. The pattern is the id with a placeholder instead of the part:
    "leg_1.knee" gives ("leg_*.knee", "1").
    """
    for match in re.finditer(r"\d+", id_):
        yield f"{id_[: match.start()]}*{id_[match.end() :]}", match.group()
    for match in re.finditer(r"left|right|front|rear|back", id_, re.IGNORECASE):
        side = match.group().lower()
        kind = "*side" if side in ("left", "right") else "*end"
        yield f"{id_[: match.start()]}{kind}{id_[match.end() :]}", side


def _iterate_permutations_with_descriptions(
    parts: tuple[str, ...],
) -> Iterator[tuple[dict[str, str], str]]:
    """Yield probable permutations of a robot's parts: rotations, exchanges of two, and reversal.

    Each is a mapping from each part to the part whose place it takes, with a description.
    """
    count = len(parts)
    for turn in range(1, count):
        to = {i: parts[(place + turn) % count] for place, i in enumerate(parts)}
        yield to, f"rotated by {turn}" if count > 2 else f"{parts[0]} and {parts[1]} exchanged"
    if count > 2:
        for one, two in combinations(parts, 2):
            yield {i: {one: two, two: one}.get(i, i) for i in parts}, f"{one} and {two} exchanged"
    if count > 3:
        yield dict(zip(parts, reversed(parts), strict=True)), "reversed"
