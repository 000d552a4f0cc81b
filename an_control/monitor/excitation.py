"""Excitation: small motions of the actuators, from whose effects the order of channels is found.

A policy that needs its channels in order cannot act while the order is unknown. So the same small
motions are first played some times in the known order, in the simulator, and recorded. Later they
are played on the robot. The input slot whose readings follow a channel's recorded readings best is
that channel's, and the assignment with the highest likelihood over all slots is taken.

Channels that the motions do not tell apart, such as the contacts of feet that stay on the ground,
are left in some order among themselves. The identity monitor finds theirs once the policy acts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy

from an_control.monitor.settings import EXCITATION
from an_control.system.blas import one_blas_thread
from an_control.system.files import read_regular_file, write_file

F32 = np.float32
FORMAT = 1
KEY = "an_control_excitation"
"""The key of the header in the file's metadata."""
MAX_FILE_BYTES = 256 * 2**20
MIN_TICKS = 10
"""Least number of ticks of a motion."""
MAX_READING = 1e6
LOW_HZ, HIGH_HZ = 1.0, 4.0
"""Frequencies of the slowest and the fastest sine of a motion."""
SETTLE_S, FADE_S = 0.2, 0.25
"""Seconds without motion at the start, and seconds in which the motion then grows, and in which it
ends."""


class ExcitationError(ValueError):
    """An error raised if a file holds no valid `Excitation` (a recorded motion of the robot).

    The message names the file and the reason.
    """


@dataclass(frozen=True)
class Excitation:
    """A small motion of the actuators, with recordings of what the sensors read during it.

    On a robot with unknown wiring, the same motion then shows which sensor is which. It has T ticks
    and was recorded R times, in the known order of the N channels.

    Attributes:
        channels: (N,) the channel ids.
        actuators: (A,) the actuators' names; empty if the task names none.
        step_s: The period of the ticks in seconds.
        motion: (T, A) float32 the actions, in [-1, 1].
        runs: (R, T + 1, N) float32 the readings before each action, and after the last one.
    """

    channels: tuple[str, ...]
    actuators: tuple[str, ...]
    step_s: float
    motion: np.ndarray
    runs: np.ndarray

    @property
    def amplitude(self) -> float:
        """The largest magnitude of an action in the motion."""
        return float(np.abs(self.motion).max())

    def check_consistency(self) -> None:
        """Check that the motion, the runs and the names fit each other and are within bounds.

        Raises:
            ValueError: A part does not fit; the message names the part.
        """
        ticks, channels = len(self.motion), len(self.channels)
        if self.motion.ndim != 2 or not MIN_TICKS <= ticks <= 100_000 or not self.motion.shape[1]:
            raise ValueError(f"motion: of shape {self.motion.shape}, not (ticks, actuators)")
        if self.actuators and len(self.actuators) != self.motion.shape[1]:
            raise ValueError(f"motion: of {self.motion.shape[1]} actuators, not those of its names")
        if self.runs.shape[1:] != (ticks + 1, channels) or len(self.runs) < 2 or channels < 2:
            raise ValueError(
                f"runs: of shape {self.runs.shape}, not (2 or more, {ticks + 1}, {channels})"
            )
        if not 1e-6 <= self.step_s <= 3600.0:
            raise ValueError(f"step_s: {self.step_s:g} is not from 1e-6 to 3600")
        for name, array, most in (("motion", self.motion, 1.0), ("runs", self.runs, MAX_READING)):
            if array.dtype != F32 or not (np.abs(array) <= most).all():
                raise ValueError(f"{name}: must be float32 from {-most:g} to {most:g}")


def make_exciting_actions(
    actuator_count: int, step_s: float, amplitude: float, duration_s: float
) -> np.ndarray:
    """Return a smooth motion (T, A) in which each actuator swings at two frequencies of its own.

    So the sensors respond differently, and their responses show which sensor is which.

    Args:
        actuator_count: The number A of actuators.
        step_s: The period of a tick in seconds.
        amplitude: The largest action, over 0 and at most 1.
        duration_s: The duration of the motion in seconds.

    Returns:
        The actions, float32, a row for each of the T ticks; the first and the last rows are 0.
    """
    time_s = np.arange(round(duration_s / step_s)) * step_s
    highest = min(HIGH_HZ, 0.1 / step_s)
    places = np.arange(2 * actuator_count) / (2 * actuator_count - 1)
    hz = min(LOW_HZ, highest) * (highest / min(LOW_HZ, highest)) ** places
    phases = np.random.default_rng(0).uniform(0.0, 2.0 * np.pi, 2 * actuator_count)
    waves = np.sin(2.0 * np.pi * hz[:, None] * time_s + phases[:, None])
    grown = np.clip((time_s - SETTLE_S) / FADE_S, 0.0, 1.0)
    grown *= np.clip((time_s[-1] - time_s) / FADE_S, 0.0, 1.0)
    both = 0.5 * (waves[:actuator_count] + waves[actuator_count:]) * grown
    motion: np.ndarray = (amplitude * both).T.astype(F32)
    return motion


def write_excitation(path: str | os.PathLike[str], excitation: Excitation) -> None:
    """Write an excitation (a recorded motion of the robot) into a file.

    Args:
        path: The ``.safetensors`` file to write; an existing one is replaced.
        excitation: The motion and its recorded runs.

    Raises:
        ValueError: The excitation is not valid.
        WriteError: The file cannot be written.
    """
    excitation.check_consistency()
    header = {
        "format": FORMAT,
        "channels": excitation.channels,
        "actuators": excitation.actuators,
        "step_s": excitation.step_s,
    }
    arrays = {"motion": excitation.motion, "runs": excitation.runs}
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    write_file(path, safetensors.numpy.save(arrays, metadata={KEY: json.dumps(header)}))


def read_excitation(path: str | os.PathLike[str]) -> Excitation:
    """Read an excitation (a recorded motion of the robot) from a file, and check it.

    Raises:
        ExcitationError: The file cannot be read or holds no excitation; the message names the file
            and the reason.
    """
    try:
        content = read_regular_file(path, MAX_FILE_BYTES)
        if len(content) > MAX_FILE_BYTES:
            raise ValueError(f"larger than {MAX_FILE_BYTES} bytes, the maximum for an excitation")
        return _parse_excitation(content)
    except OSError as error:
        raise ExcitationError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError, safetensors.SafetensorError) as error:
        raise ExcitationError(f"{path}: not an excitation: {error}") from error


def _parse_excitation(content: bytes) -> Excitation:
    """Return the excitation in the content of a file.

    Raises:
        ValueError: The content holds no valid excitation.
        KeyError: The header lacks a key.
        TypeError: A value in the header has a wrong type.
    """
    length = int.from_bytes(content[:8], "little")
    if not 2 <= length <= len(content) - 8:
        raise ValueError("not a safetensors file, or truncated")
    metadata = json.loads(content[8 : 8 + length].decode()).get("__metadata__") or {}
    if not isinstance(metadata, dict) or KEY not in metadata:
        raise ValueError("another kind of file")
    header = json.loads(metadata[KEY])
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    arrays = safetensors.numpy.load(content)
    if sorted(arrays) != ["motion", "runs"]:
        raise ValueError(f"arrays {', '.join(sorted(arrays))}, not motion and runs")
    found = Excitation(
        _read_unique_names(header, "channels"),
        _read_unique_names(header, "actuators"),
        float(header["step_s"]),
        arrays["motion"],
        arrays["runs"],
    )
    found.check_consistency()
    return found


def _read_unique_names(header: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return the names under a key of an excitation file's header.

    Raises:
        ValueError: They are not strings, or occur twice.
    """
    names = header[key]
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise ValueError(f"{key}: not a list of names")
    if len(set(names)) < len(names):
        raise ValueError(f"{key}: a name occurs twice")
    return tuple(names)


class ChannelOrderEstimate(NamedTuple):
    """An estimate of which input slot feeds which channel, and the reason if it is uncertain."""

    slots: np.ndarray
    """(N,) the input slot that feeds each channel."""
    problem: str
    """Why the order is not certain; "" if it is."""


class ChannelOrderFinder:
    """A finder of which input slot feeds which channel, by how the sensors respond to a motion.

    The readings of one run of the motion are compared with recorded runs, in which the order of the
    channels was known. For this, each channel's mean readings and mean changes in short periods are
    assumed to be normally distributed. The distributions are fitted to the recorded runs.

    Args:
        excitation: The motion and the recorded runs.
    """

    def __init__(self, excitation: Excitation) -> None:
        from an_control.monitor.kernels import solve_assignment  # imports numba, a second

        self._settings, self._solve = EXCITATION, solve_assignment
        self._channels = excitation.channels
        ticks = len(excitation.motion)
        short = min(round(EXCITATION.pool_s / excitation.step_s), ticks // EXCITATION.min_pools)
        self._pooled = max(1, short, -(-ticks // EXCITATION.max_pools))
        """The number of ticks over which a feature is a mean."""
        runs = excitation.runs.astype(np.float64)
        self._units = [_compute_typical_magnitude(one) for one in (runs, np.diff(runs, axis=1))]
        self._fit_distributions(self._compute_channel_features(runs))

    @one_blas_thread
    def _fit_distributions(self, features: np.ndarray) -> None:
        """Fit the normal distribution of each channel to the channel's features.

        Args:
            features: (R, N, D) for each recorded run the D features of each channel.
        """
        runs, _, size = features.shape
        self._means = features.mean(0)
        away = (features - self._means).transpose(1, 0, 2)  # (N, R, D)
        each = np.matmul(away.transpose(0, 2, 1), away) / (runs - 1)
        common = each.mean(0)
        share = self._settings.common_share
        floor = self._settings.floor * max(float(np.trace(common)) / size, 1e-6)
        covariances = (1.0 - share) * each + share * common + floor * np.eye(size)
        self._precisions = np.linalg.inv(covariances)
        self._logs = np.linalg.slogdet(covariances)[1]
        self.alike = self._compute_mask_of_indistinguishable_pairs()
        """(N, N) True for pairs of channels that the motion does not tell apart, and on the
        diagonal."""

    def _compute_mask_of_indistinguishable_pairs(self) -> np.ndarray:
        """Return a mask (N, N) of the pairs of channels that the motion does not tell apart.

        If the mean features of such a pair were exchanged, the costs would grow by less than
        `ExcitationSettings.min_margin` nats. The diagonal is True.
        """
        costs = self._compute_costs_by_slot_and_channel(self._means)
        own = np.diagonal(costs)
        alike: np.ndarray = costs + costs.T - own[:, None] - own < self._settings.min_margin
        return alike

    def list_indistinguishable_channel_groups(self) -> list[tuple[str, ...]]:
        """Return the groups of channel ids that the motion cannot tell apart."""
        groups, left = [], set(range(len(self._channels)))
        while left:
            first = min(left)
            group = sorted({first, *np.flatnonzero(self.alike[first]).tolist()} & left)
            left -= set(group)
            if len(group) > 1:
                groups.append(tuple(self._channels[one] for one in group))
        return groups

    def _compute_channel_features(self, runs: np.ndarray) -> np.ndarray:
        """Return the features by which the channels are told apart.

        The run is divided into short periods. Each channel has two features for each period: the
        mean of its readings and the mean of their changes, both on a logarithmic scale. A feature
        is NaN if all readings of its period are missing.

        Args:
            runs: (..., T + 1, N) the readings in a run, or in several runs.

        Returns:
            (..., N, D) the D features of each channel.
        """
        parts = []
        for values, unit in zip(
            (runs[..., 1:, :], np.diff(runs, axis=-2)), self._units, strict=True
        ):
            scaled = np.sign(values) * np.log1p(np.abs(values) / unit)
            count = scaled.shape[-2] // self._pooled
            shape = (*scaled.shape[:-2], count, self._pooled, scaled.shape[-1])
            parts.append(
                _compute_mean_without_nan(scaled[..., : count * self._pooled, :].reshape(shape))
            )
        return np.concatenate(parts, -2).swapaxes(-1, -2)

    @one_blas_thread
    def _compute_costs_by_slot_and_channel(self, features: np.ndarray) -> np.ndarray:
        """Return how badly each input slot's features fit each channel.

        Args:
            features: (slots, D) the features of each slot; a missing one (NaN) counts as the
                channel's mean.

        Returns:
            (slots, channels) the costs, which are negative log-likelihoods in nats, up to a
            constant.
        """
        away = features[None] - self._means[:, None]  # (N, slots, D)
        away = np.where(np.isnan(away), 0.0, away)
        squares = (np.matmul(away, self._precisions) * away).sum(-1)
        costs: np.ndarray = (0.5 * (squares + self._logs[:, None])).T
        return costs

    def find_channel_order(self, readings: np.ndarray) -> ChannelOrderEstimate:
        """Find which input slot feeds which channel, by the readings of one run of the motion.

        Args:
            readings: (T + 1, N) the readings by input slot, NaN where missing.

        Returns:
            The most likely order, and the reason if it is uncertain.
        """
        features = self._compute_channel_features(
            np.clip(readings.astype(np.float64), -MAX_READING, MAX_READING)
        )
        seen = ~np.isnan(features).all(1)
        costs = self._compute_costs_by_slot_and_channel(features)
        costs[~seen] = 0.0  # a slot without readings takes the channel that is left
        slots = self._solve(costs)
        return ChannelOrderEstimate(slots, self._explain_why_order_is_uncertain(costs, slots, seen))

    def _explain_why_order_is_uncertain(
        self, costs: np.ndarray, slots: np.ndarray, has_readings: np.ndarray
    ) -> str:
        """Return the reason why an order of the channels is not certain, or "" if it is certain.

        Args:
            costs: (slots, channels) the cost in nats of assigning each slot to each channel.
            slots: (N,) the input slot of each channel in this order.
            has_readings: (N,) True for the slots that had readings.
        """
        missing = int((~has_readings).sum())
        if missing > self._settings.max_missing * len(has_readings):
            return f"{missing} of {len(has_readings)} channels are missing"
        by_channel = costs[slots]
        own = np.diagonal(by_channel)
        present = has_readings[slots]
        squares = 2.0 * own - self._logs
        strange = float(np.median(squares[present])) / self._means.shape[1]
        if strange > self._settings.max_distance:
            return (
                f"the robot's response to the motions differs from the recording: {strange:.1f}"
                f" times the usual deviation (allowed: {self._settings.max_distance:g})"
            )
        margins = by_channel + by_channel.T - own[:, None] - own
        margins[self.alike | ~present[:, None] | ~present] = np.inf
        first, other = np.unravel_index(int(margins.argmin()), margins.shape)
        if margins[first, other] < self._settings.min_margin:
            return f"{self._channels[first]} and {self._channels[other]} may be exchanged"
        return ""


def _compute_typical_magnitude(values: np.ndarray) -> float:
    """Return the median over channels of the mean magnitude of each channel's values.

    Channels that are always 0 do not count. If there is no other, the result is 1.

    Args:
        values: (R, T, N) readings or changes of N channels.
    """
    sizes = np.abs(values).mean((0, 1))
    return float(np.median(sizes[sizes > 0.0])) if (sizes > 0.0).any() else 1.0


def _compute_mean_without_nan(values: np.ndarray) -> np.ndarray:
    """Return the mean over the second-to-last axis without NaN values; NaN if all are NaN."""
    if not np.isnan(values).any():
        mean: np.ndarray = values.mean(-2)
        return mean
    present = ~np.isnan(values)
    count = present.sum(-2)
    total = np.where(present, values, 0.0).sum(-2)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
