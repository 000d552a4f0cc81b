"""Defines how a policy reads a simulated robot whose readings are disturbed by the scrambler."""

from __future__ import annotations

from pathlib import Path

from an_control.wiring import ChannelTable, Wiring
from an_control_sim.bridge.robot import SimulatedRobot
from an_control_sim.bridge.simulation_file import load_simulation
from an_control_sim.scrambler.wiring import derive_scrambled_wiring


def derive_wiring_for_disturbed_simulation(wiring: Wiring, simulation: str | Path) -> Wiring:
    """Return the wiring for a policy that is to read a simulated robot's disturbed readings.

    A wiring says which topics feed a policy. In the result all channels read one topic: that of the
    scrambler, a node that disturbs readings on purpose.

    Args:
        wiring: The robot's own wiring.
        simulation: The path of the simulation YAML. If ids in the wiring contain a `*`, the robot
            is simulated, and its first messages show which channels match.

    Raises:
        WiringError: The simulation YAML does not fit its environment.
    """
    if wiring.images or not any("*" in one.id for one in wiring.channels):
        return derive_scrambled_wiring(wiring)
    robot, table = SimulatedRobot(load_simulation(simulation)), ChannelTable(wiring)
    try:
        robot.reset(0)
        robot.fill_sensor_messages(robot.simulation.step_ns)
        for sensor_topic in robot.sensor_topics:
            for source in wiring.sources:
                if source.topic == sensor_topic.topic:
                    table.store_message(
                        source.name, sensor_topic.message, robot.simulation.step_ns, 0
                    )
        table.read(0)
    finally:
        robot.close()
    return derive_scrambled_wiring(wiring, list_wildcard_matches(table))


def list_wildcard_matches(table: ChannelTable) -> dict[str, list[str]]:
    """List the channels that match each wildcard id (with a `*`) of a wiring.

    Args:
        table: The channel table of the wiring, after it has received messages.

    Returns:
        The ids of the matching channels by wildcard id, such as {"scan.*": ["scan.0", "scan.1"]}.
    """
    found: dict[str, list[str]] = {one.id: [] for one in table.wiring.channels if "*" in one.id}
    for id_, config in table.configs.items():
        if config.id in found:
            found[config.id].append(id_)
    return found
