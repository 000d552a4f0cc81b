"""Find which sensors respond to which actuator, in which direction, how much and how late.

Three ideas, none of which needs a model of the robot:

- **Pairing.** The part of a reading that a linear system could make of the command (the command,
  its derivative and its integrals) is the response. A joint's own motor moves its sensor more than
  the other motors do, and more than it moves the other sensors.
- **Sign and delay.** A motor can only put energy into a robot at rest. So the work, the sum of
  command times movement, is positive from the first moment on, whatever holds the joint; a reversed
  motor or sensor makes it negative. Where an unknown delay of the sensor could turn that round, the
  response is compared with those of masses, dampers and springs of many sizes, each delayed by 0,
  1, 2, ... ticks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from an_control.commissioning.motion.run import MotionRecording

TAIL_TICKS = 8
"""Ticks after an actuator's motion that still belong to its response."""
MIN_RATIO = 3.0
"""A response must be this many times as large as the robot's swinging just before."""
TREND_ORDER, BEFORE_ORDER, SWING_ORDER = 5, 3, 10
"""Numbers of terms of polynomials of time. With TREND_ORDER terms, drift and slow swinging are
removed during an actuator's motion, and with BEFORE_ORDER terms in the rest before it, which is
half as long. One with SWING_ORDER terms follows all swinging in that rest, but not the noise."""
MIN_F = 4.0
"""Minimum F statistic of a response: explained variance over remaining variance, each divided by
its degrees of freedom."""
MIN_RESPONSE = 1e-3
"""Minimum response in the unit of the readings, which are of the order of 1 for most policies."""
MIN_SHARE = 0.6
"""Minimum `Pair.share` from which an actuator and a sensor are paired."""
MIN_PART = 0.2
"""A response that is smaller than this share of the largest one is a mere reaction to the movement
of another joint."""
FIRST_PART = 0.3
"""The sign of the work counts as soon as it exceeds this share of its largest absolute value."""
MIN_WORK = 4.0
"""Minimum work, in standard deviations of the work that noise alone gives."""
MAX_DELAY = 6
"""Longest delay, in ticks, that is considered."""
DELAY_SHARE = 1.0 / 18.0
"""Longest delay that is considered, as a share of the duration of an actuator's motion. If this has
three cycles, it is a sixth of a cycle; a delay of a quarter would look like another sign."""
MIN_FIT = 0.99
"""Minimum share of a response's variance that a fitted mass with damper and spring must explain for
its delay to be reported."""
MIN_SIGN_FIT = 0.8
"""Minimum share of the variance that a fitted system must explain for the sign of its response to
count."""
SIGN_RATIO = 1.5
"""The better of the fits with both signs counts if the other one leaves at least this many times as
much variance unexplained."""
BEST_FIT = 1.1
"""The shortest delay is taken whose error is at most this many times the smallest error."""


@dataclass(frozen=True)
class SensorGroup:
    """Channels whose sensors can be compared, such as the velocities of all joints in one topic.

    Attributes:
        name: Name of the group, such as "joints: position".
        kind: "position", "velocity", "effort" or "other".
        channels: Indices of its channels in the recording.
    """

    name: str
    kind: str
    channels: tuple[int, ...]


@dataclass(frozen=True)
class Pair:
    """An actuator and a sensor that it moves, more than any other actuator does.

    Attributes:
        actuator: Index of the actuator.
        channel: Index of the channel.
        group: Group of comparable channels to which the channel belongs.
        sign: 1 if a rising command makes the reading rise, -1 if it makes it fall, 0 if not known.
        gain: Standard deviation of the reading as far as it follows the command, divided by that of
            the command.
        delay: Minimum delay of the response in ticks: 0 if the next reading shows it already. None
            if not known.
        linear: Share (0..1) of the reading's variance that follows the command linearly.
        share: How exclusive the pair is (0..1): 1 if no other actuator moves this sensor, and this
            actuator moves no other sensor of the group.
    """

    actuator: int
    channel: int
    group: SensorGroup
    sign: int
    gain: float
    delay: int | None
    linear: float
    share: float


def _measure_and_detect_responses(recording: MotionRecording) -> tuple[np.ndarray, np.ndarray]:
    """Measure how far each of A actuators moved each of C channels.

    Args:
        recording: Readings without NaN, and commands, of a robot whose actuators were moved one at
            a time.

    Returns:
        Two arrays (A, C). The first has the root mean square of the part of each reading that
        follows the command, in the unit of the readings. The second is
        True if this part is large in comparison with the rest of the reading, and with the robot's
        swinging before the actuator was moved.
    """
    shape = len(recording.actuators), len(recording.ids)
    extent, clear = np.zeros(shape), np.zeros(shape, bool)
    for actuator, (begin, end) in enumerate(recording.plan.spans):
        end = min(end + TAIL_TICKS, len(recording.commands))
        if end - begin < 2 * TAIL_TICKS:
            continue
        drive = recording.commands[begin:end, actuator] - recording.centre[actuator]
        readings = recording.readings[begin:end]
        before = recording.readings[max(0, begin - (end - begin) // 2) : begin]
        swing = _remove_trend(before, BEFORE_ORDER) - _remove_trend(before, SWING_ORDER)
        usual = np.sqrt(np.square(swing).mean(0))
        explained, left = _split_into_explained_and_rest(drive, readings)
        degrees = 4
        free = len(drive) - degrees - TREND_ORDER
        size = np.sqrt(np.square(explained).mean(0))
        ratio = np.square(explained).sum(0) / degrees / (np.square(left).sum(0) / free + 1e-300)
        extent[actuator] = size
        clear[actuator] = (size > MIN_RATIO * usual) & (ratio > MIN_F) & (size > MIN_RESPONSE)
    return extent, clear


def find_pairs_and_shared_sensors(
    recording: MotionRecording, groups: Sequence[SensorGroup]
) -> tuple[list[Pair], dict[int, list[int]]]:
    """Pair each actuator with the sensors that it moves more than any other actuator does.

    The channels of a group are spread evenly over the actuators: of C channels, each of A actuators
    is paired with at most C / A, rounded up.

    Args:
        recording: Readings and commands of a robot whose actuators were moved one at a time.
        groups: Groups of channels whose sensors can be compared.

    Returns:
        The pairs, and a dict of the channels that move but are in no pair. It maps a channel's
        index to the indices of the actuators that move the channel, the strongest first.
    """
    recording = replace(recording, readings=_fill_gaps(recording.readings))
    extent, clear = _measure_and_detect_responses(recording)
    pairs, shared = [], {}
    for group in groups:
        columns = list(group.channels)
        moved = np.where(clear[:, columns], extent[:, columns], 0.0)
        moved = _drop_mere_reactions(moved)
        share = (
            _normalize_rows_and_columns(moved)
            if len(columns) > 1
            else moved / max(np.linalg.norm(moved), 1e-300)
        )
        for place, actuator in enumerate(_assign_actuators_to_columns(share)):
            channel = columns[place]
            if actuator is not None and share[actuator, place] >= MIN_SHARE:
                pairs.append(
                    _make_pair(recording, actuator, group, channel, share[actuator, place])
                )
            elif moved[:, place].any():
                order = np.argsort(-moved[:, place])
                shared[channel] = [int(one) for one in order if moved[one, place] > 0.0]
    pairs.sort(key=lambda one: (one.actuator, one.channel))
    return pairs, shared


class SystemFit(NamedTuple):
    """Errors of the best fit of a mass with spring and damper to the response of a sensor.

    An error is the share of the response's variance that the fit leaves unexplained; 0 is a perfect
    fit. The arrays have one error for each of D assumed delays of the sensor: 0 to D - 1 ticks.

    Attributes:
        rising: (D,) errors if the reading is assumed to rise with the command.
        falling: (D,) errors if the reading is assumed to fall when the command rises.
    """

    rising: np.ndarray
    falling: np.ndarray


def find_response_sign(
    drive: np.ndarray, readings: np.ndarray, noise: float, fit: SystemFit, *, is_rate: bool
) -> int:
    """Find whether a sensor's reading rises or falls when the command of its actuator rises.

    The result is the sign of the motor's work, the sum of command times movement, if that sign is
    the same for each possible delay of the sensor. Otherwise it is the direction (rising or
    falling) with the smaller error in `fit`. This direction must explain at least the share
    `MIN_SIGN_FIT` of the variance, and the other must have at least `SIGN_RATIO` times its error.

    Args:
        drive: (T,) distance of each command from the safe command.
        readings: (T + 1,) a reading before each command, and one after the last.
        noise: Standard deviation of the readings at rest.
        fit: The result of `fit_mass_spring_damper` for the response.
        is_rate: True for velocities, from which the reading at rest has been subtracted; False for
            positions.

    Returns:
        1 if the reading rises with the command, -1 if it falls, 0 if neither can be shown.
    """
    up, down = float(fit.rising.min()), float(fit.falling.min())
    signs = {
        _find_sign_of_work(drive, readings, noise, delay, is_rate=is_rate)
        for delay in range(min(MAX_DELAY, int(DELAY_SHARE * len(drive))) + 1)
    }
    if len(signs) == 1:
        return signs.pop()
    if min(up, down) <= 1.0 - MIN_SIGN_FIT and max(up, down) >= SIGN_RATIO * min(up, down):
        return 1 if up < down else -1
    return 0


def _find_sign_of_work(
    drive: np.ndarray, readings: np.ndarray, noise: float, delay: int, *, is_rate: bool
) -> int:
    """Return the sign of the sum of command times movement, 0 if it may be due to noise.

    This sum is the work that the motor does, which is positive if nothing is reversed. The arrays
    are as in `find_response_sign`; `delay` is an assumed delay of the readings in ticks.
    """
    movement = (readings[1:] if is_rate else np.diff(readings))[delay:]
    drive = drive[: len(movement)]
    work = np.cumsum(drive * movement)
    largest = float(np.abs(work).max(initial=0.0))
    weights = drive if is_rate else np.diff(drive, append=0.0)
    if largest <= MIN_WORK * noise * float(np.linalg.norm(weights)):
        return 0
    return int(np.sign(work[int((np.abs(work) > FIRST_PART * largest).argmax())]))


def find_response_delay(fit: SystemFit) -> int | None:
    """Return the shortest delay in ticks with which a model explains a sensor's response.

    A longer delay may explain it as well, because a slow motor looks like a delay. The result is
    None if the model explains less than the share `MIN_FIT` of the response's variance with each
    delay.

    Args:
        fit: The fits of the model to the response, one for each delay, from
            `fit_mass_spring_damper`.
    """
    errors = fit.rising if fit.rising.min() < fit.falling.min() else fit.falling
    least = float(errors.min())
    if least > 1.0 - MIN_FIT:
        return None
    return int((errors <= BEST_FIT * least + 1e-4).argmax())


def fit_mass_spring_damper(
    drive: np.ndarray, readings: np.ndarray, step_s: float, *, is_rate: bool
) -> SystemFit:
    """Fit a mass with spring and damper to the response of a sensor to the commands.

    The fit shows whether the reading rises or falls with the command, and how late it is.

    Args:
        drive: (T,) distance of each command from the safe command; the force on the mass is
            proportional to it.
        readings: (T + 1,) a reading before each command, and one after the last.
        step_s: Seconds of a tick.
        is_rate: True for readings of a velocity, False for readings of a position.

    Returns:
        The error of the best fit for each assumed delay and direction.
    """
    answers = _simulate_simple_systems(drive, step_s)
    if is_rate:
        answers = np.diff(answers, axis=1, prepend=0.0)
    target = _remove_trend(readings[1:, None], 2)[:, 0]
    total = max(float(target @ target), 1e-300)
    delays = min(MAX_DELAY, int(DELAY_SHARE * len(drive))) + 1
    errors = np.ones((2, delays))
    for delay in range(delays):
        late = np.concatenate([np.zeros((len(answers), delay)), answers], 1)[:, : len(drive)]
        late = _remove_trend(late.T, 2)
        squares = np.square(late).sum(0)
        products = target @ late
        gained = np.divide(products**2, squares, out=np.zeros_like(squares), where=squares > 0.0)
        for row, sign in enumerate((1.0, -1.0)):
            best = float(gained[sign * products > 0.0].max(initial=0.0))
            errors[row, delay] = max(0.0, 1.0 - best / total)
    return SystemFit(errors[0], errors[1])


def _make_pair(
    recording: MotionRecording, actuator: int, group: SensorGroup, channel: int, share: float
) -> Pair:
    """Return the pair of an actuator and a channel, with the channel's measured response."""
    begin, end = recording.plan.spans[actuator]
    end = min(end + TAIL_TICKS, len(recording.commands) - 1)
    drive = recording.commands[begin:end, actuator] - recording.centre[actuator]
    readings = recording.readings[begin : end + 1, channel]
    rest = recording.readings[: recording.plan.spans[0][0], channel]
    noise = float(_remove_trend(rest[:, None]).std()) if len(rest) > 3 else 0.0
    is_rate = group.kind == "velocity"
    before = recording.readings[max(0, begin - TAIL_TICKS) : begin + 1, channel]
    from_rest = readings - before.mean()
    explained, left = _split_into_explained_and_rest(drive, readings[1:, None])
    linear = float(explained.var() / max(explained.var() + left.var(), 1e-300))
    gain = float(explained.std() / max(drive.std(), 1e-300))
    sign, delay = 0, None
    if group.kind in ("position", "velocity"):
        fit = fit_mass_spring_damper(drive, from_rest, 1.0 / recording.rate_hz, is_rate=is_rate)
        sign = find_response_sign(drive, from_rest, noise, fit, is_rate=is_rate)
        delay = find_response_delay(fit)
    elif group.kind == "effort":
        sign = int(np.sign(drive @ from_rest[1:]))
    return Pair(actuator, channel, group, sign, gain, delay, linear, float(share))


def _split_into_explained_and_rest(
    drive: np.ndarray, readings: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Split readings (T, C) into a part that the drive (T,) explains and the rest, without trends.

    The explained part is a linear combination of the drive, its derivative and its integrals.
    """
    first = np.cumsum(drive)
    basis = np.stack([drive, np.gradient(drive), first, np.cumsum(first)], axis=1)
    basis = _remove_trend(basis, TREND_ORDER)
    basis = basis / np.maximum(np.linalg.norm(basis, axis=0), 1e-300)
    directions, sizes, _ = np.linalg.svd(basis, full_matrices=False)
    directions = directions[:, sizes > 1e-6 * sizes[0]]
    flat = _remove_trend(readings, TREND_ORDER)
    explained = directions @ (directions.T @ flat)
    return explained, flat - explained


def _fill_gaps(readings: np.ndarray) -> np.ndarray:
    """Return readings (T, C) with values in place of NaN, by a line between a channel's neighbours.

    A channel without any reading is 0 throughout.
    """
    filled = np.array(readings)
    times = np.arange(len(filled))
    for channel in np.flatnonzero(np.isnan(filled).any(0)):
        column = filled[:, channel]
        known = ~np.isnan(column)
        filled[:, channel] = np.interp(times, times[known], column[known]) if known.any() else 0.0
    return filled


def _remove_trend(values: np.ndarray, term_count: int = 3) -> np.ndarray:
    """Return values (T, C) without their trend, a polynomial of time fitted to each column."""
    if not len(values):
        return values
    times = np.linspace(-1.0, 1.0, len(values))
    trend, _ = np.linalg.qr(np.polynomial.legendre.legvander(times, term_count - 1))
    return np.asarray(values - trend @ (trend.T @ values))


def _drop_mere_reactions(moved: np.ndarray) -> np.ndarray:
    """Return responses (A, C) with 0 for those that merely react to the movement of another joint.

    A response counts as such if it is much smaller than the largest response of the same sensor, or
    than the largest response to the same motor. The latter only counts if no other motor moves that
    sensor more, so that the sensor is the motor's own.
    """
    strongest = moved.max(axis=0, initial=0.0)
    kept = np.where(moved >= MIN_PART * strongest, moved, 0.0)
    for row in kept:
        best = int(row.argmax())
        if row[best] > 0.0 and row[best] == strongest[best]:
            row[row < MIN_PART * row[best]] = 0.0
    return kept


def _normalize_rows_and_columns(moved: np.ndarray) -> np.ndarray:
    """Scale rows and columns (A, C) until the squares of each sum to 1 (Sinkhorn and Knopp).

    Thereby strong motors, and sensors with large numbers, count no more than others.
    """
    share = moved / max(float(moved.max()), 1e-300)
    for _ in range(30):
        share = share / np.maximum(np.linalg.norm(share, axis=0, keepdims=True), 1e-12)
        share = share / np.maximum(np.linalg.norm(share, axis=1, keepdims=True), 1e-12)
    return share


def _assign_actuators_to_columns(share: np.ndarray) -> list[int | None]:
    """Assign an actuator to each channel, so that the product of the shares (A, C) is largest.

    The channels are spread evenly: no actuator gets more than C / A of them, rounded up. An
    actuator with a share of 0 in a channel is never assigned to it; a channel may get None.
    """
    from an_control.monitor.kernels import solve_assignment

    actuators, columns = share.shape
    copies = max(1, -(-columns // max(1, actuators)))
    size = max(copies * actuators, columns)
    costs = np.full((size, size), 50.0)
    costs[: copies * actuators, :columns] = np.tile(-np.log(share + 1e-12), (copies, 1))
    rows = solve_assignment(costs)[:columns]
    found = [int(row) % actuators if row < copies * actuators else None for row in rows]
    return [
        one if one is not None and share[one, place] > 0.0 else None
        for place, one in enumerate(found)
    ]


def _simulate_simple_systems(drive: np.ndarray, step_s: float) -> np.ndarray:
    """Return positions (K, T) of K masses with dampers and springs if a drive (T,) pushes them.

    All start at rest, and each row has a unit of its own. The last system is no mass: it follows
    the drive at once.
    """
    times = (np.arange(len(drive)) + 0.5) * step_s
    kernels = [_compute_decaying_motion(rate, times) for rate in
               (0.0, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)]  # fmt: skip
    for hz in (0.3, 0.6, 0.8, 1.0, 1.3, 1.7, 2.2, 3.0, 5.0, 8.0, 12.0, 20.0):
        for damping in (0.02, 0.3, 0.7, 1.001, 2.0):
            kernels.append(_compute_oscillation(2.0 * np.pi * hz, damping, times))
    instant = np.zeros(len(drive))
    instant[0] = 1.0
    kernels.append(instant)
    spectrum = np.fft.rfft(np.array(kernels), 2 * len(drive), axis=1)
    driven = spectrum * np.fft.rfft(drive, 2 * len(drive))
    return np.asarray(np.fft.irfft(driven, 2 * len(drive), axis=1)[:, : len(drive)])


def _compute_decaying_motion(friction_rate: float, times: np.ndarray) -> np.ndarray:
    """Return the positions (T,) of a mass after a push, if friction slows it down.

    The velocity decays at `friction_rate` in 1/s; 0 for no friction.
    """
    return times if friction_rate == 0.0 else (1.0 - np.exp(-friction_rate * times)) / friction_rate


def _compute_oscillation(angular_frequency: float, damping: float, times: np.ndarray) -> np.ndarray:
    """Return the positions (T,) of a mass on a spring that starts at 0 with a velocity of 1.

    The angular frequency, in rad/s, is that without damping. The damping ratio must not be 1.
    """
    root = np.sqrt(complex(1.0 - damping**2)) * angular_frequency
    return np.asarray(
        (np.exp(-damping * angular_frequency * times) * np.sin(root * times) / root).real
    )
