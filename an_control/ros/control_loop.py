"""The control loop of a configured node: a controller, its topics, and what makes it tick.

Callbacks store messages; a tick (control step) reads them, decides and publishes a command.
Callbacks and ticks run on the executor's thread. The watchdog, which sends the safe command (that
does no harm) when no other command is sent, has a thread of its own. While the node acts in real
time, the executor's and the watchdog's threads have real-time priority if the system allows it.
While the node is inactive, or in shadow mode (commands are only proposed), it commands nothing. Its
policy still computes, with the commands that another node really sends as its previous actions.

A tick that takes a few control periods longer than usual makes the watchdog send the safe command,
and delays messages that arrive meanwhile. So everything that is slow at its first use is used once
when the node is configured (`log_configuration_and_warm_up`).
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from math import nan

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.impl.rcutils_logger import RcutilsLogger
from rclpy.node import Node

from an_control.control.bring_up import BringUpError
from an_control.control.command_safety import EStop, Watchdog
from an_control.control.controller import Controller
from an_control.control.model_wiring_check import describe_ramp_longer_than_trained
from an_control.record.layout import CommandKind
from an_control.record.recorder import NodeRecorder
from an_control.ros.diagnostics import DiagnosticsReport, EventLog, Throttle, TickTimes
from an_control.ros.doctor.corrections import Conversions
from an_control.ros.doctor.running_doctor import RunningDoctor
from an_control.ros.inputs import Inputs
from an_control.ros.outputs import CommandOutput, InsightOutput, set_stamp
from an_control.ros.parameter_table import Trigger
from an_control.ros.recording import LoopRecord
from an_control.ros.tickers import (
    LockstepTicker,
    LoopClock,
    RealTimeTicker,
    Ticker,
    make_steady_clock,
)
from an_control.system.priority import (
    RealTimePriority,
    exclude_new_objects_from_gc,
    set_real_time_priority,
)
from an_control.wiring import ChannelTable, Wiring, WiringError
from an_control.wiring.checked_yaml import Description
from an_control.wiring.messages import get_stamp_field

DIAGNOSTICS_S = 1.0
LOCKSTEP_DEPTH = 10
TRIP_PERIODS = 1.75
"""Watchdog timeout in control periods. It is less than two because the watchdog's thread may take
some time to wake up."""
TOLD_S = 1.0
"""Minimum time in seconds between two log lines about sending that takes too long."""


class Loop:
    """A loop that feeds a controller from subscribed topics and publishes its commands.

    Args:
        node: Owns publishers, subscriptions and timers.
        controller: Decides what to command.
        lockstep_wait_s: In lockstep with a simulator, seconds to wait until all sources have sent a
            message with the same stamp; None: real time.
        on_failure: Called when a tick of the active node raised an error; must deactivate the node.
        watchdog_s: Seconds without a command after which the watchdog sends the safe command; 0:
            never. None: 1.75 control periods (`TRIP_PERIODS`) in real time, never in lockstep.
        trigger: What starts a tick in real time: a message from every source ("sources"), or a
            timer ("timer").
        shadow: Whether to propose commands on another topic without sending them to the robot.
        with_message_info: Whether the executor gives subscription callbacks a MessageInfo, which
            says when a message was published.
        thread_priority: Real-time priority of the thread that ticks, while the node is active in
            real time; 0 = ordinary priority.
        recorder: Records messages, ticks, commands and events; None: nothing is recorded.
        corrects: The kinds of mistakes in the wiring that are corrected while the node runs, some
            of "scale", "sign" and "offset"; None: mistakes are not even looked for.
    """

    def __init__(
        self,
        node: Node,
        controller: Controller,
        lockstep_wait_s: float | None,
        on_failure: Callable[[], object],
        watchdog_s: float | None = None,
        *,
        trigger: Trigger = "sources",
        shadow: bool = False,
        with_message_info: bool = True,
        thread_priority: int = 0,
        recorder: NodeRecorder | None = None,
        corrects: Sequence[str] | None = None,
    ) -> None:
        lockstep = lockstep_wait_s is not None
        if lockstep:
            _check_any_source_has_stamps(controller.table)
        self.controller, self._on_failure = controller, on_failure
        self.active = self._broken = False
        self._is_running = node.context.ok
        self._clock = clock = LoopClock(node)
        self.record = LoopRecord(recorder, controller, clock)
        """Records ticks, commands and events, if anything is recorded."""
        if watchdog_s is None:
            watchdog_s = 0.0 if lockstep else TRIP_PERIODS * controller.step_s
        steady = not (lockstep or clock.simulated)
        self._guard = LoopGuard(
            node.get_logger(),
            clock,
            self._send_safe_command,
            controller.step_s,
            watchdog_s,
            controller.estop,
            self.record.save_black_box_and_describe_file,
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
            self._output.on_command = self.record.record_command
            self._ticker = self._make_ticker(node, lockstep_wait_s, trigger)
            opened.callback(self._ticker.close)
            self._inputs = Inputs(
                node,
                controller.table,
                clock.now_ns,
                self._ticker.record_message,
                LOCKSTEP_DEPTH if lockstep else 1,
                self._ticker.arrivals,
                with_message_info=with_message_info and not lockstep,
                recorder=recorder,
            )
            opened.callback(self._inputs.close)
            self.doctor: RunningDoctor | None = None
            """Finds wrong lines of the wiring while the node runs; None: nothing does."""
            if corrects is not None:
                self.doctor = RunningDoctor(
                    node.get_logger(), controller, self.correct_scales_and_offsets, corrects
                )
                opened.callback(self.doctor.close)
            self.ticks = TickTimes(controller.step_s, real_time=not lockstep)
            self.events = EventLog(node.get_logger(), controller)
            self._insight = InsightOutput(node, has_images=bool(controller.wiring.images))
            opened.callback(self._insight.close)
            self._diagnostics_publisher = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
            opened.callback(node.destroy_publisher, self._diagnostics_publisher)
            self.diagnostics = DiagnosticsReport(
                node,
                controller,
                self.ticks,
                self._guard.watchdog,
                self._inputs,
                self._output,
                real_time=not lockstep,
                recorder=recorder,
                doctor=self.doctor,
            )
            reporter = node.create_timer(
                DIAGNOSTICS_S, self._publish_diagnostics, clock=make_steady_clock()
            )
            opened.callback(node.destroy_timer, reporter)
            self._opened = opened.pop_all()

    def _make_ticker(self, node: Node, wait_s: float | None, trigger: Trigger) -> Ticker:
        """Make the object that calls the ticks (control steps), in lockstep or in real time.

        Args:
            node: Owns the timer.
            wait_s: In lockstep, where a simulator waits for each command, seconds to wait for the
                messages of all sources; None: real time.
            trigger: What starts a tick in real time.
        """
        names = [source.name for source in self.controller.wiring.sources]
        if wait_s is not None:
            return LockstepTicker(
                node, names, wait_s, self._run_tick, self._output.resend_newest_command
            )
        return RealTimeTicker(
            node, names, self.controller.step_s, self._run_tick, self._clock, trigger
        )

    @property
    def last_command(self) -> np.ndarray | None:
        """The newest command (A,) on the robot's topics, from any node; None if none is known."""
        return self.controller.gate.last.values

    def activate(self) -> None:
        """Start to control the robot. The policy keeps its state from the ticks before."""
        self.record.record_event("activate", bring_up=not self._output.shadow)
        self.controller.start(bring_up=not self._output.shadow)
        self._ticker.accept_any_next_stamp()
        self.ticks.ignore_gap_before_next_tick()
        self._log_unusual_settings()
        self.events.forget_logged_changes(time.monotonic())  # what still applies is logged again
        self.active, self._broken = True, False
        self._publish_commands_from_now(shadow=self._output.shadow)
        self._guard.priority.request()

    def deactivate(self) -> None:
        """Stop controlling the robot. The safe command is sent as the final command."""
        self.active = False
        self.record.record_event("deactivate")
        try:
            self._stop_commanding()
            self._output.stop_publishing()
        finally:
            self._guard.priority.release()

    def set_shadow(self, shadow: bool) -> None:
        """Switch shadow mode, in which commands are only proposed, on or off.

        The policy keeps its state. Before shadow mode begins, the safe command is sent to the robot
        as the final command.

        Args:
            shadow: Whether to only propose commands from now on, instead of sending them to the
                robot.
        """
        if shadow == self._output.shadow:
            return
        self.record.record_event("shadow", on=shadow, active=self.active)
        if not self.active:
            self._output.shadow = shadow
            return
        if shadow:
            self._stop_commanding()
        else:
            self.controller.start(bring_up=False)
        self._publish_commands_from_now(shadow=shadow)
        self.events.forget_logged_changes(time.monotonic())

    def _publish_commands_from_now(self, *, shadow: bool) -> None:
        """Start to publish commands; also start the watchdog if they are sent to the robot.

        Args:
            shadow: Whether commands are only proposed, and not sent to the robot.
        """
        self._output.start_publishing(shadow=shadow)
        if not shadow:
            self._guard.watchdog.start()

    def _stop_commanding(self) -> None:
        """Stop the watchdog, and send the safe command as the final command."""
        self._guard.watchdog.stop()
        with self._output.lock:
            self._output.send(
                self.controller.stop_and_get_safe_command(),
                self._clock.read_ros_time_ns(),
                CommandKind.STOP,
            )

    def reset(self) -> None:
        """Start a new episode: reset the policy and its identity monitor; discard camera frames.

        In lockstep with a simulator also forget the newest command, which belongs to the old
        episode.
        """
        self.record.record_event("reset", lockstep=self._ticker.lockstep)
        self.controller.reset()
        self._ticker.accept_any_next_stamp()
        if self.doctor is not None:
            self.doctor.mark_gap_before_next_tick()
        if self._ticker.lockstep:  # in a simulator what was sent is part of the last episode
            self._output.forget_commands()
            self.controller.gate.forget_positions_and_restart_ramp()

    def send_safe_command_now(self) -> None:
        """Send the safe command at once if the node is active, because the e-stop was set."""
        if self.active:
            self._send_safe_command(
                self.controller.gate.restart_ramp_and_get_safe_command, CommandKind.HALT
            )

    def make_rewired_table(self, wiring: Wiring) -> ChannelTable:
        """Make the table that reads sensors by a changed wiring; `rewire` puts it to use.

        Args:
            wiring: The changed wiring: other topics, fields or channels.

        Raises:
            ValueError: The wiring cannot replace the present one; the text says why.
        """
        table = self.controller.make_rewired_table(wiring)
        if self._ticker.lockstep:
            _check_any_source_has_stamps(table)
        self._inputs.check_message_types(table)
        return table

    def rewire(self, table: ChannelTable, file_text: str | None = None) -> None:
        """Switch to a changed wiring from the next tick on, and subscribe to its topics.

        Args:
            table: The table of the changed wiring, as `make_rewired_table` returned it.
            file_text: The text of the wiring file if it was read again, for the recording.

        Raises:
            ValueError: A topic cannot be subscribed; then nothing is changed.
        """
        moved = self._inputs.resubscribe_and_get_moved_sources(table)
        self.record.record_wiring(table.wiring, self.controller.wiring, file_text)
        self.controller.switch_wiring(table)
        self._ticker.set_sources([source.name for source in table.wiring.sources], moved)
        self._inputs.store_newest_messages_for_moved_sources(
            moved, self._ticker.is_tick_with_stamp_pending
        )

    def correct_scales_and_offsets(self, conversions: Conversions) -> None:
        """Read some channels with another scale and offset from the next tick on.

        Args:
            conversions: The new (scale, offset) by the id of the channel's entry in the wiring.

        Raises:
            ValueError: A channel cannot be read like that; then nothing is changed.
        """
        table = self.make_rewired_table(self.controller.wiring.with_conversions(conversions))
        self._inputs.resubscribe_and_get_moved_sources(table)
        self.controller.switch_wiring(table)
        self.restart_monitor(conversions)

    def restart_monitor(self, conversions: Conversions) -> None:
        """Restart the policy's monitor after a change of scales and offsets of channels.

        Otherwise the monitor would take the changed readings for rewired sensors.

        Args:
            conversions: The new (scale, offset) by the id of the channel's entry in the wiring,
                for the recording.
        """
        values = {id_: list(pair) for id_, pair in conversions.items()}
        self.record.record_event("correct", values=values)
        self.controller.acting.restart_monitor()

    def close(self) -> None:
        """Disconnect from all topics. If the node was acting, send the safe command before that."""
        if self.active:
            self.deactivate()
        self._opened.close()

    def _run_tick(self, stamp_ns: int | None) -> None:
        """Make one tick: read, estimate, decide, limit, send; then report it.

        If the decision has taken too long, the safe command is sent instead, because the readings
        are too old. An error in the tick deactivates the node, which then sends the safe command.

        Args:
            stamp_ns: In lockstep with a simulator, the time stamp of the readings to use; otherwise
                None.
        """
        if self._broken:
            return
        controller, clock = self.controller, self._clock
        begin_s = self._guard.begin_tick_and_read_time_s()
        try:
            now_ns = self._guard.ticked_ns = clock.now_ns()
            self._ticker.record_tick(now_ns, stamp_ns)
            self.record.begin_tick(now_ns, stamp_ns)
            before = controller.gate.last.values
            # read, estimate, decide
            decision = controller.decide(now_ns, stamp_ns)
            readings = decision.readings
            self.record.record_tick(sends_command=self.active)
            if not self.active:
                self.record.record_readings(readings)
                return
            decided_s = time.perf_counter()
            sent_ns = clock.read_ros_time_ns() if stamp_ns is None else stamp_ns
            with self._output.lock:  # limit, send
                if self._guard.exceeds_watchdog_timeout(decided_s - begin_s):
                    kind = CommandKind.TOO_LATE
                    command = controller.gate.restart_ramp_and_get_safe_command()
                else:
                    kind = CommandKind.POLICY
                    decided_ns = clock.now_ns() if stamp_ns is None else None
                    command = controller.compute_command(decided_ns)
                    self.record.decided_ns = decided_ns
                sent = self._output.send(command, sent_ns, kind)
            if sent:
                self._guard.watchdog.record_command(time.monotonic())
            end_s = time.perf_counter()
            self._guard.log_slow_sending(end_s - decided_s)
            controller.acting.policy.prepare_next_tick()
            self.record.record_readings(readings)
            age_s = (now_ns - readings.since_ns) / 1e9 if readings.ids else nan
            self.ticks.record_tick(begin_s, end_s, age_s + end_s - begin_s)
            self._insight.publish(readings, controller.acting.policy, controller.table, sent_ns)
            self.events.log_changes(decision, time.monotonic(), shadow=self._output.shadow)
            if self.doctor is not None:
                self.doctor.record_tick_and_check_readings(decision, before, now_ns, stamp_ns)
        except Exception as error:
            self._deactivate_after_error(error)
        finally:
            self._guard.end_tick()

    def _deactivate_after_error(self, error: Exception) -> None:
        """Log an error in a tick, deactivate the node, and stop ticking until it is activated."""
        why = str(error) if isinstance(error, BringUpError) else f"tick failed: {error!r}"
        self.record.record_failure(why)
        then = (
            f"deactivating{self.record.save_black_box_and_describe_file(why)}"
            if self.active
            else "no more ticks until the node is activated"
        )
        self._guard.logger.error(f"{why}; {then}")
        self._broken = True
        if self.active:
            self._on_failure()

    def _send_safe_command(
        self,
        compute_safe: Callable[[], np.ndarray] | None = None,
        kind: CommandKind = CommandKind.WATCHDOG,
    ) -> bool:
        """Send the safe command; return whether it could be sent. Any thread may call this method.

        In lockstep the command has the stamp of the previous command.

        Args:
            compute_safe: Returns the safe command (A,). None: the gate's safe command is sent
                without a reset of the gate, so that the ramp to the policy's commands does not
                start again.
            kind: Why the command is sent, for the recording.
        """
        stamp_ns = None if self._ticker.lockstep else self._clock.read_ros_time_ns()
        try:
            with self._output.lock:
                command = (compute_safe or self.controller.gate.safe_command)()
                return self._output.send(command, stamp_ns, kind)
        except Exception as error:  # the caller's thread, which may be the watchdog's, must go on
            if self._is_running():
                self._guard.logger.error(
                    f"the safe command was not sent: {error!r}", throttle_duration_sec=TOLD_S
                )
            return False

    def _publish_diagnostics(self) -> None:
        """Publish the diagnostics; a timer calls this once a second, also without ticks."""
        message = self.diagnostics.make_message(self.active, self._clock.now_ns())
        set_stamp(message.header.stamp, self._clock.read_ros_time_ns())
        self._diagnostics_publisher.publish(message)
        self.record.flush_if_no_recent_tick()

    def _log_unusual_settings(self) -> None:
        """Log which timeouts are off, and warn of a ramp that the model was not trained with."""
        logger, sources = self._guard.logger, self.controller.wiring.sources
        off = [f"source {source.name!r}" for source in sources if not source.max_age_s]
        if off and not self._ticker.lockstep:
            logger.info(f"messages of any age count (max_age_s is 0): {', '.join(off)}")
        if not self._guard.watchdog.timeout_s:
            logger.info("the watchdog is off (parameter watchdog_s)")
        acting = self.controller.acting
        if warning := describe_ramp_longer_than_trained(
            acting.ramp_s, acting.model_path, acting.policy.model
        ):
            logger.warning(warning)


class LoopGuard:
    """A guard of a control loop's timing, with a watchdog and the real-time priority of threads.

    It also logs ticks (control steps) and sendings that take longer than the watchdog allows.

    Args:
        logger: The node's logger.
        clock: The loop's clock.
        send_safe: Sends the safe command and returns whether that was possible.
        period_s: The control period in seconds.
        timeout_s: The age in seconds of the newest command at which the watchdog sends the safe
            command; 0: never.
        estop: The e-stop.
        save_black_box_and_describe_file: Writes the black box (record of the last seconds) into a
            file. Its argument is the reason; it returns the end of a log line that says where the
            file is.
        thread_priority: Real-time priority of the thread that ticks, 0 = ordinary priority. That of
            the watchdog's thread is higher by one.
    """

    def __init__(
        self,
        logger: RcutilsLogger,
        clock: LoopClock,
        send_safe: Callable[[], bool],
        period_s: float,
        timeout_s: float,
        estop: EStop,
        save_black_box_and_describe_file: Callable[[str], str],
        thread_priority: int,
    ) -> None:
        self.logger, self._clock, self._save_black_box = (
            logger,
            clock,
            save_black_box_and_describe_file,
        )
        self.priority = RealTimePriority(thread_priority)
        self.watchdog = Watchdog(
            send_safe,
            period_s,
            timeout_s,
            estop,
            self._log_watchdog_trip,
            self._raise_watchdog_priority,
        )
        self._trips = Throttle()
        self.ticked_ns = 0
        """Start of the newest tick in ns."""
        self._began_s: float | None = None
        """Start of the running tick in seconds by `time.perf_counter`; None between ticks."""
        self._refusal = ""
        """Why the running tick has no real-time priority; set only at the first such tick, so that
        it is logged once."""

    def begin_tick_and_read_time_s(self) -> float:
        """Record that a tick begins on the calling thread; give this thread real-time priority.

        Return the time now in seconds by `time.perf_counter`.
        """
        self._refusal = self.priority.apply_to_thread()
        self._began_s = time.perf_counter()
        return self._began_s

    def end_tick(self) -> None:
        """Record that the tick has ended; if it had no real-time priority, log once why."""
        self._began_s = None
        if self._refusal:
            self.logger.info(
                f"ticks run at ordinary priority, not at thread_priority {self.priority.priority}:"
                f" {self._refusal}",
                once=True,
            )

    def exceeds_watchdog_timeout(self, duration_s: float) -> bool:
        """Return whether a tick, or sending a command, took longer than the watchdog allows."""
        return 0.0 < self.watchdog.timeout_s < duration_s

    def log_slow_sending(self, send_s: float) -> None:
        """Log an error if the sending of a command took longer than the watchdog allows.

        While rclpy sends, it blocks the watchdog too, which therefore cannot report this itself.

        Args:
            send_s: The seconds that the sending took.
        """
        if self.exceeds_watchdog_timeout(send_s):
            self.logger.error(
                f"the middleware took {send_s:.3f} s to send a command, which delayed all others",
                throttle_duration_sec=TOLD_S,
            )

    def _raise_watchdog_priority(self) -> None:
        """Raise the priority of the watchdog's thread, so that it can interrupt a tick."""
        if self.priority.priority:
            with suppress(PermissionError):  # the ticks' refusal is logged
                set_real_time_priority(self.priority.priority + 1)

    def _log_watchdog_trip(self, sent: bool) -> None:
        """Log that the watchdog has begun to send the safe command; it calls this on its thread.

        Args:
            sent: Whether the safe command could be sent.
        """
        limit_s, now_s = self.watchdog.timeout_s, time.monotonic()
        before = sum(count for _, count in self._trips.pop_suppressed_line_counts(now_s))
        more = f"; {before} more trips since the line before" if before else ""
        if not self._trips.count_log_line_and_check_allowed("", now_s):
            return
        done = (
            "safe command"
            if sent
            else "no safe command: a position to hold has not been measured, or sending failed"
        )
        self.logger.error(
            f"watchdog: no command for {limit_s:.3g} s: {done} "
            f"({self._explain_missing_command()}){more}{self._save_black_box('watchdog')}"
        )

    def _explain_missing_command(self) -> str:
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


def _check_any_source_has_stamps(table: ChannelTable) -> None:
    """Check that at least one source has time stamps. Without any, lockstep waits for ever.

    Raises:
        WiringError: No source has time stamps.
    """
    if all(get_stamp_field(cls()) is None for cls in table.message_classes.values()):
        types = Description(", ".join({one.type: None for one in table.wiring.sources}))
        allowed = "at least one type with a stamp, for mode lockstep"
        raise WiringError(table.wiring.file, "sources", types, allowed)


def log_configuration_and_warm_up(logger: RcutilsLogger, controller: Controller) -> None:
    """Log the configuration, and do slow work now that would otherwise delay the first ticks.

    The slow work is a garbage collection, and what the first log call does: it visits all modules.
    """
    # rclpy finds the line that logs by `inspect`, which at its first use visits all modules: 40 to
    # 180 ms. A line below the logger's level does not get that far.
    inspect.getframeinfo(inspect.currentframe())  # type: ignore[arg-type]
    logger.info(f"configured: {controller.format_summary()}")
    exclude_new_objects_from_gc()
