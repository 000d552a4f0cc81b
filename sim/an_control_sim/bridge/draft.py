"""Drafts the two YAML files that serve an environment over ROS 2: the wiring and the simulation.

The wiring connects the topics to a policy, the simulation connects them to the environment.
Channels (readings) and actuators are those that a model of this environment has (`describe_task`).
Readings whose ids name a joint (hip.position, hip.velocity) are published as joint states. All
other readings are published on a second topic, with their ids as names. Both topics have JointState
messages, because these have the time stamp that lockstep needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from an_control.policy.task import Task
from an_control.wiring import ActuatorConfig, ChannelConfig, SourceConfig
from an_control.wiring.draft import (
    Draft,
    DraftLine,
    format_number,
    format_yaml_entries,
    quote_scalar,
)
from an_control_sim.gym.environments import (
    HasSensors,
    describe_task,
    has_patch_observations,
    make_environment,
    open_environment,
)
from an_control_sim.gym.probe import measure_units
from an_control_sim.gym.spaces import compute_finite_bounds, describe_space

JOINT_STATE = "sensor_msgs/msg/JointState"
COMMANDS = "joint_commands"
AGE_STEPS = 5
PICTURE_DIMENSIONS = 3
CommentedActuator = tuple[ActuatorConfig, str]
"""An actuator in the wiring and a comment on it."""


@dataclass(frozen=True)
class DraftTopic:
    """A topic of JointState messages that a drafted simulation file shall publish.

    Attributes:
        topic: The name of the topic.
        names: The content of the message's field `name`: joints, or ids of readings.
        fields: For each other filled field of the message, such as "position", the indices of its
            values in the observation, in the order of `names`.
        about: A comment on the topic for the drafted file.
    """

    topic: str
    names: tuple[str, ...]
    fields: dict[str, tuple[int, ...]]
    about: str


@dataclass(frozen=True)
class EnvironmentDraft:
    """Drafts of the two YAML files with which a policy controls an environment over ROS 2.

    A model fits the environment if it has the same channels, actuators and step length.

    Attributes:
        wiring: The text of the wiring file, which says which topics feed the policy.
        simulation: The text of the simulation file, which says which topics the simulator has.
        channels: The ids of the channels, in the order of the observation.
        actuators: The names of the actuators.
        step_s: The length of a step in seconds.
    """

    wiring: str
    simulation: str
    channels: tuple[str, ...]
    actuators: tuple[str, ...]
    step_s: float


def draft_wiring_and_simulation_files(robot: str, environment: str) -> EnvironmentDraft:
    """Draft the wiring file and the simulation file of a gymnasium environment.

    Args:
        robot: The name of the robot, for the wiring and the comments.
        environment: A gymnasium id, or ``module:id``.

    Raises:
        ValueError: The environment cannot be made, its observations are images, or its actions are
            of a kind for which no draft can be made.
    """
    with closing(make_environment(environment, measure_units(environment))) as env:
        if has_patch_observations(env):
            raise ValueError(
                f"environment {environment!r}: image patches have no draft;"
                " see docs/how-to/cameras.md"
            )
        task = describe_task(env, robot, environment)
    with closing(open_environment(environment)) as env:
        space = env.observation_space
        shape = space.shape or (len(task.channels),)
        if len(shape) == PICTURE_DIMENSIONS and space.dtype == np.uint8:
            raise ValueError(
                f"environment {environment!r}: images have no draft; see docs/how-to/cameras.md"
            )
        topics = _group_readings_by_topic(task.channels, len(shape) == 1)
        actuators = _draft_actuators(env.action_space, task.actuators)
        about = f"{robot}: {environment}, as an-control new has drafted it."
        step_s = task.step_s
        return EnvironmentDraft(
            wiring=_draft_wiring(
                robot, about, task, topics, _format_bounds_by_reading_index(space), actuators
            ).format_yaml(),
            simulation=_draft_simulation(about, environment, env, step_s, topics, actuators),
            channels=task.channels,
            actuators=task.actuators,
            step_s=step_s,
        )


def _group_readings_by_topic(
    channels: Sequence[str], is_observation_one_dimensional: bool
) -> list[DraftTopic]:
    """Group an environment's readings into a topic of joint states and a topic of all others.

    A joint is a pair of readings such as hip.position and hip.velocity.
    """
    place = {id_: i for i, id_ in enumerate(channels)}
    joints = [id_.removesuffix(".position") for id_ in channels if id_.endswith(".position")]
    joints = (
        [one for one in joints if f"{one}.velocity" in place]
        if is_observation_one_dimensional
        else []
    )
    fields = {
        quantity: tuple(place.pop(f"{one}.{quantity}") for one in joints)
        for quantity in ("position", "velocity")
    }
    topics = []
    if joints:
        topics.append(DraftTopic("joint_states", tuple(joints), fields, "joints by name"))
    if place:
        rest = {"position": tuple(place.values())}
        topics.append(DraftTopic("readings", tuple(place), rest, "numbers by channel id"))
    return topics


def _draft_actuators(space: gymnasium.Space[Any], names: Sequence[str]) -> list[CommentedActuator]:
    """Draft the wiring's entries of the actuators, with commands in the environment's units.

    The safe command is 0, or the middle of the bounds if 0 is out of bounds.
    """
    if not isinstance(space, gymnasium.spaces.Box):
        about = "-1 .. 1; of a choice's actuators the largest is taken"
        if isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple):
            raise ValueError(
                f"actions of the space {describe_space(space)} have no draft (allowed: Box,"
                " Discrete, MultiDiscrete, MultiBinary); an environment may offer one of them by a"
                " gymnasium.ActionWrapper"
            )
        return [(ActuatorConfig(one, 1.0, 0.0, (-1.0, 1.0), 0.0, 0.0), about) for one in names]
    found = []
    low, high = compute_finite_bounds(space)
    stated = space.bounded_below.ravel() & space.bounded_above.ravel()
    for name, least, most, bounded in zip(
        names, low.tolist(), high.tolist(), stated.tolist(), strict=True
    ):
        scale, offset = (most - least) / 2.0, (least + most) / 2.0
        safe = 0.0 if least <= 0.0 <= most else offset
        about = "" if bounded else "has no bounds in the environment"
        found.append((ActuatorConfig(name, scale, offset, (least, most), 0.0, safe), about))
    return found


def _draft_wiring(
    robot: str,
    description: str,
    task: Task,
    topics: Sequence[DraftTopic],
    bound_texts: Mapping[int, str],
    actuators: Sequence[CommentedActuator],
) -> Draft:
    """Draft the wiring file of an environment."""
    step_s, units = task.step_s, dict(enumerate(task.units))
    channels = [
        (place, _draft_channel_entry(topic, name, field, *units.get(place, (1.0, 0.0))))
        for topic in topics
        for field, places in topic.fields.items()
        for name, place in zip(topic.names, places, strict=True)
    ]
    return Draft(
        robot=robot,
        about=(
            f"The wiring of {description}",
            "Ids and actuators are those that a model of this environment names: keep them.",
        ),
        rate_hz=1.0 / step_s,
        rate=f"one tick in {step_s:.6g} s, the environment's step",
        sources=[
            (SourceConfig(one.topic, one.topic, JOINT_STATE, max(0.05, AGE_STEPS * step_s)), "")
            for one in topics
        ],
        channels=[
            (channel, bound_texts.get(place, ""))
            for place, channel in sorted(channels, key=lambda pair: pair[0])
        ],
        command=(
            ("topic", COMMANDS, ""),
            ("type", JOINT_STATE, ""),
            ("field", "effort", "the environment's own unit"),
        ),
        actuators=actuators,
    )


def _draft_channel_entry(
    topic: DraftTopic, name: str, field: str, scale: float, offset: float
) -> ChannelConfig:
    """Draft the wiring's entry of a channel that reads a number of a drafted JointState message."""
    id_ = name if topic.topic == "readings" else f"{name}.{field}"
    return ChannelConfig(id_, topic.topic, f"{field}[{name}]", scale=scale, offset=offset)


def _format_bounds_by_reading_index(space: gymnasium.Space[Any]) -> dict[int, str]:
    """Format the bounds of an observation's numbers as texts, such as "-1 .. 1"."""
    if not isinstance(space, gymnasium.spaces.Box):
        return {}
    pairs = zip(space.low.ravel().tolist(), space.high.ravel().tolist(), strict=True)
    return {i: f"{a:g} .. {b:g}" for i, (a, b) in enumerate(pairs) if np.isfinite([a, b]).all()}


def _draft_simulation(
    description: str,
    environment: str,
    env: gymnasium.Env[Any, Any],
    step_s: float,
    topics: Sequence[DraftTopic],
    actuators: Sequence[CommentedActuator],
) -> str:
    """Draft the text of the simulation file."""
    size = sum(len(places) for topic in topics for places in topic.fields.values())
    sensors = _format_sensor_names(env)
    lines = [
        f"# The simulation of {description}",
        "# Values: a literal, observation, observation[i], [a:b], [a:b:c] or [i,j,k].",
        *([f"# And the same of sensors.NAME with NAME of {sensors}."] if sensors else []),
        "an_control_simulation: 1",
        f"environment: {quote_scalar(environment)}",
        f"step_s: {format_number(step_s)}",
        "",
        "publish:",
    ]
    for topic in topics:
        names = ", ".join(map(quote_scalar, topic.names))
        lines += [f"  {topic.topic}:    # {topic.about}", f"    type: {JOINT_STATE}"]
        lines += ["    fields:", f"      name: [{names}]"]
        lines += [
            f"      {field}: {quote_scalar(format_index_expression(places, size))}"
            for field, places in topic.fields.items()
        ]
    lines += ["", "command:", f"  topic: {COMMANDS}", f"  type: {JOINT_STATE}", "  field: effort"]
    lines += ["  actuators:    # in the order of the action: action = command / scale"]
    lines += format_yaml_entries(
        (
            DraftLine(one.name, f"{{scale: 1.0, safe: {format_number(float(one.safe))}}}")
            for one, _ in actuators
        ),
        indent=4,
    )
    if "rgb_array" in env.unwrapped.metadata.get("render_modes", ()):
        lines += ["", "camera:", "  topic: camera/image_raw", "  frame_id: camera"]
    return "\n".join(lines) + "\n"


def _format_sensor_names(env: gymnasium.Env[Any, Any]) -> str:
    """Return the names of an environment's sensors as one text, with commas between them.

    Sensors are the readings that an environment offers beside the observation. The text is "" if
    there are none.
    """
    inner = env.unwrapped
    if not isinstance(inner, HasSensors):
        return ""
    env.reset(seed=0)
    return ", ".join(inner.sensors())


def format_index_expression(indices: Sequence[int], observation_size: int) -> str:
    """Return the text by which a simulation file selects some numbers of an observation.

    It is "observation" for all numbers in their order, else a slice if possible, else a list.

    >>> format_index_expression((0, 2, 4), 6)
    'observation[0:5:2]'
    >>> format_index_expression((0, 4, 1), 6)
    'observation[0,4,1]'

    Args:
        indices: The indices of the selected numbers, in the order in which they are read.
        observation_size: The length of the observation.
    """
    if observation_size == 1:  # which may be a number instead of an array
        return "observation"
    if len(indices) == 1:
        return f"observation[{indices[0]}:{indices[0] + 1}]"
    steps: NDArray[np.int64] = np.diff(indices)
    first, last, step = indices[0], indices[-1] + 1, int(steps[0])
    if step < 1 or (steps != step).any():
        return f"observation[{','.join(map(str, indices))}]"
    if step > 1:
        return f"observation[{first}:{last}:{step}]"
    return (
        "observation" if (first, last) == (0, observation_size) else f"observation[{first}:{last}]"
    )
