"""Checks of entries that several parts of the wiring file share."""

from __future__ import annotations

import re
import sys

from an_control.wiring.checked_yaml import Entry
from an_control.wiring.fields import SYNTAX, parse_field

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
