"""A writer of wiring YAML for people to edit: short entries, and comments beside them."""

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


class DraftLine(NamedTuple):
    """One entry `name: {fields}` of a mapping, with a comment."""

    name: str
    fields: str
    comment: str = ""


class Draft(NamedTuple):
    """The content of a wiring YAML, with comments.

    Attributes:
        robot: Name of the robot.
        about: Comments at the top of the file.
        rate_hz: Control rate.
        rate: Comment on where the rate comes from.
        sources: Sources, each with a comment.
        channels: Channels, each with a comment.
        command: Key, value and comment of topic, type and field.
        actuators: Actuators, each with a comment.
        aside: Comments after the channels.
        more_commands: Further command messages, each as `command` and `actuators`.
    """

    robot: str
    about: Sequence[str]
    rate_hz: float
    rate: str
    sources: Sequence[tuple[SourceConfig, str]]
    channels: Sequence[tuple[ChannelConfig, str]]
    command: Sequence[tuple[str, str, str]]
    actuators: Sequence[tuple[ActuatorConfig, str]]
    aside: Sequence[str] = ()
    more_commands: Sequence[
        tuple[Sequence[tuple[str, str, str]], Sequence[tuple[ActuatorConfig, str]]]
    ] = ()

    def text(self) -> str:
        """Return the YAML text."""
        lines = [*(f"# {one}" for one in self.about), "an_control_wiring: 1"]
        lines.append(f"robot: {quote_scalar(self.robot)}")
        lines.append(f"rate_hz: {self.rate_hz:.6g}".ljust(26) + f" # {self.rate}")
        lines.append("min_present_share: 0.5     # with fewer present channels: the safe command")
        lines += [
            "",
            "sources:",
            *format_entries(map(_source_line, *zip(*self.sources, strict=True))),
        ]
        lines += [
            "",
            "channels:",
            *format_entries(map(_channel_line, *zip(*self.channels, strict=True))),
        ]
        lines += [f"  # {one}" for one in self.aside]
        lines += ["", "command:"]
        messages = [(self.command, self.actuators), *self.more_commands]
        for command, actuators in messages:
            several = len(messages) > 1
            text = _command_lines(command, actuators)
            lines += [f"{'    ' if i else '  - '}{one[2:]}" for i, one in enumerate(text)
                      ] if several else text  # fmt: skip
        return "\n".join(line.rstrip() for line in lines) + "\n"


def _command_lines(
    command: Sequence[tuple[str, str, str]], actuators: Sequence[tuple[ActuatorConfig, str]]
) -> list[str]:
    """Return the lines of one command message."""
    lines = [
        f"  {key}: {quote_scalar(value)}".ljust(40) + f" # {about}".rstrip(" #")
        for key, value, about in command
    ]
    lines += ["  actuators:                             # in the order of the policy's actions"]
    return [
        *lines,
        *format_entries(map(_actuator_line, *zip(*actuators, strict=True)), indent=4),
    ]


def format_entries(lines: Iterable[DraftLine], indent: int = 2) -> list[str]:
    """Return the entries of a mapping, one a line, with their comments in one column."""
    texts = [
        (f"{' ' * indent}{quote_scalar(one.name)}: {one.fields}", one.comment) for one in lines
    ]
    width = min(90, max((len(text) for text, about in texts if about), default=0))
    return [f"{text:<{width}}   # {about}" if about else text for text, about in texts]


def find_undecided(text: str) -> list[tuple[int, str]]:
    """Return line number and text of each comment that asks for a decision (`# SET ...`)."""
    found = [(number, _UNDECIDED.search(line)) for number, line in enumerate(text.splitlines(), 1)]
    return [(number, match.group(1).rstrip()) for number, match in found if match]


def quote_scalar(text: str) -> str:
    """Return a text as a YAML scalar, in quotes if YAML would read something else."""
    plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return text if plain else json.dumps(text)


def format_number(value: float) -> str:
    """Return the shortest text of a number that is read back to the same bits."""
    return repr(float(value))


def _source_line(one: SourceConfig, comment: str) -> DraftLine:
    """Return the line of a source."""
    topic, type_ = quote_scalar(one.topic), quote_scalar(one.type)
    return DraftLine(
        one.name, f"{{topic: {topic}, type: {type_}, max_age_s: {one.max_age_s:g}}}", comment
    )


def _channel_line(one: ChannelConfig, comment: str) -> DraftLine:
    """Return the line of a channel."""
    more = "" if one.scale == 1.0 else f", scale: {format_number(one.scale)}"
    more += "" if not one.offset else f", offset: {format_number(one.offset)}"
    more += "" if one.inf is None else f", inf: {format_number(one.inf)}"
    more += "" if one.valid is None else f", valid: [{', '.join(map(format_number, one.valid))}]"
    return DraftLine(
        one.id, f"{{source: {one.source}, field: {quote_scalar(one.field)}{more}}}", comment
    )


def _actuator_line(one: ActuatorConfig, comment: str) -> DraftLine:
    """Return the line of an actuator."""
    offset = f"offset: {format_number(one.offset)}, " if one.offset else ""
    limits = f"[{', '.join(map(format_number, one.limits))}]"
    safe = one.safe if isinstance(one.safe, str) else format_number(one.safe)
    field = "" if one.field is None else f"field: {quote_scalar(one.field)}, "
    scale = f"{field}scale: {format_number(one.scale)}, {offset}"
    return DraftLine(one.name, f"{{{scale}limits: {limits}, max_rate: 0, safe: {safe}}}", comment)
