"""The policy node as a process that the campaign starts, breaks, kills and starts again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from an_control.system.share import find_share_path
from an_control.wiring import load_wiring
from campaign import child

PAGE = os.sysconf("SC_PAGE_SIZE")
BREAKABLE = (sys.executable, "-m", "campaign.breakable")


def real_executable() -> tuple[str, ...]:
    """The policy node as users start it."""
    script = shutil.which("policy_node", path=str(Path(sys.executable).parent))
    return (script,) if script else (sys.executable, "-m", "an_control.ros.node")


class PolicyProcess:
    """A policy node on the Ant's wiring, with a breakable policy; its log goes to a file.

    `folder` holds the log, the wiring and the model that the node uses, and the file that says how
    its policy breaks (see `breakable`).
    """

    def __init__(self, folder: Path, name: str = "policy") -> None:
        self.folder, self.name = folder, name
        self.log = folder / f"{name}.log"
        self.wiring = folder / "wiring.yaml"
        self.model = folder / "model.safetensors"
        self.breakage = folder / "breakage"
        self.parameters: dict[str, Any] = {}
        self._process: subprocess.Popen[bytes] | None = None

    def write_files(self, changes: dict[str, Any] | None = None) -> None:
        """Write the Ant's model, and its wiring with these changes; WiringError."""
        shutil.copyfile(find_share_path("models/ant.safetensors"), self.model)
        shutil.copyfile(find_share_path("config/ant.yaml"), self.wiring)
        self.change_wiring(changes or {})

    def change_wiring(self, changes: dict[str, Any]) -> None:
        """Write the wiring's file again with what `changes` adds or says otherwise; WiringError."""
        wiring = _merged(yaml.safe_load(self.wiring.read_text()), changes)
        self.wiring.write_text(yaml.safe_dump(wiring, sort_keys=False))
        load_wiring(self.wiring)

    def start(
        self, parameters: dict[str, Any] | None = None, executable: Sequence[str] = BREAKABLE
    ) -> None:
        """Start it, activated, with these parameters beside its own."""
        values = {"wiring": self.wiring, "model": self.model, "autostart": "true"}
        values |= self.parameters | (parameters or {})
        arguments = [part for key, value in values.items() for part in ("-p", f"{key}:={value}")]
        remaps = ["-r", "__ns:=/ant", "-r", f"__node:={self.name}"]
        with self.log.open("ab") as log:
            self._process = child.start(
                [*executable, "--ros-args", *remaps, *arguments],
                stdout=log,
                stderr=log,
                variables={"AN_CONTROL_BREAKAGE": str(self.breakage)},
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

    @property
    def log_bytes(self) -> int:
        """How long the log is."""
        return self.log.stat().st_size if self.log.exists() else 0

    def logged(self, since_bytes: int) -> str:
        """The log's text from there on."""
        with self.log.open("rb") as log:
            log.seek(since_bytes)
            return log.read().decode(errors="replace")

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


def _merged(old: Any, new: Any) -> Any:
    """Return `old` with what `new` has beside it or otherwise, at every level of mappings."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    return old | {key: _merged(old.get(key), value) for key, value in new.items()}
