"""What training does to readings, commands and robots: in the words of `disturbance`.

A recipe gives disturbances a probability each: of `faults` an episode, or a row of a stream, has
one or none; of the others it may have several. A `Disturber` does to it what it does in an
evaluation. The label stays the action of a teacher that sees the present.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

import gymnasium
import numpy as np

from an_control.disturbance import SETTINGS, DisturbanceSettings, Disturber
from an_control_sim.gym.varied_robot import check_robot

NOTHING = DisturbanceSettings()
ROUNDING = 1e-9
"""By so much may chances that are 1 together be above it: nine times 1/9 is."""
MOVING = ("shuffle", "announce", "swap")
"""When signals move is said by streams and collection in their own way."""
ADDED = ("noise_channels", "noise_sd", "copies")


F = TypeVar("F", bound="Disturbance")
_parsed = lru_cache(DisturbanceSettings.parse)


class Disturbance(str):
    """A disturbance of readings in words: `missing=0..0.25`, `noise=1..3,noise-sd=1`."""

    __slots__ = ()
    taught: ClassVar[tuple[str, ...]] = tuple(
        one.name for one in SETTINGS if one.target == "readings" and one.name not in MOVING
    )
    """The settings that are allowed."""

    @classmethod
    def parse(cls: type[F], text: str) -> F:
        """ValueError naming the word and what is allowed."""
        changed = DisturbanceSettings.parse(text).changed
        wrong = [one.word for one in changed if one.name not in cls.taught]
        if wrong or not changed:
            allowed = ", ".join(one.word for one in SETTINGS if one.name in cls.taught)
            raise ValueError(f"disturbance: {wrong[0] if wrong else text} (allowed: {allowed})")
        return cls(text)

    @property
    def settings(self) -> DisturbanceSettings:
        return _parsed(str(self))


class Fault(Disturbance):
    """A disturbance, also of commands and robot, that leaves each reading in its channel's place:
    `delay=0..2`, `gain=0.6..1,lag=0..0.5`."""

    __slots__ = ()
    taught = tuple(one.name for one in SETTINGS if one.name not in (*MOVING, *ADDED))


class PatchFault(Disturbance):
    """A disturbance of image patches: `missing=0..0.7`, `delay=1`."""

    __slots__ = ()
    taught = ("missing", "delay", "lose", "repeat")


def equal_chances(texts: Sequence[str], share: float) -> dict[Fault, float]:
    """Return faults that a share of the episodes has together; ValueError as `Fault.parse`."""
    return {Fault.parse(text): share / len(texts) for text in texts}


def check_chances(faults: Mapping[F, float]) -> None:
    """ValueError where the faults' chances are more than 1 together."""
    if sum(faults.values()) > 1.0 + ROUNDING:
        together = sum(faults.values())
        raise ValueError(f"faults: chances that are {together:g} together (allowed: up to 1)")


def draw(faults: Mapping[F, float], rng: np.random.Generator) -> DisturbanceSettings:
    """Return the settings of one fault by its probability, or of none.

    Without faults it takes no random number.
    """
    if not faults:
        return NOTHING
    place = rng.random()
    for fault, chance in faults.items():
        place -= chance
        if place < 0.0:
            return fault.settings
    return NOTHING


def draw_each(disturb: Mapping[F, float], rng: np.random.Generator) -> DisturbanceSettings:
    """Return the settings of several disturbances together, each drawn by its probability.

    Where two of them say a setting, the later one decides it.
    """
    drawn = NOTHING
    for words, share in disturb.items():
        if rng.random() < share:
            drawn = drawn.merged_with(words.settings)
    return drawn


def ids_of(channels: int) -> tuple[str, ...]:
    """Names of N channels that a `Disturber` leaves in their order."""
    return tuple(f"{channel:09}" for channel in range(channels))


def disturber(
    channels: int, drawn: DisturbanceSettings, rng: np.random.Generator
) -> Disturber | None:
    """What disturbs one episode of the channels `ids_of`; None, and no random number, for none.

    Missing readings come as NaN in their channels' places.
    """
    if not drawn.active:
        return None
    return Disturber(ids_of(channels), drawn, int(rng.integers(2**31)), keep_places=True)


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
