"""The doctor's table on the live page, and its two buttons, in a real browser beside a node."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("tornado")
pytest.importorskip("msgspec")
pytest.importorskip("playwright")
import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_srvs.srv import Trigger
from view.browser import CHROMIUM, Browser, browsing

from an_control.view.main import run_live_page_server

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="needs Chromium (Debian: chromium)")
LIMIT_S = 60.0
FILE = "/robots/walker.yaml"
ROW = ["hip.position", "has the wrong sign", "certain (654 nats)", "scale: 1", f"{FILE}, line 7"]


class PolicyWithDoctor:
    """A policy node whose doctor has found a mistake, and corrects it on request."""

    def __init__(self, context: Context) -> None:
        self.found, self.corrected = False, False
        self._node = Node("policy", namespace="/walker", context=context)
        for key, value in (("source", "imu"), ("field", "vector.x")):
            self._node.declare_parameter(f"channels.tilt.{key}", value)
        for name, act in (
            ("reload_wiring", lambda: ""),
            ("apply_corrections", self._apply),
            ("undo_corrections", self._undo),
        ):
            self._node.create_service(Trigger, f"~/{name}", self._answer_by(act))
        self._diagnostics = self._node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._channels = self._node.create_publisher(JointState, "~/channels", 10)
        self._node.create_timer(0.1, self._publish)
        self._executor = SingleThreadedExecutor(context=context)
        self._executor.add_node(self._node)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._spin)
        self._thread.start()

    @staticmethod
    def _answer_by(act: Callable[[], str]) -> Callable[[object, Any], Any]:
        def answer(_: object, response: Trigger.Response) -> Trigger.Response:
            response.message = act()
            response.success = not response.message
            return response

        return answer

    def _apply(self) -> str:
        if self.corrected:
            return "the doctor has announced nothing that can be corrected while the robot runs"
        self.corrected = True
        return ""

    def _undo(self) -> str:
        self.corrected = False
        return ""

    def _publish(self) -> None:
        values = {"file": FILE, "findings": str(int(self.found))}
        if self.found:
            keys = ("what", "is wrong", "how sure", "would become", "change")
            values |= {f"1 {key}": text for key, text in zip(keys, ROW, strict=True)}
            values["1 corrected"] = "yes" if self.corrected else "no"
        pairs = [KeyValue(key=key, value=value) for key, value in values.items()]
        level = DiagnosticStatus.WARN if self.found else DiagnosticStatus.OK
        said = [
            DiagnosticStatus(name="/walker/policy: policy"),
            DiagnosticStatus(name="/walker/policy: doctor", level=level, values=pairs),
        ]
        self._diagnostics.publish(DiagnosticArray(status=said))
        self._channels.publish(JointState(name=["tilt"], position=[0.5]))

    def _spin(self) -> None:
        while not self._ended.is_set():
            self._executor.spin_once(timeout_sec=0.01)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._executor.shutdown()
        self._node.destroy_node()


@pytest.fixture
def policy() -> Iterator[PolicyWithDoctor]:
    context = Context()
    rclpy.init(args=[], context=context)
    node = PolicyWithDoctor(context)
    yield node
    node.close()
    rclpy.shutdown(context=context)


@pytest.fixture
def page(policy: PolicyWithDoctor) -> Iterator[Browser]:
    """A browser on the page of that node; the page's server runs on a thread of its own."""
    addresses: list[str] = []
    serving, loop, done = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        async with run_live_page_server(0, robot="/walker") as (server, _):
            addresses.append(server.address)
            serving.set()
            await done.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert serving.wait(LIMIT_S), "the page's server"
        with browsing(addresses[0]) as opened:
            opened.ready(1)
            yield opened
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join()
        loop.close()


def cells(page: Browser) -> list[str]:
    return page.page.eval_on_selector_all(
        "#doctor-findings tbody tr > *", "all => all.map(one => one.textContent)"
    )


def test_the_table_appears_with_a_finding_and_its_buttons_correct_and_undo(page, policy):
    assert page.page.is_hidden("#doctor-card")
    policy.found = True
    page.page.wait_for_selector("#doctor-card", state="visible")
    assert cells(page) == [*ROW, "no"]
    assert page.page.text_content("#doctor-file") == FILE
    assert page.page.is_disabled("#uncorrect")
    page.page.click("#correct")
    page.page.wait_for_selector("#correct:disabled")
    assert policy.corrected and cells(page) == [*ROW, "yes"]
    assert "wiring corrected" in page.reply()
    page.page.click("#uncorrect")
    page.page.wait_for_selector("#uncorrect:disabled")
    assert not policy.corrected and "correction undone" in page.reply()
    policy.found = False
    page.page.wait_for_selector("#doctor-card", state="hidden")
    assert page.errors == []


def test_a_refused_correction_says_why(page, policy):
    policy.found = policy.corrected = True
    page.page.wait_for_selector("#doctor-card", state="visible")
    page.page.evaluate(  # in one step: the next message disables the button again
        "const button = document.getElementById('correct'); button.disabled = false; button.click()"
    )
    page.page.wait_for_selector("#reply.bad")
    assert "nothing that can be corrected" in page.reply()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nobody_is_shut_out_of_the_doctors_table(page, policy, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    policy.found = True
    page.page.wait_for_selector("#doctor-card", state="visible")
    page.page.emulate_media(color_scheme=scheme)
    page.page.wait_for_timeout(300)
    found = axe.Axe().run(page.page)
    assert found.violations_count == 0, found.generate_report()
