"""The simulation YAML: which environment is served, on which topics, under which command.

Strict, as the wiring is: whatever is wrong is a WiringError that names file, key, value and what
was allowed. Nothing in the file is evaluated: expressions have one fixed form (`expressions.py`).
An environment is an id registered with gymnasium, or MODULE:ID, where importing the module
registers it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import Any

from an_control.wiring.checked_yaml import Entry, read_yaml
from an_control.wiring.command import Messages
from an_control.wiring.command_file import message_entries, own_field, shared_field
from an_control.wiring.errors import WiringError
from an_control.wiring.messages import MESSAGE_TYPE
from an_control_sim.bridge.expressions import ExpressionError, parse_expression

_ENVIRONMENT = re.compile(r"([A-Za-z_][\w.]*:)?[\w.-]+(/[\w.-]+)?", re.ASCII)
_ENVIRONMENTS = "a gymnasium id, NAMESPACE/NAME-vN or MODULE:ID"
_TOPIC = re.compile(r"/?[A-Za-z_]\w*(/[A-Za-z_]\w*)*", re.ASCII)
_FIELD = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_TEXT = re.compile(r"[ -~]{0,200}")


@dataclass(frozen=True)
class TopicConfig:
    """A published topic: its message type and, by field path, a literal or an Expression."""

    topic: str
    type: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class ActuatorConfig:
    """action = (command - offset) / scale; `safe` is the command for when none came in time."""

    name: str
    scale: float
    offset: float
    safe: float
    field: str | None = None


@dataclass(frozen=True)
class MessageConfig:
    """A topic that drives the environment; `field` as in the wiring."""

    topic: str
    type: str
    field: str | None
    actuators: tuple[ActuatorConfig, ...]
    constants: Mapping[str, Any] = dataclass_field(default_factory=dict)


@dataclass(frozen=True)
class CameraConfig:
    """Where the rendered picture goes, while somebody subscribes."""

    topic: str
    frame_id: str


TAKEN = {"environment", "id", "disable_env_checker"}
"""What the simulator gives `gymnasium.make` itself."""


@dataclass(frozen=True)
class Simulation:
    """A checked simulation YAML. `step_s` is the simulated time of one environment step."""

    file: str
    environment: str
    options: Mapping[str, Any]
    step_s: float
    publish: tuple[TopicConfig, ...]
    command: Messages[MessageConfig]
    camera: CameraConfig | None

    @property
    def step_ns(self) -> int:
        return round(self.step_s * 1e9)


def load_simulation(path: str | Path) -> Simulation:
    """Read and check a simulation YAML. Raises WiringError."""
    top = read_yaml(path).fields(
        ("an_control_simulation", "environment", "step_s", "publish", "command"),
        ("options", "camera"),
    )
    version = top["an_control_simulation"]
    if version.number("1, the version of the format") != 1:
        raise version.error("1, the version of the format")
    command = Messages(tuple(_message(one) for one in message_entries(top["command"])))
    command.check_once(str(path))
    publish = tuple(_topic(*item) for item in top["publish"].items("at least one topic"))
    for topic, key in command.topics.items():
        if topic in {one.topic for one in publish}:
            allowed = "a topic that is not under publish: the robot would command itself"
            raise WiringError(path, key, topic, allowed)
    options = dict(top["options"].items("gymnasium.make options")) if "options" in top else {}
    for name in TAKEN & options.keys():
        raise options[name].error(f"no {name} here: it is set already")
    return Simulation(
        file=str(path),
        environment=top["environment"].text(_ENVIRONMENTS, _ENVIRONMENT),
        options={name: entry.value for name, entry in options.items()},
        step_s=top["step_s"].number("seconds, 0.000001 to 60", 1e-6, 60.0),
        publish=publish,
        command=command,
        camera=_camera(top["camera"]) if "camera" in top else None,
    )


def _topic(topic: str, entry: Entry) -> TopicConfig:
    if not _TOPIC.fullmatch(topic):
        raise WiringError(entry.file, entry.key, topic, "a topic name such as joint_states")
    parts = entry.fields(("type", "fields"))
    fields = parts["fields"].items("at least one field path and its value")
    values = {path: _value(path, value) for path, value in fields}
    return TopicConfig(topic, _type(parts["type"]), values)


def _value(path: str, entry: Entry) -> Any:
    """A literal, or the Expression that a text is."""
    if not _FIELD.fullmatch(path):
        raise WiringError(entry.file, entry.key, path, "a field path such as header.frame_id")
    value = entry.value
    if isinstance(value, str):
        try:
            return parse_expression(value) or value
        except ExpressionError as error:
            raise entry.error(str(error)) from None
    members = value if isinstance(value, list) else [value]
    if not all(isinstance(one, bool | int | float | str) for one in members):
        raise entry.error("a number, a text, a list of these or an expression")
    return value


def _message(entry: Entry) -> MessageConfig:
    parts = entry.fields(("topic", "type", "actuators"), ("field",))
    actuators = parts["actuators"].items("at least one actuator, in the action's order")
    shared = shared_field(parts["field"]) if "field" in parts else None
    return MessageConfig(
        topic=parts["topic"].text("a topic name", _TOPIC),
        type=_type(parts["type"]),
        field=shared,
        actuators=tuple(_actuator(*item, shared) for item in actuators),
    )


def _actuator(name: str, entry: Entry, shared: str | None) -> ActuatorConfig:
    parts = entry.fields(("scale", "safe"), ("offset", "field"))
    scale = parts["scale"].number("a finite number other than 0")
    if scale == 0.0:
        raise parts["scale"].error("a finite number other than 0")
    offset = parts["offset"].number("a finite number") if "offset" in parts else 0.0
    safe = parts["safe"].number("a finite number")
    field = own_field(entry, parts.get("field"), shared)
    return ActuatorConfig(name, scale, offset, safe, field)


def _camera(entry: Entry) -> CameraConfig:
    parts = entry.fields(("topic", "frame_id"))
    return CameraConfig(
        topic=parts["topic"].text("a topic name", _TOPIC),
        frame_id=parts["frame_id"].text("a frame's name", _TEXT),
    )


def _type(entry: Entry) -> str:
    return entry.text("a message type such as sensor_msgs/msg/Imu", MESSAGE_TYPE)
