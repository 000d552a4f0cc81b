"""One recorded run of a node, computed again by the node's own code."""

from __future__ import annotations

import hashlib
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from an_control.control.bring_up import BringUpError
from an_control.control.command_safety import EStop, LastCommand
from an_control.control.controller import Controller
from an_control.load import EngineName, make_policy, warm_up_policy
from an_control.policy import Monitor, read_model
from an_control.policy.onnx_file import has_onnx_suffix
from an_control.record.layout import (
    NONE,
    BagEntry,
    BagError,
    CommandKind,
    decode_joint_state,
)
from an_control.record.notes import read_model_content
from an_control.wiring import Readings, Wiring, load_wiring
from an_control.wiring.messages import import_message_class, make_stamp_reader

Deserialize = Callable[[bytes, Any], Any]
"""Function that makes a ROS message from its bytes and its class."""
KEPT_COMMANDS = 8
"""Number of newest commands that are kept, as any of them may be a tick's previous command."""
MAX_MODELS = 8


@dataclass(frozen=True)
class ReplayedCommand:
    """Command of the policy or of a safety function, as recorded and as computed again.

    Attributes:
        tick: Number of the last tick (control step) before the command.
        now_ns: Time of day at which the command was sent, in ns.
        kind: Why the command was sent.
        recorded: Recorded values (A,), in physical units.
        replayed: Values computed again (A,); NaN if they could not be computed.
        readings: Readings of the last tick, computed again; None if the tick failed.
    """

    tick: int
    now_ns: int
    kind: CommandKind
    recorded: np.ndarray
    replayed: np.ndarray
    readings: Readings | None

    @property
    def is_equal_to_recorded_command(self) -> bool:
        """Whether the replayed command equals the recorded one to the last bit."""
        return self.recorded.tobytes() == self.replayed.tobytes()


@dataclass
class ReplaySummary:
    """Result of a replay.

    Attributes:
        actuators: Names of the actuators (A).
        ticks: Number of ticks (control steps).
        commands: Number of commands.
        different: Number of commands that differ from the recorded ones.
        first: First command that differs; None if all are equal.
        begin_ns: Time of day at which the recording starts, in ns.
        end_ns: Time of day at which the recording ends, in ns.
        events: Number of changes of state, by kind.
        notes: Remarks on the recording and on parts that could not be replayed.
    """

    actuators: tuple[str, ...] = ()
    ticks: int = 0
    commands: int = 0
    different: int = 0
    first: ReplayedCommand | None = None
    begin_ns: int = 0
    end_ns: int = 0
    events: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    @property
    def recorded_duration_s(self) -> float:
        """Duration of the recording in seconds."""
        return (self.end_ns - self.begin_ns) / 1e9

    def extend_period(self, log_ns: int) -> None:
        """Extend the period of the recording to the time of an entry; the first call begins it.

        Args:
            log_ns: The time, in ns since 1970, at which the entry was recorded.
        """
        self.begin_ns = self.begin_ns or log_ns
        self.end_ns = max(self.end_ns, log_ns)

    def add_note(self, text: str) -> None:
        """Add a remark, unless it is there already or there are 50 remarks."""
        if text not in self.notes and len(self.notes) < 50:
            self.notes.append(text)

    def add_command(self, command: ReplayedCommand) -> None:
        """Add one replayed command to the counts and differences of this summary."""
        self.commands += 1
        if command.is_equal_to_recorded_command:
            return
        self.different += 1
        self.first = self.first or command


class _ReplayedLastCommand(LastCommand):
    """Holder of the newest sent command, which a replay sets to the recorded one."""

    @property
    def recorded_command(self) -> tuple[np.ndarray, int, int, bool] | None:
        """Newest command (A,), its time of sending in ns, its number, and whether it is own."""
        return self._known

    @recorded_command.setter
    def recorded_command(self, known: tuple[np.ndarray, int, int, bool] | None) -> None:
        self._known = known


class ReplayFiles:
    """The model and wiring files for a replay: the recorded ones, or others in their place.

    Args:
        bag_path: Path of the bag, for error messages.
        folder: Folder for files from the bag.
        model: Path of a model file to use instead of the recorded ones; None: use the recorded.
        wiring: Path of a wiring file to use instead of the recorded one; None: use the recorded.
    """

    def __init__(
        self, bag_path: Path, folder: Path, model: Path | None, wiring: Path | None
    ) -> None:
        self.bag_path, self.folder = bag_path, folder
        self.other_model, self.other_wiring = model, wiring
        self._models: dict[str, Path] = {}
        """Path of each model file from the bag, by its hash."""

    def save_model_file(self, entry: BagEntry) -> None:
        """Write a model file from the bag into the folder, if its content has the recorded hash."""
        kind, _, digest = entry.topic.partition(":")
        if kind != "model" or digest in self._models or len(self._models) >= MAX_MODELS:
            return
        if hashlib.sha256(entry.data).hexdigest() == digest:
            path = self.folder / f"{digest}.safetensors"
            path.write_bytes(entry.data)
            self._models[digest] = path

    def find_recorded_model_file(self, path_and_hash: dict[str, Any]) -> Path:
        """Return the path of a recorded model file.

        It is the attached file if the recording has it, else the original file if that is
        unchanged.

        Args:
            path_and_hash: A dict with the recorded "path" of the model file and its hash, "sha256".

        Raises:
            BagError: Neither is available.
        """
        digest, path = str(path_and_hash["sha256"]), Path(str(path_and_hash["path"]))
        if digest in self._models:
            return self._unpack_onnx_policy(self._models[digest], path.name)
        with suppress(OSError, ValueError):
            if hashlib.sha256(read_model_content(path)).hexdigest() == digest:
                return path
        raise BagError(
            f"{self.bag_path}: does not hold the model {path}, and here it is not (sha256"
            f" {digest[:12]}...); give a model with --model"
        )

    def _unpack_onnx_policy(self, file: Path, name: str) -> Path:
        """Return the path of a recorded model file, of an ONNX policy after it is unpacked.

        Args:
            file: The path of the recorded content.
            name: The name of the model file that the node read.

        Raises:
            BagError: The content is not that of an ONNX policy.
        """
        if not has_onnx_suffix(name):
            return file
        folder = file.with_suffix("")
        try:
            with zipfile.ZipFile(file) as archive:
                if sum(one.file_size for one in archive.infolist()) > file.stat().st_size:
                    raise ValueError("it holds more than its size")
                for one in archive.infolist():
                    place = (folder / one.filename).resolve()
                    if not place.is_relative_to(folder.resolve()) or one.compress_type:
                        raise ValueError(f"it holds {one.filename!r}")
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.write_bytes(archive.read(one))
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise BagError(
                f"{self.bag_path}: does not hold all files of the ONNX policy {name} ({error});"
                " give a model with --model"
            ) from error
        return folder / name


class ReceivedMessage(NamedTuple):
    """A message that the node received.

    Attributes:
        number: Index of the message in the recording.
        message: The ROS message.
        stamp_ns: Its time stamp in ns; None if it has none.
        arrival_ns: Its time of arrival in ns, of the node's clock.
    """

    number: int
    message: Any
    stamp_ns: int | None
    arrival_ns: int


class NewestMessages:
    """The newest message of each topic, deserialised.

    Args:
        bag_path: Path of the bag, for error messages.
        deserialize: Function that makes a ROS message from its bytes and its class.
    """

    def __init__(self, bag_path: Path, deserialize: Deserialize) -> None:
        self._bag_path, self._deserialize = bag_path, deserialize
        self.newest: dict[str, ReceivedMessage] = {}
        """The newest message of each topic."""
        self._count = 0
        self._readers: dict[str, tuple[Any, Callable[[Any], int | None]]] = {}
        """By message type, its class and the function that returns a message's stamp."""

    def add(self, entry: BagEntry, offset_ns: int) -> ReceivedMessage:
        """Deserialise a recorded message, keep it as its topic's newest one, and return it.

        Args:
            entry: The serialised message.
            offset_ns: Number of ns from the node's clock to the time of day.

        Raises:
            BagError: The message cannot be deserialised.
        """
        self._count += 1
        reader = self._readers.get(entry.type)
        if reader is None:
            try:
                cls = import_message_class(entry.type)
            except LookupError as error:
                raise BagError(f"{self._bag_path}: topic {entry.topic}: {error}") from error
            reader = self._readers[entry.type] = cls, make_stamp_reader(cls)
        cls, stamp_of = reader
        try:
            message = self._deserialize(entry.data, cls)
        except Exception as error:
            raise BagError(
                f"{self._bag_path}: topic {entry.topic}: no message of type {entry.type}"
                f" ({' '.join(str(error).split())[:100]})"
            ) from error
        arrival_ns = entry.publish_ns - offset_ns
        received = ReceivedMessage(self._count, message, stamp_of(message), arrival_ns)
        self.newest[entry.topic] = received
        return received

    def find_message_counting_back(self, messages_since: int) -> ReceivedMessage | None:
        """Return an earlier message, given how many messages were recorded after it.

        The result is None unless the message is still the newest one of its topic.
        """
        wanted = self._count - messages_since
        return next((one for one in self.newest.values() if one.number == wanted), None)


class ReplayedSession:
    """One run of a node, computed again from its recording.

    Args:
        event: Values of the recorded event "session", which is the first of every run.
        files: The model and wiring files.
        deserialize: Function that makes a ROS message from its bytes and its class.
        summary: The result of the replay, to which this run is added.
        head_only: Whether the event was read from the head of a later file, because the earlier
            files are missing.

    Attributes:
        controller: The node's controller; None before the recorded wiring was read.
        messages: The newest message of each topic.
    """

    def __init__(
        self,
        event: Mapping[str, Any],
        files: ReplayFiles,
        deserialize: Deserialize,
        summary: ReplaySummary,
        *,
        head_only: bool,
    ) -> None:
        self._event, self._files, self._summary = event, files, summary
        self.head_only = head_only
        self.controller: Controller | None = None
        self.messages = NewestMessages(files.bag_path, deserialize)
        self._wiring: Wiring | None = None
        self._estop = EStop()
        self._tick = 0
        self._readings: Readings | None = None
        """Number and readings of the newest tick, to which the commands that follow belong."""
        self.gate_numbers: tuple[int, ...] | None = None
        """What the gate has noted of the command that follows in the recording."""
        self._commands: dict[int, tuple[np.ndarray, int, int, bool]] = {}
        self._swaps: list[dict[str, Any]] = []

    def apply_event(self, kind: str, event: dict[str, Any]) -> None:
        """Apply a recorded change of the node's state to the controller.

        Args:
            kind: Kind of the change, such as "rewire" or "estop".
            event: Values of the change, by name.
        """
        if kind == "wiring":
            self._apply_wiring_event(event)
        elif kind == "rewire":
            self._apply_rewiring(event["values"])
        elif kind == "correct":
            self._apply_correction(event["values"])
        elif kind == "model":
            self._swaps.append(event)
        elif kind == "failed":
            self._repeat_failed_tick(event)
        elif kind == "session" and event["estop"]:
            self._estop.latch(str(event["estop"]))
        elif kind == "estop":
            if event["reason"]:
                self._estop.latch(str(event["reason"]))
            else:
                self._estop.reset()
        elif self.controller is None:
            return
        elif kind == "activate":
            self.controller.start(bring_up=bool(event["bring_up"]))
        elif kind == "shadow" and event["active"] and not event["on"]:
            self.controller.start(bring_up=False)
        elif kind == "reset":
            self.controller.reset()
            if event["lockstep"]:
                self._last.recorded_command = None
                self.controller.gate.forget_positions_and_restart_ramp()

    def _apply_wiring_event(self, event: dict[str, Any]) -> None:
        """Load the recorded wiring file. Make the controller if the session has none yet."""
        path = self._files.folder / "wiring.yaml"
        path.write_text(event["text"], encoding="utf-8")
        self._wiring = load_wiring(path)
        if self.controller is None:
            self._make_controller(self._files.other_wiring or path)

    def _make_controller(self, wiring: Path) -> None:
        """Make the controller with the recorded settings."""
        settings, engine = self._event["settings"], self._event["engine"]
        if engine not in ("numpy", "numba"):
            engine = None
        self._engine = cast(EngineName | None, engine)
        self._monitor = cast(
            Monitor | None, None if settings["monitor"] == "model" else settings["monitor"]
        )
        self._recovery = None if settings["recovery"] < 0.0 else float(settings["recovery"])
        self.controller = Controller(
            str(wiring),
            str(
                self._files.other_model
                or self._files.find_recorded_model_file(self._event["model"])
            ),
            self._engine,
            monitor=self._monitor,
            recovery=self._recovery,
            ramp_s=None if settings["ramp_s"] < 0.0 else float(settings["ramp_s"]),
            estop=self._estop,
        )
        self._last = _ReplayedLastCommand()
        self.controller.gate.last = self._last
        self._summary.actuators = tuple(self.controller.wiring.command.names)

    def _apply_rewiring(self, values: dict[str, Any]) -> None:
        """Change topics, sources or fields of the controller's wiring, as in the recorded node."""
        assert self.controller is not None and self._wiring is not None
        self._wiring = self._wiring.with_changes(values)
        if self._files.other_wiring is None:
            self.controller.switch_wiring(self.controller.make_rewired_table(self._wiring))
        elif self._summary.ticks:
            self._summary.add_note("rewires are not replayed, as --wiring is given")

    def _apply_correction(self, values: dict[str, Any]) -> None:
        """Apply the scales and offsets of channels that the node has corrected."""
        assert self.controller is not None and self._wiring is not None
        self._wiring = self._wiring.with_conversions(
            {id_: (float(scale), float(offset)) for id_, (scale, offset) in values.items()}
        )
        if self._files.other_wiring is None:
            self.controller.switch_wiring(self.controller.make_rewired_table(self._wiring))
            self.controller.acting.restart_monitor()
        elif self._summary.ticks:
            self._summary.add_note("corrections are not replayed, as --wiring is given")

    def _load_new_models(self) -> None:
        """Load the recorded models to which the node has switched since the previous tick."""
        assert self.controller is not None
        for event in self._swaps:
            if self._files.other_model is not None:
                self._summary.add_note("swaps of the model are not replayed, as --model is given")
                continue
            path = self._files.find_recorded_model_file(event)
            policy = make_policy(
                read_model(path), self._monitor, engine=self._engine, recovery=self._recovery
            )
            warm_up_policy(policy)
            self.controller.acting.start_policy_swap(str(path), policy)
        self._swaps.clear()

    def _repeat_failed_tick(self, event: dict[str, Any]) -> None:
        """Repeat a tick that failed in the node.

        A remark in the summary says whether the tick fails in the replay as well.
        """
        if self.controller is None:
            return
        stamp_ns = event["stamp_ns"]
        try:
            self.controller.decide(int(event["tick_ns"]), stamp_ns)
        except Exception as error:
            self._summary.add_note(f"a tick failed, as recorded: {event['why']} ({error!r})")
        else:
            self._summary.add_note(f"a tick that failed does not fail here: {event['why']}")

    def receive_message(self, entry: BagEntry) -> None:
        """Deserialise a recorded message, and pass it to the source (subscription) that got it.

        If no source of the node received the message, it is only stored.

        Args:
            entry: The serialised message.

        Raises:
            BagError: The message cannot be deserialised.
        """
        received = self.messages.add(entry, int(self._event["offset_ns"]))
        if entry.sequence:
            self._pass_message_to_source(entry.sequence, received)

    def pass_earlier_message_to_source(self, source_and_messages_since: tuple[int, ...]) -> None:
        """Pass an earlier message to one more source (subscribed topic) that received it too.

        Args:
            source_and_messages_since: Two numbers from the recorded topic record/store: which
                source received the message (its index in the wiring plus one), and which message it
                is (the number of messages that were recorded after it).
        """
        place, back = source_and_messages_since
        received = self.messages.find_message_counting_back(back)
        if received is not None:
            self._pass_message_to_source(place, received)
        else:
            self._summary.add_note(
                "a message that counts for another source came before the recording begins"
            )

    def _pass_message_to_source(self, source_number: int, received: ReceivedMessage) -> None:
        """Pass a recorded message to the source (subscribed topic) that received it in the node.

        If the session is replayed with another wiring, the source of the same name gets the
        message. If the other wiring has no such source, all its sources that read the same topic
        get it. The number is the index of the source in the recorded wiring plus one.
        """
        assert self.controller is not None and self._wiring is not None
        sources = self._wiring.sources
        if not 0 < source_number <= len(sources):
            raise BagError(
                f"{self._files.bag_path}: names source {source_number}, which is not there"
            )
        one = sources[source_number - 1]
        names = [one.name]
        if self._files.other_wiring is not None:
            others = self.controller.wiring.sources
            names = [other.name for other in others if other.name == one.name] or [
                other.name for other in others if other.topic == one.topic
            ]
            if any(self.controller.wiring.find_source(name).type != one.type for name in names):
                raise BagError(f"{self._files.bag_path}: source {one.name} sends {one.type}")
        for name in names:
            self.controller.table.store_message(
                name, received.message, received.stamp_ns, received.arrival_ns
            )

    def repeat_tick(self, tick_numbers: tuple[int, ...]) -> None:
        """Compute a recorded tick (control step) again, from the readings to the policy's action.

        The command of the tick is computed later, by `replay_command`.

        Args:
            tick_numbers: The numbers in a recorded message on the topic record/tick, such as number
                and time of the tick; `layout.TICK` has their names in this order.
        """
        assert self.controller is not None
        number, now_ns, stamp, _, previous, stepped, _ = tick_numbers
        if self.head_only and not self._summary.ticks:
            self._summary.add_note(
                "begins in the middle of a session: what policy and monitor knew before is missing"
            )
        self._summary.ticks += 1
        self._load_new_models()
        last, newest = self._last, self._last.recorded_command
        if stepped and previous != (NONE if newest is None else newest[2]):
            last.recorded_command = self._commands.get(previous)
            if last.recorded_command is None and previous != NONE:
                self._summary.add_note("the command before a tick is not recorded")
        try:
            readings = self.controller.decide(now_ns, None if stamp == NONE else stamp).readings
        except Exception as error:
            self._summary.add_note(f"tick {number} fails: {error!r}")
            readings = None
        last.recorded_command = newest
        self._tick, self._readings = number, readings

    def replay_command(self, entry: BagEntry) -> ReplayedCommand | None:
        """Compute a recorded command again, and return both values.

        The controller then uses the recorded command as the one that was sent last, so that a
        difference does not spread to later commands.

        Args:
            entry: Message with the recorded command.

        Returns:
            The recorded and the computed command. None if another node sent the command, or if the
            recording begins in the middle of the command's tick (which a black box may do).

        Raises:
            BagError: The recording is damaged.
        """
        assert self.controller is not None
        numbers, self.gate_numbers = self.gate_numbers, None
        names, recorded = decode_joint_state(entry.data)
        begins_here = self.head_only and not self._summary.ticks
        if numbers is None and begins_here:
            return None  # a black box may begin between the two
        if numbers is None:
            raise BagError(f"{self._files.bag_path}: a command without its record/gate")
        kind_number, decided, sent_ns, _, number = numbers[:5]
        try:
            kind = CommandKind(kind_number)
        except ValueError:
            raise BagError(
                f"{self._files.bag_path}: a command of unknown kind {kind_number}"
            ) from None
        try:
            replayed = None
            if not (begins_here and kind == CommandKind.POLICY):  # else its tick is missing
                replayed = self._recompute_command(kind, None if decided == NONE else decided)
        except BringUpError as error:
            self._summary.add_note(str(error))
            replayed = np.full(len(self._summary.actuators), np.nan)
        recorded = self._reorder_command_to_wiring(names, recorded)
        exact = all(one.has_only_float64_fields for one in self.controller.messages)
        if not exact:  # what goes out is rounded
            recorded = self._round_to_field_types(recorded)
            if replayed is not None:
                replayed = self._round_to_field_types(replayed)
        if number != NONE:
            values = recorded
            known = values, sent_ns, number, kind != CommandKind.OTHER
            self._last.recorded_command = self._commands[number] = known
            self._commands.pop(number - KEPT_COMMANDS, None)
        self._summary.extend_period(entry.log_ns)
        if replayed is None:
            return None
        if kind == CommandKind.POLICY:
            self.controller.acting.policy.prepare_next_tick()
        command = ReplayedCommand(
            self._tick,
            entry.log_ns,
            kind,
            recorded,
            np.asarray(replayed),
            self._readings,
        )
        self._summary.add_command(command)
        return command

    def _recompute_command(self, kind: CommandKind, decided_ns: int | None) -> np.ndarray | None:
        """Let the controller compute a recorded command (A,) again; None if another node sent it.

        `decided_ns` is when the node computed it, by its own clock; None in lockstep, and if the
        command is not the policy's.
        """
        controller = self.controller
        assert controller is not None
        if kind == CommandKind.OTHER:
            return None
        if kind == CommandKind.POLICY:
            return controller.compute_command(decided_ns)
        if kind == CommandKind.STOP:
            return controller.stop_and_get_safe_command()
        if kind == CommandKind.WATCHDOG:
            return controller.gate.safe_command()
        return controller.gate.restart_ramp_and_get_safe_command()

    def _round_to_field_types(self, values: np.ndarray) -> np.ndarray:
        """Return a command (A,), rounded as it would be in the fields of its messages.

        One that is not finite, and so was not sent, is returned as it is.
        """
        if not np.isfinite(values).all():
            return values
        assert self.controller is not None
        command = self.controller.wiring.command
        for message, span in zip(self.controller.messages, command.message_slices, strict=True):
            message.fill(values[span], 0)
        return np.concatenate([one.read_values(one.message) for one in self.controller.messages])

    def _reorder_command_to_wiring(self, names: tuple[str, ...], values: np.ndarray) -> np.ndarray:
        """Return a recorded command (A,) in the order of the wiring that is used for the replay.

        An actuator that was not recorded gets NaN.
        """
        own = self._summary.actuators
        if names == own:
            return values.copy()
        known = dict(zip(names, values.tolist(), strict=True))
        return np.array([known.get(name, np.nan) for name in own])
