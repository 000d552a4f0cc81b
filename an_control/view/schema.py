"""All that is said over the web socket: `Command`s from a page, `Update`s to it.

JSON, one object a message; `do` names a command, `is` an update. Pictures go out as binary
messages, see `picture.py`. Decoding is strict: unknown keys, wrong types, numbers that are not
finite and texts that are too long are refused.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

MOST_BYTES = 4096
"""A longer command is refused."""
Id: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
"""The page's number for a command, which the reply repeats."""
Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=200)]


class _Command(msgspec.Struct, forbid_unknown_fields=True, tag_field="do", tag=str.lower):
    id: Id


class Connect(_Command):
    """Plug a signal in; where it was goes what this plug had.

    announced: the wiring that the policy reads by follows.
    """

    signal: Name
    plug: Name
    announced: bool


class Cut(_Command):
    """Let a plug carry nothing."""

    plug: Name


class Noise(_Command):
    """Let a plug carry noise."""

    plug: Name


class Copy(_Command):
    """Plug a signal in here too."""

    signal: Name
    plug: Name


class Shuffle(_Command):
    """Permute all signals."""

    announced: bool


class Straight(_Command):
    """Put everything back to where the wiring's file has it."""


class Undo(_Command):
    """Take the last change back."""


class Set(_Command):
    """Set a disturbance of the scrambler, by its parameter."""

    name: Literal["jitter", "missing", "shuffle"]
    value: Annotated[float, msgspec.Meta(ge=0.0, le=1e6)]
    """Of `shuffle` the steps between two permutations, 0 = none."""


class Restart(_Command):
    """Start the simulator's episode again."""


class EStop(_Command):
    """Latch the policy node's e-stop."""


class ResetEStop(_Command):
    """Clear it."""


Command: TypeAlias = (
    Connect | Cut | Noise | Copy | Shuffle | Straight | Undo | Set | Restart | EStop | ResetEStop
)


class _Update(msgspec.Struct, tag_field="is", tag=str.lower):
    pass


class Robot(_Update):
    """Which robot is shown and how it is."""

    state: Literal["waiting", "running", "inactive", "silent"]
    text: str
    """In words."""
    name: str = ""
    model: str = ""
    others: list[str] = []
    """Policy nodes that are not shown."""
    lockstep: bool = False
    simulated: bool = False
    """Whether its episode can be restarted."""


class Wire(msgspec.Struct, frozen=True):
    """A plug, the signal that it carries ("" nothing, "noise") and the channel that reads it."""

    plug: str
    signal: str
    channel: str


class Bay(_Update):
    """The patch bay; a reason is empty where something can be done."""

    signals: list[str]
    wires: list[Wire]
    why_not_announced: str
    """Why no change can be announced."""
    why_not_unannounced: str
    """Why a change cannot be kept from it."""
    undo: int
    """Changes that can be taken back."""
    settings: dict[str, float]
    """The values of `Set`."""
    rows: int = 0
    """Of a camera the rows of patches, else 0."""


class Channels(_Update):
    """The ids (N,) that the following ticks are about, in their order."""

    ids: list[str]


class Link(msgspec.Struct, frozen=True):
    """A link of a skeleton: it begins where its parent ends and has its parent's orientation.

    A joint turns (revolute, rad) or moves (prismatic, m) it along `axis`, in its parent's frame.
    """

    name: str
    parent: int
    """The index of an earlier link, or -1 for the base."""
    joint: str
    """The joint between parent and link; "" if it is fixed."""
    kind: Literal["revolute", "prismatic"]
    axis: list[float]
    to: list[float]
    """The vector [x, y, z] from its beginning to its end, in m; of a ball 0."""
    width: float
    """In m; 0 if the link is not drawn."""
    colour: list[float]
    """Hue in degrees, saturation and lightness in %."""


class Skeleton(msgspec.Struct, frozen=True):
    """How a robot is drawn; parents stand before their links."""

    links: list[Link]
    height: float
    """The height of the base above the ground in m, to which that of the pose is added."""
    moves: bool
    """Whether the base follows the pose."""
    yaw: float
    """The direction of view about the vertical in rad; 0 looks along y, from the right side."""
    tilt: float
    """How far the view looks down, in rad."""
    span: float
    """The metres that the picture is high."""

    @property
    def joints(self) -> set[str]:
        """Return the names of its joints."""
        return {link.joint for link in self.links if link.joint}


class Drawing(_Update):
    """What the robot is drawn as, and the joints that ticks have positions of, m or rad."""

    kind: Literal["skeleton", "camera", "dials", "bars"]
    joints: list[str]
    skeleton: Skeleton | None = None
    problem: str = ""
    """Why the robot's own drawing cannot be used."""


class Tick(_Update):
    """One tick: readings (N,), attention (N,) from 0 to 1, joints, pose, and how the episode does.

    pose is x y z in m and a quaternion x y z w.
    """

    values: list[float]
    attention: list[float]
    joints: list[float]
    pose: list[float]
    episode: dict[str, float]
    expected: int
    """Channels that there should be."""


class Matrix(_Update):
    """The attention, row by row, in hundredths of the largest; rows may be means of several."""

    rows: int
    columns: int
    values: list[int]


class Clusters(_Update):
    """Each channel's key on the two main axes of the last seconds: x and y in turn, -1 to 1."""

    points: list[float]


class Part(msgspec.Struct, frozen=True):
    """A status of /diagnostics; level 0 fine, 1 warning, 2 error, 3 stale."""

    name: str
    level: int
    text: str
    values: dict[str, str]


class Diagnostics(_Update):
    """What the policy node says of its parts."""

    parts: list[Part]


class Score(_Update):
    """Twice a second, the oldest first; what is not known is None.

    Each is [s, return, reward a step, p50 of a tick in us, p99, present share].
    """

    rows: list[list[float | None]]
    fresh: bool
    """Whether these replace all that came before."""


class Marks(_Update):
    """When something was rewired: s, and what."""

    marks: list[tuple[float, str]]


class Health(_Update):
    """The page's own process: s it has run, browsers, refused messages, share of a core."""

    seconds: float
    clients: int
    refused: int
    load: float


class Reply(_Update):
    """The answer to a command; `text` says why not, or what was done."""

    id: int
    ok: bool
    text: str
    took_ms: float = 0.0


Update: TypeAlias = (
    Robot
    | Bay
    | Channels
    | Drawing
    | Tick
    | Matrix
    | Clusters
    | Diagnostics
    | Score
    | Marks
    | Health
    | Reply
)

_decoder = msgspec.json.Decoder(Command)
_encoder = msgspec.json.Encoder()


def decode(message: str | bytes) -> Command:
    """A command; ValueError saying what is wrong with it."""
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
    """An update as JSON."""
    return _encoder.encode(update)


def name_of(update: Update) -> str:
    """What an update is: of one name only the newest counts."""
    return type(update).__name__.lower()
