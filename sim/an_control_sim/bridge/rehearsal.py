"""Define how a policy reads a simulated robot behind the scrambler: the wiring and the tap."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from an_control.wiring import ChannelTable, Wiring
from an_control_sim.bridge.robot import SimulatedRobot
from an_control_sim.bridge.simulation_file import load_simulation
from an_control_sim.scrambler.wiring import derive_scrambled_wiring


def derive_rehearsal_wiring(wiring: Wiring, simulation: str | Path) -> Wiring:
    """Return the wiring behind the scrambler; see `derive_scrambled_wiring`.

    The robot's first readings show which channels the wiring's entries with a `*` stand for.

    Args:
        wiring: The robot's wiring.
        simulation: Path of the simulation YAML.

    Raises:
        WiringError: The simulation YAML does not fit its environment.
    """
    if wiring.images or not any("*" in one.id for one in wiring.channels):
        return derive_scrambled_wiring(wiring)
    robot, table = SimulatedRobot(load_simulation(simulation)), ChannelTable(wiring)
    try:
        robot.reset(0)
        robot.fill(robot.simulation.step_ns)
        for outlet in robot.outlets:
            for source in wiring.sources:
                if source.topic == outlet.topic:
                    table.store(source.name, outlet.message, robot.simulation.step_ns, 0)
        table.read(0)
    finally:
        robot.close()
    return derive_scrambled_wiring(wiring, list_elements(table))


def list_elements(table: ChannelTable) -> dict[str, list[str]]:
    """Return, for each entry with a `*`, the ids of the channels that it stands for so far."""
    found: dict[str, list[str]] = {one.id: [] for one in table.wiring.channels if "*" in one.id}
    for id_, config in table.configs.items():
        if config.id in found:
            found[config.id].append(id_)
    return found


class MessageTap(Protocol):
    """Interface of objects that get the robot's messages in this process, such as the scrambler."""

    topic: str

    @property
    def shuffles(self) -> int:
        """Return how often the signals were permuted in this episode."""

    @property
    def lost(self) -> bool:
        """Return whether this step's message is lost."""

    def reset(self, episode: int) -> None:
        """Start an episode."""

    def take(self, topic: str, message: Any) -> None:
        """Store the newest message of a topic."""

    def prepare(self, stamp_ns: int) -> None:
        """Disturb the readings of the step with this stamp."""

    def send(self) -> None:
        """Publish the prepared message."""
