"""The page in a real browser: by mouse and by keyboard, for everybody, and only on this machine."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("tornado")
pytest.importorskip("msgspec")
pytest.importorskip("playwright")
from view.browser import CHROMIUM, Browser, browsing

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="needs Chromium (Debian: chromium)")
SLOTS = ["cart.position", "cart.velocity", "pole.cos", "pole.sin", "pole.velocity"]
LIMIT_S = 30.0


def until(page: Browser, ready: Callable[[], object], what: str) -> None:
    end_s = time.monotonic() + LIMIT_S
    while not ready():
        assert time.monotonic() < end_s, f"{what}: {page.reply()} {page.errors} {page.wires()}"
        page.page.wait_for_timeout(20)


@pytest.fixture(scope="module")
def page(cartpole):
    with browsing(cartpole.address()) as opened:
        opened.ready(5)
        yield opened


@pytest.fixture(autouse=True)
def restored(page):
    page.page.click("#restore")
    until(page, lambda: page.wires() == {one: one for one in SLOTS}, "the wiring of the file")


def test_a_connection_is_dragged_to_another_slot_and_undone(page):
    page.drag("pole.cos", "pole.sin")
    swapped = {one: one for one in SLOTS} | {"pole.sin": "pole.cos", "pole.cos": "pole.sin"}
    until(page, lambda: page.wires() == swapped, "swapped")
    until(page, lambda: "pole.cos to pole.sin, announced" in page.reply(), "the reply")
    label = page.page.get_attribute('.slot[data-slot="pole.sin"]', "aria-label")
    assert label == "Input slot pole.sin, read as pole.cos: carries pole.cos"
    page.page.click("#undo")
    until(page, lambda: page.wires() == {one: one for one in SLOTS}, "undone")


def test_unannounced_and_with_the_tools(page):
    page.page.check("input[name=announced][value=no]")
    page.drag("cart.position", "cart.velocity")
    until(page, lambda: "unannounced" in page.reply(), "the reply")
    for tool, slot, carried in (("cut", "pole.sin", "nothing"), ("noise", "pole.cos", "noise")):
        page.page.select_option("#tool", tool)
        page.page.locator(f'.slot[data-slot="{slot}"] .handle').click()
        until(page, lambda p=slot, c=carried: page.wires()[p] == c, tool)
    page.page.select_option("#tool", "copy")
    page.drag("pole.velocity", "pole.sin")
    until(page, lambda: page.wires()["pole.sin"] == "pole.velocity", "copied")
    assert page.wires()["pole.velocity"] == "pole.velocity"
    page.page.select_option("#tool", "connect")
    page.page.check("input[name=announced][value=yes]")


def test_everything_can_be_done_by_keyboard(page):
    key = page.page.keyboard.press
    page.page.focus('.slot[data-slot="cart.position"]')
    for one in ("Enter", "ArrowDown", "ArrowDown", "Enter"):
        key(one)
    until(page, lambda: page.wires()["pole.cos"] == "cart.position", "moved by keys")
    focused = page.page.evaluate("document.activeElement.dataset.slot")
    assert focused == "pole.cos"
    key("Delete")
    until(page, lambda: page.wires()["pole.cos"] == "nothing", "cut by a key")
    key("n")
    until(page, lambda: page.wires()["pole.cos"] == "noise", "noise by a key")
    reached = set()
    for _ in range(40):
        key("Tab")
        reached.add(page.page.evaluate("document.activeElement.id"))
    assert reached >= {"restart", "estop", "shuffle", "restore", "undo", "tool", "jitter"}
    key("Escape")
    page.page.wait_for_selector("#estop.latched")
    page.page.click("#reset-estop")
    page.page.wait_for_selector("#estop:not(.latched)")


def test_what_cannot_be_says_why_on_the_page(page):
    page.drag("pole.cos", "pole.cos")
    until(page, lambda: "carries pole.cos already" in page.reply(), "the reason")
    assert page.page.eval_on_selector("#reply", "one => one.classList.contains('bad')")


def test_nothing_is_asked_of_any_other_machine_and_nothing_goes_wrong(page):
    assert page.hosts == {"127.0.0.1"}
    assert page.errors == []


def test_the_layout_does_not_jump_while_the_robot_runs(page):
    boxes = "[...document.querySelectorAll('section')].map(one => [one.offsetTop, one.offsetLeft])"
    before = page.page.evaluate(boxes)
    for _ in range(5):
        page.page.wait_for_timeout(200)
        assert page.page.evaluate(boxes) == before


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nobody_is_shut_out(page, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page.page.emulate_media(color_scheme=scheme)
    page.page.wait_for_timeout(300)
    found = axe.Axe().run(page.page)
    assert found.violations_count == 0, found.generate_report()


def test_a_page_that_is_closed_in_mid_drag_leaves_everything_as_it_was(page, cartpole):
    with page.another(cartpole.address()) as other:
        other.ready(5)
        other.page.mouse.move(*other._middle('.signal[data-signal="pole.cos"] .dot'))
        other.page.mouse.down()
        other.page.mouse.move(*other._middle('.slot[data-slot="pole.sin"] .dot'))
    page.page.wait_for_timeout(300)
    assert page.wires() == {one: one for one in SLOTS}


def test_a_server_that_ends_is_said_to_be_gone(page, cartpole):
    """The last test of this module."""
    viewers = cartpole.children("an_control view")
    assert len(viewers) == 1
    os.kill(viewers[0], signal.SIGTERM)
    page.page.wait_for_selector("#state:has-text('server is gone')")
    page.page.wait_for_selector("#lamp[data-state=silent]", state="attached")
