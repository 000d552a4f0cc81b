"""Start the policy node repeatedly beside a simulated Ant, and count what goes wrong.

    python -m experiments starts [--times 20] [--cold] [--load 2] [--json FILE]

The Ant runs in this process in real time, with its safe command until the node acts. The node is a
new process each time. The experiment counts the node's log lines about the watchdog and about lost
sources, and the safe commands after the policy's first command. It also measures the longest time
between two commands, by the clock of this process.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from experiments.impossible_readings.run import keep_processors_busy

ROOT = Path(__file__).resolve().parents[2]
WIRING, MODEL = ROOT / "config/ant.yaml", ROOT / "models/ant.safetensors"
SIMULATION = ROOT / "config/ant_sim.yaml"
LIMIT_S = 300.0


class Ant:
    """A simulated Ant in real time on ROS 2 topics, which stores the commands that it receives."""

    def __init__(self) -> None:
        import rclpy
        from sensor_msgs.msg import JointState

        from an_control.ros.graph import QuietNode
        from an_control_sim.bridge.bridge import Bridge
        from an_control_sim.bridge.robot import SimulatedRobot
        from an_control_sim.bridge.simulation_file import load_simulation
        from an_control_sim.process import RELIABLE

        rclpy.init(args=[])
        node = QuietNode("robot")
        robot = SimulatedRobot(load_simulation(str(SIMULATION)))
        self.bridge = Bridge(node, robot, policy="", realtime=True)
        self.heard: list[tuple[float, bool]] = []
        """The time of each command, and whether it was the safe command."""
        node.create_subscription(JointState, "joint_commands", self._store_command, RELIABLE)
        self.bridge.wait_for_policy()
        self.bridge.start_episode(1, 0)

    def _store_command(self, message: Any) -> None:
        """Store a received command with its time of arrival."""
        self.heard.append((time.monotonic(), not any(message.effort)))

    def step(self) -> None:
        """Run the robot for one step; start a new episode if the previous one has ended."""
        if self.bridge.robot.over:
            self.bridge.start_episode(1, 0)
        self.bridge.step()


def measure_node_start(ant: Ant, seconds: float, cache_is_cold: bool) -> dict[str, Any]:
    """Start a policy node, let it control the robot, end it, and return counts and times.

    Args:
        ant: The robot.
        seconds: How long the node controls the robot.
        cache_is_cold: Whether to empty the node's numba cache first, so that it compiles its code.

    Returns:
        Counts by name, such as "safe_commands", the seconds until the first command, and the
        longest time between two commands.
    """
    words = [sys.executable, "-m", "an_control.ros.node", "--ros-args"]
    for one in (f"wiring:={WIRING}", f"model:={MODEL}", "autostart:=true"):
        words += ["-p", one]
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | ({"NUMBA_CACHE_DIR": folder} if cache_is_cold else {})
        ant.heard.clear()
        begin_s = time.monotonic()
        node = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment)
        assert node.stderr is not None
        lines: list[str] = []
        reader = threading.Thread(target=lines.extend, args=(node.stderr,))
        reader.start()
        try:
            acts_s = None
            while acts_s is None or time.monotonic() < acts_s + seconds:
                if node.poll() is not None or time.monotonic() > begin_s + LIMIT_S:
                    raise RuntimeError(
                        "the policy node ended or sent no command:\n" + "".join(lines)
                    )
                ant.step()
                acts_s = acts_s or next((at for at, safe in ant.heard if not safe), None)
            heard = [(at, safe) for at, safe in ant.heard if at >= acts_s]
        finally:
            node.send_signal(signal.SIGINT)
            while node.poll() is None:
                ant.step()
            reader.join()
    return {
        "acts_after_s": round(acts_s - begin_s, 2),
        "watchdog_lines": sum("watchdog: no command" in line for line in lines),
        "lost_lines": sum(" lost: " in line for line in lines),
        "warnings_and_errors": sum("[WARN]" in line or "[ERROR]" in line for line in lines),
        "safe_commands": sum(safe for _, safe in heard),
        "longest_gap_ms": round(1e3 * float(np.diff([at for at, _ in heard]).max()), 1),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Start the policy node repeatedly, print what goes wrong, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="seconds that each node acts (default: 4)"
    )
    parser.add_argument("--cold", action="store_true", help="let numba compile at each start")
    parser.add_argument("--load", type=int, default=0, help="number of busy processes beside it")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    rows = []
    with keep_processors_busy(options.load):
        ant = Ant()
        for _ in range(options.times):
            rows.append(measure_node_start(ant, options.seconds, options.cold))
            print(" ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    warned = sum(row["watchdog_lines"] > 0 for row in rows)
    safe = sum(row["safe_commands"] > 0 for row in rows)
    print(
        f"{len(rows)} starts: {warned} with a log line of the watchdog, {safe} with a safe command"
    )
    if options.json:
        before: dict[str, Any] = {}
        with suppress(OSError):
            before = json.loads(options.json.read_text())
        before[f"{'cold' if options.cold else 'warm'}, load {options.load}"] = rows
        options.json.write_text(json.dumps(before, indent=1) + "\n")
    return 0
