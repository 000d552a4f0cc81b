"""What may read a simulated robot's messages inside the simulator's process: the scrambler."""

from __future__ import annotations

from typing import Any, Protocol


class Tap(Protocol):
    """Something that reads the robot's messages inside this process, e.g. the scrambler."""

    topic: str

    @property
    def shuffles(self) -> int: ...
    @property
    def lost(self) -> bool: ...
    def reset(self, episode: int) -> None: ...
    def take(self, topic: str, message: Any) -> None: ...
    def prepare(self, stamp_ns: int) -> None: ...
    def send(self) -> None: ...
