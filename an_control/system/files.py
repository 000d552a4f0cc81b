"""Safe access to files: reads that do not block, writes that complete or fail; folder locks."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, FileIO
from pathlib import Path

STREAMS = ("/dev/", "/proc/")


class WriteError(OSError):
    """An error in writing a file. The message names the file and the reason."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


def describe_read_error(error: Exception) -> str:
    """Return the text of an error; for an OSError, without its error number and its path."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def open_regular_file(path: str | os.PathLike[str]) -> FileIO:
    """Open a regular file for reading, unbuffered, without blocking.

    To open a pipe in the usual way would wait until another process writes into it.

    Args:
        path: The path of the file.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not a regular file, but a pipe, a device or a folder.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("not a regular file")
    return FileIO(descriptor)


def make_standard_streams_non_blocking() -> None:
    """Let a write to standard output or error fail if it would have to wait.

    Otherwise a terminal stopped by Ctrl-S, or a pipe that nobody reads, would stop all threads of a
    process that logs. Such log lines are lost. Other processes on the same terminal or pipe are not
    affected.
    """
    for descriptor in (1, 2):
        with suppress(OSError):
            if os.isatty(descriptor) or stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY
                opened = os.open(f"/proc/self/fd/{descriptor}", flags)
                os.dup2(opened, descriptor)
                os.close(opened)


def read_regular_file(path: str | os.PathLike[str], limit: int | None = None) -> bytes:
    """Return the content of a regular file; raise the errors of `open_regular_file`.

    Args:
        path: The path of the file.
        limit: Read at most `limit` + 1 bytes, so that the caller sees whether the file is longer
            than `limit`; None: read all.
    """
    with BufferedReader(open_regular_file(path)) as file:
        return file.read(-1 if limit is None else limit + 1)


def write_file(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file completely or not at all.

    Args:
        path: The path of the file.
        content: The content; text is written as UTF-8.

    Raises:
        WriteError: Writing fails; the file is then as before.
    """
    with replace_file_atomically(path) as beside, open(beside, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replace_file_atomically(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path to write to, which replaces the file at the end of the block.

    If the block raises, the temporary file is removed and the old one is unchanged. A device or a
    pipe is written to directly.

    Args:
        path: The path of the file that is replaced; the temporary path has the same suffix.

    Raises:
        WriteError: The block or the replacement has raised an OSError.
    """
    try:
        target = Path(path)
        if target.exists() and (not target.is_file() or str(target).startswith(STREAMS)):
            yield target
            return
        target = target.resolve()  # replace the target of a link, not the link
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

    On a file system that cannot lock, such as some NFS shares, the block runs without a lock.

    Args:
        folder: The folder.

    Raises:
        BlockingIOError: Another process holds the lock.
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
