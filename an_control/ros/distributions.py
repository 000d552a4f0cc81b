"""The names of rclpy that differ between ROS 2 distributions, under one name each.

Every other rclpy name, method, argument and message field that this package uses is the same from
Jazzy on. Compared with the released sources of rclpy 3.3.21 (Humble), 7.1.6 and 7.1.11 (Jazzy),
9.1.2 and 9.1.5 (Kilted), 10.0.10 (Lyrical) and 11.0.0 (rolling) on 2026-11-27:

| name | Humble | Jazzy | Kilted | Lyrical, rolling |
|---|---|---|---|---|
| `rclpy.subscription.MessageInfo` | no: callbacks get the message only | no: a dict | yes | yes |
| `MessageInfo["publisher_gid"]` | no | no | from 9.1.1 | yes |
| `TopicEndpointInfo` in `rclpy.` | `topic_endpoint_info` | same | same | `endpoint_info` |
| `rclpy.experimental.EventsExecutor` | no | from 7.1.4 | yes | yes |
| it awaits the coroutine of a service | no | from 7.1.11 | from 9.1.2 | yes |
| `rclpy.event_handler` | no: `qos_event` | yes | yes | yes |
| `rclpy.parameter_client` | no | yes | yes | yes |
| `Node.add_post_set_parameters_callback` | no | yes | yes | yes |
| environment `ROS_AUTOMATIC_DISCOVERY_RANGE` | no | yes | yes | yes |
| a transition that the state does not have | raises in the node | same | refused | refused |
| a message's `uint8[]` | `array` | `array` | `array` | `array` (*) |

(*) Lyrical can give a `rosidl_buffer.Buffer` instead, but only to a subscription that asks for it
by `acceptable_buffer_backends`; no subscription in this package asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.context import Context
from rclpy.executors import Executor
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.lifecycle import LifecycleNode, TransitionCallbackReturn
from rclpy.node import Node
from rclpy.task import Future

from an_control.system.ros_source import read_rclpy_version

try:
    from rclpy.endpoint_info import TopicEndpointInfo
except ModuleNotFoundError:  # until Kilted
    from rclpy.topic_endpoint_info import TopicEndpointInfo

try:
    from rclpy.subscription import MessageInfo
except ImportError:  # until Jazzy
    MessageInfo = dict[str, Any]  # type: ignore[misc, assignment]

__all__ = [
    "MessageInfo",
    "SteadyLifecycleNode",
    "TopicEndpointInfo",
    "create_deferred_service",
    "create_events_executor",
    "get_distribution_name",
    "has_publisher_ids_in_callbacks",
]


class SteadyLifecycleNode(LifecycleNode):
    """A LifecycleNode that refuses a transition that its present state does not allow.

    With a plain LifecycleNode, such a request raises an error in the executor (of ROS 2 Jazzy), so
    that any client could end the process.
    """

    def _LifecycleNodeMixin__change_state(  # noqa: N802 - rclpy's private method
        self, transition_id: int
    ) -> TransitionCallbackReturn:
        try:
            change = super()._LifecycleNodeMixin__change_state  # type: ignore[misc]
            found: TransitionCallbackReturn = change(transition_id)
            return found
        except rclpy_implementation.RCLError as error:
            self.get_logger().error(f"transition {transition_id} is refused: {error}")
            return TransitionCallbackReturn.ERROR


def create_events_executor(context: Context) -> Executor | None:
    """Return rclpy's events executor, to be driven by `spin_once`; None if rclpy lacks it."""
    try:
        from rclpy.experimental.events_executor import EventsExecutor
    except ImportError:
        return None
    return EventsExecutor(context=context)


def create_deferred_service(
    node: Node, type_: Any, name: str, callback: Callable[[Any, Any], Any | Future[Any]]
) -> None:
    """Create a service whose response may be sent after its callback has returned.

    Args:
        node: The node that owns the service; it must be run by the events executor.
        type_: The service type.
        name: The name of the service.
        callback: Called with the request and an empty response. Returns the filled response, or a
            Future that will have the response as its result.
    """
    if _events_executor_awaits_service_coroutines():

        async def await_response(request: Any, response: Any) -> Any:
            """Return the callback's response, after awaiting it if it is a Future."""
            reply = callback(request, response)
            return await reply if isinstance(reply, Future) else reply

        node.create_service(type_, name, await_response)
        return
    service = node.create_service(type_, name, callback)
    send = service.send_response

    def send_when_done(reply: Any, header: Any) -> None:
        """Send the response now, or, if `reply` is a Future, once its result is there.

        Args:
            reply: The response, or a Future that will have the response as its result.
            header: rclpy's header of the request.
        """
        if isinstance(reply, Future):
            reply.add_done_callback(lambda future: send(future.result(), header))
        else:
            send(reply, header)

    service.send_response = send_when_done  # type: ignore[method-assign, assignment]


def get_distribution_name() -> str:
    """Return the name of the installed ROS 2 distribution, such as "Jazzy", or "unknown"."""
    names = {3: "Humble", 7: "Jazzy", 9: "Kilted", 10: "Lyrical", 11: "rolling"}
    return names.get(next(iter(read_rclpy_version()), 0), "unknown")


def has_publisher_ids_in_callbacks() -> bool:
    """Return whether rclpy tells subscription callbacks which publisher sent a message."""
    return read_rclpy_version() >= (9, 1, 1)


def _events_executor_awaits_service_coroutines() -> bool:
    """Return whether rclpy's events executor awaits service callbacks that are coroutines.

    An older version of the executor sends the coroutine itself as the response, which raises a
    TypeError.
    """
    version = read_rclpy_version()
    return version >= (9, 1, 2) or (7, 1, 11) <= version < (8,)
