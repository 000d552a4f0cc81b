"""Move the actuators of a running robot one at a time over ROS 2, and record what happens.

The commands take the same way as a policy's: the safety gate limits them, and the watchdog sends
the safe command if this process hangs. The node offers the e-stop of a policy node, by service and
by topic, so that `an-control estop` stops it. The last command is always the safe one.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.qos import QoSProfile, ReliabilityPolicy
from std_msgs.msg import Bool
from std_srvs.srv import Trigger

from an_control.commissioning.motion.plan import MotionPlan
from an_control.commissioning.motion.run import MotionRun
from an_control.control.command_safety import Watchdog
from an_control.record.layout import CommandKind
from an_control.ros.control_loop import TRIP_PERIODS
from an_control.ros.graph import UNKNOWN, describe_incompatible_subscriptions, get_owner_node_name
from an_control.ros.inputs import Inputs
from an_control.ros.outputs import COMMAND_QOS, CommandOutput
from an_control.ros.temporary_node import DISCOVERY_S, create_temporary_node

NODE = "an_control_motion"
SETTLE_S = 1.0
"""Seconds for which other publishers are looked for after the robot has been found."""
LOOK_S = 0.5
"""Seconds between two looks for other publishers while the robot moves."""
SLICE_S = 0.05


class MotionRefusedError(RuntimeError):
    """Error for a robot that must not be moved now; nothing was sent."""


def move_live_robot(run: MotionRun, namespace: str, confirm: Callable[[MotionPlan], bool]) -> None:
    """Move the actuators of a running robot one after another over ROS 2, and record its readings.

    SIGINT, SIGTERM and SIGHUP stop the motion.

    Args:
        run: The run, which computes the commands and records the readings.
        namespace: The robot's namespace.
        confirm: Function that is called with the plan once the robot is found, to ask the user;
            returns whether the robot shall move.

    Raises:
        MotionRefusedError: The robot was not moved: another node commands it, nobody hears the
            commands, its sensors send nothing, or `confirm` has returned False.
        WiringError: A message type does not fit.
        ValueError: The namespace is not valid.
    """
    with create_temporary_node(NODE, namespace) as node:
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        try:
            _LiveMotion(run, node, executor).move(confirm)
        finally:
            executor.remove_node(node)
            executor.shutdown()


class _LiveMotion:
    """The ROS side of a motion of a running robot: topics, e-stop and commands.

    Args:
        run: The run of the motion.
        node: The node that commands the robot.
        executor: The executor that runs the node.
    """

    def __init__(self, run: MotionRun, node: Node, executor: SingleThreadedExecutor) -> None:
        self._run, self._node, self._executor = run, node, executor
        self._topics = [one.topic for one in run.wiring.command.messages]
        self._send_safe_now: Callable[[], bool] = lambda: False

    def move(self, confirm: Callable[[MotionPlan], bool]) -> None:
        """Find the robot, ask whether to move it, and move it; see `move_live_robot`.

        The last command is the safe one.
        """
        run = self._run
        inputs = Inputs(
            self._node, run.table, time.monotonic_ns, lambda *_: None, 1, with_message_info=True
        )
        try:
            self._offer_estop()
            self._wait_for_robot()
            if not confirm(self._wait_for_plan()):
                raise MotionRefusedError("the robot was not moved")
            self._spin_until(time.monotonic() + SLICE_S)
            self._refuse_other_publishers()
            run.forget_plan()  # the robot may have been moved by hand before the answer
            self._wait_for_plan()
            with _stop_on_signal(run):
                self._command_robot()
        finally:
            inputs.close()

    def _wait_for_robot(self) -> None:
        """Wait until the sensor topics have publishers and the command topics have subscribers.

        Raise MotionRefusedError if nobody takes the commands, or another node publishes some.
        """
        node, until_s = self._node, time.monotonic() + DISCOVERY_S
        sources = [one.topic for one in self._run.wiring.sources]
        while time.monotonic() < until_s and not (
            all(map(node.count_publishers, sources))
            and all(map(node.count_subscribers, self._topics))
        ):
            self._executor.spin_once(timeout_sec=SLICE_S)
        self._spin_until(time.monotonic() + SETTLE_S)
        if node.count_publishers("/clock"):  # a simulated robot, which would not know our stamps
            node.set_parameters([Parameter("use_sim_time", value=True)])
        self._refuse_other_publishers()
        for message in self._run.wiring.command.messages:
            infos = node.get_subscriptions_info_by_topic(message.topic)
            name = node.resolve_topic_name(message.topic)
            if unheard := describe_incompatible_subscriptions(
                infos, name, message.type, COMMAND_QOS
            ):
                raise MotionRefusedError(unheard)

    def _wait_for_plan(self) -> MotionPlan:
        """Read the sensors until the motion can be planned, and return the plan.

        Raise MotionRefusedError if needed readings are missing for too long.
        """
        run = self._run
        while run.plan is None:
            self._spin_until(time.monotonic() + run.step_s)
            run.plan_motion_if_readings_complete(time.monotonic_ns())
            if run.stopped:
                raise MotionRefusedError(run.stopped)
        return run.plan

    def _command_robot(self) -> None:
        """Send the commands of the whole motion, then the safe command, beside a watchdog."""
        run, node = self._run, self._node
        with ExitStack() as opened:
            output = CommandOutput(
                node, run.wiring.command, run.messages, run.gate.last, time.monotonic_ns,
                shadow=False,
            )  # fmt: skip
            opened.callback(output.close)
            output.start_publishing(shadow=False)

            def send_safe() -> bool:
                """Send the safe command; return whether that was possible."""
                with output.lock:
                    return output.send(
                        run.gate.safe_command(), self._get_stamp_ns(), CommandKind.WATCHDOG
                    )

            def send_last() -> None:
                """Send the safe command as the last one."""
                with output.lock:
                    output.send(
                        run.make_final_safe_command(), self._get_stamp_ns(), CommandKind.STOP
                    )

            self._send_safe_now = send_safe
            timeout_s = TRIP_PERIODS * run.step_s
            watchdog = Watchdog(send_safe, run.step_s, timeout_s, run.estop)
            opened.callback(send_last)
            opened.callback(watchdog.stop)
            watchdog.start()
            self._tick_until_over(output, watchdog)

    def _tick_until_over(self, output: CommandOutput, watchdog: Watchdog) -> None:
        """Read and send a command in each control period until the motion is over.

        The motion is stopped if another node publishes commands.
        """
        run = self._run
        next_s = time.monotonic()
        look_s = next_s + LOOK_S
        while not run.is_over:
            self._spin_until(next_s)
            next_s = max(next_s + run.step_s, time.monotonic())
            run.start_tick(time.monotonic_ns(), None)
            if time.monotonic() >= look_s:
                look_s = time.monotonic() + LOOK_S
                if others := self._describe_other_publishers():
                    run.stop_early(others)
            if run.is_over:
                break
            with output.lock:
                command = run.compute_command(time.monotonic_ns())
                sent = output.send(command, self._get_stamp_ns(), CommandKind.POLICY)
            if sent:
                watchdog.record_command(time.monotonic())

    def _get_stamp_ns(self) -> int:
        """Return the present time by the node's clock, for the stamp of a command."""
        return int(self._node.get_clock().now().nanoseconds)

    def _spin_until(self, until_s: float) -> None:
        """Receive messages until a time of the steady clock, then a waiting one of each source."""
        while (left_s := until_s - time.monotonic()) > 0.0 and not self._run.stopped:
            self._executor.spin_once(timeout_sec=min(SLICE_S, left_s))
        for _ in self._run.wiring.sources:
            self._executor.spin_once(timeout_sec=0.0)

    def _refuse_other_publishers(self) -> None:
        """Raise MotionRefusedError if another node publishes commands."""
        if others := self._describe_other_publishers():
            raise MotionRefusedError(others)

    def _describe_other_publishers(self) -> str:
        """Return as text which other nodes publish on a command topic, "" if none does."""
        own = f"{self._node.get_namespace().rstrip('/')}/{self._node.get_name()}"
        for topic in self._topics:
            infos = self._node.get_publishers_info_by_topic(topic)
            others = sorted({get_owner_node_name(one) for one in infos} - {own, UNKNOWN})
            if others:
                return (
                    f"{', '.join(others)} commands {self._node.resolve_topic_name(topic)}:"
                    " stop it first (a policy node: an-control deactivate, or shadow on)"
                )
        return ""

    def _offer_estop(self) -> None:
        """Create the services and subscriptions by which `an-control estop` stops the robot."""
        node = self._node
        node.create_service(Trigger, "~/estop", self._on_estop)
        node.create_service(Trigger, "~/reset_estop", self._on_reset)
        for reliability in ReliabilityPolicy.RELIABLE, ReliabilityPolicy.BEST_EFFORT:
            qos = QoSProfile(depth=10, reliability=reliability)
            node.create_subscription(Bool, "~/estop", self._on_estop_topic, qos)

    def _on_estop(self, _: Any, response: Any) -> Any:
        """Set the e-stop on request of a client."""
        self._set_estop("by service")
        response.success = True
        return response

    def _on_estop_topic(self, message: Bool) -> None:
        """Set the e-stop if the message holds true."""
        if message.data:
            self._set_estop("by topic")

    def _set_estop(self, reason: str) -> None:
        """Set the e-stop, and send the safe command at once."""
        if self._run.estop.latch(f"e-stop {reason}"):
            self._run.stop_early(self._run.estop.reason)
            self._send_safe_now()

    def _on_reset(self, _: Any, response: Any) -> Any:
        """Refuse a request to reset the e-stop, because the motion has ended for good."""
        response.success, response.message = False, "the motion has ended; start it again"
        return response


@contextmanager
def _stop_on_signal(run: MotionRun) -> Iterator[None]:
    """Return a context in which SIGINT, SIGTERM and SIGHUP stop a motion.

    It must be entered on the main thread.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        """Stop the motion, with the signal's name as the reason."""
        run.stop_early(f"stopped by {signal.Signals(number).name}")

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, stop) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
