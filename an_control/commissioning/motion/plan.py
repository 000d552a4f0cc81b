"""Plan a motion that moves one actuator after another by a small sine, within all limits.

Each actuator swings around the safe command for a few cycles. The swing grows from nothing and
fades to nothing, so that command and rate of change are continuous, and its integral is almost
zero, so that an actuator that is commanded by torque or velocity comes back to where it was. An
actuator whose safe command lies at a limit swings to the other side alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from an_control.wiring import CommandConfig

SWEEP = 1.0 / 3.0
"""Share by which the frequency of a sine begins below its mean, and ends above it."""


@dataclass(frozen=True)
class MotionSettings:
    """Settings of a test motion, in which one actuator after another moves by a small sine.

    Attributes:
        amplitude: Largest distance from the safe command, as a share (0..1] of the distance from
            the safe command to the nearer limit of the actuator.
        max_hz: Highest mean frequency of a sine.
        min_hz: Lowest mean frequency, for actuators that may only change slowly.
        cycles: Number of cycles of each sine.
        rest_s: Seconds of rest at the safe command after each actuator.
        first_rest_s: Seconds of rest before the first actuator; the noise is measured there.
        rate_share: Maximum rate of change of a sine, as a share of the actuator's `max_rate`.
        ticks_per_cycle: Minimum number of ticks in a cycle.
    """

    amplitude: float = 0.1
    max_hz: float = 1.5
    min_hz: float = 0.5
    cycles: int = 3
    rest_s: float = 1.2
    first_rest_s: float = 1.5
    rate_share: float = 0.8
    ticks_per_cycle: float = 12.0


@dataclass(frozen=True)
class MotionPlan:
    """A motion of A actuators over T ticks, one actuator after another.

    Attributes:
        waves: (T, A) distance of each command from the safe command, in the command's unit.
        spans: For each actuator the tick at which its motion begins, and the tick after its end;
            equal if it cannot move.
        hz: (A,) mean frequency of each actuator's motion, a sine whose frequency changes.
        amplitudes: (A,) largest distance from the safe command; 0 if the actuator cannot move.
    """

    waves: np.ndarray
    spans: tuple[tuple[int, int], ...]
    hz: np.ndarray
    amplitudes: np.ndarray

    @property
    def ticks(self) -> int:
        """Number of ticks of the whole motion."""
        return len(self.waves)


def plan_motion(
    command: CommandConfig,
    rate_hz: float,
    centre: np.ndarray,
    limits: tuple[np.ndarray, np.ndarray],
    settings: MotionSettings,
) -> MotionPlan:
    """Plan a motion in which each of A actuators, one after another, moves by a small sine.

    Args:
        command: The command section of the wiring, with the actuators' maximum rates of change.
        rate_hz: Commands per second.
        centre: (A,) the safe command, around which the actuators move.
        limits: The lowest commands (A,) and the highest commands (A,).
        settings: The settings of the motion.
    """
    low, high = limits
    rest = max(1, round(settings.rest_s * rate_hz))
    parts = [np.zeros((max(1, round(settings.first_rest_s * rate_hz)), len(centre)))]
    spans, frequencies, amplitudes, begin = [], [], [], len(parts[0])
    for place, actuator in enumerate(command.actuators):
        below, above = centre[place] - low[place], high[place] - centre[place]
        room, one_sided = min(below, above), False
        if room < 0.1 * max(below, above):
            room, one_sided = max(below, above), True
        wanted = settings.amplitude * room
        hz = min(settings.max_hz, rate_hz / settings.ticks_per_cycle)
        if actuator.max_rate > 0.0 and wanted > 0.0:
            slow = settings.rate_share * actuator.max_rate / (2.0 * np.pi * wanted)
            hz = max(min(hz, slow), min(hz, settings.min_hz))
        shape = make_sine_sweep(
            max(4, round(settings.cycles / hz * rate_hz)), settings.cycles, one_sided
        )
        if one_sided and below > above:
            shape = -shape
        if actuator.max_rate > 0.0:
            fastest = float(np.abs(np.diff(shape, prepend=0.0, append=0.0)).max()) * rate_hz
            wanted = min(wanted, settings.rate_share * actuator.max_rate / fastest)
        length = len(shape) if wanted > 0.0 else 0
        wave = np.zeros((length + rest if length else 0, len(centre)))
        wave[:length, place] = np.clip(wanted * shape[:length], -below, above)
        parts.append(wave)
        spans.append((begin, begin + length))
        begin += len(wave)
        frequencies.append(hz)
        amplitudes.append(float(np.abs(wave).max(initial=0.0)))
    waves = np.concatenate(parts)
    return MotionPlan(waves, tuple(spans), np.array(frequencies), np.array(amplitudes))


def make_sine_sweep(ticks: int, cycles: int, one_sided: bool) -> np.ndarray:
    """Return a sine (ticks,) that grows from 0 and fades to 0, with a rising frequency.

    Its values are from -1 to 1. The frequency rises to tell a mass from a reversed servo: both move
    against the command, but only the mass moves less at a higher frequency.

    Args:
        ticks: Number of values.
        cycles: Number of cycles.
        one_sided: Whether all values must be 0 or more.
    """
    share = (np.arange(ticks) + 0.5) / ticks
    window = np.sin(np.pi * share) ** 2
    angle = 2.0 * np.pi * cycles * (share + SWEEP * (share**2 - share))
    wave = window * (0.5 * (1.0 - np.cos(angle)) if one_sided else np.sin(angle))
    return np.asarray(wave / np.abs(wave).max())
