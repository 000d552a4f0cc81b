"""The wiring file of a robot: what feeds the policy's inputs, and where its commands go.

There is one YAML file for each robot, which is read once and frozen. It names sources (topics to
subscribe to), the channels (numbers and image patches that the policy reads) with the message field
of each, and the actuators. `load_wiring` and the functions below it define what a file may hold.
That the message types have the named fields is checked by `ChannelTable`, which knows the message
classes.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from an_control.wiring.checked_yaml import (
    LARGEST,
    LIMITS,
    Description,
    Entry,
    MissingItem,
    WiringError,
    join_keys,
    read_field_path,
    read_max_age_s,
    read_optional_number,
    read_source_name,
    read_topic,
    read_yaml,
)
from an_control.wiring.command import CommandConfig, read_command
from an_control.wiring.image import ImageConfig, read_image_settings
from an_control.wiring.messages import MESSAGE_TYPE, parse_field_path

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
_ID = re.compile(r"(?=.{1,200}$)[^\s*]*\*?[^\s*]*")
_FLOAT32 = 3.4028234e38
_RATE, _RATES = "messages per second, 0.001 to 100000", (1e-3, 1e5)
_A_NAME = "a name (a letter, then letters, digits or _)"
_REPAIRS = ("nan", "inf", "-inf", "valid", "outside", "pool")


@dataclass(frozen=True)
class SourceConfig:
    """Settings of one source, which is a subscription to a topic.

    Attributes:
        name: Name of the source in the wiring file.
        topic: Topic to subscribe to.
        type: Message type, such as `sensor_msgs/msg/JointState`.
        max_age_s: Maximum age of a message in seconds. An older message is not used; 0 means no
            maximum.
        required: Whether the safe command, which does no harm, is sent to the robot while the
            source has no message that can be used.
        weight: Weight of this source's channels together in the share of present channels, which
            `min_present_share` bounds. None gives each channel the weight 1.
        rate_hz: Number of messages per second on the topic; None if it is the control rate.
    """

    name: str
    topic: str
    type: str
    max_age_s: float
    required: bool = False
    weight: float | None = None
    rate_hz: float | None = None


@dataclass(frozen=True)
class PoolConfig:
    """Rule that combines neighbouring elements of an array into one reading.

    Attributes:
        size: Number of neighbouring elements that give one reading.
        by: How they are combined: by their minimum ("min") or their mean ("mean").
        elements: Range of the elements that are used: the first index, and the index behind the
            final one; None uses all.
    """

    size: int
    by: Literal["min", "mean"]
    elements: tuple[int, int] | None = None


@dataclass(frozen=True)
class ChannelConfig:
    """Settings of one channel, which is an input of the policy from a field of a message.

    The policy gets clip(reading * scale + offset), where the reading is the number in the message.
    If the field names several numbers, the id holds one `*` (a wildcard), which stands for the
    element's name or index. With `image` there is no field. Instead the channels are patches of the
    source's images, and the `*` stands for ROW.COLUMN of a patch.

    Attributes:
        id: Id of the channel.
        source: Name of the source (topic subscription).
        field: Field path (see `an_control.wiring.messages`).
        scale: Factor on the reading, not 0.
        offset: Number added after `scale`.
        clip: Lowest and highest value; None does not clip.
        max_age_s: Maximum age of a message in seconds, instead of that of the source; 0 means no
            maximum.
        image: How images are cut into patches; None if the channel is a number.
        nan: Value used for a reading of NaN; None makes the reading missing.
        inf: Value used for a reading of infinity; None makes the reading missing.
        minus_inf: Value used for a reading of minus infinity; None makes the reading missing.
        valid: Lowest and highest valid reading; None allows all.
        outside: Value used for a reading outside `valid`; None makes the reading missing.
        pool: How neighbouring elements of an array are combined, after `nan`, `inf`, `minus_inf`
            and `outside` were applied and before `scale` is; None combines none.
        weight: Weight of the channel in the share of present channels, which `min_present_share`
            bounds. Channels that a `*` stands for divide the weight. None gives each channel the
            weight 1.
        wrap: Whether the reading is an angle (rad) that is brought into -pi..pi before `scale`.
    """

    id: str
    source: str
    field: str = ""
    scale: float = 1.0
    offset: float = 0.0
    clip: tuple[float, float] | None = None
    max_age_s: float | None = None
    image: ImageConfig | None = None
    nan: float | None = None
    inf: float | None = None
    minus_inf: float | None = None
    valid: tuple[float, float] | None = None
    outside: float | None = None
    pool: PoolConfig | None = None
    weight: float | None = None
    wrap: bool = False

    @property
    def sine_or_cosine(self) -> str | None:
        """The word "sin" or "cos" if the channel is the sine or cosine of an angle, else None."""
        return parse_field_path(self.field).wave if self.field else None

    @property
    def has_invalid_reading_settings(self) -> bool:
        """Whether the entry sets a valid range, or values that replace invalid readings."""
        values = self.nan, self.inf, self.minus_inf, self.valid, self.outside
        return any(value is not None for value in values)


@dataclass(frozen=True)
class Wiring:
    """Content of a robot's wiring file: its sources, channels and commands.

    Attributes:
        file: Path of the file, for errors.
        robot: Name of the robot.
        rate_hz: Control rate, in ticks (control steps) per second.
        min_present_share: Share (0..1) of the channels that must have a reading. Each channel
            counts by its `weight`, or its part of the weight of its source or wildcard; by default
            all count the same. With a smaller share the safe command (that does no harm) is sent.
        sources: Topic subscriptions.
        channels: Numbers and image patches that the policy can read.
        command: How actions become messages to the actuators.
    """

    file: str
    robot: str
    rate_hz: float
    min_present_share: float
    sources: tuple[SourceConfig, ...]
    channels: tuple[ChannelConfig, ...]
    command: CommandConfig

    def find_source(self, name: str) -> SourceConfig:
        """Return the source (topic subscription) with this name.

        Raises:
            KeyError: There is no source with this name.
        """
        for source in self.sources:
            if source.name == name:
                return source
        raise KeyError(name)

    @property
    def rewirable_settings(self) -> dict[str, str]:
        """Values of all settings that can change while the node runs, by dotted key.

        Keys are `sources.NAME.topic`, `channels.ID.source` and `channels.ID.field`.
        """
        values = {f"sources.{source.name}.topic": source.topic for source in self.sources}
        for channel in self.channels:
            values[f"channels.{channel.id}.source"] = channel.source
            if channel.image is None:
                values[f"channels.{channel.id}.field"] = channel.field
        return values

    @property
    def images(self) -> tuple[ImageConfig, ...]:
        """Settings of how images are cut into patches, one for each camera."""
        return tuple(channel.image for channel in self.channels if channel.image is not None)

    def with_changes(self, changes: Mapping[str, object]) -> Wiring:
        """Return a copy of this wiring in which some topics, sources or fields are changed.

        Args:
            changes: New values by dotted key, such as `sources.imu.topic`. `rewirable_settings` has
                all possible keys.

        Raises:
            WiringError: A key is unknown, or a value would not be allowed in the file.
        """
        sources = {one.name: one for one in self.sources}
        channels = {one.id: one for one in self.channels}
        for key, value in changes.items():
            kind, _, rest = key.partition(".")
            name, _, part = rest.rpartition(".")
            entry = Entry(self.file, key, value)
            if (kind, part) == ("sources", "topic") and name in sources:
                sources[name] = replace(sources[name], topic=read_topic(entry))
            elif (kind, part) == ("channels", "source") and name in channels:
                source = read_source_name(entry, tuple(sources))
                channels[name] = replace(channels[name], source=source)
            elif (
                (kind, part) == ("channels", "field")
                and name in channels
                and not channels[name].image
            ):
                channels[name] = replace(
                    channels[name], field=read_field_path(entry, many_numbers="*" in name)
                )
            else:
                near = difflib.get_close_matches(key, self.rewirable_settings, 1)
                hint = f" (did you mean {near[0]}?)" if near else ""
                allowed = f"a sources.NAME.topic or channels.ID.source, .field of the wiring{hint}"
                raise WiringError(self.file, key, Description("this key"), allowed)
        check_no_topic_loops(self.file, sources.values(), self.command.topic_keys)
        return replace(self, sources=tuple(sources.values()), channels=tuple(channels.values()))

    def with_private_topics_below(self, node_name: str) -> Wiring:
        """Return a copy in which private topics (`~/x`) belong to another node (`node_name/x`).

        A node that listens in the place of the policy node then finds the same topics.

        Args:
            node_name: Name of the other node, which is in the same namespace.
        """

        def resolve(topic: str) -> str:
            return f"{node_name}/{topic[2:]}" if topic.startswith("~/") else topic

        sources = tuple(replace(one, topic=resolve(one.topic)) for one in self.sources)
        messages = tuple(replace(one, topic=resolve(one.topic)) for one in self.command.messages)
        return replace(self, sources=sources, command=replace(self.command, messages=messages))

    def with_conversions(self, conversions: Mapping[str, tuple[float, float]]) -> Wiring:
        """Return a copy in which some channels convert their readings by another scale and offset.

        Args:
            conversions: The new pair (scale, offset) by the channel's id in the wiring file, which
                may hold a `*`. All other channels keep theirs. An id that the wiring does not have
                is ignored.
        """
        channels = (
            replace(one, scale=conversions[one.id][0], offset=conversions[one.id][1])
            if one.id in conversions
            else one
            for one in self.channels
        )
        return replace(self, channels=tuple(channels))

    def list_changed_conversions(self, previous: Wiring) -> dict[str, tuple[float, float]]:
        """Return the scale and offset of each channel entry for which they have changed.

        Args:
            previous: The earlier wiring with which this one is compared.

        Returns:
            The pair (scale, offset) in this wiring, by the id of the entry. Entries that only one
            of the two wirings has are left out.
        """
        old = {one.id: (one.scale, one.offset) for one in previous.channels}
        new = {one.id: (one.scale, one.offset) for one in self.channels}
        return {id_: pair for id_, pair in new.items() if old.get(id_, pair) != pair}

    def list_changed_settings(self, previous: Wiring) -> dict[str, str]:
        """Return the new topics, sources and fields with which `previous` becomes this wiring.

        They are meant for `previous.with_changes`. If one of these settings of a source or channel
        has changed, its other ones are returned too.

        Args:
            previous: The earlier wiring, read from the same file.

        Returns:
            The values in this wiring, by dotted key such as `sources.imu.topic`.
        """
        kept = {*map(id, previous.sources), *map(id, previous.channels)}
        sources = tuple(one for one in self.sources if id(one) not in kept)
        channels = tuple(one for one in self.channels if id(one) not in kept)
        return replace(self, sources=sources, channels=channels).rewirable_settings

    def describe_changes(self, previous: Wiring) -> list[str]:
        """Return a text for the log on each setting that has changed.

        Args:
            previous: An earlier wiring of the same robot.
        """
        kept = {*map(id, self.channels)} & {*map(id, previous.channels)}
        new, old = (
            replace(
                one, channels=tuple(c for c in one.channels if id(c) not in kept)
            ).rewirable_settings
            for one in (self, previous)
        )
        changes = [f"{key} = {value}" for key, value in new.items() if old.get(key) != value]
        changes += [f"without {key}" for key in old if key not in new]
        return changes + _describe_changed_fields(previous, self)


def _describe_changed_fields(old: Wiring, new: Wiring) -> list[str]:
    """Return a text on each changed setting that cannot be changed by a parameter of the node."""
    changes = [
        f"{key} = {getattr(new, key)}"
        for key in ("robot", "min_present_share")
        if getattr(new, key) != getattr(old, key)
    ]
    before, after = (_list_entries_by_key(wiring) for wiring in (old, new))
    for key, one in after.items():
        for item in fields(one) if key in before else ():
            value = getattr(one, item.name)
            if item.name in ("topic", "source", "field"):
                continue
            if value != getattr(before[key], item.name):
                changes.append(f"{key}.{item.name} = {value}")
    return changes


def _list_entries_by_key(wiring: Wiring) -> dict[str, SourceConfig | ChannelConfig]:
    """Return the sources and channels of a wiring, by their keys in the file."""
    sources: dict[str, SourceConfig | ChannelConfig]
    sources = {f"sources.{one.name}": one for one in wiring.sources}
    return {**sources, **{f"channels.{one.id}": one for one in wiring.channels}}


def load_wiring(path: str | Path) -> Wiring:
    """Read and check a wiring file.

    Args:
        path: Path of the YAML file.

    Raises:
        WiringError: The file cannot be used. The text names file, key, value and what is allowed.
    """
    top = read_yaml(path).read_fields(
        (
            "an_control_wiring",
            "robot",
            "rate_hz",
            "min_present_share",
            "sources",
            "channels",
            "command",
        )
    )
    if top["an_control_wiring"].read_number("1, the version of the format") != 1:
        raise top["an_control_wiring"].make_error("1, the version of the format")
    sources = tuple(
        _read_source(name, e) for name, e in top["sources"].iterate_items("at least one source")
    )
    names = tuple(source.name for source in sources)
    channels = tuple(
        _read_channel(id_, e, names)
        for id_, e in top["channels"].iterate_items("at least one channel")
    )
    _check_channels_of_one_kind(top["channels"], channels)
    _check_source_and_channel_weights(top["channels"], sources, channels)
    rate_hz = top["rate_hz"].read_number("ticks per second, 0.001 to 100000", *_RATES)
    _check_one_type_per_topic(str(path), sources)
    command = read_command(top["command"], names, rate_hz)
    check_no_topic_loops(str(path), sources, command.topic_keys)
    return Wiring(
        file=str(path),
        robot=top["robot"].read_text(_A_NAME, _NAME),
        rate_hz=rate_hz,
        min_present_share=top["min_present_share"].read_number("a share from 0 to 1", 0.0, 1.0),
        sources=sources,
        channels=channels,
        command=command,
    )


def _check_one_type_per_topic(file: str, sources: Iterable[SourceConfig]) -> None:
    """Check that sources that read the same topic expect the same message type.

    Raises:
        WiringError: Two sources expect different types on one topic.
    """
    types: dict[str, SourceConfig] = {}
    for source in sources:
        first = types.setdefault(source.topic, source)
        if source.type != first.type:
            allowed = f"{first.type}, as which source {first.name} reads {source.topic}"
            raise WiringError(file, f"sources.{source.name}.type", source.type, allowed)


def check_no_topic_loops(
    file: str, sources: Iterable[SourceConfig], outputs: Mapping[str, str]
) -> None:
    """Check that no source (topic subscription) reads a topic to which the policy node publishes.

    Args:
        file: Path of the wiring file, for the error.
        sources: The wiring's sources.
        outputs: The topics to which the node publishes, each with a description for the error.

    Raises:
        WiringError: A source reads one of these topics.
    """
    for source in sources:
        if source.topic in outputs:
            allowed = f"a topic other than {outputs[source.topic]}: the policy would read itself"
            raise WiringError(file, f"sources.{source.name}.topic", source.topic, allowed)


def _read_source(name: str, entry: Entry) -> SourceConfig:
    """Read the settings of one source (topic subscription).

    Args:
        name: Name of the source.
        entry: Entry of the source in the wiring file.

    Raises:
        WiringError: A name, key or value is not allowed.
    """
    if not _NAME.fullmatch(name):
        raise WiringError(entry.file, entry.key, name, _A_NAME)
    fields = entry.read_fields(
        ("topic", "type", "max_age_s"),
        ("required", "weight", "rate_hz"),
        {join_keys(entry.key, "qos"): "the quality of service follows the publishers"},
    )
    rate = fields.get("rate_hz")
    return SourceConfig(
        name=name,
        topic=read_topic(fields["topic"]),
        type=fields["type"].read_text("a message type such as sensor_msgs/msg/Imu", MESSAGE_TYPE),
        max_age_s=read_max_age_s(fields["max_age_s"]),
        required=_read_optional_bool(fields.get("required")),
        weight=_read_optional_weight(fields.get("weight")),
        rate_hz=None if rate is None else rate.read_number(_RATE, *_RATES),
    )


def _read_channel(id_: str, entry: Entry, source_names: tuple[str, ...]) -> ChannelConfig:
    """Read the settings of one channel.

    Args:
        id_: Id of the channel.
        entry: Entry of the channel in the wiring file.
        source_names: Names of the wiring's sources (topic subscriptions).

    Raises:
        WiringError: An id, key or value is not allowed.
    """
    if not (_ID.fullmatch(id_) and id_.isprintable()):
        allowed = "an id of visible characters without blanks, with at most one *"
        raise WiringError(entry.file, entry.key, id_, allowed)
    max_age_s: float | None
    if isinstance(entry.value, dict) and "image" in entry.value:
        if "*" not in id_:
            raise WiringError(entry.file, entry.key, id_, "an id with a *, for ROW.COLUMN")
        fields = entry.read_fields(("source", "image"), ("max_age_s",))
        max_age_s = read_max_age_s(fields["max_age_s"]) if "max_age_s" in fields else None
        source, image = (
            read_source_name(fields["source"], source_names),
            read_image_settings(fields["image"]),
        )
        return ChannelConfig(id_, source, max_age_s=max_age_s, image=image)
    fields = entry.read_fields(
        ("source", "field"), ("scale", "offset", "clip", "max_age_s", "weight", "wrap", *_REPAIRS)
    )
    path = parse_field_path(read_field_path(fields["field"], many_numbers="*" in id_))
    if _read_optional_bool(fields.get("wrap")) and path.is_computed:
        raise fields["wrap"].make_error(
            "false, or no wrap: sin, cos and angles of quaternions need none"
        )
    if "outside" in fields and "valid" not in fields:
        needed = "valid: [lowest, highest], for outside"
        raise WiringError(entry.file, fields["outside"].key, MissingItem("'valid'"), needed)
    if "pool" in fields and "*" not in id_:
        raise fields["pool"].make_error("a channel with a * in its id")
    return ChannelConfig(
        id=id_,
        source=read_source_name(fields["source"], source_names),
        field=read_field_path(fields["field"], many_numbers="*" in id_),
        scale=read_optional_number(
            fields.get("scale"), 1.0, "a finite number other than 0", allow_zero=False
        ),
        offset=read_optional_number(fields.get("offset"), 0.0, "a finite number"),
        clip=fields["clip"].read_range(LIMITS, _FLOAT32) if "clip" in fields else None,
        nan=_read_replacement(fields.get("nan")),
        inf=_read_replacement(fields.get("inf")),
        minus_inf=_read_replacement(fields.get("-inf")),
        valid=fields["valid"].read_range(LIMITS, LARGEST) if "valid" in fields else None,
        outside=_read_replacement(fields.get("outside")),
        pool=_read_pool_config(fields["pool"]) if "pool" in fields else None,
        weight=_read_optional_weight(fields.get("weight")),
        wrap=_read_optional_bool(fields.get("wrap")),
        max_age_s=read_max_age_s(fields["max_age_s"]) if "max_age_s" in fields else None,
    )


def _read_replacement(entry: Entry | None) -> float | None:
    """Read the number that replaces an unusable reading; None if the reading becomes missing.

    Args:
        entry: Entry such as `nan` of a channel; None, and the value "missing", give None.

    Raises:
        WiringError: The value is neither a number nor "missing".
    """
    if entry is None or entry.value == "missing":
        return None
    return read_optional_number(entry, 0.0, "a finite number, or missing")


def _read_optional_bool(entry: Entry | None) -> bool:
    """Return an optional entry's value as a bool; False if there is no entry.

    Raises:
        WiringError: The value is not a bool.
    """
    if entry is None:
        return False
    if not isinstance(entry.value, bool):
        raise entry.make_error("true or false")
    return entry.value


def _read_optional_weight(entry: Entry | None) -> float | None:
    """Return an optional entry's value as a weight of 0 or more; None if there is no entry.

    Raises:
        WiringError: The value is not a number of 0 or more.
    """
    return (
        None
        if entry is None
        else read_optional_number(entry, 1.0, "a weight of 0 or more", low=0.0)
    )


def _read_pool_config(entry: Entry) -> PoolConfig:
    """Read how neighbouring elements of an array are combined into one reading.

    Args:
        entry: Entry `pool` of a channel.

    Raises:
        WiringError: A key or value is not allowed.
    """
    fields = entry.read_fields(("size", "by"), ("elements",))
    size = fields["size"].read_number("a whole number of elements, 1 or more", 1, 1e6)
    if size != int(size):
        raise fields["size"].make_error("a whole number of elements, 1 or more")
    if fields["by"].value not in ("min", "mean"):
        raise fields["by"].make_error("min or mean")
    elements: tuple[int, int] | None = None
    if "elements" in fields:
        what = "[first, end], two whole numbers from 0 on, the first below the end"
        first, end = fields["elements"].read_range(what, 1e6)
        if first < 0 or first != int(first) or end != int(end):
            raise fields["elements"].make_error(what)
        elements = int(first), int(end)
    return PoolConfig(int(size), "min" if fields["by"].value == "min" else "mean", elements)


def _check_source_and_channel_weights(
    entry: Entry, sources: Iterable[SourceConfig], channels: Iterable[ChannelConfig]
) -> None:
    """Check that a channel whose source has a weight does not have a weight of its own.

    Args:
        entry: Entry `channels`, for the error.
        sources: The wiring's sources (topic subscriptions).
        channels: The wiring's channels.

    Raises:
        WiringError: A channel and its source both have a weight.
    """
    weighed = {source.name for source in sources if source.weight is not None}
    for channel in channels:
        if channel.weight is not None and channel.source in weighed:
            raise WiringError(
                entry.file,
                f"{entry.key}.{channel.id}.weight",
                channel.weight,
                f"leave weight out: source {channel.source} has one for all its channels",
            )


def _check_channels_of_one_kind(entry: Entry, channels: tuple[ChannelConfig, ...]) -> None:
    """Check that all channels are numbers, or that all are image patches of one shape.

    Args:
        entry: Entry `channels`, for the error.
        channels: The wiring's channels.

    Raises:
        WiringError: The channels are mixed.
    """
    images = [channel.image for channel in channels if channel.image is not None]
    if images and len(images) < len(channels):
        raise WiringError(
            entry.file, entry.key, Description("a mixture of fields and images"), "one of them"
        )
    if len({(image.patch, image.stack) for image in images}) > 1:
        raise WiringError(
            entry.file,
            entry.key,
            Description("images with different patch or stack"),
            "one patch and one stack",
        )


MISSING, TWICE = -1, -2
"""Values in place of an index: for a name that the message does not have, and for one that it has
twice."""
KEPT_NAME_LISTS = 16
"""Maximum number of different lists of names that are remembered."""
_SHOWN = 5
"""Maximum number of names in one log line."""


class NameList:
    """One list of element names in a message, in which the index of a name can be looked up.

    Args:
        number: Number that identifies this list: other lists of names have other numbers.
        names: The names.
    """

    def __init__(self, number: int, names: Sequence[str]) -> None:
        self.number = number
        self.names = list(names)
        self._places = dict(zip(names, range(len(names)), strict=True))
        if len(self._places) < len(names):
            self._places |= {name: TWICE for name, count in Counter(names).items() if count > 1}

    def find_indices(self, names: Sequence[str]) -> NDArray[np.intp]:
        """Return the index of each of the given names in this list, as (n,).

        A name that is not in the list gets MISSING (-1), and one that is in it twice gets TWICE
        (-2).

        Args:
            names: The n names to look up.
        """
        try:
            found = itemgetter(*names)(self._places) if names else ()
        except KeyError:
            found = [self._places.get(name, MISSING) for name in names]
        return np.array(found, np.intp).reshape(-1)


class MessageNames:
    """The names of array elements in the newest message, which apply to all its arrays.

    Earlier lists of names are remembered, because several publishers on one topic may send
    different ones in turn.

    Args:
        path: Dotted attribute path of the list of names in the message.
    """

    def __init__(self, path: str) -> None:
        self._get = attrgetter(path)
        self._kept: dict[tuple[str, ...], NameList] = {}
        self._count = 0
        self.listing = NameList(0, ())

    def set_names_and_get_list_number(self, message: Any) -> int:
        """Store a message's list of names in `listing`; return a number that identifies this list.

        Equal lists get equal numbers.
        """
        names = self._get(message)
        if names != self.listing.names:
            key = tuple(names)
            listing = self._kept.get(key)
            if listing is None:
                self._count += 1
                listing = NameList(self._count, key)
                if len(self._kept) >= KEPT_NAME_LISTS:
                    self._kept.clear()
                self._kept[key] = listing
            self.listing = listing
        return self.listing.number


def describe_nearest_name(lacking_name: str, message_names: Sequence[str]) -> str:
    """Return text for a log line on the name in a message that is most similar to a missing name.

    If no name is similar, the text lists the names that the message has.

    Args:
        lacking_name: The name that the message lacks.
        message_names: Names of the elements in the message.
    """
    if other := describe_other_spelling(lacking_name, message_names):
        return f"it names {other}"
    if close := difflib.get_close_matches(lacking_name, message_names, 1):
        return f"it names {_quote_name(close[0])}, which is similar"
    if not message_names:
        return "it names nothing"
    more = len(message_names) - _SHOWN
    shown = ", ".join(map(_quote_name, message_names[:_SHOWN]))
    return f"it names {shown}{f' and {more} more' if more > 0 else ''}"


def describe_other_spelling(lacking_name: str, message_names: Sequence[str]) -> str:
    """Return text on a name in a message that is another spelling of a missing name.

    "Hip_1" and "robot/hip_1", for example, are other spellings of "hip_1".

    Args:
        lacking_name: The name that the message lacks.
        message_names: Names of the elements in the message.

    Returns:
        Text for a log line, which also says what to do; "" if no name is another spelling.
    """
    for alike, difference in _DIFFERENCES:
        for other in message_names:
            if alike(lacking_name, other):
                return f"{_quote_name(other)}, which differs in {difference}: {_WRITE_IT}"
    for other in message_names:
        if _differs_by_prefix(other, lacking_name) or _differs_by_prefix(lacking_name, other):
            return f"{_quote_name(other)}, which differs in its prefix: {_WRITE_IT}"
    return ""


_WRITE_IT = "write it so in the wiring"
_DIFFERENCES = (
    (lambda one, other: one.strip() == other.strip(), "blanks"),
    (
        lambda one, other: _normalise_name(one) == _normalise_name(other),
        "how its characters are encoded",
    ),
    (
        lambda one, other: _normalise_name(one).casefold() == _normalise_name(other).casefold(),
        "case",
    ),
    (
        lambda one, other: (
            _normalise_name(one).casefold().strip() == _normalise_name(other).casefold().strip()
        ),
        "case and blanks",
    ),
)
"""Functions that tell whether two names are nearly the same, each with a word for what differs."""


def _normalise_name(name: str) -> str:
    """Return a name with each character in its standard Unicode form (NFKC)."""
    return unicodedata.normalize("NFKC", name)


def _differs_by_prefix(long: str, short: str) -> bool:
    """Return whether `long` is `short` after a prefix such as "robot/"; case is ignored."""
    before = long.casefold().removesuffix(short.casefold())
    return bool(short) and before != long.casefold() and before[-1:] in {"/", ".", ":", "_", "-"}


def _quote_name(name: str) -> str:
    """Return a name, in quotes if it has blanks or invisible characters."""
    visible = name.isprintable() and name and not any(map(str.isspace, name))
    return name if visible else repr(name)
