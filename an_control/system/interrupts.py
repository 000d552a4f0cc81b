"""What a signal does before a command has handlers of its own.

`start` imports this before numpy, ROS 2 and the simulators, so it imports little.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
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
