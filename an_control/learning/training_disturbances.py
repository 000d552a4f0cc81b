"""Disturbances during training: which of them an episode gets, drawn at random.

`an_control.disturbance` defines what each disturbance does to readings, commands or robot. A recipe
(the settings file of a training run) gives each disturbance a probability. An episode, or a row of
a training batch, has at most one of the recipe's `faults`, and may have several of its other
disturbances. The label is always the action of a teacher that gets the undisturbed readings.
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

NO_DISTURBANCE = DisturbanceSettings()
PROBABILITY_TOLERANCE = 1e-9
"""Tolerance for a sum of probabilities above 1: nine times 1/9 is slightly more."""
PERMUTATION_SETTINGS = ("shuffle", "announce", "swap")
"""Settings that permute signals; recipes have other keys for these, in `streams` and `collection`.
"""
ADDED_CHANNEL_SETTINGS = ("noise_channels", "noise_sd", "copies")


F = TypeVar("F", bound="TrainingDisturbance")
_parsed = lru_cache(DisturbanceSettings.parse)


class TrainingDisturbance(str):
    """Disturbance of readings as text, such as `missing=0..0.25` or `noise=1..3,noise-sd=1`."""

    __slots__ = ()
    allowed_names: ClassVar[tuple[str, ...]] = tuple(
        one.name
        for one in SETTINGS
        if one.target == "readings" and one.name not in PERMUTATION_SETTINGS
    )
    """Names of the settings that are allowed."""

    @classmethod
    def parse(cls: type[F], text: str) -> F:
        """Check that a text is a valid disturbance and return it as an instance of this class.

        Args:
            text: Settings separated by commas, such as `noise=1..3,noise-sd=1`.

        Raises:
            ValueError: A setting is not allowed, or there is none; the message names the allowed
                ones.
        """
        changed = DisturbanceSettings.parse(text).changed
        wrong = [one.word for one in changed if one.name not in cls.allowed_names]
        if wrong or not changed:
            allowed = ", ".join(one.word for one in SETTINGS if one.name in cls.allowed_names)
            raise ValueError(f"disturbance: {wrong[0] if wrong else text} (allowed: {allowed})")
        return cls(text)

    @property
    def settings(self) -> DisturbanceSettings:
        """Return the settings that the text stands for."""
        return _parsed(str(self))


class Fault(TrainingDisturbance):
    """Disturbance of readings, commands or robot as text, which neither permutes nor adds channels.

    Examples are `delay=0..2` and `gain=0.6..1,lag=0..0.5`.
    """

    __slots__ = ()
    allowed_names = tuple(
        one.name
        for one in SETTINGS
        if one.name not in (*PERMUTATION_SETTINGS, *ADDED_CHANNEL_SETTINGS)
    )


class PatchDisturbance(TrainingDisturbance):
    """Disturbance of image patches as text, such as `missing=0..0.7` or `delay=1`."""

    __slots__ = ()
    allowed_names = ("missing", "delay", "lose", "repeat")


def assign_equal_probabilities(texts: Sequence[str], share: float) -> dict[Fault, float]:
    """Return faults with equal probabilities.

    Args:
        texts: The faults as texts.
        share: Sum of their probabilities.

    Raises:
        ValueError: A text is not a valid `Fault`.
    """
    return {Fault.parse(text): share / len(texts) for text in texts}


def check_probabilities(faults: Mapping[F, float]) -> None:
    """Check that the probabilities of the faults sum to at most 1.

    Raises:
        ValueError: The sum is larger.
    """
    if sum(faults.values()) > 1.0 + PROBABILITY_TOLERANCE:
        together = sum(faults.values())
        raise ValueError(f"faults: probabilities with the sum {together:g} (allowed: up to 1)")


def draw_one(faults: Mapping[F, float], rng: np.random.Generator) -> DisturbanceSettings:
    """Draw at most one of the faults by its probability and return its settings.

    Args:
        faults: Probability of each fault. If it is empty, no random number is drawn.
        rng: Source of random numbers.
    """
    if not faults:
        return NO_DISTURBANCE
    place = rng.random()
    for fault, chance in faults.items():
        place -= chance
        if place < 0.0:
            return fault.settings
    return NO_DISTURBANCE


def draw_independently(disturb: Mapping[F, float], rng: np.random.Generator) -> DisturbanceSettings:
    """Draw each disturbance independently by its probability and return their merged settings.

    If two of the drawn ones change the same setting, the later one wins.

    Args:
        disturb: Probability of each disturbance.
        rng: Source of random numbers.
    """
    drawn = NO_DISTURBANCE
    for words, share in disturb.items():
        if rng.random() < share:
            drawn = drawn.merged_with(words.settings)
    return drawn


def make_sorted_ids(channels: int) -> tuple[str, ...]:
    """Return made-up ids for N channels, whose alphabetical order is the channels' order."""
    return tuple(f"{channel:09}" for channel in range(channels))


def make_disturber(
    channels: int, drawn: DisturbanceSettings, rng: np.random.Generator
) -> Disturber | None:
    """Return a `Disturber` for one episode, or None if nothing is disturbed.

    Missing readings are NaN in its output, so that every channel keeps its index.

    Args:
        channels: Number of channels; their ids are those of `make_sorted_ids`.
        drawn: The disturbances of the episode.
        rng: Source of the episode's random numbers; unused if nothing is disturbed.
    """
    if not drawn.active:
        return None
    return Disturber(make_sorted_ids(channels), drawn, int(rng.integers(2**31)), keep_places=True)


def drop_unsupported(
    env: gymnasium.Env[Any, Any], faults: Mapping[Fault, float]
) -> dict[Fault, float]:
    """Return the faults without those settings that an environment does not support.

    A fault without any supported setting is dropped. So a recipe for any robot may name
    disturbances that only some robots support.

    Args:
        env: The environment.
        faults: Probability of each fault.
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
