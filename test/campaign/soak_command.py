"""``python -m campaign soak``: many ticks of the policy node under random faults; what grows?"""

from __future__ import annotations

import os
from dataclasses import dataclass

from an_control.cli.common import InputError, OutputFile, require_packages, write_json

MEMORY_MB = 1.0
"""How much memory may grow in a million ticks."""
P50_RATIO, P99_RATIO = 1.05, 1.3
WALKS = 0.8


@dataclass(frozen=True)
class SoakCommand:
    """Let the policy node walk the Ant, as fast as it can, under random faults, and compare the end
    with the start: exit status 1 where after the first 100,000 ticks memory grew by more than 1 MB
    in a million, where the last tenth's p50 of a tick is over 1.05 times or its p99 over 1.3 times
    the first's, or where the robot walked again after fewer than 80% of the faults that left it
    standing."""

    ticks: int = 1_000_000
    """How many."""
    seed: int = 0
    """Of the faults."""
    json: OutputFile | None = None
    """Also write the result here as JSON."""

    def run(self) -> int:
        require_packages("ros", "rclpy")
        require_packages("sim", "pybullet", "gymnasium")
        if self.ticks < 1000:
            raise InputError(f"--ticks {self.ticks}: must be 1000 or more")
        os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
        from an_control.ros.node import PolicyNode
        from an_control_sim.process import initialise_ros
        from campaign.soak import Sample, Soak

        def report(ticks: int, sample: Sample) -> None:
            if not ticks % (self.ticks // 10):
                print(_line(f"{ticks} ticks", sample), flush=True)

        with initialise_ros(["--ros-args", "--log-level", "fatal"]):
            node = PolicyNode(namespace="/ant")
            soak = Soak(node, self.seed)
            try:
                found = soak.run(self.ticks, report)
            finally:
                soak.close()
                node.destroy_node()
        print(f"{found.ticks} ticks, {found.faults} faults, {found.took_s:.0f} s")
        print(_line("first tenth", found.start))
        print(_line("warm", found.warm))
        print(_line("last tenth", found.end))
        print(
            f"memory grew by {found.memory_mb:.2f} MB after {found.warm.ticks} ticks;"
            f" last tenth over first: p50 {found.p50_ratio:.3f}, p99 {found.p99_ratio:.3f}"
        )
        print(
            f"walked again within 3 s after {found.walked} of {found.judged - found.fell} faults"
            f" ({found.walks:.0%}); fell after {found.fell}"
        )
        write_json(self.json, found.as_dict())
        grown = found.memory_mb > MEMORY_MB * max(1.0, found.ticks / 1e6)
        slower = found.p50_ratio > P50_RATIO or found.p99_ratio > P99_RATIO
        return int(grown or slower or found.walks < WALKS)


def _line(name: str, sample: object) -> str:
    values = vars(sample)
    return (
        f"{name:>15}: p50 {values['p50_us']:.0f} us, p99 {values['p99_us']:.0f} us,"
        f" {values['memory_mb']:.2f} MB, {values['handles']} handles, {values['threads']} threads"
    )
