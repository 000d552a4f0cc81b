"""The simulator's connection to a policy node, except for sensor readings and commands.

It waits until the node is active and connected, resets it, uses its e-stop, reads its /diagnostics,
and publishes the topic `~/progress` about the current episode.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.node import Node, NodeNameNonExistentError
from rclpy.task import Future
from sensor_msgs.msg import JointState
from std_srvs.srv import Trigger

from an_control.ros.graph import UNKNOWN, get_owner_node_name
from an_control.ros.outputs import set_stamp
from an_control_sim.bridge.robot import SimulatedRobot
from an_control_sim.process import RELIABLE

CALL_S, RETRY_S, SETTLE_S = 2.0, 0.1, 0.3
"""Maximum seconds of a service call, the pause before the next call, and how long the ROS graph
must be unchanged to count as complete."""
DISCOVERY_S, ALONE_S, LOOK_S = 1.0, 30.0, 0.05
"""Seconds within which another simulator is discovered, seconds that it is given to end, and the
pause between two checks."""
START_S = 120.0
"""Seconds for the policy node to start; compiling its code for the first time takes a minute on a
busy machine."""
PAIR_START_S = 300.0
"""The same if both nodes are started as a pair, so that an end of the policy node is noticed."""
COMMAND_S, SOURCES_S = 10.0, 5.0
"""In lockstep, seconds to wait for a command and for all sources if both nodes are started as a
pair. They are long so that an episode depends only on its seed, even on a busy machine."""

Spin = Callable[[float], bool]
"""A function that processes ROS messages. It gets a time of `time.monotonic()` in seconds, at which
it must stop; it may return earlier. It returns False if that time has passed."""


class BridgeError(RuntimeError):
    """An error that ends a run: of the policy node, the environment, or another simulator.

    The policy node does not answer, the environment fails, or another simulator publishes on the
    same topics.

    Attributes:
        finished: The results of the episodes that had ended before the error.
    """

    finished: Sequence[Any] = ()


class PolicyLink:
    """The simulator's connection to the policy node: discovery, reset and e-stop.

    Args:
        node: The simulator's node.
        policy: The name of the policy node; "" for any node that publishes commands.
        command_topics: The names of the command topics.
        spin: Function that processes ROS messages for a while, given the time at which to stop
            (`time.monotonic()` in seconds). It returns False once this time has passed.
        timeout_s: The maximum seconds of each wait.
    """

    def __init__(
        self, node: Node, policy: str, command_topics: Collection[str], spin: Spin, timeout_s: float
    ) -> None:
        self._node, self._spin, self._timeout_s = node, spin, timeout_s
        self._command_topics = [node.resolve_topic_name(topic) for topic in command_topics]
        self._client: Any = None
        self._service = ""
        self._estops: dict[bool, Any] = {}
        if policy:
            self._service = node.resolve_service_name(f"{policy}/reset_state")
            self._client = node.create_client(Trigger, self._service)
            for latch, service in ((True, "estop"), (False, "reset_estop")):
                self._estops[latch] = node.create_client(
                    Trigger, node.resolve_service_name(f"{policy}/{service}")
                )
        self._seen: set[str] = set()
        self._settled_s = float("inf")

    @property
    def is_policy_name_known(self) -> bool:
        """Whether the name of the policy node is known, so that its services can be called."""
        return self._client is not None

    @property
    def policy_name(self) -> str:
        """The policy node's full name, or the text "a policy" if it is not known."""
        return self._service.removesuffix("/reset_state") or "a policy"

    def wait_until_connected(self, sensor_topics: Collection[str], *, shadow: bool) -> None:
        """Wait until the policy node is active, publishes commands and subscribes to readings.

        Args:
            sensor_topics: The topics of the readings, one of which must have a subscriber.
            shadow: True to accept a node in shadow mode too, which sends no commands to the robot.

        Raises:
            BridgeError: The policy did not connect in time.
        """
        until_s = time.monotonic() + self._timeout_s
        self._node.get_logger().info(f"waiting for {self.policy_name}, up to {self._timeout_s:g} s")
        self.reset_policy()
        while not self._is_connected(sensor_topics, shadow=shadow):
            if not self._spin(until_s):
                raise BridgeError(
                    f"{self.policy_name} did not connect within {self._timeout_s:g} s: it must"
                    f" publish {', '.join(self._command_topics)} and subscribe to one of "
                    f"{', '.join(sorted(sensor_topics))}"
                )

    def check_policy_subscribes(self, topic: str) -> None:
        """Check that the policy subscribes to a topic.

        If the name of the policy node is not known, a subscription of any node is enough.

        Args:
            topic: The full name of the topic.

        Raises:
            BridgeError: There is no such subscription.
        """
        if self.is_policy_name_known:
            read, who = topic in self._find_topics_subscribed_by_policy(), self.policy_name
        else:
            until_s, who = time.monotonic() + self._timeout_s, "nobody"
            while not self._node.count_subscribers(topic) and self._spin(until_s):
                pass
            read = self._node.count_subscribers(topic) > 0
        if not read:
            does = "does not read" if self.is_policy_name_known else "reads"
            raise BridgeError(
                f"{who} {does} {topic}, so nothing would be disturbed: run the policy with a wiring"
                f" whose sources read {topic}, as `an-control sim` and sim.launch.py do"
            )

    def reset_policy(self) -> None:
        """Reset the policy's state by calling its service reset_state until a call succeeds.

        A call succeeds only while the policy node is active. If the name of the node is not known,
        this does nothing.

        Raises:
            BridgeError: No call succeeded in time.
        """
        until_s, answer = time.monotonic() + self._timeout_s, "there is no such service"
        while self._client is not None:
            if self._client.service_is_ready():
                answer = self._call_reset_state_and_get_failure(until_s)
                if not answer:
                    return
            again_s = min(until_s, time.monotonic() + RETRY_S)
            while self._spin(again_s):
                pass
            if time.monotonic() >= until_s:
                raise BridgeError(
                    f"no success within {self._timeout_s:g} s from {self._service}: {answer}"
                )

    def wait_for_estop(self) -> None:
        """Wait until the policy offers the services that `set_estop` needs.

        Raises:
            BridgeError: The policy does not offer them in time.
        """
        until_s = time.monotonic() + self._timeout_s
        while not (self._estops and all(one.service_is_ready() for one in self._estops.values())):
            if not self._spin(until_s):
                raise BridgeError(
                    f"{self.policy_name} did not offer its e-stop within {self._timeout_s:g} s"
                )

    def set_estop(self, latch: bool, *, wait_for_answer: bool) -> None:
        """Request that the policy node set or clear its e-stop.

        Args:
            latch: True to set the e-stop, False to clear it.
            wait_for_answer: Whether to wait until the policy node has answered the request.

        Raises:
            BridgeError: The answer did not arrive in time.
        """
        future = self.request_estop(latch)
        until_s = time.monotonic() + self._timeout_s
        while wait_for_answer and not future.done():
            if not self._spin(until_s):
                raise BridgeError(f"{self.policy_name} does not answer the e-stop")

    def request_estop(self, latch: bool) -> Future[Any]:
        """Call the service that sets or clears the e-stop, and return the Future of the answer.

        Args:
            latch: True to set the e-stop, False to clear it.
        """
        answer: Future[Any] = self._estops[latch].call_async(Trigger.Request())
        return answer

    def _call_reset_state_and_get_failure(self, until_s: float) -> str:
        """Call the policy's service reset_state once; return why it failed, "" if it did not."""
        future = self._client.call_async(Trigger.Request())
        patience_s = min(until_s, time.monotonic() + CALL_S)
        while not future.done() and self._spin(patience_s):
            pass
        if not future.done():
            self._client.remove_pending_request(future)
            return "it does not reply"
        response = future.result()
        return "" if response.success else f"it replied {response.message!r}"

    def _is_connected(self, sensor_topics: Collection[str], *, shadow: bool) -> bool:
        """Return whether the policy publishes commands and gets readings, as far as ROS knows.

        If the name of the policy node is known, its list of subscriptions must also have stayed
        unchanged for `SETTLE_S` seconds: ROS discovers a node's subscriptions one by one. For the
        readings a subscriber of any name is enough, because a scrambler may read them in place of
        the policy. In shadow mode, if accepted, a node subscribes to the command topic instead of
        publishing on it.
        """
        topics = self._find_topics_subscribed_by_policy()
        ready = all(
            self._node.count_publishers(topic) or (shadow and topic in topics)
            for topic in self._command_topics
        )
        if self._client is None:
            return ready
        offered = [one for one in self._node.publishers if one.topic_name in topics]
        sensors = [one for one in self._node.publishers if one.topic_name in sensor_topics]
        ready = ready and all(one.get_subscription_count() for one in offered)
        ready = ready and any(one.get_subscription_count() for one in sensors)
        if not ready or topics != self._seen:
            self._seen, self._settled_s = topics, time.monotonic() + SETTLE_S
        return time.monotonic() >= self._settled_s

    def _find_topics_subscribed_by_policy(self) -> set[str]:
        """Return the topics that the policy subscribes to, as far as the ROS graph knows them."""
        if self._client is None:
            return set()
        namespace, _, name = self.policy_name.rpartition("/")
        try:
            known = self._node.get_subscriber_names_and_types_by_node(name, namespace or "/")
        except NodeNameNonExistentError:
            return set()
        return {topic for topic, _ in known}


def describe_other_publishers(node: Node, topics: Collection[str]) -> str:
    """Return a text that names other nodes that publish on some topics; "" if there are none.

    A second node with the same name counts as another node. A publisher that ROS has not fully
    discovered yet is left out.

    Args:
        node: The node that should be the only publisher.
        topics: The full names of the topics.
    """
    own, rivals = node.get_fully_qualified_name(), []
    for topic in topics:
        names = [get_owner_node_name(one) for one in node.get_publishers_info_by_topic(topic)]
        if own in names and any(one.topic_name == topic for one in node.publishers):
            names.remove(own)
        others = sorted({*names} - {UNKNOWN})
        if others:
            rivals.append(f"{', '.join(others)} on {topic}")
    if not rivals:
        return ""
    return (
        f"another simulator or sensor publishes what {own} does: {'; '.join(rivals)}; give each"
        " simulator a ROS_DOMAIN_ID of its own, or a namespace and a remapping of /clock"
    )


def wait_until_no_other_simulator(node: Node, is_stopped: Callable[[], bool]) -> None:
    """Wait until no other simulator publishes /clock.

    Call it before a policy node is started, because that node would get the readings of the other
    simulator. A killed simulator stays in the ROS graph for up to 20 s.

    Args:
        node: A node that publishes nothing yet.
        is_stopped: Returns whether the user has stopped the program, which ends the wait.

    Raises:
        BridgeError: The other simulator is still there after `ALONE_S` seconds.
    """
    begin_s, said = time.monotonic(), False
    while not is_stopped():
        rivals, waited_s = describe_other_publishers(node, ["/clock"]), time.monotonic() - begin_s
        if rivals and waited_s > ALONE_S:
            raise BridgeError(rivals)
        if not rivals and waited_s > DISCOVERY_S:
            return
        if rivals and not said:
            said = True
            node.get_logger().warning(f"waiting {ALONE_S:g} s for another simulator to end")
        time.sleep(LOOK_S)


FIRST_DIAGNOSTICS_S = 2.5
"""Seconds to wait for the first diagnostics, which the node sends every second."""


@dataclass(frozen=True)
class PolicyDiagnostics:
    """A policy node's figures about its own timing, from its messages on /diagnostics.

    Attributes:
        ticks: The number of control steps (ticks) since the node was activated.
        missed: The number of ticks that missed their deadline.
        repeats: The number of ticks without a new reading.
        trips: How often the node's watchdog sent the safe command, because the policy's command did
            not come in time.
        longest_s: The longest time in seconds without a command.
        age_p50_ms: The median age, in milliseconds, of the readings when the command was sent.
        age_p99_ms: The 99th percentile of that age.
    """

    ticks: int
    missed: int
    repeats: int
    trips: int
    longest_s: float
    age_p50_ms: float
    age_p99_ms: float

    def format_lines(self) -> list[str]:
        """Format the diagnostics as lines for a terminal."""
        return [
            f"readings  p50 {self.age_p50_ms:.1f} ms, p99 {self.age_p99_ms:.1f} ms old when the"
            " command went out",
            f"ticks     {self.ticks}, {self.missed} missed their deadline, {self.repeats} had no"
            " new reading",
            f"watchdog  {self.trips} trips"
            + (f", at most {1e3 * self.longest_s:.0f} ms without a command" if self.trips else ""),
        ]


class DiagnosticsReader:
    """A subscriber to the diagnostics of one policy node.

    Args:
        node: The node that subscribes.
        policy: The policy node's full name.
    """

    def __init__(self, node: Node, policy: str) -> None:
        self._name = policy
        self._parts: dict[str, dict[str, str]] = {}
        node.create_subscription(DiagnosticArray, "/diagnostics", self._store_diagnostics, RELIABLE)

    def _store_diagnostics(self, message: Any) -> None:
        """Store those values of a diagnostics message that are about the policy node."""
        for status in message.status:
            name, _, part = status.name.partition(": ")
            if name == self._name:
                self._parts[part] = {pair.key: pair.value for pair in status.values}

    def read_diagnostics(self, spin: Callable[[float], bool]) -> PolicyDiagnostics | None:
        """Return the newest diagnostics of the policy node, or None if it publishes none.

        If none have arrived yet, this waits for them for up to `FIRST_DIAGNOSTICS_S` seconds.

        Args:
            spin: Function that processes ROS messages for a while, given the time at which to stop
                (`time.monotonic()` in seconds). It returns False once this time has passed.
        """
        until_s = time.monotonic() + FIRST_DIAGNOSTICS_S
        while not self._parts and spin(until_s):
            pass
        policy, watchdog = (self._parts.get(part) for part in ("policy", "watchdog"))
        if policy is None or watchdog is None:
            return None
        return PolicyDiagnostics(
            ticks=int(policy["ticks"]),
            missed=int(policy["missed deadlines"]),
            repeats=int(policy["ticks without a new reading"]),
            trips=int(watchdog["trips"]),
            longest_s=float(watchdog["longest time without a command [s]"]),
            age_p50_ms=float(policy["age of readings p50 [ms]"]),
            age_p99_ms=float(policy["age of readings p99 [ms]"]),
        )


PROGRESS_NAMES = ("episode", "step", "reward", "return", "distance", "last_return")
"""Names in a progress message, a JointState whose positions are the values. The distance is in m,
and `last_return` is the return of the previous episode. A value that is not known is NaN, such as
the distance of a robot that does not travel, or `last_return` in the first episode."""


class ProgressTopic:
    """A publisher of an episode's step, reward, return and so on, on the topic `~/progress`.

    A message is a JointState whose names are `PROGRESS_NAMES` and whose positions are the values.

    Args:
        node: The simulator's node.
    """

    def __init__(self, node: Node) -> None:
        self._publisher = node.create_publisher(JointState, "~/progress", 10)
        self._message = JointState(name=list(PROGRESS_NAMES))
        self._episode, self._return, self._last_return = -1, 0.0, float("nan")
        self._steps = 0

    def start_episode(self, episode: int) -> None:
        """Start a new episode: set its number of steps and its sum of rewards to 0.

        Args:
            episode: The index of the episode.
        """
        if self._steps:
            self._last_return = self._return
        self._episode, self._return, self._steps = episode, 0.0, 0

    def publish_progress(self, step_count: int, robot: SimulatedRobot, stamp_ns: int) -> None:
        """Add a step's reward to the episode's return, and publish the state of the run.

        Nothing is published if nobody subscribes.

        Args:
            step_count: The number of steps so far in the episode.
            robot: The simulated robot, which knows reward and distance.
            stamp_ns: The stamp of the step.
        """
        self._steps = step_count
        self._return += robot.reward
        if self._publisher.get_subscription_count():
            distance_m = float("nan") if robot.distance_m is None else robot.distance_m
            figures = (
                self._episode, step_count, robot.reward, self._return, distance_m, self._last_return
            )  # fmt: skip
            self._message.position = array("d", map(float, figures))
            set_stamp(self._message.header.stamp, stamp_ns)
            self._publisher.publish(self._message)
