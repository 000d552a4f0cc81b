"""Writes the text of a wiring YAML for people to edit: short entries, and comments beside them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from an_control.wiring.command import ActuatorConfig
from an_control.wiring.config import ChannelConfig, SourceConfig

_UNDECIDED = re.compile(r"#\s*(SET\b.*)")
_PLAIN = re.compile(r"[A-Za-z_/]([\w./:-]*\w)?", re.ASCII)
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


class Line(NamedTuple):
    """One entry of a mapping: `name: {fields}`, and what to say of it."""

    name: str
    fields: str
    comment: str = ""


class Draft(NamedTuple):
    """What a wiring YAML says; each text in `about` becomes a comment at its top."""

    robot: str
    about: Sequence[str]
    rate_hz: float
    rate: str
    """Where the rate comes from, a comment."""
    sources: Sequence[tuple[SourceConfig, str]]
    channels: Sequence[tuple[ChannelConfig, str]]
    command: Sequence[tuple[str, str, str]]
    """Key, value and comment of topic, type and field."""
    actuators: Sequence[tuple[ActuatorConfig, str]]
    aside: Sequence[str] = ()
    """Comments after the channels."""

    def text(self) -> str:
        """The YAML."""
        lines = [*(f"# {one}" for one in self.about), "an_control_wiring: 1"]
        lines.append(f"robot: {quoted(self.robot)}")
        lines.append(f"rate_hz: {self.rate_hz:.6g}".ljust(26) + f" # {self.rate}")
        lines.append("min_present_share: 0.5     # with fewer present channels: the safe command")
        lines += ["", "sources:", *entries(map(_source, *zip(*self.sources, strict=True)))]
        lines += ["", "channels:", *entries(map(_channel, *zip(*self.channels, strict=True)))]
        lines += [f"  # {one}" for one in self.aside]
        lines += ["", "command:"]
        lines += [f"  {key}: {quoted(value)}".ljust(40) + f" # {about}".rstrip(" #")
                  for key, value, about in self.command]  # fmt: skip
        lines += ["  actuators:                             # in the order of the policy's actions"]
        lines += entries(map(_actuator, *zip(*self.actuators, strict=True)), indent=4)
        return "\n".join(line.rstrip() for line in lines) + "\n"


def entries(lines: Iterable[Line], indent: int = 2) -> list[str]:
    """The entries of a mapping, one a line, their comments in one column."""
    texts = [(f"{' ' * indent}{quoted(one.name)}: {one.fields}", one.comment) for one in lines]
    width = min(90, max((len(text) for text, about in texts if about), default=0))
    return [f"{text:<{width}}   # {about}" if about else text for text, about in texts]


def undecided(text: str) -> list[tuple[int, str]]:
    """The comments of a YAML text that say what somebody has still to decide: line and words."""
    found = [(number, _UNDECIDED.search(line)) for number, line in enumerate(text.splitlines(), 1)]
    return [(number, match.group(1).rstrip()) for number, match in found if match]


def quoted(text: str) -> str:
    """A text as a YAML scalar: as it is, or in quotes where YAML would read something else."""
    plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return text if plain else json.dumps(text)


def number(value: float) -> str:
    """A number that is read back to the last bit, as short as it can be."""
    return repr(float(value))


def _source(one: SourceConfig, comment: str) -> Line:
    topic, type_ = quoted(one.topic), quoted(one.type)
    return Line(
        one.name, f"{{topic: {topic}, type: {type_}, max_age_s: {one.max_age_s:g}}}", comment
    )


def _channel(one: ChannelConfig, comment: str) -> Line:
    more = "" if one.scale == 1.0 else f", scale: {number(one.scale)}"
    more += "" if not one.offset else f", offset: {number(one.offset)}"
    more += "" if one.inf is None else f", inf: {number(one.inf)}"
    more += "" if one.valid is None else f", valid: [{', '.join(map(number, one.valid))}]"
    return Line(one.id, f"{{source: {one.source}, field: {quoted(one.field)}{more}}}", comment)


def _actuator(one: ActuatorConfig, comment: str) -> Line:
    offset = f"offset: {number(one.offset)}, " if one.offset else ""
    limits = f"[{', '.join(map(number, one.limits))}]"
    safe = one.safe if isinstance(one.safe, str) else number(one.safe)
    field = "" if one.field is None else f"field: {quoted(one.field)}, "
    scale = f"{field}scale: {number(one.scale)}, {offset}"
    return Line(one.name, f"{{{scale}limits: {limits}, max_rate: 0, safe: {safe}}}", comment)
