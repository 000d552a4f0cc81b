"""Wiring of a robot: from ROS messages to a policy's inputs, from its actions to commands.

`load_wiring` reads a robot's YAML file into a frozen `Wiring`. The file names sources (topics to
subscribe to), channels (the numbers and image patches that the policy reads) and actuators. A
`ChannelTable` stores the messages of the sources and reads all channels once a tick (control step).
`make_command_messages` makes the objects that write commands into ROS messages. Nothing here
imports rclpy, and nothing reads a clock: time is always an argument.

Example:
    >>> from an_control.system.share import find_share_path
    >>> wiring = load_wiring(find_share_path("config/ant.yaml"))
    >>> wiring.robot, len(wiring.command.actuators)
    ('ant', 8)
"""

from an_control.wiring.channel_table import ChannelTable, Readings
from an_control.wiring.checked_yaml import WiringError
from an_control.wiring.command import (
    ActuatorConfig,
    BringUpConfig,
    CommandConfig,
    MeasuredConfig,
    MessageConfig,
)
from an_control.wiring.command_message import (
    CommandMessage,
    compute_field_steps,
    compute_sendable_limits,
    make_command_messages,
)
from an_control.wiring.compile import has_name_list, make_names_reader
from an_control.wiring.config import (
    ChannelConfig,
    PoolConfig,
    SourceConfig,
    Wiring,
    load_wiring,
)
from an_control.wiring.image import ImageConfig
from an_control.wiring.messages import import_message_class, make_stamp_reader
from an_control.wiring.missing import Notice, SourceStatus

__all__ = [
    "ActuatorConfig",
    "BringUpConfig",
    "ChannelConfig",
    "ChannelTable",
    "CommandConfig",
    "CommandMessage",
    "ImageConfig",
    "MeasuredConfig",
    "MessageConfig",
    "Notice",
    "PoolConfig",
    "Readings",
    "SourceConfig",
    "SourceStatus",
    "Wiring",
    "WiringError",
    "compute_field_steps",
    "compute_sendable_limits",
    "has_name_list",
    "import_message_class",
    "load_wiring",
    "make_command_messages",
    "make_names_reader",
    "make_stamp_reader",
]
