"""The priority of a process that must answer in time, and of its thread that ticks."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress

NICE = -10
"""The nice value of a process that must answer in time; ordinary processes have 0."""
MAX_SHARE, SHARE_S = 0.8, 1.0
"""The share of a core that a thread at real-time priority may take, and the time over which that
is measured. Above it the threads that receive messages may starve."""
REMEDY = (
    "allow it by a line such as '@robot - rtprio 99' in /etc/security/limits.conf"
    " (docs/real_time.md), or set thread_priority to 0"
)


def take_priority() -> bool:
    """Let this process run before ordinary ones; return whether the system allows it.

    A process that was started with a nice value keeps it. Threads that run already keep theirs, so
    this comes before the middleware starts its own.
    """
    if os.getpriority(os.PRIO_PROCESS, 0):
        return False
    try:
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    except PermissionError:
        return False
    return True


def take_nice_of_process() -> None:
    """Give the calling thread the nice value of its process, as far as the system allows it.

    A thread that another one at real-time priority has started has none.
    """
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, os.getpid()))


class RealTimePriority:
    """The real-time priority (SCHED_FIFO) of the threads that tick, and of no other thread.

    Threads and processes that such a thread starts are ordinary ones (SCHED_RESET_ON_FORK).

    Args:
        priority: 1 to 99; 0 leaves the scheduling as it is.
    """

    def __init__(self, priority: int) -> None:
        self._priority, self._wanted = priority, False
        self._lock = threading.Lock()
        self._measured: dict[int, tuple[float, float]] = {}
        """By thread that has the priority, when its share was measured last, and its processor time
        by then."""

    def want(self) -> None:
        """Let the threads that call `take` have the priority from now on."""
        self._wanted = self._priority > 0

    def take(self) -> str:
        """Let the calling thread run before all ordinary ones; return why it does not, else "".

        A thread with a scheduling of its own keeps it. One that takes more than MAX_SHARE of a core
        loses the priority. Whatever the reason, it is returned once, and nothing more is tried
        before the next `want`.
        """
        if not self._wanted:
            return ""
        with self._lock:
            if not self._wanted:
                return ""
            measured = self._measured.get(threading.get_native_id())
            if measured is None:
                reason = self._set()
            elif time.monotonic() - measured[0] < SHARE_S:
                return ""
            else:
                reason = self._measure(*measured)
            if reason:
                self._reset()
            return reason

    def give_back(self) -> None:
        """Give every thread the scheduling that it had, from any thread."""
        with self._lock:
            self._reset()

    def _set(self) -> str:
        """Set the calling thread's priority; return why that cannot be, else ""."""
        if not hasattr(os, "sched_setscheduler"):
            return "this system has no real-time priority for single threads"
        if os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK != os.SCHED_OTHER:
            self._wanted = False
            return ""
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        if nice > 0:
            return f"the process was started with a nice value of {nice}"
        policy = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
        try:
            os.sched_setscheduler(0, policy, os.sched_param(self._priority))
        except OSError as error:
            return f"{error.strerror}; {REMEDY}"
        self._measured[threading.get_native_id()] = time.monotonic(), time.thread_time()
        return ""

    def _measure(self, then_s: float, processor_s: float) -> str:
        """Return why the calling thread takes too much of a core, else ""."""
        now_s, now_processor_s = time.monotonic(), time.thread_time()
        share = (now_processor_s - processor_s) / (now_s - then_s)
        self._measured[threading.get_native_id()] = now_s, now_processor_s
        if share <= MAX_SHARE:
            return ""
        return (
            f"its thread took {100 * share:.0f} % of a core, of at most {100 * MAX_SHARE:.0f} %, so"
            " that others may starve; let it compute less"
        )

    def _reset(self) -> None:
        self._wanted = False
        for thread in self._measured:
            if not os.path.exists(f"/proc/self/task/{thread}"):
                continue  # it has ended; its number may be another process's by now
            plain = os.sched_param(0)
            try:
                os.sched_setscheduler(thread, os.SCHED_OTHER, plain)
            except PermissionError:  # only who may raise priorities can clear the flag
                with suppress(OSError):
                    policy = os.SCHED_OTHER | os.SCHED_RESET_ON_FORK
                    os.sched_setscheduler(thread, policy, plain)
            except ProcessLookupError:
                pass
        self._measured.clear()
