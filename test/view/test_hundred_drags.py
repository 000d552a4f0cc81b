"""A hundred random drags in a real browser, on a walking Ant."""

from __future__ import annotations

import json
import random
import time

import numpy as np
import pytest

pytest.importorskip("rclpy")
pytest.importorskip("tornado")
pytest.importorskip("msgspec")
pytest.importorskip("playwright")
pytest.importorskip("pybullet")
import rclpy
from rclpy.context import Context
from rclpy.node import Node
from view.browser import CHROMIUM, browsing

from an_control.system.share import find_share_path
from an_control.view.graph import find_robot_in_ros_graph
from an_control.view.listener import Listener

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="needs Chromium (Debian: chromium)"),
]
DRAGS, REACHES_S, LIMIT_S = 100, 0.2, 10.0


class Order:
    """What the scrambler itself says, and what the simulator says of its episodes."""

    def __init__(self) -> None:
        self._context = Context()
        rclpy.init(args=[], context=self._context)
        self._node = Node("witness", context=self._context)
        self._listener = Listener(self._node)
        self.order: dict[str, str] = {}
        self.returns: dict[int, float] = {}

    def hear(self) -> dict[str, str]:
        if not self.order:
            self._listener.subscribe_to_topics(find_robot_in_ros_graph(self._node).topics)
        message = self._listener.pop_newest_message("order")
        if message is not None:
            self.order = {one.key: one.value for one in message.values}
        progress = self._listener.pop_newest_message("progress")
        if progress is not None:
            figures = dict(zip(progress.name, progress.position, strict=True))
            if np.isfinite(figures["last_return"]):
                self.returns[int(figures["episode"]) - 1] = figures["last_return"]
        return self.order

    def until(self, ready, what: str) -> float:
        """Wait for a condition; how long that took, s."""
        begin_s = time.monotonic()
        while not ready():
            assert time.monotonic() < begin_s + LIMIT_S, what
            self.hear()
            time.sleep(0.001)
        return time.monotonic() - begin_s

    def close(self) -> None:
        self._listener.close()
        self._node.destroy_node()
        rclpy.shutdown(context=self._context)


@pytest.mark.parametrize("mode", ["lockstep", "realtime"])
def test_each_of_a_hundred_announced_drags_reaches_the_nodes_in_time(simulate, tmp_path, mode):
    more = ["--realtime"] if mode == "realtime" else []
    ant = simulate("ant", "--episodes", "100000", "--seed", "5", *more)
    rng, seen, took_s = random.Random(1), Order(), []
    with browsing(ant.address()) as page:
        page.ready(28)
        seen.until(lambda: len(seen.order) == 28, "the scrambler's order")
        slots = list(seen.order)
        for _ in range(DRAGS):
            signal, slot = rng.choice(slots), rng.choice(slots)
            if seen.order[slot] == signal:
                continue
            page.drag(signal, slot)
            took_s.append(seen.until(lambda p=slot, s=signal: seen.order[p] == s, signal))
        assert page.hosts == {"127.0.0.1"} and page.errors == []
    last = max(seen.returns, default=-1)
    if mode == "lockstep":
        seen.until(lambda: max(seen.returns, default=-1) > last, "the end of an episode")
    seen.close()
    ant.close()
    print(f"{mode}: {len(took_s)} drags, p50 {np.median(took_s):.3f} s, "
          f"p95 {np.quantile(took_s, 0.95):.3f} s")  # fmt: skip
    assert len(took_s) > 0.9 * DRAGS and np.quantile(took_s, 0.95) < REACHES_S
    if mode == "lockstep":
        from an_control.cli import main

        model, plain = find_share_path("models/ant.safetensors"), tmp_path / "plain.json"
        count = max(seen.returns) + 1
        arguments = ["--episodes", str(count), "--seed", "5", "--shuffle", "none"]
        arguments += ["--json", str(plain)]
        assert main(["evaluate", str(model), *arguments]) == 0
        expected = [one["return"] for one in json.loads(plain.read_text())["episodes"]]
        assert seen.returns == {episode: expected[episode] for episode in seen.returns}
