"""Make the objects that read the channels of a source (topic) from its messages.

A channel's field path, such as `pose.position.z`, is followed through the message's types, and
refused if it leads to no number.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter, is_
from typing import Any, NoReturn

from an_control.wiring.camera import CameraReader, has_image_fields, is_opencv_missing
from an_control.wiring.checked_yaml import Description, WiringError
from an_control.wiring.config import ChannelConfig, MessageNames, SourceConfig, Wiring
from an_control.wiring.messages import (
    ALL,
    DURATION,
    TIME,
    FieldPath,
    FieldType,
    Resolver,
    Step,
    UnavailabilityRule,
    find_unavailability_rule,
    list_field_types,
    parse_field_path,
)
from an_control.wiring.readers import (
    INVALID_QUATERNION,
    Channel,
    ElementReader,
    FieldAccess,
    FieldReader,
    NestedReader,
    Reader,
    Wildcard,
    make_array_getter,
    make_pooled_array_getter,
    make_quaternion_getter,
)
from an_control.wiring.source_feed import Feed, compute_max_message_age_ns

NAME_LISTS = ("name", "names", "joint_names")
"""Names of message fields that, if they are lists of strings, name the elements of the arrays in
the same message."""
_MAX_DEPTH = 16
_Array = tuple[str, bool, str | None]
"""Identifies an array in a message: its attribute path, whether it holds octets, and the attribute
path of its list of names or None."""


@dataclass(frozen=True)
class NumberField:
    """Place of a number in a source's messages, found by following a channel's field path.

    If the path selects all elements of an array by `*`, it is the place of several numbers.

    Attributes:
        config: The channel that gets the number, as described in the wiring file.
        accesses: The fields and elements that lead, one inside the other, from the message to the
            number.
        base: Type of the number, such as "double".
        function: Function, such as "yaw", that computes the number from a quaternion in the field;
            None if the field itself is the number.
        rule: Rule by which a message says that the number is not available; None if there is none.
    """

    config: ChannelConfig
    accesses: tuple[FieldAccess, ...]
    base: str
    function: str | None = None
    rule: UnavailabilityRule | None = None
    """Rule by which a message says that the number is not available."""

    @cached_property
    def path(self) -> str:
        """Dotted path of attributes from the message to the field, without indices of arrays.

        For example, it is ``a.b`` for the field ``a[2].b``.
        """
        return ".".join(access.name for access in self.accesses)

    @cached_property
    def is_variable_length(self) -> bool:
        """Whether this object stands for several numbers, whose count each message decides."""
        return any(access.key == ALL for access in self.accesses)

    @cached_property
    def needs_nested_reader(self) -> bool:
        """Whether only the slow `NestedReader` can read this field.

        It is needed if the path to the field passes a list of messages, or if the field is a single
        octet, which is a bytes object in Python.
        """
        lists = any(access.key is not None for access in self.accesses[:-1])
        on_list = self.function is not None and self.accesses[-1].key is not None
        return lists or on_list or (self.base == "octet" and self.accesses[-1].key is None)

    @property
    def can_be_pooled(self) -> bool:
        """Whether neighbouring elements of this field can be combined into one number (pooled).

        They can if the field stands for a whole array whose elements have no names.
        """
        return (
            self.accesses[-1].key == ALL
            and not self.needs_nested_reader
            and self.element_names_path is None
        )

    @cached_property
    def element_names_path(self) -> str | None:
        """Attribute path of the list in a message that names the array's elements, or None."""
        for count in range(len(self.accesses), 0, -1):
            if names := self.accesses[count - 1].names:
                return ".".join([*(access.name for access in self.accesses[: count - 1]), names])
        return None

    def make_id_part(self) -> str:
        """Return the text that replaces the `*` in the channel's id, such as "position.3".

        A part that is not known before messages come, such as the index, is left out: "position".
        """
        return ".".join(
            part
            for access in self.accesses
            for part in access.make_id_parts(access.key)
            if part != ALL
        )


def resolve_field_path(
    config: ChannelConfig, cls: Any, resolve: Resolver, file: str, field: FieldPath | None = None
) -> list[NumberField]:
    """Find the numbers in messages of a class to which a channel's field path leads.

    Args:
        config: Channel entry of the wiring, which has the field path.
        cls: Class of the source's messages.
        resolve: Function that returns the class of a message type, given its name.
        file: Path of the wiring file, for errors.
        field: The field path to follow; None for that of `config`.

    Raises:
        WiringError: The path leads to no number.
    """
    field = field or parse_field_path(config.field)
    number_fields = [
        replace(
            number_field,
            rule=_find_unavailability_rule_on_path(number_field.accesses, cls, resolve),
        )
        for number_field in _FieldPathFollower(config, field, resolve, file).find_numbers(
            field.steps, cls, ()
        )
    ]
    if config.pool is not None and not all(
        number_field.can_be_pooled for number_field in number_fields
    ):
        allowed = "a list of numbers known by their places, such as ranges[*]"
        raise WiringError(file, f"channels.{config.id}.pool", config.field, allowed)
    if not number_fields:
        raise WiringError(
            file,
            f"channels.{config.id}.field",
            config.field,
            "a field that holds numbers other than stamps",
        )
    return number_fields


def _find_unavailability_rule_on_path(
    accesses: Sequence[FieldAccess], cls: Any, resolve: Resolver
) -> UnavailabilityRule | None:
    """Return the rule by which a message says that a number holds no reading, or None.

    Args:
        accesses: The fields and elements that lead from the message to the number. The first of
            them that has such a rule decides.
        cls: Class of the message.
        resolve: Function that returns the class of a message type, given its name.
    """
    for place, access in enumerate(accesses):
        if rule := find_unavailability_rule(cls, access.name):
            return rule.make_rule_for_containing_message(
                ".".join(before.name for before in accesses[:place])
            )
        type_ = list_field_types(cls)[access.name]
        if type_.array or type_.message_type is None:
            return None
        cls = resolve(type_.message_type)
    return None


def make_readers(
    number_fields: Sequence[NumberField], taken_ids: set[str]
) -> tuple[list[Reader], list[MessageNames]]:
    """Create the readers of a source's numbers, and the name lists by which they find elements.

    Args:
        number_fields: The numbers to read.
        taken_ids: Ids in use, such as those of all channels without a `*`. The channels of an entry
            with a `*` get other ids, which are added to this set.

    Returns:
        A pair: the readers; and the lists of element names in a message, which must be updated
        from each message before the readers read it.
    """
    scalars: dict[UnavailabilityRule | None, list[tuple[Channel, str]]] = defaultdict(list)
    angles: dict[tuple[UnavailabilityRule | None, str], list[tuple[Channel, str]]] = defaultdict(
        list
    )
    arrays: dict[_Array, list[tuple[Channel, int | str]]] = defaultdict(list)
    rest: list[Reader] = []
    names: dict[str, MessageNames] = {}
    for number_field in number_fields:
        last = number_field.accesses[-1]
        by_name = isinstance(last.key, str) and number_field.element_names_path is not None
        listed = (
            number_field.element_names_path
            if by_name and not number_field.needs_nested_reader
            else None
        )
        if listed is not None and listed not in names:
            names[listed] = MessageNames(listed)
        if number_field.is_variable_length:
            rest.append(_make_wildcard_reader(number_field, names.get(listed or ""), taken_ids))
            continue
        channel = _reserve_channel_if_id_free(number_field, taken_ids)
        if channel is None:
            continue
        if number_field.needs_nested_reader:
            rest.append(NestedReader(number_field.accesses, number_field.function, [channel]))
        elif number_field.function:
            angles[number_field.rule, number_field.path].append((channel, number_field.function))
        elif last.key is None:
            scalars[number_field.rule].append((channel, number_field.path))
        else:
            arrays[number_field.path, number_field.base == "octet", listed].append(
                (channel, last.key)
            )
    readers: list[Reader] = []
    for rule, numbers in scalars.items():
        channels, paths = zip(*numbers, strict=True)
        readers.append(FieldReader(channels, attrgetter(*paths), rule))
    for (rule, path), members in angles.items():
        channels, functions = zip(*members, strict=True)
        get = make_quaternion_getter(path, functions)
        readers.append(FieldReader(channels, get, rule, INVALID_QUATERNION))
    for (path, octets, listed), elements in arrays.items():
        channels, keys = zip(*elements, strict=True)
        beside = names[listed] if listed is not None else None
        readers.append(ElementReader(path, make_array_getter(path, octets), channels, keys, beside))
    return readers + rest, list(names.values())


def _reserve_channel_if_id_free(number_field: NumberField, taken_ids: set[str]) -> Channel | None:
    """Make the id of the channel for a number, and reserve it.

    Args:
        number_field: The number.
        taken_ids: Ids of all channels so far. The new id is added to them.

    Returns:
        A pair: the id, and the channel's settings. None if another channel has the id already.
    """
    if ALL not in number_field.config.id:
        return number_field.config.id, number_field.config
    id_ = number_field.config.id.replace(ALL, number_field.make_id_part())
    if id_ in taken_ids:
        return None
    taken_ids.add(id_)
    return id_, number_field.config


def _make_wildcard_reader(
    number_field: NumberField, names: MessageNames | None, taken_ids: set[str]
) -> Reader:
    """Return the reader for a channel id with a `*`, which adds channels when messages need them.

    Args:
        number_field: The numbers that the reader reads.
        names: List of the elements' names in a message; None if elements have no names.
        taken_ids: Ids of all channels so far. The reader adds the ids of its new channels.
    """
    if number_field.needs_nested_reader:
        wildcard = Wildcard(
            number_field.config, "", taken_ids, by_name=number_field.element_names_path is not None
        )
        return NestedReader(number_field.accesses, number_field.function, wildcard=wildcard)
    prefix = number_field.make_id_part()
    wildcard = Wildcard(
        number_field.config, f"{prefix}." if prefix else "", taken_ids, by_name=names is not None
    )
    get = make_array_getter(number_field.path, number_field.base == "octet")
    if number_field.config.pool is not None:
        get = make_pooled_array_getter(get, number_field.config)
    return ElementReader(number_field.path, get, names=names, wildcard=wildcard)


class Sources:
    """A robot's sources (subscribed topics) at runtime.

    Each has readers, which take the numbers for the policy's channels from the source's messages.

    Args:
        wiring: The robot's wiring: which topics feed which channels of the policy.
        resolve: A function that returns the class of a message type, given its name.
        previous: The sources of an earlier wiring, or None. A source gets the messages and state of
            the earlier source of the same name, if that has the same message type.

    Raises:
        WiringError: A message type is not installed, or a field path leads to no number.
    """

    def __init__(self, wiring: Wiring, resolve: Resolver, previous: Sources | None) -> None:
        self.resolve, self._file = resolve, wiring.file
        self.message_classes: dict[str, Any] = {}
        """The message class of each source, by the source's name."""
        self._channels: dict[str, list[ChannelConfig]] = {one.name: [] for one in wiring.sources}
        for channel in wiring.channels:
            self._channels[channel.source].append(channel)
        self._number_fields: dict[int, tuple[ChannelConfig, Any, list[NumberField]]] = {}
        """For each channel entry, by its Python `id()`: the entry, the message class and the number
        fields."""
        self._taken = {channel.id for channel in wiring.channels if "*" not in channel.id}
        self._open = len(self._taken) < len(wiring.channels)
        """Whether there are entries with a `*`, so that messages decide which channels there
        are."""
        self.feeds = {one.name: self._make_feed(one, wiring, previous) for one in wiring.sources}

    def _make_feed(self, source: SourceConfig, wiring: Wiring, previous: Sources | None) -> Feed:
        """Return the runtime object of a source, with its state from an earlier wiring.

        If nothing but the source's topic has changed, the readers of the earlier wiring are used
        again. This is not done if either wiring has a channel id with a `*`. Such readers make
        further ids from messages and remember them, so that an id could occur twice in the new
        wiring.

        Args:
            source: Settings of the source.
            wiring: The robot's wiring.
            previous: The sources of the earlier wiring, or None.
        """
        try:
            cls = self.resolve(source.type)
        except LookupError as error:
            key = f"sources.{source.name}.type"
            allowed = f"an installed type ({error})"
            raise WiringError(self._file, key, source.type, allowed) from None
        self.message_classes[source.name] = cls
        channels = self._channels[source.name]
        old = None if previous is None else previous.feeds.get(source.name)
        if previous is not None and old is not None and not (self._open or previous._open):
            before = previous._channels[source.name]
            same = len(before) == len(channels) and all(map(is_, before, channels))
            if same and source == replace(old.config, topic=source.topic):
                self._number_fields |= {
                    id(one): previous._number_fields[id(one)] for one in channels
                }
                return old.with_config(source)
        if wiring.images:
            feed = Feed(source, [self._make_camera_reader(c, cls, source) for c in channels], ())
        else:
            found = [
                one
                for channel in channels
                for one in self._resolve_channel_fields(channel, cls, previous)
            ]
            measures = any(one.source == source.name for one in wiring.command.measured_configs)
            readers, names = make_readers(found, self._taken)
            feed = Feed(source, readers, names, measures_positions=measures)
        if old is not None and old.config.type == source.type:
            feed.copy_state_from(old)
        return feed

    def _resolve_channel_fields(
        self, channel: ChannelConfig, cls: Any, previous: Sources | None
    ) -> list[NumberField]:
        """Find the numbers in messages of a class to which a channel's field path leads.

        Args:
            channel: Channel entry of the wiring.
            cls: Class of the source's messages.
            previous: The sources of the earlier wiring, or None. If they have the same entry and
                class, what was found for them is returned without following the path again.

        Raises:
            WiringError: The path leads to no number.
        """
        known = None if previous is None else previous._number_fields.get(id(channel))
        if known is None or known[1] is not cls:
            known = channel, cls, resolve_field_path(channel, cls, self.resolve, self._file)
        self._number_fields[id(channel)] = known
        return known[2]

    def _make_camera_reader(
        self, channel: ChannelConfig, cls: Any, source: SourceConfig
    ) -> CameraReader:
        """Return the reader of a channel entry with `image`.

        Args:
            channel: Channel entry of the wiring.
            cls: Class of the source's messages.
            source: Settings of the source.

        Raises:
            WiringError: The source does not send images, or OpenCV is not installed.
        """
        key = f"channels.{channel.id}.image"
        fields = cls.get_fields_and_field_types()
        if not has_image_fields(fields):
            allowed = "a source of sensor_msgs/msg/Image or sensor_msgs/msg/CompressedImage"
            raise WiringError(self._file, key, source.type, allowed)
        if is_opencv_missing():
            allowed = "an installed OpenCV (pip install 'an_control[camera]')"
            raise WiringError(self._file, key, Description("an image"), allowed)
        return CameraReader(channel, fields, compute_max_message_age_ns(source, channel.max_age_s))


class _FieldPathFollower:
    """A search for the numbers to which one field path leads, through the types of a message.

    Args:
        config: Channel entry of the wiring.
        field: The field path.
        resolve: Function that returns the class of a message type, given its name.
        file: Path of the wiring file, for errors.
    """

    def __init__(
        self, config: ChannelConfig, field: FieldPath, resolve: Resolver, file: str
    ) -> None:
        self._config, self._function = config, field.function
        self._resolve, self._file = resolve, file

    def find_numbers(
        self,
        steps: tuple[Step, ...],
        cls: Any,
        accesses: tuple[FieldAccess, ...],
        elements_are_named: bool = False,
    ) -> Iterator[NumberField]:
        """Yield the numbers at the end of a field path, or of the remaining part of one.

        Args:
            steps: The steps (fields) of the path that are still to be followed.
            cls: Class of the message in which they are followed.
            accesses: The fields and elements that lead from the source's message to that message.
            elements_are_named: Whether a message on the way to that message has a list that names
                its elements.

        Raises:
            WiringError: The path leads to no number.
        """
        types = list_field_types(cls)
        names = find_field_with_element_names(types)
        step, rest = steps[0], steps[1:]
        if step.name == ALL:
            if self._function:
                self._raise_error("an angle of one quaternion")
            yield from self._find_all_numbers(cls, accesses)
            return
        if step.name not in types:
            near = difflib.get_close_matches(step.name, types, 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            self._raise_error(f"the fields here are {', '.join(types)}{hint}")
        type_ = types[step.name]
        self._check_step_key(step, type_, elements_are_named or names is not None)
        for key in self._expand_wildcard_key(step.key, type_):
            shown = (False, step.key == ALL)
            new = (*accesses, FieldAccess(step.name, key, names, shown))
            yield from self._find_numbers_below_field(
                rest, type_, new, elements_are_named or names is not None
            )

    def _find_numbers_below_field(
        self,
        rest: tuple[Step, ...],
        type_: FieldType,
        accesses: tuple[FieldAccess, ...],
        elements_are_named: bool,
    ) -> Iterator[NumberField]:
        """Follow the rest of a field path from a field, and yield the numbers at its end.

        Args:
            rest: The steps of the path after this field; empty if the field is the last one.
            type_: Type of the field.
            accesses: The fields and elements that lead from the source's message to this field,
                including the field itself.
            elements_are_named: Whether a message on the way to this field has a list that names its
                elements.
        """
        if type_.message_type:
            cls = self._resolve_class(type_.message_type)
            if rest:
                yield from self.find_numbers(rest, cls, accesses, elements_are_named)
            elif self._function and set("xyzw") <= set(cls.get_fields_and_field_types()):
                yield NumberField(self._config, accesses, "double", self._function)
            else:
                inside = ", ".join(list_field_types(cls))
                self._raise_error(f"a number; {accesses[-1].name!r} is a message of {inside}")
        elif self._function:
            self._raise_error("an angle of a quaternion, a message with x, y, z, w")
        elif rest:
            self._raise_error(f"nothing after {accesses[-1].name!r}, which is not a message")
        elif not type_.is_numeric:
            self._raise_error(f"a number; {accesses[-1].name!r} is a {type_.base}")
        else:
            yield NumberField(self._config, accesses, type_.base)

    def _find_all_numbers(
        self, cls: Any, accesses: tuple[FieldAccess, ...]
    ) -> Iterator[NumberField]:
        """Yield every number of a message and of the messages in it, except time stamps.

        Args:
            cls: Class of the message.
            accesses: The fields and elements that lead from the source's message to this message.
        """
        if len(accesses) > _MAX_DEPTH:
            self._raise_error(f"a message of at most {_MAX_DEPTH} levels")
        types = list_field_types(cls)
        names = find_field_with_element_names(types)
        for name, type_ in types.items():
            if type_.base == TIME or (type_.base == DURATION and name == "stamp"):
                continue
            for key in self._expand_wildcard_key(ALL if type_.array else None, type_):
                shown = (True, type_.array)
                new = (*accesses, FieldAccess(name, key, names, shown))
                if type_.message_type:
                    yield from self._find_all_numbers(self._resolve_class(type_.message_type), new)
                elif type_.is_numeric:
                    yield NumberField(self._config, new, type_.base)

    def _check_step_key(self, step: Step, type_: FieldType, elements_are_named: bool) -> None:
        """Check that the index or name in a step of the path fits the field's type.

        Args:
            step: The step.
            type_: Type of the field.
            elements_are_named: Whether the message, or one that contains it, has a list that names
                its elements.

        Raises:
            WiringError: The index or name does not fit.
        """
        if not type_.array and step.key is not None:
            self._raise_error(f"no index, as {step.name!r} is a single {type_.base}")
        if type_.array and step.key is None:
            by_name = f", {step.name}[NAME]" if elements_are_named else ""
            self._raise_error(f"an element, as in {step.name}[0]{by_name} or {step.name}[*]")
        if isinstance(step.key, int) and type_.size is not None and step.key >= type_.size:
            self._raise_error(f"{step.name}[0] to {step.name}[{type_.size - 1}]")
        if isinstance(step.key, str) and step.key != ALL and not elements_are_named:
            self._raise_error(f"an index, as in {step.name}[0]: the message has no list of names")

    def _expand_wildcard_key(
        self, key: int | str | None, type_: FieldType
    ) -> Sequence[int | str | None]:
        """Return the keys of elements that a key stands for.

        For `*` they are all indices if the array has a fixed size. In all other cases the result is
        the given key alone.

        Args:
            key: Index, name or `*` of a step in the path; None for a field that is not an array.
            type_: Type of the field.
        """
        if key == ALL and type_.fixed and type_.size is not None and self._config.pool is None:
            return range(type_.size)
        return (key,)

    def _resolve_class(self, name: str) -> Any:
        """Return the class of a message type by the type's name.

        Raises:
            WiringError: The type is not installed.
        """
        try:
            return self._resolve(name)
        except LookupError as error:
            self._raise_error(f"a field of an installed message type ({error})")

    def _raise_error(self, allowed_text: str) -> NoReturn:
        """Raise the WiringError for this channel's field path.

        Args:
            allowed_text: Description of what is allowed instead.
        """
        key = f"channels.{self._config.id}.field"
        raise WiringError(self._file, key, self._config.field, allowed_text)


def find_field_with_element_names(types: dict[str, FieldType]) -> str | None:
    """Return the name of the field in which a message lists its array elements' names, or None.

    Args:
        types: Types of the message's fields, by name.
    """
    for name in NAME_LISTS:
        type_ = types.get(name)
        if type_ and type_.array and type_.base.startswith("string"):
            return name
    return None


def make_names_reader(cls: Any) -> Callable[[Any], Sequence[str]] | None:
    """Return a function that gets the list of element names from a message, or None.

    In a JointState this list is `name`.

    Args:
        cls: Class of the messages.

    Returns:
        The function; it returns () if the class has no such list. None if the class has a list of
        messages instead, each of which may have names of its own.
    """
    types = list_field_types(cls)
    if names := find_field_with_element_names(types):
        return attrgetter(names)
    if any(type_.array and type_.message_type for type_ in types.values()):
        return None
    return lambda message: ()


def has_name_list(cls: Any) -> bool:
    """Return whether messages of this class have a field that names the elements of arrays."""
    return find_field_with_element_names(list_field_types(cls)) is not None
