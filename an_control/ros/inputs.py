"""Subscriptions: callbacks only store the newest message of each source in the channel table.

A subscription takes the publishers' quality of service over, as far as it is known, and is made
again when that changes. Everything here runs on the executor's thread; a new subscription is made
before the old one goes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.subscription import Subscription

from an_control.wiring import ChannelTable, SourceConfig, message_class

Stored = Callable[[str, int | None], None]


class Inputs:
    """One subscription a source.

    Args:
        node: owns the subscriptions.
        table: where messages go.
        topics: source name to topic, which may differ from the wiring's.
        now_ns: reads the clock by which messages age.
        stored: called after each message with the source and the message's stamp.
        depth: messages that may wait for the executor.
    """

    def __init__(
        self,
        node: Node,
        sources: tuple[SourceConfig, ...],
        table: ChannelTable,
        topics: dict[str, str],
        now_ns: Callable[[], int],
        stored: Stored,
        depth: int,
    ) -> None:
        self._node = node
        self._table = table
        self._now_ns = now_ns
        self._stored = stored
        self._depth = depth
        self._types = {source.name: message_class(source.type) for source in sources}
        self.topics: dict[str, str] = {}
        self._subscriptions: dict[str, Subscription[Any]] = {}
        for source in sources:
            self.subscribe(source.name, topics[source.name])

    def subscribe(self, source: str, topic: str) -> None:
        """Feed `source` from `topic` from now on."""
        old = self._subscriptions.get(source)
        self.topics[source] = topic
        qos = publishers_qos(self._node, topic, self._depth)
        cls = self._types[source]
        stamped = "header" in cls.get_fields_and_field_types()

        def store(message: Any) -> None:
            stamp = message.header.stamp if stamped else None
            stamp_ns = stamp.sec * 1_000_000_000 + stamp.nanosec if stamp else None
            self._table.store(source, message, stamp_ns, self._now_ns())
            self._stored(source, stamp_ns)

        def adopt(_: Any) -> None:
            if publishers_qos(self._node, topic, self._depth) != qos:
                self.subscribe(source, topic)

        self._subscriptions[source] = self._node.create_subscription(
            cls,
            topic,
            store,
            qos,
            event_callbacks=SubscriptionEventCallbacks(
                incompatible_qos=adopt, matched=adopt, use_default_callbacks=False
            ),
        )
        if old is not None:
            self._node.destroy_subscription(old)

    def close(self) -> None:
        """Drop all subscriptions."""
        for subscription in self._subscriptions.values():
            self._node.destroy_subscription(subscription)
        self._subscriptions.clear()


def publishers_qos(node: Node, topic: str, depth: int) -> QoSProfile:
    """The strongest profile that every present publisher of `topic` offers.

    Reliable and volatile, the ROS default, while there is none.
    """
    offered = [info.qos_profile for info in node.get_publishers_info_by_topic(topic)]
    qos = QoSProfile(depth=depth)
    if any(one.reliability == ReliabilityPolicy.BEST_EFFORT for one in offered):
        qos.reliability = ReliabilityPolicy.BEST_EFFORT
    if offered and all(one.durability == DurabilityPolicy.TRANSIENT_LOCAL for one in offered):
        qos.durability = DurabilityPolicy.TRANSIENT_LOCAL
    return qos
