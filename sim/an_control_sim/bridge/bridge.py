"""Serves a simulated robot over ROS 2: lockstep (a request and its reply) or real time.

Lockstep: all messages of step k carry stamp k, the environment steps when the command that answers
step k has come (`Exchange`). After the timeout the safe command goes in.
Stamps grow by the step over the whole run and start at the wall clock's second, so none comes
twice, not even after a restart. Everything here runs on one thread, and every wait is on the
steady clock: nothing ever waits on the ROS time that this node itself makes.
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
    Figures,
    PolicyFigures,
    PolicyLink,
    ProgressTopic,
    others_publish,
)
from an_control_sim.bridge.rehearsal import Tap
from an_control_sim.bridge.robot import Robot
from an_control_sim.bridge.run_control import RunControl, Stopped
from an_control_sim.bridge.step_outputs import StepOutputs
from an_control_sim.process import RELIABLE, SLICE_S

LOOK_S = 1.0
"""How often it looks for others that publish what it publishes."""
TOO_OLD = 5
"""Steps after which a command is too old in real time."""
LATE_NS = 100_000_000
"""By how much stamps may be behind the clock in real time: time that a pause or a busy machine
takes passes for the robot, too."""


class Bridge:
    """Serves one robot from a node that is the bridge's alone.

    policy            name of the policy node, whose `reset_state` is called before each episode;
                      empty: nobody is called, whoever sends commands drives
    realtime          step by the steady clock and hold the newest command, instead of lockstep
    command_timeout_s lockstep: how long one step waits for its command, by default 1 s; real
                      time: the age at which a command is too old, by default five steps. Then the
                      safe command counts
    start_timeout_s   how long to wait for the policy, at the start and when it has gone silent
    tap               also gets every message, inside this process
    camera_hz         pictures per simulated second, while somebody subscribes (0 = off)

    What nobody subscribes to is not published.
    """

    def __init__(
        self,
        node: Node,
        robot: Robot,
        *,
        tap: Tap | None = None,
        policy: str = "policy",
        realtime: bool = False,
        command_timeout_s: float | None = None,
        start_timeout_s: float = START_S,
        camera_hz: float = 0.0,
    ) -> None:
        self.node, self.robot, self.tap = node, robot, tap
        self._realtime = realtime
        if command_timeout_s is None:
            command_timeout_s = TOO_OLD * robot.simulation.step_s if realtime else 1.0
        self._command_timeout_s, self._start_timeout_s = command_timeout_s, start_timeout_s
        self._stamp_ns = int(time.time()) * 1_000_000_000
        self._heard_s = -np.inf
        self._started = self._latched = False
        self._refusal = ""
        self.timeouts = 0
        """Steps under the safe command since the start."""
        self.latency_s: list[float] = []
        """Lockstep: from the first publishing of a step to its command; cleared by the caller."""
        self._rivals = ""
        self.run = RunControl(node)
        self._open(policy, camera_hz)

    def _open(self, policy: str, camera_hz: float) -> None:
        node, simulation = self.node, self.robot.simulation
        self._outputs = StepOutputs(node, self.robot, self.tap, camera_hz)
        self._commands = [
            node.create_subscription(cls, topic, partial(self._on_command, number), RELIABLE)
            for number, (topic, cls) in enumerate(self.robot.commands.topics)
        ]
        self.exchange = Exchange(
            [one.topic_name for one in self._commands],
            self.robot.commands.stamped,
            self._outputs.publish,
            self.run.spin,
            self._command_timeout_s,
            lambda text: node.get_logger().warning(text),
        )
        steady = SteadyClock(clock_type=ClockType.STEADY_TIME)
        node.create_timer(LOOK_S, self._check_for_other_simulators, clock=steady)
        self._link = PolicyLink(
            node, policy, tuple(simulation.command.topics), self.run.spin, self._start_timeout_s
        )
        self._figures = PolicyFigures(node, self._link.name) if policy else None
        self._progress = ProgressTopic(node)

    # A run is one start, then a reset and steps per episode. All raise Stopped and BridgeError.

    def start(self) -> None:
        """Wait until the policy is there, active and connected.

        In real time nobody is waited for where the policy has no name. Another simulator on the
        same topics is refused, once it was given ALONE_S to end: one that was killed stays in the
        graph for a while. So is a policy that does not read what the tap publishes.
        """
        self._refuse_rivals()
        if self._link.named or not self._realtime:
            self._link.wait(set(self._outputs.topics), shadow=self._realtime)
            self._refuse_rivals()
        if self.tap is not None:
            self._link.require_reader(self.tap.topic)
        self._started = True

    def reset(self, seed: int, episode: int) -> None:
        """Start an episode: the environment, the tap and the policy's memory."""
        self.run.end_episode()
        if not self._realtime:
            self.exchange.close()
        if self._latched:  # the episode before was ended during a stop
            self.estop(False)
        self.robot.reset(seed)
        if self.tap is not None:
            self.tap.reset(episode)
        self.robot.commands.forget()
        self._count = 0
        self._progress.begin(episode)
        self._link.reset()
        self._next_s = self._heard_s = time.monotonic()
        self.run.begin_episode()

    def step(self) -> None:
        """Publish the readings, get the command and advance the robot by one step.

        While paused this waits for the step service. Raises Restarted where a reset is asked for.
        """
        if self.run.begin_step():
            self._next_s = self._heard_s = time.monotonic()
        self._stamp_ns += self.robot.simulation.step_ns
        if self._realtime:
            self._stamp_ns = max(self._stamp_ns, time.time_ns() - LATE_NS)
        self._outputs.fill(self._count, self._stamp_ns)
        commands = self._paced() if self._realtime else self._replied()
        if commands is None:
            self.timeouts += 1
            commands = self.robot.commands.safe
        self.robot.step(commands)
        self._count += 1
        self._progress.step(self._count, self.robot, self._stamp_ns)
        self.run.end_step()

    def finish(self) -> None:
        """End an episode: find commands that answer none of its steps (`exchange.unmatched`)."""
        self.run.end_episode()
        with suppress(Stopped):  # the episode is complete without it
            if not self._realtime:
                self.exchange.finish()

    def estop(self, latch: bool) -> None:
        """Latch the policy's e-stop, or clear it; `prepare_stops` comes first."""
        self._latched = latch
        self._link.stop(latch, wait=not self._realtime)

    def prepare_stops(self) -> None:
        """Find what `estop` needs. Raises BridgeError where the policy does not offer it."""
        self._link.prepare_stops()

    def figures(self) -> Figures | None:
        """What the policy node says of itself after the last episode; None where it says nothing.

        Nothing runs any more that a reset could start again, and a stop ends only the waiting.
        """
        self.run.end_episode()
        try:
            return None if self._figures is None else self._figures.read(self.run.spin)
        except Stopped:
            return None

    def close(self) -> None:
        """Clear an e-stop, answer who waits for a service, let go of the node, end the robot."""
        cleared = self._link.call_stop(False) if self._latched else None
        until_s = time.monotonic() + CALL_S
        while cleared is not None and not cleared.done() and time.monotonic() < until_s:
            self.run.executor.spin_once(timeout_sec=SLICE_S)
        self.run.close()
        self.robot.close()

    # Others

    def _refuse_rivals(self) -> None:
        patience_s = min(ALONE_S, self._start_timeout_s)
        until_s = time.monotonic() + patience_s
        self._check_for_other_simulators()
        if self._rivals:
            self.node.get_logger().warning(
                f"waiting up to {patience_s:g} s for another simulator to end"
            )
        while self._rivals:
            if not self.run.spin(until_s):
                raise BridgeError(self._rivals)
            self._check_for_other_simulators()

    def _check_for_other_simulators(self) -> None:
        """Find who else publishes what this publishes, and log it once where this has started."""
        rivals = others_publish(self.node, self._outputs.own_topics)
        if rivals and rivals != self._rivals and self._started:
            self.node.get_logger().error(rivals)
        self._rivals = rivals

    # Commands

    def _replied(self) -> NDArray[np.float64] | None:
        """Lockstep: the command that answers this step, or None after the timeout.

        A step of which the tap's message is lost is answered by the last command; while the e-stop
        is latched, by the safe one.
        """
        commands = self.robot.commands
        if self.tap is not None and self.tap.lost:
            self._outputs.publish()
            return commands.safe if self._latched else commands.answer
        commands.forget()
        took_s = self.exchange.ask(self._stamp_ns, lambda: commands.answer is not None)
        if took_s is not None:
            self._heard_s = time.monotonic()
            self.latency_s.append(took_s)
            return commands.answer
        if time.monotonic() - self._heard_s > self._start_timeout_s:
            topics = ", ".join(one.topic_name for one in self._commands)
            raise BridgeError(
                f"no command on {topics} for {self._start_timeout_s:g} s: "
                f"is {self._link.name} still active?"
            )
        return None

    def _paced(self) -> NDArray[np.float64] | None:
        """Real time: the newest command at the end of this step, or None where it is too old."""
        self._outputs.publish()
        now = time.monotonic()
        self._next_s = max(self._next_s + self.robot.simulation.step_s, now)
        while self.run.spin(self._next_s):
            pass
        commands = self.robot.commands
        age_s = time.monotonic() - commands.answered_s
        return commands.answer if age_s <= self._command_timeout_s else None

    def _on_command(self, number: int, message: Any) -> None:
        stamp_ns = self.robot.commands.stamp_ns(message, number)
        if not (self._realtime or self.exchange.answers(number, stamp_ns)):
            return
        try:
            self.robot.commands.take(message, time.monotonic(), number)
            refusal = ""
        except ValueError as error:
            refusal = str(error)
        if refusal and refusal != self._refusal:
            topic = self._commands[number].topic_name
            self.node.get_logger().warning(f"command refused on {topic}: {refusal}")
        self._refusal = refusal
