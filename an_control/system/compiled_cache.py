"""numba's on-disk cache, made safe against edits of what compiled code inlines.

numba takes machine code from disk for as long as the function's own file is unchanged. The
functions and constants that it inlined from other files may have changed since: the numbers would
be wrong, silently. Here the machine code of a file lies in a folder that is named by a hash of this
file and of all our files that it imports, directly or not.

Every compiled function of an_control and an_control_sim is made by this module's `njit`, which is
numba's; where numba cannot be imported it returns the function as it is. Where the cache lies is up
to numba: NUMBA_CACHE_DIR, else beside the source, else where that cannot be written the user's
cache folder.
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

from an_control.system.compilation import Compilation, innermost_block


def _leave(*functions: Any, **options: Any) -> Any:
    """Return the decorated function as it is, or a decorator that does."""
    return functions[0] if functions else lambda function: function


njit: Any = _leave
Listener: Any = object
COMPILES = False
"""Whether `njit` compiles; else what it returns is plain Python."""
with suppress(ImportError):
    import numba
    from numba.core import caching, config, event

    njit, Listener = numba.njit, event.Listener
    COMPILES = not getattr(config, "DISABLE_JIT", False)


__all__ = ["COMPILES", "njit", "sources_hash"]

PACKAGES = ("an_control", "an_control_sim")
KEPT = 3
"""Folders of other hashes that stay, the newest ones: who changes branches comes back to them."""
IMPORTED = re.compile(
    rf"^\s*(?:from|import)\s+((?:{'|'.join(PACKAGES)})(?:\.\w+)*)\b", re.MULTILINE
)


@functools.cache
def sources_hash(path: str) -> str:
    """A hash of a source file and of all our files that it imports, directly or not."""
    sources: dict[str, bytes] = {}
    waiting = [path]
    while waiting:
        path = waiting.pop()
        if path not in sources:
            sources[path] = Path(path).read_bytes()
            for module in IMPORTED.findall(sources[path].decode()):
                waiting += _files(module)
    digest = hashlib.sha256()
    for path in sorted(sources):
        digest.update(hashlib.sha256(sources[path]).digest())
    return digest.hexdigest()[:16]


@functools.cache
def _files(module: str) -> list[str]:
    """The file of a module; of a package all files in its folder, any of which may be meant."""
    package, *parts = module.split(".")
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return []
    base = os.path.join(spec.submodule_search_locations[0], *parts)
    if os.path.isfile(f"{base}.py"):
        return [f"{base}.py"]
    return [str(path) for path in Path(base).glob("*.py")]


class _ByHash:
    """Mixed into numba's locators: folders by hash for the functions of our packages alone."""

    _cache_path: str

    def __init__(self, function: Any, path: str) -> None:
        super().__init__(function, path)  # type: ignore[call-arg]
        folder = f"{Path(path).stem}-{sources_hash(path)}"
        self._cache_path = os.path.join(self._cache_path, folder)

    @classmethod
    def from_function(cls, function: Any, path: str) -> Any:
        if function.__module__.partition(".")[0] not in PACKAGES:
            return None
        return super().from_function(function, path)  # type: ignore[misc]

    def ensure_cache_path(self) -> None:
        """Make the folder, and remove the oldest of the same file."""
        new = not os.path.isdir(self._cache_path)
        super().ensure_cache_path()  # type: ignore[misc]
        if new:
            _remove_old(Path(self._cache_path))


def _remove_old(folder: Path) -> None:
    name = re.compile(re.escape(folder.name[:-16]) + "[0-9a-f]{16}")
    with os.scandir(folder.parent) as entries, suppress(OSError):  # others may remove them too
        others = [entry for entry in entries if name.fullmatch(entry.name)]
        others = [entry for entry in others if entry.name != folder.name]
        for entry in sorted(others, key=lambda entry: entry.stat().st_mtime)[:-KEPT]:
            shutil.rmtree(entry.path, ignore_errors=True)


class _Reporter(Listener):
    """Reports each function of our packages that numba compiles, for want of it on disk."""

    def __init__(self) -> None:
        self._blocks: list[Compilation | None] = []

    def on_start(self, compiled: event.Event) -> None:
        """Report the beginning; numba holds its compiler's lock until the end."""
        function = compiled.data["dispatcher"].py_func
        ours = function.__module__.partition(".")[0] in PACKAGES
        block = innermost_block() if ours else None
        self._blocks.append(block)
        if block is not None:
            block.begin()

    def on_end(self, compiled: event.Event) -> None:
        """Report the end."""
        block = self._blocks.pop()
        if block is not None:
            block.end()


def _install() -> None:
    """Let numba ask locators by hash first; they decline the functions of other packages.

    And let it report what it compiles.
    """
    event.register("numba:compile", _Reporter())
    known: list[Any] = caching.CacheImpl._locator_classes
    by_hash: list[Any] = [
        type(f"{locator.__name__}ByHash", (_ByHash, locator), {}) for locator in known
    ]
    caching.CacheImpl._locator_classes = [*by_hash, *known]


if COMPILES:
    _install()
