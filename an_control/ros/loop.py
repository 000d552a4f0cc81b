"""The loop of a configured node: a controller that is connected to topics, and its ticks.

Callbacks store messages; a tick reads, decides and publishes. Both run on the executor's thread,
only the watchdog has a thread of its own. While the node acts in real time, both threads have
real-time priority if the system allows it. While inactive or in shadow the node commands nothing,
but its policy still ticks, with the commands that another node really sends.

A tick that takes a few periods longer than usual makes the watchdog send the safe command, and
delays the messages that arrive meanwhile. So everything that is slow at its first use is used once
when the node is configured (`prepare_first_ticks`).
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from math import nan

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.impl.rcutils_logger import RcutilsLogger
from rclpy.node import Node

from an_control.control.bring_up import BringUpError
from an_control.control.controller import Controller, Decide
from an_control.control.gate import EStop, Watchdog
from an_control.control.wiring_fit import ramp_warning
from an_control.record.layout import CommandKind
from an_control.record.recorder import NodeRecorder
from an_control.ros.diagnostics import DiagnosticsReport, EventLog, Throttle, TickTimes
from an_control.ros.inputs import Inputs
from an_control.ros.outputs import CommandOutput, InsightOutput, set_stamp
from an_control.ros.recording import LoopRecord
from an_control.ros.settings import Trigger
from an_control.ros.ticking import (
    LockstepTicker,
    LoopClock,
    RealTimeTicker,
    Ticker,
    make_steady_clock,
)
from an_control.system.priority import (
    RealTimePriority,
    freeze_garbage_again,
    take_real_time_priority,
)
from an_control.wiring import ChannelTable, Readings, Wiring, WiringError
from an_control.wiring.checked_yaml import Description
from an_control.wiring.messages import stamp_field

DIAGNOSTICS_S = 1.0
LOCKSTEP_DEPTH = 10
TRIP_PERIODS = 1.75
"""Watchdog timeout in control periods; its thread may take the rest of two periods to wake up."""
TOLD_S = 1.0
"""Minimum time between two log lines about sending that takes too long."""


class Loop:
    """The loop that feeds a controller from its sources and publishes its commands.

    Args:
        node: Owns publishers, subscriptions and timers.
        controller: Decides what to command.
        lockstep_wait_s: Time to wait for all sources of a stamp in lockstep; None: real time.
        failed: Called when a tick raised; must deactivate the node.
        watchdog_s: Time without a command after which the safe command is sent, 0 = off; None:
            within two periods in real time, off in lockstep.
        trigger: In real time, tick when the newest messages of the sources are complete, or by a
            timer.
        shadow: Whether to propose commands without sending them.
        informed: Whether the executor tells callbacks when a message was published.
        thread_priority: Real-time priority of ticks while active by the real clock, 0 = none.
        recorder: Is told of all that happens; None: nothing is recorded.
    """

    def __init__(
        self,
        node: Node,
        controller: Controller,
        lockstep_wait_s: float | None,
        failed: Callable[[], object],
        watchdog_s: float | None = None,
        *,
        trigger: Trigger = "sources",
        shadow: bool = False,
        informed: bool = True,
        thread_priority: int = 0,
        recorder: NodeRecorder | None = None,
    ) -> None:
        lockstep = lockstep_wait_s is not None
        if lockstep:
            _check_has_stamps(controller.table)
        self.controller, self._failed = controller, failed
        self.active = self._broken = False
        self._clock = clock = LoopClock(node)
        self._record = LoopRecord(recorder, controller, clock)
        if watchdog_s is None:
            watchdog_s = 0.0 if lockstep else TRIP_PERIODS * controller.step_s
        steady = not (lockstep or clock.simulated)
        self._guard = LoopGuard(
            node.get_logger(),
            clock,
            self._send_safe,
            controller.step_s,
            watchdog_s,
            controller.estop,
            self.save,
            thread_priority if steady else 0,
        )
        with ExitStack() as opened:
            self._output = CommandOutput(
                node,
                controller.wiring.command,
                controller.messages,
                controller.gate.last,
                clock.now_ns,
                shadow=shadow,
            )
            opened.callback(self._output.close)
            self._output.on_command = self._record.command
            self._ticker = self._make_ticker(node, lockstep_wait_s, trigger)
            opened.callback(self._ticker.close)
            self._inputs = Inputs(
                node,
                controller.table,
                clock.now_ns,
                self._ticker.record_message,
                LOCKSTEP_DEPTH if lockstep else 1,
                self._ticker.arrivals,
                informed=informed and not lockstep,
                recorder=recorder,
            )
            opened.callback(self._inputs.close)
            self._reports = LoopReports(
                node,
                controller,
                clock,
                self._guard.watchdog,
                self._inputs,
                self._output,
                lockstep=lockstep,
                recorder=recorder,
            )
            opened.callback(self._reports.close)
            reporter = node.create_timer(DIAGNOSTICS_S, self._diagnose, clock=make_steady_clock())
            opened.callback(node.destroy_timer, reporter)
            self._opened = opened.pop_all()

    def _make_ticker(self, node: Node, wait_s: float | None, trigger: Trigger) -> Ticker:
        """Return what calls the ticks, in lockstep (`wait_s`) or in real time."""
        names = [source.name for source in self.controller.wiring.sources]
        if wait_s is not None:
            return LockstepTicker(node, names, wait_s, self._act, self._output.repeat)
        return RealTimeTicker(node, names, self.controller.step_s, self._act, self._clock, trigger)

    @property
    def sent(self) -> np.ndarray | None:
        """The last command (A,) on the topics, of this or another node; None if none is known."""
        return self.controller.gate.last.values

    def activate(self) -> None:
        """Start to act; the policy keeps the state of what it has watched."""
        self._record.event("activate", bring_up=not self._output.shadow)
        self.controller.start(bring_up=not self._output.shadow)
        self._ticker.reset()
        self._reports.start()
        self.active, self._broken = True, False
        self._publish_from_now(shadow=self._output.shadow)
        self._guard.priority.request()

    def deactivate(self) -> None:
        """Stop acting, with the safe command as the last one."""
        self.active = False
        self._record.event("deactivate")
        try:
            self._stop_commanding()
            self._output.stop()
        finally:
            self._guard.priority.release()

    def set_shadow(self, shadow: bool) -> None:
        """Switch to proposing, or back to commanding; the policy continues with its state."""
        if shadow == self._output.shadow:
            return
        self._record.event("shadow", on=shadow, active=self.active)
        if not self.active:
            self._output.shadow = shadow
            return
        if shadow:
            self._stop_commanding()
        else:
            self.controller.start(bring_up=False)
        self._publish_from_now(shadow=shadow)
        self._reports.events.reset(time.monotonic())

    def _publish_from_now(self, *, shadow: bool) -> None:
        """Publish from now on; start the watchdog unless in shadow, where nothing is sent."""
        self._output.open(shadow=shadow)
        if not shadow:
            self._guard.watchdog.start()

    def _stop_commanding(self) -> None:
        """Stop the watchdog, and send the safe command as the last one."""
        self._guard.watchdog.stop()
        self._output.publish(self.controller.stop, self._clock.stamp_ns(), CommandKind.STOP)

    def reset(self) -> None:
        """Start a new episode: reset the state of policy and monitor."""
        self._record.event("reset", lockstep=self._ticker.lockstep)
        self.controller.reset()
        self._ticker.reset()
        if self._ticker.lockstep:  # in a simulator what was sent is part of the last episode
            self._output.forget()
            self.controller.gate.reset()

    def send_safe_now(self) -> None:
        """Send the safe command at once, because the e-stop was latched."""
        if self.active:
            self._send_safe(self.controller.gate.safe, CommandKind.HALT)

    def make_table(self, wiring: Wiring) -> ChannelTable:
        """Return the table of this wiring for `rewire`.

        Raises:
            ValueError: If this wiring cannot take over; the text says why.
        """
        table = self.controller.rewired(wiring)
        if self._ticker.lockstep:
            _check_has_stamps(table)
        self._inputs.check(table)
        return table

    def rewire(self, table: ChannelTable) -> None:
        """Read from this table from the next tick on; the policy's state stays with its channels.

        Raises:
            ValueError: If a topic cannot be subscribed; then nothing is changed.
        """
        moved = self._inputs.rewire(table)
        self._record.wiring(table.wiring, self.controller.wiring)
        self.controller.rewire(table)
        self._ticker.rewire([source.name for source in table.wiring.sources], moved)
        self._inputs.deliver_earlier(moved, self._ticker.is_awaited)

    def save(self, why: str) -> str:
        """Write the black box; return the end of a log line that says where it is, or ""."""
        return self._record.save(why)

    def close(self) -> None:
        """Disconnect; if the node was acting, the safe command is the last one."""
        if self.active:
            self.deactivate()
        self._opened.close()

    def _act(self, stamp_ns: int | None) -> None:
        """Make one tick; any error in it ends in deactivation, and so in the safe command."""
        if self._broken:
            return
        begin_s = self._guard.begin_tick()
        try:
            self._tick(stamp_ns, begin_s)
        except Exception as error:
            self._fail(error)
        finally:
            self._guard.end_tick()

    def _tick(self, stamp_ns: int | None, begin_s: float) -> None:
        """Read, decide and publish once, and report it."""
        now_ns = self._guard.ticked_ns = self._clock.now_ns()
        sent_ns = 0
        self._ticker.record_tick(now_ns, stamp_ns)
        self._record.begin_tick(now_ns, stamp_ns)

        def send(decide: Decide) -> None:
            """Send the command and keep its stamp."""
            nonlocal sent_ns
            self._record.tick(sends=True)
            sent_ns = self._send(decide, stamp_ns, begin_s)

        readings = self.controller.tick(now_ns, stamp_ns, send if self.active else None)
        if not self.active:
            self._record.tick(sends=False)
            self._record.readings(readings)
            return
        end_s = time.perf_counter()
        self.controller.prepare()
        self._record.readings(readings)
        self._reports.tick(readings, now_ns, sent_ns, begin_s, end_s)

    def _send(self, decide: Decide, stamp_ns: int | None, begin_s: float) -> int:
        """Send the command that `decide` returns when it is called, and return its stamp in ns.

        The safe command is sent if the tick has taken too long. From step to step of lockstep one
        period passes.
        """
        decided_s = time.perf_counter()
        too_late = self._guard.is_too_long(decided_s - begin_s)  # the readings are too old
        safe = self.controller.gate.safe
        sent_ns = self._clock.stamp_ns() if stamp_ns is None else stamp_ns

        def decide_now() -> np.ndarray:
            self._record.decided_ns = self._clock.now_ns() if stamp_ns is None else None
            return decide(self._record.decided_ns)

        kind = CommandKind.TOO_LATE if too_late else CommandKind.POLICY
        if self._output.publish(safe if too_late else decide_now, sent_ns, kind):
            self._guard.watchdog.command_sent(time.monotonic())
        self._guard.log_slow_sending(time.perf_counter() - decided_s)
        return sent_ns

    def _fail(self, error: Exception) -> None:
        """Log an error in a tick, deactivate, and do not tick before the next activation."""
        why = str(error) if isinstance(error, BringUpError) else f"tick failed: {error!r}"
        self._record.failure(why)
        then = f"deactivating{self.save(why)}" if self.active else "the node stops watching"
        self._guard.logger.error(f"{why}; {then}")
        self._broken = True
        if self.active:
            self._failed()

    def _send_safe(
        self,
        safe: Callable[[], np.ndarray] | None = None,
        kind: CommandKind = CommandKind.WATCHDOG,
    ) -> bool:
        """Send the safe command from any thread; return whether it could be sent.

        In lockstep it has the stamp of the last command.
        """
        stamp_ns = None if self._ticker.lockstep else self._clock.stamp_ns()
        with suppress(RuntimeError):  # rclpy was shut down meanwhile
            return self._output.publish(safe or self.controller.gate.safe_command, stamp_ns, kind)
        return False

    def _diagnose(self) -> None:
        """Publish the diagnostics."""
        self._reports.diagnose(self.active)


class LoopGuard:
    """The watchdog of a loop, the priority of its threads, and the log of ticks that take too long.

    Args:
        logger: The node's logger.
        clock: The time of ticks.
        send_safe: As for `Watchdog`.
        period_s: Control period.
        timeout_s: As for `Watchdog`.
        estop: The e-stop.
        save: Writes the black box and returns the end of a log line that says where it is.
        thread_priority: Real-time priority of ticks, 0 = none; the watchdog has one more.
    """

    def __init__(
        self,
        logger: RcutilsLogger,
        clock: LoopClock,
        send_safe: Callable[[], bool],
        period_s: float,
        timeout_s: float,
        estop: EStop,
        save: Callable[[str], str],
        thread_priority: int,
    ) -> None:
        self.logger, self._clock, self._save = logger, clock, save
        self.priority = RealTimePriority(thread_priority)
        self.watchdog = Watchdog(
            send_safe, period_s, timeout_s, estop, self._log_trip, self._raise_watchdog
        )
        self._trips = Throttle()
        self.ticked_ns = 0
        """Start of the last tick."""
        self._began_s: float | None = None
        """Start of the running tick by `time.perf_counter`; None between ticks."""
        self._refusal = ""
        """Why the running tick has no real-time priority, at the first such tick."""

    def begin_tick(self) -> float:
        """Give the calling thread its priority; return the time by `time.perf_counter`."""
        self._refusal = self.priority.apply()
        self._began_s = time.perf_counter()
        return self._began_s

    def end_tick(self) -> None:
        """Note that no tick is running; log once why ticks have no real-time priority."""
        self._began_s = None
        if self._refusal:
            self.logger.info(
                f"ticks run at ordinary priority, not at thread_priority {self.priority.priority}:"
                f" {self._refusal}",
                once=True,
            )

    def is_too_long(self, duration_s: float) -> bool:
        """Return whether the watchdog allows no tick or sending of this duration."""
        return 0.0 < self.watchdog.timeout_s < duration_s

    def log_slow_sending(self, send_s: float) -> None:
        """Log that sending a command took too long, during which rclpy blocked the watchdog too."""
        if self.is_too_long(send_s):
            self.logger.error(
                f"the middleware took {send_s:.3f} s to send a command, which delayed all others",
                throttle_duration_sec=TOLD_S,
            )

    def _raise_watchdog(self) -> None:
        """Raise the priority of the watchdog's thread, so that it can interrupt a tick."""
        if self.priority.priority:
            with suppress(PermissionError):  # the ticks' refusal is logged
                take_real_time_priority(self.priority.priority + 1)

    def _log_trip(self, sent: bool) -> None:
        """Log a trip of the watchdog, on its thread, after the safe command was sent."""
        limit_s, now_s = self.watchdog.timeout_s, time.monotonic()
        before = sum(count for _, count in self._trips.take_ended(now_s))
        more = f"; {before} more trips since the line before" if before else ""
        if not self._trips.allow("", now_s):
            return
        done = (
            "safe command"
            if sent
            else "no safe command, because a position to hold has not been measured"
        )
        self.logger.error(
            f"watchdog: no command for {limit_s:.3g} s: {done} ({self._why_silent()}){more}"
            f"{self._save('watchdog')}"
        )

    def _why_silent(self) -> str:
        """Return why no command was sent for longer than the watchdog allows."""
        began_s, limit_s = self._began_s, self.watchdog.timeout_s
        if began_s is None:
            clock = self._clock
            if clock.simulated and clock.now_ns() - self.ticked_ns < 1e9 * limit_s:
                return (
                    "ROS time stands still or is slow: /clock, or the executor that reads it, is"
                    " late"
                )
            return "no tick began: the executor is busy, or the machine is"
        runs_s = time.perf_counter() - began_s
        if runs_s > limit_s / 2:
            return f"a tick has been running for {runs_s:.3f} s"
        return (
            f"a tick began only {limit_s - runs_s:.3f} s after the last command: the executor is"
            " busy, or the machine is"
        )


class LoopReports:
    """What a loop reports: diagnostics, log lines on changes, and the policy's insides.

    Args:
        node: Owns the publishers.
        controller: Is reported on, as are `watchdog`, `inputs` and `output`.
        clock: The loop's clock.
        watchdog: The loop's watchdog.
        inputs: The loop's subscriptions.
        output: The loop's command publishers.
        lockstep: Whether ticks wait for a simulator.
        recorder: Says how recording is doing; None: nothing is recorded.
    """

    def __init__(
        self,
        node: Node,
        controller: Controller,
        clock: LoopClock,
        watchdog: Watchdog,
        inputs: Inputs,
        output: CommandOutput,
        *,
        lockstep: bool,
        recorder: NodeRecorder | None,
    ) -> None:
        self._node, self._controller, self._clock = node, controller, clock
        self._output, self._watchdog, self._lockstep = output, watchdog, lockstep
        self.ticks = TickTimes(controller.step_s, paced=not lockstep)
        self.events = EventLog(node.get_logger(), controller)
        self._insight = InsightOutput(node, sees=bool(controller.wiring.images))
        self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self.diagnostics = DiagnosticsReport(
            node,
            controller,
            self.ticks,
            watchdog,
            inputs,
            output,
            real_time=not lockstep,
            recorder=recorder,
        )

    def start(self) -> None:
        """Log the settings, and report from now on as of a loop that starts to act."""
        self.ticks.skip_gap()
        self._log_settings()
        self.events.reset(time.monotonic())

    def tick(
        self, readings: Readings, now_ns: int, sent_ns: int, begin_s: float, end_s: float
    ) -> None:
        """Report a tick of an active loop.

        Args:
            readings: Its readings.
            now_ns: The time of the tick.
            sent_ns: The stamp of its command.
            begin_s: Its start by `time.perf_counter`.
            end_s: Its end, when the command was sent.
        """
        age_s = (now_ns - readings.since_ns) / 1e9 if readings.ids else nan
        self.ticks.add(begin_s, end_s, age_s + end_s - begin_s)
        policy, table = self._controller.acting.policy, self._controller.table
        self._insight.publish(readings, policy, table, sent_ns)
        self.events.log(readings, time.monotonic(), shadow=self._output.shadow)

    def diagnose(self, active: bool) -> None:
        """Publish the diagnostics."""
        message = self.diagnostics.make_message(active, self._clock.now_ns())
        set_stamp(message.header.stamp, self._clock.stamp_ns())
        self._publisher.publish(message)

    def close(self) -> None:
        """Destroy the publishers."""
        self._insight.close()
        self._node.destroy_publisher(self._publisher)

    def _log_settings(self) -> None:
        """Log which timeouts are off, and a ramp that the model was not trained with."""
        logger, sources = self._node.get_logger(), self._controller.wiring.sources
        off = [f"source {source.name!r}" for source in sources if not source.max_age_s]
        if off and not self._lockstep:
            logger.info(f"messages of any age count (max_age_s is 0): {', '.join(off)}")
        if not self._watchdog.timeout_s:
            logger.info("the watchdog is off (parameter watchdog_s)")
        acting = self._controller.acting
        if warning := ramp_warning(acting.ramp_s, acting.model_path, acting.policy.model):
            logger.warning(warning)


def _check_has_stamps(table: ChannelTable) -> None:
    """Check that at least one source has stamps, without which lockstep would wait for ever.

    Raises:
        WiringError: If none has.
    """
    if all(stamp_field(cls()) is None for cls in table.message_classes.values()):
        types = Description(", ".join({one.type: None for one in table.wiring.sources}))
        allowed = "at least one type with a stamp, for mode lockstep"
        raise WiringError(table.wiring.file, "sources", types, allowed)


def prepare_first_ticks(logger: RcutilsLogger, controller: Controller) -> None:
    """Log the configuration, and do once what would otherwise delay the first ticks."""
    # rclpy finds the line that logs by `inspect`, which at its first use visits all modules: 40 to
    # 180 ms. A line below the logger's level does not get that far.
    inspect.getframeinfo(inspect.currentframe())  # type: ignore[arg-type]
    logger.info(f"configured: {controller.summary()}")
    freeze_garbage_again()
