"""Nodes whose publishers and subscriptions handle no events of the middleware.

By default rclpy asks of each for incompatible types and quality of service, to log them. Where the
middleware's threads report one while the events executor adds or removes it, the process can crash
(ros2/rclpy#1644) or stand still (ros2/rmw_fastrtps#890). What does not match is said by the
diagnostics instead.
"""

from __future__ import annotations

from typing import Any

from rclpy.event_handler import PublisherEventCallbacks, SubscriptionEventCallbacks
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.subscription import Subscription

_OF_PUBLISHERS = PublisherEventCallbacks(use_default_callbacks=False)
_OF_SUBSCRIPTIONS = SubscriptionEventCallbacks(use_default_callbacks=False)


class QuietNode(Node):
    """A node that handles no events; nor does what rclpy itself creates on it."""

    def create_publisher(self, *args: Any, **options: Any) -> Publisher:
        """As of any node; `event_callbacks` are none unless given."""
        options["event_callbacks"] = options.get("event_callbacks") or _OF_PUBLISHERS
        return super().create_publisher(*args, **options)

    def create_subscription(self, *args: Any, **options: Any) -> Subscription:
        """As of any node; `event_callbacks` are none unless given."""
        options["event_callbacks"] = options.get("event_callbacks") or _OF_SUBSCRIPTIONS
        return super().create_subscription(*args, **options)
