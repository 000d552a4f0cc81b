"""What libraries in C print by themselves."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_native_output() -> Iterator[None]:
    """Discard what is written to standard output meanwhile, by C libraries too.

    It is for moments in which nothing else prints: the whole process is concerned.
    """
    libc = ctypes.CDLL(None)
    sys.stdout.flush()
    libc.fflush(None)
    kept = os.dup(1)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        yield
    finally:
        sys.stdout.flush()
        libc.fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
