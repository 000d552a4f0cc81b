"""Safe access to files: read without blocking, written completely or not at all; folder locks."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, FileIO
from pathlib import Path

STREAMS = ("/dev/", "/proc/")


class WriteError(OSError):
    """An error in writing a file; the message names the file and the reason."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


def open_regular(path: str | os.PathLike[str]) -> FileIO:
    """Open a regular file for reading, unbuffered.

    Opening a pipe would otherwise wait until another process writes into it.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is no regular file, but a pipe, a device or a folder.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("not a regular file")
    return FileIO(descriptor)


def read_regular(path: str | os.PathLike[str], limit: int | None = None) -> bytes:
    """Return the content of a regular file, at most `limit` + 1 bytes; raises as `open_regular`."""
    with BufferedReader(open_regular(path)) as file:
        return file.read(-1 if limit is None else limit + 1)


def write_file(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file (text as UTF-8).

    Raises:
        WriteError: If that fails; the file is then as before.
    """
    with replace_file(path) as beside, open(beside, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a path of the same suffix to write to, which replaces the file after the block.

    If the block raises, the new file is removed and the old one is unchanged. A device or a pipe is
    written to directly.

    Raises:
        WriteError: In place of an OSError.
    """
    try:
        target = Path(path)
        if target.exists() and (not target.is_file() or str(target).startswith(STREAMS)):
            yield target
            return
        target = target.resolve()  # a link stays one
        beside = target.with_name(f".{target.stem}.{os.getpid()}.part{target.suffix}")
        try:
            yield beside
            with open(beside, "rb") as file:
                os.fsync(file.fileno())
            os.replace(beside, target)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise WriteError(error.errno, error.strerror or str(error), str(path)) from error


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock an existing folder against other processes within this block.

    A file system without such locks, as NFS may be, locks nothing.

    Raises:
        BlockingIOError: If another process holds the lock.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            pass
        yield
    finally:
        os.close(descriptor)
