"""Pictures and figures of the live page, from real runs.

    python scripts/live_page.py pictures [DIR [ROBOT ...]]  of five robots, and the Ant moving
    python scripts/live_page.py measure [MINUTES]           what the page costs the Ant

Pictures need Chromium and Playwright. Give each command a ROS_DOMAIN_ID of its own.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "test"))
os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
os.environ.setdefault("ROS_DOMAIN_ID", "0")
SETTLE_S = 12.0
"""How long a robot runs before its picture is taken, so that its charts show something."""
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
"""What `an-control sim` gets; the last one is a robot that is two YAML files."""


@contextmanager
def simulated(*arguments: object) -> Iterator[Any]:
    from view.conftest import simulation

    with tempfile.TemporaryDirectory() as folder, simulation(Path(folder), *arguments) as one:
        yield one


def pictures(folder: Path, only: list[str]) -> None:
    """One screenshot a robot, of the Ant also in the dark, and the Ant as an animated picture.

    The Ant walks in real time, the others play in lockstep. `only` names some of `ROBOTS`.
    """
    from view.browser import browsing

    folder.mkdir(parents=True, exist_ok=True)
    for name in only or ROBOTS:
        simulation = simulated(*ROBOTS[name], "--episodes", "100000")
        with simulation as robot, browsing(robot.address()) as page:
            page.page.wait_for_selector("#lamp[data-state=running]", state="attached")
            page.page.wait_for_timeout(1e3 * SETTLE_S)
            if name == "ant":
                _ant(page, folder)
            else:
                page.page.screenshot(path=folder / f"{name}.png")


def _ant(page: Any, folder: Path) -> None:
    page.drag("hip_1.position", "ankle_3.velocity")
    page.page.check("input[name=announced][value=no]")
    page.drag("roll", "hip_2.velocity")
    page.page.wait_for_timeout(2e3)
    page.page.screenshot(path=folder / "ant.png")
    page.page.emulate_media(color_scheme="dark")
    page.page.wait_for_timeout(1e3)
    page.page.screenshot(path=folder / "ant_dark.png")
    page.page.emulate_media(color_scheme="light")
    page.page.click("#straight")
    _animate(page, folder / "ant.gif")


def _animate(page: Any, path: Path) -> None:
    """The robot and its patch bay while cables are dragged, announced."""
    from PIL import Image

    page.page.check("input[name=announced][value=yes]")
    boxes = [page.page.locator(one).bounding_box() for one in ("#robot-card", "#bay-card")]
    clip = {
        "x": boxes[0]["x"],
        "y": boxes[0]["y"],
        "width": boxes[1]["x"] + boxes[1]["width"] - boxes[0]["x"],
        "height": 560,
    }
    drags = iter([("height", "roll"), ("pitch", "goal.cos"), ("velocity.x", "hip_1.position")])
    frames, held = [], None
    for number in range(FRAMES):
        phase = number % 15
        if phase == 3 and (held := next(drags, None)):
            page.page.mouse.move(*page._middle(f'.signal[data-signal="{held[0]}"] .dot'))
            page.page.mouse.down()
        elif held and 3 < phase < 8:
            begin = page._middle(f'.signal[data-signal="{held[0]}"] .dot')
            end = page._middle(f'.plug[data-plug="{held[1]}"] .dot')
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


async def _visit(address: str, seconds: float, drags: int) -> dict[str, float]:
    """What a visitor sees in this time: p99 of a tick, updates a second, the page's load."""
    import numpy as np
    from view.visitor import visiting

    async with visiting(address) as visitor:
        await visitor.state("running")
        await visitor.until(lambda: len(visitor.wires()) == 28, "the patch bay")
        visitor.counts.clear()
        begin_s, took_ms, loads, p99 = time.monotonic(), [], [], []
        plugs = list(visitor.wires())
        while (now_s := time.monotonic() - begin_s) < seconds:
            if len(took_ms) < drags * now_s / seconds:
                signal, plug = plugs[len(took_ms) % 28], plugs[(7 * len(took_ms) + 3) % 28]
                if visitor.wires()[plug][0] != signal:
                    await visitor.done("connect", signal=signal, plug=plug, announced=True)
                took_ms.append(visitor.replies[-1]["took_ms"])
            await asyncio.sleep(0.05)
            loads.append(visitor.newest.get("health", {}).get("load", 0.0))
            p99.append(_tick_us(visitor))
        return {
            "drags": len(took_ms),
            "drag p50 [ms]": float(np.median(took_ms)) if took_ms else 0.0,
            "drag p95 [ms]": float(np.quantile(took_ms, 0.95)) if took_ms else 0.0,
            "updates/s": visitor.counts.get("tick", 0) / seconds,
            "page [cores]": float(np.mean(loads)),
            "tick p99 [us]": float(np.median(p99)),
        }


def _tick_us(visitor: Any) -> float:
    for part in visitor.newest.get("diagnostics", {}).get("parts", []):
        if part["name"] == "policy":
            return float(part["values"]["tick p99 [us]"])
    return float("nan")


def _alone(seconds: float) -> float:
    """p99 of a tick without a page, us; as the policy node itself says."""
    import rclpy
    from rclpy.node import Node

    from an_control.view.graph import FIXED
    from an_control.view.listener import Listener

    rclpy.init(args=[])
    node = Node("measure")
    listener, values = Listener(node), []
    listener.follow({"diagnostics": FIXED["diagnostics"]})
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        for message in listener.waiting("diagnostics"):
            for one in message.status:
                if one.name.endswith(": policy"):
                    values += [float(v.value) for v in one.values if v.key == "tick p99 [us]"]
        time.sleep(0.2)
    listener.close()
    node.destroy_node()
    rclpy.shutdown()
    return sorted(values)[len(values) // 2] if values else float("nan")


def memory_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    line = next(one for one in text.splitlines() if one.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def measure(minutes: float) -> None:
    """Print the figures as JSON, with the machine's load."""
    import subprocess

    seconds = 60.0 * minutes
    found: dict[str, Any] = {"load": os.getloadavg()}
    with simulated("ant", "--realtime", "--episodes", "100000") as ant:
        address = ant.address()
        (viewer,) = ant.children("an_control view")
        time.sleep(SETTLE_S)
        found["with"] = asyncio.run(_visit(address, seconds / 2, drags=100))
        before = memory_mb(viewer)
        found["quiet"] = asyncio.run(_visit(address, seconds / 2, drags=0))
        found["page memory [MB]"] = [round(before, 1), round(memory_mb(viewer), 1)]
    command = [sys.executable, "-m", "an_control", "sim", "ant", "--realtime", "--scrambler",
               "--episodes", "100000"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as plain:
        time.sleep(SETTLE_S)
        found["without"] = {"tick p99 [us]": _alone(seconds / 2)}
        plain.terminate()
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    what, *rest = sys.argv[1:] or [""]
    if what == "pictures":
        pictures(Path(rest[0]) if rest else ROOT / "docs/view", rest[1:])
    elif what == "measure":
        measure(float(rest[0]) if rest else 1.0)
    else:
        sys.exit(__doc__)
