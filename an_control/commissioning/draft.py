"""Drafts a robot's wiring file from the topics that `survey_topics` has found.

The wiring is the YAML file that connects a robot's topics to the channels of a policy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count, takewhile

from an_control.commissioning.model_names import (
    HeardField,
    Match,
    match_channels_with_fields,
    rename_actuators_to_model_names,
)
from an_control.commissioning.survey import IMAGES, SubscribedTopic, Survey, SurveyedTopic
from an_control.policy import Model
from an_control.ros.inputs import describe_wrong_message_rate
from an_control.wiring import ActuatorConfig, ChannelConfig, SourceConfig
from an_control.wiring.command import MessageConfig
from an_control.wiring.draft import Draft
from an_control.wiring.messages import format_element_path

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
"""Final parts of topic names that say too little without the part before them."""
UNUSED = "Heard, but like no channel of the model:"
SHOWN = 4
"""Maximum number of names in an error."""
UNCHANGED = "Did not change while it was heard, so it is not a channel here:"
RATE_HZ = 10.0
"""The drafted control rate if no message rate could be measured."""
Entry = tuple[ChannelConfig, str]
CommandDraft = tuple[tuple[tuple[str, str, str], ...], list[tuple[ActuatorConfig, str]]]
"""A drafted command message: key, value and comment of each YAML line about its topic and type, and
its actuators with comments."""
_PATH_PARTS = re.compile(r"[\[\]().]+")
_NOT_IN_IDS = re.compile(r"[\s*]")
_ANGLE = re.compile(r"(roll|pitch|yaw)\(.*\)")


def draft_wiring_of_robot(
    robot: str, survey: Survey, namespace: str, model: Model | None = None
) -> Draft:
    """Draft the wiring file of a robot, which connects its topics to the channels of a policy.

    Args:
        robot: The name of the robot.
        survey: The topics of the robot, with their types, rates and ranges.
        namespace: The robot's namespace, which is left out of topic names.
        model: A model that will control the robot, which gives the channel ids and the control rate
            of the draft. If it is None, both are derived from the robot's topics.

    Raises:
        ValueError: No topic with numbers was found, or none is like a channel of the model.
    """
    topics = [one for one in survey.topics if one.ranges]
    if not topics:
        others = ", ".join(one.name for one in survey.topics) or "none"
        cameras = "".join(f"; {one}" for one in _list_cameras(survey))
        raise ValueError(f"no topic with numbers was heard (topics: {others}){cameras}")
    names = _choose_source_names(topics)
    channels: list[Entry] = []
    constant: list[str] = []
    heard: list[HeardField] = []
    for topic in topics:
        once = topic.messages == 1 and topic.type.startswith("geometry_msgs/")
        for config, comment in _draft_channels_with_comments(names[topic.name], topic):
            low, high = topic.ranges[config.field]
            heard.append(HeardField(config, comment, low, high))
            if low < high or topic.joints or once:
                channels.append((config, comment))
            else:
                constant.append(f"{names[topic.name]}: {config.field}  (always {low:.6g})")
    if not channels:
        channels, constant = [(one.config, one.comment) for one in heard], []
    (command, actuators), *more = _draft_recorded_commands(
        survey.command_messages
    ) or _draft_commands(topics, survey.subscribed, namespace)
    rate_hz, aside = _find_control_rate_hz(topics), _describe_unused_topics(survey, constant)
    about: tuple[str, ...] = (
        f"The wiring of {robot}, as an-control new has drafted it from what it heard.",
        "Rename the ids to those of your model (an-control check compares them), scale and",
        "clip the readings as in training, and set the limits and safe values below.",
    )
    if model is not None:
        match = match_channels_with_fields(heard, model)
        if not match.channels:
            known = ", ".join(model.task.channels[:SHOWN])
            raise ValueError(
                f"nothing that was heard is like a channel of the model ({known}, ...)"
            )
        channels, aside = (
            match.channels,
            _describe_unmatched_channels_and_fields(match, model, survey),
        )
        actuators = rename_actuators_to_model_names(
            actuators, next((value for key, value, _ in command if key == "field"), ""), model
        )
        rate_hz = 1.0 / model.task.step_s if model.task.step_s else rate_hz
        about = (
            f"The wiring of {robot}, as an-control new has drafted it from what it heard, with the",
            "channel ids of a model. Scale and clip the readings as in training, and set the",
            "limits and safe values below.",
        )
        used = {one.source for one, _ in channels}
        topics = [one for one in topics if names[one.name] in used]
    return Draft(
        robot=robot,
        about=about,
        rate_hz=rate_hz,
        rate="ticks per second; must be within 10% of what the model was trained at",
        sources=[
            _draft_source_with_comment(names[one.name], one, namespace, rate_hz) for one in topics
        ],
        channels=_make_ids_unique(channels),
        command=command,
        actuators=actuators,
        aside=aside,
        more_commands=more,
    )


def _find_control_rate_hz(topics: Sequence[SurveyedTopic]) -> float:
    """Return the control rate of the draft in Hz: the highest message rate of the joint topics.

    Without joint topics it is the highest rate of all topics, and without any rate `RATE_HZ`.
    """
    joints = [one.rate_hz for one in topics if one.joints and one.rate_hz]
    every = joints or [one.rate_hz for one in topics if one.rate_hz]
    return float(f"{max(every, default=RATE_HZ):.3g}")


def _choose_source_names(topics: Sequence[SurveyedTopic]) -> dict[str, str]:
    """Choose a short name in the wiring for each topic, such as "imu" for /robot/imu.

    It is the last part of the topic's name. If that is vague, or if another topic has this short
    name already, more parts of the name are used, and at last a number.
    """
    names: dict[str, str] = {}
    for topic in topics:
        parts = [re.sub(r"\W", "_", part) for part in topic.name.strip("/").split("/")]
        first = 2 if parts[-1] in VAGUE_NAMES else 1
        joined = ["_".join(parts[-n:]) for n in range(min(first, len(parts)), len(parts) + 1)]
        numbered = (f"{joined[-1]}_{number}" for number in count(2))
        spelled = (name if name[0].isalpha() else f"s{name}" for name in chain(joined, numbered))
        names[topic.name] = next(name for name in spelled if name not in names.values())
    return names


def _draft_source_with_comment(
    name: str, topic: SurveyedTopic, namespace: str, control_hz: float
) -> tuple[SourceConfig, str]:
    """Return a topic's entry in the wiring's list of sources, with a comment on its rate.

    If the topic's rate is another one than the control rate, the entry names it.
    """
    age_s = _draft_max_age_s(topic.gap_s)
    if not topic.rate_hz:
        age_s = 0.0  # a message that was sent once, such as a goal, is never too old
    heard = f"{topic.rate_hz:.3g} Hz" if topic.rate_hz else "one message, so never too old"
    by = ", ".join(topic.publishers)
    stamp = "" if topic.stamped else "; no time stamp, so lockstep needs another source with one"
    config = SourceConfig(name, _remove_namespace(topic.name, namespace), topic.type, age_s)
    if topic.rate_hz and describe_wrong_message_rate(config, [topic.rate_hz], control_hz):
        config = replace(config, rate_hz=topic.rate_hz)
    return config, f"{heard}, gaps up to {topic.gap_s:.2g} s, by {by}{stamp}"


def _draft_max_age_s(gap_s: float) -> float:
    """Return the age above which a message is not used, by the longest time between two."""
    return float(f"{max(MIN_AGE_S, GAPS * gap_s):.2g}")


def _remove_namespace(topic: str, namespace: str) -> str:
    """Return a topic's name without the robot's namespace.

    A wiring with such names fits all robots of this kind, in any namespace.
    """
    prefix = f"/{namespace.strip('/')}/"
    return topic.removeprefix(prefix) if namespace.strip("/") else topic


def _draft_channels_with_comments(source: str, topic: SurveyedTopic) -> Iterator[Entry]:
    """Yield a channel entry of the wiring for each number in a topic's messages, with a comment."""
    own_ages_s = {
        format_element_path("", name): _draft_max_age_s(one.gap_s) if one.gap_s else 0.0
        for name, one in topic.rarely_sent_joint_names.items()
    }
    joints = {
        format_element_path("", name): allowed
        for name, allowed in _make_allowed_names(topic.joints).items()
    }
    for path, (low, high) in topic.ranges.items():
        channel = ChannelConfig(_make_channel_id(source, path, joints), source, path)
        if own_ages_s:  # a slower driver publishes some of the joints on this topic
            age_s = own_ages_s.get(path[path.find("[") :])
            channel = replace(channel, max_age_s=age_s)
        if topic.type == LASER_SCAN and path == BEAMS:
            channel = _add_laser_range_limits(channel, topic)
        turning = topic.turning.get(path)
        hint = turning.make_sine_and_cosine_advice(path) if turning is not None else ""
        yield channel, f"{low:.4g} .. {high:.4g}" + (f"; {hint}" if hint else "")


def _add_laser_range_limits(channel: ChannelConfig, topic: SurveyedTopic) -> ChannelConfig:
    """Add the limits of a laser scanner's range to the drafted entry of its channel.

    With them a beam that hits nothing reads the upper limit, and readings outside the limits are
    not valid. The entry stays as it is if the messages do not give the limits.
    """
    ends = (topic.ranges.get(name, (0.0, 0.0))[0] for name in ("range_min", "range_max"))
    nearest, farthest = ends
    if not nearest < farthest:
        return channel
    return replace(channel, inf=farthest, valid=(nearest, farthest))


def _make_channel_id(source: str, path: str, joints: Mapping[str, str]) -> str:
    """Make a channel's id from the path of its field, such as hip.position from position[hip].

    `joints` has the names that a wiring allows, by the part of a path that names the joint: [hip].
    """
    field, bracket, rest = path.partition("[")
    if name := joints.get(bracket + rest):
        return f"{name}.{field}"
    if angle := _ANGLE.fullmatch(path):
        return f"{source}.{angle[1]}"
    return f"{source}.{_PATH_PARTS.sub('.', path).strip('.')}"


def _make_allowed_names(names: Sequence[str]) -> dict[str, str]:
    """Return for each name of a joint a name that a wiring allows, without blanks and stars.

    All are distinct: if "a b" would become the name of the joint "a_b", it becomes "a_b_2".
    """
    allowed = {name: _NOT_IN_IDS.sub("_", name) or "_" for name in names}
    taken = {name for name, new in allowed.items() if name == new}
    for name, new in allowed.items():
        if name != new:
            numbered = chain((new,), (f"{new}_{number}" for number in count(2)))
            allowed[name] = next(one for one in numbered if one not in taken)
            taken.add(allowed[name])
    return allowed


def _make_ids_unique(channels: Sequence[Entry]) -> list[Entry]:
    """Return the drafted channels with distinct ids.

    An id that occurs more than once is preceded by the name of its source.
    """
    counts = Counter(config.id for config, _ in channels)
    return [
        (one if counts[one.id] == 1 else replace(one, id=f"{one.source}.{one.id}"), about)
        for one, about in channels
    ]


def _draft_recorded_commands(messages: Sequence[MessageConfig]) -> list[CommandDraft]:
    """Draft the command messages that the wiring of a recording has, with the same actuators.

    Args:
        messages: The messages in that wiring.

    Returns:
        The same as `_draft_commands`; [] if there are no messages.
    """
    found: list[CommandDraft] = []
    for one in messages:
        about = "as in the recorded wiring"
        lacking = [key for key in ("constants", "measured", "bring_up") if getattr(one, key)]
        if lacking:
            about = f"SET as in the recorded wiring: {', '.join(lacking)}"
        lines = [("topic", one.topic, about), ("type", one.type, "")]
        if one.field is not None:
            lines.append(("field", one.field, ""))
        found.append((tuple(lines), [(actuator, "") for actuator in one.actuators]))
    return found


def _draft_commands(
    topics: Sequence[SurveyedTopic], subscribed_topics: Sequence[SubscribedTopic], namespace: str
) -> list[CommandDraft]:
    """Draft the command messages: one for joints, one for a mobile base, or both.

    They are sent to topics on which other nodes listen for commands. If there is no such topic, the
    draft is a placeholder for joint commands.
    """
    found: list[CommandDraft] = []
    base_first = not any(one.joints for one in topics)
    kinds = [JOINT_COMMANDS, BASE_COMMANDS]
    for kind in reversed(kinds) if base_first else kinds:
        one = next((one for type_ in kind for one in subscribed_topics if one.type == type_), None)
        if one is None:
            continue
        heard = f"heard by {', '.join(one.subscribers)}"
        lines = ("topic", _remove_namespace(one.name, namespace), heard), ("type", one.type, "")
        if one.type in BASE_COMMANDS:
            before = BASE_COMMANDS[one.type]
            found.append(
                (
                    lines,
                    [_draft_actuator_with_comment(path, before + path) for path in BASE_VELOCITIES],
                )
            )
        elif found:  # no joint was heard beside the mobile base: a comment will name this topic
            continue
        else:
            near = _select_joint_topics_nearest_by_name(topics, one.name)
            field = "field", _choose_command_field(near, one.type), "SET THIS: what it commands"
            found.append(((*lines, field), _draft_joint_actuators(near)))
    if found:
        return found
    topic = "topic", "joint_commands", "SET THIS: no topic for all joints has a listener now"
    lines = topic, ("type", next(iter(JOINT_COMMANDS)), "")
    field = "field", _choose_command_field(topics, lines[1][1]), "position, velocity or effort"
    return [((*lines, field), _draft_joint_actuators(topics))]


def _select_joint_topics_nearest_by_name(
    topics: Sequence[SurveyedTopic], command_topic: str
) -> list[SurveyedTopic]:
    """Return the joint topics that share most leading parts of their names with a command topic.

    The parts of a name are the words between its slashes. Topics with fewer such parts probably
    belong to other joints, such as those of another arm.
    """

    def count_equal_leading_parts(topic: SurveyedTopic) -> int:
        """Return how many leading parts a topic's name shares with that of the command topic."""
        parts = zip(topic.name.split("/"), command_topic.split("/"), strict=False)
        return len(list(takewhile(lambda pair: pair[0] == pair[1], parts)))

    joints = [one for one in topics if one.joints]
    most = max(map(count_equal_leading_parts, joints), default=0)
    return [one for one in joints if count_equal_leading_parts(one) == most]


def _draft_joint_actuators(topics: Sequence[SurveyedTopic]) -> list[tuple[ActuatorConfig, str]]:
    """Draft an actuator for each joint that the messages of these topics list, with a comment."""
    names = list(dict.fromkeys(name for one in topics for name in one.joints)) or ["actuator"]
    found = []
    for name, allowed in _make_allowed_names(names).items():
        actuator, comment = _draft_actuator_with_comment(allowed)
        renamed = "" if allowed == name else f"; {name!r} cannot be the name of an actuator"
        found.append((actuator, comment + renamed))
    return found


def _choose_command_field(topics: Sequence[SurveyedTopic], type_: str) -> str:
    """Return the path of the message field in which the commands for joints are sent.

    In a `JointState` it is the position if the robot measures positions and no efforts, else the
    effort. In messages of another type only one field is possible.
    """
    field = JOINT_COMMANDS[type_]
    if field != "effort":
        return field
    measured = {path.partition("[")[0] for one in topics for path in one.ranges}
    return "position" if "position" in measured and "effort" not in measured else field


def _draft_actuator_with_comment(name: str, field: str | None = None) -> tuple[ActuatorConfig, str]:
    """Draft the entry of an actuator, with placeholders for scale, limits and safe value."""
    one = ActuatorConfig(name, LIMITS[1], 0.0, LIMITS, 0.0, 0.0, field=field)
    return one, "SET scale, limits and safe"


def _describe_unused_topics(survey: Survey, constant_numbers: Sequence[str]) -> list[str]:
    """Return comment lines that name topics and numbers that the drafted wiring does not use.

    Topics to which other nodes listen are listed too, because they may take commands.
    """
    aside = _list_cameras(survey)
    aside += [f"somebody listens to {one.name} ({one.type})" for one in survey.subscribed]
    if constant_numbers:
        aside += [UNCHANGED]
        aside += [f"  {one}" for one in constant_numbers]
    return aside


def _list_cameras(survey: Survey) -> list[str]:
    """Return texts that name the cameras, which are wired by hand, and the page that says how."""
    return [
        f"{one.name} is a camera ({one.type}): see docs/how-to/cameras.md"
        for one in survey.topics
        if one.type in IMAGES
    ]


def _describe_unmatched_channels_and_fields(
    match: Match, model: Model, survey: Survey
) -> list[str]:
    """Return comment lines on the model's channels without a field, and fields without a channel.

    The possible command topics of the robot and the model's actuators are listed too.
    """
    aside = [f"SET THIS: {id_}: nothing like it was heard" for id_ in match.missing]
    aside += [f"somebody listens to {one.name} ({one.type})" for one in survey.subscribed]
    aside += [f"The model's actuators: {', '.join(model.task.actuators)}"]
    if match.unused:
        aside += [UNUSED]
        aside += [f"  {one.config.source}: {one.config.field}  ({one.comment})"
                  for one in match.unused]  # fmt: skip
    return aside
