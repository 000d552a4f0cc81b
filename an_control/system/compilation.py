"""Reports of compilation by numba, which takes up to a minute, and more on a busy machine.

Only numba knows which functions its cache on disk lacks. So the module `compiled_cache` listens to
numba and reports here what is really compiled; code that is loaded from disk is not mentioned. This
module does not import numba, which need not be installed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

BEGINS = (
    "compiling for this machine, since numba's cache on disk lacks it: this takes up to a minute,"
    " longer on a busy machine; later starts find it there"
)


class CompilationReport:
    """A report on what numba compiles within a block of code, and how long that takes.

    Args:
        report: Called with a line of text when the first function is compiled, and with another
            line at the end of the block.
    """

    def __init__(self, report: Callable[[str], object]) -> None:
        self._report = report
        self._depth = 0
        self._begin_s = self._seconds = 0.0
        self._reported = False

    def record_compilation_start(self) -> None:
        """Record that numba starts to compile a function, perhaps while it compiles another one.

        The first call reports that functions are being compiled.
        """
        if not self._reported:
            self._reported = True
            self._report(BEGINS)
        if not self._depth:
            self._begin_s = time.monotonic()
        self._depth += 1

    def record_compilation_end(self) -> None:
        """Record the end of the compilation that started last and has not ended yet."""
        self._depth -= 1
        if not self._depth:
            self._seconds += time.monotonic() - self._begin_s

    def report_total_duration(self) -> None:
        """Report how long the compilations took, if there were any."""
        if self._reported:
            self._report(f"compiled in {self._seconds:.0f} s")


_blocks: list[CompilationReport] = []


def find_innermost_compilation_report() -> CompilationReport | None:
    """Return the report to which numba compilations are now reported.

    It is that of the innermost open block of `report_compilations_in_block`; None outside of such
    blocks.
    """
    return _blocks[-1] if _blocks else None


@contextmanager
def report_compilations_in_block(report: Callable[[str], object]) -> Iterator[None]:
    """Report that numba compiles within this block, and how long that took.

    Only one thread at a time may use such blocks. Compilations on other threads during the block
    are counted too.

    Args:
        report: Called with a line of text when the first compilation starts, and with another one
            at the end of the block.
    """
    block = CompilationReport(report)
    _blocks.append(block)
    try:
        yield
    finally:
        _blocks.remove(block)
        block.report_total_duration()
