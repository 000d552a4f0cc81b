"""Reads the simulation YAML, which names the served environment and its topics and commands.

As in the wiring YAML, any mistake is a WiringError that names file, key, value and what is allowed.
An environment is an id registered with gymnasium, or MODULE:ID, where importing the module
registers it. Values are literals or expressions of one of these forms, never evaluated as code:

    observation     observation[i]     observation[a:b]    observation[a:b:c]    observation[i,j,k]
    sensors.NAME    and sensors.NAME with the same brackets

`observation` is the environment's observation, `sensors` the dict of physical readings that
`env.unwrapped.sensors()` returns, if an environment has that method (`HasSensors`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import Any

import numpy as np

from an_control.wiring.checked_yaml import Entry, WiringError, read_yaml
from an_control.wiring.command import (
    CommandMessageList,
    list_command_message_entries,
    read_actuator_field_path,
    read_common_actuator_field_path,
)
from an_control.wiring.messages import MESSAGE_TYPE

Getter = Callable[[Any, Mapping[str, Any]], Any]

FORMS = (
    "observation, observation[i], observation[a:b], observation[a:b:c] (every c-th),"
    " observation[i,j,k], and the same of sensors.NAME"
)
_LOOKS_LIKE_ONE = re.compile(r"(observation|sensors)\s*($|[\[.(])")
_FORM = re.compile(
    r"(?:observation|sensors\.(?P<sensor>[A-Za-z_]\w*))"
    r"(?:\[(?:(?P<index>-?\d{1,9})|(?P<places>\d{1,9}(?:\s*,\s*\d{1,9})+)"
    r"|(?P<start>\d{0,9}):(?P<stop>\d{0,9})(?::(?P<step>[1-9]\d{0,8}))?)\])?"
)


class ExpressionError(ValueError):
    """An error: a text such as "observation[a]" looks like an expression but is not valid."""


@dataclass(frozen=True)
class Expression:
    """A reference to values of an environment's observation, or of one of its other sensors.

    Attributes:
        text: The expression as written, such as observation[0:4].
        sensor: The name of the sensor; None for the observation.
        part: Which values: an index, a slice or several indices; None for the whole array.
    """

    text: str
    sensor: str | None
    part: int | slice | tuple[int, ...] | None

    def make_getter(self) -> Getter:
        """Return a function that returns the values to which this expression refers.

        The function has two arguments: the environment's observation, and its sensor readings by
        name. It raises KeyError or IndexError if there are no such values.
        """
        sensor, part = self.sensor, self.part
        if isinstance(part, tuple):
            places = list(part)
            if sensor is None:
                return lambda observation, sensors: np.asarray(observation)[places]
            return lambda observation, sensors: np.asarray(sensors[sensor])[places]
        if sensor is None:
            if part is None:
                return lambda observation, sensors: observation
            return lambda observation, sensors: observation[part]
        if part is None:
            return lambda observation, sensors: sensors[sensor]
        return lambda observation, sensors: sensors[sensor][part]

    def check_slice_is_within_array(self, observation: Any, sensors: Mapping[str, Any]) -> None:
        """Check that the slice of this expression, if it has one, lies within its array.

        Python itself does not check that, and returns fewer values.

        Args:
            observation: The environment's observation.
            sensors: The environment's sensor readings beside the observation, by name.

        Raises:
            IndexError: The slice asks for more values than there are.
        """
        if isinstance(self.part, slice):
            whole = observation if self.sensor is None else sensors[self.sensor]
            start, stop = self.part.start or 0, self.part.stop
            last = stop if stop is not None else len(whole)
            if not start < last <= len(whole):
                raise IndexError(f"[{start}:{last}] of {len(whole)} values")


def parse_expression(text: str) -> Expression | None:
    """Parse a text such as "observation[0:4]" of the simulation YAML; return None for plain text.

    >>> parse_expression("observation[0:4]").part
    slice(0, 4, None)

    Raises:
        ExpressionError: The text starts like an expression but has none of the allowed forms.
    """
    if not _LOOKS_LIKE_ONE.match(text):
        return None
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise ExpressionError(FORMS)
    part: int | slice | tuple[int, ...] | None = None
    if match["index"] is not None:
        part = int(match["index"])
    elif match["places"] is not None:
        part = tuple(map(int, match["places"].split(",")))
    elif match["start"] is not None:
        ends = ("start", "stop", "step")
        part = slice(*(int(match[end]) if match[end] else None for end in ends))
    return Expression(text.strip(), match["sensor"], part)


_ENVIRONMENT = re.compile(r"([A-Za-z_][\w.]*:)?[\w.-]+(/[\w.-]+)?", re.ASCII)
_ENVIRONMENTS = "a gymnasium id, NAMESPACE/NAME-vN or MODULE:ID"
_TOPIC = re.compile(r"/?[A-Za-z_]\w*(/[A-Za-z_]\w*)*", re.ASCII)
_FIELD = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_TEXT = re.compile(r"[ -~]{0,200}")


@dataclass(frozen=True)
class SimulatedTopicConfig:
    """The entry in the simulation YAML of a topic on which the simulation publishes readings.

    Attributes:
        topic: The name of the topic.
        type: The message type.
        fields: A mapping from a field path in the message to a constant, or to an Expression for
            values of the environment.
    """

    topic: str
    type: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class SimulatedActuatorConfig:
    """The entry of an actuator in the simulation YAML: action = (command - offset) / scale.

    Attributes:
        name: The name of the actuator.
        scale: The change of the command for a change of 1 of the action.
        offset: The command at action 0.
        safe: The command that is applied if no command arrives in time.
        field: The message field that has the command; None if all actuators share one field.
    """

    name: str
    scale: float
    offset: float
    safe: float
    field: str | None = None


@dataclass(frozen=True)
class SimulatedMessageConfig:
    """The entry of a command topic in the simulation YAML.

    Attributes:
        topic: The name of the topic.
        type: The message type.
        field: The message field that has all commands; None if each actuator has its own field.
        actuators: The actuators, in the order of the action.
        constants: Always {}; present because code shared with `CommandMessage` reads it.
    """

    topic: str
    type: str
    field: str | None
    actuators: tuple[SimulatedActuatorConfig, ...]
    constants: Mapping[str, Any] = dataclass_field(default_factory=dict)


@dataclass(frozen=True)
class CameraConfig:
    """The simulation YAML's entry of the camera, whose pictures the environment renders.

    Attributes:
        topic: The image topic.
        frame_id: The frame id in the header of its messages.
    """

    topic: str
    frame_id: str


RESERVED_OPTIONS = {"environment", "id", "disable_env_checker"}
"""Arguments of `gymnasium.make` that the simulator sets itself."""


@dataclass(frozen=True)
class Simulation:
    """The checked content of a simulation YAML.

    Attributes:
        file: The path of the file.
        environment: The gymnasium id, or MODULE:ID.
        options: Arguments of `gymnasium.make`.
        step_s: The simulated time of a step in seconds.
        publish: The entries of the topics on which readings are published.
        command: The entries of the topics on which commands arrive.
        camera: The entry of the camera's topic; None if no picture is rendered.
    """

    file: str
    environment: str
    options: Mapping[str, Any]
    step_s: float
    publish: tuple[SimulatedTopicConfig, ...]
    command: CommandMessageList[SimulatedMessageConfig]
    camera: CameraConfig | None

    @property
    def step_ns(self) -> int:
        """The simulated time of a step in nanoseconds."""
        return round(self.step_s * 1e9)


def load_simulation(path: str | Path) -> Simulation:
    """Read and check a simulation YAML.

    Raises:
        WiringError: The file is not valid.
    """
    top = read_yaml(path).read_fields(
        ("an_control_simulation", "environment", "step_s", "publish", "command"),
        ("options", "camera"),
    )
    version = top["an_control_simulation"]
    if version.read_number("1, the version of the format") != 1:
        raise version.make_error("1, the version of the format")
    command = CommandMessageList(
        tuple(_parse_command_message(one) for one in list_command_message_entries(top["command"]))
    )
    command.check_topics_and_actuators_unique(str(path))
    publish = tuple(
        _parse_published_topic(*item) for item in top["publish"].iterate_items("at least one topic")
    )
    for topic, key in command.topic_keys.items():
        if topic in {one.topic for one in publish}:
            allowed = "a topic that is not under publish: the robot would command itself"
            raise WiringError(path, key, topic, allowed)
    options = (
        dict(top["options"].iterate_items("gymnasium.make options")) if "options" in top else {}
    )
    for name in RESERVED_OPTIONS & options.keys():
        raise options[name].make_error(f"no {name} here: it is set already")
    return Simulation(
        file=str(path),
        environment=top["environment"].read_text(_ENVIRONMENTS, _ENVIRONMENT),
        options={name: entry.value for name, entry in options.items()},
        step_s=top["step_s"].read_number("seconds, 0.000001 to 60", 1e-6, 60.0),
        publish=publish,
        command=command,
        camera=_parse_camera(top["camera"]) if "camera" in top else None,
    )


def _parse_published_topic(topic: str, entry: Entry) -> SimulatedTopicConfig:
    """Parse the YAML entry of a topic on which readings are published."""
    if not _TOPIC.fullmatch(topic):
        raise WiringError(entry.file, entry.key, topic, "a topic name such as joint_states")
    parts = entry.read_fields(("type", "fields"))
    fields = parts["fields"].iterate_items("at least one field path and its value")
    values = {path: _parse_constant_or_expression(path, value) for path, value in fields}
    return SimulatedTopicConfig(topic, _parse_message_type(parts["type"]), values)


def _parse_constant_or_expression(path: str, entry: Entry) -> Any:
    """Return the value that an entry gives for a message field: a constant or an Expression."""
    if not _FIELD.fullmatch(path):
        raise WiringError(entry.file, entry.key, path, "a field path such as header.frame_id")
    value = entry.value
    if isinstance(value, str):
        try:
            return parse_expression(value) or value
        except ExpressionError as error:
            raise entry.make_error(str(error)) from None
    members = value if isinstance(value, list) else [value]
    if not all(isinstance(one, bool | int | float | str) for one in members):
        raise entry.make_error("a number, a text, a list of these or an expression")
    return value


def _parse_command_message(entry: Entry) -> SimulatedMessageConfig:
    """Parse the YAML entry of a command topic."""
    parts = entry.read_fields(("topic", "type", "actuators"), ("field",))
    actuators = parts["actuators"].iterate_items("at least one actuator, in the action's order")
    shared = read_common_actuator_field_path(parts["field"]) if "field" in parts else None
    return SimulatedMessageConfig(
        topic=parts["topic"].read_text("a topic name", _TOPIC),
        type=_parse_message_type(parts["type"]),
        field=shared,
        actuators=tuple(_parse_actuator(*item, shared) for item in actuators),
    )


def _parse_actuator(name: str, entry: Entry, shared_field: str | None) -> SimulatedActuatorConfig:
    """Parse the YAML entry of an actuator."""
    parts = entry.read_fields(("scale", "safe"), ("offset", "field"))
    scale = parts["scale"].read_number("a finite number other than 0")
    if scale == 0.0:
        raise parts["scale"].make_error("a finite number other than 0")
    offset = parts["offset"].read_number("a finite number") if "offset" in parts else 0.0
    safe = parts["safe"].read_number("a finite number")
    field = read_actuator_field_path(entry, parts.get("field"), shared_field)
    return SimulatedActuatorConfig(name, scale, offset, safe, field)


def _parse_camera(entry: Entry) -> CameraConfig:
    """Parse the YAML entry of the camera."""
    parts = entry.read_fields(("topic", "frame_id"))
    return CameraConfig(
        topic=parts["topic"].read_text("a topic name", _TOPIC),
        frame_id=parts["frame_id"].read_text("a frame's name", _TEXT),
    )


def _parse_message_type(entry: Entry) -> str:
    """Return the message type that the YAML entry of a topic names."""
    return entry.read_text("a message type such as sensor_msgs/msg/Imu", MESSAGE_TYPE)
