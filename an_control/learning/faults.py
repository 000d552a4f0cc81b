"""What a student learns to bear beside moved and missing channels: in the words of `disturbance`.

A recipe gives each disturbance a chance; every episode and every row of a stream draws one of
them, or none. The label stays the action of a teacher that sees the present.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import gymnasium
import numpy as np

from an_control.disturbance import DisturbanceSettings, Disturber
from an_control.disturbance.seeds import Streams
from an_control.disturbance.settings import RANGES
from an_control_sim.gym.varied_robot import check_robot

NOTHING = DisturbanceSettings()
ROUNDING = 1e-9
"""By so much may chances that are 1 together be above it: nine times 1/9 is."""
TAUGHT = ("delay", "jitter", "lose", "repeat", "stop", "start", "gain", "lag", "mass", "friction")
"""What a fault may be; which channels move, are missing or copied is said by streams and
collection."""


class Fault(str):
    """A disturbance in words: `delay=0..2`, `jitter=0..0.05,lose=0.1`."""

    __slots__ = ()
    taught: ClassVar[tuple[str, ...]] = TAUGHT
    """The words that are allowed."""

    @classmethod
    def parse(cls, text: str) -> Fault:
        """ValueError naming the word and what is allowed."""
        changed = DisturbanceSettings.parse(text).changed
        wrong = [one.word for one in changed if one.name not in cls.taught]
        if wrong or not changed:
            allowed = ", ".join(cls.taught)
            raise ValueError(f"fault: {wrong[0] if wrong else text} (allowed: {allowed})")
        return cls(text)

    @property
    def settings(self) -> DisturbanceSettings:
        return DisturbanceSettings.parse(self)


class PatchFault(Fault):
    """The same for image patches."""

    __slots__ = ()
    taught = ("delay", "lose", "repeat")


F = TypeVar("F", bound=Fault)


def equal_chances(texts: Sequence[str], share: float) -> dict[Fault, float]:
    """Faults in words, which a share of the episodes has; ValueError as `Fault.parse`."""
    return {Fault.parse(text): share / len(texts) for text in texts}


def check_chances(faults: Mapping[F, float]) -> None:
    """ValueError where the faults' chances are more than 1 together."""
    if sum(faults.values()) > 1.0 + ROUNDING:
        together = sum(faults.values())
        raise ValueError(f"faults: chances that are {together:g} together (allowed: up to 1)")


def draw(faults: Mapping[F, float], rng: np.random.Generator) -> DisturbanceSettings:
    """One of the faults by its chance, or none; without faults it takes no random number."""
    if not faults:
        return NOTHING
    place = rng.random()
    for fault, chance in faults.items():
        place -= chance
        if place < 0.0:
            return fault.settings
    return NOTHING


def ids_of(channels: int) -> tuple[str, ...]:
    """Names of N channels that a `Disturber` leaves in their order."""
    return tuple(f"{channel:09}" for channel in range(channels))


def disturber(
    channels: int, drawn: DisturbanceSettings, rng: np.random.Generator
) -> Disturber | None:
    """What disturbs one episode of the channels `ids_of`; None, and no random number, for none."""
    return Disturber(ids_of(channels), drawn, int(rng.integers(2**31))) if drawn.active else None


def offered(env: gymnasium.Env[Any, Any], faults: Mapping[Fault, float]) -> dict[Fault, float]:
    """The faults without the words that this environment does not offer; an empty one is left out.

    A recipe for any robot may ask for what some robots cannot show.
    """
    found: dict[Fault, float] = {}
    for fault, chance in faults.items():
        settings = fault.settings
        for one in settings.changed:
            alone = DisturbanceSettings(**{one.name: getattr(settings, one.name)})
            try:
                check_robot(env, alone)
            except ValueError:
                settings = replace(settings, **{one.name: one.default})
        if settings.changed:
            left = Fault(settings)
            found[left] = found.get(left, 0.0) + chance
    return found


def as_received(
    observations: np.ndarray, drawn: DisturbanceSettings, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """A whole episode's observations (T, N) as a `Disturber` of this seed would deliver them.

    Returns the readings (K, N) of the steps in which a message arrived, and these steps (K,).
    """
    streams, settings = Streams.of(seed, 0), drawn
    settings = drawn.at(dict(zip(RANGES, streams.ranges.random(len(RANGES)), strict=True)))
    steps = np.arange(len(observations))
    seen = observations[np.maximum(steps - settings.delay.count, 0)]
    if settings.jitter:
        seen = seen + streams.jitter.normal(0.0, settings.jitter.value, seen.shape).astype(
            seen.dtype
        )
    if not (settings.lose or settings.repeat):
        return seen, steps
    chances = settings.lose.value, settings.repeat.value
    lost, repeated = (streams.delivery.random((len(steps), 2)) < chances).T
    lost[:1] = repeated[:1] = False
    newest = np.maximum.accumulate(np.where(lost | repeated, 0, steps))
    return seen[newest][~lost], steps[~lost]
