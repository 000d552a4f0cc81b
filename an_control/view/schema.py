"""All messages on the web socket: `Command`s from a page, `Update`s to it.

Messages are JSON, one object each; `do` names a command, `is` names an update. Pictures are sent as
binary messages (see `picture` in `insight.py`). Decoding is strict: unknown keys, wrong types,
numbers that are not finite and texts that are too long are refused.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

MOST_BYTES = 4096
"""Maximum length of a command; a longer one is refused."""
Id: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
"""The page's number for a command, which the reply repeats."""
Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=200)]


def _make_tag(class_name: str) -> str:
    """Return the tag of a message's class, such as "connect" for ConnectCommand."""
    return class_name.removesuffix("Command").removesuffix("Update").lower()


class _Command(msgspec.Struct, forbid_unknown_fields=True, tag_field="do", tag=_make_tag):
    id: Id


class ConnectCommand(_Command):
    """A command to connect a signal to an input slot, in exchange with the slot's present signal.

    If `announced`, the wiring by which the policy reads follows.
    """

    signal: Name
    plug: Name
    announced: bool


class CutCommand(_Command):
    """A command to leave an input slot without a signal."""

    plug: Name


class NoiseCommand(_Command):
    """A command to put noise into an input slot."""

    plug: Name


class CopyCommand(_Command):
    """A command to connect a signal to this input slot too."""

    signal: Name
    plug: Name


class ShuffleCommand(_Command):
    """A command to permute all signals."""

    announced: bool


class StraightCommand(_Command):
    """A command to return to the wiring of the file."""


class UndoCommand(_Command):
    """A command to undo the last change."""


class SetCommand(_Command):
    """A command to set a disturbance of the scrambler, by its parameter."""

    name: Literal["jitter", "missing", "shuffle"]
    value: Annotated[float, msgspec.Meta(ge=0.0, le=1e6)]
    """For `shuffle` the steps between two permutations, 0 = none."""


class RestartCommand(_Command):
    """A command to restart the simulator's episode."""


class EStopCommand(_Command):
    """A command to latch the policy node's e-stop."""


class ResetEStopCommand(_Command):
    """A command to clear the policy node's e-stop."""


Command: TypeAlias = (
    ConnectCommand
    | CutCommand
    | NoiseCommand
    | CopyCommand
    | ShuffleCommand
    | StraightCommand
    | UndoCommand
    | SetCommand
    | RestartCommand
    | EStopCommand
    | ResetEStopCommand
)


class _Update(msgspec.Struct, tag_field="is", tag=_make_tag):
    pass


class RobotUpdate(_Update):
    """The robot that is shown, and its state."""

    state: Literal["waiting", "running", "inactive", "silent"]
    text: str
    """Description of the state."""
    name: str = ""
    model: str = ""
    others: list[str] = []
    """Policy nodes that are not shown."""
    lockstep: bool = False
    simulated: bool = False
    """Whether its episode can be restarted."""


class SlotWiring(msgspec.Struct, frozen=True):
    """An input slot, the signal in it ("" nothing, "noise") and the channel that reads it."""

    plug: str
    signal: str
    channel: str


class BayUpdate(_Update):
    """The wiring, and which changes are possible; a reason is "" if a change is possible."""

    signals: list[str]
    wires: list[SlotWiring]
    why_not_announced: str
    """Reason why no change can be announced."""
    why_not_unannounced: str
    """Reason why no change can be unannounced."""
    undo: int
    """Number of changes that can be undone."""
    settings: dict[str, float]
    """Present values of `SetCommand`."""
    rows: int = 0
    """Number of rows of a camera's patches, else 0."""


class ChannelsUpdate(_Update):
    """The ids (N,) of the channels in the following ticks, in their order."""

    ids: list[str]


class SkeletonLink(msgspec.Struct, frozen=True):
    """A link of a skeleton: it begins at its parent's end and has its parent's orientation.

    A joint turns (revolute, rad) or moves (prismatic, m) it along `axis`, in its parent's frame.
    """

    name: str
    parent: int
    """Index of an earlier link, or -1 for the base."""
    joint: str
    """The joint between parent and link; "" if it is fixed."""
    kind: Literal["revolute", "prismatic"]
    axis: list[float]
    to: list[float]
    """Vector [x, y, z] from its beginning to its end, in m; 0 for a ball."""
    width: float
    """Width in m; 0 if the link is not drawn."""
    colour: list[float]
    """Hue in degrees, saturation and lightness in %."""


class Skeleton(msgspec.Struct, frozen=True):
    """The drawing of a robot; parents come before their links."""

    links: list[SkeletonLink]
    height: float
    """Height of the base above the ground in m, to which the pose's height is added."""
    moves: bool
    """Whether the base follows the pose."""
    yaw: float
    """The direction of view about the vertical in rad; 0 looks along y, from the right side."""
    tilt: float
    """Angle by which the view looks down, in rad."""
    span: float
    """Height of the picture in m."""

    @property
    def joints(self) -> set[str]:
        """Names of its joints."""
        return {link.joint for link in self.links if link.joint}


class DrawingUpdate(_Update):
    """The kind of drawing of the robot, and the joints whose positions (m or rad) ticks have."""

    kind: Literal["skeleton", "camera", "dials", "bars"]
    joints: list[str]
    skeleton: Skeleton | None = None
    problem: str = ""
    """Reason why the robot's own drawing cannot be used."""


class TickUpdate(_Update):
    """One tick: readings (N,), attention (N,) from 0 to 1, joint positions, pose, and episode.

    The pose is x y z in m and a quaternion x y z w.
    """

    values: list[float]
    attention: list[float]
    joints: list[float]
    pose: list[float]
    episode: dict[str, float]
    expected: int
    """Number of channels that should be present."""


class MatrixUpdate(_Update):
    """The attention, row by row, in hundredths of its maximum; rows may be means of queries."""

    rows: int
    columns: int
    values: list[int]


class ClustersUpdate(_Update):
    """Each channel's key on two principal axes of the last seconds: x and y in turn, -1 to 1."""

    points: list[float]


class DiagnosticsPart(msgspec.Struct, frozen=True):
    """A status of /diagnostics; level 0 is ok, 1 warning, 2 error, 3 stale."""

    name: str
    level: int
    text: str
    values: dict[str, str]


class DiagnosticsUpdate(_Update):
    """The statuses of the policy node's parts."""

    parts: list[DiagnosticsPart]


class ScoreUpdate(_Update):
    """Rows of figures, two a second, oldest first; unknown figures are None.

    Each row is [s, return, reward a step, p50 of a tick in us, p99, present share].
    """

    rows: list[list[float | None]]
    fresh: bool
    """Whether these rows replace all earlier ones."""


class MarksUpdate(_Update):
    """Times of rewirings in s, with their descriptions."""

    marks: list[tuple[float, str]]


class HealthUpdate(_Update):
    """The page's own process: seconds it has run, browsers, refused messages, share of a core."""

    seconds: float
    clients: int
    refused: int
    load: float


class ReplyUpdate(_Update):
    """The answer to a command; `text` says why it was refused, or what was done."""

    id: int
    ok: bool
    text: str
    took_ms: float = 0.0


Update: TypeAlias = (
    RobotUpdate
    | BayUpdate
    | ChannelsUpdate
    | DrawingUpdate
    | TickUpdate
    | MatrixUpdate
    | ClustersUpdate
    | DiagnosticsUpdate
    | ScoreUpdate
    | MarksUpdate
    | HealthUpdate
    | ReplyUpdate
)

_decoder = msgspec.json.Decoder(Command)
_encoder = msgspec.json.Encoder()


def decode(message: str | bytes) -> Command:
    """Return the command in a message.

    Raises:
        ValueError: If it is no command; the text says what is wrong.
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


def encode(update: Update) -> bytes:
    """Return an update as JSON."""
    return _encoder.encode(update)


def tag_of(message: Command | Update) -> str:
    """Return the tag of a message; of the updates with one tag only the newest counts."""
    return _make_tag(type(message).__name__)
