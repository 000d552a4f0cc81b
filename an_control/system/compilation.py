"""Reports of compilation by numba, which takes up to a minute, and more on a busy machine.

Only numba knows what its cache on disk lacks, so `compiled_cache` reports what is really compiled;
code that is loaded from disk is not mentioned. This module does not import numba, which need not be
installed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

BEGINS = (
    "compiling for this machine, since numba's cache on disk lacks it: this takes up to a minute,"
    " longer on a busy machine; later starts find it there"
)


class Compilation:
    """A record of the compilations by numba within a block of code; they may be nested.

    Args:
        report: Called with a line of text at the first function that is compiled, and with one at
            the block's end.
    """

    def __init__(self, report: Callable[[str], object]) -> None:
        self._report = report
        self._depth = 0
        self._begin_s = self._seconds = 0.0
        self._reported = False

    def begin(self) -> None:
        """Record that the compilation of a function starts."""
        if not self._reported:
            self._reported = True
            self._report(BEGINS)
        if not self._depth:
            self._begin_s = time.monotonic()
        self._depth += 1

    def end(self) -> None:
        """Record that the compilation of the function that started last has ended."""
        self._depth -= 1
        if not self._depth:
            self._seconds += time.monotonic() - self._begin_s

    def close(self) -> None:
        """Report how long the compilations took, if there were any."""
        if self._reported:
            self._report(f"compiled in {self._seconds:.0f} s")


_blocks: list[Compilation] = []


def innermost_block() -> Compilation | None:
    """Return the record of the innermost block that compilations are reported to, or None."""
    return _blocks[-1] if _blocks else None


@contextmanager
def report_compilation(report: Callable[[str], object]) -> Iterator[None]:
    """Report the compilation by numba within this block.

    It is meant for one thread; compilations of other threads are counted too.

    Args:
        report: Called with a line of text when the first compilation starts, and with one at the
            end of the block.
    """
    block = Compilation(report)
    _blocks.append(block)
    try:
        yield
    finally:
        _blocks.remove(block)
        block.close()
