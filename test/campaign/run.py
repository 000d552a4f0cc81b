"""Runs the campaign: each fault several times against one policy node, and what was heard of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from math import inf
from pathlib import Path

import numpy as np
from rclpy.node import Node

from an_control.load import load_policy
from an_control.system.share import find_share_path
from campaign import node_faults
from campaign.faults import FAULTS
from campaign.hiccups import Hiccups
from campaign.outcome import Outcome, Seen
from campaign.plan import WALKS_S, Fault
from campaign.policy_process import PolicyProcess
from campaign.reading import judge, run_check, wait_for_calm
from campaign.robot_under_test import NAMESPACE, WINDOW_S, RobotUnderTest
from campaign.state import State

RECOVERY_S = 30.0
MEMORY_MB = 5.0
"""How much the node's memory may grow from a fault's first time to its last."""
HICCUP_S = 0.02
"""What the campaign file adds to each promise for the way to the listener: where the listener
itself stood still for longer, lateness is not the node's."""
REPEATS = 3
"""How often a try that the listener spoilt is made again before it counts."""
SIMULATED_TIME = ("clock", "two_clocks")
"""Faults of /clock, for a node that follows it."""


def run_campaign(
    node: Node,
    plan: Iterable[Fault],
    times: int | None,
    folder: Path,
    report: Callable[[Outcome], object],
    state: State | None = None,
    begin: Callable[[str, int], object] = lambda fault, number: None,
) -> list[Outcome]:
    """Make the tries that `state` lacks, on `node`, whose namespace must be the Ant's.

    times   how often each fault is tried, None: as often as the plan says of it
    report  called with each fault's outcome
    begin   called with the fault's name and the try's number from 1 before each try
    """
    assert node.get_namespace() == NAMESPACE
    state = State() if state is None else state
    compile_policy()
    robot = RobotUnderTest(node, PolicyProcess(folder))
    hiccups = Hiccups()
    outcomes = []
    try:
        for fault in plan:
            made = state.tries.setdefault(fault.name, [])
            if len(made) < (wanted := times or fault.times):
                _prepare(robot, fault)
            fresh = True
            while len(made) < wanted:
                begin(fault.name, len(made) + 1)
                seen = _try(robot, hiccups, fault, len(made))
                state.add(fault.name, replace(seen, memory_mb=0.0) if fresh else seen)
                fresh = False
            outcomes.append(judged(fault, made))
            report(outcomes[-1])
    finally:
        robot.policy.stop()
        hiccups.close()
        robot.close()
    return outcomes


def compile_policy() -> None:
    """Put what the node compiles into the cache on disk: else its first start may take minutes."""
    policy = load_policy(find_share_path("models/ant.safetensors"))
    policy.step_array(np.zeros(len(policy.nominal_ids)), policy.nominal_ids)


def judged(fault: Fault, tries: Iterable[Seen]) -> Outcome:
    """What the tries of a fault are together, by its promises for all of them."""
    outcome = Outcome(fault.name)
    for seen in tries:
        outcome.add(seen)
    if outcome.walked < fault.walks * outcome.up:
        outcome.survived = 0
        outcome.complaints.append(
            f"walked again after {outcome.walked} of {outcome.up} tries, {fault.walks:.0%} wanted"
        )
    on = outcome.robot.get("walked on", 0)
    if on < fault.walks_on * outcome.tried:
        outcome.survived = 0
        outcome.complaints.append(
            f"walked on in {on} of {outcome.tried} tries, {fault.walks_on:.0%} wanted"
        )
    if fault.commands in ("safe", "acts") and outcome.memory_mb > MEMORY_MB:
        outcome.survived = min(outcome.survived, outcome.tried - 1)
        outcome.complaints.append(f"memory grew by {outcome.memory_mb:.1f} MB")
    return outcome


def _prepare(robot: RobotUnderTest, fault: Fault) -> None:
    """Have a node run with the wiring and the parameters that this fault takes."""
    parameters = {"use_sim_time": fault.kind in SIMULATED_TIME}
    setting = parameters, fault.wiring
    if not robot.policy.running or setting != robot.setting:
        robot.policy.stop()
        robot.setting = setting
        robot.policy.parameters = parameters
        robot.policy.write_files(fault.wiring)
        robot.policy.start()


def _try(robot: RobotUnderTest, hiccups: Hiccups, fault: Fault, number: int) -> Seen:
    """One try, made again where the listener spoilt it."""
    repeated = 0
    while True:
        try:
            walked = _ready(robot, fault)
        except RuntimeError as error:
            return Seen(inf, inf, [f"{error}, even before the fault"], [], repeated=repeated)
        robot.random.seed(f"{fault.name} {number}")
        pid, before_mb = robot.policy.pid, robot.policy.memory_mb
        hiccups.clear()
        seen = _once(robot, fault)
        if not walked:  # what it does then says nothing
            seen = replace(seen, walks_s=None, robot="")
        spoilt = seen.late and not seen.broken and hiccups.worst_s > HICCUP_S
        if not robot.policy.running:
            robot.policy.start()
        if not spoilt or repeated == REPEATS:
            break
        repeated += 1
    if fault.check and not number:  # seconds, in which the robot must do nothing
        with FAULTS[fault.kind](robot, **fault.options):
            seen = replace(seen, broken=[*seen.broken, *run_check(robot, fault)])
    grown_mb = robot.policy.memory_mb - before_mb if robot.policy.pid == pid else 0.0
    return replace(seen, memory_mb=grown_mb, repeated=repeated)


def _ready(robot: RobotUnderTest, fault: Fault) -> bool:
    """Wait until the policy acts and the robot walks, with a new node where this one cannot.

    RuntimeError where that cannot, either; but where the fault promises nothing of the robot it
    may stand: False.
    """
    try:
        robot.acting(RECOVERY_S)
    except RuntimeError:
        _restart(robot)
    if fault.is_read:
        wait_for_calm(robot)
    try:
        robot.walking(lambda: node_faults.reset(robot), RECOVERY_S)
    except RuntimeError:
        if not (fault.walks or fault.walks_on):
            return False
        _restart(robot)
        robot.walking(lambda: node_faults.reset(robot))
    return True


def _restart(robot: RobotUnderTest) -> None:
    robot.policy.stop()
    robot.policy.start()
    robot.acting()


def _once(robot: RobotUnderTest, fault: Fault) -> Seen:
    """One time, and what was seen of it."""
    robot.begin()
    with FAULTS[fault.kind](robot, **fault.options):
        robot.play(fault.lasts_s)
        safe_s = _settled(robot, fault.commands)
        lives_on = fault.commands == "ends" and robot.policy.running
        end_s = time.monotonic()
    recovered_s = _recovered(robot, end_s)
    robot.until(robot.walks, end_s + WALKS_S - time.monotonic())
    walks_s: float | None = time.monotonic() - end_s if robot.walks() else inf
    robot.play(end_s + WINDOW_S - time.monotonic())
    if robot.motion.falls:
        walks_s = None
    read = judge(robot, fault)
    broken = [*robot.heard.violations, *robot.complaints]
    if lives_on:
        broken.append("the process did not end")
    if recovered_s == inf:
        broken.append(f"did not act again within {RECOVERY_S:g} s")
    lines = robot.policy.logged(robot.log_bytes).count("\n")
    if lines > fault.log_lines:
        broken.append(f"logged {lines} lines, {fault.log_lines} allowed")
    late = read.lacking + read.unwanted  # as where this process stood still, and sent nothing
    if safe_s > fault.within_s:
        late.append(f"{fault.commands} only after {safe_s:.3f} s of {fault.within_s:g} s")
    if inf > recovered_s > fault.recovered_s:
        late.append(f"acted again after {recovered_s:.3f} s of {fault.recovered_s:g} s")
    if read.at_s > fault.read_s:
        late.append(f"all was read only after {read.at_s:.1f} s of {fault.read_s:g} s")
    did = robot.motion.in_words()
    return Seen(safe_s, recovered_s, broken, late, walks_s, did, read_s=read.at_s)


def _recovered(robot: RobotUnderTest, end_s: float) -> float:
    """How soon after the fault's end the policy acted again; inf where it did not."""
    heard = robot.heard
    mark = len(heard.safe)
    robot.until(lambda: not all(heard.safe[mark:]), RECOVERY_S)
    acted = [at for at, safe in zip(heard.at_s, heard.safe, strict=True) if not safe and at > end_s]
    return acted[0] - end_s if acted else inf


def _settled(robot: RobotUnderTest, commands: str) -> float:
    """How long after the fault the commands were as they should be; inf where never."""
    begin_s = robot.broken_s
    heard = list(zip(robot.heard.at_s, robot.heard.safe, strict=True))
    if commands == "acts":
        acted_s = [at for at, safe in heard if not safe and at > begin_s]
        at_s = [begin_s, *acted_s, time.monotonic()]
        return max(after - before for before, after in pairwise(at_s))
    unsafe = [place for place, (_, safe) in enumerate(heard) if not safe]
    first_safe = unsafe[-1] + 1 if unsafe else 0
    if commands == "silent":
        return heard[-1][0] - begin_s if heard else 0.0
    if first_safe >= len(heard):
        return inf
    return heard[first_safe][0] - begin_s
