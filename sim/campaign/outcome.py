"""One row of the campaign's table."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import isfinite
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Seen:
    """What one try showed: the times of `Outcome`, promises broken, and promises kept too late.

    `walks_s` is how soon after the fault's end the robot walked, inf where it did not in time, None
    where it had fallen by then.
    """

    safe_s: float
    recovered_s: float
    broken: list[str]
    late: list[str]
    walks_s: float | None = None


@dataclass
class Outcome:
    """What one fault did, the worst of all times.

    safe_s       until the wire was as it must be, inf where it never was; for a file: to read it
    recovered_s  from the fault's end until the policy acted again
    walked       tries after which the robot walked again in time, of those in which it was `up`
    walks_s      how soon, the median of those
    memory_mb    growth of the resident memory from the first time to the last
    repeated     tries made again because the campaign's own process had stood still
    """

    name: str
    tried: int = 0
    survived: int = 0
    safe_s: float = 0.0
    recovered_s: float = 0.0
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
        """For people."""
        return (
            f"{self.name:<40} {self.tried:>6} {self.survived:>8} {self.safe_s:>7.3f} s"
            f" {self.recovered_s:>8.3f} s {self._walks():>14} {self.memory_mb:>5.1f} MB"
            f" {self.repeated:>8}"
        )

    def _walks(self) -> str:
        return f"{self.walked}/{self.up} {self.walks_s:.1f} s" if self.up else ""


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not isfinite(value) else value
