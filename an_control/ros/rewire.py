"""Announced rewiring of a running policy node from outside, through its parameters."""

from __future__ import annotations

import rclpy
from rclpy.parameter import Parameter
from rclpy.parameter_client import AsyncParameterClient

from an_control.ros.parameters import topic_parameter


def rewire(node: str, topics: dict[str, str], timeout_s: float) -> str:
    """Set the topic of each source, all or nothing; why not, or an empty string."""
    rclpy.init(args=[])
    caller = rclpy.create_node("an_control_rewire")
    try:
        client = AsyncParameterClient(caller, node)
        if not client.wait_for_services(timeout_sec=timeout_s):
            return f"no node {node} within {timeout_s:g} s"
        changes = [
            Parameter(topic_parameter(source), value=topic) for source, topic in topics.items()
        ]
        future = client.set_parameters_atomically(changes)
        rclpy.spin_until_future_complete(caller, future, timeout_sec=timeout_s)
        response = future.result()
        if response is None:
            return f"{node} did not answer within {timeout_s:g} s"
        result = response.result
        return "" if result.successful else str(result.reason or "refused")
    finally:
        caller.destroy_node()
        rclpy.try_shutdown()
