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
from rclpy.clock import Clock, ClockType
from rclpy.impl.rcutils_logger import RcutilsLogger
from rclpy.node import Node
from rclpy.timer import Timer

from an_control.control.bring_up import BringUpError
from an_control.control.controller import Controller, Decide
from an_control.control.gate import Watchdog
from an_control.control.wiring_fit import ramp_warning
from an_control.ros.diagnostics import DiagnosticsReport, EventLog, Throttle, TickTimes
from an_control.ros.inputs import Arrivals, Inputs
from an_control.ros.lockstep import Lockstep
from an_control.ros.outputs import CommandOutput, InsightOutput, set_stamp
from an_control.ros.pace import TickSchedule
from an_control.ros.settings import Trigger
from an_control.system.priority import (
    RealTimePriority,
    freeze_garbage_again,
    take_real_time_priority,
)
from an_control.wiring import ChannelTable, Wiring, WiringError
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
            within
            two periods in real time, off in lockstep.
        trigger: In real time, tick when the newest messages of the sources are complete, or by a
            timer.
        shadow: Whether to propose commands without sending them.
        informed: Whether the executor tells callbacks when a message was published.
        thread_priority: Real-time priority of ticks while active by the real clock, 0 = none.
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
    ) -> None:
        if lockstep_wait_s is not None:
            _check_has_stamps(controller.table)
        self.controller = controller
        self.active = False
        self._broken = False
        self._tick_began_s: float | None = None
        self._node = node
        self._failed = failed
        self._simulated = bool(node.get_parameter("use_sim_time").value)
        step_s, lockstep = controller.step_s, lockstep_wait_s is not None
        self._ticks = TickTimes(step_s, paced=not lockstep)
        names = [source.name for source in controller.wiring.sources]
        self._wait_s = lockstep_wait_s
        self._lockstep = Lockstep(names, int((lockstep_wait_s or 0.0) * 1e9))
        self._pace = (
            None if lockstep or trigger == "timer" else TickSchedule(names, int(step_s * 1e9))
        )
        steady = not (lockstep or self._simulated)
        self._arrivals = Arrivals(int(step_s * 1e9)) if steady else None
        self._priority = RealTimePriority(thread_priority if steady else 0)
        if watchdog_s is None:
            watchdog_s = 0.0 if lockstep else TRIP_PERIODS * step_s
        self._ticked_ns = self._planned_ns = 0
        """Start of the last tick, and planned time of a tick without a complete set of messages."""
        self._safe_command = controller.gate.safe_command
        self._watchdog = Watchdog(
            self._send_safe,
            step_s,
            watchdog_s,
            controller.estop,
            self._log_trip,
            self._raise_watchdog,
        )
        self._events, self._trips = EventLog(node.get_logger(), controller), Throttle()
        with ExitStack() as opened:
            self._output = CommandOutput(
                node,
                controller.wiring.command,
                controller.messages,
                controller.gate.last,
                self._now_ns,
                shadow=shadow,
            )
            opened.callback(self._output.close)
            self._insight = InsightOutput(node, sees=bool(controller.wiring.images))
            opened.callback(self._insight.close)
            self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
            opened.callback(node.destroy_publisher, self._publisher)
            diagnoser = node.create_timer(DIAGNOSTICS_S, self._diagnose, clock=_make_steady_clock())
            opened.callback(node.destroy_timer, diagnoser)
            self._inputs = Inputs(
                node,
                controller.table,
                self._now_ns,
                self._on_stamp if lockstep else self._on_message,
                LOCKSTEP_DEPTH if lockstep else 1,
                self._arrivals,
                informed=informed and not lockstep,
            )
            opened.callback(self._inputs.close)
            self._ticker = self._make_ticker()
            opened.callback(node.destroy_timer, self._ticker)
            self._report = DiagnosticsReport(
                node,
                controller,
                self._ticks,
                self._watchdog,
                self._inputs,
                self._output,
                real_time=not lockstep,
            )
            self._opened = opened.pop_all()

    def _make_ticker(self) -> Timer:
        """Return the timer that ticks at the rate, or when messages have not come in time."""
        if self._wait_s is not None:
            return self._node.create_timer(
                self._wait_s / 2, self._act_if_overdue, clock=_make_steady_clock()
            )
        clock = self._node.get_clock() if self._simulated else _make_steady_clock()
        return self._node.create_timer(self.controller.step_s, self._act_in_time, clock=clock)

    @property
    def sent(self) -> np.ndarray | None:
        """The last command (A,) on the topics, of this or another node; None if none is known."""
        return self.controller.gate.last.values

    def activate(self) -> None:
        """Start to act; the policy keeps the state of what it has watched."""
        self.controller.start(bring_up=not self._output.shadow)
        self._lockstep.reset()
        self._ticks.skip_gap()
        self._log_settings()
        self._events.reset(time.monotonic())
        self.active, self._broken = True, False
        self._publish_from_now(shadow=self._output.shadow)
        self._priority.request()

    def deactivate(self) -> None:
        """Stop acting, with the safe command as the last one."""
        self.active = False
        try:
            self._watchdog.stop()
            self._output.publish(self.controller.stop, self._stamp_ns())
            self._output.stop()
        finally:
            self._priority.release()

    def set_shadow(self, shadow: bool) -> None:
        """Switch to proposing, or back to commanding; the policy continues with its state."""
        if shadow == self._output.shadow:
            return
        if not self.active:
            self._output.shadow = shadow
            return
        if shadow:
            self._watchdog.stop()
            self._output.publish(self.controller.stop, self._stamp_ns())
        else:
            self.controller.start(bring_up=False)
        self._publish_from_now(shadow=shadow)
        self._events.reset(time.monotonic())

    def _publish_from_now(self, *, shadow: bool) -> None:
        """Publish from now on; start the watchdog unless in shadow, where nothing is sent."""
        self._output.open(shadow=shadow)
        if not shadow:
            self._watchdog.start()

    def reset(self) -> None:
        """Start a new episode: reset the state of policy and monitor."""
        self.controller.reset()
        self._lockstep.reset()
        if self._wait_s is not None:  # in a simulator what was sent is part of the last episode
            self._output.forget()
            self.controller.gate.reset()

    def send_safe_now(self) -> None:
        """Send the safe command at once, because the e-stop was latched."""
        if self.active:
            self._send_safe(self.controller.gate.safe)

    def make_table(self, wiring: Wiring) -> ChannelTable:
        """Return the table of this wiring for `rewire`.

        Raises:
            ValueError: If this wiring cannot take over; the text says why.
        """
        table = self.controller.rewired(wiring)
        if self._wait_s is not None:
            _check_has_stamps(table)
        self._inputs.check(table)
        return table

    def rewire(self, table: ChannelTable) -> None:
        """Read from this table from the next tick on; the policy's state stays with its channels.

        Raises:
            ValueError: If a topic cannot be subscribed; then nothing is changed.
        """
        moved = self._inputs.rewire(table)
        self.controller.rewire(table)
        names = [source.name for source in table.wiring.sources]
        if self._pace is not None:
            self._pace.rewire(names)
        ready_ns = self._lockstep.rewire(names, moved)
        if ready_ns is not None:
            self._act(ready_ns)
        self._inputs.deliver_earlier(moved, self._lockstep.is_awaited)

    def close(self) -> None:
        """Disconnect; if the node was acting, the safe command is the last one."""
        if self.active:
            self.deactivate()
        self._opened.close()

    def _on_stamp(self, source: str, stamp_ns: int | None) -> None:
        """Act as soon as every source has the message's stamp (lockstep)."""
        ready_ns = self._lockstep.record_message(source, stamp_ns, time.monotonic_ns())
        if ready_ns is not None:
            self._act(ready_ns)
        elif self._lockstep.is_repeated(stamp_ns):
            self._output.repeat()

    def _on_message(self, source: str, stamp_ns: int | None) -> None:
        """Act as soon as a set of messages is complete (real time)."""
        if self._pace is None:
            return
        now_ns = self._now_ns()
        if self._pace.record_message(source, now_ns):
            self._act(None)
        else:
            self._plan(self._pace.next_tick_ns(now_ns))

    def _act_if_overdue(self) -> None:
        """Act on the messages that are there, if the wait has run out (lockstep)."""
        overdue_ns = self._lockstep.overdue_stamp_ns(time.monotonic_ns())
        if overdue_ns is not None:
            self._act(overdue_ns)

    def _act_in_time(self) -> None:
        """Act now (real time); the events executor would fill in any argument."""
        left_ns = self._planned_ns - self._now_ns()
        if self._pace is not None and 0 < left_ns <= self._ticker.timer_period_ns:
            self._wait(left_ns)  # the timer was due when it was reset, and is called nevertheless
        else:
            self._act(None)

    def _act(self, stamp_ns: int | None) -> None:
        """Make one tick; any error in it ends in deactivation, and so in the safe command."""
        if self._broken:
            return
        refusal = self._priority.apply()
        self._tick_began_s = time.perf_counter()
        try:
            self._tick(stamp_ns, self._tick_began_s)
        except Exception as error:
            self._fail(error)
        finally:
            self._tick_began_s = None
        if refusal:
            self._log_no_priority(refusal)

    def _tick(self, stamp_ns: int | None, begin_s: float) -> None:
        """Read, decide and publish once, and record the times."""
        self._ticked_ns = now_ns = self._now_ns()
        if self._arrivals is not None:
            self._arrivals.record_tick(now_ns)
        if self._pace is not None:
            self._pace.record_tick(now_ns)
            self._plan(self._pace.next_tick_ns(now_ns))
        if stamp_ns is not None:
            self._lockstep.record_action()
        sent_ns = 0

        def send(decide: Decide) -> None:
            """Send the command and keep its stamp."""
            nonlocal sent_ns
            sent_ns = self._send(decide, stamp_ns, begin_s)

        readings = self.controller.tick(now_ns, stamp_ns, send if self.active else None)
        if not self.active:
            return
        end_s = time.perf_counter()
        self.controller.prepare()
        age_s = (now_ns - readings.since_ns) / 1e9 if readings.ids else nan
        self._ticks.add(begin_s, end_s, age_s + end_s - begin_s)
        policy, table = self.controller.acting.policy, self.controller.table
        self._insight.publish(readings, policy, table, sent_ns)
        self._events.log(readings, time.monotonic(), shadow=self._output.shadow)

    def _send(self, decide: Decide, stamp_ns: int | None, begin_s: float) -> int:
        """Send the command that `decide` returns when it is called, and return its stamp in ns.

        The safe command is sent if the tick has taken too long. From step to step of lockstep one
        period passes.
        """
        decided_s = time.perf_counter()
        too_late = 0.0 < self._watchdog.timeout_s < decided_s - begin_s  # the readings are too old
        now = self._now_ns if stamp_ns is None else lambda: None
        safe = self.controller.gate.safe
        sent_ns = self._stamp_ns() if stamp_ns is None else stamp_ns
        if self._output.publish(safe if too_late else lambda: decide(now()), sent_ns):
            self._watchdog.command_sent(time.monotonic())
        self._log_slow_sending(time.perf_counter() - decided_s)
        return sent_ns

    def _fail(self, error: Exception) -> None:
        """Log an error in a tick, deactivate, and do not tick before the next activation."""
        why = str(error) if isinstance(error, BringUpError) else f"tick failed: {error!r}"
        self._node.get_logger().error(
            f"{why}; {'deactivating' if self.active else 'the node stops watching'}"
        )
        self._broken = True
        if self.active:
            self._failed()

    def _plan(self, at_ns: int) -> None:
        """Plan a tick at this time of the clock, unless the sources cause one earlier."""
        if at_ns != self._planned_ns:
            self._planned_ns = at_ns
            self._wait(max(1, at_ns - self._now_ns()))

    def _wait(self, wait_ns: int) -> None:
        """Call the ticker after this time."""
        self._ticker.timer_period_ns = wait_ns
        self._ticker.reset()

    def _log_settings(self) -> None:
        """Log which timeouts are off, and a ramp that the model was not trained with."""
        logger = self._node.get_logger()
        off = [f"source {s.name!r}" for s in self.controller.wiring.sources if not s.max_age_s]
        if self._wait_s is None and off:
            logger.info(f"messages of any age count (max_age_s is 0): {', '.join(off)}")
        if not self._watchdog.timeout_s:
            logger.info("the watchdog is off (parameter watchdog_s)")
        acting = self.controller.acting
        if warning := ramp_warning(acting.ramp_s, acting.model_path, acting.policy.model):
            logger.warning(warning)

    def _raise_watchdog(self) -> None:
        """Raise the priority of the watchdog's thread, so that it can interrupt a tick."""
        if self._priority.priority:
            with suppress(PermissionError):  # the ticks' refusal is logged
                take_real_time_priority(self._priority.priority + 1)

    def _log_no_priority(self, refusal: str) -> None:
        """Log once why ticks have no real-time priority."""
        wanted = self._priority.priority
        self._node.get_logger().info(
            f"ticks run at ordinary priority, not at thread_priority {wanted}: {refusal}", once=True
        )

    def _log_slow_sending(self, send_s: float) -> None:
        """Log that sending a command took too long, during which rclpy blocked the watchdog too."""
        if 0.0 < self._watchdog.timeout_s < send_s:
            self._node.get_logger().error(
                f"the middleware took {send_s:.3f} s to send a command, which delayed all others",
                throttle_duration_sec=TOLD_S,
            )

    def _log_trip(self, sent: bool) -> None:
        """Log a trip of the watchdog, on its thread, after the safe command was sent."""
        limit_s, now_s = self._watchdog.timeout_s, time.monotonic()
        before = sum(count for _, count in self._trips.take_ended(now_s))
        more = f"; {before} more trips since the line before" if before else ""
        if not self._trips.allow("", now_s):
            return
        done = (
            "safe command"
            if sent
            else "no safe command, because a position to hold has not been measured"
        )
        self._node.get_logger().error(
            f"watchdog: no command for {limit_s:.3g} s: {done} ({self._why_silent()}){more}"
        )

    def _why_silent(self) -> str:
        """Return why no command was sent for longer than the watchdog allows."""
        began_s, limit_s = self._tick_began_s, self._watchdog.timeout_s
        if began_s is None:
            if self._simulated and self._now_ns() - self._ticked_ns < 1e9 * limit_s:
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

    def _send_safe(self, safe: Callable[[], np.ndarray] | None = None) -> bool:
        """Send the safe command from any thread; return whether it could be sent.

        In lockstep it has the stamp of the last command.
        """
        stamp_ns = None if self._wait_s is not None else self._stamp_ns()
        with suppress(RuntimeError):  # rclpy was shut down meanwhile
            return self._output.publish(safe or self._safe_command, stamp_ns)
        return False

    def _diagnose(self) -> None:
        """Publish the diagnostics."""
        message = self._report.make_message(self.active, self._now_ns())
        set_stamp(message.header.stamp, self._stamp_ns())
        self._publisher.publish(message)

    def _now_ns(self) -> int:
        """Return the time for readings' ages: ROS time in a simulation, else steady time."""
        return self._stamp_ns() if self._simulated else time.monotonic_ns()

    def _stamp_ns(self) -> int:
        """Return the node's ROS time."""
        return int(self._node.get_clock().now().nanoseconds)


def _check_has_stamps(table: ChannelTable) -> None:
    """Check that at least one source has stamps, without which lockstep would wait for ever.

    Raises:
        WiringError: If none has.
    """
    if all(stamp_field(cls()) is None for cls in table.message_classes.values()):
        types = Description(", ".join({one.type: None for one in table.wiring.sources}))
        allowed = "at least one type with a stamp, for mode lockstep"
        raise WiringError(table.wiring.file, "sources", types, allowed)


def _make_steady_clock() -> Clock:
    """Return a steady clock for one timer alone.

    If a timer is reset while another timer of its clock is due but not yet called, the events
    executor calls that one twice, and then as much later.
    """
    return Clock(clock_type=ClockType.STEADY_TIME)


def prepare_first_ticks(logger: RcutilsLogger, controller: Controller) -> None:
    """Log the configuration, and do once what would otherwise delay the first ticks."""
    # rclpy finds the line that logs by `inspect`, which at its first use visits all modules: 40 to
    # 180 ms. A line below the logger's level does not get that far.
    inspect.getframeinfo(inspect.currentframe())  # type: ignore[arg-type]
    logger.info(f"configured: {controller.summary()}")
    freeze_garbage_again()
