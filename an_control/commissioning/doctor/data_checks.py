"""Check readings against each other, without a model: rates against the change of positions.

A velocity must equal the change of its position, and a gyro the change of the attitude; a channel
that moves must not always read the same. The checks use the raw numbers of the message fields,
which are in SI units.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from an_control.commissioning.doctor.hypotheses import UNITS
from an_control.wiring.config import ChannelConfig

WINDOW_S = 0.1
"""Time over which a change of position is compared with the mean rate."""
MIN_WINDOWS = 20
"""Minimum number of windows of `WINDOW_S` for a comparison."""
MIN_CORRELATION = 0.8
"""Correlation from which on two channels belong together."""
MAX_CORRELATION = 0.3
"""Correlation up to which two channels do not belong together."""
MIN_MOVE = 0.02
"""Minimum typical change of a position in a window, in rad or m, for a comparison."""
FACTOR = 1.4
"""Ratio of rate and change from which on a unit is wrong."""
LEVELS = 6
"""Maximum number of different values of a channel that counts as rounded."""
CHANGES = 60
"""Minimum number of changes of a channel that counts as rounded."""
ANGLES = {"roll": "x", "pitch": "y", "yaw": "z"}
"""Axis of the rate that belongs to each angle."""


class Series(NamedTuple):
    """Unscaled readings of N channels at T times.

    Args:
        ids: Ids of the channels.
        times_s: (T,) times of the readings in seconds.
        raw: (T, N) numbers of the message fields, before scale and offset; NaN where missing.
    """

    ids: tuple[str, ...]
    times_s: np.ndarray
    raw: np.ndarray


def describe_inconsistent_readings(
    series: Series, configs: Mapping[str, ChannelConfig]
) -> list[str]:
    """Find mistakes in a robot's wiring by checking the readings against each other.

    A velocity must be the rate of change of its position, and a moving channel must not be rounded
    to a few values. No model is needed.

    Args:
        series: Readings that were recorded while the robot moved.
        configs: The wiring's entry for each channel, by id.

    Returns:
        One sentence for each mistake, such as "channel hip_1.velocity: has the opposite sign of the
        change of hip_1.position: one of the two is reversed".
    """
    fields = {
        (configs[id_].source, configs[id_].field): place
        for place, id_ in enumerate(series.ids)
        if id_ in configs
    }
    pairs = list(_find_position_rate_pairs_by_field(fields))
    return [*_describe_wrong_rates(series, pairs), *_describe_quantised_channels(series)]


def _find_position_rate_pairs_by_field(
    fields: Mapping[tuple[str, str], int],
) -> Sequence[tuple[int, int]]:
    """Find pairs (index of a position, index of its rate), by the field names of the channels.

    `fields` has the index of each channel by the pair (source, field).
    """
    found = []
    for (source, field), place in fields.items():
        rate = None
        if match := re.fullmatch(r"(.*)position(\[.+\])", field):
            rate = f"{match[1]}velocity{match[2]}"
        elif match := re.fullmatch(r"(yaw)\((.*)orientation\)", field):
            # Only for yaw: the rates of roll and pitch equal the gyro's only on an upright robot.
            rate = f"angular_velocity.{ANGLES[match[1]]}"
            rate = f"twist.twist.angular.{ANGLES[match[1]]}" if "pose" in match[2] else rate
        if rate is not None and (source, rate) in fields:
            found.append((place, fields[source, rate]))
    return found


def _describe_wrong_rates(series: Series, pairs: Sequence[tuple[int, int]]) -> list[str]:
    """Return one sentence for each rate that does not fit the changes of its position."""
    if not pairs or len(series.times_s) < 3:
        return []
    step_s = float(np.median(np.diff(series.times_s)))
    ticks = max(2, round(WINDOW_S / step_s)) if step_s > 0.0 else 2
    moved = {p: _compute_position_changes(series, p, ticks) for p, _ in pairs}
    turned = {v: _compute_rate_integral(series, v, ticks) for _, v in pairs}
    said, names = [], series.ids
    for position, velocity in pairs:
        change, integral = moved[position], turned[velocity]
        known = ~np.isnan(change) & ~np.isnan(integral)
        if (
            np.count_nonzero(known) < MIN_WINDOWS
            or _compute_typical_change(change[known]) < MIN_MOVE
        ):
            continue
        if not np.ptp(integral[known]):
            said.append(f"channel {names[velocity]}: always reads the same while"
                        f" {names[position]} moves")  # fmt: skip
            continue
        together = _compute_correlation(change, integral)
        if together < -MIN_CORRELATION:
            said.append(f"channel {names[velocity]}: has the opposite sign of the change of"
                        f" {names[position]}: one of the two is reversed")  # fmt: skip
        elif together < MAX_CORRELATION:
            others = {v: _compute_correlation(change, turned[v]) for v in turned if v != velocity}
            best = max(others, key=lambda v: abs(others[v]), default=None)
            if best is not None and abs(others[best]) > MIN_CORRELATION:
                said.append(f"channel {names[velocity]}: is not the rate of {names[position]};"
                            f" {names[best]} is: two fields are swapped")  # fmt: skip
            continue
        if abs(together) < MIN_CORRELATION:
            continue
        factor = _compute_typical_change(integral[known]) / _compute_typical_change(change[known])
        if max(factor, 1.0 / factor) > FACTOR:
            units = [text for unit, text in UNITS.items() if abs(np.log(factor / unit)) < 0.2]
            hint = f": {units[0]}" if units else ""
            said.append(f"channel {names[velocity]}: is {factor:.3g} times the change of"
                        f" {names[position]}{hint}")  # fmt: skip
    return said


def _compute_position_changes(series: Series, column: int, ticks: int) -> np.ndarray:
    """Return (T - ticks,) by how much a position changes within `ticks` ticks, from each tick on.

    A change of more than pi is NaN, because an angle has then jumped by a full turn.
    """
    values = series.raw[:, column]
    found: np.ndarray = values[ticks:] - values[:-ticks]
    found[np.abs(found) > np.pi] = np.nan  # an angle that jumps by a turn
    return found


def _compute_rate_integral(series: Series, column: int, ticks: int) -> np.ndarray:
    """Return (T - ticks,) the integral of a rate over `ticks` ticks, from each tick on.

    It is NaN if a reading is missing in these ticks.
    """
    values, step_s = series.raw[:, column], np.diff(series.times_s)
    areas = 0.5 * (values[1:] + values[:-1]) * step_s
    area = np.append(0.0, np.nancumsum(areas))
    missing = np.append(0, np.cumsum(np.isnan(areas)))
    found: np.ndarray = area[ticks:] - area[:-ticks]
    found[missing[ticks:] > missing[:-ticks]] = np.nan
    return found


def _compute_typical_change(changes: np.ndarray) -> float:
    """Return the median of the larger half of the absolute changes."""
    sizes = np.sort(np.abs(changes))
    return float(np.median(sizes[len(sizes) // 2 :]))


def _compute_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Return the correlation of two arrays (T,), in which NaN is left out.

    It is 0 if too few pairs of values are known, or if an array is constant.
    """
    known = ~np.isnan(first) & ~np.isnan(second)
    first, second = first[known], second[known]
    if len(first) < MIN_WINDOWS or not first.std() or not second.std():
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])


def _describe_quantised_channels(series: Series) -> list[str]:
    """Return one sentence for each channel that reads only a few different values.

    Channels that read only two values are left out, because they may be binary.
    """
    said = []
    for place, id_ in enumerate(series.ids):
        values = np.unique(series.raw[~np.isnan(series.raw[:, place]), place])
        changes = np.count_nonzero(np.nan_to_num(np.diff(series.raw[:, place])))
        if 2 < len(values) <= LEVELS and changes > CHANGES:
            said.append(f"channel {id_}: reads only {len(values)} different values: is it rounded?")
    return said
