"""Make a control loop tick: once for each stamp in lockstep, else at the control rate.

A tick is one control step. In lockstep a simulator waits for each command, and all messages of a
step have the same time stamp. `Lockstep` and `TickSchedule` decide when to tick, without ROS and
without reading a clock. The tickers tell them of messages and of the time, and run a ROS timer for
them.

In real time a tick starts as soon as a set of messages is complete: every source (subscribed topic)
that sends at about the control rate or faster has sent a message in the last half period. Ticks
follow a schedule with the control rate: a tick starts with a complete set that arrives in a window
around the time at which it is due, else at the window's end. If sets come at nearly the control
rate, the schedule follows them. Whatever arrives, two ticks are never closer than half a period or
further apart than one and a half, and WINDOW successive periods contain WINDOW ticks, plus or minus
one. This holds after the first sets; ticks that are missed because the executor stalls are not made
up for.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable

from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.timer import Timer

from an_control.ros.inputs import Arrivals
from an_control.ros.lockstep import Lockstep
from an_control.ros.parameter_table import Trigger

OnTick = Callable[[int | None], object]
"""A function that makes one tick. In lockstep its argument is the time stamp in ns of the readings
to use; otherwise it is None."""


class LoopClock:
    """The two clocks of a loop: ROS time for stamps, and a clock for the age of readings."""

    def __init__(self, node: Node) -> None:
        self._clock = node.get_clock()
        self.simulated = bool(node.get_parameter("use_sim_time").value)

    def now_ns(self) -> int:
        """Return the time in ns against which the age of readings is measured.

        It is ROS time in a simulation, else the time of a steady clock.
        """
        return self.read_ros_time_ns() if self.simulated else time.monotonic_ns()

    def read_ros_time_ns(self) -> int:
        """Return the node's ROS time in ns, for the stamps of messages."""
        return int(self._clock.now().nanoseconds)


def make_steady_clock() -> Clock:
    """Return a steady clock for use by a single timer.

    Two timers must not share a clock, because of a fault in rclpy's events executor. If one of them
    is reset while the other is due but not yet called, the executor calls the other one twice, and
    then too late.
    """
    return Clock(clock_type=ClockType.STEADY_TIME)


class Ticker(ABC):
    """An object that starts a loop's ticks (control steps), when messages have come or by a timer.

    The loop must call `record_message` after each stored message and `record_tick` in each tick.

    Args:
        node: The node that owns the timer.
        tick: Called to make a tick. In lockstep its argument is the time stamp in ns of the
            readings to use; otherwise it is None.
        timer: The timer that starts a tick if no message does.
    """

    lockstep: bool
    arrivals: Arrivals | None = None
    """Corrects the arrival times of messages; None: they are not corrected."""

    def __init__(self, node: Node, tick: OnTick, timer: Timer) -> None:
        self._node, self._tick, self._timer = node, tick, timer

    @abstractmethod
    def record_message(self, source: str, stamp_ns: int | None) -> None:
        """Record that a source (subscribed topic) got a message, and start a tick if one is due.

        Args:
            source: The name of the source.
            stamp_ns: The message's stamp; None if it has none.
        """

    @abstractmethod
    def record_tick(self, now_ns: int, stamp_ns: int | None) -> None:
        """Record that a tick begins.

        Args:
            now_ns: The time of the tick.
            stamp_ns: In lockstep with a simulator, the time stamp of the tick's readings; otherwise
                None.
        """

    @abstractmethod
    def set_sources(self, sources: Iterable[str], sources_with_new_topic: Iterable[str]) -> None:
        """Replace the sources whose messages start a tick.

        Args:
            sources: Names of all sources.
            sources_with_new_topic: Names of the sources that now read another topic.
        """

    @abstractmethod
    def is_tick_with_stamp_pending(self, stamp_ns: int | None) -> bool:
        """Return whether the tick for messages with this stamp is still to come.

        Args:
            stamp_ns: The stamp of a message; None if it has no stamp.
        """

    def accept_any_next_stamp(self) -> None:
        """Forget earlier time stamps, so that any next one counts as new, even an older one.

        Call this when the node starts to act or an episode starts.
        """
        return

    def close(self) -> None:
        """Destroy the timer."""
        self._node.destroy_timer(self._timer)


class LockstepTicker(Ticker):
    """A ticker that makes one tick for each stamp of the messages.

    The tick starts as soon as all sources have sent a message with the stamp, but at the latest
    `wait_s` after the first message since the previous tick.

    Args:
        node: The node that owns the timer.
        sources: Names of the sources (subscribed topics).
        wait_s: Seconds to wait for the other sources after the first message since a tick.
        tick: Called to make a tick, with the stamp of its readings.
        on_repeated_stamp: Called when a message has the stamp of the newest tick again. The
            simulator sends it again if the command of this tick was lost.
    """

    lockstep = True

    def __init__(
        self,
        node: Node,
        sources: Iterable[str],
        wait_s: float,
        tick: OnTick,
        on_repeated_stamp: Callable[[], object],
    ) -> None:
        timer = node.create_timer(wait_s / 2, self._tick_if_overdue, clock=make_steady_clock())
        super().__init__(node, tick, timer)
        self._stamps = Lockstep(sources, int(wait_s * 1e9))
        self._on_repeated_stamp = on_repeated_stamp

    def record_message(self, source: str, stamp_ns: int | None) -> None:
        """Record a message; tick as soon as every source has sent one with the same stamp."""
        ready_ns = self._stamps.record_message_and_find_ready_stamp_ns(
            source, stamp_ns, time.monotonic_ns()
        )
        if ready_ns is not None:
            self._tick(ready_ns)
        elif self._stamps.is_stamp_repeated(stamp_ns):
            self._on_repeated_stamp()

    def record_tick(self, now_ns: int, stamp_ns: int | None) -> None:
        """Record that a tick acts on the newest stamp, so that this stamp starts no other tick.

        Do nothing if `stamp_ns` is None. Lockstep does not need the time `now_ns`.
        """
        if stamp_ns is not None:
            self._stamps.mark_stamp_as_acted_on()

    def set_sources(self, sources: Iterable[str], sources_with_new_topic: Iterable[str]) -> None:
        """Replace the sources whose messages start a tick; tick if all have sent the newest stamp.

        Args:
            sources: Names of all sources.
            sources_with_new_topic: Names of the sources that now read another topic. What they have
                sent on the old topic no longer counts.
        """
        ready_ns = self._stamps.set_sources_and_find_ready_stamp_ns(sources, sources_with_new_topic)
        if ready_ns is not None:
            self._tick(ready_ns)

    def is_tick_with_stamp_pending(self, stamp_ns: int | None) -> bool:
        """Return whether the tick for messages with this stamp is still to come.

        Args:
            stamp_ns: The stamp of a message; None if it has no stamp, for which the result is
                False.
        """
        return self._stamps.is_tick_with_stamp_pending(stamp_ns)

    def accept_any_next_stamp(self) -> None:
        """Forget earlier time stamps, so that any next one counts as new, even an older one."""
        self._stamps.forget_stamps()

    def _tick_if_overdue(self) -> None:
        """Tick without further messages if the time to wait for them is over."""
        overdue_ns = self._stamps.find_overdue_stamp_ns(time.monotonic_ns())
        if overdue_ns is not None:
            self._tick(overdue_ns)


class RealTimeTicker(Ticker):
    """A ticker that makes ticks at the control rate, started by messages or by a timer alone.

    Args:
        node: The node that owns the timer.
        sources: Names of the sources (subscribed topics).
        step_s: Control period in seconds.
        tick: Called to make a tick. Its argument is None, because a stamp is used in lockstep only.
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
        super().__init__(node, tick, node.create_timer(step_s, self.tick_when_due, clock=by))
        self._clock, period_ns = clock, int(step_s * 1e9)
        self._schedule = None if trigger == "timer" else TickSchedule(sources, period_ns)
        self._planned_ns = 0
        """Time in ns of the next tick if no complete set of messages comes before."""
        self.arrivals = None if clock.simulated else Arrivals(period_ns)

    def record_message(self, source: str, stamp_ns: int | None) -> None:
        """Record a message, and tick if it completes a set of messages; else plan a later tick.

        A set is complete when every source that ticks wait for has sent a message. If ticks start
        by the timer alone, do nothing.
        """
        if self._schedule is None:
            return
        now_ns = self._clock.now_ns()
        if self._schedule.record_message_and_check_tick_due(source, now_ns):
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

    def set_sources(self, sources: Iterable[str], sources_with_new_topic: Iterable[str]) -> None:
        """Replace the sources whose messages start a tick; the other argument is for lockstep."""
        if self._schedule is not None:
            self._schedule.set_sources(sources)

    def is_tick_with_stamp_pending(self, stamp_ns: int | None) -> bool:
        """Return False, because in real time no tick waits for a certain stamp."""
        return False

    def tick_when_due(self) -> None:
        """Start a tick, because the timer has fired; if it fired too early, set it again.

        This method must have no parameters, because rclpy's events executor would pass arguments
        for them.
        """
        left_ns = self._planned_ns - self._clock.now_ns()
        if self._schedule is not None and 0 < left_ns <= self._timer.timer_period_ns:
            self._set_timer(
                left_ns
            )  # the timer was due when it was reset, and is called nevertheless
        else:
            self._tick(None)

    def _plan_tick(self, at_ns: int) -> None:
        """Set the timer so that it starts a tick at `at_ns`; messages may start a tick earlier."""
        if at_ns != self._planned_ns:
            self._planned_ns = at_ns
            self._set_timer(max(1, at_ns - self._clock.now_ns()))

    def _set_timer(self, wait_ns: int) -> None:
        """Set the timer so that it is due in `wait_ns` ns."""
        self._timer.timer_period_ns = wait_ns
        self._timer.reset()


EARLY, LATE = 0.25, 0.25
"""Window of a tick (control step): control periods before and after the time at which it is due.

The length of this window plus all shifts of the schedule in WINDOW periods must be less than a
period."""
WINDOW = 100
"""Number of periods in which the number of ticks is kept constant, plus or minus one."""
FOLLOW = 0.25
"""The schedule is shifted by this share of the time by which a complete set is early or late."""
FIRST_SETS, MAX_SHIFT = 10, 0.005
"""After the first FIRST_SETS complete sets, a set shifts the schedule by at most MAX_SHIFT periods.

So a source that sends at another rate than the control rate cannot move the schedule."""
FOLLOWED = 0.9
"""The schedule follows complete sets if their mean interval is at least this, in periods."""
PACED = 1.18
"""Ticks wait for a source if the mean interval between its messages is at most this, in periods."""
SILENT = 2.0
"""Periods without a message after which ticks do not wait for a source."""
STALL = 0.75
"""Periods by which a tick may be late. If a tick is later, the schedule restarts from that tick.

It also restarts if the clock itself moves in such large steps, as the clock of a simulator may."""
FORGET, MAX_INTERVAL = 0.1, 2.5
"""Weight of a source's newest message interval in the mean interval, and the largest interval that
is counted, in periods.

The largest interval is limited so that ticks wait for a source again soon after it has resumed
sending."""
NEVER_NS = 1 << 62


class TickSchedule:
    """A schedule of ticks (control steps) that follows the arrivals of messages.

    No method reads a clock: all times are arguments in ns, by the same clock.

    Args:
        sources: The names of the sources, which are the subscribed topics.
        period_ns: The control period in ns.
    """

    def __init__(self, sources: Iterable[str], period_ns: int) -> None:
        self._period_ns = period_ns
        self._interval_ns = dict.fromkeys(sources, float(period_ns))
        """Mean interval in ns between the newest messages of each source."""
        self.restart_with_next_message_set()

    def restart_with_next_message_set(self) -> None:
        """Restart the schedule of ticks with the next complete set of sensor messages."""
        self._due_ns: int | None = None
        """Time at which the next tick is due; None before the first set."""
        self._ticked_ns: int | None = None
        self._ticks_ns: deque[int] = deque(maxlen=WINDOW + 1)
        """Times in ns of the newest ticks; empty until the first sets have come, and after a
        stall."""
        self._newest_ns, self._first_ns = -NEVER_NS, NEVER_NS
        """Arrival time in ns of the newest message and of the first message."""
        self._last_ns: dict[str, int] = {}
        """Arrival time in ns of each source's newest message."""
        self._fresh: set[str] = set()
        """Names of the sources that have sent a message since the newest tick."""
        self._set_ns: int | None = None
        """Time in ns at which the newest set since the newest tick was complete; None if there is
        none."""
        self._sets = 0
        """Number of sets that the schedule has followed."""

    def set_sources(self, sources: Iterable[str]) -> None:
        """Replace the sources (subscribed topics) whose messages start a tick."""
        known = self._interval_ns
        self._interval_ns = {name: known.get(name, float(self._period_ns)) for name in sources}
        self._last_ns = {name: at for name, at in self._last_ns.items() if name in known}

    def record_message_and_check_tick_due(self, source: str, now_ns: int) -> bool:
        """Record that a source (subscribed topic) got a message. Return whether to tick now.

        Args:
            source: The name of the source.
            now_ns: The time of the message's arrival in ns.
        """
        if now_ns < self._newest_ns:  # the clock was set back
            self.restart_with_next_message_set()
        self._newest_ns, self._first_ns = now_ns, min(self._first_ns, now_ns)
        if source in self._last_ns:
            interval_ns = min(now_ns - self._last_ns[source], MAX_INTERVAL * self._period_ns)
            self._interval_ns[source] += FORGET * (interval_ns - self._interval_ns[source])
        self._last_ns[source] = now_ns
        self._fresh.add(source)
        if not self._is_message_set_complete(now_ns):
            waited_ns = now_ns - self._first_ns
            if self._due_ns is None and waited_ns > SILENT * self._period_ns:
                self._due_ns = now_ns  # messages that spread over the period complete no set
            return False
        self._set_ns = now_ns
        on_time = now_ns >= self._compute_earliest_tick_ns()
        if self._due_ns is None and not on_time:  # a tick came just before the first set
            self._due_ns = now_ns + self._period_ns
        return on_time

    def compute_next_tick_ns(self, now_ns: int) -> int:
        """Return the time in ns at which the next tick starts if no further message arrives.

        Args:
            now_ns: The time now in ns. The result is this time or later.
        """
        earliest_ns = max(self._compute_earliest_tick_ns(), now_ns)
        if self._due_ns is None:
            return now_ns + self._period_ns
        latest_ns = max(self._compute_latest_tick_ns(self._due_ns), earliest_ns)
        if self._set_ns is None:
            return latest_ns
        newer_ns = self._set_ns + self._compute_message_set_interval_ns()
        return latest_ns if newer_ns <= latest_ns else earliest_ns

    def record_tick(self, now_ns: int) -> None:
        """Record that a tick (control step) has started, and compute when the next one is due."""
        due_ns, period_ns = self._due_ns, self._period_ns
        if self._set_ns is not None:
            due_ns = self._shift_due_ns_towards_message_set(
                self._set_ns if due_ns is None else due_ns, self._set_ns
            )
        if due_ns is not None:
            stalled = now_ns - due_ns > STALL * period_ns
            if stalled:
                self._ticks_ns.clear()
            self._due_ns = (now_ns if stalled else due_ns) + period_ns
        if self._sets > FIRST_SETS:
            self._ticks_ns.append(now_ns)
        self._ticked_ns, self._set_ns = now_ns, None
        self._fresh.clear()

    def _shift_due_ns_towards_message_set(self, due_ns: int, message_set_ns: int) -> int:
        """Return the due time of a tick, shifted towards the time of a complete set of messages.

        A set is complete when every source that ticks wait for has sent a message.

        Args:
            due_ns: The time at which the tick is due.
            message_set_ns: The time at which the set was complete.
        """
        if self._compute_message_set_interval_ns() < FOLLOWED * self._period_ns:
            self._sets += 1
            return due_ns
        largest = EARLY if self._sets < FIRST_SETS else MAX_SHIFT
        self._sets += 1
        late = (message_set_ns - due_ns) / self._period_ns
        shift = FOLLOW * (late - round(late))  # modulo a period
        return due_ns + int(min(max(shift, -largest), largest) * self._period_ns)

    def _is_message_set_complete(self, now_ns: int) -> bool:
        """Return whether each source that ticks wait for has sent a message for this tick."""
        since_ns = now_ns - self._period_ns // 2
        return all(
            name in self._fresh and self._last_ns[name] >= since_ns
            for name in self._find_awaited_sources(now_ns)
        )

    def _find_awaited_sources(self, now_ns: int) -> list[str]:
        """Return the names of the sources that a tick waits for.

        They are those that send messages about as often as there are ticks, or more often, and have
        not stopped sending.
        """
        heard_ns = now_ns - int(SILENT * self._period_ns)
        return [
            name
            for name, interval_ns in self._interval_ns.items()
            if interval_ns <= PACED * self._period_ns
            and self._last_ns.get(name, self._first_ns) >= heard_ns
        ]

    def _compute_message_set_interval_ns(self) -> float:
        """Return the mean time between two complete sets of messages in ns.

        A set has a message of every source (subscribed topic) that ticks wait for. So the mean time
        is the message interval of the slowest of these sources.
        """
        paced = [self._interval_ns[name] for name in self._find_awaited_sources(self._newest_ns)]
        return max(paced, default=float(self._period_ns))

    def _compute_earliest_tick_ns(self) -> int:
        """Return the earliest time in ns at which the next tick may start."""
        ticks_ns, period_ns = self._ticks_ns, self._period_ns
        earliest_ns = -NEVER_NS
        if self._due_ns is not None:
            earliest_ns = self._due_ns - int(EARLY * period_ns)
        if self._ticked_ns is not None:
            earliest_ns = max(earliest_ns, self._ticked_ns + period_ns // 2)
        if len(ticks_ns) > WINDOW:
            earliest_ns = max(earliest_ns, ticks_ns[0] + WINDOW * period_ns)
        return earliest_ns

    def _compute_latest_tick_ns(self, due_ns: int) -> int:
        """Return the latest time in ns at which the tick that is due at `due_ns` may start."""
        latest_ns = due_ns + int(LATE * self._period_ns)
        if len(self._ticks_ns) >= WINDOW:
            return min(latest_ns, self._ticks_ns[1 - WINDOW] + WINDOW * self._period_ns)
        return latest_ns
