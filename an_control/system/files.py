"""Files from and for outside: read without blocking, written whole or not at all; folder locks."""

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
    """A file that could not be written; the message names it and the reason."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


def open_regular(path: str | os.PathLike[str]) -> FileIO:
    """A regular file to read, unbuffered.

    OSError where it cannot be read, ValueError for what is no file: a pipe, a device, a folder.
    Opening a pipe would otherwise wait for somebody to write into it.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("not a regular file")
    return FileIO(descriptor)


def read_regular(path: str | os.PathLike[str], limit: int | None = None) -> bytes:
    """What a regular file holds, at most `limit` + 1 bytes of it; errors as `open_regular`."""
    with BufferedReader(open_regular(path)) as file:
        return file.read(-1 if limit is None else limit + 1)


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Put this into a file (text as UTF-8); where that fails, WriteError and the file as before."""
    with replacing(path) as beside, open(beside, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Gives a path of the same suffix to write to, which takes the file's place after the block.

    Whatever the block raises removes it again and leaves the file as it was; an OSError leaves as
    WriteError. A device or a pipe is written to directly.
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
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of an existing folder; BlockingIOError where one is in it.

    A file system without such locks, as NFS may be, keeps nobody out.
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
