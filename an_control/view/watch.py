"""The watch of a robot, which turns messages of its topics into updates of the live page."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from an_control.view import schema
from an_control.view.drawing import find_skeleton_for_drawing
from an_control.view.graph import RobotGraph
from an_control.view.insight import (
    KeyProjection,
    compute_attention_strength,
    convert_message_to_matrix,
    encode_image_message,
    read_channel_ids_of_matrix,
    scale_attention_to_percent,
)
from an_control.view.listener import Listener
from an_control.wiring.checked_yaml import WiringError

SILENT_S = 2.5
"""Time without diagnostics after which the policy node counts as silent; they come once a
second."""
SLOW = 4
"""Number of calls of `iterate_new_updates` between two updates of attention matrix and keys."""
SCORE_S = 0.5
"""Time between two rows of numbers for the charts."""
KEPT_SCORES, KEPT_MARKS = 1200, 200


class RobotWatch:
    """The present state of one robot, as its topics show it.

    `iterate_new_updates` reads the new messages and yields the updates for the page.

    Args:
        listener: The listener to the robot's topics.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._start_s = time.monotonic()
        self.scores: deque[list[float | None]] = deque(maxlen=KEPT_SCORES)
        self.marks: deque[tuple[float, str]] = deque(maxlen=KEPT_MARKS)
        self.clear_robot_state()

    def clear_robot_state(self) -> None:
        """Forget everything about the robot, because another one or none is watched."""
        self.found = RobotGraph()
        self.parts: dict[str, schema.DiagnosticsPart] = {}
        self.changed: set[str] = set()
        """The nodes whose parameters have changed; code that reads this set clears it."""
        self._wiring = ""
        self._looked_up: tuple[tuple[list[str], str], schema.DrawingUpdate] | None = None
        """The joints and the wiring for which a drawing was last looked up, and the update with
        that drawing."""
        self._heard_s = -np.inf
        self._ids: list[str] = []
        self._strength: dict[str, float] = {}
        """A mapping from a channel id to the last attention to this channel (0 to 1)."""
        self._drawing: schema.DrawingUpdate | None = None
        self._joints: dict[str, float] = {}
        """A mapping from a joint to its newest position. Several nodes may publish joints of the
        robot on one topic, each only its own."""
        self._pose: list[float] = []
        self._episode: dict[str, float] = {}
        self._scored_s = time.monotonic()
        self._scored: dict[str, float] = {}
        self._keys, self._looks = KeyProjection(), 0
        self._forgotten = True

    def subscribe_to_robot_topics(self, graph: RobotGraph) -> None:
        """Listen to the topics of a robot from now on."""
        if graph.policy != self.found.policy:
            self.clear_robot_state()
        self.found = graph
        self._listener.subscribe_to_topics(graph.topics)

    def set_wiring_file(self, path: str) -> None:
        """Set the robot's wiring file; a drawing of the robot is looked for in the same folder.

        Args:
            path: The path of the wiring file.
        """
        self._wiring, self._looked_up = path, None

    @property
    def seconds_since_start(self) -> float:
        """The seconds since this object was made, from which times in the charts count."""
        return time.monotonic() - self._start_s

    @property
    def is_silent(self) -> bool:
        """Whether the policy node has sent no diagnostics for 2.5 s (`SILENT_S`)."""
        return time.monotonic() - self._heard_s > SILENT_S

    def add_chart_mark(self, text: str) -> schema.MarksUpdate:
        """Record a mark for the charts at the present time; return the update with all marks.

        Args:
            text: Description of what was done, such as a rewiring.
        """
        self.marks.append((self.seconds_since_start, text))
        return schema.MarksUpdate(list(self.marks))

    def iterate_new_updates(self) -> Iterator[schema.Update | bytes]:
        """Read the new messages of all topics, and yield updates and pictures for the page."""
        self._looks += 1
        slow = self._looks % SLOW == 0
        if self._forgotten:  # the browsers must forget it too
            self._forgotten = False
            yield schema.ChannelsUpdate([])
            yield schema.DiagnosticsUpdate([])
        yield from self._iterate_diagnostics_updates()
        self.changed.update(one.node for one in self._listener.pop_new_messages("events"))
        attention = self._listener.pop_newest_message("attention")
        values = None if attention is None else convert_message_to_matrix(attention)
        if attention is not None and values is not None:
            strength = np.round(compute_attention_strength(values), 3).tolist()
            ids = read_channel_ids_of_matrix(attention, self._ids)
            self._strength = dict(zip(ids, strength, strict=False))
        yield from self._iterate_drawing_and_image_updates()
        yield from self._iterate_tick_updates()
        if slow and values is not None:
            yield make_matrix_update(values)
        if slow and (keys := self._listener.pop_newest_message("keys")) is not None:
            points = convert_message_to_matrix(keys)
            if points is not None and len(points) > 2:
                yield make_clusters_update(self._keys, points)
        yield from self._iterate_score_updates()

    def iterate_updates_for_new_page(self) -> Iterator[schema.Update]:
        """Yield the updates that a page needs when it is opened or connects again."""
        if self._drawing is not None:
            yield self._drawing
        yield schema.ChannelsUpdate(self._ids)
        yield schema.DiagnosticsUpdate(list(self.parts.values()))
        yield schema.ScoreUpdate(list(self.scores), fresh=True)
        yield schema.MarksUpdate(list(self.marks))

    def _iterate_diagnostics_updates(self) -> Iterator[schema.Update]:
        """Read the policy node's new diagnostics; yield an update with them if there are any."""
        start = f"{self.found.policy}: "
        parts = {}
        for message in self._listener.pop_new_messages("diagnostics"):
            for one in message.status:
                if self.found.policy and one.name.startswith(start):
                    name = one.name.removeprefix(start)
                    values = {pair.key: pair.value for pair in one.values}
                    parts[name] = schema.DiagnosticsPart(name, one.level[0], one.message, values)
        if parts:
            self._heard_s = time.monotonic()
            self.parts = parts
            yield schema.DiagnosticsUpdate(list(parts.values()))

    def _iterate_drawing_and_image_updates(self) -> Iterator[schema.Update | bytes]:
        """Read the newest joint positions, pose and image; yield a new drawing and a new image."""
        joints = self._listener.pop_newest_message("joints")
        pose = self._listener.pop_newest_message("pose")
        image = self._listener.pop_newest_message("image")
        if joints is not None:
            positions = round_with_nonfinite_as_zero(joints.position, 4)
            self._joints.update(zip(joints.name, positions, strict=False))
        if pose is not None:
            self._pose = list_pose_numbers(pose)
        drawing = self._drawing
        shown = None if image is None else encode_image_message(image)
        if joints is not None and self._joints:
            wanted = list(self._joints), self._wiring
            if self._looked_up is None or self._looked_up[0] != wanted:
                self._looked_up = wanted, make_drawing_update(*wanted)
            drawing = self._looked_up[1]
        elif shown is not None and "joints" not in self.found.topics:
            drawing = schema.DrawingUpdate("camera", [])
        elif drawing is None and self._ids:
            drawing = schema.DrawingUpdate("bars", [])
        if drawing is not None and drawing != self._drawing:
            self._drawing = drawing
            yield drawing
        if shown is not None:
            yield shown

    def _iterate_tick_updates(self) -> Iterator[schema.Update]:
        """Yield the policy's newest tick, preceded by the channel ids if these have changed."""
        progress = self._listener.pop_newest_message("progress")
        if progress is not None:
            self._episode = {
                name: value
                for name, value in zip(progress.name, progress.position, strict=False)
                if np.isfinite(value)
            }
        channels = self._listener.pop_newest_message("channels")
        if channels is None:
            return
        if list(channels.name) != self._ids:
            self._ids = list(channels.name)
            yield schema.ChannelsUpdate(self._ids)
        attention = [self._strength[id_] for id_ in self._ids if id_ in self._strength]
        yield schema.TickUpdate(
            values=round_with_nonfinite_as_zero(channels.position, 3),
            attention=attention if len(attention) == len(self._ids) else [],
            joints=list(self._joints.values()),
            pose=self._pose,
            episode=self._episode,
            expected=max(self._count_expected_channels(), len(self._ids)),
        )

    def _count_expected_channels(self) -> int:
        """Return the number of channels that should have readings, by the diagnostics."""
        counts = [one.values.get("expected", "0") for one in self.parts.values()]
        return sum(int(count) for count in counts if count.isdecimal())

    def _iterate_score_updates(self) -> Iterator[schema.Update]:
        """Yield a row of numbers for the charts, if the previous row is 0.5 s (`SCORE_S`) old.

        Nothing is yielded before the robot's first diagnostics.
        """
        now_s = time.monotonic()
        if now_s - self._scored_s < SCORE_S or not self.parts:
            return
        before, self._scored = self._scored, dict(self._episode)
        self._scored_s = now_s
        running = not self.is_silent
        policy = self.parts.get("policy")
        times = [_read_diagnostics_number(policy, f"tick {share} [us]") for share in ("p50", "p99")]
        expected = self._count_expected_channels()
        present = round(len(self._ids) / max(expected, len(self._ids)), 3) if expected else None
        row = [
            round(self.seconds_since_start, 2),
            self._episode.get("return") if running else None,
            _compute_mean_reward_per_step(before, self._episode) if running else None,
            *(times if running else (None, None)),
            present if running else None,
        ]
        self.scores.append(row)
        yield schema.ScoreUpdate([row], fresh=False)


def make_drawing_update(joints: list[str], wiring: str) -> schema.DrawingUpdate:
    """Make the update that tells the page how to draw a robot.

    It is drawn by its skeleton (tree of links), or by a dial for each joint if there is none.

    Args:
        joints: The names of the joints.
        wiring: The path of the robot's wiring file, beside which its own drawing may lie; "" if it
            is unknown.
    """
    try:
        skeleton = find_skeleton_for_drawing(joints, wiring)
    except WiringError as error:
        return schema.DrawingUpdate("dials", joints, problem=str(error))
    return schema.DrawingUpdate("dials" if skeleton is None else "skeleton", joints, skeleton)


def make_matrix_update(attention: NDArray[np.float64]) -> schema.MatrixUpdate:
    """Make the update with the attention weights (queries, channels) as a picture."""
    shown = scale_attention_to_percent(attention)
    rows, columns = shown.shape
    return schema.MatrixUpdate(rows, columns, shown.ravel().tolist())


def make_clusters_update(
    projection: KeyProjection, keys: NDArray[np.float64]
) -> schema.ClustersUpdate:
    """Make the update with the attention keys (channels, k) as points in a plane."""
    return schema.ClustersUpdate(np.round(projection.project_keys(keys), 3).ravel().tolist())


def list_pose_numbers(odometry: Any) -> list[float]:
    """Return the pose in an Odometry message as x y z and a quaternion, for the page."""
    at, turn = odometry.pose.pose.position, odometry.pose.pose.orientation
    return round_with_nonfinite_as_zero((at.x, at.y, at.z, turn.x, turn.y, turn.z, turn.w), 4)


def _compute_mean_reward_per_step(
    previous: dict[str, float], newest: dict[str, float]
) -> float | None:
    """Return the mean reward per step between two ticks; None if it is unknown.

    It is unknown if the episode's numbers are unknown at a tick, if the ticks belong to different
    episodes, or if there is no step between them.
    """
    is_known = all({"step", "return"} <= one.keys() for one in (previous, newest))
    if not is_known or previous.get("episode") != newest.get("episode"):
        return None
    steps = newest["step"] - previous["step"]
    return round((newest["return"] - previous["return"]) / steps, 4) if steps > 0 else None


def _read_diagnostics_number(part: schema.DiagnosticsPart | None, key: str) -> float | None:
    """Return a value of a diagnostic status as a number; None if it is absent or no number."""
    try:
        return None if part is None else float(part.values.get(key, ""))
    except ValueError:
        return None


def round_with_nonfinite_as_zero(values: Any, digits: int) -> list[float]:
    """Return rounded values, with 0 for values that are not finite, which JSON cannot represent."""
    array = np.asarray(values, np.float64)
    return np.round(np.where(np.isfinite(array), array, 0.0), digits).tolist()
