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
from rclpy.publisher import Publisher
from rclpy.task import Future
from rosgraph_msgs.msg import Clock
from std_srvs.srv import SetBool, Trigger

from an_control.ros.distributions import create_patient_service
from an_control_sim.bridge.camera_topic import CameraTopic
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
from an_control_sim.process import RELIABLE, SLICE_S, new_executor

LOOK_S = 1.0
"""How often it looks for others that publish what it publishes."""
TOO_OLD = 5
"""Steps after which a command is too old in real time."""
LATE_NS = 100_000_000
"""By how much stamps may be behind the clock in real time: time that a pause or a busy machine
takes passes for the robot, too."""


class Stopped(Exception):
    """`Bridge.stop` was called."""


class Restarted(Exception):
    """The reset service was called: the episode starts again."""


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
        self._started = self._running = self._stepping = False
        self._paused = self._stopping = self._latched = False
        self._refusal = ""
        self._steps_asked: list[Future[str]] = []
        self._resets_asked: list[Future[str]] = []
        self._pauses_asked: list[Future[str]] = []
        self.timeouts = 0
        """Steps under the safe command since the start."""
        self.latency_s: list[float] = []
        """Lockstep: from the first publishing of a step to its command; cleared by the caller."""
        self._rivals = ""
        self._open(policy, camera_hz)
        self.executor = new_executor(node.context)
        """Runs the node while the bridge waits; whatever else shall run then can be added."""
        self.executor.add_node(node)

    def _open(self, policy: str, camera_hz: float) -> None:
        node, simulation = self.node, self.robot.simulation
        self._clock_message = Clock()
        self._clock_publisher = node.create_publisher(Clock, "/clock", RELIABLE)
        self._outlets: list[tuple[str, Any, Publisher[Any]]] = [
            (one.topic, one.message, node.create_publisher(type(one.message), one.topic, RELIABLE))
            for one in self.robot.outlets
        ]
        self._commands = [
            node.create_subscription(cls, topic, partial(self._on_command, number), RELIABLE)
            for number, (topic, cls) in enumerate(self.robot.commands.topics)
        ]
        self.exchange = Exchange(
            [one.topic_name for one in self._commands],
            self.robot.commands.stamped,
            self._publish,
            self._spin,
            self._command_timeout_s,
            lambda text: node.get_logger().warning(text),
        )
        steady = SteadyClock(clock_type=ClockType.STEADY_TIME)
        node.create_timer(LOOK_S, self._check_for_other_simulators, clock=steady)
        self._link = PolicyLink(
            node, policy, tuple(simulation.command.topics), self._spin, self._start_timeout_s
        )
        self._figures = PolicyFigures(node, self._link.name) if policy else None
        self._progress = ProgressTopic(node)
        create_patient_service(node, SetBool, "~/pause", self._on_pause)
        create_patient_service(node, Trigger, "~/step", self._on_step)
        create_patient_service(node, Trigger, "~/reset", self._on_reset)
        self._camera = None
        if camera_hz > 0 and simulation.camera is not None:
            self._camera = CameraTopic(node, self.robot, simulation.camera, camera_hz)

    # A run is one start, then a reset and steps per episode. All raise Stopped and BridgeError.

    def start(self) -> None:
        """Wait until the policy is there, active and connected.

        In real time nobody is waited for where the policy has no name. Another simulator on the
        same topics is refused, once it was given ALONE_S to end: one that was killed stays in the
        graph for a while. So is a policy that does not read what the tap publishes.
        """
        self._refuse_rivals()
        if self._link.named or not self._realtime:
            topics = {publisher.topic_name for _, _, publisher in self._outlets}
            topics |= set() if self.tap is None else {self.tap.topic}
            self._link.wait(topics, shadow=self._realtime)
            self._refuse_rivals()
        if self.tap is not None:
            self._link.require_reader(self.tap.topic)
        self._started = True

    def reset(self, seed: int, episode: int) -> None:
        """Start an episode: the environment, the tap and the policy's memory."""
        self._running = False
        self._end_step()
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
        self._running = True
        while self._resets_asked:
            self._resets_asked.pop().set_result("")

    def step(self) -> None:
        """Publish the readings, get the command and advance the robot by one step.

        While paused this waits for the step service. Raises Restarted where a reset is asked for.
        """
        self._wait_while_paused()
        self._stamp_ns += self.robot.simulation.step_ns
        if self._realtime:
            self._stamp_ns = max(self._stamp_ns, time.time_ns() - LATE_NS)
        self._stepping = True
        self._fill()
        commands = self._paced() if self._realtime else self._replied()
        if commands is None:
            self.timeouts += 1
            commands = self.robot.commands.safe
        self.robot.step(commands)
        self._count += 1
        self._progress.step(self._count, self.robot, self._stamp_ns)
        self._end_step()
        if self._steps_asked:
            self._steps_asked.pop(0).set_result("")

    def finish(self) -> None:
        """End an episode: find commands that answer none of its steps (`exchange.unmatched`)."""
        self._running = False
        with suppress(Stopped):  # the episode is complete without it
            if not self._realtime:
                self.exchange.finish()

    def _end_step(self) -> None:
        """Nothing moves until the next step: answer who has asked for a pause."""
        self._stepping = False
        while self._pauses_asked:
            self._pauses_asked.pop().set_result("")

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
        self._running = False
        try:
            return None if self._figures is None else self._figures.read(self._spin)
        except Stopped:
            return None

    def stop(self) -> None:
        """Let every wait end with Stopped; safe to call from a signal handler."""
        self._stopping = True

    def close(self) -> None:
        """Clear an e-stop, answer who waits for a service, let go of the node, end the robot."""
        cleared = self._link.call_stop(False) if self._latched else None
        until_s = time.monotonic() + CALL_S
        while cleared is not None and not cleared.done() and time.monotonic() < until_s:
            self.executor.spin_once(timeout_sec=SLICE_S)
        waiting = self._steps_asked + self._resets_asked + self._pauses_asked
        for future in waiting:
            future.set_result("the simulator is stopping")
        for _ in waiting:
            self.executor.spin_once(timeout_sec=SLICE_S)
        self.executor.remove_node(self.node)
        self.executor.shutdown()
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
            if not self._spin(until_s):
                raise BridgeError(self._rivals)
            self._check_for_other_simulators()

    def _check_for_other_simulators(self) -> None:
        """Find who else publishes what this publishes, and log it once where this has started."""
        topics = [self._clock_publisher.topic_name]
        topics += [publisher.topic_name for _, _, publisher in self._outlets]
        if self.tap is not None:
            topics.append(self.tap.topic)
        rivals = others_publish(self.node, topics)
        if rivals and rivals != self._rivals and self._started:
            self.node.get_logger().error(rivals)
        self._rivals = rivals

    # Publishing

    def _fill(self) -> None:
        stamp_ns = self._stamp_ns
        self.robot.fill(stamp_ns)
        clock = self._clock_message.clock
        clock.sec, clock.nanosec = divmod(stamp_ns, 1_000_000_000)
        if self.tap is not None:
            for topic, message, _ in self._outlets:
                self.tap.take(topic, message)
            self.tap.prepare(stamp_ns)
        if self._camera is not None:
            self._camera.show(self._count, stamp_ns)

    def _publish(self) -> None:
        if self._clock_publisher.get_subscription_count():
            self._clock_publisher.publish(self._clock_message)
        for _, message, publisher in self._outlets:
            if publisher.get_subscription_count():
                publisher.publish(message)
        if self.tap is not None:
            self.tap.send()

    # Commands

    def _replied(self) -> NDArray[np.float64] | None:
        """Lockstep: the command that answers this step, or None after the timeout.

        A step of which the tap's message is lost is answered by the last command; while the e-stop
        is latched, by the safe one.
        """
        commands = self.robot.commands
        if self.tap is not None and self.tap.lost:
            self._publish()
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
        self._publish()
        now = time.monotonic()
        self._next_s = max(self._next_s + self.robot.simulation.step_s, now)
        while self._spin(self._next_s):
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

    # Services

    def _on_pause(self, request: Any, response: Any) -> Any:
        """Pause or continue; the reply to a pause comes once the step that runs is over."""
        self._paused = bool(request.data)
        if self._paused and self._stepping:
            return self._when_done(self._pauses_asked, response)
        response.success = True
        return response

    def _on_step(self, request: Any, response: Any) -> Any:
        if not self._paused:
            response.success, response.message = False, "not paused: call ~/pause first"
            return response
        return self._when_done(self._steps_asked, response)

    def _on_reset(self, request: Any, response: Any) -> Any:
        return self._when_done(self._resets_asked, response)

    def _when_done(self, queue: list[Future[str]], response: Any) -> Future[Any]:
        """Reply once the run has done what was asked; its result is the reason why not."""
        done: Future[str] = Future()
        reply: Future[Any] = Future()
        queue.append(done)

        def tell(done: Future[str]) -> None:
            response.message = done.result()
            response.success = not response.message
            reply.set_result(response)

        done.add_done_callback(tell)
        return reply

    # Waiting

    def _spin(self, until_s: float) -> bool:
        """Work on what has arrived, or wait for it; False once `until_s` has passed."""
        left_s = until_s - time.monotonic()
        if left_s <= 0.0:
            return False
        self.executor.spin_once(timeout_sec=min(left_s, SLICE_S))
        if self._stopping:
            raise Stopped
        if self._resets_asked and self._running:
            raise Restarted
        return True

    def _wait_while_paused(self) -> None:
        while self._paused and not self._steps_asked:
            self._spin(np.inf)
            self._next_s = self._heard_s = time.monotonic()
