"""Joining a running system without the shared memory of Fast DDS.

While a process joins or leaves over shared memory, Fast DDS can hold up whatever a node that acts
sends: 0.33 s in every tenth case. Over UDP it does not. So programs that come and go beside a robot
join by UDP; what acts keeps what its user has chosen.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import rclpy

from an_control.system.share import share_path

RANGE, PROFILES, TRANSPORTS = (
    "ROS_AUTOMATIC_DISCOVERY_RANGE",
    "FASTDDS_DEFAULT_PROFILES_FILE",
    "FASTDDS_BUILTIN_TRANSPORTS",
)
CHOSEN = (PROFILES, "FASTRTPS_DEFAULT_PROFILES_FILE", TRANSPORTS, "ROS_LOCALHOST_ONLY")
"""Variables by which a user has chosen how to communicate."""


@contextmanager
def without_shared_memory() -> Iterator[None]:
    """Initialise rclpy and make nodes in this block, the first of the process, that join by UDP.

    Nothing changes where the user has chosen how to communicate, or has another middleware.
    """
    changes = _changes()
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _changes() -> dict[str, str]:
    """Return the variables that keep Fast DDS to UDP, within the same range of discovery."""
    fast_dds = rclpy.get_rmw_implementation_identifier().startswith("rmw_fastrtps")
    if not fast_dds or any(os.environ.get(name) for name in CHOSEN):
        return {}
    if os.environ.get(RANGE, "").upper() != "LOCALHOST":
        return {TRANSPORTS: "UDPv4"}
    if os.environ.get("ROS_STATIC_PEERS"):
        return {}  # a profile would not know them
    # For this range rmw_fastrtps adds shared memory to whatever is set.
    return {RANGE: "SYSTEM_DEFAULT", PROFILES: str(share_path("config/fastdds_loopback.xml"))}
