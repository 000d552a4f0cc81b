"""Avoid delays in a process that must respond in time, by priority and garbage collection."""

from __future__ import annotations

import gc
import os
import threading
import time
from contextlib import suppress

NICE = -10
"""Nice value of a process that must respond in time; ordinary processes have 0."""
MAX_SHARE, SHARE_S = 0.8, 1.0
"""The share of a core that a thread at real-time priority may use, and the seconds of a
measurement.

A thread that uses more of a core can keep the threads that receive messages from running."""
FROZEN_AT_START = gc.get_freeze_count()
"""Number of objects that were frozen (excluded from garbage collection) before this module was
imported; CPython 3.12 freezes some hundred of its own."""
REMEDY = (
    "allow it by a line such as '@robot - rtprio 99' in /etc/security/limits.conf"
    " (docs/how-to/deploy.md), or set thread_priority to 0"
)
FailureReason = str
"""The reason why something failed, in words; "" if it succeeded."""


def raise_process_priority() -> bool:
    """Raise the priority of this process above ordinary ones; return whether that succeeded.

    A process that was started with a nice value keeps that value. Threads that already run keep
    their priority, so call this before the ROS middleware starts its threads.
    """
    if os.getpriority(os.PRIO_PROCESS, 0):
        return False
    try:
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    except PermissionError:
        return False
    return True


def exclude_existing_objects_from_gc() -> None:
    """Collect garbage, and exclude all remaining objects from later garbage collections.

    Otherwise a later collection would visit everything that was imported, and delay a tick (control
    step) by 20 ms. `gc.unfreeze` reverts the exclusion.
    """
    gc.unfreeze()  # objects that were frozen before may be garbage by now
    gc.collect()
    gc.freeze()
    gc.collect()


def exclude_new_objects_from_gc() -> None:
    """Repeat `exclude_existing_objects_from_gc` for newer objects, if it was called before.

    This takes a while, because it collects all garbage. So call it while nothing waits for the
    process.
    """
    if gc.get_freeze_count() > FROZEN_AT_START:
        exclude_existing_objects_from_gc()


def collect_new_garbage() -> None:
    """Collect the garbage made since `exclude_existing_objects_from_gc` was called.

    Do nothing if it was never called. Call this while nothing waits for the process. It also frees
    the memory of deleted tuples, which Python keeps for reuse.
    """
    if gc.get_freeze_count() > FROZEN_AT_START:
        gc.collect()


def set_real_time_priority(priority: int) -> bool:
    """Give the calling thread real-time priority; return whether its scheduling changed.

    The thread then runs before all ordinary threads. A thread that already has a scheduling policy
    other than the default keeps it. Threads and processes that the calling thread starts have
    ordinary scheduling.

    Args:
        priority: Priority of SCHED_FIFO, 1 to 99.

    Raises:
        PermissionError: The system, or how the process was started, does not allow it; the text
            says why.
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


def drop_real_time_priority(thread: int) -> None:
    """Return a thread of this process to ordinary scheduling; any thread may call it.

    Args:
        thread: The native id of the thread.
    """
    if not os.path.exists(f"/proc/self/task/{thread}"):
        return  # the thread has ended; its number may be another process's by now
    with suppress(OSError):  # clearing the flag needs the right to raise priorities
        os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
        return
    with suppress(OSError):
        policy = os.SCHED_OTHER | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(thread, policy, os.sched_param(0))


class RealTimePriority:
    """A switch for the real-time priority of the control threads.

    After `request`, each thread that calls `apply_to_thread` gets the priority until `release`.

    Args:
        priority: Priority of SCHED_FIFO, 1 to 99; 0 leaves the scheduling as it is.
    """

    def __init__(self, priority: int) -> None:
        self.priority, self._wanted = priority, False
        self._lock = threading.Lock()
        self._measured: dict[int, tuple[float, float]] = {}
        """For each thread with real-time priority, by its native id: the time of the newest
        measurement, and the processor time that the thread had used by then."""

    def request(self) -> None:
        """Allow the threads that call `apply_to_thread` to get real-time priority from now on."""
        self._wanted = self.priority > 0

    def apply_to_thread(self) -> FailureReason:
        """Give the calling thread real-time priority, if requested. Return why that failed, or "".

        Call this in every tick: it also fails if the thread has meanwhile used more than 80 % of a
        core (`MAX_SHARE`). After a failure all threads lose the priority, and further calls do
        nothing and return "" until the next `request`.
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
                    _check_processor_share(
                        (time.thread_time() - measured[1]) / (now_s - measured[0])
                    )
                elif not set_real_time_priority(self.priority):
                    self._wanted = False
                    return ""
            except PermissionError as error:
                self._return_all_threads_to_ordinary_scheduling()
                return str(error)
            self._measured[thread] = now_s, time.thread_time()
            return ""

    def release(self) -> None:
        """Return all threads with real-time priority to ordinary scheduling.

        Any thread may call this method.
        """
        with self._lock:
            self._return_all_threads_to_ordinary_scheduling()

    def _return_all_threads_to_ordinary_scheduling(self) -> None:
        """Return all threads to ordinary scheduling, where they stay until the next `request`."""
        self._wanted = False
        for thread in self._measured:
            drop_real_time_priority(thread)
        self._measured.clear()


def _check_processor_share(share: float) -> None:
    """Check that a thread with real-time priority uses at most 80 % of a core (`MAX_SHARE`)."""
    if share > MAX_SHARE:
        raise PermissionError(
            f"their thread used {100 * share:.0f} % of a core (maximum {100 * MAX_SHARE:.0f} %),"
            " which may starve other threads; reduce its load"
        )
