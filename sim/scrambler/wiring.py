"""The wiring of a policy behind the scrambler, derived from the robot's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from an_control.system.files import write_whole
from an_control.wiring import (
    ChannelConfig,
    ImageConfig,
    MessageConfig,
    PoolConfig,
    SourceConfig,
    Wiring,
)

TOPIC = "scrambled"


def scrambled_wiring(wiring: Wiring, *, named: bool = False) -> Wiring:
    """All channels from the one topic `scrambled`, by name; the same robot, rate and command.

    `named`: each channel that the wiring names is a channel of its own here too, so that it can be
    rewired, and counts for min_present_share from the start; what a disturbance adds is not read
    then, unless the robot's own wiring has wildcards. Readings come scaled and clipped
    already, images cropped, gray and blackened. They may be as old as the oldest source may be.
    """
    ages = [source.max_age_s for source in wiring.sources]
    oldest_s = max(ages) if all(ages) else 0.0
    required = any(source.required for source in wiring.sources)
    type_ = "sensor_msgs/msg/Image" if wiring.images else "sensor_msgs/msg/JointState"
    measured = {one.source for one in wiring.command.measured}
    sources = (
        SourceConfig(TOPIC, TOPIC, type_, oldest_s, required),
        *(one for one in wiring.sources if one.name in measured),
    )
    channels: tuple[ChannelConfig, ...] = (ChannelConfig("*", TOPIC, "position[*]"),)
    if named:
        ids = [one.id for one in wiring.channels if "*" not in one.id]
        own = tuple(ChannelConfig(id_, TOPIC, f"position[{id_}]") for id_ in ids)
        channels = own if len(ids) == len(wiring.channels) else (*own, *channels)
    if wiring.images:
        channels = tuple(_seen(channel) for channel in wiring.channels)
    return replace(wiring, sources=sources, channels=channels)


def _seen(channel: ChannelConfig) -> ChannelConfig:
    """A camera's channel whose images come as the policy sees them."""
    assert channel.image is not None
    image, (rows, columns) = channel.image, channel.image.grid
    size = rows * image.patch, columns * image.patch
    return ChannelConfig(channel.id, TOPIC, image=ImageConfig(size, image.patch, image.stack))


def write_wiring(wiring: Wiring, path: str | Path) -> None:
    """Write a wiring as the YAML that `load_wiring` reads back to the same."""
    commands = [_message(one) for one in wiring.command.messages]
    content = {
        "an_control_wiring": 1,
        "robot": wiring.robot,
        "rate_hz": wiring.rate_hz,
        "min_present_share": wiring.min_present_share,
        "sources": {one.name: _entry(one, "name") for one in wiring.sources},
        "channels": {one.id: _entry(one, "id") for one in wiring.channels},
        "command": commands if len(commands) > 1 else commands[0],
    }
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=False)
    write_whole(path, text)


def _message(message: MessageConfig) -> dict[str, Any]:
    entry = _entry(replace(message, actuators=(), measured=None, bring_up=None))
    for name in ("measured", "bring_up"):
        if (config := getattr(message, name)) is not None:
            entry[name] = _entry(config)
    if not message.constants:
        del entry["constants"]
    return entry | {"actuators": {one.name: _entry(one, "name") for one in message.actuators}}


def _entry(config: Any, key: str = "") -> dict[str, Any]:
    """A config's fields but its name; what is None was not given."""
    fields = {name: value for name, value in vars(config).items() if name != key}
    if fields.get("image") is not None:
        fields = {name: fields[name] for name in ("source", "image", "max_age_s")}
    return {
        "-inf" if name == "minus_inf" else name: _plain(value)
        for name, value in fields.items()
        if value is not None
    }


def _plain(value: Any) -> Any:
    """A value as YAML has it."""
    if isinstance(value, ImageConfig | PoolConfig):
        return _entry(value)
    return [_plain(one) for one in value] if isinstance(value, tuple) else value
