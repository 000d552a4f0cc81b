"""The fault campaign and the soak, in small: what they find sound and what they would find."""

from __future__ import annotations

import ctypes
import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("pybullet")

from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from rclpy.logging import LoggingSeverity, set_logger_level
from rclpy.node import Node

from an_control.wiring import WiringError
from an_control_sim.process import initialise_ros
from campaign import child, mutations
from campaign.__main__ import main
from campaign.faults import FAULTS
from campaign.faults_command import PLAN
from campaign.outcome import HEAD, Outcome, Seen
from campaign.plan import load_plan
from campaign.policy_process import PolicyProcess
from campaign.reading import compare, line, logged
from campaign.robot_under_test import Motion
from campaign.run import judged, run_campaign
from campaign.soak import Sample, Soaked
from campaign.state import State, StateError, campaign_of

TEXT = """
an_control_campaign: 1
lasts_s: 1
walks: 0.5
walks_on: 0.5
times: 2
log_lines: 9
read_s: 5
faults:
  one: {fault: late, delay_s: 0.3, commands: acts, within_s: 0.2, recovered_s: 0.2}
"""
SLACK = 10.0
"""The promises are measured by the campaign itself; here a busy machine may be later."""


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """Campaign and soak quiet the whole process's log."""
    yield
    set_logger_level("", LoggingSeverity.INFO)


def test_the_plan_that_ships_has_every_kind_of_fault_and_a_promise_for_each() -> None:
    plan = load_plan(PLAN)
    assert {fault.kind for fault in plan} == set(FAULTS)
    assert all(fault.within_s > 0 and fault.recovered_s > 0 for fault in plan)
    assert {fault.commands for fault in plan} == {"safe", "acts", "silent", "ends"}


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("fault: late", "fault: lat", "silent or late"),
        ("delay_s: 0.3", "delays: 0.3", "delay_s"),
        ("commands: acts", "commands: act", "safe or acts"),
        ("within_s: 0.2", "within_s: soon", "seconds"),
        ("an_control_campaign: 1", "an_control_campaign: 2", "version"),
        ("walks: 0.5", "walks: 2", "a share from 0 to 1"),
        ("times: 2", "times: 0", "how often"),
        ("log_lines: 9", "log_lines: many", "a number of lines"),
        ("delay_s: 0.3", "wiring: none", "part of a wiring"),
        ("delay_s: 0.3", "log: WARN", "a list of regular expressions"),
        ("delay_s: 0.3", "check: ['!(']", "a list of regular expressions"),
        ("read_s: 5", "read_s: soon", "seconds"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused_with_place_and_choices(
    tmp_path: Path, right: str, wrong: str, said: str
) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(TEXT.replace(right, wrong))
    with pytest.raises(WiringError, match=said):
        load_plan(path)


def test_every_wiring_of_the_plan_that_ships_can_be_read(tmp_path: Path) -> None:
    changed = [fault for fault in load_plan(PLAN) if fault.wiring or "changes" in fault.options]
    assert len(changed) > 5
    for fault in changed:
        policy = PolicyProcess(tmp_path)
        policy.write_files(fault.wiring)
        if isinstance(changes := fault.options.get("changes"), dict):
            policy.change_wiring(changes)


def test_a_fault_takes_what_stands_for_all_where_it_does_not_say_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    other = (
        "  two: {fault: silent, commands: safe, within_s: 1, recovered_s: 1, times: 20, walks: 0}\n"
    )
    path.write_text(TEXT + other)
    one, two = load_plan(path)
    assert (one.times, one.walks, one.walks_on, one.log_lines) == (2, 0.5, 0.5, 9)
    assert (two.times, two.walks, two.walks_on, two.log_lines) == (20, 0.0, 0.5, 9)


@pytest.mark.parametrize(
    "names",
    [
        ("all sources silent", "e-stop by service"),
        pytest.param(("readings NaN",), marks=pytest.mark.slow),
        pytest.param(("policy hangs", "policy raises"), marks=pytest.mark.slow),
        pytest.param(("node interrupted", "node killed"), marks=pytest.mark.slow),
    ],
    ids=" + ".join,
)
def test_the_commands_keep_their_promises_under(tmp_path: Path, names: tuple[str, ...]) -> None:
    plan = [
        replace(
            fault, within_s=SLACK * fault.within_s, recovered_s=60.0, walks=0.0, log_lines=10**6
        )
        for fault in load_plan(PLAN)
        if fault.name in names
    ]
    assert len(plan) == len(names)
    with initialise_ros(["--ros-args", "--log-level", "error"]):
        node = Node("robot", namespace="/ant")
        try:
            outcomes = run_campaign(node, plan, 1, tmp_path, lambda outcome: None)
        finally:
            node.destroy_node()
    for outcome in outcomes:
        assert outcome.survived == outcome.tried == 1, outcome
        assert outcome.name in outcome.line()


LOG = """
[INFO] [100.5] [ant.policy]: acting: 28 of 28 channels, 60.6 Hz
Traceback
[WARN] [103.0] [ant.policy]: source 'imu' lost: no message for more than 0.1 s
[WARN] [104.0] [ant.policy]: source 'imu' lost: no message for more than 0.1 s
"""


def test_a_pattern_that_no_line_has_is_lacking_and_the_time_of_the_others_is_the_first() -> None:
    lines = logged(LOG, 90.0)
    assert [at_s for at_s, _ in lines] == [10.5, 13.0, 14.0]
    read = compare("the log", ["^INFO acting", "^WARN .*imu", "^WARN .*scan"], lines)
    assert (read.at_s, read.unwanted) == (13.0, [])
    assert read.lacking == ["the log: no line has '^WARN .*scan'"]


def test_a_line_that_should_not_be_there_is_shown_once() -> None:
    read = compare("the log", ["!^WARN"], logged(LOG, 90.0))
    assert (read.at_s, read.lacking) == (0.0, [])
    assert read.unwanted == ["the log: \"WARN source 'imu' lost: no message for more than 0.1 s\""]
    assert compare("the log", ["!^ERROR"], logged(LOG, 90.0)).unwanted == []


def test_a_line_that_says_that_the_machine_is_busy_is_no_line_too_many() -> None:
    busy = "ERROR watchdog: no command for 0.0289 s: safe command ({}); 9 more trips"
    reasons = (
        "no tick began: the executor is busy, or the machine is",
        "a tick has been running for 0.03 s",
    )
    for reason in reasons:
        assert not compare("the log", ["!."], [(0.0, busy.format(reason))]).unwanted
    assert compare("the log", ["!."], [(0.0, busy.format("the e-stop is latched"))]).unwanted


def test_a_status_of_the_diagnostics_is_read_as_one_line() -> None:
    values = [KeyValue(key="topic", value="imu"), KeyValue(key="publishers", value="1")]
    name, level = "/ant/policy: source imu", DiagnosticStatus.WARN
    status = DiagnosticStatus(name=name, level=level, message="late", values=values)
    assert line(status) == "WARN source imu: late; topic: imu; publishers: 1"


def test_every_fault_that_users_must_learn_of_is_read_in_log_and_diagnostics() -> None:
    for fault in load_plan(PLAN):
        told = [one for one in fault.log + fault.diagnostics + fault.check if one[0] != "!"]
        if any(one.startswith(("^WARN", "^ERROR", "^problem")) for one in told):
            assert fault.log and fault.diagnostics, fault.name


def test_mutated_files_are_refused_with_a_reason_or_are_sound(tmp_path: Path) -> None:
    for outcome in mutations.run_mutations(tmp_path, 300, seed=1):
        assert outcome.survived == outcome.tried == 300, outcome.complaints


def test_a_reader_that_crashes_on_a_mutated_file_is_found(tmp_path, monkeypatch) -> None:
    def crash(path: Path) -> None:
        raise KeyError("sources")

    monkeypatch.setattr(mutations, "read_wiring", crash)
    wirings, _ = mutations.run_mutations(tmp_path, 10)
    assert wirings.survived == 0 and "KeyError" in wirings.complaints[0]


def test_a_small_soak_finds_nothing_that_grows(tmp_path: Path, capsys) -> None:
    path = tmp_path / "soak.json"
    for _ in range(2):  # the first one makes what a process makes once
        main(["soak", "--ticks", "4000", "--json", str(path)])
    found = json.loads(path.read_text())
    assert found["ticks"] == 4000 and found["faults"] > 5
    # A fault may start the wiring doctor: one thread, and two pipes to its process. Another
    # thread may just write a file. A leak would add a thread at many of the faults.
    assert found["end"]["handles"] <= found["start"]["handles"] + 2
    assert found["end"]["threads"] <= found["start"]["threads"] + 3
    assert found["end"]["memory_mb"] - found["warm"]["memory_mb"] < 4.0
    assert found["start"]["ticks"] < found["warm"]["ticks"] < found["end"]["ticks"]
    assert 0 < found["walked"] <= found["judged"]
    out = capsys.readouterr().out
    assert "memory grew" in out and "walked again within 3 s after" in out


def test_a_soak_is_judged_by_what_grew_after_its_first_100_000_ticks() -> None:
    def sample(ticks: int, p50_us: float, p99_us: float, memory_mb: float) -> Sample:
        return Sample(ticks, p50_us, p99_us, memory_mb, 21, 18)

    start, warm = sample(50_000, 100.0, 200.0, 200.0), sample(120_000, 100.0, 200.0, 250.0)
    soaked = Soaked(10**6, 9, 9, 9, 0, 1.0, start, warm, sample(950_000, 104.0, 250.0, 250.5))
    assert (soaked.memory_mb, soaked.p50_ratio, soaked.p99_ratio) == (0.5, 1.04, 1.25)


def test_a_robot_that_does_not_walk_again_did_not_survive_and_one_that_fell_says_nothing() -> None:
    (fault,) = (one for one in load_plan(PLAN) if one.name == "another model")
    tries = [Seen(0.1, 0.1, [], [], walks_s) for walks_s in (0.5, 1.5, math.inf, None)]
    outcome = judged(replace(fault, walks=0.6), tries)
    assert (outcome.tried, outcome.up, outcome.walked, outcome.walks_s) == (4, 3, 2, 1.0)
    assert outcome.survived == 4 and outcome.as_dict()["walked"] == 2
    assert judged(replace(fault, walks=0.7), tries).survived == 0


def test_the_table_says_in_how_many_tries_the_robot_did_what() -> None:
    outcome = Outcome("x")
    for robot, walks_s in (("walked on", 0.0), ("stood safe", 2.0), ("fell", None)):
        outcome.add(Seen(0.1, 0.1, [], [], walks_s, robot))
    assert outcome.line().endswith("walked on 1, stood safe 1, fell 1, walked again 1 of 1")
    assert outcome.as_dict()["robot"] == {"walked on": 1, "stood safe": 1, "fell": 1}
    assert len(outcome.line().partition("walked on")[0]) == HEAD.index("what the robot did")


def test_a_robot_that_must_walk_on_and_slows_did_not_survive() -> None:
    (fault,) = (one for one in load_plan(PLAN) if one.name == "nothing")
    tries = [Seen(0.1, 0.1, [], [], 0.0, robot) for robot in ("walked on", "slowed")]
    assert judged(replace(fault, walks_on=0.5), tries).survived == 2
    short = judged(replace(fault, walks_on=0.6), tries)
    assert short.survived == 0 and "walked on in 1 of 2" in short.complaints[0]


def test_what_a_robot_did_is_known_by_its_slowest_half_second_and_by_what_stopped_it() -> None:
    assert Motion(2.0).in_words() == Motion(2.0, stopped=True).in_words() == "walked on"
    assert Motion(0.1).in_words() == "slowed"
    assert Motion(0.1, stopped=True).in_words() == "stood safe"
    assert Motion(2.0, falls=1).in_words() == "fell"


def test_a_campaign_that_was_ended_makes_only_the_tries_that_it_lacks(tmp_path: Path) -> None:
    (fault,) = (one for one in load_plan(PLAN) if one.name == "e-stop by service")
    fault = replace(fault, within_s=60.0, recovered_s=60.0, walks=0.0, times=2, log_lines=10**6)
    path, of = tmp_path / "state.json", campaign_of(PLAN, 0)
    early = Seen(math.inf, 0.2, ["early"], [], None, "fell")
    State(path, of).add(fault.name, early)
    tried: list[int] = []
    with initialise_ros(["--ros-args", "--log-level", "error"]):
        node = Node("robot", namespace="/ant")
        try:
            (outcome,) = run_campaign(
                node,
                [fault],
                None,
                tmp_path,
                lambda outcome: None,
                State(path, of),
                lambda name, number: tried.append(number),
            )
        finally:
            node.destroy_node()
    assert tried == [2]
    assert (outcome.tried, outcome.survived) == (2, 1) and outcome.complaints == ["early"]
    kept = State(path, of).tries[fault.name]
    assert kept[0] == early and len(kept) == 2 and not kept[1].broken


def test_a_state_of_another_campaign_is_refused_by_what_differs(tmp_path: Path) -> None:
    path, of = tmp_path / "state.json", {"plan": "a", "model": "b", "load": "c"}
    State(path, of).keep([Outcome("files", tried=3, robot={"fell": 1})])
    assert State(path, of).files[0].tried == 3
    with pytest.raises(StateError, match=r"state\.json.*another plan and another load; .*delete"):
        State(path, of | {"plan": "x", "load": "2 busy processes"})


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"campaign": {}, "files": [], "tries": [1]}'])
def test_a_file_that_is_no_state_is_refused_and_stays(tmp_path: Path, content: str, capsys) -> None:
    path = tmp_path / "state.json"
    path.write_text(content)
    assert main(["faults", "--state", str(path), "--only", "e-stop"]) == 2
    assert "is not the state of a campaign" in capsys.readouterr().err
    assert path.read_text() == content


def test_a_process_of_the_campaign_ends_with_it_however_it_ends() -> None:
    code = (
        "import os, signal\n"
        "from campaign import child\n"
        "print(child.start(['sleep', '600']).pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=child.environment()
    )
    gone = Path(f"/proc/{int(told.stdout)}/stat")
    until_s = time.monotonic() + 30.0
    while gone.exists() and gone.read_text().rpartition(") ")[2][0] not in "ZX":
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_a_selection_that_is_empty_is_an_error_that_names_the_faults(capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        raise SystemExit(main(["faults", "--only", "typo"]))
    assert caught.value.code == 2
    assert "'typo'" in capsys.readouterr().err


def test_a_try_is_made_again_where_the_listener_itself_stood_still(tmp_path, monkeypatch) -> None:
    (fault,) = (one for one in load_plan(PLAN) if one.name == "one source of five silent")
    slept = []

    @contextmanager
    def stall(robot) -> Iterator[None]:
        if not slept:
            slept.append(robot)
            ctypes.PyDLL(None).usleep(400_000)  # holds the interpreter's lock
        yield

    monkeypatch.setitem(FAULTS, "stall", stall)
    fault = replace(fault, kind="stall", options={}, within_s=0.35, recovered_s=60.0)
    fault = replace(fault, walks=0.0, log_lines=10**6)
    with initialise_ros(["--ros-args", "--log-level", "error"]):
        node = Node("robot", namespace="/ant")
        try:
            (outcome,) = run_campaign(node, [fault], 1, tmp_path, lambda outcome: None)
        finally:
            node.destroy_node()
    assert (outcome.tried, outcome.survived) == (1, 1) and outcome.repeated >= 1, outcome


def test_lateness_counts_where_the_listener_was_awake_and_broken_promises_always_do() -> None:
    late, broken = Seen(0.3, 0.0, [], ["late"]), Seen(0.0, 0.0, ["not finite"], [])
    outcome = Outcome("x")
    for seen in (late, broken, Seen(0.1, 0.2, [], [])):
        outcome.add(seen)
    assert (outcome.tried, outcome.survived, outcome.safe_s) == (3, 1, 0.3)
    assert outcome.complaints == ["late", "not finite"]
