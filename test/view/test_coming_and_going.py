"""The page beside robots that end, in lockstep, and beside a policy node that comes and goes."""

from __future__ import annotations

import asyncio
import json
import random
import signal

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("tornado")
pytest.importorskip("msgspec")
from live_robot import Robot
from program import Program
from stand import JOINTS, WIRING, tiny_model
from view.visitor import visiting

from an_control.view.main import run_live_page_server

DRAWING = """
an_control_drawing: 1
links:
  left: {joint: left, axis: [0, 1, 0], to: [0, 0.1, 0.3], width: 0.05}
  right: {joint: right, axis: [0, 1, 0], to: [0, -0.1, 0.3], width: 0.05}
"""
SLOTS = ["cart.position", "cart.velocity", "pole.cos", "pole.sin", "pole.velocity"]


def test_announced_drags_in_lockstep_change_no_bit_of_the_return(simulate, tmp_path):
    from an_control.cli import main
    from an_control.system.share import find_share_path

    robot, rng = simulate("cartpole", "--episodes", "100000", "--seed", "3"), random.Random(4)
    returns: dict[int, float] = {}

    async def run() -> None:
        async with visiting(robot.address()) as visitor:

            def note() -> dict[int, float]:
                now = visitor.newest.get("tick", {}).get("episode", {})
                if "last_return" in now:
                    returns[int(now["episode"]) - 1] = now["last_return"]
                return returns

            await visitor.state("running")
            robot_ = lambda key: visitor.newest.get("robot", {}).get(key)  # noqa: E731
            await visitor.until(
                lambda: robot_("lockstep") and robot_("simulated"), "what the page pauses"
            )
            panel = {(one, one) for one in SLOTS}  # before that, the fields that the node reads
            await visitor.until(
                lambda: panel == set(visitor.wires().values()), "the scrambler's panel"
            )
            for _ in range(30):
                wires = visitor.wires()
                signal_, slot = rng.choice(SLOTS), rng.choice(SLOTS)
                if wires[slot][0] != signal_:
                    await visitor.done("connect", signal=signal_, slot=slot, announced=True)
                note()
            assert any(slot != one[0] for slot, one in visitor.wires().items())
            assert all(signal_ == channel for signal_, channel in visitor.wires().values())
            first = max(returns, default=0)
            await visitor.until(
                lambda: max(note(), default=0) > first + 1 and len(returns) > 1, "more episodes"
            )

    asyncio.run(run())
    robot.close()
    count = max(returns) + 1
    model, plain = find_share_path("models/cartpole.safetensors"), tmp_path / "plain.json"
    arguments = [str(model), "--episodes", str(count), "--seed", "3", "--json", str(plain)]
    assert main(["evaluate", *arguments]) == 0
    expected = [one["return"] for one in json.loads(plain.read_text())["episodes"]]
    assert len(returns) >= 2
    assert returns == {episode: expected[episode] for episode in returns}


def test_a_policy_node_that_is_killed_is_called_silent_and_found_again(tmp_path):
    (tmp_path / "wiring.yaml").write_text(WIRING)
    tiny_model(tmp_path / "model.safetensors")
    files = "--wiring", tmp_path / "wiring.yaml", "--model", tmp_path / "model.safetensors"
    arguments = ("run", *files, "--activate", "--namespace", "tiny")
    robot, program = Robot("/tiny"), Program(tmp_path)
    robot.joints(JOINTS)
    robot.tilt()
    robot.start()

    async def run() -> None:
        async with (
            run_live_page_server(0) as (server, looking),
            visiting(server.address) as visitor,
        ):
            await visitor.state("waiting")
            with program.started(*arguments) as process:
                await visitor.state("running")
                await visitor.until(lambda: len(visitor.wires()) == 4, "the wiring panel")
                panel = visitor.newest["wiring"]
                assert (
                    "no scrambler" in panel["why_not_unannounced"]
                    and not panel["why_not_announced"]
                )
                assert visitor.newest["robot"]["name"] == "/tiny"
                await visitor.until(lambda: "drawing" in visitor.newest, "the drawing")
                assert visitor.newest["drawing"] == {
                    "is": "drawing", "kind": "dials", "joints": list(JOINTS),
                    "skeleton": None, "problem": "",
                }  # fmt: skip
                swap = {"signal": "tilt: vector.x", "slot": "left.position", "announced": True}
                await visitor.done("connect", **swap)
                swapped = lambda: visitor.wires()["tilt.x"][0] == "joints: position[left]"  # noqa: E731
                await visitor.until(swapped, "the swap on the page")
                for refused in (
                    await visitor.ask("connect", **(swap | {"announced": False, "slot": "tilt.y"})),
                    await visitor.ask("cut", slot="tilt.x"),
                    await visitor.ask("set", name="missing", value=0.5),
                ):
                    assert not refused["ok"] and "no scrambler" in refused["text"]
                assert "no simulator" in (await visitor.ask("restart"))["text"]
                process.send_signal(signal.SIGKILL)
                await visitor.state("silent")
            (tmp_path / "wiring_drawing.yaml").write_text(DRAWING)
            with program.started(*arguments) as process:
                await visitor.state("running")
                await visitor.until(
                    lambda: visitor.wires().get("tilt.x") == ("tilt: vector.x", "tilt.x"),
                    "the new node's wiring",
                )
                await visitor.until(
                    lambda: visitor.newest["drawing"]["kind"] == "skeleton",
                    "the drawing that now lies beside the wiring",
                )
                # Fast DDS may crash where a node is destroyed just as a peer is killed.
                process.send_signal(signal.SIGINT)
                await visitor.until(lambda: process.poll() is not None, "the node's end")
            assert not looking.done()

    try:
        asyncio.run(run())
    finally:
        robot.close()
