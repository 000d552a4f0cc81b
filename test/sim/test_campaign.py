"""The fault campaign and the soak, in small: what they find sound and what they would find."""

from __future__ import annotations

import ctypes
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("pybullet")

from rclpy.logging import LoggingSeverity, set_logger_level
from rclpy.node import Node

from an_control.cli import main
from an_control.share import share_path
from an_control.wiring import WiringError
from an_control_sim.campaign import mutations
from an_control_sim.campaign.faults import FAULTS
from an_control_sim.campaign.outcome import Outcome, Seen
from an_control_sim.campaign.plan import load_plan
from an_control_sim.campaign.run import run_campaign
from an_control_sim.process import ros

PLAN = share_path("config/campaign.yaml")
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
    assert {fault.wire for fault in plan} == {"safe", "acts", "silent", "ends"}


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("fault: late", "fault: lat", "silent or late"),
        ("delay_s: 0.3", "delays: 0.3", "delay_s"),
        ("wire: acts", "wire: act", "safe or acts"),
        ("within_s: 0.2", "within_s: soon", "seconds"),
        ("an_control_campaign: 1", "an_control_campaign: 2", "version"),
        ("walks: 0.5", "walks: 2", "a share from 0 to 1"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused_with_place_and_choices(
    tmp_path: Path, right: str, wrong: str, said: str
) -> None:
    path = tmp_path / "plan.yaml"
    text = (
        "an_control_campaign: 1\nlasts_s: 1\nwalks: 0.5\nfaults:\n"
        "  one: {fault: late, delay_s: 0.3, wire: acts, within_s: 0.2, recovered_s: 0.2}\n"
    )
    path.write_text(text.replace(right, wrong))
    with pytest.raises(WiringError, match=said):
        load_plan(path)


@pytest.mark.parametrize(
    "names",
    [
        ("all sources silent", "readings NaN", "e-stop by service"),
        ("policy hangs", "policy raises"),
        ("node interrupted", "node killed"),
    ],
    ids=" + ".join,
)
def test_the_wire_keeps_its_promises_under(tmp_path: Path, names: tuple[str, ...]) -> None:
    plan = [
        replace(fault, within_s=SLACK * fault.within_s, recovered_s=60.0, walks=0.0)
        for fault in load_plan(PLAN)
        if fault.name in names
    ]
    assert len(plan) == len(names)
    with ros(["--ros-args", "--log-level", "error"]):
        node = Node("robot", namespace="/ant")
        try:
            outcomes = run_campaign(node, plan, 1, tmp_path, lambda outcome: None)
        finally:
            node.destroy_node()
    for outcome in outcomes:
        assert outcome.survived == outcome.tried == 1, outcome
        assert outcome.name in outcome.line()


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
    main(["soak", "--ticks", "4000", "--json", str(path)])
    found = json.loads(path.read_text())
    assert found["ticks"] == 4000 and found["faults"] > 5
    assert found["end"]["handles"] <= found["start"]["handles"]
    assert found["end"]["threads"] <= found["start"]["threads"]
    assert found["end"]["memory_mb"] - found["start"]["memory_mb"] < 5.0
    assert 0 < found["walked"] <= found["judged"]
    out = capsys.readouterr().out
    assert "memory grew" in out and "walked again within 3 s after" in out


def test_a_robot_that_does_not_walk_again_did_not_survive_and_one_that_fell_says_nothing() -> None:
    outcome = Outcome("x")
    for walks_s in (0.5, 1.5, math.inf, None):
        outcome.add(Seen(0.1, 0.1, [], [], walks_s))
    assert (outcome.tried, outcome.up, outcome.walked, outcome.walks_s) == (4, 3, 2, 1.0)
    assert "2/3 1.0 s" in outcome.line()
    assert outcome.as_dict()["walked"] == 2


def test_a_selection_that_is_empty_is_an_error_that_names_the_faults(capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        raise SystemExit(main(["campaign", "--only", "typo"]))
    assert caught.value.code == 2
    assert "'typo'" in capsys.readouterr().err


def test_a_try_is_made_again_where_the_listener_itself_stood_still(tmp_path, monkeypatch) -> None:
    (fault,) = (one for one in load_plan(PLAN) if one.name == "one source of five silent")
    slept = []

    @contextmanager
    def stall(stage) -> Iterator[None]:
        if not slept:
            slept.append(stage)
            ctypes.PyDLL(None).usleep(400_000)  # holds the interpreter's lock
        yield

    monkeypatch.setitem(FAULTS, "stall", stall)
    fault = replace(fault, kind="stall", options={}, within_s=0.35, recovered_s=60.0, walks=0.0)
    with ros(["--ros-args", "--log-level", "error"]):
        node = Node("robot", namespace="/ant")
        try:
            (outcome,) = run_campaign(node, [fault], 1, tmp_path, lambda outcome: None)
        finally:
            node.destroy_node()
    assert (outcome.tried, outcome.survived, outcome.repeated) == (1, 1, 1), outcome


def test_lateness_counts_where_the_listener_was_awake_and_broken_promises_always_do() -> None:
    late, broken = Seen(0.3, 0.0, [], ["late"]), Seen(0.0, 0.0, ["not finite"], [])
    outcome = Outcome("x")
    for seen in (late, broken, Seen(0.1, 0.2, [], [])):
        outcome.add(seen)
    assert (outcome.tried, outcome.survived, outcome.safe_s) == (3, 1, 0.3)
    assert outcome.complaints == ["late", "not finite"]
