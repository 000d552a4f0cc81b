"""Write a first version of a wiring file for people to edit, with comments beside entries."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from an_control.wiring.command import ActuatorConfig
from an_control.wiring.config import ChannelConfig, SourceConfig

_UNDECIDED = re.compile(r"#\s*(SET\b.*)")
_PLAIN = re.compile(r"[A-Za-z_/]([\w./:-]*\w)?", re.ASCII)
_SURROGATES = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


class DraftLine(NamedTuple):
    """One line `name: {fields}  # comment` of a drafted wiring file.

    Attributes:
        name: Key of the entry.
        fields: The value of the entry, as YAML text.
        comment: Comment behind the entry; "" for no comment.
    """

    name: str
    fields: str
    comment: str = ""


class Draft(NamedTuple):
    """Content of a drafted wiring file, with comments for its user.

    Attributes:
        robot: Name of the robot.
        about: Comment lines for the top of the file.
        rate_hz: Control rate.
        rate: Comment that says where the control rate comes from.
        sources: Sources (topic subscriptions), each with a comment.
        channels: Channels, each with a comment.
        command: For each of the entries `topic`, `type` and `field` of the section `command`: key,
            value and comment.
        actuators: Actuators, each with a comment.
        aside: Further comment lines, which follow the channels in the file.
        more_commands: For each further command message, a pair of values like `command` and
            `actuators`.
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

    def format_yaml(self) -> str:
        """Return the text of the drafted wiring file, in YAML with comments."""
        lines = [*(f"# {one}" for one in self.about), "an_control_wiring: 1"]
        lines.append(f"robot: {quote_scalar(self.robot)}")
        lines.append(f"rate_hz: {self.rate_hz:.6g}".ljust(26) + f" # {self.rate}")
        lines.append("min_present_share: 0.5     # with fewer present channels: the safe command")
        lines += [
            "",
            "sources:",
            *format_yaml_entries(map(_format_source, *zip(*self.sources, strict=True))),
        ]
        lines += [
            "",
            "channels:",
            *format_yaml_entries(map(_format_channel, *zip(*self.channels, strict=True))),
        ]
        lines += [f"  # {one}" for one in self.aside]
        lines += ["", "command:"]
        messages = [(self.command, self.actuators), *self.more_commands]
        for command, actuators in messages:
            several = len(messages) > 1
            text = _format_command(command, actuators)
            lines += [f"{'    ' if i else '  - '}{one[2:]}" for i, one in enumerate(text)
                      ] if several else text  # fmt: skip
        return "\n".join(line.rstrip() for line in lines) + "\n"


def _format_command(
    command: Sequence[tuple[str, str, str]], actuators: Sequence[tuple[ActuatorConfig, str]]
) -> list[str]:
    """Return the lines of the draft for one command message.

    Args:
        command: Key, value and comment of each of the message's entries `topic`, `type` and
            `field`.
        actuators: The message's actuators, each with a comment.
    """
    lines = [
        f"  {key}: {quote_scalar(value)}".ljust(40) + f" # {about}".rstrip(" #")
        for key, value, about in command
    ]
    lines += ["  actuators:                             # in the order of the policy's actions"]
    return [
        *lines,
        *format_yaml_entries(map(_format_actuator, *zip(*actuators, strict=True)), indent=4),
    ]


def format_yaml_entries(lines: Iterable[DraftLine], indent: int = 2) -> list[str]:
    """Return the lines of YAML text for the entries of a mapping, with the comments in one column.

    Args:
        lines: Key, value and comment of each entry.
        indent: Number of blanks before each entry.
    """
    texts = [
        (f"{' ' * indent}{quote_scalar(one.name)}: {one.fields}", one.comment) for one in lines
    ]
    width = min(90, max((len(text) for text, about in texts if about), default=0))
    return [f"{text:<{width}}   # {about}" if about else text for text, about in texts]


def find_undecided_lines(text: str) -> list[tuple[int, str]]:
    """Return the lines with a comment `# SET ...`, in which the user must decide something.

    Args:
        text: Content of a wiring file.

    Returns:
        A pair for each such line: its number, and the text of the comment.
    """
    found = [(number, _UNDECIDED.search(line)) for number, line in enumerate(text.splitlines(), 1)]
    return [(number, match.group(1).rstrip()) for number, match in found if match]


def quote_scalar(text: str) -> str:
    """Return a text as it is written in YAML: in quotes if YAML would read it as something else."""
    plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    quoted = json.dumps(text)
    # Outside the basic plane JSON has two escapes for a letter, YAML one.
    return text if plain else _SURROGATES.sub(_escape_letter_for_yaml, quoted)


def _escape_letter_for_yaml(pair: re.Match[str]) -> str:
    """Return YAML's escape of a letter that JSON has written as a pair of surrogates."""
    letter = json.loads('"' + pair[0] + '"')
    return f"\\U{ord(letter):08x}"


def format_number(value: float) -> str:
    """Return a number as the shortest text from which exactly this number can be read."""
    return repr(float(value))


def _format_source(source: SourceConfig, comment: str) -> DraftLine:
    """Return the draft's line for a source (topic subscription), with a comment."""
    topic, type_ = quote_scalar(source.topic), quote_scalar(source.type)
    more = "" if source.rate_hz is None else f", rate_hz: {source.rate_hz:.3g}"
    return DraftLine(
        source.name,
        f"{{topic: {topic}, type: {type_}, max_age_s: {source.max_age_s:g}{more}}}",
        comment,
    )


def _format_channel(channel: ChannelConfig, comment: str) -> DraftLine:
    """Return the draft's line for a channel, with a comment."""
    more = "" if channel.scale == 1.0 else f", scale: {format_number(channel.scale)}"
    more += "" if not channel.offset else f", offset: {format_number(channel.offset)}"
    more += "" if channel.max_age_s is None else f", max_age_s: {channel.max_age_s:g}"
    more += "" if channel.inf is None else f", inf: {format_number(channel.inf)}"
    more += (
        ""
        if channel.valid is None
        else f", valid: [{', '.join(map(format_number, channel.valid))}]"
    )
    return DraftLine(
        channel.id,
        f"{{source: {channel.source}, field: {quote_scalar(channel.field)}{more}}}",
        comment,
    )


def _format_actuator(actuator: ActuatorConfig, comment: str) -> DraftLine:
    """Return the draft's line for an actuator, with a comment."""
    offset = f"offset: {format_number(actuator.offset)}, " if actuator.offset else ""
    limits = f"[{', '.join(map(format_number, actuator.limits))}]"
    safe = actuator.safe if isinstance(actuator.safe, str) else format_number(actuator.safe)
    field = "" if actuator.field is None else f"field: {quote_scalar(actuator.field)}, "
    scale = f"{field}scale: {format_number(actuator.scale)}, {offset}"
    rate = format_number(actuator.max_rate) if actuator.max_rate else "0"
    return DraftLine(
        actuator.name, f"{{{scale}limits: {limits}, max_rate: {rate}, safe: {safe}}}", comment
    )
