"""What keeps a process that must answer in time from being late: its priority, its garbage."""

from __future__ import annotations

import gc
import os
import threading
import time
from contextlib import suppress

NICE = -10
"""The nice value of a process that must answer in time; ordinary processes have 0."""
MAX_SHARE, SHARE_S = 0.8, 1.0
"""The share of a core that a thread at real-time priority may take, and the time over which that
is measured. Above it the threads that receive messages may starve."""
FROZEN_AT_START = gc.get_freeze_count()
"""The objects that were frozen before: CPython 3.12 freezes some hundred of its own."""
REMEDY = (
    "allow it by a line such as '@robot - rtprio 99' in /etc/security/limits.conf"
    " (docs/how-to/deploy.md), or set thread_priority to 0"
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


def freeze_garbage() -> None:
    """Let no later collection visit what is there now; `gc.unfreeze` undoes that.

    A collection that visits all that was imported delays a tick by 20 ms. The second collection
    counts what is left: Python looks at everything new only once that has grown by a quarter, and
    keeps the memory of tuples that are gone until then.
    """
    gc.unfreeze()  # what was frozen before may be garbage by now
    gc.collect()
    gc.freeze()
    gc.collect()


def freeze_garbage_again() -> None:
    """Freeze what has come since `freeze_garbage` too, while nothing waits; else do nothing."""
    if gc.get_freeze_count() > FROZEN_AT_START:
        freeze_garbage()


def collect_new_garbage() -> None:
    """Collect what has come since `freeze_garbage`, while nothing waits; else do nothing.

    It also gives back the tuples that Python keeps to use again, up to 2,000 of each length.
    """
    if gc.get_freeze_count() > FROZEN_AT_START:
        gc.collect()


def take_real_time_priority(priority: int) -> bool:
    """Let the calling thread run before all ordinary ones; return whether that changed anything.

    A thread with a scheduling of its own keeps it. Threads and processes that the calling thread
    starts are ordinary ones.

    Args:
        priority: of SCHED_FIFO, 1 to 99.

    Raises:
        PermissionError: the system, or how the process was started, does not allow it; says why.
    """
    if not hasattr(os, "sched_setscheduler"):
        raise PermissionError("this system has no real-time priority for single threads")
    if os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK != os.SCHED_OTHER:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    if nice > 0:
        raise PermissionError(f"the process was started with a nice value of {nice}")
    policy = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
    try:
        os.sched_setscheduler(0, policy, os.sched_param(priority))
    except OSError as error:
        raise PermissionError(f"{error.strerror}; {REMEDY}") from None
    return True


def give_real_time_priority_back(thread: int) -> None:
    """Make a thread of this process an ordinary one again, from any thread."""
    if not os.path.exists(f"/proc/self/task/{thread}"):
        return  # it has ended; its number may be another process's by now
    with suppress(OSError):  # only who may raise priorities can clear the flag
        os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
        return
    with suppress(OSError):
        policy = os.SCHED_OTHER | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(thread, policy, os.sched_param(0))


class RealTimePriority:
    """The real-time priority of the threads that tick, for as long as it is wanted.

    Args:
        priority: of SCHED_FIFO, 1 to 99; 0 leaves the scheduling as it is.
    """

    def __init__(self, priority: int) -> None:
        self.priority, self._wanted = priority, False
        self._lock = threading.Lock()
        self._measured: dict[int, tuple[float, float]] = {}
        """By thread that has the priority, when its share was measured last, and its processor time
        by then."""

    def want(self) -> None:
        """Let the threads that call `take` have the priority from now on."""
        self._wanted = self.priority > 0

    def take(self) -> str:
        """Let the calling thread have the priority; return why it has none, else "".

        A thread that takes more than MAX_SHARE of a core loses it. Whatever the reason, it is
        returned once, and nothing more is tried before the next `want`.
        """
        if not self._wanted:
            return ""
        with self._lock:
            if not self._wanted:
                return ""
            thread, now_s = threading.get_native_id(), time.monotonic()
            measured = self._measured.get(thread)
            if measured is not None and now_s - measured[0] < SHARE_S:
                return ""
            try:
                if measured is not None:
                    _check_share((time.thread_time() - measured[1]) / (now_s - measured[0]))
                elif not take_real_time_priority(self.priority):
                    self._wanted = False
                    return ""
            except PermissionError as error:
                self._reset()
                return str(error)
            self._measured[thread] = now_s, time.thread_time()
            return ""

    def give_back(self) -> None:
        """Make the threads that have the priority ordinary ones again, from any thread."""
        with self._lock:
            self._reset()

    def _reset(self) -> None:
        self._wanted = False
        for thread in self._measured:
            give_real_time_priority_back(thread)
        self._measured.clear()


def _check_share(share: float) -> None:
    """Raise PermissionError if a thread takes a larger share of a core than it may."""
    if share > MAX_SHARE:
        raise PermissionError(
            f"their thread took {100 * share:.0f} % of a core, of at most {100 * MAX_SHARE:.0f} %,"
            " so that others may starve; let it compute less"
        )
