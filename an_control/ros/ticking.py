"""Make a control loop tick: once for each stamp in lockstep, else at the control rate.

A tick is one control step. In lockstep a simulator waits for each command, and all messages of a
step have the same time stamp. `Lockstep` and `TickSchedule` decide when to tick, without ROS. The
classes here tell them of messages and of the time, and run a ROS timer for them.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.timer import Timer

from an_control.ros.inputs import Arrivals
from an_control.ros.lockstep import Lockstep
from an_control.ros.pace import TickSchedule
from an_control.ros.parameter_table import Trigger

OnTick = Callable[[int | None], object]
"""A function that makes one tick. Its argument is the stamp in ns of the readings to use in
lockstep, else None."""


class LoopClock:
    """The two clocks of a loop: ROS time for stamps, and a clock for the age of readings."""

    def __init__(self, node: Node) -> None:
        self._clock = node.get_clock()
        self.simulated = bool(node.get_parameter("use_sim_time").value)

    def now_ns(self) -> int:
        """Return the time that gives the age of readings: ROS time in a simulation, else steady."""
        return self.stamp_ns() if self.simulated else time.monotonic_ns()

    def stamp_ns(self) -> int:
        """Return the node's ROS time."""
        return int(self._clock.now().nanoseconds)


def make_steady_clock() -> Clock:
    """Return a steady clock for use by a single timer.

    Each timer needs its own clock because of a fault in rclpy's events executor. If a timer is
    reset while another timer on the same clock is due but not yet called, the executor calls that
    other timer twice, and its next call comes late.
    """
    return Clock(clock_type=ClockType.STEADY_TIME)


class Ticker(ABC):
    """A caller of a loop's ticks. It is told of each stored message and of each tick.

    Args:
        node: Owns the timer.
        tick: Makes a tick.
        timer: The timer, which calls a tick that no message causes.
    """

    lockstep: bool
    arrivals: Arrivals | None = None
    """Corrects the arrival times of messages; None: they are not corrected."""

    def __init__(self, node: Node, tick: OnTick, timer: Timer) -> None:
        self._node, self._tick, self._timer = node, tick, timer

    @abstractmethod
    def record_message(self, source: str, stamp_ns: int | None) -> None:
        """Record that a source got a message. Tick if no further message is awaited."""

    @abstractmethod
    def record_tick(self, now_ns: int, stamp_ns: int | None) -> None:
        """Record that a tick begins."""

    @abstractmethod
    def set_sources(self, sources: Iterable[str], moved_sources: Iterable[str]) -> None:
        """Wait for these sources from now on; `moved_sources` read another topic than before."""

    @abstractmethod
    def is_awaited(self, stamp_ns: int | None) -> bool:
        """Return whether a message with this stamp, which came earlier, is still to be acted on."""

    def reset(self) -> None:
        """Accept any stamp as new, because the node starts to act or an episode starts."""
        return

    def close(self) -> None:
        """Destroy the timer."""
        self._node.destroy_timer(self._timer)


class LockstepTicker(Ticker):
    """A caller of one tick for each stamp, once all sources have sent it or the wait is over.

    Args:
        node: Owns the timer.
        sources: Names of the sources.
        wait_s: Seconds to wait, after the first message with a stamp, for all sources to send it.
        tick: Makes the tick.
        repeat: Called when a stamp that has been acted on comes again, because the command for it
            was lost.
    """

    lockstep = True

    def __init__(
        self,
        node: Node,
        sources: Iterable[str],
        wait_s: float,
        tick: OnTick,
        repeat: Callable[[], object],
    ) -> None:
        timer = node.create_timer(wait_s / 2, self._tick_if_overdue, clock=make_steady_clock())
        super().__init__(node, tick, timer)
        self._stamps, self._repeat = Lockstep(sources, int(wait_s * 1e9)), repeat

    def record_message(self, source: str, stamp_ns: int | None) -> None:
        """Record a message; tick as soon as every source has sent its stamp."""
        ready_ns = self._stamps.record_message(source, stamp_ns, time.monotonic_ns())
        if ready_ns is not None:
            self._tick(ready_ns)
        elif self._stamps.is_repeated(stamp_ns):
            self._repeat()

    def record_tick(self, now_ns: int, stamp_ns: int | None) -> None:
        """Record that the node acts on the newest stamp; a tick without a stamp is ignored."""
        if stamp_ns is not None:
            self._stamps.record_action()

    def set_sources(self, sources: Iterable[str], moved_sources: Iterable[str]) -> None:
        """Wait for these sources from now on; tick if all have sent the newest stamp.

        Args:
            sources: Names of all sources.
            moved_sources: Names of the sources that now read another topic. They must send the
                stamp again on that topic.
        """
        ready_ns = self._stamps.set_sources_and_find_stamp_ns(sources, moved_sources)
        if ready_ns is not None:
            self._tick(ready_ns)

    def is_awaited(self, stamp_ns: int | None) -> bool:
        """Return whether a message with this stamp, which came earlier, is still to be acted on."""
        return self._stamps.is_awaited(stamp_ns)

    def reset(self) -> None:
        """Accept any stamp as new."""
        self._stamps.reset()

    def _tick_if_overdue(self) -> None:
        """Tick on the messages that have come, if the time to wait for others is over."""
        overdue_ns = self._stamps.find_overdue_stamp_ns(time.monotonic_ns())
        if overdue_ns is not None:
            self._tick(overdue_ns)


class RealTimeTicker(Ticker):
    """A caller of ticks at the control rate, started by messages or by a timer alone.

    Args:
        node: Owns the timer.
        sources: Names of the sources.
        step_s: Control period in seconds.
        tick: Makes the tick.
        clock: Gives the time against which the age of readings is measured.
        trigger: What starts a tick: a message from every source ("sources"), or the timer alone
            ("timer").
    """

    lockstep = False

    def __init__(
        self,
        node: Node,
        sources: Iterable[str],
        step_s: float,
        tick: OnTick,
        clock: LoopClock,
        trigger: Trigger,
    ) -> None:
        by = node.get_clock() if clock.simulated else make_steady_clock()
        super().__init__(node, tick, node.create_timer(step_s, self.tick_in_time, clock=by))
        self._clock, period_ns = clock, int(step_s * 1e9)
        self._schedule = None if trigger == "timer" else TickSchedule(sources, period_ns)
        self._planned_ns = 0
        """Time in ns of the next tick if no complete set of messages comes before."""
        self.arrivals = None if clock.simulated else Arrivals(period_ns)

    def record_message(self, source: str, stamp_ns: int | None) -> None:
        """Record a message. Tick if a set of messages is complete, else plan a later tick."""
        if self._schedule is None:
            return
        now_ns = self._clock.now_ns()
        if self._schedule.record_message(source, now_ns):
            self._tick(None)
        else:
            self._plan_tick(self._schedule.compute_next_tick_ns(now_ns))

    def record_tick(self, now_ns: int, stamp_ns: int | None) -> None:
        """Record the time of a tick, and plan the next one."""
        if self.arrivals is not None:
            self.arrivals.record_tick(now_ns)
        if self._schedule is not None:
            self._schedule.record_tick(now_ns)
            self._plan_tick(self._schedule.compute_next_tick_ns(now_ns))

    def set_sources(self, sources: Iterable[str], moved_sources: Iterable[str]) -> None:
        """Wait for these sources from now on."""
        if self._schedule is not None:
            self._schedule.set_sources(sources)

    def is_awaited(self, stamp_ns: int | None) -> bool:
        """Return False, because in real time a message that came earlier is late by now."""
        return False

    def tick_in_time(self) -> None:
        """Tick now, when the timer is due.

        It must have no parameters, because rclpy's events executor would pass arguments for them.
        """
        left_ns = self._planned_ns - self._clock.now_ns()
        if self._schedule is not None and 0 < left_ns <= self._timer.timer_period_ns:
            self._set_timer(
                left_ns
            )  # the timer was due when it was reset, and is called nevertheless
        else:
            self._tick(None)

    def _plan_tick(self, at_ns: int) -> None:
        """Plan a tick at this time of the clock, unless the sources' messages cause one before."""
        if at_ns != self._planned_ns:
            self._planned_ns = at_ns
            self._set_timer(max(1, at_ns - self._clock.now_ns()))

    def _set_timer(self, wait_ns: int) -> None:
        """Set the timer to be due after this time in ns."""
        self._timer.timer_period_ns = wait_ns
        self._timer.reset()
