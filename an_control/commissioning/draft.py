"""Drafts a robot's wiring file from the topics that `survey_topics` has found.

The wiring is the YAML file that connects a robot's topics to the channels of a policy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from an_control.commissioning.survey import IMAGES, SubscribedTopic, Survey, SurveyedTopic
from an_control.wiring import ActuatorConfig, ChannelConfig, SourceConfig
from an_control.wiring.draft import Draft

JOINT_COMMANDS = {
    "sensor_msgs/msg/JointState": "effort",
    "std_msgs/msg/Float64MultiArray": "data",
    "trajectory_msgs/msg/JointTrajectory": "points[0].positions",
}
"""Message types that command joints, with the field that holds the values."""
BASE_COMMANDS = {"geometry_msgs/msg/Twist": "", "geometry_msgs/msg/TwistStamped": "twist."}
"""Message types that drive a mobile base, with the path of the field before the velocities."""
BASE_VELOCITIES = ("linear.x", "angular.z")
LASER_SCAN, BEAMS = "sensor_msgs/msg/LaserScan", "ranges[*]"
LIMITS = (-1.0, 1.0)
GAPS, MIN_AGE_S = 3.0, 0.05
"""The drafted max_age_s is GAPS times the longest gap between messages, and at least MIN_AGE_S."""
VAGUE_NAMES = ("data", "raw", "out", "output", "state", "states", "value")
"""Last parts of topic names that say too little without the part before them."""
RATE_HZ = 10.0
"""The drafted control rate if no message rate could be measured."""
Entry = tuple[ChannelConfig, str]
_PATH_PARTS = re.compile(r"[\[\]().]+")
_ANGLE = re.compile(r"(roll|pitch|yaw)\(.*\)")


def draft_robot(robot: str, found: Survey, namespace: str) -> Draft:
    """Draft the wiring file of a robot.

    Args:
        robot: The name of the robot.
        found: The topics of the robot.
        namespace: The robot's namespace, which is left out of topic names.

    Raises:
        ValueError: No topic with numbers was found.
    """
    topics = [one for one in found.topics if one.ranges]
    if not topics:
        heard = ", ".join(one.name for one in found.topics) or "none"
        raise ValueError(f"no topic with numbers was heard (topics: {heard})")
    names = _name_sources(topics)
    channels: list[Entry] = []
    constant: list[str] = []
    for topic in topics:
        for entry in _draft_channels(names[topic.name], topic):
            low, high = topic.ranges[entry[0].field]
            if low < high or topic.joints:
                channels.append(entry)
            else:
                constant.append(f"{names[topic.name]}: {entry[0].field}  (always {low:.6g})")
    if not channels:
        every = [list(_draft_channels(names[topic.name], topic)) for topic in topics]
        channels, constant = [one for some in every for one in some], []
    command, actuators = _draft_command(topics, found.subscribed, namespace)
    return Draft(
        robot=robot,
        about=(
            f"The wiring of {robot}, as an-control new has drafted it from what it heard.",
            "Rename the ids to those of your model (an-control check compares them), scale and",
            "clip the readings as in training, and set the limits and safe values below.",
        ),
        rate_hz=_choose_rate(topics),
        rate="ticks per second; must be within 10% of what the model was trained at",
        sources=[_draft_source(names[one.name], one, namespace) for one in topics],
        channels=_make_ids_unique(channels),
        command=command,
        actuators=actuators,
        aside=_describe_unused(found, constant),
    )


def _choose_rate(topics: Sequence[SurveyedTopic]) -> float:
    """Choose the control rate in Hz: that of the joint topics, else of the fastest topic."""
    joints = [one.rate_hz for one in topics if one.joints and one.rate_hz]
    every = joints or [one.rate_hz for one in topics if one.rate_hz]
    return float(f"{max(every, default=RATE_HZ):.3g}")


def _name_sources(topics: Sequence[SurveyedTopic]) -> dict[str, str]:
    """Choose a short and distinct name for each topic."""
    names: dict[str, str] = {}
    for topic in topics:
        parts = [re.sub(r"\W", "_", part) for part in topic.name.strip("/").split("/")]
        first = 2 if parts[-1] in VAGUE_NAMES else 1
        short = next(
            name for n in range(min(first, len(parts)), len(parts) + 1)
            if (name := "_".join(parts[-n:])) not in names.values() or n == len(parts)
        )  # fmt: skip
        names[topic.name] = short if short[0].isalpha() else f"s{short}"
    return names


def _draft_source(name: str, topic: SurveyedTopic, namespace: str) -> tuple[SourceConfig, str]:
    """Return the wiring's entry for a topic, with a comment on its message rate.

    Args:
        name: The name of the entry.
        topic: The topic.
        namespace: The robot's namespace, which is left out of the topic's name.
    """
    age_s = float(f"{max(MIN_AGE_S, GAPS * topic.gap_s):.2g}")
    heard = f"{topic.rate_hz:.3g} Hz" if topic.rate_hz else "one message"
    by = ", ".join(topic.publishers)
    stamp = "" if topic.stamped else "; not stamped: not alone in lockstep"
    config = SourceConfig(name, _remove_namespace(topic.name, namespace), topic.type, age_s)
    return config, f"{heard}, gaps up to {topic.gap_s:.2g} s, by {by}{stamp}"


def _remove_namespace(topic: str, namespace: str) -> str:
    """Return a topic's name without the namespace, so that the wiring fits all such robots."""
    prefix = f"/{namespace.strip('/')}/"
    return topic.removeprefix(prefix) if namespace.strip("/") else topic


def _draft_channels(source: str, topic: SurveyedTopic) -> Iterator[Entry]:
    """Yield the wiring's entry for each number in a topic's messages, with a comment.

    Args:
        source: The name of the topic in the wiring.
        topic: The topic.
    """
    for path, (low, high) in topic.ranges.items():
        channel = ChannelConfig(_make_channel_id(source, path, topic), source, path)
        if topic.type == LASER_SCAN and path == BEAMS:
            channel = _draft_beams(channel, topic)
        turning = topic.turning.get(path)
        hint = turning.describe_hint(path) if turning is not None else ""
        yield channel, f"{low:.4g} .. {high:.4g}" + (f"; {hint}" if hint else "")


def _draft_beams(channel: ChannelConfig, topic: SurveyedTopic) -> ChannelConfig:
    """Return the entry for a laser scanner's beams, with a value for beams that hit nothing."""
    ends = (topic.ranges.get(name, (0.0, 0.0))[0] for name in ("range_min", "range_max"))
    nearest, farthest = ends
    if not nearest < farthest:
        return channel
    return replace(channel, inf=farthest, valid=(nearest, farthest))


def _make_channel_id(source: str, path: str, topic: SurveyedTopic) -> str:
    """Make a channel's id from its field, such as hip.position for position[hip].

    Args:
        source: The name of the topic in the wiring.
        path: The path of the field in the message.
        topic: The topic.
    """
    field, _, key = path.partition("[")
    if topic.joints and key:
        return f"{key.rstrip(']')}.{field}"
    if angle := _ANGLE.fullmatch(path):
        return f"{source}.{angle[1]}"
    return f"{source}.{_PATH_PARTS.sub('.', path).strip('.')}"


def _make_ids_unique(channels: Sequence[Entry]) -> list[Entry]:
    """Return the channels, with the source's name added to ids that occur more than once."""
    count: dict[str, int] = {}
    for config, _ in channels:
        count[config.id] = count.get(config.id, 0) + 1
    return [
        (one if count[one.id] == 1 else replace(one, id=f"{one.source}.{one.id}"), about)
        for one, about in channels
    ]


def _draft_command(
    topics: Sequence[SurveyedTopic], taken: Sequence[SubscribedTopic], namespace: str
) -> tuple[tuple[tuple[str, str, str], ...], list[tuple[ActuatorConfig, str]]]:
    """Draft the part of the wiring about commands.

    Args:
        topics: The sensor topics, which name the joints.
        taken: The topics that other nodes subscribe to.
        namespace: The robot's namespace, which is left out of topic names.

    Returns:
        (key, value, comment) for each line about topic and type, and the actuators with comments.
    """
    joints = tuple(dict.fromkeys(name for one in topics for name in one.joints))
    kinds = [*JOINT_COMMANDS, *BASE_COMMANDS] if joints else [*BASE_COMMANDS, *JOINT_COMMANDS]
    for kind in kinds:
        for one in taken:
            if one.type == kind:
                heard = f"heard by {', '.join(one.subscribers)}"
                lines = ("topic", _remove_namespace(one.name, namespace), heard), ("type", kind, "")
                if kind in BASE_COMMANDS:
                    return lines, [
                        _draft_actuator(path, BASE_COMMANDS[kind] + path)
                        for path in BASE_VELOCITIES
                    ]
                field = "field", JOINT_COMMANDS[kind], "SET THIS: what it commands"
                return (*lines, field), [_draft_actuator(name) for name in joints or ["actuator"]]
    topic = "topic", "joint_commands", "SET THIS: nobody listens for commands now"
    lines = topic, ("type", next(iter(JOINT_COMMANDS)), "")
    field = "field", "effort", "position, velocity or effort"
    return (*lines, field), [_draft_actuator(name) for name in joints or ["actuator"]]


def _draft_actuator(name: str, field: str | None = None) -> tuple[ActuatorConfig, str]:
    """Draft an actuator whose scale, limits and safe value the user must set."""
    one = ActuatorConfig(name, LIMITS[1], 0.0, LIMITS, 0.0, 0.0, field=field)
    return one, "SET scale, limits and safe"


def _describe_unused(found: Survey, constant: Sequence[str]) -> list[str]:
    """Return comments on topics and numbers that the drafted wiring does not use.

    Args:
        found: The topics of the robot.
        constant: Descriptions of numbers that did not change.
    """
    aside = [
        f"{one.name} is a camera ({one.type}): see docs/how-to/cameras.md"
        for one in found.topics
        if one.type in IMAGES
    ]
    aside += [f"somebody listens to {one.name} ({one.type})" for one in found.subscribed]
    if constant:
        aside += ["Did not change while it was heard, and so is no channel here:"]
        aside += [f"  {one}" for one in constant]
    return aside
