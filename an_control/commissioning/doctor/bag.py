"""Collect a robot's readings and commands from a bag, for the doctor.

The bag is a recording of any robot's topics, or one that a policy node made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from an_control.commissioning.doctor.recorder import DrivenRecorder
from an_control.policy import Model
from an_control.record.layout import (
    ATTACHMENT,
    COMMAND,
    GATE_NUMBERS,
    GATE_TOPIC,
    NONE,
    TYPES,
    BagError,
    decode_joint_state,
)
from an_control.record.reader import Bag, is_same_topic
from an_control.wiring import Wiring, make_stamp_reader


def make_recorder_from_bag(
    wiring: Wiring,
    model_path: str,
    model: Model,
    bag: Bag,
    namespace: str,
    deserialize: Callable[[bytes, Any], Any],
) -> DrivenRecorder:
    """Read a robot's readings and commands from a bag, and return a recorder that holds them.

    The recorder keeps them in memory. The readings and action of each command are one recorded
    tick; `recorder.make_recording` of the result returns all ticks for the doctor.

    Readings and commands come from the topics that the wiring names. Until the first command from
    these topics, the commands are those that a policy node recorded as sent, if there are any.

    Args:
        wiring: The robot's wiring.
        model_path: Path of the model file, for error messages.
        model: The model whose channels and actuators are recorded.
        bag: The bag.
        namespace: The robot's namespace, which stands before the relative topic names of the
            wiring and the name of the policy node; "" accepts these names in any namespace.
        deserialize: Makes a ROS message from bytes and a message class.

    Raises:
        WiringError: The wiring does not fit its message types or the model.
        BagError: The bag cannot be read.
    """
    driven = DrivenRecorder(wiring, model_path, model)
    table = driven.recorder.table
    classes = table.message_classes
    stamps = {name: make_stamp_reader(cls) for name, cls in classes.items()}
    readers: dict[tuple[str, str], list[str]] = {}
    commanders: dict[tuple[str, str], list[int]] = {}
    was_sent, are_on_topic = True, False
    prefix = f"/{namespace.strip('/')}/" if namespace.strip("/") else "/"
    for entry in bag.iterate_entries():
        if entry.type == ATTACHMENT:
            continue
        topic = entry.topic, entry.type  # a topic may have messages of several types
        if topic not in readers:
            readers[topic] = [
                one.name
                for one in wiring.sources
                if one.type == entry.type and is_same_topic(one.topic, entry.topic, namespace)
            ]
            commanders[topic] = [
                number
                for number, one in enumerate(wiring.command.messages)
                if one.type == entry.type and is_same_topic(one.topic, entry.topic, namespace)
            ]
        try:
            for name in readers[topic]:
                message = deserialize(entry.data, classes[name])
                table.store_message(name, message, stamps[name](message), entry.log_ns)
            for number in commanders[topic]:
                cls = type(driven.messages[number].message)
                if not are_on_topic:  # the node's record may have had this command too
                    driven.recorder.mark_gap_before_next_tick()
                before = driven.commands
                driven.add_command_message(number, deserialize(entry.data, cls), entry.log_ns)
                are_on_topic |= driven.commands > before
        except (BagError, ValueError, RuntimeError) as error:
            raise BagError(f"{bag.path}: topic {entry.topic}: {error}") from error
        if are_on_topic or not entry.topic.startswith(prefix):
            continue
        if entry.topic.endswith(f"/{GATE_TOPIC}") and entry.type == TYPES[GATE_TOPIC]:
            was_sent = GATE_NUMBERS.decode_numbers(entry.data)[4] != NONE
        if was_sent and entry.topic.endswith(f"/{COMMAND}") and entry.type == TYPES[COMMAND]:
            names, values = decode_joint_state(entry.data)
            by_name = dict(zip(names, values, strict=False))
            if set(wiring.command.names) <= set(by_name):
                ordered = [by_name[name] for name in wiring.command.names]
                driven.add_command(np.array(ordered, float), entry.log_ns)
    return driven
