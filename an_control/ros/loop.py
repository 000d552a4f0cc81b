"""What exists between configure and cleanup: a controller connected to topics, and its ticks.

Callbacks store, a tick reads, decides and publishes, all on the executor's thread; only the
watchdog has its own. While inactive messages are stored and diagnostics go out, but nothing
commands.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.timer import Timer

from an_control.ros.controller import Controller
from an_control.ros.diagnostics import Report, TickTimes
from an_control.ros.inputs import Inputs
from an_control.ros.lockstep import Lockstep
from an_control.ros.outputs import CommandOutput, Inside, set_stamp
from an_control.safety import Watchdog
from an_control.wiring import ChannelTable, Wiring

DIAGNOSTICS_S = 1.0
LOCKSTEP_DEPTH = 10
TRIP_PERIODS = 1.75
"""The watchdog's timeout at a rate; its thread's wake-up may take the rest of two periods."""


class Loop:
    """Feeds a controller from its sources and publishes its commands.

    Args:
        node: owns publishers, subscriptions and timers.
        controller: decides.
        lockstep_wait_s: how long to wait for the sources of a stamp; None ticks at the wiring's
            rate instead of by stamp.
        failed: called when a tick raised; must deactivate.
        watchdog_s: after this long without a command the safe one goes out, 0 = off; None: within
            two periods at a rate, off in lockstep.
    """

    def __init__(
        self,
        node: Node,
        controller: Controller,
        lockstep_wait_s: float | None,
        failed: Callable[[], object],
        watchdog_s: float | None = None,
    ) -> None:
        self.controller = controller
        self.active = False
        self._node = node
        self._failed = failed
        self._steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._simulated = bool(node.get_parameter("use_sim_time").value)
        self._said_safe = False
        step_s, lockstep = controller.step_s, lockstep_wait_s is not None
        self._ticks = TickTimes(step_s, paced=not lockstep)
        sources = controller.wiring.sources
        self._wait_s = lockstep_wait_s
        wait_ns = int((lockstep_wait_s or 0.0) * 1e9)
        self._lockstep = Lockstep((source.name for source in sources), wait_ns)
        self._ticker: Timer | None = None
        if watchdog_s is None:
            watchdog_s = 0.0 if lockstep else TRIP_PERIODS * step_s
        self._safe = controller.wiring.command.safe_command()
        self._watchdog = Watchdog(
            self._send_safe, step_s, watchdog_s, controller.estop, self._tell_trip
        )
        with ExitStack() as opened:
            self._output = CommandOutput(node, controller.wiring.command)
            opened.callback(self._output.close)
            self._inside = Inside(node, sees=bool(controller.wiring.images))
            opened.callback(self._inside.close)
            self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
            opened.callback(node.destroy_publisher, self._publisher)
            diagnoser = node.create_timer(DIAGNOSTICS_S, self._diagnose, clock=self._steady)
            opened.callback(node.destroy_timer, diagnoser)
            self._inputs = Inputs(
                node,
                controller.table,
                self._now_ns,
                self._follow if lockstep else _ignore,
                LOCKSTEP_DEPTH if lockstep else 1,
            )
            opened.callback(self._inputs.close)
            self._report = Report(
                node, controller, self._ticks, self._watchdog, self._inputs.topics
            )
            self._opened = opened.pop_all()

    def activate(self) -> None:
        """Start to act, from a new episode."""
        self.reset()
        self._tell_what_is_off()
        self.active = True
        if self._wait_s is not None:
            self._ticker = self._node.create_timer(
                self._wait_s / 2, self._act_if_overdue, clock=self._steady
            )
        else:
            clock = self._node.get_clock() if self._simulated else self._steady
            step_s = self.controller.step_s
            self._ticker = self._node.create_timer(step_s, self._act_at_rate, clock=clock)
        self._watchdog.start()

    def stand_down(self) -> None:
        """Stop acting; the safe command is the last one."""
        self.active = False
        self._watchdog.stop()
        if self._ticker is not None:
            self._node.destroy_timer(self._ticker)
            self._ticker = None
        self._output.publish(self.controller.gate.safe(), self._stamp_ns())

    def reset(self) -> None:
        """Start a new episode."""
        self.controller.reset()
        self._lockstep.reset()
        self._said_safe = False

    def halt(self) -> None:
        """The e-stop was latched: the safe command goes out at once."""
        if self.active:
            self.controller.gate.safe()
            self._send_safe()

    def resume(self) -> None:
        """The e-stop was cleared: a new episode begins."""
        self.controller.reset()

    def rewired(self, wiring: Wiring) -> ChannelTable:
        """The table for `rewire`; ValueError saying why this wiring cannot take over."""
        table = self.controller.rewired(wiring)
        self._inputs.check(table)
        return table

    def rewire(self, table: ChannelTable) -> None:
        """Read from this table from the next tick on; the policy's state stays with its channels.

        Raises ValueError, and changes nothing, where that cannot be.
        """
        self._inputs.rewire(table)
        self.controller.rewire(table)
        ready_ns = self._lockstep.rewire(source.name for source in table.wiring.sources)
        if ready_ns is not None:
            self._act(ready_ns)

    def close(self) -> None:
        """Disconnect; where it was acting the safe command is the last one."""
        if self.active:
            self.stand_down()
        self._opened.close()

    def _follow(self, source: str, stamp_ns: int | None) -> None:
        """Lockstep: act as soon as every source has the stamp."""
        if not self.active:
            return
        ready_ns = self._lockstep.arrived(source, stamp_ns, time.monotonic_ns())
        if ready_ns is not None:
            self._act(ready_ns)
        elif self._lockstep.repeated(stamp_ns):
            self._output.repeat()

    def _act_if_overdue(self) -> None:
        """Lockstep: act on what is there once the wait has run out."""
        overdue_ns = self._lockstep.overdue(time.monotonic_ns())
        if overdue_ns is not None:
            self._act(overdue_ns)

    def _act_at_rate(self) -> None:
        """Without an argument, or the events executor would fill it in."""
        self._act(None)

    def _act(self, stamp_ns: int | None) -> None:
        """One tick; whatever goes wrong in it ends in deactivation, so in the safe command."""
        if not self.active:
            return
        begin_s = time.perf_counter()
        try:
            command, readings = self.controller.tick(self._now_ns(), stamp_ns)
        except Exception as error:
            self._node.get_logger().error(f"tick failed, deactivating: {error!r}")
            self._failed()
            return
        if self._watchdog.tripped:
            command = self.controller.gate.safe()
        if stamp_ns is None:
            stamp_ns = self._stamp_ns()
        else:
            self._lockstep.acted()
        self._output.publish(command, stamp_ns)
        self._watchdog.fed(time.monotonic())
        self._ticks.add(begin_s, time.perf_counter())
        self._inside.publish(
            readings,
            lambda: self.controller.attention(readings.ids),
            self.controller.attended,
            stamp_ns,
        )
        self._tell()

    def _tell(self) -> None:
        """Log what changed, on the edge."""
        logger = self._node.get_logger()
        for notice in self.controller.table.notices():
            if notice.kind == "lost":
                logger.warning(str(notice))
            else:
                logger.info(str(notice))
        safe = bool(self.controller.safe_reason)
        if safe and not self._said_safe:
            logger.warning(f"safe command: {self.controller.safe_reason}")
        elif self._said_safe and not safe:
            logger.info("the policy acts again")
        self._said_safe = safe

    def _tell_what_is_off(self) -> None:
        """What will not be watched, as its timeout is 0."""
        off = [f"source {s.name!r}" for s in self.controller.wiring.sources if not s.max_age_s]
        if self._wait_s is None and off:
            self._node.get_logger().warning(f"max_age_s is 0 (off): {', '.join(off)}")
        if not self._watchdog.timeout_s:
            self._node.get_logger().info("the watchdog is off (watchdog_s)")

    def _tell_trip(self) -> None:
        """On the watchdog's thread, once the safe command has gone out."""
        limit_s = self._watchdog.timeout_s
        self._node.get_logger().error(f"watchdog: no command for {limit_s:.3g} s: safe command")

    def _send_safe(self) -> None:
        """From any thread; in lockstep with the stamp of the last command."""
        with suppress(RuntimeError):  # rclpy was shut down under the watchdog's feet
            self._output.publish(self._safe, None if self._wait_s is not None else self._stamp_ns())

    def _diagnose(self) -> None:
        message = self._report.make(self.active, self._now_ns())
        set_stamp(message.header.stamp, self._stamp_ns())
        self._publisher.publish(message)

    def _now_ns(self) -> int:
        """The clock by which readings age: ROS time in a simulation, else the steady clock."""
        return self._stamp_ns() if self._simulated else time.monotonic_ns()

    def _stamp_ns(self) -> int:
        return int(self._node.get_clock().now().nanoseconds)


def _ignore(source: str, stamp_ns: int | None) -> None:
    """At a fixed rate a message's arrival starts nothing."""
