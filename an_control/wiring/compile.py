"""A compiler from the channels of a source and its message class to readers, and to feeds.

Every field path is followed through the message's types, and refused if it leads to no number.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter, is_
from typing import Any, NoReturn

from an_control.wiring.camera import CameraReader, is_image, is_opencv_missing
from an_control.wiring.checked_yaml import Description, WiringError
from an_control.wiring.config import ChannelConfig, MessageNames, SourceConfig, Wiring
from an_control.wiring.feed import Feed, limit_ns
from an_control.wiring.messages import (
    ALL,
    DURATION,
    TIME,
    FieldPath,
    FieldType,
    Mark,
    Resolver,
    Step,
    field_types,
    find_mark,
    parse_field,
)
from an_control.wiring.readers import (
    AngleReader,
    Channel,
    ElementReader,
    Hop,
    MarkedReader,
    NestedReader,
    Reader,
    ScalarReader,
    Wildcard,
    make_array_getter,
    make_pooled_getter,
)

NAME_LISTS = ("name", "names", "joint_names")
"""Names of fields that, as lists of strings, name the elements of the arrays beside them."""
_MAX_DEPTH = 16
_Array = tuple[str, bool, str | None]
"""Identifies an array: its path, whether it holds octets, the path of its names."""


@dataclass(frozen=True)
class Leaf:
    """A number in a message that a field path leads to; several if a hop's key is `*`."""

    config: ChannelConfig
    hops: tuple[Hop, ...]
    base: str
    function: str | None = None
    mark: Mark | None = None
    """The mark by which a message says that the number is not available."""

    @cached_property
    def path(self) -> str:
        """Attribute path of the field."""
        return ".".join(hop.name for hop in self.hops)

    @cached_property
    def open(self) -> bool:
        """Whether messages decide how many numbers there are."""
        return any(hop.key == ALL for hop in self.hops)

    @cached_property
    def nested(self) -> bool:
        """Whether it needs `NestedReader`, for lists of messages and single octets."""
        lists = any(hop.key is not None for hop in self.hops[:-1])
        on_list = self.function is not None and self.hops[-1].key is not None
        return lists or on_list or (self.base == "octet" and self.hops[-1].key is None)

    @property
    def pools(self) -> bool:
        """Whether its elements are known by their index alone, so that they can be pooled."""
        return self.hops[-1].key == ALL and not self.nested and self.names is None

    @cached_property
    def names(self) -> str | None:
        """Path of the nearest list that names the last hop's elements, None if there is none."""
        for count in range(len(self.hops), 0, -1):
            if names := self.hops[count - 1].names:
                return ".".join([*(hop.name for hop in self.hops[: count - 1]), names])
        return None

    def label(self) -> str:
        """Return the leaf's part of its channel's id, as far as it is known without a message."""
        return ".".join(part for hop in self.hops for part in hop.labels(hop.key) if part != ALL)


def follow_field(
    config: ChannelConfig, cls: Any, resolve: Resolver, file: str, field: FieldPath | None = None
) -> list[Leaf]:
    """Return the numbers that a channel's field path leads to.

    Args:
        config: The channel.
        cls: Class of the source's messages.
        resolve: Returns the message class of a type's name.
        file: The wiring's file, for errors.
        field: The field path, if it has been parsed already.

    Raises:
        WiringError: If the path leads to no number.
    """
    field = field or parse_field(config.field)
    leaves = [
        replace(leaf, mark=_find_mark_on(leaf.hops, cls, resolve))
        for leaf in _FieldFollower(config, field, resolve, file).follow(field.steps, cls, ())
    ]
    if config.pool is not None and not all(leaf.pools for leaf in leaves):
        allowed = "a list of numbers known by their places, such as ranges[*]"
        raise WiringError(file, f"channels.{config.id}.pool", config.field, allowed)
    if not leaves:
        raise WiringError(
            file,
            f"channels.{config.id}.field",
            config.field,
            "a field that holds numbers other than stamps",
        )
    return leaves


def _find_mark_on(hops: Sequence[Hop], cls: Any, resolve: Resolver) -> Mark | None:
    """Return the mark of a field on the way to a number, or None if no field has one."""
    for place, hop in enumerate(hops):
        if mark := find_mark(cls, hop.name):
            return mark.at_path(".".join(before.name for before in hops[:place]))
        type_ = field_types(cls)[hop.name]
        if type_.array or type_.message is None:
            return None
        cls = resolve(type_.message)
    return None


def compile_source(
    leaves: Sequence[Leaf], taken: set[str]
) -> tuple[list[Reader], list[MessageNames]]:
    """Return the readers for a source's leaves, and the lists of names that they use.

    Args:
        leaves: The numbers to read.
        taken: Ids of other channels, including all channels without a `*`. A wildcard makes no
            channel
            with one of these ids, and adds its own to them.
    """
    scalars: dict[Mark | None, list[tuple[Channel, str]]] = defaultdict(list)
    angles: dict[tuple[Mark | None, str], list[tuple[Channel, str]]] = defaultdict(list)
    arrays: dict[_Array, list[tuple[Channel, int | str]]] = defaultdict(list)
    rest: list[Reader] = []
    names: dict[str, MessageNames] = {}
    for leaf in leaves:
        last = leaf.hops[-1]
        by_name = isinstance(last.key, str) and leaf.names is not None
        listed = leaf.names if by_name and not leaf.nested else None
        if listed is not None and listed not in names:
            names[listed] = MessageNames(listed)
        if leaf.open:
            rest.append(_make_wildcard_reader(leaf, names.get(listed or ""), taken))
            continue
        channel = _reserve_channel(leaf, taken)
        if channel is None:
            continue
        if leaf.nested:
            rest.append(NestedReader(leaf.hops, leaf.function, [channel]))
        elif leaf.function:
            angles[leaf.mark, leaf.path].append((channel, leaf.function))
        elif last.key is None:
            scalars[leaf.mark].append((channel, leaf.path))
        else:
            arrays[leaf.path, leaf.base == "octet", listed].append((channel, last.key))
    readers: list[Reader] = []
    for mark, numbers in scalars.items():
        readers.append(_with_mark(ScalarReader(*zip(*numbers, strict=True)), mark))
    for (mark, path), members in angles.items():
        channels, functions = zip(*members, strict=True)
        readers.append(_with_mark(AngleReader(channels, path, functions), mark))
    for (path, octets, listed), elements in arrays.items():
        channels, keys = zip(*elements, strict=True)
        beside = names[listed] if listed is not None else None
        readers.append(ElementReader(path, make_array_getter(path, octets), channels, keys, beside))
    return readers + rest, list(names.values())


def _with_mark(reader: Reader, mark: Mark | None) -> Reader:
    """Return the reader, with the mark if there is one."""
    return reader if mark is None else MarkedReader(reader, mark)


def _reserve_channel(leaf: Leaf, taken: set[str]) -> Channel | None:
    """Return the channel of a leaf and reserve its id, or None if another channel has it."""
    if ALL not in leaf.config.id:
        return leaf.config.id, leaf.config
    id_ = leaf.config.id.replace(ALL, leaf.label())
    if id_ in taken:
        return None
    taken.add(id_)
    return id_, leaf.config


def _make_wildcard_reader(leaf: Leaf, names: MessageNames | None, taken: set[str]) -> Reader:
    """Return the reader of a leaf with a wildcard."""
    if leaf.nested:
        wildcard = Wildcard(leaf.config, "", taken, by_name=leaf.names is not None)
        return NestedReader(leaf.hops, leaf.function, wildcard=wildcard)
    prefix = leaf.label()
    wildcard = Wildcard(
        leaf.config, f"{prefix}." if prefix else "", taken, by_name=names is not None
    )
    get = make_array_getter(leaf.path, leaf.base == "octet")
    if leaf.config.pool is not None:
        get = make_pooled_getter(get, leaf.config)
    return ElementReader(leaf.path, get, names=names, wildcard=wildcard)


class Sources:
    """The sources of a wiring at runtime, compiled from the field paths of their channels.

    Args:
        wiring: The robot's wiring.
        resolve: Returns the message class of a type's name.
        like: The sources of an earlier wiring. Where a source has the same type its state is
            copied, and where nothing but its topic differs its readers are used again.

    Raises:
        WiringError: If a message type is not installed, or a field path leads to no number.
    """

    def __init__(self, wiring: Wiring, resolve: Resolver, like: Sources | None) -> None:
        self.resolve, self._file = resolve, wiring.file
        self.message_classes: dict[str, Any] = {}
        """The message class of each source."""
        self._channels: dict[str, list[ChannelConfig]] = {one.name: [] for one in wiring.sources}
        for channel in wiring.channels:
            self._channels[channel.source].append(channel)
        self._leaves: dict[int, tuple[ChannelConfig, Any, list[Leaf]]] = {}
        """Entry, message class and leaves of each channel, by the identity of the entry."""
        self._taken = {channel.id for channel in wiring.channels if "*" not in channel.id}
        self._open = len(self._taken) < len(wiring.channels)
        """Whether messages decide which channels there are."""
        self.feeds = {one.name: self._make_feed(one, wiring, like) for one in wiring.sources}

    def _make_feed(self, source: SourceConfig, wiring: Wiring, like: Sources | None) -> Feed:
        """Return the feed of a source, with the state that it has in `like`.

        With wildcards, feeds depend on each other, and every feed is made again.
        """
        try:
            cls = self.resolve(source.type)
        except LookupError as error:
            key = f"sources.{source.name}.type"
            allowed = f"an installed type ({error})"
            raise WiringError(self._file, key, source.type, allowed) from None
        self.message_classes[source.name] = cls
        channels = self._channels[source.name]
        old = None if like is None else like.feeds.get(source.name)
        if like is not None and old is not None and not (self._open or like._open):
            before = like._channels[source.name]
            same = len(before) == len(channels) and all(map(is_, before, channels))
            if same and source == replace(old.config, topic=source.topic):
                self._leaves |= {id(one): like._leaves[id(one)] for one in channels}
                return old.with_config(source)
        if wiring.images:
            feed = Feed(source, [self._make_camera_reader(c, cls, source) for c in channels], ())
        else:
            leaves = [leaf for one in channels for leaf in self._follow(one, cls, like)]
            feed = Feed(source, *compile_source(leaves, self._taken))
        if old is not None and old.config.type == source.type:
            feed.copy_state(old)
        return feed

    def _follow(self, channel: ChannelConfig, cls: Any, like: Sources | None) -> list[Leaf]:
        """Return the leaves of a channel, from `like` if it has the same entry and class."""
        known = None if like is None else like._leaves.get(id(channel))
        if known is None or known[1] is not cls:
            known = channel, cls, follow_field(channel, cls, self.resolve, self._file)
        self._leaves[id(channel)] = known
        return known[2]

    def _make_camera_reader(
        self, channel: ChannelConfig, cls: Any, source: SourceConfig
    ) -> CameraReader:
        """Return the reader of a camera channel; raise WiringError if it cannot be read."""
        key = f"channels.{channel.id}.image"
        fields = cls.get_fields_and_field_types()
        if not is_image(fields):
            allowed = "a source of sensor_msgs/msg/Image or sensor_msgs/msg/CompressedImage"
            raise WiringError(self._file, key, source.type, allowed)
        if is_opencv_missing():
            allowed = "an installed OpenCV (pip install 'an_control[camera]')"
            raise WiringError(self._file, key, Description("an image"), allowed)
        return CameraReader(channel, fields, limit_ns(source, channel.max_age_s))


class _FieldFollower:
    """A walk along one field path through the types of a message."""

    def __init__(
        self, config: ChannelConfig, field: FieldPath, resolve: Resolver, file: str
    ) -> None:
        self._config, self._function = config, field.function
        self._resolve, self._file = resolve, file

    def follow(
        self, steps: tuple[Step, ...], cls: Any, hops: tuple[Hop, ...], named: bool = False
    ) -> Iterator[Leaf]:
        """Yield the leaves of a path in messages of class `cls`.

        Args:
            steps: The rest of the path.
            cls: Message class in which it begins.
            hops: The way from the source's message to there.
            named: Whether a message on the way has a list of names.
        """
        types = field_types(cls)
        names = find_name_list(types)
        step, rest = steps[0], steps[1:]
        if step.name == ALL:
            if self._function:
                self._fail("an angle of one quaternion")
            yield from self._follow_all(cls, hops)
            return
        if step.name not in types:
            near = difflib.get_close_matches(step.name, types, 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            self._fail(f"the fields here are {', '.join(types)}{hint}")
        type_ = types[step.name]
        self._check_key(step, type_, named or names is not None)
        for key in self._keys(step.key, type_):
            shown = (False, step.key == ALL)
            new = (*hops, Hop(step.name, key, names, shown))
            yield from self._follow_rest(rest, type_, new, named or names is not None)

    def _follow_rest(
        self, rest: tuple[Step, ...], type_: FieldType, hops: tuple[Hop, ...], named: bool
    ) -> Iterator[Leaf]:
        """Yield the leaves of the rest of a path behind a field of this type."""
        if type_.message:
            cls = self._resolve_class(type_.message)
            if rest:
                yield from self.follow(rest, cls, hops, named)
            elif self._function and set("xyzw") <= set(cls.get_fields_and_field_types()):
                yield Leaf(self._config, hops, "double", self._function)
            else:
                inside = ", ".join(field_types(cls))
                self._fail(f"a number; {hops[-1].name!r} is a message of {inside}")
        elif self._function:
            self._fail("an angle of a quaternion, a message with x, y, z, w")
        elif rest:
            self._fail(f"nothing after {hops[-1].name!r}, which is no message")
        elif not type_.numeric:
            self._fail(f"a number; {hops[-1].name!r} is a {type_.base}")
        else:
            yield Leaf(self._config, hops, type_.base)

    def _follow_all(self, cls: Any, hops: tuple[Hop, ...]) -> Iterator[Leaf]:
        """Yield every number of a message except stamps."""
        if len(hops) > _MAX_DEPTH:
            self._fail(f"a message of at most {_MAX_DEPTH} levels")
        types = field_types(cls)
        names = find_name_list(types)
        for name, type_ in types.items():
            if type_.base == TIME or (type_.base == DURATION and name == "stamp"):
                continue
            for key in self._keys(ALL if type_.array else None, type_):
                shown = (True, type_.array)
                new = (*hops, Hop(name, key, names, shown))
                if type_.message:
                    yield from self._follow_all(self._resolve_class(type_.message), new)
                elif type_.numeric:
                    yield Leaf(self._config, new, type_.base)

    def _check_key(self, step: Step, type_: FieldType, named: bool) -> None:
        """Check that a step's index or name fits the field's type."""
        if not type_.array and step.key is not None:
            self._fail(f"no index, as {step.name!r} is a single {type_.base}")
        if type_.array and step.key is None:
            by_name = f", {step.name}[NAME]" if named else ""
            self._fail(f"an element, as in {step.name}[0]{by_name} or {step.name}[*]")
        if isinstance(step.key, int) and type_.size is not None and step.key >= type_.size:
            self._fail(f"{step.name}[0] to {step.name}[{type_.size - 1}]")
        if isinstance(step.key, str) and step.key != ALL and not named:
            self._fail(f"an index, as in {step.name}[0]: the message has no list of names")

    def _keys(self, key: int | str | None, type_: FieldType) -> Sequence[int | str | None]:
        """Return the key; for all elements of a fixed-size array its indices, unless pooled."""
        if key == ALL and type_.fixed and type_.size is not None and self._config.pool is None:
            return range(type_.size)
        return (key,)

    def _resolve_class(self, name: str) -> Any:
        """Return the message class of a type's name."""
        try:
            return self._resolve(name)
        except LookupError as error:
            self._fail(f"a field of an installed message type ({error})")

    def _fail(self, allowed: str) -> NoReturn:
        """Raise the WiringError for this channel's field."""
        key = f"channels.{self._config.id}.field"
        raise WiringError(self._file, key, self._config.field, allowed)


def find_name_list(types: dict[str, FieldType]) -> str | None:
    """Return the name of the field that lists the names of a message's elements, or None."""
    for name in NAME_LISTS:
        type_ = types.get(name)
        if type_ and type_.array and type_.base.startswith("string"):
            return name
    return None


def names_reader(cls: Any) -> Callable[[Any], Sequence[str]] | None:
    """Return a function that returns the names in a message of this class; () if it has no names.

    None is returned for a class with lists of messages, each of which may come from another sender.
    """
    types = field_types(cls)
    if names := find_name_list(types):
        return attrgetter(names)
    if any(type_.array and type_.message for type_ in types.values()):
        return None
    return lambda message: ()


def lists_names(cls: Any) -> bool:
    """Return whether messages of this class name their elements."""
    return find_name_list(field_types(cls)) is not None
