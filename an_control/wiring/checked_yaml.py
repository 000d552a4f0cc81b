"""Read untrusted YAML files, with errors that name file, key, value and what is allowed.

Only plain data is accepted: tags, anchors and aliases, duplicate keys, deep nesting and large files
are refused, and the document is built without recursion. Scalars follow YAML 1.2's core schema
(`true`, `null`, `1e-3`), so that `on` and `no` stay words and a date stays text. An `Entry` is a
value together with its key in the file, so that errors can name both. The methods of `Entry`, and
the functions at the end of this module that several parts of the wiring share, check values and
raise a `WiringError`.
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

from an_control.system.files import describe_read_error, read_regular_file
from an_control.wiring.messages import SYNTAX, parse_field_path

_SHOWN = 80
"""Maximum number of characters of a value in the text of an error."""


class WiringError(ValueError):
    """Error in a wiring file, whose text names the file, the key, the value, and what is allowed.

    Args:
        file: Path of the wiring file.
        key: Dotted key in the file, such as `channels.height.scale`; "" for the whole file.
        value: The value that is not allowed; a long one is shortened. A `Description` stands for a
            value that is described in words, a `Problem` is printed as it is.
        allowed: Description of what is allowed for this key; "" if `value` is a `Problem`.
    """

    def __init__(self, file: str | Path, key: str, value: object, allowed: str = "") -> None:
        self.file, self.key, self.allowed = str(file), key, allowed
        self.value = str(value) if isinstance(value, Problem) else quote_value(value)
        place = f"{self.file}: {_shorten_text(key)}" if key else self.file
        problem = f"{self.value} is not allowed; allowed"
        if isinstance(value, MissingItem):
            problem = f"{self.value} is missing; needed"
        text = self.value if isinstance(value, Problem) else f"{problem}: {allowed}"
        super().__init__(f"{place}: {text}")


def quote_value(value: object) -> str:
    """Return a value as text for an error: on one line, cut to 80 characters."""
    return _shorten_text(value if isinstance(value, Description) else repr(value))


def shorten_error(error: Exception) -> str:
    """Return the text of an error, without its middle if it has more than 320 characters."""
    text = str(error)
    return text if len(text) <= 4 * _SHOWN else f"{text[: 2 * _SHOWN]} ... {text[-2 * _SHOWN :]}"


def _shorten_text(text: str) -> str:
    """Return a text, cut to at most `_SHOWN` (80) characters."""
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


class Description(str):
    """Description of a value in words, which a `WiringError` prints without quotes."""

    __slots__ = ()


class MissingItem(Description):
    """Description of something that a file lacks, which a `WiringError` reports as missing."""

    __slots__ = ()


class Problem(Description):
    """Text of a problem that a `WiringError` prints alone, without adding what is allowed."""

    __slots__ = ()


MAX_BYTES = 1_000_000
MAX_DEPTH = 12
_PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLAIN = "plain YAML, with quotes around a name that starts with * or &"
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?|[-+]?\.inf|\.nan", re.ASCII)


def read_yaml(path: str | Path) -> Entry:
    """Read a YAML file of plain data and return its document as an `Entry`.

    Args:
        path: Path of the file.

    Raises:
        WiringError: The file cannot be read, is larger than `MAX_BYTES`, or is not plain YAML.
    """
    try:
        data = read_regular_file(path, MAX_BYTES)
    except (OSError, ValueError) as error:
        problem = Problem(f"cannot be read: {describe_read_error(error)}")
        raise WiringError(path, "", problem) from None
    if len(data) > MAX_BYTES:
        raise WiringError(path, "", Description("a larger file"), f"at most {MAX_BYTES} bytes")
    try:
        return Entry(str(path), "", _build_document(yaml.parse(data.decode(), Loader=_PARSER)))
    except UnicodeDecodeError as error:
        raise WiringError(path, "", Description(f"byte {error.start}"), "text in UTF-8") from None
    except _RefusedYamlError as refused:
        raise WiringError(path, refused.key, Description(refused), refused.allowed) from None
    except yaml.MarkedYAMLError as error:
        where = error.problem_mark or error.context_mark
        line = f"line {where.line + 1}: " if where else ""
        what = " ".join(filter(None, (error.context, error.problem)))
        raise WiringError(path, "", Description(line + what), _PLAIN) from None
    except yaml.YAMLError as error:
        raise WiringError(path, "", Description(f"unreadable text ({error})"), _PLAIN) from None


def _build_document(events: Iterable[yaml.Event]) -> object:
    """Build the plain data of a YAML document: nested dicts, lists, texts and numbers.

    Args:
        events: The events that PyYAML's parser yields for the whole file.

    Raises:
        _RefusedYamlError: The file holds tags, anchors, too many levels or a second document.
    """
    document: list[object] = []
    open_nodes: list[_Sequence | _Mapping] = []
    sink: _Sequence | _Mapping = _Sequence(document)
    for event in events:
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _RefusedYamlError(event, "an alias or anchor", _PLAIN)
        if getattr(event, "tag", None):
            raise _RefusedYamlError(event, "a tag", _PLAIN)
        if isinstance(event, yaml.ScalarEvent):
            sink.add(event, _read_scalar(event) if event.implicit[0] else event.value)
        elif isinstance(event, yaml.CollectionStartEvent):
            if len(open_nodes) >= MAX_DEPTH:
                raise _RefusedYamlError(event, "one level more", f"{MAX_DEPTH} levels")
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            node = _Mapping(sink.key) if is_mapping else _Sequence([], sink.key)
            sink.add(event, node.value)
            open_nodes.append(sink)
            sink = node
        elif isinstance(event, yaml.CollectionEndEvent):
            sink = open_nodes.pop()
        elif isinstance(event, yaml.DocumentStartEvent) and document:
            raise _RefusedYamlError(event, "a second document", "one document")
    return document[0] if document else None


class _Sequence:
    """List of a YAML document while it is being built.

    Args:
        value: The list to fill.
        key: Dotted key of the list in the file, for errors.
    """

    def __init__(self, value: list[object], key: str = "") -> None:
        self.value, self.key = value, key

    def add(self, event: yaml.Event, value: object) -> None:
        """Append a value to the list.

        Args:
            event: The event of PyYAML's parser for this value; not used.
            value: The value, as plain data.
        """
        self.value.append(value)


class _Mapping:
    """Dict of a YAML document while it is being built from keys and values in turn.

    A key stays text as it is written, also if it looks like a number.

    Args:
        parent: Dotted key of the mapping in the file, for errors.
    """

    def __init__(self, parent: str) -> None:
        self.value: dict[str, object] = {}
        self._parent = parent
        self._key: str | None = None

    @property
    def key(self) -> str:
        """Dotted key, in the YAML file, of the mapping's next value."""
        return join_keys(self._parent, self._key or "")

    def add(self, event: yaml.Event, value: object) -> None:
        """Add a key, or if a key was added last, its value.

        Args:
            event: The event of PyYAML's parser, with the text and the line of a key.
            value: The value as plain data; not used for a key.

        Raises:
            _RefusedYamlError: A key is not text, or occurs twice.
        """
        if self._key is not None:
            self.value[self._key], self._key = value, None
        elif not isinstance(event, yaml.ScalarEvent):
            raise _RefusedYamlError(event, "a key that is not a name", "a name", self.key)
        elif event.value in self.value:
            key = join_keys(self._parent, event.value)
            raise _RefusedYamlError(event, f"a second {event.value!r}", "each name once", key)
        else:
            self._key = event.value


def _read_scalar(event: yaml.ScalarEvent) -> object:
    """Convert an unquoted YAML scalar to a number, a bool, None or text.

    The rules are those of the core schema of YAML 1.2: "no", for example, stays text.
    """
    text = event.value
    if text in _WORDS:
        return _WORDS[text]
    if not _NUMBER.fullmatch(text):
        return text
    if text.lstrip("+-").isdecimal() and len(text) <= 18:
        return int(text)
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


class _RefusedYamlError(Exception):
    """Error for well-formed YAML that is refused, because it is more than plain data.

    Args:
        event: Event of PyYAML's parser, which has the line number.
        problem: Description of what was found and is refused.
        allowed: Description of what is allowed instead.
        key: Dotted key in the file; "" for the whole file.
    """

    def __init__(self, event: Any, problem: str, allowed: str, key: str = "") -> None:
        super().__init__(f"line {event.start_mark.line + 1}: {problem}")
        self.allowed, self.key = allowed, key


def join_keys(parent: str, name: str) -> str:
    """Return the dotted key of the entry `name` in the mapping whose dotted key is `parent`."""
    return f"{parent}.{name}" if parent and name else parent or name


class Entry:
    """Value of a YAML file with its key, which every error about the value names.

    Args:
        file: Path of the file.
        key: Dotted key of the value in the file, such as `channels.height.scale`; "" for the whole
            document.
        value: The value as plain data.
    """

    def __init__(self, file: str, key: str, value: object) -> None:
        self.file, self.key, self.value = file, key, value

    def make_error(self, allowed_text: str) -> WiringError:
        """Return the WiringError that says that this value is not allowed.

        Args:
            allowed_text: Description of what is allowed instead.
        """
        empty = self.value is None and not self.key
        return WiringError(
            self.file, self.key, Description("an empty file") if empty else self.value, allowed_text
        )

    def iterate_items(self, allowed_text: str) -> Iterator[tuple[str, Entry]]:
        """Yield key and value (as an `Entry`) of each item of the mapping that this entry holds.

        Args:
            allowed_text: Description of what is allowed, for the error.

        Raises:
            WiringError: The value is not a mapping, or is an empty one.
        """
        if not isinstance(self.value, dict) or not self.value:
            raise self.make_error(allowed_text)
        for name, value in self.value.items():
            yield name, Entry(self.file, join_keys(self.key, name), value)

    def read_fields(
        self,
        required: tuple[str, ...],
        optional: tuple[str, ...] = (),
        renamed: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[str, Entry]:
        """Check the keys of the mapping that this entry holds; return its values by key.

        Each value is an `Entry` again.

        Args:
            required: Keys that must be there.
            optional: Further keys that may be there.
            renamed: Text for the error about each dotted key that an earlier version of the format
                had. It says what has replaced the key.

        Raises:
            WiringError: A required key is missing, or a key is unknown.
        """
        known = required + optional
        found = dict(self.iterate_items(f"a mapping of {', '.join(known)}"))
        for name, entry in found.items():
            if name not in known:
                if now := renamed.get(entry.key):
                    raise WiringError(self.file, entry.key, Problem(f"is now: {now}"))
                near = difflib.get_close_matches(name, known, 1)
                hint = f" (did you mean {near[0]!r}?)" if near else ""
                raise WiringError(
                    self.file, entry.key, Description("this key"), ", ".join(known) + hint
                )
        for name in required:
            if name not in found:
                raise WiringError(
                    self.file,
                    self.key,
                    MissingItem(repr(name)),
                    ", ".join(required),
                )
        return found

    def read_number(
        self, allowed_text: str, low: float = -math.inf, high: float = math.inf
    ) -> float:
        """Return the value as a finite number from `low` to `high`.

        Args:
            allowed_text: Description of what is allowed, for the error.
            low: Lowest allowed number.
            high: Highest allowed number.

        Raises:
            WiringError: The value is not such a number.
        """
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.make_error(allowed_text)
        if not (math.isfinite(value) and low <= value <= high):
            raise self.make_error(allowed_text)
        return float(value)

    def read_range(self, allowed_text: str, bound: float) -> tuple[float, float]:
        """Return the value, a list [lowest, highest] of two finite numbers, as a pair.

        Args:
            allowed_text: Description of what is allowed, for the error.
            bound: Largest allowed absolute value of each of the two numbers.

        Raises:
            WiringError: The value is not a list of two such numbers.
        """
        if not isinstance(self.value, list) or len(self.value) != 2:
            raise self.make_error(allowed_text)
        low, high = (
            Entry(self.file, self.key, v).read_number(allowed_text, -bound, bound)
            for v in self.value
        )
        if not low < high:
            raise self.make_error(allowed_text)
        return low, high

    def read_text(self, allowed_text: str, pattern: re.Pattern[str]) -> str:
        """Return the value, which must be text that matches a pattern.

        Args:
            allowed_text: Description of what is allowed, for the error.
            pattern: Regular expression that the whole text must match.

        Raises:
            WiringError: The value is not text that matches.
        """
        if not isinstance(self.value, str) or not pattern.fullmatch(self.value):
            raise self.make_error(allowed_text)
        return self.value


LIMIT_S = 1e6
LARGEST = sys.float_info.max
LIMITS = "[lowest, highest], two finite numbers, the lowest first"
_TOPIC = re.compile(r"(~/|/)?[A-Za-z_]\w*(/[A-Za-z_]\w*)*", re.ASCII)
_TEXT = re.compile(r".{1,200}", re.DOTALL)


def read_topic(entry: Entry) -> str:
    """Return an entry's value as the name of a ROS topic.

    Raises:
        WiringError: The value is not a topic name.
    """
    return entry.read_text("a topic name such as joint_states or /ant/joint_states", _TOPIC)


def read_max_age_s(entry: Entry) -> float:
    """Return an entry's value as the maximum age of a message in seconds; 0 means no maximum.

    Raises:
        WiringError: The value is not a number in the allowed range.
    """
    return entry.read_number(f"seconds, 0 (off) to {LIMIT_S:g}", 0.0, LIMIT_S)


def read_optional_number(
    entry: Entry | None,
    default: float,
    allowed_text: str,
    *,
    low: float = -LARGEST,
    allow_zero: bool = True,
) -> float:
    """Return an optional entry's value as a finite number, or a default if there is no entry.

    Args:
        entry: The entry, or None if the file does not have it.
        default: The number to return if there is no entry.
        allowed_text: Description of what is allowed, for the error.
        low: Lowest allowed number.
        allow_zero: Whether 0 is allowed.

    Raises:
        WiringError: The value is not allowed.
    """
    if entry is None:
        return default
    value = entry.read_number(allowed_text, low, LARGEST)
    if not allow_zero and value == 0.0:
        raise entry.make_error(allowed_text)
    return value


def read_source_name(entry: Entry, source_names: tuple[str, ...]) -> str:
    """Return an entry's value, checked to be the name of a source (subscribed topic).

    Args:
        entry: Entry of the wiring file.
        source_names: Names of all sources in the file.

    Raises:
        WiringError: There is no such source.
    """
    if entry.value not in source_names:
        raise entry.make_error(f"one of the sources {', '.join(source_names)}")
    return str(entry.value)


def read_field_path(entry: Entry, *, many_numbers: bool) -> str:
    """Return an entry's value, checked to be a field path, such as `position[hip_1]`.

    Args:
        entry: Entry of the wiring file.
        many_numbers: Whether the path must name several numbers of a message, by a `*`; if False,
            it must name one number.

    Raises:
        WiringError: The value is not such a path.
    """
    text = entry.read_text(SYNTAX, _TEXT)
    try:
        several = parse_field_path(text).may_name_several_elements
    except ValueError:
        raise entry.make_error(SYNTAX) from None
    if several and not many_numbers:
        raise entry.make_error("one number, or a * in the channel's id")
    if many_numbers and not several:
        raise entry.make_error("several numbers (with a *), as the channel's id has a *")
    return text
