"""The priority of a process that must answer in time."""

from __future__ import annotations

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
