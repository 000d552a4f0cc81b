"""Give the channels and actuators of a drafted wiring the names that a model knows.

A field of a received message is matched with a channel of the model by its name, and by whether its
values lie in the range that the channel had in training. A match that is not certain is marked with
"SET THIS".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from functools import cache
from typing import NamedTuple

from an_control.monitor.forward_model import get_channel_ranges_in_training
from an_control.policy import Model
from an_control.wiring import ActuatorConfig, ChannelConfig

SURE, POSSIBLE = 0.72, 0.33
"""Minimum similarity of a certain match, and of a match that the user must confirm."""
AHEAD = 0.08
"""A match is certain only if its similarity is at least this much above the second best match."""
OUT_OF_RANGE = 0.2
"""Number that is subtracted from the similarity if the values lie far outside the training
range."""
MARGIN = 0.5
"""Values count as inside the training range up to this distance from it, in units of its width."""
SYNONYMS = {
    "gyro": "angular velocity",
    "acc": "linear acceleration",
    "accelerometer": "linear acceleration",
    "pos": "position",
    "vel": "velocity",
    "odometry": "odom",
    "forward": "linear x",
    "turn": "angular z",
}
"""Words of channel ids, and the words of message fields that mean the same."""
SILENT = frozenset({"twist", "pose", "data", "state", "states", "joint"})
"""Words that say nothing about which number a field holds."""


class HeardField(NamedTuple):
    """A numeric message field of the robot, with a first draft of the channel that reads it.

    Args:
        config: The drafted channel, whose id is made from the names of topic and field.
        comment: The comment on the channel in the drafted wiring file.
        low: The lowest value that was received.
        high: The highest value that was received.
    """

    config: ChannelConfig
    comment: str
    low: float
    high: float


class Match(NamedTuple):
    """Result of matching a model's channels with fields of the robot's messages.

    Args:
        channels: The drafted channels that were matched, each with a comment. They have the ids of
            the model's channels, in the model's order.
        missing: Ids of the model's channels without a match.
        unused: Fields that match no channel of the model.
        doubtful: Number of matched channels that the user must confirm.
    """

    channels: list[tuple[ChannelConfig, str]]
    missing: list[str]
    unused: list[HeardField]
    doubtful: int


def match_channels_with_fields(heard_fields: Sequence[HeardField], model: Model) -> Match:
    """Find for each channel of a model the message field that probably carries its readings.

    A field fits a channel if their names are similar, and its values lie in the range that the
    channel had in training. Each field is used at most once.

    Args:
        heard_fields: The fields of received messages, with the channels drafted for them.
        model: The model; it must name its channels.
    """
    ids, ranges = list(model.task.channels), get_channel_ranges_in_training(model)
    scores = {
        id_: [_compute_field_similarity(id_, one, ranges.get(id_)) for one in heard_fields]
        for id_ in ids
    }
    taken = _assign_names_to_candidates(
        {(id_, place): score for id_, row in scores.items() for place, score in enumerate(row)}
    )
    channels, missing, doubtful = [], [], 0
    for id_ in ids:
        place = taken.get(id_)
        if place is None:
            missing.append(id_)
            continue
        one = heard_fields[place]
        others = (one for other, one in enumerate(scores[id_]) if other != place)
        score, second = scores[id_][place], max(others, default=0.0)
        comment = one.comment
        outside = not _is_within_trained_range(one, ranges.get(id_))
        if score < SURE or score - second < AHEAD or outside:
            doubtful += 1
            comment = f"SET THIS: is it {id_}? {comment}"
        if outside:
            low, high = ranges[id_]
            comment += f", in training {low:.4g} .. {high:.4g}"
        channels.append((replace(one.config, id=id_), comment))
    used = set(taken.values())
    unused = [one for place, one in enumerate(heard_fields) if place not in used]
    return Match(channels, missing, unused, doubtful)


def rename_actuators_to_model_names(
    actuators: Sequence[tuple[ActuatorConfig, str]], field: str, model: Model
) -> list[tuple[ActuatorConfig, str]]:
    """Give drafted actuators the names that a model has for them, if these names are similar.

    For example "hip1_joint" may become "hip_1": the similarity must be at least `SURE`. A renamed
    actuator still sends its commands to the same message field, which is added to its entry.

    Args:
        actuators: The drafted actuators of one command message, each with a comment.
        field: The message field that the actuators share; "" if each actuator has its own field.
        model: The model.

    Returns:
        All actuators in the same order, renamed or not, each with its comment.
    """
    names = list(model.task.actuators)
    known = {one.name for one, _ in actuators}
    scores = {
        (name, place): _compute_name_similarity(name, one.name)
        for name in names
        if name not in known
        for place, (one, _) in enumerate(actuators)
        if one.name not in names
    }
    taken = {
        place: name
        for name, place in _assign_names_to_candidates(scores).items()
        if scores[name, place] >= SURE
    }
    found = []
    for place, (one, comment) in enumerate(actuators):
        if place in taken and (one.field or field):
            own = one.field or f"{field}[{one.name}]"
            comment = f"{comment}; is {one.name} on the robot"
            one = replace(one, name=taken[place], field=own)
        found.append((one, comment))
    return found


def _assign_names_to_candidates(similarities: Mapping[tuple[str, int], float]) -> dict[str, int]:
    """Assign names to candidates, the most similar pairs first.

    Each name gets at most one candidate, and each candidate at most one name. Pairs that are not
    similar enough are not assigned.
    """
    found: dict[str, int] = {}
    taken: set[int] = set()
    for (name, place), score in sorted(similarities.items(), key=lambda pair: -pair[1]):
        if score >= POSSIBLE and name not in found and place not in taken:
            found[name] = place
            taken.add(place)
    return found


def _compute_field_similarity(
    id_: str, heard_field: HeardField, trained_range: tuple[float, float] | None
) -> float:
    """Return how well a message field fits a channel of the model, from -0.2 to 1 (best).

    This is the similarity of their names, minus `OUT_OF_RANGE` if the values of the field are far
    from the channel's readings in training.
    """
    config = heard_field.config
    score = max(
        _compute_name_similarity(id_, config.id),
        _compute_name_similarity(id_, f"{config.source}.{config.field}"),
    )
    return score if _is_within_trained_range(heard_field, trained_range) else score - OUT_OF_RANGE


def _is_within_trained_range(
    heard_field: HeardField, trained_range: tuple[float, float] | None
) -> bool:
    """Return whether the values of a field lie in or near the range that a channel had in training.

    If that range is not known, the result is True.
    """
    if trained_range is None:
        return True
    margin = MARGIN * max(trained_range[1] - trained_range[0], 1e-6)
    return (
        trained_range[0] - margin <= heard_field.low
        and heard_field.high <= trained_range[1] + margin
    )


def _compute_name_similarity(name: str, other_name: str) -> float:
    """Return how similar two names are in their words and letters, from 0 to 1 (equal)."""
    words, others = _split_words(name), _split_words(other_name)
    common = len(set(words) & set(others))
    share = common / max(1, len(set(words) | set(others)))
    inside = common / max(1, min(len(set(words)), len(set(others))))
    matcher = _make_letter_matcher(others)
    matcher.set_seq1(" ".join(words))
    letters = matcher.ratio()
    return max(0.5 * share + 0.5 * letters, 0.8 * inside * (0.5 + 0.5 * share) + 0.2 * letters)


@cache
def _make_letter_matcher(words: tuple[str, ...]) -> SequenceMatcher[str]:
    """Return a matcher that compares other texts with these words: it is slow to make."""
    return SequenceMatcher(None, "", " ".join(words))


@cache
def _split_words(name: str) -> tuple[str, ...]:
    """Split a name into its words in lower case, such as imu.linearX into imu, linear and x.

    Abbreviations and synonyms are replaced, such as gyro by angular and velocity. Words in
    `SILENT`, which say nothing about the number, are left out unless there are no others.
    """
    spaced = re.sub(r"([a-z])([A-Z0-9])", r"\1 \2", name).lower()
    words = re.findall(r"[a-z]+|\d+", spaced)
    words = [word for one in words for word in SYNONYMS.get(one, one).split()]
    return tuple([word for word in words if word not in SILENT] or words)
