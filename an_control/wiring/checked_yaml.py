"""Reads a YAML file that nobody vouches for, and says exactly where it is wrong.

Plain data only: tags, anchors and aliases, duplicate keys, deep nesting and large files are
refused, and the document is built without recursion. Scalars follow YAML 1.2's core schema
(`true`, `null`, `1e-3`), so that `on` and `no` stay words and a date stays text. An `Entry` knows
its place in the file; its checks, and those below it that the wiring's parts share, raise a
`WiringError` that names file, key, value and what is allowed.
"""

from __future__ import annotations

import difflib
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from an_control.system.files import read_regular
from an_control.wiring.messages import SYNTAX, parse_field

_SHOWN = 80
"""Characters of an offending value that an error repeats."""


class WiringError(ValueError):
    """A wiring that cannot be used.

    file     the file it came from
    key      where in the file, dotted (`channels.height.scale`); empty for the whole file
    value    what stood there, shortened
    allowed  what may stand there
    """

    def __init__(self, file: str | Path, key: str, value: object, allowed: str) -> None:
        self.file, self.key, self.allowed = str(file), key, allowed
        self.value = shown(value)
        place = f"{self.file}: {_short(key)}" if key else self.file
        problem = f"{self.value} is not allowed; allowed"
        if isinstance(value, Missing):
            problem = f"{self.value} is missing; needed"
        super().__init__(f"{place}: {problem}: {allowed}")


def shown(value: object) -> str:
    """A value as an error repeats it: on one line, and short."""
    return _short(value if isinstance(value, Shown) else repr(value))


def without_middle(error: Exception) -> str:
    """What an error of a library says; of one that repeats a long value whole, its two ends."""
    text = str(error)
    return text if len(text) <= 4 * _SHOWN else f"{text[: 2 * _SHOWN]} ... {text[-2 * _SHOWN :]}"


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


class Shown(str):
    """Words that describe a value, as against the value itself."""

    __slots__ = ()


class Missing(Shown):
    """The name of a key, or words for something, that should be there and is not."""

    __slots__ = ()


MAX_BYTES = 1_000_000
MAX_DEPTH = 12
_PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLAIN = "plain YAML, with quotes around a name that starts with * or &"
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?|[-+]?\.inf|\.nan", re.ASCII)


def read_yaml(path: str | Path) -> Entry:
    """The document of a YAML file: dicts, lists, str, bool, None, int and float.

    Raises WiringError for what is no file or cannot be read, is over MAX_BYTES, or is not plain
    YAML.
    """
    try:
        data = read_regular(path, MAX_BYTES)
    except (OSError, ValueError) as error:
        raise WiringError(
            path, "", Shown(f"a file that cannot be read ({error})"), "a YAML file"
        ) from None
    if len(data) > MAX_BYTES:
        raise WiringError(path, "", Shown("a larger file"), f"at most {MAX_BYTES} bytes")
    try:
        return Entry(str(path), "", _build(yaml.parse(data.decode(), Loader=_PARSER)))
    except UnicodeDecodeError as error:
        raise WiringError(path, "", Shown(f"byte {error.start}"), "text in UTF-8") from None
    except _Refused as refused:
        raise WiringError(path, refused.key, Shown(refused), refused.allowed) from None
    except yaml.MarkedYAMLError as error:
        where = error.problem_mark or error.context_mark
        line = f"line {where.line + 1}: " if where else ""
        what = " ".join(filter(None, (error.context, error.problem)))
        raise WiringError(path, "", Shown(line + what), _PLAIN) from None
    except yaml.YAMLError as error:
        raise WiringError(path, "", Shown(f"unreadable text ({error})"), _PLAIN) from None


def _build(events: Iterable[yaml.Event]) -> object:
    """The one document of an event stream."""
    document: list[object] = []
    open_nodes: list[_Sequence | _Mapping] = []
    sink: _Sequence | _Mapping = _Sequence(document)
    for event in events:
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _Refused(event, "an alias or anchor", _PLAIN)
        if getattr(event, "tag", None):
            raise _Refused(event, "a tag", _PLAIN)
        if isinstance(event, yaml.ScalarEvent):
            sink.add(event, _scalar(event) if event.implicit[0] else event.value)
        elif isinstance(event, yaml.CollectionStartEvent):
            if len(open_nodes) >= MAX_DEPTH:
                raise _Refused(event, "one level more", f"{MAX_DEPTH} levels")
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            node = _Mapping(sink.key) if is_mapping else _Sequence([], sink.key)
            sink.add(event, node.value)
            open_nodes.append(sink)
            sink = node
        elif isinstance(event, yaml.CollectionEndEvent):
            sink = open_nodes.pop()
        elif isinstance(event, yaml.DocumentStartEvent) and document:
            raise _Refused(event, "a second document", "one document")
    return document[0] if document else None


class _Sequence:
    def __init__(self, value: list[object], key: str = "") -> None:
        self.value, self.key = value, key

    def add(self, event: yaml.Event, value: object) -> None:
        self.value.append(value)


class _Mapping:
    """Takes keys and values in turn; a key stays the text that was written."""

    def __init__(self, parent: str) -> None:
        self.value: dict[str, object] = {}
        self._parent = parent
        self._key: str | None = None

    @property
    def key(self) -> str:
        """Where the value that comes next stands in the file."""
        return dotted(self._parent, self._key or "")

    def add(self, event: yaml.Event, value: object) -> None:
        if self._key is not None:
            self.value[self._key], self._key = value, None
        elif not isinstance(event, yaml.ScalarEvent):
            raise _Refused(event, "a key that is no name", "a name", self.key)
        elif event.value in self.value:
            key = dotted(self._parent, event.value)
            raise _Refused(event, f"a second {event.value!r}", "each name once", key)
        else:
            self._key = event.value


def _scalar(event: yaml.ScalarEvent) -> object:
    text = event.value
    if text in _WORDS:
        return _WORDS[text]
    if not _NUMBER.fullmatch(text):
        return text
    if text.lstrip("+-").isdecimal() and len(text) <= 18:
        return int(text)
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


class _Refused(Exception):
    """YAML that is well-formed, but more than plain data."""

    def __init__(self, event: Any, what: str, allowed: str, key: str = "") -> None:
        super().__init__(f"line {event.start_mark.line + 1}: {what}")
        self.allowed, self.key = allowed, key


def dotted(parent: str, name: str) -> str:
    """The place of an entry in the file."""
    return f"{parent}.{name}" if parent and name else parent or name


class Entry:
    """A value of the file that knows where it stands, so that every complaint names the place."""

    def __init__(self, file: str, key: str, value: object) -> None:
        self.file, self.key, self.value = file, key, value

    def error(self, allowed: str) -> WiringError:
        """The WiringError for this value."""
        empty = self.value is None and not self.key
        return WiringError(
            self.file, self.key, Shown("an empty file") if empty else self.value, allowed
        )

    def items(self, what: str) -> Iterator[tuple[str, Entry]]:
        """The named entries of a mapping that must have at least one; `what` says of what."""
        if not isinstance(self.value, dict) or not self.value:
            raise self.error(what)
        for name, value in self.value.items():
            yield name, Entry(self.file, dotted(self.key, name), value)

    def fields(
        self,
        required: tuple[str, ...],
        optional: tuple[str, ...] = (),
        unneeded: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[str, Entry]:
        """Return the entries of a mapping that has all the required keys and none but the optional.

        `unneeded` are keys that people expect, and why there are none.
        """
        known = required + optional
        found = dict(self.items(f"a mapping of {', '.join(known)}"))
        for name, entry in found.items():
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f" (did you mean {near[0]!r}?)" if near else ""
                hint = f" ({unneeded[name]})" if name in unneeded else hint
                raise WiringError(self.file, entry.key, Shown("this key"), ", ".join(known) + hint)
        for name in required:
            if name not in found:
                raise WiringError(
                    self.file,
                    self.key,
                    Missing(repr(name)),
                    ", ".join(required),
                )
        return found

    def number(self, what: str, low: float = -math.inf, high: float = math.inf) -> float:
        """A finite number from low to high; `what` says what is allowed, in words."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(what)
        if not (math.isfinite(value) and low <= value <= high):
            raise self.error(what)
        return float(value)

    def range(self, what: str, bound: float) -> tuple[float, float]:
        """A list of two finite numbers, the first below the second, neither beyond +-bound."""
        if not isinstance(self.value, list) or len(self.value) != 2:
            raise self.error(what)
        low, high = (Entry(self.file, self.key, v).number(what, -bound, bound) for v in self.value)
        if not low < high:
            raise self.error(what)
        return low, high

    def text(self, what: str, pattern: re.Pattern[str]) -> str:
        """Text that the pattern matches in full."""
        if not isinstance(self.value, str) or not pattern.fullmatch(self.value):
            raise self.error(what)
        return self.value


LIMIT_S = 1e6
LARGEST = sys.float_info.max
LIMITS = "[lowest, highest], two finite numbers, the lowest first"
_TOPIC = re.compile(r"(~/|/)?[A-Za-z_]\w*(/[A-Za-z_]\w*)*", re.ASCII)
_TEXT = re.compile(r".{1,200}", re.DOTALL)


def topic(entry: Entry) -> str:
    """A topic's name."""
    return entry.text("a topic name such as joint_states or /ant/joint_states", _TOPIC)


def max_age(entry: Entry) -> float:
    """A greatest age in seconds."""
    return entry.number(f"seconds, 0 (off) to {LIMIT_S:g}", 0.0, LIMIT_S)


def number(
    entry: Entry | None, default: float, what: str, *, low: float = -LARGEST, zero: bool = True
) -> float:
    """An optional number."""
    if entry is None:
        return default
    value = entry.number(what, low, LARGEST)
    if not zero and value == 0.0:
        raise entry.error(what)
    return value


def source_name(entry: Entry, sources: tuple[str, ...]) -> str:
    """The name of one of the wiring's sources."""
    if entry.value not in sources:
        raise entry.error(f"one of the sources {', '.join(sources)}")
    return str(entry.value)


def field_path(entry: Entry, *, many: bool) -> str:
    """A field path that names one number, or with `many` several."""
    text = entry.text(SYNTAX, _TEXT)
    try:
        several = parse_field(text).many
    except ValueError:
        raise entry.error(SYNTAX) from None
    if several and not many:
        raise entry.error("one number, or a * in the channel's id")
    if many and not several:
        raise entry.error("several numbers (with a *), as the channel's id has a *")
    return text
