"""``an-control campaign``: faults tried on the policy node, and what the wire showed."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from an_control.cli import InputError, write_json
from an_control.share import share_path

HEAD = (
    f"{'fault':<40} {'tried':>6} {'survived':>8} {'to safe':>9} {'to recover':>10}"
    f" {'walks again':>14} {'memory':>8} {'repeated':>8}"
)


@dataclass(frozen=True)
class Verb:
    """Break what feeds and surrounds the policy node, over ROS 2 with the Ant in real time, and
    hold what goes to the robot to the campaign file's promises."""

    plan: Path | None = None
    """A campaign YAML; by default the one that ships."""
    times: int = 3
    """How often each fault is tried."""
    only: str = ""
    """Only the faults whose name has this in it."""
    mutations: int = 10_000
    """How many byte-mutated wiring and model files are read."""
    log: Path | None = None
    """Keep the nodes' logs in this folder."""
    json: Path | None = None
    """Also write the result here as JSON."""

    def run(self) -> int:
        for package, extra in (("rclpy", "ros"), ("pybullet", "sim"), ("gymnasium", "sim")):
            if importlib.util.find_spec(package) is None:
                raise InputError(f"needs {package} (pip install 'an_control[{extra}]')")
        if self.times < 1 or self.mutations < 0:
            raise InputError("--times must be 1 or more, --mutations 0 or more")
        os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
        from rclpy.node import Node

        from an_control_sim.campaign.mutations import run_mutations
        from an_control_sim.campaign.plan import load_plan
        from an_control_sim.campaign.run import Outcome, run_campaign
        from an_control_sim.process import ros

        plan = load_plan(self.plan or share_path("config/campaign.yaml"))
        names = ", ".join(fault.name for fault in plan)
        plan = tuple(fault for fault in plan if self.only in fault.name)
        if not plan:
            raise InputError(
                f"--only {self.only!r}: no fault's name has this in it; there are {names}"
            )

        def tell(outcome: Outcome) -> None:
            print(outcome.line(), flush=True)
            for complaint in outcome.complaints:
                print(f"    {complaint}", flush=True)

        print(HEAD, flush=True)
        with tempfile.TemporaryDirectory() as temporary:
            folder = self.log or Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            outcomes = run_mutations(folder, 0 if self.only else self.mutations)
            for outcome in outcomes:
                tell(outcome)
            with ros(["--ros-args", "--log-level", "error"]):
                node = Node("robot", namespace="/ant")
                try:
                    outcomes += run_campaign(node, plan, self.times, folder, tell)
                finally:
                    node.destroy_node()
        tried, survived = (sum(getattr(o, key) for o in outcomes) for key in ("tried", "survived"))
        print(f"survived {survived} of {tried}")
        faults = [outcome.as_dict() for outcome in outcomes]
        write_json(self.json, {"tried": tried, "survived": survived, "faults": faults})
        return 0 if survived == tried else 1
