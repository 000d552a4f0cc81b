"""Temporary nodes, which join a running ROS 2 system without the shared memory of Fast DDS.

While a process joins or leaves over shared memory, Fast DDS can delay the messages of all other
nodes, by 0.33 s in one of ten cases. Over UDP it does not. So programs that start and end beside a
running robot join by UDP. Nodes that control a robot use the transport that their user has chosen.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import rclpy
from rclpy.exceptions import NameValidationException
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from an_control.ros.graph import QuietNode
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
    """Let the nodes that are created in this block communicate by UDP, not by shared memory.

    Rclpy must be initialised in the block, and the nodes must be the first ones of the process.
    Nothing is changed if the user has chosen a transport, or uses another middleware than Fast DDS.
    """
    changes = _make_udp_environment()
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


def _make_udp_environment() -> dict[str, str]:
    """Return the environment variables that restrict Fast DDS to UDP, as a mapping to their values.

    They do not change which machines are discovered. The result is {} for another middleware, or if
    the user has configured Fast DDS already.
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


DISCOVERY_S = 10.0
"""Seconds that the discovery of other nodes may take.

A node that misses the first announcements of other nodes by DDS, as on a busy machine, gets the
next ones after 3 s."""


@contextmanager
def create_temporary_node(name: str, namespace: str = "") -> Iterator[Node]:
    """Initialise rclpy and yield a node. At the end of the block both are shut down.

    Signals are left to the caller. The node communicates by UDP, without services and without a log
    topic, so that it does not disturb the nodes that control a robot.

    Args:
        name: The name of the node.
        namespace: The namespace of the node.

    Raises:
        ValueError: ROS does not allow the name of the node, or another name that is used in the
            block.
    """
    try:
        with disable_shared_memory():
            rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
            node = QuietNode(
                name, namespace=namespace, start_parameter_services=False, enable_rosout=False
            )
        try:
            yield node
        finally:
            node.destroy_node()
    except NameValidationException as error:
        raise ValueError(" ".join(str(error).split())) from error
    finally:
        rclpy.try_shutdown()


def describe_discovery_range() -> str:
    """Return the domain id and the range in which ROS 2 looks for nodes, as text for an error."""
    domain = os.environ.get("ROS_DOMAIN_ID", "") or "0"
    reach = os.environ.get("ROS_AUTOMATIC_DISCOVERY_RANGE", "") or "SUBNET"
    if os.environ.get("ROS_LOCALHOST_ONLY", "") == "1":
        reach = "LOCALHOST (ROS_LOCALHOST_ONLY)"
    return (
        f"nodes are looked for in ROS_DOMAIN_ID {domain} with ROS_AUTOMATIC_DISCOVERY_RANGE"
        f" {reach}; both must be the same for the other node"
    )
