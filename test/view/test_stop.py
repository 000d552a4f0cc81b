"""Policy nodes that come and go: which one is stopped, and what is left on the page."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("tornado")
pytest.importorskip("msgspec")
import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_srvs.srv import Trigger
from view.visitor import Visitor, visiting

from an_control.view.main import run_live_page_server


class Policy:
    """A policy node with an e-stop and a channel; one that hangs says and answers nothing else."""

    def __init__(self, context: Context, space: str, *, hangs: bool) -> None:
        self.name, self.stops = f"{space}/policy", 0
        self._node = Node(
            "policy", namespace=space, context=context, start_parameter_services=not hangs
        )
        for key, value in (("source", "imu"), ("field", "vector.x")):
            self._node.declare_parameter(f"channels.tilt.{key}", value)
        self._node.create_service(Trigger, "~/reload_wiring", lambda _, answer: answer)
        self._node.create_service(Trigger, "~/estop", self._stop)
        diagnostics = self._node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        said = DiagnosticArray(status=[DiagnosticStatus(name=f"{self.name}: policy")])
        channels = self._node.create_publisher(JointState, "~/channels", 10)
        tick = JointState(name=["tilt"], position=[0.5])
        if not hangs:
            self._node.create_timer(
                0.2, lambda: (diagnostics.publish(said), channels.publish(tick))
            )
        self._executor = SingleThreadedExecutor(context=context)
        self._executor.add_node(self._node)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._spin)
        self._thread.start()

    def _stop(self, _: object, answer: Trigger.Response) -> Trigger.Response:
        self.stops += 1
        answer.success = True
        return answer

    def _spin(self) -> None:
        while not self._ended.is_set():
            self._executor.spin_once(timeout_sec=0.01)

    def close(self) -> None:
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join()
            self._executor.shutdown()
            self._node.destroy_node()


@pytest.fixture
def policy() -> Iterator[Callable[..., Policy]]:
    """Starts policy nodes, which end with the test."""
    context, started = Context(), []
    rclpy.init(args=[], context=context)

    def start(space: str, *, hangs: bool = False) -> Policy:
        started.append(Policy(context, space, hangs=hangs))
        return started[-1]

    yield start
    for one in started:
        one.close()
    rclpy.shutdown(context=context)


async def shows(visitor: Visitor, name: str) -> None:
    await visitor.until(lambda: visitor.newest.get("robot", {}).get("name") == name, name)


def test_a_policy_node_is_stopped_before_its_parameters_are_known(policy):
    robot = policy("/a", hangs=True)

    async def run() -> None:
        async with run_live_page_server(0) as (server, _), visiting(server.address) as visitor:
            await shows(visitor, "/a")
            await visitor.done("estop")
            refused = await visitor.ask("restore")
            assert not refused["ok"] and "/a/policy has not answered" in refused["text"]

    asyncio.run(run())
    assert robot.stops == 1


def test_after_a_change_of_robots_the_new_one_is_stopped_and_not_the_one_before(policy):
    first = policy("/b")

    async def run() -> Policy:
        async with run_live_page_server(0) as (server, _), visiting(server.address) as visitor:
            await shows(visitor, "/b")
            await visitor.until(lambda: server.live.handlers.found.policy, "its parameters")
            second = policy("/a", hangs=True)
            others = lambda: visitor.newest["robot"]["others"] == ["/a/policy"]  # noqa: E731
            await visitor.until(others, "both are there")
            await visitor.done("estop")
            assert (first.stops, second.stops) == (1, 0), "the first one is still the one shown"
            first.close()
            await shows(visitor, "/a")
            await visitor.done("estop")
            return second

    second = asyncio.run(run())
    assert (first.stops, second.stops) == (1, 1)


def test_of_a_robot_that_has_gone_nothing_stays_on_the_page(policy):
    robot = policy("/a")

    def parts(visitor: Visitor) -> list[object]:
        return visitor.newest.get("diagnostics", {}).get("parts", [])

    async def run() -> None:
        async with run_live_page_server(0) as (server, _), visiting(server.address) as visitor:
            await visitor.state("running")
            await visitor.until(lambda: visitor.wires() and parts(visitor), "the robot")
            await visitor.until(lambda: "tick" in visitor.newest, "a tick")
            robot.close()
            await visitor.state("waiting")
            await visitor.until(lambda: not visitor.wires(), "an empty wiring panel")
            await visitor.until(lambda: not parts(visitor), "no diagnostics")
            assert visitor.newest["channels"]["ids"] == []
            async with visiting(server.address) as late:
                await late.state("waiting")
                await late.until(lambda: "marks" in late.newest, "all that is known")
                assert late.wires() == {} and parts(late) == []
                assert late.newest["channels"]["ids"] == [], "as a page that connects again needs"

    asyncio.run(run())
