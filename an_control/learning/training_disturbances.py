"""Choose at random which disturbances a training episode gets.

`an_control.disturbance` defines what each disturbance does to readings, commands or robot. A recipe
(the settings file of a training run) gives each disturbance a probability. An episode, or one
sequence of a training batch, has at most one of the disturbances under the recipe's key `faults`,
and may have several of the recipe's other disturbances. The policy always learns to imitate the
action of a teacher that receives the undisturbed readings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from reprlib import repr as short
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import gymnasium
import numpy as np

from an_control.disturbance import SETTINGS, DisturbanceSettings, Disturber
from an_control.disturbance.settings import format_setting_words
from an_control_sim.gym.varied_robot import check_robot_settings

NO_DISTURBANCE = DisturbanceSettings()
NO_FAULTS: Mapping[Fault, float] = MappingProxyType({})
PROBABILITY_TOLERANCE = 1e-9
"""Amount by which a sum of probabilities may exceed 1, because the sum of nine times 1/9 can be
slightly more than 1 in floating point."""
PERMUTATION_SETTINGS = ("shuffle", "announce", "swap")
"""Settings of a disturbance that permute signals. They are not allowed here, because recipes set
permutations under their keys `streams` and `collection`.
"""
ADDED_CHANNEL_SETTINGS = ("noise_channels", "noise_sd", "copies")


F = TypeVar("F", bound="TrainingDisturbance")
_parsed = lru_cache(DisturbanceSettings.parse)


class TrainingDisturbance(str):
    """Text that describes a disturbance of the readings in training episodes.

    For example, `missing=0..0.25` removes a share of the channels, drawn from 0 to 0.25 for each
    episode. Settings are separated by commas, as in `noise=1..3,noise-sd=1`.
    """

    __slots__ = ()
    allowed_names: ClassVar[tuple[str, ...]] = tuple(
        one.name
        for one in SETTINGS
        if one.target == "readings" and one.name not in PERMUTATION_SETTINGS
    )
    """Names of the settings that such a text may have."""

    @classmethod
    def parse(cls: type[F], text: str) -> F:
        """Check that a text is a valid disturbance and return it as an instance of this class.

        Args:
            text: Settings separated by commas, such as `noise=1..3,noise-sd=1`.

        Raises:
            ValueError: A setting is not allowed, or the text has no setting. The message names the
                allowed settings.
        """
        allowed = [one for one in SETTINGS if one.name in cls.allowed_names]
        words = {one.word for one in allowed}
        wrong = [one for one in text.split(",") if one.strip().partition("=")[0] not in words]
        if wrong or not DisturbanceSettings.parse(text).non_default_settings:
            raise ValueError(
                f"{short(wrong[0] if wrong else text)} is not a disturbance for training (allowed:"
                f" {format_setting_words(allowed)}, as in evaluate --table)"
            )
        return cls(text)

    @property
    def settings(self) -> DisturbanceSettings:
        """Return the disturbance that this object describes, as parsed `DisturbanceSettings`."""
        return _parsed(str(self))


class Fault(TrainingDisturbance):
    """Text that describes a fault: a disturbance of the readings, the commands or the robot.

    A fault neither permutes nor adds channels. Examples are `delay=0..2` and
    `gain=0.6..1,lag=0..0.5`.
    """

    __slots__ = ()
    allowed_names = tuple(
        one.name
        for one in SETTINGS
        if one.name not in (*PERMUTATION_SETTINGS, *ADDED_CHANNEL_SETTINGS)
    )


class PatchDisturbance(TrainingDisturbance):
    """Text that describes a disturbance of image patches, such as `missing=0..0.7` or `delay=1`."""

    __slots__ = ()
    allowed_names = ("missing", "delay", "lose", "repeat")


def parse_equally_probable_disturbances(
    texts: Sequence[str], total_probability: float
) -> dict[Fault, float]:
    """Parse texts of disturbances, and return a mapping that gives each the same probability.

    Args:
        texts: The disturbances as texts, such as "delay=0..2".
        total_probability: Sum of the probabilities.

    Raises:
        ValueError: A text is not a valid `Fault`.
    """
    return dict.fromkeys(parse_disturb_option(Fault, texts), total_probability / max(len(texts), 1))


def parse_disturb_option(disturbance_class: type[F], texts: Sequence[str]) -> tuple[F, ...]:
    """Parse the values of the option --disturb to disturbances.

    Args:
        disturbance_class: Class of the disturbances, which decides what is allowed.
        texts: The values of the option.

    Raises:
        ValueError: A text is not valid; the message names the option, the text and what is allowed.
    """
    found = []
    for text in texts:
        try:
            found.append(disturbance_class.parse(text))
        except ValueError as error:
            raise ValueError(f"--disturb: {error}") from None
    return tuple(found)


def check_sum_of_probabilities(faults: Mapping[F, float]) -> None:
    """Check that the probabilities of some disturbances sum to at most 1.

    Raises:
        ValueError: The sum is larger than 1.
    """
    if sum(faults.values()) > 1.0 + PROBABILITY_TOLERANCE:
        together = sum(faults.values())
        raise ValueError(f"faults: probabilities with the sum {together:g} (allowed: up to 1)")


def draw_at_most_one_disturbance(
    faults: Mapping[F, float], rng: np.random.Generator
) -> DisturbanceSettings:
    """Draw at most one of the disturbances by its probability and return its settings.

    The settings are empty if none is drawn.

    Args:
        faults: Probability of each disturbance. If the mapping is empty, no random number is drawn.
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


def draw_merged_disturbances(
    disturb: Mapping[F, float], rng: np.random.Generator
) -> DisturbanceSettings:
    """Draw each disturbance independently by its probability and return their merged settings.

    If two of the drawn disturbances change the same setting, the disturbance that is later in
    `disturb` decides its value.

    Args:
        disturb: Probability of each disturbance.
        rng: Source of random numbers.
    """
    drawn = NO_DISTURBANCE
    for words, share in disturb.items():
        if rng.random() < share:
            drawn = drawn.with_overrides_from(words.settings)
    return drawn


def make_placeholder_ids(channel_count: int) -> tuple[str, ...]:
    """Return an id for each channel of a task that has no names for them, in alphabetical order.

    Args:
        channel_count: Number of channels.
    """
    return tuple(f"{channel:09}" for channel in range(channel_count))


def make_disturber(
    channel_count: int, settings: DisturbanceSettings, rng: np.random.Generator
) -> Disturber | None:
    """Return a `Disturber` for one episode, or None if nothing is disturbed.

    A missing reading becomes NaN in the disturbed readings, so that every channel keeps its index.

    Args:
        channel_count: Number of channels, whose ids are made by `make_placeholder_ids`.
        settings: The disturbances of the episode.
        rng: Source of the episode's random numbers; unused if nothing is disturbed.
    """
    if not settings.is_active:
        return None
    return Disturber(
        make_placeholder_ids(channel_count), settings, int(rng.integers(2**31)), missing_as_nan=True
    )


def drop_unsupported_disturbances(
    env: gymnasium.Env[Any, Any], faults: Mapping[Fault, float]
) -> dict[Fault, float]:
    """Return the disturbances that an environment supports, with their probabilities.

    A disturbance (`Fault`) has one or more settings. Unsupported settings are removed from it, and
    a disturbance with no setting left is dropped. A training recipe can thus name disturbances that
    only some robots support.

    Args:
        env: The environment.
        faults: Probability of each disturbance.

    Returns:
        Probability of each disturbance that is left.
    """
    found: dict[Fault, float] = {}
    for fault, chance in faults.items():
        settings = fault.settings
        for one in settings.non_default_settings:
            alone = DisturbanceSettings(**{one.name: getattr(settings, one.name)})
            try:
                check_robot_settings(env, alone)
            except ValueError:
                settings = replace(settings, **{one.name: one.default})
        if settings.non_default_settings:
            left = Fault(settings)
            found[left] = found.get(left, 0.0) + chance
    return found
