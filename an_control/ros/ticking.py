"""When a loop ticks: once for each stamp in lockstep, else at the control rate.

The decisions are made by `Lockstep` and `TickSchedule`, which know no ROS; here they get their
messages, their timer and the time.
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
from an_control.ros.settings import Trigger

OnTick = Callable[[int | None], object]
"""A function that makes one tick, in lockstep on the readings of this stamp in ns."""


class LoopClock:
    """The time of a loop: ROS time for stamps, and a clock by which readings age."""

    def __init__(self, node: Node) -> None:
        self._clock = node.get_clock()
        self.simulated = bool(node.get_parameter("use_sim_time").value)

    def now_ns(self) -> int:
        """Return the time by which readings age: ROS time in a simulation, else steady time."""
        return self.stamp_ns() if self.simulated else time.monotonic_ns()

    def stamp_ns(self) -> int:
        """Return the node's ROS time."""
        return int(self._clock.now().nanoseconds)


def make_steady_clock() -> Clock:
    """Return a steady clock for one timer alone.

    If a timer is reset while another timer of its clock is due but not yet called, the events
    executor calls that one twice, and then as much later.
    """
    return Clock(clock_type=ClockType.STEADY_TIME)


class Ticker(ABC):
    """A caller of ticks, which is told of each stored message and of each tick."""

    lockstep: bool
    arrivals: Arrivals | None = None
    """The correction of messages' arrival times; None: they are not corrected."""

    def __init__(self, node: Node, tick: OnTick, timer: Timer) -> None:
        self._node, self._tick, self._timer = node, tick, timer

    @abstractmethod
    def record_message(self, source: str, stamp_ns: int | None) -> None:
        """Record that a source's message has been stored; tick if it completes what is awaited."""

    @abstractmethod
    def record_tick(self, now_ns: int, stamp_ns: int | None) -> None:
        """Record that a tick begins."""

    @abstractmethod
    def rewire(self, sources: Iterable[str], moved: Iterable[str]) -> None:
        """Wait for these sources from now on; those in `moved` read another topic than before."""

    @abstractmethod
    def is_awaited(self, stamp_ns: int | None) -> bool:
        """Return whether a message with this stamp, which came earlier, is still to be acted on."""

    def reset(self) -> None:
        """Accept any stamp as new, because acting or an episode starts."""
        return

    def close(self) -> None:
        """Destroy the timer."""
        self._node.destroy_timer(self._timer)


class LockstepTicker(Ticker):
    """A caller of one tick for each stamp: when all sources have it, or when the wait runs out.

    Args:
        node: Owns the timer.
        sources: Names of the sources.
        wait_s: Time to wait for all sources of a stamp.
        tick: Makes the tick.
        repeat: Called when a stamp that has been acted on comes again, as its command was lost.
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
        """Tick as soon as every source has the message's stamp."""
        ready_ns = self._stamps.record_message(source, stamp_ns, time.monotonic_ns())
        if ready_ns is not None:
            self._tick(ready_ns)
        elif self._stamps.is_repeated(stamp_ns):
            self._repeat()

    def record_tick(self, now_ns: int, stamp_ns: int | None) -> None:
        """Record that the pending stamp is acted on; a tick without a stamp is ignored."""
        if stamp_ns is not None:
            self._stamps.record_action()

    def rewire(self, sources: Iterable[str], moved: Iterable[str]) -> None:
        """Wait for these sources from now on; tick if all have the pending stamp."""
        ready_ns = self._stamps.rewire(sources, moved)
        if ready_ns is not None:
            self._tick(ready_ns)

    def is_awaited(self, stamp_ns: int | None) -> bool:
        """Return whether a message with this stamp, which came earlier, is still to be acted on."""
        return self._stamps.is_awaited(stamp_ns)

    def reset(self) -> None:
        """Accept any stamp as new."""
        self._stamps.reset()

    def _tick_if_overdue(self) -> None:
        """Tick on the messages that are there, if the wait has run out."""
        overdue_ns = self._stamps.overdue_stamp_ns(time.monotonic_ns())
        if overdue_ns is not None:
            self._tick(overdue_ns)


class RealTimeTicker(Ticker):
    """A caller of ticks at the control rate: by the sources' messages, or by a timer alone.

    Args:
        node: Owns the timer.
        sources: Names of the sources.
        step_s: Control period.
        tick: Makes the tick.
        clock: The time by which readings age.
        trigger: Tick when the newest messages of the sources are complete, or by the timer alone.
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
        """Time of the next tick if no set of messages is complete before."""
        self.arrivals = None if clock.simulated else Arrivals(period_ns)

    def record_message(self, source: str, stamp_ns: int | None) -> None:
        """Tick as soon as a set of messages is complete, else plan a tick without it."""
        if self._schedule is None:
            return
        now_ns = self._clock.now_ns()
        if self._schedule.record_message(source, now_ns):
            self._tick(None)
        else:
            self._plan(self._schedule.next_tick_ns(now_ns))

    def record_tick(self, now_ns: int, stamp_ns: int | None) -> None:
        """Record the time of a tick, and plan the next one."""
        if self.arrivals is not None:
            self.arrivals.record_tick(now_ns)
        if self._schedule is not None:
            self._schedule.record_tick(now_ns)
            self._plan(self._schedule.next_tick_ns(now_ns))

    def rewire(self, sources: Iterable[str], moved: Iterable[str]) -> None:
        """Wait for these sources from now on."""
        if self._schedule is not None:
            self._schedule.rewire(sources)

    def is_awaited(self, stamp_ns: int | None) -> bool:
        """Return False: a message that came earlier is late by now."""
        return False

    def tick_in_time(self) -> None:
        """Tick now, when the timer is due; the events executor would fill in any argument."""
        left_ns = self._planned_ns - self._clock.now_ns()
        if self._schedule is not None and 0 < left_ns <= self._timer.timer_period_ns:
            self._wait(left_ns)  # the timer was due when it was reset, and is called nevertheless
        else:
            self._tick(None)

    def _plan(self, at_ns: int) -> None:
        """Plan a tick at this time of the clock, unless the sources cause one earlier."""
        if at_ns != self._planned_ns:
            self._planned_ns = at_ns
            self._wait(max(1, at_ns - self._clock.now_ns()))

    def _wait(self, wait_ns: int) -> None:
        """Let the timer be due after this time."""
        self._timer.timer_period_ns = wait_ns
        self._timer.reset()
