"""Join a running ROS 2 system without the shared memory of Fast DDS.

While a process joins or leaves over shared memory, Fast DDS can delay the messages of all other
nodes, by 0.33 s in one of ten cases. Over UDP it does not. So programs that start and end beside a
running robot join by UDP. Nodes that control a robot use the transport that their user has chosen.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import rclpy

from an_control.system.share import find_share_path

RANGE, PROFILES, TRANSPORTS = (
    "ROS_AUTOMATIC_DISCOVERY_RANGE",
    "FASTDDS_DEFAULT_PROFILES_FILE",
    "FASTDDS_BUILTIN_TRANSPORTS",
)
CHOSEN = (PROFILES, "FASTRTPS_DEFAULT_PROFILES_FILE", TRANSPORTS, "ROS_LOCALHOST_ONLY")
"""Environment variables with which users choose the transport of DDS."""


@contextmanager
def disable_shared_memory() -> Iterator[None]:
    """Let rclpy and the nodes that are created in this block communicate by UDP.

    They must be the first nodes of the process. Nothing is changed if the user has chosen a
    transport, or uses another middleware than Fast DDS.
    """
    changes = _find_udp_variables()
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


def _find_udp_variables() -> dict[str, str]:
    """Return the environment variables that restrict Fast DDS to UDP.

    They leave unchanged which other machines are discovered. The result is {} if nothing has to be
    changed.
    """
    fast_dds = rclpy.get_rmw_implementation_identifier().startswith("rmw_fastrtps")
    if not fast_dds or any(os.environ.get(name) for name in CHOSEN):
        return {}
    if os.environ.get(RANGE, "").upper() != "LOCALHOST":
        return {TRANSPORTS: "UDPv4"}
    if os.environ.get("ROS_STATIC_PEERS"):
        return {}  # a profile would not know them
    # For this range rmw_fastrtps adds shared memory to whatever is set.
    return {RANGE: "SYSTEM_DEFAULT", PROFILES: str(find_share_path("config/fastdds_loopback.xml"))}
