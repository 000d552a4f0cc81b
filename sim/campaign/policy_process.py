"""The policy node as a process that the campaign starts, breaks, kills and starts again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from an_control.share import share_path

PAGE = os.sysconf("SC_PAGE_SIZE")


class PolicyProcess:
    """A policy node on the Ant's wiring, with a breakable policy; its log goes to a file.

    `folder` holds the log, the model that the node uses, and the file that says how its policy
    breaks (see `breakable`).
    """

    def __init__(self, folder: Path, name: str = "policy") -> None:
        self.folder, self.name = folder, name
        self.log = folder / f"{name}.log"
        self.model = folder / "model.safetensors"
        self.breakage = folder / "breakage"
        self.parameters: dict[str, Any] = {}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, activated."""
        values = {
            "wiring": share_path("config/ant.yaml"),
            "model": self.model,
            "autostart": "true",
        } | self.parameters
        arguments = [part for key, value in values.items() for part in ("-p", f"{key}:={value}")]
        module = "an_control_sim.campaign.breakable"
        remaps = ["-r", "__ns:=/ant", "-r", f"__node:={self.name}"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, "--ros-args", *remaps, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "AN_CONTROL_BREAKAGE": str(self.breakage)},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def memory_mb(self) -> float:
        """Resident memory."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE / 1e6

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def stop(self, limit_s: float = 10.0) -> int:
        """Interrupt it and wait; its exit status."""
        if self._process is None:
            return 0
        if self.running:
            self.signal(signal.SIGINT)
        try:
            return self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
