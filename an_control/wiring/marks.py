"""What standard messages say of readings that they do not have.

A driver without an orientation sends an identity quaternion and sets the first element of
`orientation_covariance` to -1, as the message's definition asks: read as it is, the robot would
stand upright for ever. What is marked so counts as missing. Marks that are no finite number (NaN,
infinity) need nothing here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any


@dataclass(frozen=True)
class Mark:
    """How a message says that some of its fields hold no reading.

    fields  their names
    absent  whether a message says so
    reason  as a text for a log line
    """

    fields: tuple[str, ...]
    absent: Callable[[Any], bool]
    reason: str

    def inside(self, path: str) -> Mark:
        """Return the mark of a message that lies at this path in another one."""
        if not path:
            return self
        get, absent = attrgetter(path), self.absent
        return Mark(self.fields, lambda message: absent(get(message)), f"{path}.{self.reason}")


def _covariance(field: str) -> Mark:
    name = f"{field}_covariance"
    return Mark(
        (field,),
        lambda message: getattr(message, name)[0] == -1.0,
        f"{name}[0] is -1, by which the sender says that it has no {field}",
    )


_MARKS: dict[str, tuple[Mark, ...]] = {
    "sensor_msgs/msg/Imu": tuple(
        map(_covariance, ("orientation", "angular_velocity", "linear_acceleration"))
    ),
    "sensor_msgs/msg/NavSatFix": (
        Mark(
            ("latitude", "longitude", "altitude"),
            lambda message: message.status.status == -1,
            "status.status is -1, by which the sender says that it has no fix",
        ),
    ),
}


def mark_of(cls: Any, field: str) -> Mark | None:
    """Return the mark that the definition of a message class has for one of its fields."""
    marks = _MARKS.get(f"{cls.__module__.partition('.')[0]}/msg/{cls.__name__}", ())
    return next((mark for mark in marks if field in mark.fields), None)
