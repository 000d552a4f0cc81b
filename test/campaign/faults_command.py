"""``python -m campaign faults``: faults tried on the policy node, and what was heard of it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from an_control.cli.common import InputError, OutputFile, OutputFolder, require_packages, write_json

if TYPE_CHECKING:
    from campaign.outcome import Outcome
    from campaign.plan import Fault
    from campaign.state import State


PLAN = Path(__file__).with_name("campaign.yaml")


@dataclass(frozen=True)
class FaultsCommand:
    """Break what feeds and surrounds the policy node, over ROS 2 with the Ant in real time, hold
    what goes to the robot to the campaign file's promises, and say what the robot did."""

    plan: Path | None = None
    """A campaign YAML; by default test/campaign/campaign.yaml."""
    times: int | None = None
    """How often each fault is tried; by default as often as the campaign file says of it."""
    only: str = ""
    """Only the faults whose name has this in it."""
    read: bool = False
    """Only the faults of which the user must read something, or nothing."""
    mutations: int = 10_000
    """How many byte-mutated wiring and model files are read."""
    load: int = 0
    """How many busy processes run beside it."""
    state: OutputFile | None = None
    """Keep each try in this file; where it exists already, make only the tries that it lacks."""
    log: OutputFolder | None = None
    """Keep the nodes' logs in this folder."""
    json: OutputFile | None = None
    """Also write the result here as JSON."""

    def run(self) -> int:
        require_packages("ros", "rclpy")
        require_packages("sim", "pybullet", "gymnasium")
        if (self.times is not None and self.times < 1) or self.mutations < 0 or self.load < 0:
            raise InputError("--times must be 1 or more, --mutations and --load 0 or more")
        os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
        from campaign.child import busy
        from campaign.outcome import HEAD
        from campaign.plan import load_plan
        from campaign.state import State, StateError, campaign_of

        path = self.plan or PLAN
        plan = load_plan(path)
        names = ", ".join(fault.name for fault in plan)
        plan = tuple(
            fault for fault in plan if self.only in fault.name and (fault.is_read or not self.read)
        )
        if not plan:
            raise InputError(
                f"--only {self.only!r}: no fault's name has this in it; there are {names}"
            )
        try:
            state = State(self.state, campaign_of(path, self.load))
            print(HEAD, flush=True)
            with tempfile.TemporaryDirectory() as temporary, busy(self.load):
                folder = self.log or Path(temporary)
                folder.mkdir(parents=True, exist_ok=True)
                outcomes = self._run(plan, folder, state)
        except StateError as error:
            raise InputError(f"--state {error}") from error
        tried, survived = (sum(getattr(o, key) for o in outcomes) for key in ("tried", "survived"))
        print(f"survived {survived} of {tried}")
        faults = [outcome.as_dict() for outcome in outcomes]
        write_json(self.json, {"tried": tried, "survived": survived, "faults": faults})
        return 0 if survived == tried else 1

    def _run(self, plan: tuple[Fault, ...], folder: Path, state: State) -> list[Outcome]:
        """What `state` lacks, reported as it comes."""
        from rclpy.node import Node

        from an_control_sim.process import initialise_ros
        from campaign.mutations import run_mutations
        from campaign.run import run_campaign

        mutations = 0 if self.only or self.read else self.mutations
        if mutations and [one.tried for one in state.files] != [mutations, mutations]:
            state.keep(run_mutations(folder, mutations))
        files = state.files if mutations else []
        for outcome in files:
            _report(outcome)
        with initialise_ros(["--ros-args", "--log-level", "error"]):
            node = Node("robot", namespace="/ant")
            try:
                progress = _progress(plan, self.times, state)
                return files + run_campaign(
                    node, plan, self.times, folder, _report, state, progress
                )
            finally:
                node.destroy_node()


def _report(outcome: Outcome) -> None:
    """A row of the table."""
    if sys.stderr.isatty():
        print(f"\r{'':<79}\r", end="", file=sys.stderr, flush=True)
    print(outcome.line(), flush=True)
    for complaint in outcome.complaints:
        print(f"    {complaint}", flush=True)


def _progress(
    plan: tuple[Fault, ...], times: int | None, state: State
) -> Callable[[str, int], None]:
    """Says on a terminal what is being tried, and how much of all is done."""
    wanted = {fault.name: times or fault.times for fault in plan}

    def show(fault: str, number: int) -> None:
        if sys.stderr.isatty():
            done = sum(min(len(state.tries.get(name, ())), wanted[name]) for name in wanted)
            line = f"{done} of {sum(wanted.values())} tries; {fault}: {number} of {wanted[fault]}"
            print(f"\r{line[:79]:<79}", end="", file=sys.stderr, flush=True)

    return show
