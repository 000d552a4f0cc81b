"""What keeps a process that must answer in time from being late: its priority, its garbage."""

from __future__ import annotations

import gc
import os

NICE = -10
"""The nice value of a process that must answer in time; ordinary processes have 0."""


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
    if gc.get_freeze_count():
        freeze_garbage()


def collect_new_garbage() -> None:
    """Collect what has come since `freeze_garbage`, while nothing waits; else do nothing.

    It also gives back the tuples that Python keeps to use again, up to 2,000 of each length.
    """
    if gc.get_freeze_count():
        gc.collect()
