"""numba's on-disk cache, made safe against changes of code that compiled functions inline.

numba loads machine code from disk as long as the function's own file is unchanged. The functions
and constants that it inlined from other files may have changed since, and the results would be
silently wrong. Here the machine code of a source file lies in a folder that is named by a hash of
the source file and of all files of an_control and an_control_sim that it imports, directly or not.

Every compiled function of an_control and an_control_sim is decorated with this module's `njit`,
which is numba's decorator `njit`. If numba cannot be imported, the decorator returns the function
unchanged. numba chooses where the cache lies: in NUMBA_CACHE_DIR if that is set, else beside the
source, else, if that is not writable, in the user's cache folder.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from an_control.system.compilation import Compilation, find_innermost_compilation


def _return_unchanged(*functions: Any, **options: Any) -> Any:
    """Return the decorated function unchanged, in place of numba's `njit` if numba is missing.

    If it is called with options only, as in `@njit(cache=True)`, return a decorator that does so.
    """
    return functions[0] if functions else lambda function: function


njit: Any = _return_unchanged
Listener: Any = object
COMPILES = False
"""Whether `njit` compiles; if False, `njit` returns plain Python functions."""
with suppress(ImportError):
    import numba
    from numba.core import caching, config, event

    njit, Listener = numba.njit, event.Listener
    COMPILES = not getattr(config, "DISABLE_JIT", False)


__all__ = ["COMPILES", "hash_sources", "njit"]

PACKAGES = ("an_control", "an_control_sim")
KEPT = 3
"""Number of older cache folders of a source file that are kept, because a return to another git
branch needs them again."""
IMPORTED = re.compile(
    rf"^\s*(?:from|import)\s+((?:{'|'.join(PACKAGES)})(?:\.\w+)*)\b", re.MULTILINE
)


@functools.cache
def hash_sources(path: str) -> str:
    """Return a hash of a source file and of all files of this project that it imports.

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
    """Return the file of a module; for a package, all files in its folder."""
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

    A cache locator decides where numba caches one function. This one serves only functions of
    an_control and an_control_sim.
    """

    _cache_path: str

    def __init__(self, function: Any, path: str) -> None:
        super().__init__(function, path)  # type: ignore[call-arg]
        folder = f"{Path(path).stem}-{hash_sources(path)}"
        self._cache_path = os.path.join(self._cache_path, folder)

    @classmethod
    def from_function(cls, function: Any, path: str) -> Any:
        """Return the locator of a function, or None for a function of a foreign package."""
        if function.__module__.partition(".")[0] not in PACKAGES:
            return None
        return super().from_function(function, path)  # type: ignore[misc]

    def ensure_cache_path(self) -> None:
        """Make the cache folder, and remove the oldest cache folders of the same source file."""
        new = not os.path.isdir(self._cache_path)
        super().ensure_cache_path()  # type: ignore[misc]
        if new:
            _remove_old_caches(Path(self._cache_path))


def _remove_old_caches(folder: Path) -> None:
    """Remove the cache folders of the same source file with other hashes, except the newest ones.

    Args:
        folder: The present cache folder.
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
        self._blocks: list[Compilation | None] = []

    def on_start(self, compiled: event.Event) -> None:
        """Report that numba starts to compile a function; numba calls this.

        Until `on_end` numba holds the lock of its compiler, so that compilations do not overlap.
        """
        function = compiled.data["dispatcher"].py_func
        ours = function.__module__.partition(".")[0] in PACKAGES
        block = find_innermost_compilation() if ours else None
        self._blocks.append(block)
        if block is not None:
            block.record_start()

    def on_end(self, compiled: event.Event) -> None:
        """Report that numba has compiled a function; numba calls this."""
        block = self._blocks.pop()
        if block is not None:
            block.record_end()


def _patch_numba() -> None:
    """Make numba name its cache folders by hash, and report what it compiles.

    Functions of packages other than an_control and an_control_sim are cached as before.
    """
    event.register("numba:compile", _Reporter())
    known: list[Any] = caching.CacheImpl._locator_classes
    by_hash: list[Any] = [
        type(f"{locator.__name__}ByHash", (_HashedLocator, locator), {}) for locator in known
    ]
    caching.CacheImpl._locator_classes = [*by_hash, *known]


if COMPILES:
    _patch_numba()
