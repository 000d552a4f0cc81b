"""Processes that the campaign starts: they end with it, however it ends."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
_BUSY = "while True:\n    sum(range(10_000))"


def start(
    command: Sequence[str], variables: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen[bytes]:
    """Start a process, which the kernel kills when this thread ends; `options` are Popen's.

    `variables` are added to this process's environment. The process can import this package. A
    campaign that was killed would otherwise leave a policy node behind, and the next campaign
    would share the topics with it.
    """
    return subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        preexec_fn=_end_with_parent,
        env={**environment(), **(variables or {})},
        **options,
    )


def environment() -> dict[str, str]:
    """This process's, with the folder of this package among Python's paths."""
    paths = [str(Path(__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextmanager
def busy(count: int) -> Iterator[None]:
    """That many processes beside this one that only burn time."""
    processes = [start([sys.executable, "-S", "-c", _BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
