"""`an-control replay --page`: a recording on the live page, where a visitor moves through it."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("tornado")
pytest.importorskip("msgspec")
from rclpy.serialization import deserialize_message
from stand import IDS, Stand
from std_srvs.srv import Trigger
from view.browser import CHROMIUM, Browser, browsing

from an_control.record.reader import Bag
from an_control.record.replay import SessionReplay
from an_control.record.replayed_session import ReplaySummary
from an_control.view import recorded, schema
from an_control.view.clients import BrowserClient
from an_control.view.recorded import RecordedFrames, RecordedRobot, Track

LIMIT_S = 60.0


@pytest.fixture
def walked(stand: Stand, tmp_path: Path) -> Path:
    """A recording of three seconds, with an e-stop in the second one."""
    stand.start(record=str(tmp_path / "bags"))
    for step in range(100):
        stand.step(step)
    stand.node._set_estop("by service")
    for step in range(100, 150):
        before = len(stand.commands)  # the watchdog sends the safe command meanwhile, too
        stand.send(step)
        stand.until(lambda: len(stand.commands) > before, "the safe command")  # noqa: B023
    stand.node._on_reset_estop(None, Trigger.Response())
    for step in range(150, 300):
        before = len(stand.commands)
        stand.send(step)
        stand.until(lambda: len(stand.commands) > before, "a command")  # noqa: B023
    stand.node.trigger_shutdown()
    (found,) = (tmp_path / "bags").iterdir()
    return found


class Visitor:
    """A browser that remembers the newest update of each kind."""

    def __init__(self, robot: RecordedRobot) -> None:
        self._client = BrowserClient(self._hear)
        self._robot = robot
        self.newest: dict = {}
        robot.add_client(self._client)

    async def _hear(self, message: bytes, binary: bool) -> None:
        update = json.loads(message)
        self.newest[update["is"]] = update

    def hear(self) -> None:
        """Take everything that waits for this browser."""
        client = self._client
        while client._waiting:
            name = next(iter(client._waiting))
            asyncio.run(self._hear(client._waiting.pop(name), False))

    def ask(self, command: schema.Command) -> schema.ReplyUpdate:
        reply = asyncio.run(self._robot.execute_browser_command(command))
        self.hear()
        return reply


def frames_of(bag: Path, *, computed: bool = True) -> RecordedFrames:
    with SessionReplay(Bag(bag), deserialize_message) as replay:
        frames = RecordedFrames(replay, lambda command: None)
        if computed:
            frames.replay_recording(threading.Event())
        return frames


def test_a_visitor_sees_any_time_of_the_recording_and_what_happened_up_to_it(walked: Path) -> None:
    frames = frames_of(walked)
    robot = RecordedRobot(frames)
    visitor = Visitor(robot)
    assert frames.length_s > 0.1
    estop_s = next(at_s for at_s, text in frames.events if text == "e-stop by service")
    assert visitor.ask(schema.SeekCommand(1, frames.length_s)).ok
    assert visitor.newest["robot"]["recorded"] and visitor.newest["robot"]["text"] == "acting"
    assert visitor.newest["channels"]["ids"] == list(IDS)
    tick = visitor.newest["tick"]
    assert len(tick["values"]) == len(tick["attention"]) == 4 and max(tick["attention"]) == 1.0
    assert len(tick["joints"]) == 2
    assert [one["slot"] for one in visitor.newest["wiring"]["wires"]] == list(IDS)
    assert visitor.newest["matrix"]["columns"] == 4
    said = {one["name"]: one["text"] for one in visitor.newest["diagnostics"]["parts"]}
    assert said["replay"].startswith("every command so far is equal") and said["e-stop"] == "clear"
    last, rows = tick["values"], len(visitor.newest["score"]["rows"])
    assert visitor.ask(schema.SeekCommand(2, 0.0)).ok
    assert visitor.newest["tick"]["values"] != last
    assert len(visitor.newest["score"]["rows"]) <= rows
    reply = visitor.ask(schema.JumpCommand(3, forward=True))
    while reply.ok and "e-stop by service" not in reply.text:
        reply = visitor.ask(schema.JumpCommand(3, forward=True))
    assert reply.ok and robot.at_s == estop_s
    assert visitor.newest["recording"]["event"] == "e-stop by service"
    assert visitor.newest["marks"]["marks"][-1] == [estop_s, "e-stop by service"]
    assert visitor.ask(schema.JumpCommand(4, forward=False)).ok and robot.at_s < estop_s


def test_every_event_can_be_reached_in_its_order_also_after_the_last_command() -> None:
    replay = SimpleNamespace(summary=ReplaySummary(begin_ns=10**9), node="/policy")
    frames = RecordedFrames(replay, lambda command: None)
    events = [("activate", 0.0), ("reset", 2.0), ("reset", 1.0), ("deactivate", 1.5)]
    for kind, at_s in events:  # the clock is set back once
        replay.on_event({"event": kind}, 10**9 + int(at_s * 1e9), False)
    assert frames.events == [(0.0, "activate"), *((2.0, kind) for kind, _ in events[1:])]
    assert frames.length_s == 2.0
    robot = RecordedRobot(frames)
    visitor = Visitor(robot)
    assert visitor.ask(schema.JumpCommand(1, forward=True)).ok
    assert visitor.newest["recording"]["event"] == "deactivate"
    assert not visitor.ask(schema.JumpCommand(2, forward=True)).ok


def test_a_recording_plays_at_the_asked_speed_and_stops_at_its_end(walked: Path) -> None:
    frames = frames_of(walked)
    robot = RecordedRobot(frames)
    robot.advance_playback(0.02)
    assert robot.playing and robot.at_s == pytest.approx(0.02)
    visitor = Visitor(robot)
    assert visitor.ask(schema.PlayCommand(1, on=True, speed=2.0)).ok
    robot.advance_playback(0.02)
    assert robot.at_s == pytest.approx(0.06)
    visitor.ask(schema.PlayCommand(2, on=False, speed=2.0))
    robot.advance_playback(1.0)
    assert robot.at_s == pytest.approx(0.06)
    visitor.ask(schema.PlayCommand(3, on=True, speed=100.0))
    robot.advance_playback(60.0)
    assert robot.at_s == frames.length_s and not robot.playing
    visitor.ask(schema.PlayCommand(4, on=True, speed=1.0))
    assert robot.at_s == 0.0 and robot.playing  # from the beginning again


def test_a_page_that_is_ahead_of_the_replay_waits_for_it(walked: Path) -> None:
    robot = RecordedRobot(frames_of(walked, computed=False))
    visitor = Visitor(robot)
    robot.advance_playback(5.0)
    visitor.hear()
    assert robot.playing and robot.at_s == 0.0
    assert visitor.newest["robot"]["state"] == "waiting"
    assert not visitor.newest["recording"]["computed"]


@pytest.mark.parametrize(
    "command", [schema.EStopCommand(1), schema.RestoreCommand(1), schema.CutCommand(1, "tilt.x")]
)
def test_nothing_in_a_recording_can_be_changed(walked: Path, command: schema.Command) -> None:
    reply = Visitor(RecordedRobot(frames_of(walked))).ask(command)
    assert not reply.ok and "recording" in reply.text


def test_a_long_recording_is_kept_coarser_within_its_bound(
    walked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "MAX_BYTES", 5000)
    frames = frames_of(walked, computed=False)
    step_s = frames._step_s
    for number in range(200):
        frames.add_message("tick", number / 20.0, bytes([number]) * 100)
        assert sum(frames._bytes.values()) <= 5000
    assert frames._step_s > step_s
    tick = frames.tracks["tick"]
    assert (
        tick.find_message_at(0.0) == bytes([0]) * 100
        and tick.find_message_at(10.0) == bytes([199]) * 100
    )


def test_a_track_keeps_what_changes_and_finds_the_newest() -> None:
    track = Track()
    assert track.find_message_at(1.0) is None
    messages = ((0.0, b"a"), (1.0, b"a"), (2.0, b"bc"))
    assert [track.append_if_changed_and_count_bytes(at_s, text) for at_s, text in messages] == [
        1,
        0,
        2,
    ]
    assert [track.find_message_at(at_s) for at_s in (0.0, 1.5, 2.0, 9.0)] == [
        b"a",
        b"a",
        b"bc",
        b"bc",
    ]
    assert (
        track.drop_alternate_messages_and_count_bytes() == 1 and track.find_message_at(9.0) == b"a"
    )


def says(browser: Browser, selector: str, ready: Callable[[str], object]) -> None:
    """Wait until an element of the page has such a text."""
    until_s = time.monotonic() + LIMIT_S
    while not ready(text := str(browser.page.text_content(selector))):
        assert time.monotonic() < until_s, f"{selector}: {text} {browser.reply()} {browser.errors}"
        browser.page.wait_for_timeout(20)


@pytest.mark.skipif(not CHROMIUM, reason="needs Chromium (Debian: chromium)")
def test_a_recording_is_played_and_searched_in_a_real_browser(walked: Path, tmp_path: Path) -> None:
    pytest.importorskip("playwright")
    log, result = tmp_path / "log", tmp_path / "r.json"
    words = ["replay", str(walked), "--page", "--page-port", "0", "--json", str(result)]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "an_control", *words], stdout=out, stderr=subprocess.STDOUT
        )
    try:
        until_s = time.monotonic() + LIMIT_S
        while not (found := re.search(r"http://\S+/", log.read_text())):
            assert process.poll() is None and time.monotonic() < until_s, log.read_text()
            time.sleep(0.05)
        with browsing(found[0]) as browser:
            page = browser.page
            page.wait_for_selector("#player:not([hidden])")
            says(browser, "#at", lambda text: "replayed" not in text)
            assert not page.is_visible("#estop") and page.is_visible("#chart-difference")
            says(browser, "#play", lambda text: text == "Play")  # it has come to its end
            length = float(page.get_attribute("#place", "max"))
            page.fill("#place", "0")
            says(browser, "#at", lambda text: text.startswith("0.0 of"))
            while page.text_content("#event") != "e-stop by service":
                before = page.text_content("#at")
                page.click("#forward")
                says(browser, "#at", lambda text: text != before)  # noqa: B023
            assert 0.0 < float(page.input_value("#place")) < length
            assert "an_control" in page.title() and "recorded" in page.text_content("#state")
            page.keyboard.press("Escape")  # nothing is to be stopped
            page.select_option("#speed", "20")
            page.click("#play")
            says(browser, "#reply", lambda text: text.startswith("playing"))
            says(browser, "#play", lambda text: text == "Play")
            browser.ready(4)
            assert browser.errors == []
            assert browser.hosts == {"127.0.0.1"}
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 0
    finally:
        process.kill()
        process.wait()
    assert "every command is equal to the recorded one" in log.read_text()
    assert json.loads(result.read_text())["different"] == 0
