"""Another process in the robot's ROS domain, which the campaign starts.

    python -m campaign.participant joins TIMES OVER_S
        that many participants join and leave, each with a node that hears the sources
    python -m campaign.participant calls RATE_HZ CHANGES
        sets the policy node's parameters so often, by turns as CHANGES says, which is JSON:
        [{name: value, ...}, ...]

It says `ready` when it can begin, and ends with SIGTERM.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import rclpy
from rcl_interfaces.srv import SetParameters
from rclpy.context import Context
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import JointState

from an_control_sim.process import (
    catch_signals,
    initialise_ros_and_create_node,
    make_events_executor,
)
from campaign.robot_under_test import NAMESPACE


def joins(times: int, over_s: float, stopped: Callable[[], bool]) -> None:
    """Join and leave `times` times, evenly spread."""
    print("ready", flush=True)
    begin_s = time.monotonic()
    for number in range(times):
        context = Context()
        rclpy.init(args=[], context=context, signal_handler_options=SignalHandlerOptions.NO)
        guest = Node(f"guest_{number}", namespace=NAMESPACE, context=context)
        for topic in ("joint_states", "foot_contacts", "joint_commands"):
            guest.create_subscription(JointState, topic, lambda message: None, 10)
        time.sleep(0.5 * over_s / times)
        guest.destroy_node()
        rclpy.shutdown(context=context)
        if stopped():
            return
        time.sleep(max(0.0, begin_s + (number + 1) * over_s / times - time.monotonic()))


def calls(
    rate_hz: float, changes: list[dict[str, str | float]], stopped: Callable[[], bool]
) -> None:
    """Set the parameters by turns, without waiting for the answers."""
    requests = [
        SetParameters.Request(
            parameters=[Parameter(key, value=one).to_parameter_msg() for key, one in turn.items()]
        )
        for turn in changes
    ]
    with initialise_ros_and_create_node("participant", NAMESPACE) as node:
        client: Any = node.create_client(SetParameters, "policy/set_parameters")
        executor = make_events_executor(node.context)
        executor.add_node(node)
        while not client.service_is_ready() and not stopped():
            executor.spin_once(timeout_sec=0.05)
        print("ready", flush=True)
        due_s = time.monotonic()
        for request in itertools.cycle(requests):
            if stopped():
                break
            client.call_async(request)
            due_s = max(due_s + 1.0 / rate_hz, time.monotonic() - 0.1)
            while (wait_s := due_s - time.monotonic()) > 0.0:
                executor.spin_once(timeout_sec=wait_s)
        executor.shutdown()


if __name__ == "__main__":
    what, often, how = sys.argv[1:]
    with catch_signals() as ended:
        if what == "joins":
            joins(int(often), float(how), ended)
        else:
            calls(float(often), json.loads(how), ended)
