"""What one try showed, and one row of the campaign's table."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import isfinite
from statistics import median
from typing import Any

ROBOT = ("walked on", "slowed", "stood safe", "fell")
"""What a robot does under a fault: it was never below half its speed; it was, under the policy's
commands; it was, and the safe command was at work; it fell."""
HEAD = (
    f"{'fault':<44} {'tried':>6} {'survived':>8} {'to safe':>9} {'to recover':>10} {'to read':>9}"
    f" {'memory':>9} {'repeated':>8}  what the robot did"
)


@dataclass(frozen=True)
class Seen:
    """What one try showed.

    safe_s, recovered_s  as those of `Outcome`
    broken, late         promises broken, and promises kept too late
    walks_s              how soon after the fault's end the robot walked, inf where it did not in
                         time, None where it had fallen by then
    robot                one of ROBOT, empty where no robot was there to see
    memory_mb            growth of the node's resident memory since the try before, 0 for a new node
    repeated             how often it was made again, as the campaign's own process had stood still
    read_s               how soon log and diagnostics had all that was to be read there
    """

    safe_s: float
    recovered_s: float
    broken: list[str]
    late: list[str]
    walks_s: float | None = None
    robot: str = ""
    memory_mb: float = 0.0
    repeated: int = 0
    read_s: float = 0.0


@dataclass
class Outcome:
    """What one fault did, the worst of all times.

    safe_s       until the commands were as they must be, inf where never; for a file: to read it
    recovered_s  from the fault's end until the policy acted again
    read_s       until log and diagnostics had all that was to be read there
    robot        in how many tries the robot did what (ROBOT)
    walked       tries after which the robot walked again in time, of those in which it was `up`
    walks_s      how soon, the median of those
    memory_mb    growth of the node's resident memory from the first time to the last
    repeated     tries made again because the campaign's own process had stood still
    """

    name: str
    tried: int = 0
    survived: int = 0
    safe_s: float = 0.0
    recovered_s: float = 0.0
    read_s: float = 0.0
    robot: dict[str, int] = field(default_factory=dict)
    up: int = 0
    walked: int = 0
    walks_s: float = 0.0
    memory_mb: float = 0.0
    repeated: int = 0
    complaints: list[str] = field(default_factory=list)
    _walked_s: list[float] = field(default_factory=list)

    def add(self, seen: Seen) -> None:
        """Count one more try."""
        complaints = seen.broken + seen.late
        self.tried += 1
        self.survived += not complaints
        self.complaints += complaints
        self.safe_s = max(self.safe_s, seen.safe_s)
        self.recovered_s = max(self.recovered_s, seen.recovered_s)
        self.read_s = max(self.read_s, seen.read_s)
        self.memory_mb += seen.memory_mb
        self.repeated += seen.repeated
        if seen.robot:
            self.robot[seen.robot] = self.robot.get(seen.robot, 0) + 1
        if seen.walks_s is not None:
            self.up += 1
            if isfinite(seen.walks_s):
                self.walked += 1
                self._walked_s.append(seen.walks_s)
                self.walks_s = median(self._walked_s)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {key: _number(one) for key, one in asdict(self).items() if key[0] != "_"}

    def line(self) -> str:
        """For people, under HEAD."""
        return (
            f"{self.name:<44} {self.tried:>6} {self.survived:>8} {self.safe_s:>7.3f} s"
            f" {self.recovered_s:>8.3f} s {self.read_s:>7.3f} s {self.memory_mb:>6.1f} MB"
            f" {self.repeated:>8}"
            f"  {self.robot_text()}"
        ).rstrip()

    def robot_text(self) -> str:
        """What the robot did, such as `walked on 17, stood safe 3, walked again 2 of 3`."""
        parts = [f"{what} {self.robot[what]}" for what in ROBOT if what in self.robot]
        on = self.robot.get("walked on", 0)
        if self.up > on:
            parts.append(f"walked again {self.walked - on} of {self.up - on}")
        return ", ".join(parts)


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not isfinite(value) else value
