"""Signals and child processes: how commands end early, and their child processes with them.

`entry_points` imports this before numpy, ROS 2 and the simulators, so it imports little.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
"""The exit status of a process after Ctrl-C."""


def exit_on_signal(status: int, *numbers: int) -> None:
    """End the process at once at a signal.

    No exception is raised, which running code could swallow; so use it only while there is nothing
    to clean up.

    Args:
        status: The exit status of the process.
        *numbers: The signals; SIGINT if there are none.
    """
    for number in numbers or (signal.SIGINT,):
        signal.signal(number, lambda signum, frame: os._exit(status))


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt in this block, and restore its handler after it.

    An import that is interrupted may turn KeyboardInterrupt into an error of its own; the block
    raises KeyboardInterrupt nevertheless. It is for the main thread only; an ignored SIGINT stays
    ignored.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        yield
        return
    came: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        """Record the signal and raise KeyboardInterrupt."""
        came.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except Exception:
        if came:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)


def bind_to_parent(command: Sequence[str]) -> list[str]:
    """Return a command line whose process gets SIGTERM when its parent ends, even by SIGKILL.

    It uses setpriv of util-linux; without that, the command is returned unchanged.

    Args:
        command: The program and its arguments.
    """
    return [*(["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []), *command]
