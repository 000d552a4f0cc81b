"""Reports that numba compiles, which takes up to a minute, and more on a busy machine.

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
    """A record of the compilations within a block; compilations may be nested.

    Args:
        tell: Called with a line at the first function that is compiled, and with one at the block's
            end.
    """

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell
        self._depth = 0
        self._begin_s = self._seconds = 0.0
        self._told = False

    def begin(self) -> None:
        """Record that the compilation of a function begins."""
        if not self._told:
            self._told = True
            self._tell(BEGINS)
        if not self._depth:
            self._begin_s = time.monotonic()
        self._depth += 1

    def end(self) -> None:
        """Record that the compilation of the function that began last has ended."""
        self._depth -= 1
        if not self._depth:
            self._seconds += time.monotonic() - self._begin_s

    def close(self) -> None:
        """Report how long the compilations took, if there were any."""
        if self._told:
            self._tell(f"compiled in {self._seconds:.0f} s")


_blocks: list[Compilation] = []


def innermost_block() -> Compilation | None:
    """Return the innermost block that compilations are reported to, or None."""
    return _blocks[-1] if _blocks else None


@contextmanager
def report_compilation(tell: Callable[[str], object]) -> Iterator[None]:
    """Call `tell` with a line when numba starts to compile in this block, and with one at its end.

    It is meant for one thread; compilations of other threads are counted too.
    """
    block = Compilation(tell)
    _blocks.append(block)
    try:
        yield
    finally:
        _blocks.remove(block)
        block.close()
