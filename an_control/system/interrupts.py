"""Signals and child processes: what ends a command early, and what must end with it.

`start` imports this before numpy, ROS 2 and the simulators, so it imports little.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130


def end_at_once(status: int, *numbers: int) -> None:
    """End the process with this exit status at a signal, SIGINT if none is named.

    No exception, which whatever runs just then could swallow; so only while there is nothing to
    clean up.
    """
    for number in numbers or (signal.SIGINT,):
        signal.signal(number, lambda signum, frame: os._exit(status))


@contextmanager
def interruptible() -> Iterator[None]:
    """In this block SIGINT raises KeyboardInterrupt, after it what it did before it.

    An import that is interrupted may turn that into an error of its own; it leaves the block as
    KeyboardInterrupt all the same. Only for the main thread; where SIGINT is ignored it stays so.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        yield
        return
    came: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
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


def bound(command: Sequence[str]) -> list[str]:
    """The command, which gets SIGTERM when the process that starts it ends, even if by SIGKILL.

    By setpriv of util-linux; where that is missing the command as it is.
    """
    return [*(["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []), *command]
