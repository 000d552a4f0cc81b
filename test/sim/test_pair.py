"""Files of a robot and its simulation that do not fit are refused before either is run."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("rclpy")

from an_control.system.share import find_share_path
from an_control.wiring import Wiring, WiringError, load_wiring
from an_control_sim.bridge.simulation_file import Simulation, load_simulation
from an_control_sim.bridge.simulator_node import check_wiring_fits_simulation


def changed(folder: Path, name: str, old: str, new: str) -> Path:
    """A copy of a shipped file in which something else stands."""
    text = find_share_path(f"config/{name}.yaml").read_text()
    assert old in text
    path = folder / f"{name}.yaml"
    path.write_text(text.replace(old, new))
    return path


@pytest.mark.parametrize("lockstep", [True, False])
def test_a_topic_that_is_read_as_another_type_than_it_has_is_named(tmp_path, lockstep):
    wiring = load_wiring(changed(tmp_path, "cartpole", "Vector3Stamped", "PointStamped"))
    simulation = load_simulation(find_share_path("config/cartpole_sim.yaml"))
    with pytest.raises(WiringError) as raised:
        check_wiring_fits_simulation(simulation, wiring, lockstep=lockstep)
    assert raised.value.key == "sources.pole.type"
    said = str(raised.value)
    assert "cartpole.yaml" in said and "'geometry_msgs/msg/PointStamped' is not allowed" in said
    assert "geometry_msgs/msg/Vector3Stamped, which" in said and "on pole_direction" in said


@pytest.fixture
def seen(tmp_path: Path) -> tuple[Simulation, Wiring]:
    """A game whose wiring reads the rendered view."""
    topic, camera = "  camera/image_raw:", "camera: {topic: camera/image_raw, frame_id: eye}\n"
    path = changed(tmp_path, "pong_sim", topic, "  screen:")
    path.write_text(path.read_text() + camera)
    return load_simulation(path), load_wiring(find_share_path("config/pong.yaml"))


def test_in_lockstep_the_rendered_view_counts_only_where_it_is_published(seen):
    check_wiring_fits_simulation(*seen, lockstep=True, camera_hz=15.0)
    with pytest.raises(WiringError) as raised:
        check_wiring_fits_simulation(*seen, lockstep=True)
    assert raised.value.key == "sources.camera.topic"
    assert "publishes: screen" in str(raised.value)
