"""`an-control` as a process of its own, as people start it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

LIMIT_S = 180.0
START = "import sys; from an_control.cli import main; sys.exit(main())"


class Program:
    """`an-control`, and what it left behind, found by the folder that its arguments name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """A verb to its end."""
        with self.started(*arguments) as process:
            out, errors = process.communicate(timeout=LIMIT_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out, errors)

    @contextmanager
    def started(self, *arguments: object, stdout: int = PIPE) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            [sys.executable, "-c", START, *map(str, arguments)],
            stdout=stdout, stderr=PIPE, text=True, cwd=self._folder,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            for pid in self.processes():
                os.kill(pid, signal.SIGKILL)
            process.communicate()

    def processes(self, word: str = "") -> list[int]:
        """Running processes whose command line names the folder, and `word`."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_text().replace("\0", " ")
            except OSError:
                continue
            if str(self._folder) in line and word in line:
                found.append(int(path.parent.name))
        return found

    def wait(self, condition: Callable[[], object], what: str, limit_s: float = 60.0) -> None:
        end_s = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < end_s, f"waited {limit_s:g} s in vain: {what}"
            time.sleep(0.05)
