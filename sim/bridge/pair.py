"""Do a simulation YAML and a robot's wiring fit each other? Asked before either is run."""

from __future__ import annotations

from an_control.wiring import SourceConfig, Wiring, WiringError
from an_control.wiring.errors import Shown
from an_control_sim.bridge.simulation_file import Simulation

RATE_TOLERANCE = 0.1
BY_NAME = "sensor_msgs/msg/JointState"


def check_pair(simulation: Simulation, wiring: Wiring, *, lockstep: bool) -> None:
    """WiringError where the wiring commands what the simulation does not take, or at another rate.

    And in lockstep, which waits for every source, where it reads what the simulation does not
    publish. Topics are those of one namespace.
    """
    file, takes, sends = wiring.file, simulation.command, wiring.command
    if (sends.topic, sends.type) != (takes.topic, takes.type):
        allowed = f"{takes.topic} of {takes.type}, which {simulation.file} takes"
        raise WiringError(file, "command", Shown(f"{sends.topic} of {sends.type}"), allowed)
    names = tuple(actuator.name for actuator in takes.actuators)
    if set(names) != set(sends.names):
        allowed = f"the actuators of {simulation.file}: {', '.join(names)}"
        raise WiringError(file, "command.actuators", Shown(", ".join(sends.names)), allowed)
    if takes.type != BY_NAME and names != sends.names:
        allowed = f"{', '.join(names)}, in this order: {takes.type} has no names"
        raise WiringError(file, "command.actuators", Shown(", ".join(sends.names)), allowed)
    if abs(wiring.rate_hz * simulation.step_s - 1.0) > RATE_TOLERANCE:
        allowed = f"{1.0 / simulation.step_s:g}, one tick a step of {simulation.file}"
        raise WiringError(file, "rate_hz", wiring.rate_hz, allowed)
    for source in not_published(simulation, wiring) if lockstep else ():
        published = ", ".join(one.topic for one in simulation.publish)
        allowed = f"what {simulation.file} publishes: {published}"
        raise WiringError(file, f"sources.{source.name}.topic", source.topic, allowed)


def not_published(simulation: Simulation, wiring: Wiring) -> list[SourceConfig]:
    """The sources of the wiring that the simulation does not publish."""
    topics = {one.topic for one in simulation.publish}
    if simulation.camera is not None:
        topics.add(simulation.camera.topic)
    return [one for one in wiring.sources if one.topic not in topics]
