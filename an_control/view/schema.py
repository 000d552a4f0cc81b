"""The format of the web socket's messages, which are `Command`s from a page and `Update`s to it.

Each message is one JSON object. Its key `do` names a command, or its key `is` names an update.
Pictures are sent as binary messages (see `encode_image_message` in `insight.py`). Decoding is
strict: unknown keys, wrong types, numbers that are not finite and texts that are too long are
refused.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

MOST_BYTES = 4096
"""Maximum length of a command in bytes; a longer one is refused."""
Id: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
"""The number that a page gives to a command; the reply repeats it."""
Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=200)]


def _make_tag(class_name: str) -> str:
    """Return the tag (short name) for a class name, such as "connect" for ConnectCommand."""
    return class_name.removesuffix("Command").removesuffix("Update").lower()


class _Command(msgspec.Struct, forbid_unknown_fields=True, tag_field="do", tag=_make_tag):
    """A command from a page, with its number.

    The tag (short name) of a command is its class name without the suffix.
    """

    id: Id


class ConnectCommand(_Command):
    """A command to let two sensors' signals change places.

    `signal` and the signal that arrives at the input slot `slot` exchange their slots. If
    `announced`, the policy is rewired too, so that its channels keep their signals.
    """

    signal: Name
    slot: Name
    announced: bool


class CutCommand(_Command):
    """A command to disconnect an input slot, so that no sensor's signal arrives there."""

    slot: Name


class NoiseCommand(_Command):
    """A command to replace the signal of an input slot by noise."""

    slot: Name


class CopyCommand(_Command):
    """A command to copy a sensor's signal to one more input slot, replacing the slot's signal."""

    signal: Name
    slot: Name


class ShuffleCommand(_Command):
    """A command to permute all sensors' signals at random between the policy's input slots.

    If `announced`, the policy is rewired too, so that its channels keep their signals.
    """

    announced: bool


class RestoreCommand(_Command):
    """A command to undo all rewiring, so that the robot's wiring file applies again."""


class UndoCommand(_Command):
    """A command to undo the last change of the wiring."""


class SetCommand(_Command):
    """A command to set a disturbance of the sensors' readings: jitter, missing or shuffle.

    It sets the parameter of this name in the scrambler, the node that disturbs readings.
    """

    name: Literal["jitter", "missing", "shuffle"]
    value: Annotated[float, msgspec.Meta(ge=0.0, le=1e6)]
    """The value; for `shuffle` the steps between two permutations, 0: none."""


class RestartCommand(_Command):
    """A command to restart the simulator's episode."""


class CorrectCommand(_Command):
    """A command to correct the mistakes that were found in the wiring, or to undo that."""

    on: bool
    """Whether to correct them; False reads all channels by the wiring file again."""


class EStopCommand(_Command):
    """A command to latch the policy node's e-stop."""


class ResetEStopCommand(_Command):
    """A command to clear the policy node's e-stop."""


class SeekCommand(_Command):
    """A command to show another time of a recording."""

    seconds: Annotated[float, msgspec.Meta(ge=0.0, le=1e9)]


class JumpCommand(_Command):
    """A command to show the time of the next or the previous event of a recording."""

    forward: bool


class PlayCommand(_Command):
    """A command to play a recording, or to pause it."""

    on: bool
    speed: Annotated[float, msgspec.Meta(ge=0.1, le=100.0)]
    """How many seconds of the recording are shown in a second."""


Command: TypeAlias = (
    ConnectCommand
    | CutCommand
    | NoiseCommand
    | CopyCommand
    | ShuffleCommand
    | RestoreCommand
    | UndoCommand
    | SetCommand
    | RestartCommand
    | CorrectCommand
    | EStopCommand
    | ResetEStopCommand
    | SeekCommand
    | JumpCommand
    | PlayCommand
)


class _Update(msgspec.Struct, tag_field="is", tag=_make_tag):
    """An update to a page.

    The tag (short name) of an update is its class name without the suffix.
    """


class RobotUpdate(_Update):
    """An update about the robot that is shown: its name, model and state, such as "running"."""

    state: Literal["waiting", "running", "inactive", "silent"]
    text: str
    """Description of the state for the user."""
    name: str = ""
    model: str = ""
    others: list[str] = []
    """Policy nodes of other robots, which are not shown."""
    lockstep: bool = False
    simulated: bool = False
    """Whether there is a simulator, so that the episode can be restarted."""
    recorded: bool = False
    """Whether this is a recording."""


class SlotWiring(msgspec.Struct, frozen=True):
    """The wiring of one input slot: the signal that arrives there, and the channel that reads it.

    The signal is "" if none arrives, and "noise" if noise arrives in its place.
    """

    slot: str
    signal: str
    channel: str


class WiringUpdate(_Update):
    """An update that says which signal arrives at each input slot, and what can be changed."""

    signals: list[str]
    wires: list[SlotWiring]
    why_not_announced: str
    """The reason why no change can be announced to the policy; "" if it can."""
    why_not_unannounced: str
    """The reason why no change can be made without announcing it; "" if it can."""
    undo: int
    """The number of changes that can be undone."""
    settings: dict[str, float]
    """The present values of the settings that `SetCommand` can change, by name."""
    rows: int = 0
    """Number of rows of patches if the channels are a camera's patches, else 0."""


class ChannelsUpdate(_Update):
    """An update with the ids (N,) of the channels, in the order of later `TickUpdate.values`."""

    ids: list[str]


class SkeletonLink(msgspec.Struct, frozen=True):
    """A link of a skeleton, by which the robot is drawn.

    The link starts at the end of its parent link and has its parent's orientation. A joint turns
    the link about `axis` (revolute, rad) or moves it along `axis` (prismatic, m), in the parent's
    frame.
    """

    name: str
    parent: int
    """Index of an earlier link, or -1 for the base."""
    joint: str
    """The joint between parent and link; "" if it is fixed."""
    kind: Literal["revolute", "prismatic"]
    axis: list[float]
    to: list[float]
    """The vector [x, y, z] from the link's start to its end, in m; zero for a ball."""
    width: float
    """Width in m; 0 if the link is not drawn."""
    colour: list[float]
    """Hue in degrees, saturation and lightness in %."""


class Skeleton(msgspec.Struct, frozen=True):
    """The drawing of a robot as a tree of links, in which each link comes after its parent."""

    links: list[SkeletonLink]
    height: float
    """The height of the base above the ground in m, to which the pose's height is added."""
    moves: bool
    """Whether the base follows the robot's pose."""
    yaw: float
    """The direction of view about the vertical in rad; 0 looks along y, from the right side."""
    tilt: float
    """Angle by which the view looks down, in rad."""
    span: float
    """Height of the picture in m."""

    @property
    def joints(self) -> set[str]:
        """The names of the joints of all links."""
        return {link.joint for link in self.links if link.joint}


class DrawingUpdate(_Update):
    """An update that says how the page draws the robot.

    The names of the joints are in the order of the joint positions (m or rad) in later
    `TickUpdate`s.
    """

    kind: Literal["skeleton", "camera", "dials", "bars"]
    joints: list[str]
    skeleton: Skeleton | None = None
    problem: str = ""
    """The reason why the robot's own drawing cannot be used; "" if it can."""


class TickUpdate(_Update):
    """An update of one tick: readings, attention, joint positions, pose, and episode.

    Readings (`values`) and attention (0 to 1) have one number for each channel. The pose is x y z
    in m and a quaternion x y z w. The episode's numbers have names, such as "return" and "step".
    """

    values: list[float]
    attention: list[float]
    joints: list[float]
    pose: list[float]
    episode: dict[str, float]
    expected: int
    """The number of channels that should have readings."""


class MatrixUpdate(_Update):
    """An update of the attention matrix, row by row, in hundredths of its largest magnitude.

    A row stands for a query or the mean of several, a column for a channel or the mean of several.
    """

    rows: int
    columns: int
    values: list[int]


class ClustersUpdate(_Update):
    """An update of the channels' attention keys, projected onto a plane to show clusters.

    The axes are the first two principal axes of the keys of the last seconds. `points` has the two
    coordinates of the first channel, then those of the next one, each from -1 to 1.
    """

    points: list[float]


class DiagnosticsPart(msgspec.Struct, frozen=True):
    """A status of the topic /diagnostics; level 0 is ok, 1 warning, 2 error, 3 stale."""

    name: str
    level: int
    text: str
    values: dict[str, str]


class DiagnosticsUpdate(_Update):
    """An update of the statuses of the policy node's parts."""

    parts: list[DiagnosticsPart]


class ScoreUpdate(_Update):
    """An update with rows of numbers for the charts, two rows a second, the oldest first.

    Each row is [time in s, return, reward a step, median duration of a tick in us, 99th percentile
    of that duration, share of channels present]; unknown numbers are None. A row of a recording has
    one more number: the largest difference of a recomputed command from the recorded one.
    """

    rows: list[list[float | None]]
    fresh: bool
    """Whether these rows replace all earlier ones."""


class MarksUpdate(_Update):
    """An update of the marks in the charts, each with its time in s and what happened then."""

    marks: list[tuple[float, str]]


class RecordingUpdate(_Update):
    """An update about the playing of a recording: the time that is shown, and the speed."""

    at_s: float
    length_s: float
    """The length in s; while the recording is being replayed, the length up to there."""
    computed: bool
    """Whether the whole recording has been replayed."""
    playing: bool
    speed: float
    event: str
    """The last event before this time; "" if there was none."""


class HealthUpdate(_Update):
    """An update about the process that serves the page: its run time, browsers and load."""

    seconds: float
    """The seconds that it has run."""
    clients: int
    """The number of connected browsers."""
    refused: int
    """The number of messages from browsers that were refused."""
    load: float
    """The share of a processor core that the process uses."""


class ReplyUpdate(_Update):
    """A reply to a command; the text says what was done, or why it was refused."""

    id: int
    ok: bool
    text: str
    took_ms: float = 0.0


Update: TypeAlias = (
    RobotUpdate
    | WiringUpdate
    | ChannelsUpdate
    | DrawingUpdate
    | TickUpdate
    | MatrixUpdate
    | ClustersUpdate
    | DiagnosticsUpdate
    | ScoreUpdate
    | MarksUpdate
    | RecordingUpdate
    | HealthUpdate
    | ReplyUpdate
)

_decoder = msgspec.json.Decoder(Command)
_encoder = msgspec.json.Encoder()


def decode_command(message: str | bytes) -> Command:
    """Return the command in a message from a page.

    Args:
        message: The message as it was received.

    Raises:
        ValueError: The message is not a command; the text says what is wrong.
    """
    if isinstance(message, bytes):
        raise ValueError("a command is text")
    if len(message.encode()) > MOST_BYTES:
        raise ValueError(f"more than {MOST_BYTES} bytes")
    try:
        command: Command = _decoder.decode(message)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ValueError(str(error)) from None
    return command


def encode_update(update: Update) -> bytes:
    """Return an update as JSON."""
    return _encoder.encode(update)


def get_message_tag(message: Command | Update) -> str:
    """Return the tag (short name) of a message, such as "connect" for a ConnectCommand.

    Of updates with the same tag that wait for a browser, only the newest is sent.
    """
    return _make_tag(type(message).__name__)
