"""The page beside a simulated cart-pole: what is done there reaches the nodes."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("tornado")
pytest.importorskip("msgspec")
from rclpy.context import Context
from rclpy.node import Node
from view.visitor import Visitor, visiting

from an_control.view.clients import ServiceCalls
from an_control.view.graph import find_robot_in_ros_graph
from an_control.view.listener import Listener
from an_control.view.process import NICE

SLOTS = ["cart.position", "cart.velocity", "pole.cos", "pole.sin", "pole.velocity"]


class Witness:
    """Reads from the nodes themselves what the page has changed."""

    def __init__(self, domain: int) -> None:
        import rclpy

        self.context = Context()
        rclpy.init(args=[], context=self.context, domain_id=domain)
        self.nodes = [Node(name, context=self.context) for name in ("caller", "hearer")]
        self.calls, self._listener = ServiceCalls(self.nodes[0], 60.0), Listener(self.nodes[1])
        self._order: dict[str, str] = {}

    async def order(self) -> dict[str, str]:
        """What the scrambler says that each channel carries."""
        end_s = time.monotonic() + 60.0
        while not self._order:
            assert time.monotonic() < end_s
            self._listener.subscribe_to_topics(find_robot_in_ros_graph(self.nodes[1]).topics)
            self.hear()
            await asyncio.sleep(0.01)
        self.hear()
        return self._order

    def hear(self) -> dict[str, str]:
        message = self._listener.pop_newest_message("order")
        if message is not None:
            self._order = {one.key: one.value for one in message.values}
        return self._order

    def close(self) -> None:
        import rclpy

        self._listener.close()
        self.calls.close()
        for node in self.nodes:
            node.destroy_node()
        rclpy.shutdown(context=self.context)


@asynccontextmanager
async def witness(domain: int) -> AsyncIterator[Witness]:
    one = Witness(domain)
    try:
        yield one
    finally:
        one.close()


async def begin(visitor: Visitor) -> None:
    """Wait for the robot, wired as in the file and with its scrambler's settings.

    Until the scrambler is found the page shows the five channels that the policy reads.
    """
    await visitor.state("running")
    scrambled = lambda: visitor.newest["wiring"]["why_not_unannounced"] == ""  # noqa: E731
    await visitor.until(lambda: len(visitor.wires()) == 5 and scrambled(), "the wiring panel")
    await visitor.until(lambda: visitor.newest["wiring"]["settings"], "the scrambler's settings")
    await visitor.until(lambda: visitor.newest["robot"]["simulated"], "the simulator")
    await visitor.until(lambda: "tick" in visitor.newest, "a tick")
    await visitor.done("restore")


def test_the_page_shows_a_cart_pole_and_each_tool_reaches_the_nodes(cartpole):
    async def run() -> None:
        async with visiting(cartpole.address()) as visitor, witness(cartpole.domain) as seen:
            await begin(visitor)
            await visitor.until(
                lambda: visitor.newest.get("drawing", {}).get("kind") == "skeleton",
                "the drawing, once the joints are heard",
            )
            links = visitor.newest["drawing"]["skeleton"]["links"]
            assert {one["joint"] for one in links} == {"", "cart", "pole"}
            assert visitor.newest["wiring"]["why_not_announced"] == ""
            order = await seen.order()
            assert order == {one: one for one in SLOTS}

            async def shows(expected: dict[str, str]) -> None:
                await visitor.until(lambda: seen.hear() == order | expected, str(expected))
                await visitor.until(
                    lambda: {k: v[0] for k, v in visitor.wires().items()} == order | expected,
                    "page",
                )

            swap = {"pole.cos": "pole.sin", "pole.sin": "pole.cos"}
            announced = {"signal": "pole.cos", "slot": "pole.sin", "announced": True}
            await visitor.done("connect", **announced)
            await shows(swap)
            fields = [f"channels.{one}.field" for one in ("pole.cos", "pole.sin")]
            read = await seen.calls.get_parameters("/cartpole/policy", fields)
            assert list(read.values()) == ["position[pole.sin]", "position[pole.cos]"]
            assert visitor.wires()["pole.sin"] == ("pole.cos", "pole.cos")
            await visitor.done("undo")
            await shows({})
            read = await seen.calls.get_parameters("/cartpole/policy", fields)
            assert list(read.values()) == ["position[pole.cos]", "position[pole.sin]"]
            await visitor.done("connect", **(announced | {"announced": False}))
            await shows(swap)
            read = await seen.calls.get_parameters("/cartpole/policy", fields)
            assert list(read.values()) == ["position[pole.cos]", "position[pole.sin]"]
            await visitor.done("cut", slot="cart.velocity")
            await visitor.done("noise", slot="pole.velocity")
            await visitor.done("copy", slot="pole.sin", signal="pole.sin")
            await shows({"pole.cos": "pole.sin", "cart.velocity": "", "pole.velocity": "noise"})
            await visitor.until(
                lambda: "cart.velocity" not in visitor.newest["channels"]["ids"], "it is absent"
            )
            assert len(visitor.newest["marks"]["marks"]) >= 6
            await visitor.done("restore")
            await shows({})

    asyncio.run(run())


def test_the_page_gives_way_to_the_robot(cartpole):
    cartpole.address()
    (page,) = cartpole.children("an_control view")
    (policy,) = cartpole.children("an_control.ros.node")
    nice = [os.getpriority(os.PRIO_PROCESS, pid) for pid in (policy, page)]
    assert nice[1] >= min(19, nice[0] + NICE)


def test_settings_restart_and_the_e_stop_reach_the_nodes(cartpole):
    async def run() -> None:
        async with visiting(cartpole.address()) as visitor, witness(cartpole.domain) as seen:
            await begin(visitor)
            for name, value, expected in (
                ("missing", 0.4, 0.4), ("missing", 0.0, 0.0), ("jitter", 0.1, 0.1),
                ("jitter", 0.0, 0.0), ("shuffle", 50.0, "50"), ("shuffle", 0.0, "none"),
            ):  # fmt: skip
                await visitor.done("set", name=name, value=value)
                read = await seen.calls.get_parameters("/cartpole/simulator", [name])
                assert read == {name: expected}
                await visitor.until(
                    lambda name=name, value=value: (
                        visitor.newest["wiring"]["settings"].get(name) == value
                    ),
                    f"the page shows {name} {value:g}",
                )
            refused = await visitor.ask("set", name="missing", value=3.0)
            assert not refused["ok"] and "from 0 to 1" in refused["text"]
            await visitor.done("restart")

            def stop(text: str) -> bool:
                parts = visitor.newest.get("diagnostics", {}).get("parts", [])
                return any(one["name"] == "e-stop" and text in one["text"] for one in parts)

            await visitor.done("estop")
            await visitor.until(lambda: stop("by service"), "e-stop")
            await visitor.done("resetestop")
            await visitor.until(lambda: stop("clear"), "cleared")

    asyncio.run(run())


def test_two_visitors_see_the_same_and_one_may_leave_at_any_time(cartpole):
    async def run() -> None:
        async with visiting(cartpole.address()) as first:
            await begin(first)
            async with visiting(cartpole.address()) as second:
                await second.state("running")
                await first.until(lambda: first.newest["health"]["clients"] == 2, "two browsers")
                await second.done("shuffle", announced=False)
                await first.until(lambda: first.wires() == second.wires(), "the same wiring panel")
                await second.say(json.dumps({"do": "shuffle", "id": 1, "announced": True}))
            await first.until(lambda: first.newest["health"]["clients"] == 1, "one browser")
            refused = await first.ask("connect", signal="x", slot="pole.cos", announced=True)
            assert not refused["ok"] and "'x' is not a signal" in refused["text"]
            await first.done("restore")

    asyncio.run(run())
