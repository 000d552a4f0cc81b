"""What readings alone say of a wiring, without any model: rates against the change of positions.

A velocity must be what its position changes by, a gyro what the attitude turns by; and what moves
must not read the same all the time. Only raw fields count, as the messages carry them, in SI units.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from an_control.commissioning.doctor.wires import UNITS
from an_control.wiring.config import ChannelConfig

WINDOW_S = 0.1
"""Time over which a change is compared with the mean rate."""
MIN_WINDOWS = 20
MIN_CORRELATION = 0.8
"""Correlation from which on two channels belong together."""
MAX_CORRELATION = 0.3
"""Correlation up to which they do not."""
MIN_MOVE = 0.02
"""Change in rad or m, in the median of the windows that move most, below which nothing is said."""
FACTOR = 1.4
"""Factor between a rate and the change from which on a unit is wrong."""
LEVELS = 6
"""Different values up to which a channel that changes is quantised."""
CHANGES = 60
"""Changes of a channel from which on the number of its values tells something."""
ANGLES = {"roll": "x", "pitch": "y", "yaw": "z"}


class Series(NamedTuple):
    """Raw readings (T, N) of the channels `ids` at `times_s` (T,); NaN where missing."""

    ids: tuple[str, ...]
    times_s: np.ndarray
    raw: np.ndarray


def check_series(series: Series, configs: Mapping[str, ChannelConfig]) -> list[str]:
    """Return what is wrong by the readings alone, a sentence each.

    Args:
        series: recorded while the robot moved.
        configs: of the channels, by id.
    """
    fields = {
        (configs[id_].source, configs[id_].field): place
        for place, id_ in enumerate(series.ids)
        if id_ in configs
    }
    pairs = list(_pairs(fields))
    return [*_compared(series, pairs), *_quantised(series)]


def _pairs(fields: Mapping[tuple[str, str], int]) -> Sequence[tuple[int, int]]:
    """Return the places of a position and of its rate, of all channels that have both."""
    found = []
    for (source, field), place in fields.items():
        rate = None
        if match := re.fullmatch(r"(.*)position(\[.+\])", field):
            rate = f"{match[1]}velocity{match[2]}"
        elif match := re.fullmatch(r"(yaw)\((.*)orientation\)", field):
            # only of yaw: roll and pitch turn by the gyro alone where the robot is upright
            rate = f"angular_velocity.{ANGLES[match[1]]}"
            rate = f"twist.twist.angular.{ANGLES[match[1]]}" if "pose" in match[2] else rate
        if rate is not None and (source, rate) in fields:
            found.append((place, fields[source, rate]))
    return found


def _compared(series: Series, pairs: Sequence[tuple[int, int]]) -> list[str]:
    """Return what is wrong with rates, compared with the change of their positions."""
    if not pairs or len(series.times_s) < 3:
        return []
    step_s = float(np.median(np.diff(series.times_s)))
    ticks = max(2, round(WINDOW_S / step_s)) if step_s > 0.0 else 2
    moved = {p: _change(series, p, ticks) for p, _ in pairs}
    turned = {v: _integral(series, v, ticks) for _, v in pairs}
    said, names = [], series.ids
    for position, velocity in pairs:
        change, integral = moved[position], turned[velocity]
        known = ~np.isnan(change) & ~np.isnan(integral)
        if np.count_nonzero(known) < MIN_WINDOWS or _size(change[known]) < MIN_MOVE:
            continue
        if not np.ptp(integral[known]):
            said.append(f"channel {names[velocity]}: always reads the same while"
                        f" {names[position]} moves")  # fmt: skip
            continue
        together = _correlation(change, integral)
        if together < -MIN_CORRELATION:
            said.append(f"channel {names[velocity]}: has the opposite sign of the change of"
                        f" {names[position]}: one of the two is reversed")  # fmt: skip
        elif together < MAX_CORRELATION:
            others = {v: _correlation(change, turned[v]) for v in turned if v != velocity}
            best = max(others, key=lambda v: abs(others[v]), default=None)
            if best is not None and abs(others[best]) > MIN_CORRELATION:
                said.append(f"channel {names[velocity]}: is not the rate of {names[position]};"
                            f" {names[best]} is: two fields are swapped")  # fmt: skip
            continue
        if abs(together) < MIN_CORRELATION:
            continue
        factor = _size(integral[known]) / _size(change[known])
        if max(factor, 1.0 / factor) > FACTOR:
            units = [text for unit, text in UNITS.items() if abs(np.log(factor / unit)) < 0.2]
            hint = f": {units[0]}" if units else ""
            said.append(f"channel {names[velocity]}: is {factor:.3g} times the change of"
                        f" {names[position]}{hint}")  # fmt: skip
    return said


def _change(series: Series, place: int, ticks: int) -> np.ndarray:
    values = series.raw[:, place]
    found: np.ndarray = values[ticks:] - values[:-ticks]
    found[np.abs(found) > np.pi] = np.nan  # an angle that jumps by a turn
    return found


def _integral(series: Series, place: int, ticks: int) -> np.ndarray:
    values, step_s = series.raw[:, place], np.diff(series.times_s)
    area = np.append(0.0, np.cumsum(0.5 * (values[1:] + values[:-1]) * step_s))
    found: np.ndarray = area[ticks:] - area[:-ticks]
    return found


def _size(changes: np.ndarray) -> float:
    """Return how large the larger half of some changes is."""
    sizes = np.sort(np.abs(changes))
    return float(np.median(sizes[len(sizes) // 2 :]))


def _correlation(one: np.ndarray, other: np.ndarray) -> float:
    known = ~np.isnan(one) & ~np.isnan(other)
    one, other = one[known], other[known]
    if len(one) < MIN_WINDOWS or not one.std() or not other.std():
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])


def _quantised(series: Series) -> list[str]:
    """Return which channels change, but only between a few values that are not 0 and 1."""
    said = []
    for place, id_ in enumerate(series.ids):
        values = np.unique(series.raw[~np.isnan(series.raw[:, place]), place])
        changes = np.count_nonzero(np.diff(series.raw[:, place]))
        if 2 < len(values) <= LEVELS and changes > CHANGES:
            said.append(f"channel {id_}: reads only {len(values)} different values: is it rounded?")
    return said
