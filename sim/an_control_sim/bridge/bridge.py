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
from an_control_sim.bridge.rehearsal import MessageTap
from an_control_sim.bridge.robot import SimulatedRobot
from an_control_sim.bridge.run_control import RunControl, StopRequestedError
from an_control_sim.bridge.step_outputs import StepOutputs
from an_control_sim.process import RELIABLE, SLICE_S

RIVAL_CHECK_S = 1.0
"""Seconds between two checks for other nodes that publish the same topics."""
MAX_COMMAND_STEPS = 5
"""In real time, number of steps after which a command is too old to be applied."""
MAX_STAMP_LAG_NS = 100_000_000
"""In real time, the maximum nanoseconds by which a stamp may lag behind the clock. If a stamp would
lag more, because the process paused or the machine was busy, it jumps ahead to this limit."""


class Bridge:
    """A server that connects a simulated robot to ROS 2: publishes readings and applies commands.

    The node must belong to the bridge alone. Topics without subscribers are not published.

    Args:
        node: The node.
        robot: The simulated robot.
        tap: An object to which every sensor message is also passed directly, within this process.
            The scrambler is one: it disturbs the readings and publishes them itself.
        policy: The name of the policy node, whose service `reset_state` is called before each
            episode. "" means that any node may send commands, and that no service is called.
        realtime: Whether to step by the steady clock and apply the newest command, instead of
            lockstep.
        command_timeout_s: In lockstep, seconds that a step waits for its command (by default 1); in
            real time, the age at which a command is too old (by default five steps). After that the
            safe command is applied.
        start_timeout_s: Seconds to wait for the policy, at the start and when it stops answering.
        camera_hz: Camera pictures per simulated second; 0 for none.
    """

    def __init__(
        self,
        node: Node,
        robot: SimulatedRobot,
        *,
        tap: MessageTap | None = None,
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
        self._create_topics(policy, camera_hz)

    def _create_topics(self, policy: str, camera_hz: float) -> None:
        """Create publishers, subscriptions and the connection to the policy node.

        Args:
            policy: The name of the policy node; "" if any node may send commands.
            camera_hz: Camera pictures per simulated second; 0 for none.
        """
        node, simulation = self.node, self.robot.simulation
        self._outputs = StepOutputs(node, self.robot, self.tap, camera_hz)
        self._commands = [
            node.create_subscription(cls, topic, partial(self._on_command, number), RELIABLE)
            for number, (topic, cls) in enumerate(self.robot.commands.topics)
        ]
        self.exchange = Exchange(
            [one.topic_name for one in self._commands],
            self.robot.commands.topics_have_stamps,
            self._outputs.publish_messages,
            self.run.spin,
            self._command_timeout_s,
            lambda text: node.get_logger().warning(text),
        )
        steady = SteadyClock(clock_type=ClockType.STEADY_TIME)
        node.create_timer(RIVAL_CHECK_S, self._check_for_other_publishers, clock=steady)
        self._link = PolicyLink(
            node, policy, tuple(simulation.command.topic_keys), self.run.spin, self._start_timeout_s
        )
        self._figures = DiagnosticsReader(node, self._link.name) if policy else None
        self._progress = ProgressTopic(node)

    # A run is one start, then a reset and steps for each episode. All of these methods may raise
    # StopRequestedError and BridgeError.

    def start(self) -> None:
        """Wait until the policy node is active and connected.

        In real time this waits for a policy only if its name is known. If another simulator
        publishes the same topics, this waits at most `ALONE_S` seconds until that simulator has
        ended, because a killed simulator stays in the ROS graph for a while.

        Raises:
            BridgeError: The policy does not connect, or does not subscribe to the topic of the
                `tap`, or another simulator still publishes the same topics.
        """
        self._wait_for_other_simulators_to_end()
        if self._link.is_policy_name_known or not self._realtime:
            self._link.wait_until_connected(set(self._outputs.topics), shadow=self._realtime)
            self._wait_for_other_simulators_to_end()
        if self.tap is not None:
            self._link.check_policy_subscribes(self.tap.topic)
        self._started = True

    def reset(self, seed: int, episode: int) -> None:
        """Start an episode: reset the environment, the policy's state and the `tap`.

        The `tap` is the object that disturbs the readings; there may be none.

        Args:
            seed: The seed of the environment.
            episode: The index of the episode, on which the disturbance depends.
        """
        self.run.end_episode()
        if not self._realtime:
            self.exchange.prepare_episode()
        if self._latched:  # the previous episode ended during a stop
            self.set_estop(False)
        self.robot.reset(seed)
        if self.tap is not None:
            self.tap.reset(episode)
        self.robot.commands.clear_commands()
        self._count = 0
        self._progress.start_episode(episode)
        self._link.reset_policy()
        self._next_s = self._heard_s = time.monotonic()
        self.run.start_episode()

    def step(self) -> None:
        """Publish the readings, wait for the command and advance the robot by one step.

        While the run is paused, this waits for a call of the service `~/step`.

        Raises:
            RestartRequestedError: The service `~/reset` was called.
            BridgeError: The policy has stopped answering.
        """
        if self.run.wait_while_paused():
            self._next_s = self._heard_s = time.monotonic()
        self._stamp_ns += self.robot.simulation.step_ns
        if self._realtime:
            self._stamp_ns = max(self._stamp_ns, time.time_ns() - MAX_STAMP_LAG_NS)
        self._outputs.fill_messages(self._count, self._stamp_ns)
        commands = self._wait_for_step_end() if self._realtime else self._wait_for_command()
        if commands is None:
            self.timeouts += 1
            commands = self.robot.commands.safe
        self.robot.step(commands)
        self._count += 1
        self._progress.publish_progress(self._count, self.robot, self._stamp_ns)
        self.run.answer_waiting_requests()

    def end_episode(self) -> None:
        """End an episode, and in lockstep wait for commands that arrive late.

        Commands that answer none of the episode's steps are counted in `exchange.unmatched`.
        """
        self.run.end_episode()
        with suppress(StopRequestedError):  # the episode is complete anyway
            if not self._realtime:
                self.exchange.discard_late_commands()

    def set_estop(self, latch: bool) -> None:
        """Set or clear the policy's e-stop by its services; call `wait_for_estop` first.

        Args:
            latch: True to set it, False to clear it.
        """
        self._latched = latch
        self._link.set_estop(latch, wait=not self._realtime)

    def wait_for_estop(self) -> None:
        """Wait for the services of the policy that `set_estop` needs.

        Raises:
            BridgeError: The policy does not offer them.
        """
        self._link.wait_for_estop()

    def read_diagnostics(self) -> PolicyDiagnostics | None:
        """Return the policy node's diagnostics after the final episode; None if it publishes none.

        During this call the reset service does not restart an episode, and `run.stop` ends only the
        wait for diagnostics.
        """
        self.run.end_episode()
        try:
            return None if self._figures is None else self._figures.read_diagnostics(self.run.spin)
        except StopRequestedError:
            return None

    def close(self) -> None:
        """Clear the e-stop, answer pending service calls, and release node and robot."""
        cleared = self._link.request_estop(False) if self._latched else None
        until_s = time.monotonic() + CALL_S
        while cleared is not None and not cleared.done() and time.monotonic() < until_s:
            self.run.executor.spin_once(timeout_sec=SLICE_S)
        self.run.close()
        self.robot.close()

    # Others

    def _wait_for_other_simulators_to_end(self) -> None:
        """Wait until no other simulator publishes on this bridge's topics.

        Raises:
            BridgeError: Another simulator has not ended in time.
        """
        patience_s = min(ALONE_S, self._start_timeout_s)
        until_s = time.monotonic() + patience_s
        self._check_for_other_publishers()
        if self._rivals:
            self.node.get_logger().warning(
                f"waiting up to {patience_s:g} s for another simulator to end"
            )
        while self._rivals:
            if not self.run.spin(until_s):
                raise BridgeError(self._rivals)
            self._check_for_other_publishers()

    def _check_for_other_publishers(self) -> None:
        """Look for other nodes that publish on this bridge's topics, and store a text about them.

        After the run has started, an error is logged if the text has changed.
        """
        rivals = describe_other_publishers(self.node, self._outputs.exclusively_published_topics)
        if rivals and rivals != self._rivals and self._started:
            self.node.get_logger().error(rivals)
        self._rivals = rivals

    # Commands

    def _wait_for_command(self) -> NDArray[np.float64] | None:
        """Publish the readings of a step in lockstep and return the command that answers them.

        If the `tap`, which disturbs readings, drops this step's message, the previous command is
        applied again, or the safe command while the e-stop is set.

        Returns:
            The command (A,) in the unit of the action, or None after the timeout.

        Raises:
            BridgeError: The policy has not answered for too long.
        """
        commands = self.robot.commands
        if self.tap is not None and self.tap.is_message_dropped:
            self._outputs.publish_messages()
            return commands.safe if self._latched else commands.newest_command
        commands.clear_commands()
        took_s = self.exchange.request_command(
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
                f"is {self._link.name} still active?"
            )
        return None

    def _wait_for_step_end(self) -> NDArray[np.float64] | None:
        """Publish the readings of a step in real time, and wait for the end of the step.

        Returns:
            The newest command (A,) in the unit of the action, or None if it is too old.
        """
        self._outputs.publish_messages()
        now = time.monotonic()
        self._next_s = max(self._next_s + self.robot.simulation.step_s, now)
        while self.run.spin(self._next_s):
            pass
        commands = self.robot.commands
        age_s = time.monotonic() - commands.last_command_time_s
        return commands.newest_command if age_s <= self._command_timeout_s else None

    def _on_command(self, topic_index: int, message: Any) -> None:
        """Store a command if it answers the current step; log the reason if it is refused.

        In real time every command is stored.

        Args:
            topic_index: The index of the command topic.
            message: The command message.
        """
        stamp_ns = self.robot.commands.read_stamp_ns(message, topic_index)
        if not (self._realtime or self.exchange.is_answer(topic_index, stamp_ns)):
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
