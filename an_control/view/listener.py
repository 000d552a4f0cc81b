"""Subscriptions whose newest messages are taken only on request.

The listener's node is in no executor. So a message that nothing asks for only takes a place in the
middleware's queue, however often such messages come.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.subscription import Subscription

NEWEST = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
SEVERAL = QoSProfile(depth=20, reliability=ReliabilityPolicy.RELIABLE)
"""The quality of service for topics on which several nodes publish."""
LOOK_S = 0.001
LATCHED = QoSProfile(
    depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL
)


class TopicSubscription(NamedTuple):
    """The name, type and quality of service of a topic to listen to."""

    name: str
    type: Any
    qos: QoSProfile = NEWEST


class Listener:
    """Subscriptions whose messages are read when they are asked for, without an executor.

    Args:
        node: The node that owns the subscriptions. It must not be in an executor.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._topics: dict[str, TopicSubscription] = {}
        self._subscriptions: dict[str, Subscription[Any]] = {}
        self._taken: dict[str, list[Any]] = {}
        """A mapping from a topic to the messages of it that `wait_for_message` has already taken.
        """

    def subscribe_to_topics(self, topics: Mapping[str, TopicSubscription]) -> None:
        """Subscribe to some topics, and end all other subscriptions.

        Args:
            topics: A mapping from names that the caller chooses, such as "joints", to topics.
        """
        for name, topic in tuple(self._topics.items()):
            if topics.get(name) != topic:
                self._node.destroy_subscription(self._subscriptions.pop(name))
                del self._topics[name]
                self._taken.pop(name, None)
        for name, topic in topics.items():
            if name not in self._topics:
                self._subscriptions[name] = self._node.create_subscription(
                    topic.type, topic.name, _ignore_message, topic.qos
                )
                self._topics[name] = topic

    def pop_new_messages(self, name: str) -> list[Any]:
        """Return a topic's messages that have arrived since the last call, the oldest first.

        Args:
            name: The name that the caller chose for the topic.
        """
        subscription, messages = self._subscriptions.get(name), self._taken.pop(name, [])
        if subscription is not None:
            with subscription.handle:
                while taken := subscription.handle.take_message(subscription.msg_type, False):
                    messages.append(taken[0])
        return messages

    def pop_newest_message(self, name: str) -> Any:
        """Return the newest message of a topic that has arrived since the last call, or None.

        Args:
            name: The name that the caller chose for the topic.
        """
        messages = self.pop_new_messages(name)
        return messages[-1] if messages else None

    async def wait_for_message(self, name: str, limit_s: float) -> None:
        """Wait a limited time for a topic's next message; leave it for `pop_new_messages`.

        Args:
            name: The name that the caller chose for the topic.
            limit_s: The longest time to wait in seconds.
        """
        seen, until_s = self.pop_new_messages(name), time.monotonic() + limit_s
        while not (new := self.pop_new_messages(name)) and time.monotonic() < until_s:
            await asyncio.sleep(LOOK_S)
        self._taken[name] = [*seen[-1:], *new]

    def close(self) -> None:
        """End all subscriptions."""
        self.subscribe_to_topics({})


def _ignore_message(message: Any) -> None:
    """Ignore a message; no executor calls this callback, because `Listener` polls for messages."""
