"""How commands end early on a signal, and how their child processes end with them.

The module `entry_points` imports this module before numpy, ROS 2 and the simulators, so that Ctrl-C
works from the start. So this module imports little.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

INTERRUPTED = 130
"""The exit status of a process after Ctrl-C."""
STOP_S = 5.0
"""Seconds after SIGTERM until a child process is killed."""


def exit_on_signal(status: int, *signal_numbers: int) -> None:
    """Let signals end the process at once, from now on.

    The signals raise no exception, because running code could catch it and go on. So call this only
    while there is nothing to clean up.

    Args:
        status: The exit status of the process.
        *signal_numbers: The numbers of the signals; SIGINT if none are given.
    """
    for number in signal_numbers or (signal.SIGINT,):
        signal.signal(number, lambda signum, frame: os._exit(status))


@contextmanager
def allow_interrupts() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt in this block, and restore the old handler afterwards.

    If code in the block, such as an interrupted import, turns the KeyboardInterrupt into another
    error, the block raises KeyboardInterrupt nevertheless. Use it on the main thread only. A
    process that ignores SIGINT continues to ignore it.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        yield
        return
    came: list[int] = []

    def raise_interrupt(number: int, frame: FrameType | None) -> None:
        """Record that the signal has come, and raise KeyboardInterrupt."""
        came.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, raise_interrupt)
    try:
        yield
    except Exception:
        if came:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)


def wrap_command_to_end_with_parent(command: Sequence[str]) -> list[str]:
    """Return a command line that runs a program so that it ends when its parent process ends.

    `setpriv` of util-linux starts the program, so that the program gets SIGTERM when its parent
    ends, even if SIGKILL ends the parent. Without `setpriv` the command is returned unchanged.

    Args:
        command: The program and its arguments.
    """
    return [*(["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []), *command]


@contextmanager
def run_child_process(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in another process until the block of this context ends.

    The program also ends if this process ends, and it does not get the Ctrl-C of this process's
    terminal. If it has not ended 5 s (`STOP_S`) after SIGTERM, it is killed.

    Args:
        command: The program and its arguments.

    Yields:
        The process.
    """
    import subprocess

    process = subprocess.Popen(wrap_command_to_end_with_parent(command), start_new_session=True)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
