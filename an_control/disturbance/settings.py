"""The table of all disturbances, for evaluation, simulators and training.

The fields of `DisturbanceSettings` describe all settings. `SETTINGS` lists these descriptions, and
from it are made the checks and their messages, ROS parameters, launch arguments, schedule keys, the
words of test protocols, and command-line options. A new disturbance needs a new field here, and
code in the `Disturber` for its effect on readings. Disturbances without a random number in each
tick, which are stops, worn motors and schedules, are computed here too.
"""

# ruff: noqa: RUF009  the functions that are called in the dataclass return fields

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import inf
from numbers import Integral, Real
from pathlib import Path
from reprlib import repr as short
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from an_control.disturbance.seeds import RandomStreams
from an_control.wiring.checked_yaml import Entry, WiringError, read_yaml

SHUFFLES = "none, reset, K, reset+K; K steps >= 1"
"""The allowed texts of a `Shuffle`, for errors."""


@dataclass(frozen=True)
class Shuffle:
    """A setting that says in which steps the sensor signals are permuted among the input slots.

    Args:
        at_reset: Whether to permute the signals at an episode's start.
        every: The number of steps between two permutations; 0: none.
    """

    at_reset: bool = False
    every: int = 0

    def __str__(self) -> str:
        """Return the text from which `parse` makes this shuffle, such as ``reset+200``."""
        every = str(self.every) if self.every else ""
        return "+".join(filter(None, ("reset" if self.at_reset else "", every))) or "none"

    @classmethod
    def parse(cls, text: str) -> Shuffle:
        """Return the shuffle that a text describes.

        Args:
            text: ``none``; ``reset`` (at the episode's start); ``K`` (every K steps, but not at the
                start); or ``reset+K`` (both).

        Raises:
            ValueError: The text is none of these; the message names the text and what is allowed.

        Example:
            >>> Shuffle.parse("reset+200")
            Shuffle(at_reset=True, every=200)
        """
        start, _, rest = text.strip().partition("+")
        if start == "none" and not rest:
            return cls()
        if start == "reset" and (rest or text.strip() == "reset"):
            return cls(True, _parse_shuffle_interval(rest, text) if rest else 0)
        return cls(False, _parse_shuffle_interval(text.strip(), text))


def _parse_shuffle_interval(steps_text: str, shuffle_text: str) -> int:
    """Return the number of steps between two permutations, from the text of a shuffle.

    Args:
        steps_text: The part of the text that must be the number, such as "200".
        shuffle_text: The whole text of the shuffle, such as "reset+200", for the error.

    Raises:
        ValueError: The part is not a whole number of 1 or more.
    """
    if not steps_text.isdecimal() or int(steps_text) == 0:
        raise ValueError(f"shuffle: {short(shuffle_text)} (allowed: {SHUFFLES})")
    return int(steps_text)


def _format_exactly(value: float) -> str:
    """Return a number as the shortest text from which exactly this number is read again."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


@dataclass(frozen=True)
class Range:
    """A range from `low` to `high`, from which one number is drawn at random for each episode.

    Both ends are included; equal ends stand for one number.
    """

    low: float
    high: float

    def __str__(self) -> str:
        """Return text from which `Setting.convert_value` makes this range, such as ``0.1..0.3``."""
        low, high = _format_exactly(self.low), _format_exactly(self.high)
        return low if self.low == self.high else f"{low}..{high}"

    def __bool__(self) -> bool:
        """Return whether a number drawn from the range can be other than 0."""
        return bool(self.low or self.high)

    @property
    def has_distinct_bounds(self) -> bool:
        """Whether `low` and `high` differ, so that a number must still be drawn from the range."""
        return self.low != self.high

    @property
    def middle(self) -> float:
        """The number halfway between `low` and `high`."""
        return (self.low + self.high) / 2.0

    @property
    def value(self) -> float:
        """The number that this range stands for, which is both `low` and `high`.

        Raises:
            ValueError: `low` and `high` differ, so that no number has been drawn yet.
        """
        if self.has_distinct_bounds:
            raise ValueError(f"{self}: no number has been drawn from it")
        return self.low

    @property
    def whole_number(self) -> int:
        """The same as `value`, but as an int; ValueError if `low` and `high` differ."""
        return int(self.value)

    @classmethod
    def from_value(cls, number_text_or_range: object) -> Range:
        """Convert a number, a text such as ``0..2``, or a range to a `Range`.

        Args:
            number_text_or_range: A number, a text such as ``0.1`` or ``0..2``, or a range, which is
                returned itself.

        Raises:
            ValueError: The value is none of these.
        """
        if isinstance(number_text_or_range, Range):
            return number_text_or_range
        if isinstance(number_text_or_range, Real) and not isinstance(number_text_or_range, bool):
            return cls(float(number_text_or_range), float(number_text_or_range))
        low, dots, high = str(number_text_or_range).partition("..")
        return cls(float(low), float(high if dots else low))

    def pick_number_at_fraction(self, position: float, *, whole: bool) -> Range:
        """Return the number at a relative position in this range, as a range with equal ends.

        Args:
            position: From 0 (`low`) to 1 (`high`).
            whole: Whether the number must be whole. If so, each whole number in the range belongs
                to an equally long part of the positions.
        """
        if whole:
            number = min(self.high, self.low + int(position * (self.high - self.low + 1.0)))
        else:
            number = self.low + position * (self.high - self.low)
        return Range(number, number)

    def draw(self, rng: np.random.Generator) -> float:
        """Return a number drawn uniformly from the range."""
        return self.pick_number_at_fraction(rng.random(), whole=False).value


Observation: TypeAlias = Literal["scalar channels", "image patches", "images"]
"""The kinds of observation that can be disturbed: single numbers; image patches, each a channel;
whole camera images."""
Target: TypeAlias = Literal["readings", "robot", "commands"]
"""What a disturbance acts on: the policy's readings, the robot itself, or the commands to it."""
Plain: TypeAlias = bool | int | float | str
START = ("usual", "rest", "posture")
T = TypeVar("T")

NUMBERS: tuple[Observation, ...] = ("scalar channels",)
PATCHES: tuple[Observation, ...] = (*NUMBERS, "image patches")
ALL: tuple[Observation, ...] = (*PATCHES, "images")
FOR_ROBOT: dict[str, Any] = {"observations": ALL, "scheduled": False}


@dataclass(frozen=True)
class Setting:
    """The description of one disturbance setting, a field of `DisturbanceSettings`."""

    name: str
    default: Any
    """The default value: a Shuffle, Range, bool, int, float, or one of `choices`."""
    help: str
    """What the setting does, in one line without a full stop."""
    unit: str = ""
    minimum: float = 0.0
    """The smallest number that is allowed."""
    maximum: float = inf
    """The largest number that is allowed."""
    whole: bool = False
    """Whether the numbers of a Range are whole ones."""
    choices: tuple[str, ...] = ()
    """The words that are allowed, for a setting that is a word."""
    forbidden: tuple[int, ...] = ()
    """Numbers between minimum and maximum that are not allowed."""
    modifies: str = ""
    """The name of the setting without which this one has no effect."""
    word: str = ""
    """The name of the setting in a text such as ``reset,missing=0.1``."""
    observations: tuple[Observation, ...] = NUMBERS
    """The kinds of observation that the setting can disturb."""
    scheduled: bool = True
    """Whether a schedule can change the setting during an episode."""
    compiled: bool = False
    """Whether compiled rollouts support the setting."""
    target: Target = "readings"
    """What the setting disturbs; settings of other targets than readings cannot change within a run
    over ROS 2."""

    @property
    def kind(self) -> type[Any]:
        """The type of the value: Shuffle, Range, bool, int, float or str."""
        return type(self.default)

    @property
    def is_given_as_text(self) -> bool:
        """Whether command-line options and ROS parameters take the value as text."""
        return self.kind in (Shuffle, Range, str)

    @property
    def default_as_plain_value(self) -> Plain:
        """The default value as ROS parameters, YAML and the command line write it."""
        return str(self.default) if self.is_given_as_text else self.default

    def get_plain_value(self, settings: DisturbanceSettings) -> Plain:
        """Return the value of this setting as plain data, which JSON can hold.

        A shuffle becomes text, and so does a range from which no number has been drawn yet.

        Args:
            settings: The values of all settings.
        """
        value = getattr(settings, self.name)
        if self.kind is Range and not value.has_distinct_bounds:
            return value.whole_number if self.whole else value.value
        return str(value) if self.is_given_as_text else value

    @property
    def help_with_unit(self) -> str:
        """The description of the setting, with its unit."""
        return f"{self.help}, in {self.unit}" if self.unit else self.help

    @property
    def allowed_values_text(self) -> str:
        """The allowed values, as text."""
        if self.kind is Shuffle:
            return "none, reset, K (every K steps) or reset+K"
        if self.kind is bool:
            return "true or false"
        if self.choices:
            return ", ".join(self.choices)
        number = "a whole number" if self.kind is int or self.whole else "a number"
        if self.kind is Range:
            number += " or LOW..HIGH"
        low = f"{self.minimum:g}"
        limits = f"from {low} to {self.maximum:g}" if self.maximum < inf else f"{low} or more"
        other = "".join(f", not {one}" for one in self.forbidden)
        return f"{number}, {limits}{other}"

    def convert_value(self, value: object) -> Any:
        """Return a value, converted to the type of this setting and checked.

        Args:
            value: The value, as text or as YAML and ROS parameters have it.

        Raises:
            ValueError: The value is not allowed; the message names setting, value and what is
                allowed.
        """
        if self.kind is Shuffle:
            return value if isinstance(value, Shuffle) else Shuffle.parse(str(value))
        found: object = value
        if self.kind is Range:
            try:
                found = Range.from_value(value)
            except ValueError:
                raise self.make_error(value) from None
        elif isinstance(value, str) and not self.choices:
            try:
                found = {"true": True, "false": False}[value] if self.kind is bool else float(value)
            except (KeyError, ValueError):
                raise self.make_error(value) from None
        if self.kind is int and isinstance(found, float) and found.is_integer():
            found = int(found)
        if self.kind is float and isinstance(found, int) and not isinstance(found, bool):
            found = float(found)
        self.check_value(found)
        return found

    def check_value(self, value: object) -> None:
        """Check that a value has the type of this setting and is within its bounds.

        Raises:
            ValueError: The value is not allowed; the message names setting, value and what is
                allowed.
        """
        if self.choices:
            right = value in self.choices
        elif self.kind is Shuffle or self.kind is bool:
            right = isinstance(value, self.kind)
        elif isinstance(value, Range):
            ends = value.low, value.high
            right = self.kind is Range and value.low <= value.high
            right = right and all(self._is_number_in_bounds(one, whole=self.whole) for one in ends)
        else:
            right = self.kind is not Range and self._is_number_in_bounds(
                value, whole=self.kind is int
            )
        if not right:
            raise self.make_error(value)

    def _is_number_in_bounds(self, value: object, *, whole: bool) -> bool:
        """Return whether a value is a number within the setting's bounds.

        Args:
            value: The value.
            whole: Whether the number must be a whole one.
        """
        if not isinstance(value, Real) or isinstance(value, bool):
            return False
        number = float(value)
        right = isinstance(value, Integral) or not whole or number.is_integer()
        right = right and self.minimum <= number < inf and number <= self.maximum
        return right and value not in self.forbidden

    def make_error(self, value: object) -> ValueError:
        """Return a ValueError which says that a value is not allowed, and which values are."""
        shown = short(value) if isinstance(value, str) else value
        return ValueError(f"{self.name}: {shown} (allowed: {self.allowed_values_text})")


def _make_setting_field(default: T, help: str, **more: Any) -> T:
    """Return a dataclass field for a setting, whose metadata describe the setting.

    Args:
        default: The default value of the setting.
        help: What the setting does, in one line.
        **more: Values of further fields of `Setting`, such as `unit`.
    """
    made: T = field(default=default, metadata={"help": help, **more})
    return made


def _make_range_field(help: str, number: float = 0.0, **more: Any) -> Range:
    """Return a dataclass field for a setting that is a range, whose default is one number.

    Args:
        help: What the setting does, in one line.
        number: The default number.
        **more: Values of further fields of `Setting`, such as `unit`.
    """
    return _make_setting_field(Range(number, number), help, **more)


@dataclass(frozen=True)
class DisturbanceSettings:
    """The disturbances of an episode; the defaults disturb nothing.

    `SETTINGS` has a text about each field. A number is accepted in place of a range.

    Raises:
        ValueError: A value is not allowed; the message names setting, value and what is allowed.

    Example:
        >>> settings = DisturbanceSettings(shuffle=Shuffle(at_reset=True), missing=0.1)
        >>> str(settings)
        'reset,missing=0.1'
        >>> DisturbanceSettings.parse("reset,missing=0.1") == settings
        True
    """

    shuffle: Shuffle = _make_setting_field(
        Shuffle(), "when signals move between the channels", observations=ALL, compiled=True
    )
    announce: bool = _make_setting_field(
        False,
        "the ids move along with their signals",
        word="announced",
        modifies="shuffle",
        observations=PATCHES,
    )
    swap: int = _make_setting_field(
        0,
        "number of signals that move at each permutation, 0 = all",
        forbidden=(1,),
        modifies="shuffle",
        observations=ALL,
        compiled=True,
    )
    noise_channels: Range = _make_range_field(
        "added channels of normal noise",
        word="noise",
        whole=True,
        compiled=True,
    )
    noise_sd: float = _make_setting_field(
        0.1,
        "standard deviation of the noise channels",
        unit="units of the scaled readings",
        modifies="noise_channels",
        compiled=True,
    )
    copies: Range = _make_range_field(
        "added channels that repeat others",
        whole=True,
        observations=PATCHES,
        compiled=True,
    )
    missing: Range = _make_range_field(
        "share of the channels that is missing, drawn for each episode",
        maximum=1,
        observations=ALL,
        compiled=True,
    )
    freeze: Range = _make_range_field(
        "share of the channels that keeps its first value, drawn for each episode",
        maximum=1,
    )
    garbage: Range = _make_range_field(
        "share of the channels that carries noise, zeros or a slow drift in place of its signal,"
        " drawn for each episode",
        maximum=1,
    )
    delay: Range = _make_range_field(
        "delay of every signal", unit="ticks", whole=True, observations=ALL
    )
    jitter: Range = _make_range_field(
        "standard deviation of normal noise on every signal",
        unit="units of the scaled readings",
    )
    bias: Range = _make_range_field(
        "standard deviation of a constant offset of every signal, drawn for each episode",
        unit="units of the scaled readings",
    )
    spike: float = _make_setting_field(0.0, "probability of a spike in each reading", maximum=1)
    spike_sd: float = _make_setting_field(
        5.0,
        "standard deviation of the spikes",
        unit="units of the scaled readings",
        modifies="spike",
    )
    nan: float = _make_setting_field(0.0, "probability that a reading is NaN", maximum=1)
    lose: Range = _make_range_field(
        "probability that a message is lost; the last command then stays",
        maximum=1,
        observations=ALL,
    )
    repeat: Range = _make_range_field(
        "probability that a message repeats the one before it",
        maximum=1,
        observations=ALL,
    )
    stop: Range = _make_range_field(
        "duration of a stop by the safe command, which begins 3 to 6 s into each episode",
        unit="s",
        target="commands",
        **FOR_ROBOT,
    )
    start: str = _make_setting_field(
        START[0],
        "how the robot starts: as usual, after 2 s limp (rest), with its joints anywhere (posture)",
        choices=START,
        target="robot",
        **FOR_ROBOT,
    )
    gain: Range = _make_range_field("factor on the motors' output", 1, target="robot", **FOR_ROBOT)
    lag: Range = _make_range_field(
        "share of the motors' last output that stays in the next one (first-order lag)",
        maximum=1,
        target="robot",
        **FOR_ROBOT,
    )
    mass: Range = _make_range_field(
        "factor of the robot's mass", 1, minimum=0.01, target="robot", **FOR_ROBOT
    )
    friction: Range = _make_range_field(
        "factor of the friction with the ground", 1, target="robot", **FOR_ROBOT
    )

    def __post_init__(self) -> None:
        for setting in SETTINGS:
            value = getattr(self, setting.name)
            if setting.kind is Range and isinstance(value, Real):
                value = Range.from_value(value)
                object.__setattr__(self, setting.name, value)
            setting.check_value(value)

    def __str__(self) -> str:
        """Return a text from which `parse` makes these settings."""
        changed = {one.name for one in self.non_default_settings}
        found = [str(self.shuffle)]
        for word, one in WORDS.items():
            value = getattr(self, one.name)
            if one.name in changed or (value and one.modifies in changed):
                shown = str(value) if one.is_given_as_text else _format_exactly(value)
                found.append(word if one.kind is bool else f"{word}={shown}")
        return ",".join(found)

    @classmethod
    def parse(cls, text: str) -> DisturbanceSettings:
        """Return the settings that a text describes.

        Args:
            text: Comma-separated words: first a shuffle (see `Shuffle.parse`), then settings, as in
                ``none``, ``reset,noise=5`` or ``100,announced``. ``delay=1`` alone means
                ``none,delay=1``.

        Raises:
            ValueError: A word is not known or its value is not allowed; the message names the word
                and what is allowed.
        """
        shuffle, words = parse_shuffle_and_other_words(text)
        settings = cls(shuffle)
        for word in words:
            settings = settings.with_setting_from_text(word)
        return settings

    def with_setting_from_text(self, word: str) -> DisturbanceSettings:
        """Return a copy of these settings with one setting changed as a text says.

        Args:
            word: The setting and its value, such as ``missing=0.1``; the name alone for a setting
                that is on or off, such as ``announced``.

        Raises:
            ValueError: The word is not known or its value is not allowed; the message names the
                word and what is allowed.
        """
        name, _, value = word.partition("=")
        setting = WORDS.get(name)
        if setting is None or (setting.kind is bool and word != name):
            raise ValueError(f"disturbance: {short(word)} (allowed: {ALLOWED_WORDS})")
        try:
            changes: dict[str, Any] = {
                setting.name: setting.kind is bool or setting.convert_value(value)
            }
        except ValueError as error:
            raise ValueError(f"{short(word)}: {error}") from None
        return replace(self, **changes)

    @classmethod
    def from_values(cls, values: Mapping[str, object]) -> DisturbanceSettings:
        """Return settings with the given values; all other settings have their default value.

        Args:
            values: The values by the names of the settings, as text or as YAML and ROS parameters
                have them.

        Raises:
            ValueError: A value is not allowed; the message names setting, value and what is
                allowed.
        """
        return cls(**{name: TABLE[name].convert_value(value) for name, value in values.items()})

    @property
    def non_default_settings(self) -> tuple[Setting, ...]:
        """The settings that do not have their default value."""
        return tuple(one for one in SETTINGS if getattr(self, one.name) != one.default)

    @property
    def settings_without_effect(self) -> tuple[Setting, ...]:
        """The settings that do nothing, because the setting that they modify has its default."""
        changed = self.non_default_settings
        return tuple(one for one in changed if one.modifies and TABLE[one.modifies] not in changed)

    @property
    def is_active(self) -> bool:
        """Whether these settings disturb anything."""
        return any(not one.modifies for one in self.non_default_settings)

    def does_disturb_target(self, target: Target) -> bool:
        """Return whether these settings disturb the readings, the robot, or the commands.

        Args:
            target: Which of the three is asked about: "readings", "robot" or "commands".
        """
        return any(not one.modifies and one.target == target for one in self.non_default_settings)

    def draw_numbers_from_ranges(self, streams: RandomStreams) -> DisturbanceSettings:
        """Return these settings with a number drawn for each range.

        Each range has random numbers of its own, so that the number drawn for it does not depend
        on the other settings.

        Args:
            streams: The episode's random generators.
        """
        ranges = {name: getattr(self, name) for name in RANGES}
        if not any(one.has_distinct_bounds for one in ranges.values()):
            return self
        places = zip(ranges.items(), streams.draw_fraction_of_each_range(len(RANGES)), strict=True)
        drawn = {
            name: one.pick_number_at_fraction(place, whole=TABLE[name].whole)
            for (name, one), place in places
            if one.has_distinct_bounds
        }
        return replace(self, **drawn)

    def with_overrides_from(self, other: DisturbanceSettings) -> DisturbanceSettings:
        """Return a copy of these settings, with all values of `other` that are not the default.

        Args:
            other: The settings whose values replace those of this object.
        """
        return replace(
            self, **{one.name: getattr(other, one.name) for one in other.non_default_settings}
        )

    @property
    def is_supported_by_compiled_rollouts(self) -> bool:
        """Whether compiled training rollouts support these settings.

        Such rollouts need a fixed number of channels. So they do not support a range for
        `noise_channels` or `copies`. Nor do they support copies if all channels may be missing, or
        shuffles every few steps if some channels are missing.
        """
        counted = self.noise_channels, self.copies
        if self.copies and self.missing.high >= 1.0:
            return False
        return (
            all(one.compiled for one in self.non_default_settings)
            and not any(one.has_distinct_bounds for one in counted)
            and not (self.missing and self.shuffle.every)
        )

    def check_settings_fit_observation(self, observation: Observation) -> None:
        """Check that all settings that are not the default can disturb a kind of observation.

        Args:
            observation: What the policy reads: "scalar channels", "image patches" or "images".

        Raises:
            ValueError: A setting cannot disturb it; the message names this setting, and the
                settings that can.
        """
        for one in self.non_default_settings:
            if observation not in one.observations:
                able = ", ".join(
                    other.name for other in SETTINGS if observation in other.observations
                )
                value = getattr(self, one.name)
                raise ValueError(f"{one.name}: {value} (allowed for {observation}: {able})")

    def check_swap_count(self, channel_count: int) -> None:
        """Check that `swap`, how many signals exchange slots, is not above the channel count.

        Args:
            channel_count: The number of channels.

        Raises:
            ValueError: More signals are to exchange slots than there are channels.
        """
        if self.swap > channel_count:
            raise ValueError(
                f"swap: {self.swap} (allowed: 0 to {channel_count}, the number of channels)"
            )


SETTINGS = tuple(
    Setting(one.name, one.default, **{"word": one.name.replace("_", "-"), **one.metadata})
    for one in fields(DisturbanceSettings)
)
"""The descriptions of all settings, in the order of the fields."""
RANGES = (
    *("delay", "jitter", "lose", "repeat", "stop", "gain", "lag", "mass", "friction"),
    *("noise_channels", "copies", "missing", "freeze", "garbage", "bias"),
)
"""The names of the settings whose numbers may be ranges, drawn for each episode. New names must be
added at the end, so that the other numbers are drawn as before."""
TABLE = {one.name: one for one in SETTINGS}
WORDS = {one.word: one for one in SETTINGS if one.kind is not Shuffle}
"""A mapping from a setting's word in a text to its description. The shuffle is not in it, because
it comes first in the text and has no word."""


def format_setting_words(settings: Iterable[Setting]) -> str:
    """Return text on what a user can write to choose the given settings, for an error message.

    An example of the result is "announced, swap=NUMBER".
    """
    return ", ".join(
        one.word if one.kind is bool else f"{one.word}={'|'.join(one.choices) or 'NUMBER'}"
        for one in settings
    )


ALLOWED_WORDS = format_setting_words(WORDS.values())


def parse_shuffle_and_other_words(text: str) -> tuple[Shuffle, list[str]]:
    """Split a text that names disturbances into the shuffle at its start and all other words.

    If the text does not start with a shuffle, the returned shuffle is the one that never permutes.

    Args:
        text: A text such as ``reset,missing=0.1``, here with the shuffle ``reset`` (permute the
            signals at each reset) and the word ``missing=0.1``.

    Raises:
        ValueError: The shuffle is not valid.
    """
    first, *words = (word.strip() for word in text.split(","))
    if "=" in first or first in WORDS:
        return Shuffle(), [first, *words]
    try:
        return Shuffle.parse(first), words
    except ValueError:
        allowed = f"first a shuffle: {SHUFFLES}; then {ALLOWED_WORDS}"
        raise ValueError(f"disturbance: {short(first)} (allowed: {allowed})") from None


BEGIN_S = (3.0, 6.0)
"""The earliest and the latest time at which a stop starts, in seconds since the episode's start."""
WALK_S = 8.0
"""The seconds after a stop during which the robot's distance is measured."""


def describe_distances_walked_after_stop(
    walked_m: Sequence[float], min_walk_m: float | None
) -> str:
    """Return a sentence for people on how far robots walked after they had been stopped.

    Args:
        walked_m: The distance in metres that each robot walked after its stop, without the robots
            that had fallen before the stop ended.
        min_walk_m: The least distance in metres at which a robot counts as walking again; None if
            it is unknown.
    """
    again = "" if min_walk_m is None else f"{sum(one >= min_walk_m for one in walked_m)} of "
    distance = "" if min_walk_m is None else f" came {min_walk_m:g} m or more"
    return (
        f"{again}{len(walked_m)} still up when the stop ended{distance} in the {WALK_S:g} s after"
        f" it, median {np.median(walked_m):.1f} m"
    )


class RobotStop:
    """A period of an episode in which the robot gets the safe command instead of the policy's.

    The object also measures how far the robot walks after the stop.

    Args:
        begin_step: The first step of the stop.
        stopped_steps: The number of steps of the stop.
        measured_steps: The number of steps after the stop during which the distance is measured.
    """

    def __init__(self, begin_step: int, stopped_steps: int, measured_steps: int) -> None:
        self.begin, self.end = begin_step, begin_step + stopped_steps
        self._until = self.end + measured_steps
        self._from_m: float | None = None
        self.walked_m: float | None = None
        """The distance in metres that the robot walked in the `WALK_S` seconds after the stop, or
        until it fell; None if it had fallen before the stop ended."""

    @classmethod
    def draw(
        cls, rng: np.random.Generator, settings: DisturbanceSettings, step_s: float
    ) -> RobotStop | None:
        """Return a stop that begins at a random time; None if the settings have no stop.

        Args:
            rng: The random generator.
            settings: The settings, of which `stop` is the duration in seconds.
            step_s: The duration of one step in seconds.
        """
        if not settings.stop:
            return None
        begin_s = rng.uniform(*BEGIN_S)
        return cls(
            round(begin_s / step_s), round(settings.stop.value / step_s), round(WALK_S / step_s)
        )

    def update_walked_distance(self, step: int, distance_from_start_m: float | None) -> None:
        """Update `walked_m`, the distance walked after the stop; call it before each step.

        Args:
            step: The number of the step that comes next.
            distance_from_start_m: The robot's present distance from its start in metres; None if it
                is unknown.
        """
        if step == self.end:
            self._from_m = distance_from_start_m
        if distance_from_start_m is not None and self._from_m is not None and step <= self._until:
            self.walked_m = distance_from_start_m - self._from_m


def compute_worn_motor_output(
    settings: DisturbanceSettings,
    action: NDArray[np.float64],
    last_output: NDArray[np.float64] | None,
) -> NDArray[np.float64]:
    """Return the output (A,) of worn motors, which is weaker than the action and follows it late.

    The output is `lag` times the previous output, plus (1 - `lag`) times `gain` times the action.
    All actions and outputs are given as differences from the action that does nothing.

    Args:
        settings: The settings, of which `gain` and `lag` are used.
        action: (A,) the commanded action.
        last_output: (A,) the motors' output in the previous step; None in the first step.
    """
    wanted = settings.gain.value * action
    before = np.zeros_like(wanted) if last_output is None else last_output
    lag = settings.lag.value
    return lag * before + (1.0 - lag) * wanted


class ScheduledChange(NamedTuple):
    """A change of some settings' values, which a schedule makes at a certain step of each episode.

    Attributes:
        step: The step from which the new values hold.
        values: The new values by the names of the settings.
    """

    step: int
    values: Mapping[str, Any]


def load_schedule(path: str | Path) -> tuple[ScheduledChange, ...]:
    """Read a schedule of changes from a YAML file.

    The key ``an_control_schedule`` holds the version of the format. The key ``changes`` maps each
    step at which settings change to their new values::

        an_control_schedule: 1
        changes:
          200: {missing: 0.25}
          400: {missing: 0, shuffle: 50}

    Args:
        path: The path of the file.

    Raises:
        WiringError: The file is invalid; the message names file, key, value and what is allowed.
    """
    top = read_yaml(path).read_fields(("an_control_schedule", "changes"))
    if top["an_control_schedule"].read_number("1, the version of the format") != 1:
        raise top["an_control_schedule"].make_error("1, the version of the format")
    return tuple(
        _parse_change(step, one) for step, one in top["changes"].iterate_items("at least one step")
    )


def iterate_scheduled_settings(
    settings: DisturbanceSettings, schedule: Sequence[ScheduledChange]
) -> Iterator[DisturbanceSettings]:
    """Yield all settings of an episode in turn: those at the start, and those after each change.

    Args:
        settings: The settings at the start of the episode.
        schedule: The changes during the episode.
    """
    yield settings
    for change in sorted(schedule, key=lambda one: one.step):
        settings = replace(settings, **change.values)
        yield settings


def _parse_change(step: str, entry: Entry) -> ScheduledChange:
    """Return one change of a schedule in a YAML file.

    Args:
        step: The key in the file: the step, as text.
        entry: The value in the file: the settings that change.

    Raises:
        WiringError: The step or a setting is not valid.
    """
    if not step.isdecimal():
        raise WiringError(entry.file, entry.key, step, "a step, a whole number from 0")
    given = entry.read_fields((), tuple(one.name for one in SETTINGS if one.scheduled))
    return ScheduledChange(
        int(step), {name: _parse_setting_value(TABLE[name], one) for name, one in given.items()}
    )


def _parse_setting_value(setting: Setting, entry: Entry) -> Any:
    """Return the value of a setting in the YAML file of a schedule.

    Args:
        setting: The description of the setting.
        entry: Its entry in the file.

    Raises:
        WiringError: The value is not allowed.
    """
    try:
        if not setting.is_given_as_text and isinstance(entry.value, str):
            raise setting.make_error(entry.value)
        return setting.convert_value(entry.value)
    except ValueError:
        raise entry.make_error(setting.allowed_values_text) from None
