"""From ROS messages to channel readings, and from actions to commands; needs no rclpy."""

from an_control.wiring.channel_table import ChannelTable, Notice, Readings
from an_control.wiring.checked_yaml import WiringError
from an_control.wiring.command import ActuatorConfig, CommandConfig, MessageConfig
from an_control.wiring.command_message import CommandMessage, command_messages, sendable_limits
from an_control.wiring.compile import lists_names, names_reader
from an_control.wiring.config import (
    ChannelConfig,
    PoolConfig,
    SourceConfig,
    Wiring,
    load_wiring,
)
from an_control.wiring.feed import SourceStatus
from an_control.wiring.image import ImageConfig
from an_control.wiring.messages import message_class, stamp_reader

__all__ = [
    "ActuatorConfig",
    "ChannelConfig",
    "ChannelTable",
    "CommandConfig",
    "CommandMessage",
    "ImageConfig",
    "MessageConfig",
    "Notice",
    "PoolConfig",
    "Readings",
    "SourceConfig",
    "SourceStatus",
    "Wiring",
    "WiringError",
    "command_messages",
    "lists_names",
    "load_wiring",
    "message_class",
    "names_reader",
    "sendable_limits",
    "stamp_reader",
]
