"""Serves a simulated robot over ROS 2, in lockstep (request and reply) or in real time.

In lockstep all messages of a step have the same time stamp, and the command that answers them
repeats it. The environment makes the step when that command has arrived (see `Exchange`). If it
does not arrive in time, the safe command is applied instead. Stamps grow by the step length over
the whole run and start at the current second of the wall clock, so that no stamp occurs twice, even
after a restart. Everything runs on one thread, and every wait uses the steady clock, never the ROS
time that this node itself publishes.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rclpy.clock import Clock as SteadyClock
from rclpy.clock import ClockType
from rclpy.node import Node

from an_control_sim.bridge.exchange import Exchange
from an_control_sim.bridge.policy_link import (
    ALONE_S,
    CALL_S,
    START_S,
    BridgeError,
    DiagnosticsReader,
    PolicyDiagnostics,
    PolicyLink,
    ProgressTopic,
    describe_other_publishers,
)
from an_control_sim.bridge.robot import SimulatedRobot
from an_control_sim.bridge.run_control import RunControl, StopRequestedError
from an_control_sim.bridge.step_outputs import StepOutputs
from an_control_sim.process import RELIABLE, SLICE_S
from an_control_sim.scrambler.scrambler import Scrambler

RIVAL_CHECK_S = 1.0
"""Seconds between two checks for other nodes that publish the same topics."""
MAX_COMMAND_STEPS = 5
"""In real time, number of steps after which a command is too old to be applied."""
MIN_SPIN_SHARE = 0.1
"""In real time, the share of a step for which messages are processed even if the physics is slower
than real time; otherwise no command would ever arrive."""
MAX_STAMP_LAG_NS = 100_000_000
"""In real time, the maximum nanoseconds by which a stamp may lag behind the clock. If a stamp would
lag more, because the process paused or the machine was busy, it jumps ahead to this limit."""


class Bridge:
    """A server that connects a simulated robot to ROS 2: publishes readings and applies commands.

    The node must belong to the bridge alone. Topics without subscribers are not published.

    Args:
        node: The simulator's ROS node, on which publishers, subscriptions and services are created.
        robot: The simulated robot.
        tap: The scrambler, if it runs in this process. It gets every sensor message directly,
            disturbs the readings and publishes them on a topic of its own. None for no disturbance.
        policy: The name of the policy node, whose service `reset_state` is called before each
            episode. "" means that any node may send commands, and that no service is called.
        realtime: False for lockstep, in which each step waits for the command that answers its
            readings. True to step at the pace of the clock, with the newest command received.
        command_timeout_s: In lockstep, how many seconds a step waits for its command; None: 1. In
            real time, the age in seconds at which a command is too old; None: five steps. A step
            without a valid command applies the robot's safe command.
        start_timeout_s: Seconds to wait for the policy node at the start, and again if it stops
            answering, before a BridgeError is raised.
        camera_hz: Camera pictures per simulated second; 0 for none.
    """

    def __init__(
        self,
        node: Node,
        robot: SimulatedRobot,
        *,
        tap: Scrambler | None = None,
        policy: str = "policy",
        realtime: bool = False,
        command_timeout_s: float | None = None,
        start_timeout_s: float = START_S,
        camera_hz: float = 0.0,
    ) -> None:
        self.node, self.robot, self.tap = node, robot, tap
        self._realtime = realtime
        if command_timeout_s is None:
            command_timeout_s = MAX_COMMAND_STEPS * robot.simulation.step_s if realtime else 1.0
        self._command_timeout_s, self._start_timeout_s = command_timeout_s, start_timeout_s
        self._stamp_ns = int(time.time()) * 1_000_000_000
        self._heard_s = -np.inf
        self._started = self._latched = False
        self._refusal = ""
        self.timeouts = 0
        """Number of steps, since this object was made, in which the safe command was applied."""
        self.latency_s: list[float] = []
        """In lockstep, seconds from the first publishing of each step to its command; the caller
        clears it."""
        self._rivals = ""
        self.run = RunControl(node)
        self._create_topics_and_policy_link(policy, camera_hz)

    def _create_topics_and_policy_link(self, policy: str, camera_hz: float) -> None:
        """Create the publishers, command subscriptions and the connection to the policy node."""
        node, simulation = self.node, self.robot.simulation
        self._outputs = StepOutputs(node, self.robot, self.tap, camera_hz)
        self._commands = [
            node.create_subscription(cls, topic, partial(self._on_command, number), RELIABLE)
            for number, (topic, cls) in enumerate(self.robot.commands.topics_and_message_classes)
        ]
        self.exchange = Exchange(
            [one.topic_name for one in self._commands],
            self.robot.commands.topics_have_stamps,
            self._outputs.publish_messages,
            self.run.spin_if_time_is_left,
            self._command_timeout_s,
            lambda text: node.get_logger().warning(text),
        )
        steady = SteadyClock(clock_type=ClockType.STEADY_TIME)
        node.create_timer(RIVAL_CHECK_S, self._update_warning_about_other_publishers, clock=steady)
        self._link = PolicyLink(
            node,
            policy,
            tuple(simulation.command.topic_keys),
            self.run.spin_if_time_is_left,
            self._start_timeout_s,
        )
        self._figures = DiagnosticsReader(node, self._link.policy_name) if policy else None
        self._progress = ProgressTopic(node)

    # A run is one start, then a reset and steps for each episode. All of these methods may raise
    # StopRequestedError and BridgeError.

    def wait_for_policy(self) -> None:
        """Wait until the policy node is active and connected; call this once, before all episodes.

        This also waits, for up to `ALONE_S` seconds, until no other simulator publishes the same
        topics. In real time with `policy=""`, it does not wait for a policy node.

        Raises:
            BridgeError: The policy node does not connect in time, it does not subscribe to the
                topic with the disturbed readings, or another simulator still publishes.
        """
        self._wait_for_other_simulators_to_end()
        if self._link.is_policy_name_known or not self._realtime:
            self._link.wait_until_connected(
                set(self._outputs.reading_topics), shadow=self._realtime
            )
            self._wait_for_other_simulators_to_end()
        if self.tap is not None:
            self._link.check_policy_subscribes(self.tap.topic)
        self._started = True

    def start_episode(self, seed: int, episode: int) -> None:
        """Start an episode: reset the environment, the policy's state and the scrambler, if any.

        Args:
            seed: The seed of the environment.
            episode: The index of the episode, which determines how the scrambler disturbs it.
        """
        self.run.mark_episode_end()
        if not self._realtime:
            self.exchange.wait_for_commands_of_previous_episode()
        if self._latched:  # the previous episode ended during a stop
            self.set_estop(False)
        self.robot.reset(seed)
        if self.tap is not None:
            self.tap.start_episode(episode)
        self.robot.commands.clear_commands()
        self._count = 0
        self._progress.start_episode(episode)
        self._link.reset_policy()
        self._next_s = self._heard_s = time.monotonic()
        self.run.mark_episode_start()

    def step(self) -> None:
        """Publish the robot's readings, get the policy's command, and advance the robot by a step.

        In lockstep this waits for the command that answers these readings. In real time it waits
        until the end of the step and takes the newest command. If no command arrives in time, the
        robot's safe command is applied. While a client has paused the run, this waits before it
        publishes.

        Raises:
            RestartRequestedError: A client called the service `~/reset`.
            BridgeError: The policy has stopped answering.
        """
        if self.run.wait_while_paused_and_return_whether_waited():
            self._next_s = self._heard_s = time.monotonic()
        self._stamp_ns += self.robot.simulation.step_ns
        if self._realtime:
            self._stamp_ns = max(self._stamp_ns, time.time_ns() - MAX_STAMP_LAG_NS)
        self._outputs.fill_sensor_messages(self._count, self._stamp_ns)
        commands = (
            self._publish_readings_and_get_command_at_step_end()
            if self._realtime
            else self._publish_readings_and_wait_for_command()
        )
        if commands is None:
            self.timeouts += 1
            commands = self.robot.commands.safe
        self.robot.step(commands)
        self._count += 1
        self._progress.publish_progress(self._count, self.robot, self._stamp_ns)
        self.run.answer_pause_and_step_requests()

    def end_episode(self) -> None:
        """End the episode; in lockstep, wait a short time for late commands without a time stamp.

        Call it after the last step of each episode. It adds to `exchange.unmatched` the number of
        commands without a stamp that no step was waiting for, or that never came. Nothing tells to
        which steps such commands belong. So if the number is not 0, steps of this episode may have
        used the commands of other steps. Commands with a stamp are neither waited for nor counted.
        """
        self.run.mark_episode_end()
        with suppress(StopRequestedError):  # the episode is complete anyway
            if not self._realtime:
                self.exchange.wait_and_count_late_commands()

    def set_estop(self, latch: bool) -> None:
        """Set or clear the policy node's emergency stop (e-stop).

        Call `wait_for_estop` once before, so that the node's e-stop services exist.

        Args:
            latch: True to set the e-stop, False to clear it.
        """
        self._latched = latch
        self._link.set_estop(latch, wait_for_answer=not self._realtime)

    def wait_for_estop(self) -> None:
        """Wait until the policy node offers the services for its emergency stop (e-stop).

        Call this once before `set_estop`.

        Raises:
            BridgeError: The policy node does not offer them in time.
        """
        self._link.wait_for_estop()

    def read_diagnostics(self) -> PolicyDiagnostics | None:
        """Return the newest diagnostics of the policy node; call this when all episodes have ended.

        This waits a few seconds for a message if none has arrived yet.

        Returns:
            The diagnostics. None if the bridge was made without a policy name, if the node
            publishes none, or if `run.stop` is called during the wait.
        """
        self.run.mark_episode_end()
        try:
            return (
                None
                if self._figures is None
                else self._figures.read_diagnostics(self.run.spin_if_time_is_left)
            )
        except StopRequestedError:
            return None

    def close(self) -> None:
        """Close the robot, after clearing the policy's e-stop and answering pending service calls.

        The node's messages are no longer processed afterwards, but the node is not destroyed.
        """
        cleared = self._link.request_estop(False) if self._latched else None
        until_s = time.monotonic() + CALL_S
        while cleared is not None and not cleared.done() and time.monotonic() < until_s:
            self.run.executor.spin_once(timeout_sec=SLICE_S)
        self.run.close()
        self.robot.close()

    # Others

    def _wait_for_other_simulators_to_end(self) -> None:
        """Wait until no other simulator publishes on this bridge's topics."""
        patience_s = min(ALONE_S, self._start_timeout_s)
        until_s = time.monotonic() + patience_s
        self._update_warning_about_other_publishers()
        if self._rivals:
            self.node.get_logger().warning(
                f"waiting up to {patience_s:g} s for another simulator to end"
            )
        while self._rivals:
            if not self.run.spin_if_time_is_left(until_s):
                raise BridgeError(self._rivals)
            self._update_warning_about_other_publishers()

    def _update_warning_about_other_publishers(self) -> None:
        """Store a warning that names the other nodes which publish on this bridge's topics.

        The stored text is "" if there are none. Once the policy is connected, a text that differs
        from the previous one is logged as an error.
        """
        rivals = describe_other_publishers(self.node, self._outputs.exclusively_published_topics)
        if rivals and rivals != self._rivals and self._started:
            self.node.get_logger().error(rivals)
        self._rivals = rivals

    # Commands

    def _publish_readings_and_wait_for_command(self) -> NDArray[np.float64] | None:
        """Publish the readings of a step in lockstep; return the command that answers, or None.

        It is None after the timeout. If the disturbance drops the message of this step, there is no
        answer. The previous command is then returned again, or the safe command while the e-stop is
        set.
        """
        commands = self.robot.commands
        if self.tap is not None and self.tap.is_message_dropped:
            self._outputs.publish_messages()
            return commands.safe if self._latched else commands.newest_command
        commands.clear_commands()
        took_s = self.exchange.publish_readings_and_measure_latency_s(
            self._stamp_ns, lambda: commands.newest_command is not None
        )
        if took_s is not None:
            self._heard_s = time.monotonic()
            self.latency_s.append(took_s)
            return commands.newest_command
        if time.monotonic() - self._heard_s > self._start_timeout_s:
            topics = ", ".join(one.topic_name for one in self._commands)
            raise BridgeError(
                f"no command on {topics} for {self._start_timeout_s:g} s: "
                f"is {self._link.policy_name} still active?"
            )
        return None

    def _publish_readings_and_get_command_at_step_end(self) -> NDArray[np.float64] | None:
        """Publish a step's readings in real time; return the newest command at the step's end.

        It is None if it is too old.
        """
        self._outputs.publish_messages()
        now, step_s = time.monotonic(), self.robot.simulation.step_s
        self._next_s = max(self._next_s + step_s, now)
        until_s = max(self._next_s, now + MIN_SPIN_SHARE * step_s)
        while self.run.spin_if_time_is_left(until_s):
            pass
        commands = self.robot.commands
        age_s = time.monotonic() - commands.last_command_time_s
        return commands.newest_command if age_s <= self._command_timeout_s else None

    def _on_command(self, topic_index: int, message: Any) -> None:
        """Store the commands in a message that has arrived; log the reason if it is refused.

        In lockstep a message that does not answer the current step is ignored.
        """
        stamp_ns = self.robot.commands.read_stamp_ns(message, topic_index)
        if not (
            self._realtime or self.exchange.count_message_and_check_if_answer(topic_index, stamp_ns)
        ):
            return
        try:
            self.robot.commands.store_commands(message, time.monotonic(), topic_index)
            refusal = ""
        except ValueError as error:
            refusal = str(error)
        if refusal and refusal != self._refusal:
            topic = self._commands[topic_index].topic_name
            self.node.get_logger().warning(f"command refused on {topic}: {refusal}")
        self._refusal = refusal
