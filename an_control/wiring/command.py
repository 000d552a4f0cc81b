"""Convert a policy's actions into command values and back, as the wiring file says.

This module only reads the section `command` of the wiring file, and converts. Other modules limit
the commands and their change (`SafetyGate`), watch that they are sent (`Watchdog`), and write them
into messages (`CommandMessage`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import cached_property
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from an_control.wiring.checked_yaml import (
    LARGEST,
    LIMIT_S,
    LIMITS,
    Entry,
    MissingItem,
    WiringError,
    read_field_path,
    read_optional_number,
    read_source_name,
    read_topic,
)
from an_control.wiring.messages import ALL, MESSAGE_TYPE, parse_field_path

Constant = bool | float | str
"""The value of a field that no actuator commands."""


@dataclass(frozen=True)
class ActuatorConfig:
    """Settings of one actuator. Its command is action * scale + offset, in its physical unit.

    Attributes:
        name: Name of the actuator, as in the command message.
        scale: Change of the command per unit of action, not 0.
        offset: Command at action 0.
        limits: Lowest and highest command.
        max_rate: Maximum change of the policy's command per second; 0 means no maximum. It does not
            limit the safe command.
        safe: Safe command (that does no harm), within the limits, or "hold" for the newest measured
            position.
        start: Command of the pose to which the robot moves before the policy acts, within the
            limits.
        field: Path of the message field that holds the command. None: the path is the entry
            `field` of the command message in the wiring file.
    """

    name: str
    scale: float
    offset: float
    limits: tuple[float, float]
    max_rate: float
    safe: float | Literal["hold"]
    start: float | None = None
    field: str | None = None

    @property
    def name_in_messages(self) -> str:
        """The name in brackets in `field`, such as `position[hip]`; `name` if there is none."""
        steps = parse_field_path(self.field).steps if self.field is not None else ()
        keys = [step.key for step in steps if isinstance(step.key, str) and step.key != ALL]
        return keys[-1] if keys else self.name


@dataclass(frozen=True)
class MeasuredConfig:
    """Where the positions of the actuators are measured, in the units of the commands.

    Attributes:
        source: Name of the source (topic subscription).
        field: Field path in its messages, in which a `*` stands for an actuator's name in messages.
    """

    source: str
    field: str


@dataclass(frozen=True)
class BringUpConfig:
    """Speed, tolerance and timeout of the move to the start pose before the policy acts.

    Attributes:
        max_rate: Maximum change of each command, in its unit per second.
        tolerance: Maximum distance of each actuator's measured position from its `start` at which
            the start pose counts as reached.
        timeout_s: Seconds after which the node deactivates itself if the start pose is not reached.
    """

    max_rate: float
    tolerance: float
    timeout_s: float


@dataclass(frozen=True)
class MessageConfig:
    """Settings of one command message: its topic, and the actuators whose commands it carries.

    Attributes:
        topic: Topic to publish to.
        type: Message type, such as `std_msgs/msg/Float64MultiArray`.
        field: Field path for the actuators that have no field path of their own. A path without
            `*` names an array with one value for each actuator. The values are found by name if the
            message has names, else by the order of `actuators`. A path with `*` names one value,
            where `*` stands for the actuator's name.
        actuators: The actuators, in the order of the action.
        measured: Source of the measured positions of these actuators; None if positions are not
            needed.
        bring_up: How these actuators move to their start pose; None if they do not.
        constants: Values of the message's other fields, by field path.
    """

    topic: str
    type: str
    field: str | None
    actuators: tuple[ActuatorConfig, ...]
    measured: MeasuredConfig | None = None
    bring_up: BringUpConfig | None = None
    constants: Mapping[str, Constant] = dataclass_field(default_factory=dict)


class Actuator(Protocol):
    """Interface of the settings of an actuator that are needed to fill a command message."""

    @property
    def name(self) -> str:
        """Name of the actuator."""

    @property
    def field(self) -> str | None:
        """Path of the message field into which the actuator's value is written.

        None: the path is the entry `field` of the command message in the wiring file.
        """


class MessageFields(Protocol):
    """Interface of the settings of a command message that are needed to fill it."""

    @property
    def topic(self) -> str:
        """Topic to publish to."""

    @property
    def type(self) -> str:
        """Message type, such as `std_msgs/msg/Float64MultiArray`."""

    @property
    def field(self) -> str | None:
        """Field path for all actuators that have none of their own; None if each has one."""

    @property
    def actuators(self) -> tuple[Actuator, ...]:
        """Actuators whose values the message carries."""

    @property
    def constants(self) -> Mapping[str, Constant]:
        """Constant values for fields that belong to no actuator, by field path."""


M = TypeVar("M", bound=MessageFields)


@dataclass(frozen=True)
class CommandMessageList(Generic[M]):
    """Messages that together carry one command, in the order in which they are sent.

    The actuators of the first message, followed by those of the next and so on, are in the order of
    the policy's action.

    Attributes:
        messages: Settings of the messages.
    """

    messages: tuple[M, ...]

    def format_message_key(self, index: int) -> str:
        """Return the dotted key that a message's settings have in the wiring file, for errors.

        Args:
            index: Index of the message in `messages`.
        """
        return "command" if len(self.messages) == 1 else f"command[{index}]"

    @cached_property
    def topic_keys(self) -> dict[str, str]:
        """A mapping from each topic to the dotted key in the wiring file that names it."""
        return {
            one.topic: f"{self.format_message_key(i)}.topic" for i, one in enumerate(self.messages)
        }

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of all actuators, in the order of the action."""
        return tuple(actuator.name for one in self.messages for actuator in one.actuators)

    @cached_property
    def message_slices(self) -> tuple[slice, ...]:
        """For each message, the slice of the whole command (A,) that the message carries."""
        ends = np.cumsum([len(one.actuators) for one in self.messages]).tolist()
        return tuple(slice(i, end) for i, end in zip([0, *ends], ends, strict=False))

    def check_topics_and_actuators_unique(self, file: str) -> None:
        """Check that each topic and each actuator occurs only once.

        Args:
            file: Path of the wiring file, for the error.

        Raises:
            WiringError: A topic or an actuator occurs twice.
        """
        topics: set[str] = set()
        names: set[str] = set()
        for place, one in enumerate(self.messages):
            if one.topic in topics:
                raise WiringError(
                    file, f"{self.format_message_key(place)}.topic", one.topic, "each topic once"
                )
            topics.add(one.topic)
            for actuator in one.actuators:
                if actuator.name in names:
                    key = f"{self.format_message_key(place)}.actuators.{actuator.name}"
                    raise WiringError(file, key, actuator.name, "each actuator once")
                names.add(actuator.name)


@dataclass(frozen=True)
class CommandConfig(CommandMessageList[MessageConfig]):
    """All actuators in physical units, and the messages that carry their commands to the robot."""

    @cached_property
    def actuators(self) -> tuple[ActuatorConfig, ...]:
        """Settings of all actuators, in the order of the action."""
        return tuple(actuator for message in self.messages for actuator in message.actuators)

    @cached_property
    def _scale(self) -> NDArray[np.float64]:
        """Scale of each actuator (A,)."""
        return np.array([actuator.scale for actuator in self.actuators])

    @cached_property
    def _offset(self) -> NDArray[np.float64]:
        """Offset of each actuator (A,)."""
        return np.array([actuator.offset for actuator in self.actuators])

    def convert_to_command(self, action: ArrayLike) -> NDArray[np.float64]:
        """Convert an action to the command in physical units, without limits and checks.

        Args:
            action: Action (A,) of the policy, one number for each actuator, usually from -1 to 1.

        Returns:
            The command (A,).

        Raises:
            ValueError: The number of values differs from the number of actuators.
        """
        values = np.asarray(action, np.float64)
        if values.shape != self._scale.shape:
            raise ValueError(f"an action of shape {values.shape} for {len(self.names)} actuators")
        return values * self._scale + self._offset

    def convert_to_action(self, command: ArrayLike) -> NDArray[np.float64]:
        """Convert a command in physical units to the action that gives this command.

        Args:
            command: Command (A,).

        Returns:
            The action (A,). Values outside -1 to 1 mean that no action of the policy gives this
            command.
        """
        return (np.asarray(command, np.float64) - self._offset) / self._scale

    @property
    def measured_configs(self) -> tuple[MeasuredConfig, ...]:
        """Settings of where positions are measured, one for each message that needs them."""
        return tuple(one.measured for one in self.messages if one.measured is not None)

    def make_safe_command(self) -> NDArray[np.float64]:
        """Return the safe command (A,) as the wiring file gives it, with NaN for "hold"."""
        return np.array(
            [np.nan if actuator.safe == "hold" else actuator.safe for actuator in self.actuators]
        )


_WORD = re.compile(r"\S{1,200}")
_LEAST = 1e-9
_PATH = "a path of one number such as data[0], twist.linear.x or position[JOINT]"
_SHARED_PATH = "a path such as effort, data, points[0].positions, or with one * for the actuator"
_TRAJECTORY = "trajectory_msgs/msg/JointTrajectory"
_TIME_FROM_START = "points[0].time_from_start"
_NO_POSITIONS = re.compile(
    r"velocit|effort|acceler|torque|force|wrench|twist|(^|\.)(linear|angular)\b"
)


def read_command(entry: Entry, source_names: tuple[str, ...], rate_hz: float) -> CommandConfig:
    """Read the entry `command` of a wiring file: all actuators and command messages.

    Args:
        entry: The entry `command`.
        source_names: Names of the wiring's sources (topic subscriptions).
        rate_hz: Number of command messages per second on each topic.

    Raises:
        WiringError: A key or value is not allowed.
    """
    messages = (
        _read_message(one, source_names, 1.0 / rate_hz)
        for one in list_command_message_entries(entry)
    )
    command = CommandConfig(tuple(messages))
    command.check_topics_and_actuators_unique(entry.file)
    return command


def list_command_message_entries(entry: Entry) -> list[Entry]:
    """Return the entries of a wiring file's command messages, one for each message.

    Args:
        entry: The entry `command` of the file: one message, or a list of several.

    Raises:
        WiringError: The list has fewer than two items.
    """
    if not isinstance(entry.value, list):
        return [entry]
    if len(entry.value) < 2:
        raise entry.make_error("a mapping, or a list of several")
    return [Entry(entry.file, f"{entry.key}[{i}]", one) for i, one in enumerate(entry.value)]


def _read_message(entry: Entry, source_names: tuple[str, ...], step_s: float) -> MessageConfig:
    """Read the settings of one command message.

    Args:
        entry: Entry of the message in the wiring file.
        source_names: Names of the wiring's sources (topic subscriptions).
        step_s: Time between two commands in seconds, which a trajectory message gets as its
            duration.

    Raises:
        WiringError: A key or value is not allowed.
    """
    fields = entry.read_fields(
        ("topic", "type", "actuators"), ("field", "constants", "measured", "bring_up")
    )
    shared = read_common_actuator_field_path(fields["field"]) if "field" in fields else None
    actuators = fields["actuators"].iterate_items("at least one actuator")
    constants: dict[str, Constant] = {}
    type_ = fields["type"].read_text("a message type such as geometry_msgs/msg/Twist", MESSAGE_TYPE)
    if type_ == _TRAJECTORY:
        constants[_TIME_FROM_START] = step_s
    if "constants" in fields:
        constants |= _read_constants(fields["constants"])
    config = MessageConfig(
        topic=read_topic(fields["topic"]),
        type=type_,
        field=shared,
        actuators=tuple(_read_actuator(name, one, shared) for name, one in actuators),
        measured=_read_measured_config(fields["measured"], source_names)
        if "measured" in fields
        else None,
        bring_up=_read_bring_up_config(fields["bring_up"]) if "bring_up" in fields else None,
        constants=constants,
    )
    _check_position_settings(entry, config)
    return config


def read_common_actuator_field_path(entry: Entry) -> str:
    """Read the field path that all actuators of a command message share, such as `effort`.

    Args:
        entry: Entry `field` of the message in the wiring file.

    Raises:
        WiringError: The value is not a field path, or it has two `*`, or one outside of brackets.
    """
    text = entry.value
    try:
        steps = parse_field_path(text).steps if isinstance(text, str) else ()
    except ValueError:
        steps = ()
    if (
        not steps
        or parse_field_path(str(text)).is_computed
        or any(step.name == ALL for step in steps)
    ):
        raise entry.make_error(_SHARED_PATH)
    if sum(step.key == ALL for step in steps) > 1:
        raise entry.make_error(_SHARED_PATH)
    return str(text)


def _read_constants(entry: Entry) -> dict[str, Constant]:
    """Read the constant values for message fields that belong to no actuator, by field path.

    Args:
        entry: Entry `constants` of the message in the wiring file.

    Raises:
        WiringError: A value is not a number, text or bool.
    """
    constants: dict[str, Constant] = {}
    for path, one in entry.iterate_items("at least one field path and its value"):
        if not isinstance(one.value, bool | int | float | str):
            raise one.make_error("a number, a text, true or false")
        constants[path] = one.value
    return constants


def _read_actuator(name: str, entry: Entry, shared_path: str | None) -> ActuatorConfig:
    """Read the settings of one actuator.

    Args:
        name: Name of the actuator.
        entry: Entry of the actuator in the wiring file.
        shared_path: Field path that the message has for all its actuators; None if there is none.

    Raises:
        WiringError: A key or value is not allowed.
    """
    if not (_WORD.fullmatch(name) and name.isprintable()):
        allowed = "a name of visible characters without blanks"
        raise WiringError(entry.file, entry.key, name, allowed)
    fields = entry.read_fields(
        ("limits", "safe"), ("scale", "offset", "max_rate", "start", "field")
    )
    limits = fields["limits"].read_range(LIMITS, LARGEST)
    within = f"a value within the limits {limits[0]:g} to {limits[1]:g}"
    safe = fields["safe"]
    return ActuatorConfig(
        name=name,
        scale=read_optional_number(
            fields.get("scale"), 1.0, "a finite number other than 0", allow_zero=False
        ),
        offset=read_optional_number(fields.get("offset"), 0.0, "a finite number"),
        limits=limits,
        max_rate=read_optional_number(
            fields.get("max_rate"), 0.0, "units per second, 0 = off", low=0.0
        ),
        safe="hold" if safe.value == "hold" else safe.read_number(f"{within}, or hold", *limits),
        start=fields["start"].read_number(within, *limits) if "start" in fields else None,
        field=read_actuator_field_path(entry, fields.get("field"), shared_path),
    )


def read_actuator_field_path(
    actuator_entry: Entry, field_entry: Entry | None, shared_path: str | None
) -> str | None:
    """Read one actuator's own field path; None if it uses the path that all actuators share.

    Args:
        actuator_entry: Entry of the actuator, for the error.
        field_entry: Entry `field` of the actuator; None if there is none.
        shared_path: Field path that the message has for all its actuators; None if there is none.

    Raises:
        WiringError: There is no path of either kind, or the actuator's path does not name one
            number.
    """
    if field_entry is None:
        if shared_path is None:
            raise WiringError(
                actuator_entry.file, actuator_entry.key, MissingItem("'field'"), f"a field, {_PATH}"
            )
        return None
    try:
        field = parse_field_path(field_entry.value) if isinstance(field_entry.value, str) else None
    except ValueError:
        field = None
    if field is None or field.may_name_several_elements or field.is_computed:
        raise field_entry.make_error(_PATH)
    return str(field_entry.value)


def _read_measured_config(entry: Entry, source_names: tuple[str, ...]) -> MeasuredConfig:
    """Read from which source, and from which field, the positions of actuators are measured.

    Args:
        entry: The entry `measured` of a command message in the wiring file.
        source_names: Names of the wiring's sources (topic subscriptions).

    Raises:
        WiringError: A key or value is not allowed.
    """
    fields = entry.read_fields(("source", "field"))
    field = fields["field"]
    if not isinstance(field.value, str) or field.value.count("*") != 1:
        raise field.make_error("a field path with one *, for the actuator's name: position[*]")
    if parse_field_path(read_field_path(field, many_numbers=True)).is_computed:
        raise field.make_error("a field of positions, without a function")
    return MeasuredConfig(read_source_name(fields["source"], source_names), field.value)


def _read_bring_up_config(entry: Entry) -> BringUpConfig:
    """Read how fast and how exactly actuators are moved to the start pose.

    Args:
        entry: The entry `bring_up` of a command message in the wiring file.

    Raises:
        WiringError: A key or value is not allowed.
    """
    fields = entry.read_fields(("max_rate", "tolerance", "timeout_s"))
    return BringUpConfig(
        max_rate=fields["max_rate"].read_number("units per second, more than 0", _LEAST),
        tolerance=fields["tolerance"].read_number("a distance of more than 0", _LEAST),
        timeout_s=fields["timeout_s"].read_number(f"seconds, up to {LIMIT_S:g}", _LEAST, LIMIT_S),
    )


def _check_position_settings(entry: Entry, config: MessageConfig) -> None:
    """Check that the entries of one message for measured positions and start pose fit together.

    Positions must be measured if an actuator holds its position or there is a start pose. Either
    all actuators of the message must have a `start`, or none.

    Args:
        entry: Entry of the message in the wiring file, for the error.
        config: Settings of the message.

    Raises:
        WiringError: `measured`, `bring_up` or a `start` is missing, or the message does not command
            positions.
    """
    holding = [actuator for actuator in config.actuators if actuator.safe == "hold"]
    without = next((one.name for one in config.actuators if one.start is None), None)
    if config.bring_up is not None and without is not None:
        key = f"{entry.key}.actuators.{without}"
        raise WiringError(entry.file, key, MissingItem("'start'"), "start: POSITION, for bring_up")
    if config.bring_up is None and any(one.start is not None for one in config.actuators):
        raise WiringError(
            entry.file,
            entry.key,
            MissingItem("'bring_up'"),
            "bring_up: {max_rate, tolerance, timeout_s}, because an actuator has start",
        )
    if config.measured is None and (holding or config.bring_up is not None):
        why = "safe: hold" if holding else "bring_up"
        raise WiringError(
            entry.file,
            entry.key,
            MissingItem("'measured'"),
            f"measured: {{source, field}}, for {why}",
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
