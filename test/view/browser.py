"""A real browser on the page: Debian's Chromium, without a window, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), "")
ARGUMENTS = ["--no-sandbox", "--disable-gpu"]
LIMIT_MS = 180_000.0


class Browser:
    """One page of a browser, with all that it asked for and all that went wrong in it."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.requests: list[str] = []
        self.errors: list[str] = []
        page.set_default_timeout(LIMIT_MS)
        page.on("request", lambda one: self.requests.append(one.url))
        page.on("websocket", lambda one: self.requests.append(one.url))
        page.on("pageerror", lambda one: self.errors.append(str(one)))
        page.on("console", self._note)

    def _note(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    @contextmanager
    def another(self, address: str) -> Iterator[Browser]:
        """A second visitor in the same browser."""
        second = Browser(self.page.context.browser.new_page())
        second.page.goto(address)
        yield second
        second.page.close()

    @property
    def hosts(self) -> set[str | None]:
        """Where it sent requests to."""
        return {urlsplit(url).hostname for url in self.requests if not url.startswith("data:")}

    def ready(self, slots: int) -> None:
        """Wait until a robot with so many slots runs."""
        self.page.wait_for_selector("#lamp[data-state=running]", state="attached")
        self.page.wait_for_function(f"document.querySelectorAll('#wiring .slot').length == {slots}")

    def wires(self) -> dict[str, str]:
        """By slot what the page says that it carries."""
        labels = self.page.eval_on_selector_all(
            "#wiring .slot", "all => all.map(one => [one.dataset.slot, one.ariaLabel])"
        )
        return {slot: label.rpartition(": carries ")[2] for slot, label in labels}

    def drag(self, signal: str, slot: str) -> None:
        """Take the end of a signal with the mouse and drop it on a slot."""
        mouse = self.page.mouse
        mouse.move(*self._middle(f'.signal[data-signal="{signal}"] .dot'))
        mouse.down()
        x, y = self._middle(f'.slot[data-slot="{slot}"] .dot')
        mouse.move(x, y, steps=3)
        mouse.up()

    def _middle(self, selector: str) -> tuple[float, float]:
        box = self.page.locator(selector).bounding_box()
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def reply(self) -> str:
        """What the page said last of a command."""
        return str(self.page.text_content("#reply"))


@contextmanager
def browsing(
    address: str, prepare: Callable[[Any], None] = lambda page: None, **options: Any
) -> Iterator[Browser]:
    """A browser with the page open, after `prepare`; options are those of a Playwright page."""
    from playwright.sync_api import sync_playwright

    options = {"viewport": {"width": 1440, "height": 1000}} | options
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        browser = Browser(chromium.new_page(**options))
        prepare(browser.page)
        browser.page.goto(address)
        yield browser
        chromium.close()
