"""Make pictures and figures of the live page from real runs.

    python -m experiments live_page pictures [DIR [ROBOT ...]]  pictures of five robots, and the
                                                                Ant moving
    python -m experiments live_page measure [MINUTES]           what the page costs the Ant: MINUTES
                                                                each with drags, without drags,
                                                                rewired without a page, and
                                                                without either

A drag moves a sensor signal to another channel on the page. Pictures need Chromium and Playwright.
Give each command a ROS_DOMAIN_ID of its own.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test"))
os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
os.environ.setdefault("ROS_DOMAIN_ID", "0")
SETTLE_S = 12.0
"""Seconds that a robot runs before its picture is taken, so that its charts show something."""
FRAMES, FRAME_S = 60, 0.16
CONFIG = ROOT / "config/mobile_base"
ROBOTS: dict[str, tuple[object, ...]] = {
    "ant": ("ant", "--realtime"),
    "cartpole": ("cartpole",),
    "car_racing": ("car_racing",),
    "pong": ("pong",),
    "own_robot": (
        "--simulation", f"{CONFIG}_sim.yaml", "--wiring", f"{CONFIG}.yaml",
        "--model", ROOT / "models/mobile_base.safetensors",
    ),
}  # fmt: skip
"""Arguments of `an-control sim` for each robot; the final robot consists of two YAML files."""


@contextmanager
def run_simulation(*arguments: object) -> Iterator[Any]:
    """Run `an-control sim` with these arguments in a `with` block; yield the running simulation."""
    from view.conftest import simulation

    with tempfile.TemporaryDirectory() as folder, simulation(Path(folder), *arguments) as one:
        yield one


def take_pictures(folder: Path, robots: list[str]) -> None:
    """Take a screenshot of each robot's web page; for the Ant, also a dark one and an animation."""
    from view.browser import browsing

    folder.mkdir(parents=True, exist_ok=True)
    for name in robots or ROBOTS:
        simulation = run_simulation(*ROBOTS[name], "--episodes", "100000")
        with simulation as robot, browsing(robot.address()) as page:
            page.page.wait_for_selector("#lamp[data-state=running]", state="attached")
            page.page.wait_for_timeout(1e3 * SETTLE_S)
            if name == "ant":
                _take_ant_pictures(page, folder)
            else:
                page.page.screenshot(path=folder / f"{name}.png")


def _take_ant_pictures(page: Any, folder: Path) -> None:
    """Take a light, a dark and an animated picture of the Ant's page, with moved signals."""
    page.drag("hip_1.position", "ankle_3.velocity")
    page.page.check("input[name=announced][value=no]")
    page.drag("roll", "hip_2.velocity")
    page.page.wait_for_timeout(2e3)
    page.page.screenshot(path=folder / "ant.png")
    page.page.emulate_media(color_scheme="dark")
    page.page.wait_for_timeout(1e3)
    page.page.screenshot(path=folder / "ant_dark.png")
    page.page.emulate_media(color_scheme="light")
    page.page.click("#restore")
    _record_animation(page, folder / "ant.gif")


def _record_animation(page: Any, path: Path) -> None:
    """Write an animation of the robot and its wiring panel, while signals are dragged."""
    from PIL import Image

    page.page.check("input[name=announced][value=yes]")
    boxes = [page.page.locator(one).bounding_box() for one in ("#robot-card", "#wiring-card")]
    clip = {
        "x": boxes[0]["x"],
        "y": boxes[0]["y"],
        "width": boxes[1]["x"] + boxes[1]["width"] - boxes[0]["x"],
        "height": 560,
    }
    drags = iter([("height", "roll"), ("pitch", "goal.cos"), ("velocity.x", "hip_1.position")])
    frames: list[Any] = []
    held = None
    for number in range(FRAMES):
        phase = number % 15
        if phase == 3 and (held := next(drags, None)):
            page.page.mouse.move(*page._middle(f'.signal[data-signal="{held[0]}"] .dot'))
            page.page.mouse.down()
        elif held and 3 < phase < 8:
            begin = page._middle(f'.signal[data-signal="{held[0]}"] .dot')
            end = page._middle(f'.slot[data-slot="{held[1]}"] .dot')
            part = (phase - 3) / 4
            page.page.mouse.move(*(a + part * (b - a) for a, b in zip(begin, end, strict=True)))
        elif held and phase == 8:
            page.page.mouse.up()
            held = None
        shot = Image.open(io.BytesIO(page.page.screenshot(clip=clip)))
        small = shot.convert("RGB").resize((720, round(720 * shot.height / shot.width)))
        palette = {"palette": frames[0], "dither": Image.Dither.NONE} if frames else {"kmeans": 2}
        frames.append(small.quantize(128, **palette))
        page.page.wait_for_timeout(1e3 * FRAME_S / 2)
    frames[0].save(
        path, save_all=True, append_images=frames[1:], duration=round(1e3 * FRAME_S), loop=0
    )


class EpisodeReturns:
    """A collector of the returns of simulated episodes.

    It skips the episode that is already running when `add_finished_return` is first called.
    """

    def __init__(self) -> None:
        self._first: float | None = None
        self._by_episode: dict[int, float] = {}

    def add_finished_return(self, figures: Mapping[str, float]) -> None:
        """Store the return of the newest finished episode.

        Episodes that began before the first call of this method are skipped. `figures` are the
        named values in a progress message of the simulator.
        """
        if "last_return" not in figures:
            return
        if self._first is None:
            self._first = figures["episode"]
        if figures["episode"] - 1 > self._first:
            self._by_episode[int(figures["episode"]) - 1] = figures["last_return"]

    def summarise_returns(self) -> dict[str, float]:
        """Return the number of episodes, their mean return and its standard error."""
        values = list(self._by_episode.values())
        if len(values) < 2:
            return {"episodes": len(values)}
        return {
            "episodes": len(values),
            "return": statistics.mean(values),
            "standard error": statistics.stdev(values) / len(values) ** 0.5,
        }


async def _measure_page_visit(address: str, seconds: float, drag_count: int) -> dict[str, Any]:
    """Visit the live page for some seconds, and return figures by name.

    The figures are the duration of drags and of the policy's ticks, the load of the page's process,
    and the returns of the episodes during the visit. A second, slow visitor reads one update a
    second.
    """
    from view.visitor import connected, visiting

    slow = await connected(address)
    async with visiting(address) as visitor:
        await visitor.state("running")
        await visitor.until(lambda: len(visitor.wires()) == 28, "the wiring panel")
        visitor.counts.clear()
        took_ms: list[float] = []
        begin_s, loads, p99 = time.monotonic(), [], []
        slots, returns, taken = list(visitor.wires()), EpisodeReturns(), 0
        while (now_s := time.monotonic() - begin_s) < seconds:
            if len(took_ms) < drag_count * now_s / seconds:
                one, slot = slots[len(took_ms) % 28], slots[(7 * len(took_ms) + 3) % 28]
                if visitor.wires()[slot][0] != one:
                    await visitor.done("connect", signal=one, slot=slot, announced=True)
                took_ms.append(visitor.replies[-1]["took_ms"])
            if now_s > taken:
                taken += 1
                await slow.read_message()
            await asyncio.sleep(0.05)
            loads.append(visitor.newest.get("health", {}).get("load", 0.0))
            p99.append(_get_tick_p99_us(visitor))
            returns.add_finished_return(visitor.newest.get("tick", {}).get("episode", {}))
        slow.close()
        return {
            "drags": len(took_ms),
            "drag p50 [ms]": statistics.median(took_ms) if took_ms else 0.0,
            "drag p95 [ms]": statistics.quantiles(took_ms, n=20)[-1] if took_ms else 0.0,
            "updates/s": visitor.counts.get("tick", 0) / seconds,
            "page [cores]": statistics.mean(loads),
            "tick p99 [us]": statistics.median(p99),
            **returns.summarise_returns(),
        }


def _get_tick_p99_us(visitor: Any) -> float:
    """Return the 99th percentile of the time of a policy's tick in us; NaN if it is not known."""
    for part in visitor.newest.get("diagnostics", {}).get("parts", []):
        if part["name"] == "policy":
            return float(part["values"]["tick p99 [us]"])
    return float("nan")


async def _measure_ticks_without_page(seconds: float, drag_count: int) -> dict[str, float]:
    """Measure the policy node's ticks while no live page runs."""
    import rclpy
    from rclpy.node import Node

    from an_control.view.clients import ServiceCalls
    from an_control.view.command_handlers import CommandHandlers
    from an_control.view.graph import find_robot_in_ros_graph
    from an_control.view.listener import Listener
    from an_control.view.schema import ConnectCommand

    rclpy.init(args=[])
    node, caller = Node("measure"), Node("measure_calls")
    listener, values, returns = Listener(node), [], EpisodeReturns()
    deeds, begin_s = CommandHandlers(ServiceCalls(caller), listener), time.monotonic()
    topics: dict[str, Any] = {}
    done = 0
    while (now_s := time.monotonic() - begin_s) < seconds:
        if "progress" not in topics:
            found = find_robot_in_ros_graph(node)
            topics = dict(found.topics)
            listener.subscribe_to_topics(topics)
            if drag_count and found.policy:
                await deeds.try_read_robot_parameters(found, node_is_new=True)
        if (order := listener.pop_newest_message("order")) is not None:
            deeds.panel.set_signals_by_slot({pair.key: pair.value for pair in order.values})
        if deeds.panel.order and done < drag_count * now_s / seconds:
            wires = {wire.slot: wire.signal for wire in deeds.panel.slot_wirings}
            slots = list(wires)
            one, slot = slots[done % 28], slots[(7 * done + 3) % 28]
            done += 1
            if wires[slot] != one:
                reply = await deeds.execute_browser_command(
                    ConnectCommand(id=done, signal=one, slot=slot, announced=True)
                )
                assert reply.ok, reply.text
        for message in listener.pop_new_messages("diagnostics"):
            for one in message.status:
                if one.name.endswith(": policy"):
                    values += [float(v.value) for v in one.values if v.key == "tick p99 [us]"]
        progress = listener.pop_newest_message("progress")
        if progress is not None:
            figures = zip(progress.name, progress.position, strict=True)
            returns.add_finished_return({name: value for name, value in figures if value == value})
        await asyncio.sleep(0.2)
    listener.close()
    for ended in node, caller:
        ended.destroy_node()
    rclpy.shutdown()
    p99 = statistics.median(values) if values else float("nan")
    return {"drags": done, "tick p99 [us]": p99, **returns.summarise_returns()}


def read_memory_mb(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    text = Path(f"/proc/{pid}/status").read_text()
    line = next(one for one in text.splitlines() if one.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def measure_and_print_page_costs(minutes: float) -> None:
    """Measure how much the web page slows the policy node, and print the figures as JSON.

    There are four measurements of `minutes` each: with and without the page, and with and without
    signals that are moved to other channels meanwhile.
    """
    import subprocess

    seconds = 60.0 * minutes
    found: dict[str, Any] = {"load": os.getloadavg()}
    with run_simulation("ant", "--realtime", "--episodes", "100000") as ant:
        address = ant.address()
        (viewer,) = ant.children("an_control view")
        time.sleep(SETTLE_S)
        memory = [read_memory_mb(viewer)]
        found["a visitor who drags"] = asyncio.run(
            _measure_page_visit(address, seconds, max(100, int(seconds)))
        )
        memory.append(read_memory_mb(viewer))
        found["a visitor who looks on"] = asyncio.run(_measure_page_visit(address, seconds, 0))
        memory.append(read_memory_mb(viewer))
        found["page memory [MB]"] = [round(one, 1) for one in memory]
        os.kill(viewer, signal.SIGKILL)
        found["no page, rewired"] = asyncio.run(
            _measure_ticks_without_page(seconds, max(100, int(seconds)))
        )
    command = [sys.executable, "-m", "an_control", "sim", "ant", "--realtime", "--scrambler",
               "--episodes", "100000"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as plain:
        time.sleep(SETTLE_S)
        found["no page"] = asyncio.run(_measure_ticks_without_page(seconds, 0))
        plain.terminate()
    print(json.dumps(found, indent=2))


def main(arguments: Sequence[str]) -> int:
    """Take pictures of the robots' web page or measure its costs, and return the exit status."""
    what, *rest = arguments or [""]
    if what == "pictures":
        take_pictures(Path(rest[0]) if rest else ROOT / "docs/how-to/watch", rest[1:])
    elif what == "measure":
        measure_and_print_page_costs(float(rest[0]) if rest else 1.0)
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0
