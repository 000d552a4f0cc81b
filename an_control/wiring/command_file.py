"""Reads the wiring's `command`: one message, or a list of them."""

from __future__ import annotations

import re

from an_control.wiring.checked_yaml import Entry
from an_control.wiring.command import (
    ActuatorConfig,
    BringUpConfig,
    CommandConfig,
    Constant,
    MeasuredConfig,
    MessageConfig,
)
from an_control.wiring.entries import (
    LARGEST,
    LIMIT_S,
    LIMITS,
    field_path,
    number,
    source_name,
    topic,
)
from an_control.wiring.errors import Missing, WiringError
from an_control.wiring.fields import ALL, parse_field
from an_control.wiring.messages import MESSAGE_TYPE

_WORD = re.compile(r"\S{1,200}")
_LEAST = 1e-9
_PATH = "a path of one number such as data[0], twist.linear.x or position[JOINT]"
_SHARED_PATH = "a path such as effort, data, points[0].positions, or with one * for the actuator"
_TRAJECTORY = "trajectory_msgs/msg/JointTrajectory"
_TIME_FROM_START = "points[0].time_from_start"
_NO_POSITIONS = re.compile(
    r"velocit|effort|acceler|torque|force|wrench|twist|(^|\.)(linear|angular)\b"
)


def read_command(entry: Entry, sources: tuple[str, ...], rate_hz: float) -> CommandConfig:
    """The messages of a command; `rate_hz` of them go out on each topic per second."""
    messages = (_message(one, sources, 1.0 / rate_hz) for one in message_entries(entry))
    command = CommandConfig(tuple(messages))
    command.check_once(entry.file)
    return command


def message_entries(entry: Entry) -> list[Entry]:
    """The entries of a command's messages: itself, or those of a list."""
    if not isinstance(entry.value, list):
        return [entry]
    if len(entry.value) < 2:
        raise entry.error("a mapping, or a list of several")
    return [Entry(entry.file, f"{entry.key}[{i}]", one) for i, one in enumerate(entry.value)]


def _message(entry: Entry, sources: tuple[str, ...], step_s: float) -> MessageConfig:
    fields = entry.fields(
        ("topic", "type", "actuators"), ("field", "constants", "measured", "bring_up")
    )
    shared = shared_field(fields["field"]) if "field" in fields else None
    actuators = fields["actuators"].items("at least one actuator")
    constants: dict[str, Constant] = {}
    type_ = fields["type"].text("a message type such as geometry_msgs/msg/Twist", MESSAGE_TYPE)
    if type_ == _TRAJECTORY:
        constants[_TIME_FROM_START] = step_s
    if "constants" in fields:
        constants |= _constants(fields["constants"])
    config = MessageConfig(
        topic=topic(fields["topic"]),
        type=type_,
        field=shared,
        actuators=tuple(_actuator(name, one, shared) for name, one in actuators),
        measured=_measured(fields["measured"], sources) if "measured" in fields else None,
        bring_up=_bring_up(fields["bring_up"]) if "bring_up" in fields else None,
        constants=constants,
    )
    _check_measured(entry, config)
    return config


def shared_field(entry: Entry) -> str:
    """A path for several actuators, with at most one `*`, in brackets."""
    text = entry.value
    try:
        steps = parse_field(text).steps if isinstance(text, str) else ()
    except ValueError:
        steps = ()
    if not steps or parse_field(str(text)).computed or any(step.name == ALL for step in steps):
        raise entry.error(_SHARED_PATH)
    if sum(step.key == ALL for step in steps) > 1:
        raise entry.error(_SHARED_PATH)
    return str(text)


def _constants(entry: Entry) -> dict[str, Constant]:
    constants: dict[str, Constant] = {}
    for path, one in entry.items("at least one field path and its value"):
        if not isinstance(one.value, bool | int | float | str):
            raise one.error("a number, a text, true or false")
        constants[path] = one.value
    return constants


def _actuator(name: str, entry: Entry, shared: str | None) -> ActuatorConfig:
    if not (_WORD.fullmatch(name) and name.isprintable()):
        allowed = "a name of visible characters without blanks"
        raise WiringError(entry.file, entry.key, name, allowed)
    fields = entry.fields(("limits", "safe"), ("scale", "offset", "max_rate", "start", "field"))
    limits = fields["limits"].range(LIMITS, LARGEST)
    within = f"a value within the limits {limits[0]:g} to {limits[1]:g}"
    safe = fields["safe"]
    return ActuatorConfig(
        name=name,
        scale=number(fields.get("scale"), 1.0, "a finite number other than 0", zero=False),
        offset=number(fields.get("offset"), 0.0, "a finite number"),
        limits=limits,
        max_rate=number(fields.get("max_rate"), 0.0, "units per second, 0 = off", low=0.0),
        safe="hold" if safe.value == "hold" else safe.number(f"{within}, or hold", *limits),
        start=fields["start"].number(within, *limits) if "start" in fields else None,
        field=own_field(entry, fields.get("field"), shared),
    )


def own_field(actuator: Entry, entry: Entry | None, shared: str | None) -> str | None:
    """The path of one actuator's value; None where the one that all share says it."""
    if entry is None:
        if shared is None:
            raise WiringError(actuator.file, actuator.key, Missing("'field'"), f"a field, {_PATH}")
        return None
    try:
        field = parse_field(entry.value) if isinstance(entry.value, str) else None
    except ValueError:
        field = None
    if field is None or field.many or field.computed:
        raise entry.error(_PATH)
    return str(entry.value)


def _measured(entry: Entry, sources: tuple[str, ...]) -> MeasuredConfig:
    fields = entry.fields(("source", "field"))
    field = fields["field"]
    if not isinstance(field.value, str) or field.value.count("*") != 1:
        raise field.error("a field path with one *, for the actuator's name: position[*]")
    if parse_field(field_path(field, many=True)).computed:
        raise field.error("a field of positions, without a function")
    return MeasuredConfig(source_name(fields["source"], sources), field.value)


def _bring_up(entry: Entry) -> BringUpConfig:
    fields = entry.fields(("max_rate", "tolerance", "timeout_s"))
    return BringUpConfig(
        max_rate=fields["max_rate"].number("units per second, more than 0", _LEAST),
        tolerance=fields["tolerance"].number("a distance of more than 0", _LEAST),
        timeout_s=fields["timeout_s"].number(f"seconds, up to {LIMIT_S:g}", _LEAST, LIMIT_S),
    )


def _check_measured(entry: Entry, config: MessageConfig) -> None:
    """Who holds or moves to a pose must know where the actuators are; all start or none."""
    holding = [actuator for actuator in config.actuators if actuator.safe == "hold"]
    without = next((one.name for one in config.actuators if one.start is None), None)
    if config.bring_up is not None and without is not None:
        key = f"{entry.key}.actuators.{without}"
        raise WiringError(entry.file, key, Missing("'start'"), "a start for bring_up")
    if config.bring_up is None and any(one.start is not None for one in config.actuators):
        raise WiringError(entry.file, entry.key, Missing("'bring_up'"), "bring_up, for start")
    if config.measured is None and (holding or config.bring_up is not None):
        why = "safe: hold" if holding else "bring_up"
        raise WiringError(
            entry.file, entry.key, Missing("'measured'"), f"measured: {{source, field}}, for {why}"
        )
    moved = config.actuators if config.bring_up is not None else holding
    for actuator in moved:
        if _NO_POSITIONS.search(actuator.field or config.field or ""):
            own = f".actuators.{actuator.name}" if actuator.field else ""
            raise WiringError(
                entry.file,
                f"{entry.key}{own}.field",
                actuator.field or config.field,
                "a field of positions, as measured positions are sent in it",
            )
