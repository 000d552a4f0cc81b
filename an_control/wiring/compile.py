"""From the channels of a source and its message class to the readers that read them.

Every field path is followed through the message's types, and refused where it leads to no number.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, NoReturn

from an_control.wiring.checked_yaml import WiringError
from an_control.wiring.config import ChannelConfig, Names
from an_control.wiring.messages import (
    ALL,
    DURATION,
    TIME,
    Field,
    FieldType,
    Mark,
    Resolver,
    Step,
    field_types,
    mark_of,
    parse_field,
)
from an_control.wiring.readers import (
    Angles,
    Channel,
    Elements,
    Hop,
    Marked,
    Reader,
    Scalars,
    Walk,
    Wildcard,
    array_getter,
    pooled,
)

NAME_LISTS = ("name", "names", "joint_names")
"""Fields that name the elements of the arrays beside them, where they are lists of strings."""
_MAX_DEPTH = 16
_Array = tuple[str, bool, str | None]
"""Which array an element is of: its path, whether it holds octets, the path of its names."""


@dataclass(frozen=True)
class Leaf:
    """A number in the messages, or with a `*` as the last key of a hop, several."""

    config: ChannelConfig
    hops: tuple[Hop, ...]
    base: str
    function: str | None = None
    mark: Mark | None = None
    """How a message says that it has no reading of it."""

    @cached_property
    def path(self) -> str:
        return ".".join(hop.name for hop in self.hops)

    @cached_property
    def open(self) -> bool:
        return any(hop.key == ALL for hop in self.hops)

    @cached_property
    def nested(self) -> bool:
        """Whether it needs the slow walk: lists of messages, and single octets."""
        lists = any(hop.key is not None for hop in self.hops[:-1])
        on_list = self.function is not None and self.hops[-1].key is not None
        return lists or on_list or (self.base == "octet" and self.hops[-1].key is None)

    @property
    def pools(self) -> bool:
        """Whether its elements are known by their places alone."""
        return self.hops[-1].key == ALL and not self.nested and self.names is None

    @cached_property
    def names(self) -> str | None:
        """Path of the nearest list that names the last hop's elements."""
        for count in range(len(self.hops), 0, -1):
            if names := self.hops[count - 1].names:
                return ".".join([*(hop.name for hop in self.hops[: count - 1]), names])
        return None

    def label(self) -> str:
        """The leaf's part of its channel's id, as far as it is known without a message."""
        return ".".join(part for hop in self.hops for part in hop.labels(hop.key) if part != ALL)


def follow(
    config: ChannelConfig, cls: Any, resolve: Resolver, file: str, field: Field | None = None
) -> list[Leaf]:
    """The numbers that a channel's field path leads to; WiringError where there are none.

    field: the path, where it is parsed already.
    """
    field = field or parse_field(config.field)
    leaves = [
        replace(leaf, mark=_mark_on(leaf.hops, cls, resolve))
        for leaf in _Follower(config, field, resolve, file).follow(field.steps, cls, ())
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


def _mark_on(hops: Sequence[Hop], cls: Any, resolve: Resolver) -> Mark | None:
    """Return the mark of a field on the way to a number; None where no field has one."""
    for place, hop in enumerate(hops):
        if mark := mark_of(cls, hop.name):
            return mark.inside(".".join(before.name for before in hops[:place]))
        type_ = field_types(cls)[hop.name]
        if type_.array or type_.message is None:
            return None
        cls = resolve(type_.message)
    return None


def compile_source(leaves: Sequence[Leaf], taken: set[str]) -> tuple[list[Reader], list[Names]]:
    """The readers for a source's leaves, and the lists of names that they look at.

    taken holds the ids that other channels have, those of all channels without a `*` among them;
    a wildcard leaves these out, and adds its own.
    """
    scalars: dict[Mark | None, list[tuple[Channel, str]]] = defaultdict(list)
    angles: dict[tuple[Mark | None, str], list[tuple[Channel, str]]] = defaultdict(list)
    arrays: dict[_Array, list[tuple[Channel, int | str]]] = defaultdict(list)
    rest: list[Reader] = []
    names: dict[str, Names] = {}
    for leaf in leaves:
        last = leaf.hops[-1]
        by_name = isinstance(last.key, str) and leaf.names is not None
        listed = leaf.names if by_name and not leaf.nested else None
        if listed is not None and listed not in names:
            names[listed] = Names(listed)
        if leaf.open:
            rest.append(_open_reader(leaf, names.get(listed or ""), taken))
            continue
        channel = _take(leaf, taken)
        if channel is None:
            continue
        if leaf.nested:
            rest.append(Walk(leaf.hops, leaf.function, [channel]))
        elif leaf.function:
            angles[leaf.mark, leaf.path].append((channel, leaf.function))
        elif last.key is None:
            scalars[leaf.mark].append((channel, leaf.path))
        else:
            arrays[leaf.path, leaf.base == "octet", listed].append((channel, last.key))
    readers: list[Reader] = []
    for mark, numbers in scalars.items():
        readers.append(_marked(Scalars(*zip(*numbers, strict=True)), mark))
    for (mark, path), members in angles.items():
        channels, functions = zip(*members, strict=True)
        readers.append(_marked(Angles(channels, path, functions), mark))
    for (path, octets, listed), elements in arrays.items():
        channels, keys = zip(*elements, strict=True)
        beside = names[listed] if listed is not None else None
        readers.append(Elements(path, array_getter(path, octets), channels, keys, beside))
    return readers + rest, list(names.values())


def _marked(reader: Reader, mark: Mark | None) -> Reader:
    return reader if mark is None else Marked(reader, mark)


def _take(leaf: Leaf, taken: set[str]) -> Channel | None:
    """The one channel of a leaf, None where another has its id."""
    if ALL not in leaf.config.id:
        return leaf.config.id, leaf.config
    id_ = leaf.config.id.replace(ALL, leaf.label())
    if id_ in taken:
        return None
    taken.add(id_)
    return id_, leaf.config


def _open_reader(leaf: Leaf, names: Names | None, taken: set[str]) -> Reader:
    if leaf.nested:
        wildcard = Wildcard(leaf.config, "", taken, by_name=leaf.names is not None)
        return Walk(leaf.hops, leaf.function, wildcard=wildcard)
    prefix = leaf.label()
    wildcard = Wildcard(
        leaf.config, f"{prefix}." if prefix else "", taken, by_name=names is not None
    )
    get = array_getter(leaf.path, leaf.base == "octet")
    if leaf.config.pool is not None:
        get = pooled(get, leaf.config)
    return Elements(leaf.path, get, names=names, wildcard=wildcard)


class _Follower:
    """Follows one field path through the types of a message."""

    def __init__(self, config: ChannelConfig, field: Field, resolve: Resolver, file: str) -> None:
        self._config, self._function = config, field.function
        self._resolve, self._file = resolve, file

    def follow(
        self, steps: tuple[Step, ...], cls: Any, hops: tuple[Hop, ...], named: bool = False
    ) -> Iterator[Leaf]:
        """The leaves of a path from a message of class cls; named: whether names are above it."""
        types = field_types(cls)
        names = name_list(types)
        step, rest = steps[0], steps[1:]
        if step.name == ALL:
            if self._function:
                self._fail("an angle of one quaternion")
            yield from self._everything(cls, hops)
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
            yield from self._after(rest, type_, new, named or names is not None)

    def _after(
        self, rest: tuple[Step, ...], type_: FieldType, hops: tuple[Hop, ...], named: bool
    ) -> Iterator[Leaf]:
        if type_.message:
            cls = self._class(type_.message)
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

    def _everything(self, cls: Any, hops: tuple[Hop, ...]) -> Iterator[Leaf]:
        """Every number of a message but the stamps."""
        if len(hops) > _MAX_DEPTH:
            self._fail(f"a message of at most {_MAX_DEPTH} levels")
        types = field_types(cls)
        names = name_list(types)
        for name, type_ in types.items():
            if type_.base == TIME or (type_.base == DURATION and name == "stamp"):
                continue
            for key in self._keys(ALL if type_.array else None, type_):
                shown = (True, type_.array)
                new = (*hops, Hop(name, key, names, shown))
                if type_.message:
                    yield from self._everything(self._class(type_.message), new)
                elif type_.numeric:
                    yield Leaf(self._config, new, type_.base)

    def _check_key(self, step: Step, type_: FieldType, named: bool) -> None:
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
        """A key, or for all of an array of fixed size its indices, unless they are pooled."""
        if key == ALL and type_.fixed and type_.size is not None and self._config.pool is None:
            return range(type_.size)
        return (key,)

    def _class(self, name: str) -> Any:
        try:
            return self._resolve(name)
        except LookupError as error:
            self._fail(f"a field of an installed message type ({error})")

    def _fail(self, allowed: str) -> NoReturn:
        key = f"channels.{self._config.id}.field"
        raise WiringError(self._file, key, self._config.field, allowed)


def name_list(types: dict[str, FieldType]) -> str | None:
    """The field that lists the names of a message's elements."""
    for name in NAME_LISTS:
        type_ = types.get(name)
        if type_ and type_.array and type_.base.startswith("string"):
            return name
    return None


def names_reader(cls: Any) -> Callable[[Any], Sequence[str]] | None:
    """Return a function that gives what a message of this class names, nothing without names.

    None for a class with lists of messages, each of which may be of another sender.
    """
    types = field_types(cls)
    if names := name_list(types):
        return attrgetter(names)
    if any(type_.array and type_.message for type_ in types.values()):
        return None
    return lambda message: ()


def lists_names(cls: Any) -> bool:
    """Whether messages of this class name their elements."""
    return name_list(field_types(cls)) is not None
