"""Operate a running policy node from outside: rewire it, its state, e-stop, shadow, diagnostics.

All this goes through the node's own services, parameters and diagnostics. A request that can be
repeated without harm is repeated until it is answered, because the first answer of a node that was
just discovered can be lost. A change of the lifecycle state is requested only once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from lifecycle_msgs.msg import State, Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.parameter_client import AsyncParameterClient
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.task import Future
from std_msgs.msg import Bool
from std_srvs.srv import Trigger

from an_control.ros.parameters import PREFIXES
from an_control.ros.temporary_node import create_temporary_node

MARK = "/reset_estop"
"""End of the name of a service that every policy node offers. Policy nodes are recognised by it."""
SETTLE_S = 1.0
"""Seconds for which further policy nodes are looked for after the newest one is found."""
ESTOP_SETTLE_S = 3.0
"""The same for an e-stop, which must not miss a node. Fast DDS announces each node every three
seconds, in case that the first announcements were lost."""
ESTOP_SUBSCRIPTIONS = 2
"""The number of subscriptions that a node has to its e-stop topic at least."""
SLICE_S = 0.05
LEVELS = {
    DiagnosticStatus.OK: "ok",
    DiagnosticStatus.WARN: "warning",
    DiagnosticStatus.ERROR: "error",
    DiagnosticStatus.STALE: "stale",
}
"""Names of the diagnostic levels, by level."""
STEPS = {
    ("unconfigured", "active"): (Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_ACTIVATE),
    ("inactive", "active"): (Transition.TRANSITION_ACTIVATE,),
    ("active", "inactive"): (Transition.TRANSITION_DEACTIVATE,),
}
"""The lifecycle transitions to request, in order, by the present state and the wanted state."""
AFTER = {
    Transition.TRANSITION_CONFIGURE: State.PRIMARY_STATE_INACTIVE,
    Transition.TRANSITION_ACTIVATE: State.PRIMARY_STATE_ACTIVE,
    Transition.TRANSITION_DEACTIVATE: State.PRIMARY_STATE_INACTIVE,
}
"""The lifecycle state to which each transition leads if it succeeds."""
FailureReason = str
"""The reason why a request failed, in words; "" if it succeeded."""


@dataclass(frozen=True)
class PartStatus:
    """The newest diagnostic status of one part of a policy node.

    Args:
        part: Name of the part, such as "policy", "e-stop" or "source joints".
        level: "ok", "warning", "error" or "stale".
        text: The status in one sentence.
        values: Further values of the status, by name.
    """

    part: str
    level: str
    text: str
    values: dict[str, str]


@dataclass
class NodeStatus:
    """The newest known status of a policy node.

    Args:
        node: Full name of the node.
        state: Label of the node's lifecycle state, such as "active", or "unknown".
        parts: Diagnostic status of each part of the node; empty before the first diagnostics.
    """

    node: str
    state: str = "unknown"
    parts: list[PartStatus] = field(default_factory=list)

    @property
    def has_errors(self) -> bool:
        """Whether any part reports an error."""
        return any(one.level == "error" for one in self.parts)


class Operator:
    """An operator of policy nodes, which calls their services through a temporary ROS node.

    Args:
        caller: The temporary node.
        timeout_s: Time in seconds to wait for a node and for each of its answers.
    """

    def __init__(self, caller: Node, timeout_s: float) -> None:
        self._caller, self._timeout_s = caller, timeout_s
        self._clients: dict[str, Any] = {}
        """Clients of the called services by full name, which are kept for further calls."""
        self._estops: dict[str, Any] = {}
        """Publishers on nodes' e-stop topics, by the node's full name."""

    def find_policy_nodes(self) -> list[str]:
        """Return the full names of all policy nodes on the network, sorted.

        The search ends a second (`SETTLE_S`) after the newest node was found. The result is [] if
        none is found within the operator's timeout (`timeout_s` of `Operator`).
        """
        return sorted(self.iterate_policy_nodes())

    def iterate_policy_nodes(self, settle_s: float = SETTLE_S) -> Iterator[str]:
        """Yield the full name of each policy node on the network as soon as it is found.

        The iteration ends without a name if there is no policy node within `timeout_s`.

        Args:
            settle_s: Seconds for which further nodes are looked for after each one that was found.
        """
        until_s, found = time.monotonic() + self._timeout_s, set[str]()
        while time.monotonic() < until_s:
            for name, types in self._caller.get_service_names_and_types():
                node = name.removesuffix(MARK)
                if name.endswith(MARK) and "std_srvs/srv/Trigger" in types and node not in found:
                    found.add(node)
                    yield node
                    until_s = time.monotonic() + settle_s
            rclpy.spin_once(self._caller, timeout_sec=SLICE_S)

    def count_nodes_of_name(self, node: str) -> int:
        """Return how many nodes with the full name `node` ROS has discovered so far."""
        names = self._caller.get_node_names_and_namespaces()
        return sum(f"{space.rstrip('/')}/{name}" == node for name, space in names)

    def latch_estop(self, node: str) -> FailureReason:
        """Latch a node's e-stop (emergency stop). Return why it refused, or "".

        It publishes on a topic, to reach further nodes of this name too, and then calls a service.
        If the node has ended before it answered, this counts as success.

        Raises:
            TimeoutError: The node is not found, or it is found but does not answer.
        """
        try:
            self._wait_for_service_and_get_client(Trigger, f"{node}/estop")
        finally:
            self._publish_estop(node)
        try:
            return self.call_trigger_service(node, "estop")
        except TimeoutError:
            if self.count_nodes_of_name(node):
                raise
            return ""

    def _publish_estop(self, node: str) -> None:
        """Publish `true` on a node's e-stop topic, kept for nodes that are discovered later."""
        if node not in self._estops:
            qos = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
            self._estops[node] = self._caller.create_publisher(Bool, f"{node}/estop", qos)
        self._estops[node].publish(Bool(data=True))

    def wait_until_estops_have_arrived(self) -> None:
        """Wait until the e-stops of `latch_estop` have reached all nodes with these names.

        This takes three seconds (`ESTOP_SETTLE_S`), in which further nodes with these names are
        discovered, and at most one more second.
        """
        settled_s = time.monotonic() + ESTOP_SETTLE_S
        until_s = settled_s + SETTLE_S
        while self._estops and time.monotonic() < settled_s:
            rclpy.spin_once(self._caller, timeout_sec=SLICE_S)
        for node, publisher in self._estops.items():
            expected = ESTOP_SUBSCRIPTIONS * self.count_nodes_of_name(node)
            while publisher.get_subscription_count() < expected and time.monotonic() < until_s:
                rclpy.spin_once(self._caller, timeout_sec=SLICE_S)
            publisher.publish(Bool(data=True))
            left_s = max(0.0, until_s - time.monotonic())
            publisher.wait_for_all_acked(Duration(seconds=left_s))

    def call_trigger_service(self, node: str, service: str) -> FailureReason:
        """Call a service of type std_srvs/Trigger. Return why it failed, or "".

        Args:
            node: Full name of the node.
            service: Name of the service under the node's name, such as "estop".

        Raises:
            TimeoutError: The node is not there or does not answer.
        """
        client = self._wait_for_service_and_get_client(Trigger, f"{node}/{service}")
        answer = call_until_answered(
            self._caller, lambda: client.call_async(Trigger.Request()), self._compute_deadline_s()
        )
        return "" if answer.success else str(answer.message or "refused")

    def read_state(self, node: str) -> str:
        """Return the label of the node's lifecycle state.

        Raises:
            TimeoutError: The node is not there or does not answer.
        """
        client = self._wait_for_service_and_get_client(GetState, f"{node}/get_state")
        answer = call_until_answered(
            self._caller, lambda: client.call_async(GetState.Request()), self._compute_deadline_s()
        )
        return str(answer.current_state.label)

    def change_state(self, node: str, goal: str) -> FailureReason:
        """Bring a node into a lifecycle state. Return why this failed, or "".

        Args:
            node: Full name of the node.
            goal: The wanted state, "active" or "inactive".

        Raises:
            TimeoutError: The node is not there or does not answer.
        """
        state = self.read_state(node)
        if state == goal:
            return ""
        if (state, goal) not in STEPS:
            return f"it is {state}, from where it cannot become {goal}"
        for transition in STEPS[state, goal]:
            if not self._request_transition(node, transition):
                return f"it refused, and is {self.read_state(node)}; its log says why"
        return ""

    def set_shadow(self, node: str, on: bool) -> FailureReason:
        """Switch a node's shadow mode on or off. Return why this failed, or "".

        In shadow mode the node proposes commands without sending them to the robot.

        Args:
            node: Full name of the node.
            on: Whether shadow mode is to be on, as the new value of the node's parameter `shadow`.

        Raises:
            TimeoutError: The node is not there or does not answer.
        """
        return self._set_parameters(self._wait_for_parameter_client(node), {"shadow": on})

    def rewire(self, node: str, changes: Mapping[str, str]) -> FailureReason:
        """Rewire a node by its parameters, all or none. Return why that failed, or "".

        Args:
            node: Full name of the node.
            changes: New values by parameter name, such as `sources.imu.topic` (see
                `Wiring.rewirable_settings`).

        Raises:
            TimeoutError: The node is not there or does not answer.
        """
        client = self._wait_for_parameter_client(node)
        listed = call_until_answered(
            self._caller,
            lambda: client.list_parameters(list(PREFIXES), 0),
            self._compute_deadline_s(),
        )
        for key in changes:
            if key not in listed.result.names:
                return f"it has no {_describe_unknown_wiring_parameter(key, listed.result.names)}"
        return self._set_parameters(client, changes)

    def _wait_for_parameter_client(self, node: str) -> AsyncParameterClient:
        """Wait until a node's parameter services are there, and return a client of them.

        Raises:
            TimeoutError: They do not appear in time.
        """
        client = AsyncParameterClient(self._caller, node)
        if not client.wait_for_services(timeout_sec=self._timeout_s):
            raise TimeoutError
        return client

    def _set_parameters(
        self, client: AsyncParameterClient, values: Mapping[str, Any]
    ) -> FailureReason:
        """Set parameters, all or none. Return why that failed, or "".

        Args:
            client: The client of the node's parameters.
            values: The new values by parameter name.

        Raises:
            TimeoutError: The node does not answer.
        """
        changes = [Parameter(name, value=value) for name, value in values.items()]
        answer = call_until_answered(
            self._caller,
            lambda: client.set_parameters_atomically(changes),
            self._compute_deadline_s(),
        )
        return "" if answer.result.successful else str(answer.result.reason or "refused")

    def iterate_statuses(self, node: str) -> Iterator[NodeStatus]:
        """Yield a node's status each time that it publishes diagnostics, once a second.

        If a node sends no diagnostics within `timeout_s`, for example because it is not configured,
        a status with only the node's lifecycle state is yielded.

        Raises:
            TimeoutError: The node is not there or does not answer.
        """
        newest: list[DiagnosticArray] = []

        def store_if_from_node(message: DiagnosticArray) -> None:
            if any(one.name.startswith(f"{node}: ") for one in message.status):
                newest[:] = [message]

        self._caller.create_subscription(DiagnosticArray, "/diagnostics", store_if_from_node, 10)
        while True:
            status = NodeStatus(node, self.read_state(node))
            newest.clear()
            wait_s = self._timeout_s if status.state in ("active", "inactive") else 1.0
            until_s = time.monotonic() + wait_s
            while not newest and time.monotonic() < until_s:
                rclpy.spin_once(self._caller, timeout_sec=SLICE_S)
            if newest:
                status.parts = [
                    PartStatus(
                        one.name.removeprefix(f"{node}: "),
                        LEVELS.get(one.level, "unknown"),
                        one.message,
                        {pair.key: pair.value for pair in one.values},
                    )
                    for one in newest[0].status
                    if one.name.startswith(f"{node}: ")
                ]
            yield status

    def _compute_deadline_s(self) -> float:
        return time.monotonic() + self._timeout_s

    def _wait_for_service_and_get_client(self, type_: Any, name: str) -> Any:
        """Wait until a service is there, and return a client of it, the same at each call.

        Raises:
            TimeoutError: The service does not appear in time.
        """
        client = self._clients.get(name)
        if client is None:
            client = self._clients[name] = self._caller.create_client(type_, name)
        if not client.wait_for_service(timeout_sec=self._timeout_s):
            raise TimeoutError
        return client

    def _request_transition(self, node: str, transition: int) -> bool:
        """Request a lifecycle transition only once. Return whether it succeeded.

        While there is no answer, which may be lost, the node's state is read again and again: it
        shows whether the transition succeeded.

        Args:
            node: Full name of the node.
            transition: The id of the transition.

        Raises:
            TimeoutError: The node does not answer, and its state does not show that the transition
                succeeded.
        """
        client = self._wait_for_service_and_get_client(ChangeState, f"{node}/change_state")
        states = self._wait_for_service_and_get_client(GetState, f"{node}/get_state")
        request = ChangeState.Request(transition=Transition(id=transition))
        future, until_s = client.call_async(request), self._compute_deadline_s()
        while time.monotonic() < until_s:
            rclpy.spin_until_future_complete(self._caller, future, timeout_sec=1.0)
            if future.done():
                return bool(future.result().success)
            asked = states.call_async(GetState.Request())
            rclpy.spin_until_future_complete(self._caller, asked, timeout_sec=1.0)
            if asked.done() and asked.result().current_state.id == AFTER[transition]:
                return True
        raise TimeoutError


@contextmanager
def create_operator(timeout_s: float) -> Iterator[Operator]:
    """Yield an operator that waits up to `timeout_s` seconds for each answer."""
    with create_temporary_node("an_control_operator") as caller:
        yield Operator(caller, timeout_s)


ANSWER_S = 1.0
"""Seconds after which a call is repeated, because the first answer of a newly discovered node may
be lost."""


def _describe_unknown_wiring_parameter(key: str, names: list[str]) -> str:
    """Return the end of an error text about a wiring parameter that a node does not have.

    The text names the source or channel in the parameter's name, and the sources or channels that
    the node does have.

    Args:
        key: The parameter, such as `sources.imu.topic`.
        names: All parameters of the node that belong to its wiring.
    """
    kind, _, rest = key.partition(".")
    name = rest.rpartition(".")[0]
    there = (one.partition(".")[2].rpartition(".")[0] for one in names if one.startswith(kind))
    present = ", ".join(sorted(set(there))) or "none: is it configured?"
    return f"{kind.removesuffix('s')} {name!r}; it has {present}"


def call_until_answered(caller: Node, call: Callable[[], Future[Any]], deadline_s: float) -> Any:
    """Call a service until it answers, and return the answer.

    Args:
        caller: The node that calls.
        call: Sends the request and returns the Future of the answer. It is called again after each
            second (`ANSWER_S`) without an answer.
        deadline_s: The time at which to stop waiting, in seconds by the steady clock.

    Raises:
        TimeoutError: There is no answer before the deadline.
    """
    while (left_s := deadline_s - time.monotonic()) > 0.0:
        future = call()
        rclpy.spin_until_future_complete(caller, future, timeout_sec=min(ANSWER_S, left_s))
        if future.done():
            return future.result()
    raise TimeoutError
