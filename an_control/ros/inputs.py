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

from an_control.wiring import ChannelTable, SourceConfig, stamp_reader

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

    Raises ValueError naming the source for a topic that this node uses with another type.
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
        self._types = {source.name: source.type for source in sources}
        self.topics: dict[str, str] = {}
        self._subscriptions: dict[str, Subscription[Any]] = {}
        try:
            for source in sources:
                self.subscribe(source.name, topics[source.name])
        except ValueError:
            self.close()
            raise

    def refusal(self, source: str, topic: str) -> str:
        """Why `source` cannot read `topic`, as far as its users are known, or an empty string."""
        full, type_ = self._node.resolve_topic_name(topic), self._types[source]
        carried = dict(self._node.get_topic_names_and_types()).get(full, [type_])
        if type_ in carried:
            return ""
        return f"{full} carries {', '.join(carried)}, source {source!r} reads {type_}"

    def subscribe(self, source: str, topic: str) -> None:
        """Feed `source` from `topic` from now on."""
        old = self._subscriptions.get(source)
        qos = publishers_qos(self._node, topic, self._depth)
        cls = self._table.message_classes[source]
        stamp_of = stamp_reader(cls)

        def store(message: Any) -> None:
            stamp_ns = stamp_of(message)
            self._table.store(source, message, stamp_ns, self._now_ns())
            self._stored(source, stamp_ns)

        def adopt(_: Any) -> None:
            if publishers_qos(self._node, topic, self._depth) != qos:
                self.subscribe(source, topic)

        events = SubscriptionEventCallbacks(
            incompatible_qos=adopt, matched=adopt, use_default_callbacks=False
        )
        try:
            self._subscriptions[source] = self._node.create_subscription(
                cls, topic, store, qos, event_callbacks=events
            )
        except RuntimeError as error:
            raise ValueError(f"source {source!r} cannot read {topic}: {error}") from None
        self.topics[source] = topic
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
