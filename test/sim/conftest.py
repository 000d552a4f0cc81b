"""A bridge that serves the tiny environment, with a responder on the bridge's own thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tiny_robot import Responder

    from an_control_sim.bridge.bridge import Bridge


@pytest.fixture
def simulation(tmp_path: Path) -> Path:
    from tiny_robot import YAML

    path = tmp_path / "tiny.yaml"
    path.write_text(YAML)
    return path


@pytest.fixture
def responder() -> Iterator[Responder]:
    import rclpy
    from tiny_robot import Responder

    rclpy.init()
    node = Responder()
    yield node
    node.destroy_node()
    rclpy.shutdown()


@pytest.fixture
def serve(simulation: Path, responder: Responder) -> Iterator[Callable[..., Bridge]]:
    """Makes a bridge with the responder on its executor, not started."""
    from rclpy.node import Node

    from an_control_sim.bridge.bridge import Bridge
    from an_control_sim.bridge.robot import SimulatedRobot
    from an_control_sim.bridge.simulation_file import load_simulation

    bridges = []

    def make(camera_hz: float = 0.0, **options: Any) -> Bridge:
        robot = SimulatedRobot(load_simulation(simulation), camera=camera_hz > 0)
        bridge = Bridge(Node("simulator"), robot, camera_hz=camera_hz, **options)
        bridge.run.executor.add_node(responder)
        bridges.append(bridge)
        return bridge

    yield make
    for bridge in bridges:
        bridge.run.executor.remove_node(responder)
        bridge.close()
        bridge.node.destroy_node()
