"""The page's own scripts in a real browser, beside a server that says what a test wants."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("tornado")
pytest.importorskip("msgspec")
pytest.importorskip("playwright")
import msgspec
from view.browser import CHROMIUM, Browser, browsing

from an_control.system.share import find_share_path
from an_control.view import schema
from an_control.view.drawing import read_skeleton
from an_control.view.server import PAGE

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="needs Chromium (Debian: chromium)")
ADDRESS = "http://robot.test/token/"
LIMIT_S = 30.0


class Server:
    """Gives the page's files, says updates, and hears commands."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.tries = 0
        self.here = True
        """Whether it takes connections."""
        self._socket: Any = None

    def route(self, page: Any) -> None:
        """Be the server of this page of a browser."""
        page.route(f"{ADDRESS}**", self._give)
        page.route_web_socket(f"{ADDRESS.replace('http', 'ws')}live", self._connect)

    def _give(self, route: Any) -> None:
        name = urlsplit(route.request.url).path.rpartition("/")[2] or "index.html"
        route.fulfill(path=PAGE / name)

    def _connect(self, socket: Any) -> None:
        self.tries += 1
        if not self.here:
            socket.close()
            return
        self._socket = socket
        socket.on_message(lambda text: self.heard.append(json.loads(text)))

    def say(self, update: schema.Update) -> None:
        self._socket.send(schema.encode_update(update).decode())

    def end(self) -> None:
        self.here = False
        self._socket.close()


def until(page: Browser, ready: Callable[[], object], what: str) -> None:
    end_s = time.monotonic() + LIMIT_S
    while not ready():
        assert time.monotonic() < end_s, f"{what}: {page.errors}"
        page.page.wait_for_timeout(20)


def panel(*slots: str, settings: dict[str, float] | None = None) -> schema.WiringUpdate:
    wires = [schema.SlotWiring(one, one, one) for one in slots]
    return schema.WiringUpdate(list(slots), wires, "", "", 0, settings or {})


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def page(server: Server) -> Iterator[Browser]:
    """The page, with a wiring panel of two slots."""
    with browsing(ADDRESS, server.route) as opened:
        until(opened, lambda: server.tries, "the connection")
        server.say(schema.RobotUpdate("running", "", "/r"))
        server.say(panel("a", "b"))
        until(opened, lambda: set(opened.wires()) == {"a", "b"}, "the wiring panel")
        yield opened


def test_escape_stops_the_robot_also_after_the_slots_have_changed_during_a_drag(page, server):
    page.page.mouse.move(*page._middle('.slot[data-slot="a"] .dot'))
    page.page.mouse.down()
    server.say(panel("c", "d", "e"))
    until(page, lambda: set(page.wires()) == {"c", "d", "e"}, "the new wiring panel")
    page.page.keyboard.press("Escape")
    until(page, lambda: server.heard, "the e-stop")
    assert [one["do"] for one in server.heard] == ["estop"]
    page.page.mouse.up()
    page.drag("c", "d")
    until(page, lambda: len(server.heard) > 1, "the next drag")
    assert server.heard[1]["do"] == "connect"
    assert page.errors == []


def test_a_setting_that_is_refused_does_not_stay_on_its_slider(page, server):
    settings = {"jitter": 0.05, "missing": 0.1, "shuffle": 0.0}
    server.say(panel("a", "b", settings=settings))
    until(page, lambda: page.page.text_content("#jitter-value") == "0.05", "the setting")
    page.page.fill("#jitter", "0.3")
    page.page.check("#reshuffle")
    until(page, lambda: len(server.heard) == 2, "both commands")
    assert page.page.text_content("#jitter-value") == "0.30"
    for command in server.heard:
        server.say(schema.ReplyUpdate(command["id"], False, "no"))
    until(page, lambda: page.page.text_content("#jitter-value") == "0.05", "as it was")
    until(page, lambda: not page.page.is_checked("#reshuffle"), "as it was")
    assert page.page.input_value("#jitter") == "0.05"


def test_a_setting_beyond_its_slider_is_shown_as_it_is(page, server):
    server.say(panel("a", "b", settings={"jitter": 2.0, "missing": 0.33}))
    until(page, lambda: page.page.text_content("#jitter-value") == "2.00", "the noise")
    assert page.page.text_content("#missing-value") == "33 %"


def test_the_page_clears_when_the_robot_has_gone(page, server):
    texts = lambda: [page.page.text_content(f"#{one}") for one in ("step", "present")]  # noqa: E731
    server.say(schema.DrawingUpdate("bars", []))
    server.say(schema.ChannelsUpdate(["a", "b"]))
    server.say(
        schema.DiagnosticsUpdate([schema.DiagnosticsPart("e-stop", 2, "e-stop by service", {})])
    )
    server.say(schema.MatrixUpdate(1, 2, [50, -50]))
    server.say(schema.TickUpdate([1.0, 0.5], [1.0, 0.5], [], [], {"step": 7.0}, 2))
    page.page.wait_for_selector("#estop.latched")
    until(page, lambda: texts() == ["7", "2 of 2"], "the figures")
    inked = "id => document.getElementById(id).toDataURL()"
    drawn = page.page.evaluate(inked, "robot")
    server.say(schema.DiagnosticsUpdate([]))
    server.say(schema.ChannelsUpdate([]))
    server.say(panel())
    page.page.wait_for_selector("#estop:not(.latched)")
    until(page, lambda: texts() == ["\u2013", "\u2013"], "no figures")
    assert page.page.text_content("#diagnostics") == "" and page.wires() == {}
    assert page.page.evaluate(inked, "robot") != drawn
    assert page.errors == []


PLACE = "async (given) => (await import('./skeleton.js')).place(...given)"


def ends(page: Browser, robot: str, joints: dict[str, float], pose: list[float]) -> dict[str, Any]:
    """Where the page draws the end of each link of a shipped robot."""
    skeleton = read_skeleton(find_share_path(f"config/{robot}_drawing.yaml"))
    found = page.page.evaluate(PLACE, [msgspec.to_builtins(skeleton), joints, pose])
    return {
        link.name: pytest.approx(one["to"], abs=1e-9)
        for link, one in zip(skeleton.links, found, strict=True)
    }


def test_a_skeleton_stands_where_its_joints_and_its_pose_put_it(page):
    half = math.sqrt(0.5)
    cart = ends(page, "cartpole", {"cart": 1.5, "pole": math.pi / 2}, [9.0, 9, 9, 1, 0, 0, 0])
    assert cart["left"] == [-2.4, 0, 0.7] and cart["cart"] == [1.7, 0, 0.7]
    assert cart["pole"] == [2.1, 0, 0.7]
    ant = ends(page, "ant", {}, [])
    assert ant["lower_1"] == [0.8, 0.8, 0.75] and ant["lower_3"] == [-0.8, -0.8, 0.75]
    # The hip turns the upper link from (1, 1) to (-1, 1); the ankle then bends the foot down.
    ant = ends(page, "ant", {"hip_1": math.pi / 2, "ankle_1": math.pi / 2}, [])
    assert ant["upper_1"] == [0, 0.4, 0.75]
    assert ant["lower_1"] == [0, 0.4, 0.75 - 0.4 * math.sqrt(2)]
    # The robot has turned by 90 degrees to the left and stands at (2, 3), 0.1 m above its start.
    ant = ends(page, "ant", {}, [2.0, 3.0, 0.1, 0.0, 0.0, half, half])
    assert ant["torso"] == [2, 3, 0.85] and ant["lower_1"] == [1.2, 3.8, 0.85]


def test_a_skeleton_is_drawn_and_moves_with_its_joints(page, server):
    skeleton = read_skeleton(find_share_path("config/cartpole_drawing.yaml"))
    server.say(schema.ChannelsUpdate(["a"]))
    server.say(schema.DrawingUpdate("skeleton", ["cart", "pole"], skeleton))
    drawn = set()
    for joints in ([0.0, 0.0], [1.0, 0.0], [1.0, 2.0]):
        server.say(schema.TickUpdate([1.0], [1.0], joints, [], {"step": len(drawn)}, 1))
        step = str(len(drawn))
        until(page, lambda step=step: page.page.text_content("#step") == step, "the tick")
        drawn.add(page.page.evaluate("document.getElementById('robot').toDataURL()"))
    assert len(drawn) == 3
    assert page.errors == []


def test_a_drawing_that_is_wrong_is_named_on_the_page(page, server):
    server.say(schema.DrawingUpdate("dials", ["left"], problem="arm_drawing.yaml: links: 3"))
    until(
        page,
        lambda: page.page.text_content("#robot-hint") == "arm_drawing.yaml: links: 3",
        "the problem",
    )
    server.say(schema.DrawingUpdate("dials", ["left"]))
    until(page, lambda: page.page.text_content("#robot-hint") == "", "no problem")


def test_a_page_that_cannot_connect_again_asks_to_open_the_new_address(page, server):
    server.end()
    until(page, lambda: "is gone" in page.page.text_content("#state"), "it is gone")
    assert "new address" not in page.page.text_content("#state")
    until(page, lambda: "open the new address" in page.page.text_content("#state"), "what to do")
    assert server.tries > 2
    server.here, tries = True, server.tries
    until(page, lambda: server.tries > tries, "it still tries")
    server.say(schema.RobotUpdate("running", "", "/r"))
    until(page, lambda: page.page.text_content("#state") == "running", "it is back")
