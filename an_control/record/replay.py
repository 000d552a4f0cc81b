"""Replay a recording: run the node's own code with the recorded input, without ROS topics.

    messages -> readings -> monitor -> policy -> gate -> command

Messages, ticks, commands and changes of state are processed in the order in which the node noted
them, and with its times. So each command is computed again to the last bit, on the same machine and
with the same libraries. The command that was sent before a tick is taken from the recording, so
that a command that differs does not make later ones differ.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from an_control.control.controller import Controller
from an_control.policy.model_file import ModelError
from an_control.record.layout import (
    ATTACHMENT,
    COMMAND,
    EVENTS,
    FORMAT,
    GATE_NUMBERS,
    GATE_TOPIC,
    STORE,
    STORED_NUMBERS,
    TICK_NUMBERS,
    TICK_TOPIC,
    TYPES,
    BagEntry,
    BagError,
    decode_event,
)
from an_control.record.reader import Bag, make_two_nodes_error
from an_control.record.replayed_session import (
    Deserialize,
    ReplayedCommand,
    ReplayedSession,
    ReplayFiles,
    ReplaySummary,
)
from an_control.wiring import WiringError

OnEvent = Callable[[dict[str, Any], int, bool], object]
"""Function that gets the values of a change of state, its time in ns, and if it is repeated."""


class SessionReplay:
    """Replay of a recording: the node's own code computes all recorded commands again.

    Use it in a `with` block, because it makes temporary files.

    Args:
        bag: The recording.
        deserialize: Function that makes a ROS message from its bytes and its class, such as
            `rclpy.serialization.deserialize_message`.
        model: Path of a model file to use instead of the recorded ones.
        wiring: Path of a wiring file to use instead of the recorded one.

    Attributes:
        summary: Result so far.
        on_event: Function that is called for each recorded change of state. It gets three
            arguments: the values of the change, its time of day in ns, and whether it only repeats
            an earlier change at the start of a file.
    """

    def __init__(
        self,
        bag: Bag,
        deserialize: Deserialize,
        *,
        model: Path | None = None,
        wiring: Path | None = None,
    ) -> None:
        self._bag, self._deserialize = bag, deserialize
        self._stack = ExitStack()
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._files = ReplayFiles(bag.path, folder, model, wiring)
        self._session: ReplayedSession | None = None
        self.summary = ReplaySummary()
        self.on_event: OnEvent = lambda event, log_ns, repeated: None
        self._is_in_later_head = False
        """Whether repeated changes of state are those at the start of a second or later file."""
        self._node = ""
        self._names: dict[str, str] = {}
        """Name of each topic without the node's name; see `_get_topic_name_without_node`."""

    def __enter__(self) -> SessionReplay:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def controller(self) -> Controller | None:
        """The node's controller; None before the recording's start was read."""
        return None if self._session is None else self._session.controller

    def replay_commands(self) -> Iterator[ReplayedCommand]:
        """Replay the recording, and yield each command as recorded and as computed again.

        `summary` is updated meanwhile.

        Raises:
            BagError: The bag is not a recording of a policy node, or is damaged.
            WiringError: The recorded or given wiring cannot be used.
            ModelError: The recorded or given model cannot be used.
        """
        for entry in self._bag.iterate_entries():
            try:
                command = self._replay_entry(entry)
            except (BagError, WiringError, ModelError):
                raise
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                reason = " ".join(repr(error).split())[:200]
                raise BagError(
                    f"{self._bag.path}: is damaged: topic {entry.topic}: {reason}"
                ) from error
            if command is not None:
                yield command
        if self.controller is None:
            raise BagError(
                f"{self._bag.path}: is not a recording of a policy node: it has no record/events"
                + self._bag.format_first_notes()
            )
        self.summary.notes = [*self._bag.notes, *self.summary.notes]

    def _replay_entry(self, entry: BagEntry) -> ReplayedCommand | None:
        """Replay one message or attached file of the recording.

        Return both commands if the entry is a command of this node, else None.
        """
        if entry.type == ATTACHMENT:
            self._files.save_model_file(entry)
            return None
        name = self._names.get(entry.topic)
        if name is None:
            name = self._names[entry.topic] = self._get_topic_name_without_node(entry)
        if name == EVENTS:
            event, repeated = decode_event(entry.data), entry.sequence == 1
            self._replay_event(event, repeated=repeated)
            self.on_event(event, entry.log_ns, repeated)
            return None
        session = self._session
        if session is None or session.controller is None:
            return None
        if name == "message":
            session.receive_message(entry)
        elif name == TICK_TOPIC:
            self.summary.extend_period(entry.log_ns)
            session.repeat_tick(TICK_NUMBERS.decode_numbers(entry.data))
        elif name == STORE:
            session.pass_earlier_message_to_source(STORED_NUMBERS.decode_numbers(entry.data))
        elif name == GATE_TOPIC:
            session.gate_numbers = GATE_NUMBERS.decode_numbers(entry.data)
        elif name == COMMAND:
            return session.replay_command(entry)
        return None

    def _get_topic_name_without_node(self, entry: BagEntry) -> str:
        """Return an entry's topic without the node's name, such as "record/tick".

        The result is "message" if the topic is not below the node's name, as with sensor messages.

        Raises:
            BagError: The topic is that of another recorded node.
        """
        for name, type_ in TYPES.items():
            if entry.topic.endswith(f"/{name}") and entry.type == type_:
                node = entry.topic.removesuffix(f"/{name}")
                if name == EVENTS and not self._node:
                    self._node = node
                if node == self._node:
                    return name
                if name == EVENTS:
                    raise make_two_nodes_error(self._bag, self._node, node)
        return "message"

    @property
    def node(self) -> str:
        """Full name of the recorded node; "" before the recording's start was read."""
        return self._node

    def get_newest_messages(self) -> dict[str, Any]:
        """Return, by topic, the newest message of each topic among those replayed so far."""
        newest = {} if self._session is None else self._session.messages.newest
        return {topic: received.message for topic, received in newest.items()}

    def _replay_event(self, event: dict[str, Any], *, repeated: bool) -> None:
        """Count a recorded change of state and apply it to the controller.

        At the start of a file, earlier changes are repeated. Such a change is not applied again.
        """
        kind = event["event"]
        if repeated and kind == "session":  # the first change that is repeated
            self._is_in_later_head = self._session is not None
        if repeated and self._is_in_later_head:
            return
        if kind == "session":
            self._session = self._start_session(event, repeated=repeated)
        if self._session is None:
            return
        if not repeated:
            self.summary.events[kind] += 1
        self._session.apply_event(kind, event)

    def _start_session(self, event: dict[str, Any], *, repeated: bool) -> ReplayedSession:
        """Return a new session (one run of the node).

        If `repeated`, the event was read from the head of a later file, because the earlier files
        are missing.
        """
        if event.get("format") != FORMAT:
            raise BagError(
                f"{self._bag.path}: its format is {str(event.get('format'))[:20]}, where {FORMAT}"
                " can be replayed"
            )
        if self.summary.ticks:
            self.summary.add_note("several sessions, one after the other")
        return ReplayedSession(
            event, self._files, self._deserialize, self.summary, head_only=repeated
        )
