"""A limit of one BLAS thread while a policy computes, whatever number the process has set.

BLAS is numpy's library for matrix products. The matrix products of a tick (control step) are small.
Several threads would wait for each other at each product, which takes longer than the product
itself, on busy cores a hundred times as long. The module `threads` avoids that by an environment
variable, which must be set before numpy is imported. The limit here works in every process, for the
duration of a call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from threading import Lock
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

FUNCTIONS = (
    ("scipy_openblas_get_num_threads64_", "scipy_openblas_set_num_threads64_"),
    ("scipy_openblas_get_num_threads", "scipy_openblas_set_num_threads"),
    ("openblas_get_num_threads64_", "openblas_set_num_threads64_"),
    ("openblas_get_num_threads", "openblas_set_num_threads"),
    ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
    ("bli_thread_get_num_threads", "bli_thread_set_num_threads"),
)
"""Names of the functions that read and set the number of threads of a BLAS library.

The libraries are OpenBLAS as built for numpy's wheels, OpenBLAS as built by Linux distributions,
MKL and BLIS."""
Threads = tuple[Callable[[], int], Callable[[int], Any]]
"""A pair: the function that reads and the function that sets the number of threads."""


class OneBlasThread:
    """A decorator that limits numpy's BLAS library to one thread while a function runs.

    Several decorated functions may run at the same time. The old number of threads, which holds for
    the whole process, is restored when the last of them ends.

    Args:
        threads: The functions that read and set the number of threads; None: limit nothing.
    """

    def __init__(self, threads: Threads | None) -> None:
        self._threads = threads
        self._lock = Lock()
        self._holders = 0
        self._before = 1

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return a function that calls the decorated function with one BLAS thread."""
        if self._threads is None:
            return function

        @wraps(function)
        def call_with_limit(*args: P.args, **kwargs: P.kwargs) -> R:
            """Call the decorated function with one BLAS thread."""
            self._acquire_thread_limit()
            try:
                return function(*args, **kwargs)
            finally:
                self._release_thread_limit()

        return call_with_limit

    def _acquire_thread_limit(self) -> None:
        """Limit BLAS to one thread, unless another running call has already done so."""
        assert self._threads is not None
        with self._lock:
            self._holders += 1
            if self._holders == 1:
                read, set_to = self._threads
                self._before = read()
                if self._before != 1:
                    set_to(1)

    def _release_thread_limit(self) -> None:
        """Restore the number of threads, unless another running call still needs the limit."""
        assert self._threads is not None
        with self._lock:
            self._holders -= 1
            if self._holders == 0 and self._before != 1:
                self._threads[1](self._before)


def find_blas_thread_functions() -> Threads | None:
    """Return the functions that read and set the number of threads of numpy's BLAS library.

    Return None if the library has no functions of the known names (`FUNCTIONS`).
    """
    try:
        extension = import_module("numpy.linalg._umath_linalg")
        library = ctypes.PyDLL(str(extension.__file__))  # also finds the libraries that it links
    except (ImportError, OSError):
        return None
    for names in FUNCTIONS:
        read, set_to = (getattr(library, name, None) for name in names)
        if read is not None and set_to is not None:
            read.argtypes, read.restype = [], ctypes.c_int
            set_to.argtypes, set_to.restype = [ctypes.c_int], None
            return read, set_to
    return None


one_blas_thread = OneBlasThread(find_blas_thread_functions())
"""The decorator that limits numpy's BLAS to one thread."""
