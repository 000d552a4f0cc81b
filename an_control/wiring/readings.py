"""What the channel table gives at a tick, and what it tells of losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from numpy.typing import NDArray

_SHOWN_CHANNELS = 5
_ROUNDING = 1e-10
"""By so much, as a share, less than what is needed is enough: sums of weights are rounded."""


class Readings(NamedTuple):
    """What the channels say at one tick.

    values    float32 (N,), of the channels that are present, all finite; of cameras the patches,
              uint8 (N, stack, patch, patch)
    ids       their ids (N,), the same tuple object for as long as the same ones are present
    expected  how many channels there should be; a wildcard that nothing matched yet counts as one
    new       whether any of them came since the read before
    since_ns  when the oldest of what came since then arrived, or else the newest of all
    weights   of the present and of the expected channels, where the wiring weighs them
    """

    values: NDArray[Any]
    ids: tuple[str, ...]
    expected: int
    new: bool = True
    since_ns: int = 0
    weights: tuple[float, float] | None = None

    @property
    def present_share(self) -> float:
        """Share of the expected channels that is present, by weight, 0..1."""
        there, of = self.weights or (len(self.ids), self.expected)
        return there / of if of else 1.0

    def enough(self, share: float) -> bool:
        """Whether at least this share (0..1) of the expected channels is present, and any is."""
        there, of = self.weights or (len(self.ids), self.expected)
        return bool(self.ids) and there >= (share - _ROUNDING) * of


@dataclass(frozen=True)
class Notice:
    """A source, or with `channels` some channels of it, was lost or came back; told once.

    `never` of a source that was never there; `new` are elements of a wildcard that were not in its
    first message.
    """

    kind: Literal["lost", "recovered", "new"]
    source: str
    channels: tuple[str, ...] = ()
    reason: str = ""
    never: bool = False

    def __str__(self) -> str:
        what = f"source {self.source!r}"
        if self.channels:
            more = len(self.channels) - _SHOWN_CHANNELS
            shown = ", ".join(self.channels[:_SHOWN_CHANNELS])
            what = f"{what}: {shown}{f' and {more} more' if more > 0 else ''}"
        if self.never:
            return f"{what}: {self.reason}"
        return f"{what} {self.kind}" + (f": {self.reason}" if self.reason else "")
