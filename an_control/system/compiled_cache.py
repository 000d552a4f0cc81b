"""numba's on-disk cache, made safe against changes of code that compiled functions inline.

numba loads machine code from disk as long as the function's own file is unchanged. The functions
and constants that it inlined from other files may have changed since, and the results would be
silently wrong. Here the machine code of a source file lies in a folder that is named by a hash of
the source file and of all files of an_control and an_control_sim that it imports, directly or not.

Every compiled function of an_control and an_control_sim is decorated with this module's `njit`,
which is numba's decorator `njit`. If numba cannot be imported, the decorator returns the function
unchanged. Of several processes that need the same machine code, one compiles it and the others wait
until it is on disk. numba chooses where the cache lies: in NUMBA_CACHE_DIR if that is set, else
beside the source, else, if that is not writable, in the user's cache folder.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib.util
import os
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from an_control.system.compilation import CompilationReport, find_innermost_compilation_report


def _decorate_without_compiling(*functions: Any, **options: Any) -> Any:
    """Return the decorated function unchanged, in place of numba's `njit` if numba is missing.

    If this is called with options only, as in `@njit(cache=True)`, return a decorator that returns
    its function unchanged.
    """
    return functions[0] if functions else lambda function: function


njit: Any = _decorate_without_compiling
Listener: Any = object
COMPILES = False
"""Whether `njit` compiles; if False, `njit` returns plain Python functions."""
with suppress(ImportError):
    import numba
    from numba.core import caching, config, event

    njit, Listener = numba.njit, event.Listener
    COMPILES = not getattr(config, "DISABLE_JIT", False)


__all__ = ["COMPILES", "hash_source_and_imports", "njit"]

PACKAGES = ("an_control", "an_control_sim")
KEPT = 3
"""Number of older cache folders of a source file that are kept, because a return to another git
branch needs them again."""
LONGEST_WAIT_S = 180.0
"""Time (s) for which a process waits for another one that compiles the same function. Then it
compiles the function itself, as the other process may have been stopped."""
POLL_S = 0.02
"""Time (s) between two looks at whether the other process has finished."""
IMPORTED = re.compile(
    rf"^\s*(?:from|import)\s+((?:{'|'.join(PACKAGES)})(?:\.\w+)*)\b", re.MULTILINE
)


@functools.cache
def hash_source_and_imports(path: str) -> str:
    """Return a hash of a source file and of all files of this project that it imports.

    Compiled code is stored on disk under this hash, because it may contain code of all these files.

    Args:
        path: The path of the source file.
    """
    sources: dict[str, bytes] = {}
    waiting = [path]
    while waiting:
        path = waiting.pop()
        if path not in sources:
            sources[path] = Path(path).read_bytes()
            for module in IMPORTED.findall(sources[path].decode()):
                waiting += _list_module_files(module)
    digest = hashlib.sha256()
    for path in sorted(sources):
        digest.update(hashlib.sha256(sources[path]).digest())
    return digest.hexdigest()[:16]


@functools.cache
def _list_module_files(module: str) -> list[str]:
    """Return the path of a module's file; for a package, the paths of all modules in its folder."""
    package, *parts = module.split(".")
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return []
    base = os.path.join(spec.submodule_search_locations[0], *parts)
    if os.path.isfile(f"{base}.py"):
        return [f"{base}.py"]
    return [str(path) for path in Path(base).glob("*.py")]


class _HashedLocator:
    """A mix-in for numba's cache locators that puts a hash of the sources into folder names.

    A cache locator decides in which folder numba caches the machine code of a function. Locators
    with this mix-in serve only functions of an_control and an_control_sim.
    """

    _cache_path: str

    def __init__(self, function: Any, path: str) -> None:
        super().__init__(function, path)  # type: ignore[call-arg]
        folder = f"{Path(path).stem}-{hash_source_and_imports(path)}"
        self._cache_path = os.path.join(self._cache_path, folder)

    @classmethod
    def from_function(cls, function: Any, path: str) -> Any:
        """Return the object that tells numba where to cache a function in the source file `path`.

        The result is None for a function of any package but an_control and an_control_sim, so that
        numba uses its own locators.
        """
        if function.__module__.partition(".")[0] not in PACKAGES:
            return None
        return super().from_function(function, path)  # type: ignore[misc]

    def ensure_cache_path(self) -> None:
        """Make the cache folder; if it is new, remove the oldest ones of the same source file."""
        new = not os.path.isdir(self._cache_path)
        super().ensure_cache_path()  # type: ignore[misc]
        if new:
            _remove_old_caches(Path(self._cache_path))


def _remove_old_caches(folder: Path) -> None:
    """Remove the oldest cache folders of a source file.

    The present one, `folder`, is kept, and so are the newest `KEPT` of the others.
    """
    name = re.compile(re.escape(folder.name[:-16]) + "[0-9a-f]{16}")
    with os.scandir(folder.parent) as entries, suppress(OSError):  # others may remove them too
        others = [entry for entry in entries if name.fullmatch(entry.name)]
        others = [entry for entry in others if entry.name != folder.name]
        for entry in sorted(others, key=lambda entry: entry.stat().st_mtime)[:-KEPT]:
            shutil.rmtree(entry.path, ignore_errors=True)


class _Reporter(Listener):
    """A listener that reports each function of this project that numba compiles."""

    def __init__(self) -> None:
        self._blocks: list[CompilationReport | None] = []

    def on_start(self, compiled: event.Event) -> None:
        """Report that numba starts to compile a function; numba calls this.

        numba holds the lock of its compiler from here until `on_end`, so that compilations on
        several threads do not overlap.
        """
        function = compiled.data["dispatcher"].py_func
        ours = function.__module__.partition(".")[0] in PACKAGES
        block = find_innermost_compilation_report() if ours else None
        self._blocks.append(block)
        if block is not None:
            block.record_compilation_start()

    def on_end(self, compiled: event.Event) -> None:
        """Report that numba has compiled a function, or failed to; numba calls this."""
        block = self._blocks.pop()
        if block is not None:
            block.record_compilation_end()
        # Not `is_failed`, which numba 0.68 returns the other way round.
        if compiled._exc_details is not None:  # and so it will not be saved
            _locks.release(compiled.data["dispatcher"]._cache)


class _CompilationLocks:
    """The locks of the functions that this process compiles, each an flock of a file in the cache.

    numba looks for a function's machine code on disk; if it is missing, numba compiles the function
    and saves the code. With these locks a process that does not find the code acquires the
    function's lock, looks again, and releases the lock when the code is saved. Two processes cannot
    wait for each other's locks, because no compiled function calls another. Within a process numba
    compiles on one thread at a time.
    """

    def __init__(self) -> None:
        self._held: dict[str, list[int]] = {}
        """For each lock's path, its file descriptor once for each compilation under way: that of a
        function may need the same function with other types."""

    def acquire(self, cache: Any) -> None:
        """Acquire the lock of a function; if another process holds it, wait, but at most 180 s.

        Do nothing for a function of any package but an_control and an_control_sim.
        """
        if not (path := self._find_lock_path(cache)):
            return
        if path in self._held:
            self._held[path].append(self._held[path][0])
            return
        with suppress(OSError):  # a folder that cannot be written holds no machine code either
            cache._impl.locator.ensure_cache_path()
            lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
            try:
                if not _try_lock(lock):
                    _wait_for_lock(lock)
            except OSError:  # a file system without locks
                os.close(lock)
                raise
            self._held[path] = [lock]

    def release(self, cache: Any) -> None:
        """End one compilation of a function; release its lock if no other compilation needs it.

        Do nothing if this process does not hold the lock.
        """
        held = self._held.get(path := self._find_lock_path(cache))
        if held:
            lock = held.pop()
            if not held:
                del self._held[path]
                fcntl.flock(lock, fcntl.LOCK_UN)  # a forked child may hold the file open
                os.close(lock)

    @staticmethod
    def _find_lock_path(cache: Any) -> str:
        """Return the path of a function's lock file; "" for a function that needs no lock.

        Only functions of an_control and an_control_sim need one.
        """
        locator = getattr(getattr(cache, "_impl", None), "locator", None)
        if not isinstance(locator, _HashedLocator):
            return ""
        return os.path.join(cache.cache_path, f"{cache._impl.filename_base}.lock")


def _try_lock(lock_descriptor: int) -> bool:
    """Acquire the flock of an open file if it is free, and return whether it was free."""
    try:
        fcntl.flock(lock_descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait_for_lock(lock_descriptor: int) -> None:
    """Wait for the flock of an open file, at most 180 s; report the wait like a compilation."""
    block = find_innermost_compilation_report()
    if block is not None:
        block.record_compilation_start()
    end_s = time.monotonic() + LONGEST_WAIT_S
    while not _try_lock(lock_descriptor) and time.monotonic() < end_s:
        time.sleep(POLL_S)
    if block is not None:
        block.record_compilation_end()


_locks = _CompilationLocks()


def _wrap_load_to_lock_if_missing(load: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap numba's method `load`, so that of several processes only one compiles a function.

    `load` returns a function's machine code from disk, or None. If the code is missing, the wrapped
    method acquires the function's lock, so that other processes wait for the code.
    """

    @functools.wraps(load)
    def load_or_lock(cache: Any, signature: Any, context: Any) -> Any:
        found = load(cache, signature, context)
        if found is None:
            _locks.acquire(cache)
            found = load(cache, signature, context)
            if found is not None:
                _locks.release(cache)
        return found

    return load_or_lock


def _wrap_save_to_unlock_after(save: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap numba's method `save`, so that it releases a function's lock once its code is saved."""

    @functools.wraps(save)
    def save_and_unlock(cache: Any, signature: Any, compiled: Any) -> None:
        try:
            save(cache, signature, compiled)
        finally:
            _locks.release(cache)

    return save_and_unlock


def _patch_numba() -> None:
    """Make numba name its cache folders by hash, compile only once, and report what it compiles.

    Once means that other processes which need the same function wait for the one that compiles it.
    Functions of packages other than an_control and an_control_sim are cached as before.
    """
    event.register("numba:compile", _Reporter())
    known: list[Any] = caching.CacheImpl._locator_classes
    by_hash: list[Any] = [
        type(f"{locator.__name__}ByHash", (_HashedLocator, locator), {}) for locator in known
    ]
    caching.CacheImpl._locator_classes = [*by_hash, *known]
    kind: Any = caching.FunctionCache
    kind.load_overload = _wrap_load_to_lock_if_missing(kind.load_overload)
    kind.save_overload = _wrap_save_to_unlock_after(kind.save_overload)


if COMPILES:
    _patch_numba()
