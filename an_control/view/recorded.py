"""The live page of a recording, which is replayed and in which the visitor can move.

One thread replays the recording with the node's own code, as fast as it can, and keeps what the
page shows as encoded messages with their times. The web server's thread only looks up the newest
messages before the time that is shown. If the messages need too much memory, every second one of
the frequent kinds is dropped, and later ones are kept half as often.
"""

from __future__ import annotations

import asyncio
import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from an_control.control.attention_view import (
    draw_attention_on_newest_camera_frame,
    select_attention_keys_of_channels,
    select_attention_of_channels,
)
from an_control.record.replay import SessionReplay
from an_control.record.replayed_session import ReplayedCommand
from an_control.ros.diagnostics import NO_ATTENTION, make_monitor_diagnostics
from an_control.view import schema
from an_control.view.clients import PICTURE, BrowserClient, BrowserClients
from an_control.view.graph import SENSORS
from an_control.view.insight import (
    KeyProjection,
    compute_attention_strength,
    encode_pixels,
)
from an_control.view.watch import (
    KEPT_SCORES,
    SLOW,
    list_pose_numbers,
    make_clusters_update,
    make_drawing_update,
    make_matrix_update,
    round_with_nonfinite_as_zero,
)
from an_control.wiring import Readings

RATE_HZ = 20.0
SCORE_S = 0.5
"""Recorded time between two rows of numbers for the charts."""
MAX_BYTES = 256 * 2**20
"""Maximum size of all kept messages."""
MAX_EVENTS = 1000
REFUSED = "this is a recording: nothing in it can be changed"
NOT_ACTING = "no tick so far"
FREQUENT = ("tick", "matrix", "clusters", PICTURE)
"""Kinds of messages of which every second one is dropped if they need too much memory."""
ORDER = ("robot", "drawing", "channels", "wiring", "diagnostics", *FREQUENT)
"""The kinds of messages, in the order in which the page needs them."""


class Track:
    """A sequence of messages of one kind, such as pictures, with their times in a recording.

    When the page shows a time in the recording, it shows the newest message up to that time. One
    thread may add messages while another one looks them up.
    """

    def __init__(self) -> None:
        self._kept: tuple[list[float], list[bytes]] = ([], [])

    def append_if_changed_and_count_bytes(self, at_s: float, message: bytes) -> int:
        """Append a message, unless it equals the last one; return the number of bytes added.

        Args:
            at_s: The message's time in the recording in seconds, not before that of the last one.
            message: The encoded message.
        """
        times, messages = self._kept
        if messages and messages[-1] == message:
            return 0
        messages.append(message)
        times.append(at_s)  # last, as its length tells the other thread how many there are
        return len(message)

    def find_message_at(self, at_s: float) -> bytes | None:
        """Return the message that is shown at a time in the recording; None if there is none yet.

        Args:
            at_s: The time in the recording in seconds.
        """
        times, messages = self._kept
        place = bisect_right(times, at_s)
        return messages[place - 1] if place else None

    def drop_alternate_messages_and_count_bytes(self) -> int:
        """Drop every second message to save memory; return the bytes that remain."""
        times, messages = self._kept
        self._kept = times[::2], messages[::2]
        return sum(map(len, self._kept[1]))


class RecordedFrames:
    """A store of the messages with which the page can show any moment of a recording.

    `replay_recording` fills it: it computes the policy's commands again from the recorded readings.

    Args:
        replay: The object that reads and replays the recording; it has not been run yet.
        on_command: Called with each command that the replay computes.
    """

    def __init__(
        self, replay: SessionReplay, on_command: Callable[[ReplayedCommand], object]
    ) -> None:
        self._replay, self._on_command = replay, on_command
        replay.on_event = self._add_event
        self.tracks = {name: Track() for name in ORDER}
        self.scores: list[list[float | None]] = []
        self.events: list[tuple[float, str]] = []
        self.length_s = 0.0
        self.computed = False
        """Whether the whole recording has been replayed."""
        self._bytes = dict.fromkeys(ORDER, 0)
        self._step_s, self._next_s, self._score_s, self._looks = 1.0 / RATE_HZ, 0.0, 0.0, 0
        self._ids: dict[str, None] = {}
        self._model = ""
        self._largest = 0.0
        self._differs = False
        self._keys = KeyProjection()
        self._wiring_file = ""
        self._drawings: dict[tuple[str, ...], schema.DrawingUpdate] = {}
        self.add_message("robot", 0.0, self._make_robot_update("waiting", NOT_ACTING))

    def replay_recording(self, stopped: threading.Event) -> None:
        """Replay the recording and store its messages, until its end or until `stopped` is set.

        Args:
            stopped: Set by another thread to end the replay.

        Raises:
            BagError: The bag is not a recording of a policy node, or is damaged.
            WiringError: The recorded or given wiring cannot be used.
            ModelError: The recorded or given model cannot be used.
        """
        for command in self._replay.replay_commands():
            self._on_command(command)
            self._add_command_messages(command)
            if stopped.is_set():
                return
        self.computed = True

    def add_message(self, name: str, at_s: float, update: schema.Update | bytes) -> None:
        """Store a message that the page shows from a time in the recording on.

        Args:
            name: The kind of message, one of `ORDER`.
            at_s: The time in the recording in seconds.
            update: The update, or the bytes of a picture.
        """
        message = update if isinstance(update, bytes) else schema.encode_update(update)
        self._bytes[name] += self.tracks[name].append_if_changed_and_count_bytes(at_s, message)
        if sum(self._bytes.values()) > MAX_BYTES:
            self._step_s *= 2.0
            for one in FREQUENT:
                self._bytes[one] = self.tracks[one].drop_alternate_messages_and_count_bytes()

    def _compute_seconds_from_start(self, log_ns: int) -> float:
        """Return the seconds from the beginning of the recording to a time of day."""
        return max(0.0, (log_ns - (self._replay.summary.begin_ns or log_ns)) / 1e9)

    def _add_event(self, event: dict[str, Any], log_ns: int, is_repeated: bool) -> None:
        """Add a recorded change of state to the list of events; note the names of model and wiring.

        A change that is only repeated here, at the start of a file, is not listed.
        """
        kind = event["event"]
        if kind == "session":
            self._model = Path(str(event["model"]["path"])).name
        elif kind == "model":
            self._model = Path(str(event["path"])).name
        elif kind == "wiring":
            self._wiring_file = str(event["file"])
        if is_repeated or kind in ("session", "wiring") or len(self.events) >= MAX_EVENTS:
            return
        # Clocks may be set back, but later events and commands are shown later.
        self.length_s = max(self.length_s, self._compute_seconds_from_start(log_ns))
        text = describe_recorded_event(event)
        # An e-stop is noted as a stop as well, and a tick may fail again and again.
        if kind == "reset" or not self.events or self.events[-1][1] != text:
            self.events.append((self.length_s, text))

    def _add_command_messages(self, command: ReplayedCommand) -> None:
        """Store the messages that show a replayed command and the tick that made it.

        At most one tick in each 20th of a second is stored, and fewer if they need too much memory.
        """
        at_s = self.length_s = max(self.length_s, self._compute_seconds_from_start(command.now_ns))
        if not command.is_equal_to_recorded_command:
            away = np.abs(command.replayed - command.recorded)
            self._largest = max(self._largest, float(np.nan_to_num(away, nan=0.0).max()))
            if not self._differs:
                self._differs = True
                text = f"tick {command.tick}: the first command that differs from the recorded one"
                self.events.append((at_s, text))
        readings = command.readings
        if at_s < self._next_s or readings is None:
            return
        self._next_s = at_s + self._step_s
        if not self._looks:
            at_s = 0.0  # the recording begins with what the first tick shows
        self._looks += 1
        self._add_state_messages(at_s)
        self._add_tick_messages(at_s, readings)
        if at_s >= self._score_s:
            self._score_s = at_s + SCORE_S
            present = round(len(readings.ids) / max(1, readings.expected, len(readings.ids)), 3)
            row = [round(at_s, 2), None, None, None, None, present, self._largest]
            self.scores.append(row)
            self._largest = 0.0

    def _add_state_messages(self, at_s: float) -> None:
        """Store the messages that show the state of policy, replay, e-stop and monitor."""
        controller = self._replay.controller
        assert controller is not None
        text, level = "acting", 0
        if reason := controller.decision.safe_reason:
            text, level = f"safe command: {reason}", 2
        self.add_message("robot", at_s, self._make_robot_update("running", text))
        summary, policy = self._replay.summary, controller.acting.policy
        values = {"model": self._model, "engine": policy.engine}
        if not policy.permutation_invariant:
            values["attention"] = NO_ATTENTION
        parts = [schema.DiagnosticsPart("policy", level, text, values)]
        same = f"{summary.different} of {summary.commands} commands differ from the recorded ones"
        if not summary.different:
            same = "every command so far is equal to the recorded one to the last bit"
        parts.append(schema.DiagnosticsPart("replay", 1 if summary.different else 0, same, {}))
        reason = controller.estop.reason
        parts.append(schema.DiagnosticsPart("e-stop", 2 if reason else 0, reason or "clear", {}))
        if policy.monitor_report is not None:
            fine, said, found = make_monitor_diagnostics(policy.monitor_report)
            shown = {key: str(value) for key, value in found.items()}
            parts.append(schema.DiagnosticsPart("monitor", 0 if fine else 1, said, shown))
        self.add_message("diagnostics", at_s, schema.DiagnosticsUpdate(parts))

    def _make_robot_update(self, state: str, text: str) -> schema.RobotUpdate:
        """Return the update about the robot and its state."""
        return schema.RobotUpdate(
            state=state,  # type: ignore[arg-type]
            text=text,
            name=self._replay.node.rpartition("/")[0] or self._replay.node,
            model=self._model,
            recorded=True,
        )

    def _add_tick_messages(self, at_s: float, readings: Readings) -> None:
        """Store the messages that show a tick: readings, attention, joint positions and pose."""
        controller, ids = self._replay.controller, readings.ids
        assert controller is not None
        if any(one not in self._ids for one in ids):
            self._ids |= dict.fromkeys(ids)
            wires = [schema.SlotWiring(one, one, one) for one in self._ids]
            names = list(self._ids)
            self.add_message(
                "wiring", at_s, schema.WiringUpdate(names, wires, REFUSED, REFUSED, 0, {})
            )
        self.add_message("channels", at_s, schema.ChannelsUpdate(list(ids)))
        policy, slow = controller.acting.policy, self._looks % SLOW == 1
        weights, strength = select_attention_of_channels(policy, ids), list[float]()
        if weights is not None:
            strength = np.round(compute_attention_strength(weights), 3).tolist()
            if slow:
                self.add_message("matrix", at_s, make_matrix_update(weights))
        if (
            slow
            and (keys := select_attention_keys_of_channels(policy, ids)) is not None
            and len(keys) > 2
        ):
            points = np.asarray(keys, np.float64)
            self.add_message("clusters", at_s, make_clusters_update(self._keys, points))
        joints, pose = self._add_drawing_and_get_joints_and_pose(at_s)
        numbers = readings.values if readings.values.ndim == 1 else np.zeros(len(ids))
        tick = schema.TickUpdate(
            values=round_with_nonfinite_as_zero(numbers, 3),
            attention=strength,
            joints=joints,
            pose=pose,
            episode={},
            expected=max(readings.expected, len(ids)),
        )
        self.add_message("tick", at_s, tick)

    def _add_drawing_and_get_joints_and_pose(self, at_s: float) -> tuple[list[float], list[float]]:
        """Store the message with the robot's drawing; return the joint positions and the pose.

        The two lists are as in `TickUpdate`. A list is empty if its values are unknown, or if a
        camera image is shown in place of a drawing.
        """
        controller = self._replay.controller
        assert controller is not None
        picture = draw_attention_on_newest_camera_frame(controller.acting.policy, controller.table)
        if picture is not None:
            self.add_message("drawing", at_s, schema.DrawingUpdate("camera", []))
            self.add_message(PICTURE, at_s, encode_pixels(picture))
            return [], []
        messages = self._replay.get_newest_messages()
        joints = _find_sensor_message(messages, "joints", lambda one: len(one.position))
        odometry = _find_sensor_message(messages, "pose", lambda _: True)
        pose = [] if odometry is None else list_pose_numbers(odometry)
        if joints is None:
            self.add_message("drawing", at_s, schema.DrawingUpdate("bars", []))
            return [], pose
        names = tuple(joints.name[: len(joints.position)])
        if names not in self._drawings:
            self._drawings[names] = make_drawing_update(list(names), self._wiring_file)
        self.add_message("drawing", at_s, self._drawings[names])
        return round_with_nonfinite_as_zero(joints.position[: len(names)], 4), pose


def _find_sensor_message(
    messages: dict[str, Any], sensor: str, has_drawable_data: Callable[[Any], object]
) -> Any:
    """Return the newest message of a kind of sensor from which the robot can be drawn, or None."""
    _, cls, usual = SENSORS[sensor]
    topics = sorted(
        topic for topic, one in messages.items() if isinstance(one, cls) and has_drawable_data(one)
    )
    endings = tuple(f"/{one}" for one in usual)
    best = [topic for topic in topics if topic.endswith(endings)] or topics
    return messages[best[0]] if best else None


def describe_recorded_event(event: dict[str, Any]) -> str:
    """Describe a recorded event in words for the page, for example "another model: ant.onnx".

    Args:
        event: The event's values by name; "event" is its kind, such as "model" or "rewire".
    """
    match event["event"]:
        case "estop":
            return str(event["reason"] or "e-stop cleared")[:200]
        case "rewire":
            return f"rewired: {', '.join(map(str, event['values']))}"[:200]
        case "model":
            return f"another model: {Path(str(event['path'])).name}"
        case "monitor":
            return f"the monitor's estimate: {len(event['moved'])} signals moved"
        case "failed":
            return f"a tick failed: {event['why']}"[:200]
        case "stopped":
            return str(event["reason"])[:200]
        case kind:
            return str(kind)


class RecordedRobot:
    """A recording that is shown in all connected browsers; all show the same time in it.

    Args:
        frames: The messages that the page shows at each time in the recording.
    """

    def __init__(self, frames: RecordedFrames) -> None:
        self.clients = BrowserClients()
        self.frames = frames
        self.at_s, self.playing, self.speed = 0.0, True, 1.0
        self._shown: dict[str, bytes] = {}
        self._scored = 0
        """Number of rows of numbers that the browsers have."""

    async def run(self) -> None:
        """Update the browsers 20 times a second (`RATE_HZ`), until the task is cancelled."""
        last_s = time.monotonic()
        while True:
            await asyncio.sleep(1.0 / RATE_HZ)
            now_s = time.monotonic()
            self.advance_playback(now_s - last_s)
            last_s = now_s

    def advance_playback(self, seconds: float) -> None:
        """Show a later time if the recording plays, and send the browsers what has changed.

        Playing waits at the end of what has been replayed so far, and stops at the end of the
        recording.

        Args:
            seconds: The real time that has passed. It is multiplied by the speed of playing.
        """
        frames = self.frames
        if self.playing:
            self.at_s = min(self.at_s + seconds * self.speed, frames.length_s)
            if frames.computed and self.at_s >= frames.length_s:
                self.playing = False
        for name, message in self._list_shown_messages():
            if self._shown.get(name) != message:
                self._shown[name] = message
                self.clients.publish_encoded(name, message)
        rows = self._count_shown_score_rows()
        if rows > self._scored:
            self.clients.publish(schema.ScoreUpdate(frames.scores[self._scored : rows], False))
        self._scored = rows

    def _list_shown_messages(self) -> list[tuple[str, bytes]]:
        """Return a pair for each kind of message: the kind, and the message for the time shown."""
        found = [
            (name, track.find_message_at(self.at_s)) for name, track in self.frames.tracks.items()
        ]
        there = [(name, message) for name, message in found if message is not None]
        return [
            *there,
            *(
                (schema.get_message_tag(one), schema.encode_update(one))
                for one in self._make_playback_updates()
            ),
        ]

    def _make_playback_updates(self) -> list[schema.Update]:
        """Return the updates about the time that is shown, and the events until then."""
        frames = self.frames
        marks = [one for one in list(frames.events) if one[0] <= self.at_s]
        place = schema.RecordingUpdate(
            at_s=round(self.at_s, 2),
            length_s=round(frames.length_s, 2),
            computed=frames.computed,
            playing=self.playing,
            speed=self.speed,
            event=marks[-1][1] if marks else "",
        )
        return [schema.MarksUpdate(marks), place]

    def _count_shown_score_rows(self) -> int:
        """Return how many rows of numbers for the charts belong to times up to the time shown."""
        return bisect_right(self.frames.scores, self.at_s, key=lambda row: row[0] or 0.0)

    def add_client(self, client: BrowserClient) -> None:
        """Send a new browser what is shown now, and all updates from now on."""
        for name, message in self._list_shown_messages():
            if name != PICTURE:
                client.enqueue(message)
            else:
                client.enqueue_replacing_same_kind(name, message)
        client.enqueue(schema.encode_update(self._make_score_update()))
        self.clients.add(client)

    def _make_score_update(self) -> schema.ScoreUpdate:
        """Return the update with all rows of numbers for the charts, up to the time shown."""
        rows = self._count_shown_score_rows()
        return schema.ScoreUpdate(self.frames.scores[max(0, rows - KEPT_SCORES) : rows], fresh=True)

    async def execute_browser_command(self, command: schema.Command) -> schema.ReplyUpdate:
        """Carry out a command to show another time or to play; refuse others. Return the reply."""
        match command:
            case schema.SeekCommand(seconds=seconds):
                return self._show_recorded_time(command.id, seconds, "")
            case schema.JumpCommand(forward=forward):
                times = sorted(self.frames.events)
                there = [one for one in times if (one[0] > self.at_s + 1e-6) == forward]
                there = [one for one in there if forward or one[0] < self.at_s - 1e-6]
                if not there:
                    where = "after" if forward else "before"
                    return schema.ReplyUpdate(command.id, False, f"no event {where} this time")
                at_s, text = there[0] if forward else there[-1]
                return self._show_recorded_time(command.id, at_s, f": {text}")
            case schema.PlayCommand(on=on, speed=speed):
                if on and self.frames.computed and self.at_s >= self.frames.length_s:
                    self._show_recorded_time(command.id, 0.0, "")
                self.playing, self.speed = on, speed
                return schema.ReplyUpdate(command.id, True, "playing" if on else "paused")
        return schema.ReplyUpdate(command.id, False, REFUSED)

    def _show_recorded_time(self, command_id: int, seconds: float, text: str) -> schema.ReplyUpdate:
        """Show another time of the recording; return the reply to the command that asks for it."""
        self.at_s = min(seconds, self.frames.length_s)
        self._scored = self._count_shown_score_rows()
        self.clients.publish(self._make_score_update())
        self.advance_playback(0.0)
        return schema.ReplyUpdate(command_id, True, f"{self.at_s:.1f} s{text}")
