"""The node listens to nothing but DDS."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

LISTEN = "0A"


def test_the_policy_node_opens_no_port_that_accepts_connections(stand):
    arguments = {"wiring": stand.wiring, "model": stand.model, "engine": "numpy", "mode": "rate"}
    given = [part for name, value in arguments.items() for part in ("-p", f"{name}:={value}")]
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "an_control.ros.node",
            "--ros-args",
            "-p",
            "autostart:=true",
            *given,
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        stand.until(lambda: stand.commands, "the node's first command")
        sockets = inodes(process.pid)
        assert sockets, "DDS has sockets of its own"
        for protocol in ("tcp", "tcp6"):
            lines = Path(f"/proc/{process.pid}/net/{protocol}").read_text().splitlines()[1:]
            states = {row.split()[9]: row.split()[3] for row in lines}
            assert not [one for one in sockets if states.get(one) == LISTEN]
    finally:
        process.terminate()
        assert process.wait(20) == 0


def inodes(pid: int) -> set[str]:
    """The sockets that a process has open."""
    links = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]
    return {found[1] for link in links if (found := re.fullmatch(r"socket:\[(\d+)\]", link))}
