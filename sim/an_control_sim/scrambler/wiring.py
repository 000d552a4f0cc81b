"""Derives the wiring of a policy that reads the scrambler's topic from the robot's wiring.

A wiring is the YAML file that connects topics to the channels of a policy. With undisturbed
readings the policy node must act exactly as on the robot's own topics.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from an_control.system.files import write_file
from an_control.wiring import (
    ChannelConfig,
    ImageConfig,
    MessageConfig,
    PoolConfig,
    SourceConfig,
    Wiring,
)

TOPIC = "scrambled"
_NAMED = re.compile(r"(?![0-9]+$)[^][*]+")
"""Pattern of ids that can stand as a name in a field path; any other id would be read as an index
or make the path invalid."""


def derive_scrambled_wiring(
    wiring: Wiring, wildcard_matches: Mapping[str, Sequence[str]] | None = None
) -> Wiring:
    """Return the wiring for a policy that reads disturbed readings from the topic `scrambled`.

    The messages on `scrambled` name each reading by the id of its channel. In the result each
    channel of the robot reads the element with its id. It keeps its maximum age and its weight, but
    has no scale, clip or crop, because the scrambler has applied them. The command is the same.
    Sources (topics) that are required, or measure the actuators' positions, are still read from the
    robot.

    Unless the channels are image patches, the channel entry `*` comes last. It reads every element
    that no other entry reads. These are the channels that a disturbance adds, and channels of the
    robot that can have no entry of their own: the matches of a wildcard (an id with a `*`) that is
    not in `wildcard_matches`, and channels whose id cannot stand in a field path, such as `7` or
    `a[0]`. If the robot has no such channels, `*` has the weight 0, so that added channels do not
    count in the share of present channels (`min_present_share`).

    Args:
        wiring: The robot's wiring.
        wildcard_matches: For wildcards of the wiring, the ids of the channels that each matches.
            None if the matches of no wildcard are known, or if there is no wildcard.
    """
    sources = {one.name: one for one in wiring.sources}
    ages = {
        one.id: sources[one.source].max_age_s if one.max_age_s is None else one.max_age_s
        for one in wiring.channels
    }
    oldest_s = max(ages.values()) if all(ages.values()) else 0.0
    type_ = "sensor_msgs/msg/Image" if wiring.images else "sensor_msgs/msg/JointState"
    measuring = {one.source for one in wiring.command.measured_configs}
    kept = [one for one in wiring.sources if one.required or one.name in measuring]
    return replace(
        wiring,
        sources=(
            SourceConfig(TOPIC, TOPIC, type_, oldest_s),
            *(replace(one, weight=None) for one in kept),
        ),
        channels=tuple(
            replace(one, max_age_s=None if one.max_age_s == oldest_s else one.max_age_s)
            for one in _derive_channel_entries(wiring, wildcard_matches or {}, ages)
        ),
    )


def _derive_channel_entries(
    wiring: Wiring, wildcard_matches: Mapping[str, Sequence[str]], max_ages_s: Mapping[str, float]
) -> Iterator[ChannelConfig]:
    """Yield the entries of the channels in the wiring of a policy that reads the scrambler."""
    if wiring.images:
        for one in wiring.channels:
            yield _derive_image_channel(one, max_ages_s[one.id])
        return
    stands_for = {
        one.id: wildcard_matches.get(one.id) or [one.id.replace("*", "?")]
        for one in wiring.channels
        if "*" not in one.id or one.id in wildcard_matches
    }
    counts: Counter[str] = Counter()
    for one in wiring.channels:
        counts[one.source] += len(stands_for.get(one.id, ()))
    shared = {one.name: one.weight for one in wiring.sources}
    all_named = len(stands_for) == len(wiring.channels)
    for one in wiring.channels:
        ids, weight = stands_for.get(one.id, ()), shared[one.source]
        if weight is not None:
            weight /= counts[one.source] or 1
        elif one.weight is not None:
            weight = one.weight / (len(ids) or 1)
        for id_ in ids:
            if _NAMED.fullmatch(id_):
                field = f"position[{id_}]"
                yield ChannelConfig(id_, TOPIC, field, max_age_s=max_ages_s[one.id], weight=weight)
            else:
                all_named = False
    yield ChannelConfig("*", TOPIC, "position[*]", weight=0.0 if all_named else None)


def _derive_image_channel(channel: ChannelConfig, max_age_s: float) -> ChannelConfig:
    """Return the entry for a camera whose images come, cropped and gray, from the scrambler."""
    assert channel.image is not None
    image, (rows, columns) = channel.image, channel.image.rows_and_columns
    size = rows * image.patch, columns * image.patch
    seen = ImageConfig(size, image.patch, image.stack)
    return ChannelConfig(channel.id, TOPIC, max_age_s=max_age_s, image=seen)


def write_wiring(wiring: Wiring, path: str | Path) -> None:
    """Write a wiring to a YAML file, from which `load_wiring` reads it again.

    Args:
        wiring: The wiring.
        path: The path of the file.

    Raises:
        OSError: The file cannot be written.
    """
    commands = [_make_yaml_entry_of_message(one) for one in wiring.command.messages]
    content = {
        "an_control_wiring": 1,
        "robot": wiring.robot,
        "rate_hz": wiring.rate_hz,
        "min_present_share": wiring.min_present_share,
        "sources": {one.name: _convert_config_to_yaml(one, "name") for one in wiring.sources},
        "channels": {one.id: _convert_config_to_yaml(one, "id") for one in wiring.channels},
        "command": commands if len(commands) > 1 else commands[0],
    }
    text = yaml.dump(content, Dumper=_QuotingDumper, sort_keys=False, allow_unicode=False)
    write_file(path, text)


class _QuotingDumper(yaml.SafeDumper):
    """A writer of YAML that quotes every text, so that a frame id 1e5 is not read as a number."""


_QuotingDumper.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)


def _make_yaml_entry_of_message(message: MessageConfig) -> dict[str, Any]:
    """Return the YAML entry of a command message in a wiring."""
    entry = _convert_config_to_yaml(replace(message, actuators=(), measured=None, bring_up=None))
    for name in ("measured", "bring_up"):
        if (config := getattr(message, name)) is not None:
            entry[name] = _convert_config_to_yaml(config)
    if not message.constants:
        del entry["constants"]
    return entry | {
        "actuators": {one.name: _convert_config_to_yaml(one, "name") for one in message.actuators}
    }


def _convert_config_to_yaml(config: Any, omitted_field_name: str = "") -> dict[str, Any]:
    """Convert a configuration object to its YAML entry, leaving out fields that are None.

    The field `omitted_field_name`, whose value is the key of the entry, is left out too. Of a
    channel that is an image, only source, image and maximum age are kept.
    """
    fields = {name: value for name, value in vars(config).items() if name != omitted_field_name}
    if fields.get("image") is not None:
        fields = {name: fields[name] for name in ("source", "image", "max_age_s")}
    return {
        "-inf" if name == "minus_inf" else name: _convert_value_to_yaml(value)
        for name, value in fields.items()
        if value is not None
    }


def _convert_value_to_yaml(value: Any) -> Any:
    """Convert a value to one that YAML has: objects to dicts, and tuples to lists."""
    if isinstance(value, ImageConfig | PoolConfig):
        return _convert_config_to_yaml(value)
    return [_convert_value_to_yaml(one) for one in value] if isinstance(value, tuple) else value
