"""Runs the campaign: each fault several times against one policy node, and what the wire showed."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from itertools import pairwise
from math import inf
from pathlib import Path

from rclpy.node import Node

from an_control.share import share_path
from an_control_sim.campaign import node_faults
from an_control_sim.campaign.faults import FAULTS
from an_control_sim.campaign.hiccups import Hiccups
from an_control_sim.campaign.outcome import Outcome, Seen
from an_control_sim.campaign.plan import WALKS_S, Fault
from an_control_sim.campaign.policy_process import PolicyProcess
from an_control_sim.campaign.stage import NAMESPACE, Stage

RECOVERY_S = 30.0
MEMORY_MB = 5.0
"""How much the node's memory may grow from a fault's first time to its last."""
HICCUP_S = 0.02
"""What the campaign file adds to each promise for the way to the listener: where the listener
itself stood still for longer, lateness is not the node's."""
REPEATS = 3
"""How often a try that the listener spoilt is made again before it counts."""


def run_campaign(
    node: Node, plan: Iterable[Fault], times: int, folder: Path, tell: Callable[[Outcome], object]
) -> list[Outcome]:
    """Run each fault `times` times on `node`, whose namespace must be the Ant's."""
    assert node.get_namespace() == NAMESPACE
    policy = PolicyProcess(folder)
    shutil.copyfile(share_path("models/ant.safetensors"), policy.model)
    stage = Stage(node, policy)
    hiccups = Hiccups()
    outcomes = []
    try:
        for fault in plan:
            outcomes.append(_try(stage, hiccups, fault, times))
            tell(outcomes[-1])
    finally:
        policy.stop()
        hiccups.close()
        stage.close()
    return outcomes


def _try(stage: Stage, hiccups: Hiccups, fault: Fault, times: int) -> Outcome:
    outcome = Outcome(fault.name)
    parameters = {"use_sim_time": fault.kind == "clock"}
    if not stage.policy.running or parameters != stage.policy.parameters:
        stage.policy.stop()
        stage.policy.parameters = parameters
        stage.policy.start()
    first_mb = 0.0
    for number in range(times):
        for repeated in range(REPEATS + 1):
            hiccups.clear()
            seen = _once(stage, fault)
            if not stage.policy.running:
                stage.policy.start()
            spoilt = seen.late and not seen.broken and hiccups.worst_s > HICCUP_S
            if not spoilt or repeated == REPEATS:
                break
            outcome.repeated += 1
        outcome.add(seen)
        if not number:
            first_mb = stage.policy.memory_mb
    if outcome.walked < fault.walks * outcome.up:
        outcome.survived = 0
        outcome.complaints.append(
            f"walked again after {outcome.walked} of {outcome.up} tries, {fault.walks:.0%} wanted"
        )
    outcome.memory_mb = stage.policy.memory_mb - first_mb
    if fault.wire in ("safe", "acts") and outcome.memory_mb > MEMORY_MB:
        outcome.survived = min(outcome.survived, times - 1)
        outcome.complaints.append(f"memory grew by {outcome.memory_mb:.1f} MB")
    return outcome


def _once(stage: Stage, fault: Fault) -> Seen:
    """One time, and what was seen of it."""
    stage.acting()
    stage.walking(lambda: node_faults.reset(stage))
    falls = stage.falls
    wire = stage.wire
    wire.violations.clear()
    wire.at_s.clear()
    wire.safe.clear()
    stage.broken_s = time.monotonic()
    with FAULTS[fault.kind](stage, **fault.options):
        stage.play(fault.lasts_s)
        safe_s = _settled(stage, fault.wire)
        lives_on = fault.wire == "ends" and stage.policy.running
        end_s = time.monotonic()
    mark = len(wire.safe)
    stage.until(lambda: not all(wire.safe[mark:]), RECOVERY_S)
    acted = [at for at, safe in zip(wire.at_s, wire.safe, strict=True) if not safe and at > end_s]
    recovered_s = acted[0] - end_s if acted else inf
    stage.until(stage.walks, end_s + WALKS_S - time.monotonic())
    walks_s: float | None = time.monotonic() - end_s if stage.walks() else inf
    if stage.falls > falls:
        walks_s = None
    broken = list(wire.violations)
    if lives_on:
        broken.append("the process did not end")
    late = []
    if safe_s > fault.within_s:
        late.append(f"{fault.wire} only after {safe_s:.3f} s of {fault.within_s:g} s")
    if recovered_s > fault.recovered_s:
        late.append(f"acted again after {recovered_s:.3f} s of {fault.recovered_s:g} s")
    return Seen(safe_s, recovered_s, broken, late, walks_s)


def _settled(stage: Stage, wire: str) -> float:
    """How long after the fault the wire was as it should be; inf where it never was."""
    begin_s = stage.broken_s
    heard = list(zip(stage.wire.at_s, stage.wire.safe, strict=True))
    if wire == "acts":
        at_s = [begin_s, *(at for at, _ in heard), time.monotonic()]
        return max(after - before for before, after in pairwise(at_s))
    unsafe = [place for place, (_, safe) in enumerate(heard) if not safe]
    first_safe = unsafe[-1] + 1 if unsafe else 0
    if wire == "silent":
        return heard[-1][0] - begin_s if heard else 0.0
    if first_safe >= len(heard):
        return inf
    return heard[first_safe][0] - begin_s
