"""Do a simulation YAML and a robot's wiring fit each other? Asked before either is run."""

from __future__ import annotations

from an_control.wiring import SourceConfig, Wiring, WiringError
from an_control.wiring.command import MessageFields
from an_control.wiring.errors import Shown
from an_control_sim.bridge.simulation_file import Simulation

RATE_TOLERANCE = 0.1
BY_NAME = ("sensor_msgs/msg/JointState", "trajectory_msgs/msg/JointTrajectory")
"""Messages with a name beside each value."""
IMAGE = "sensor_msgs/msg/Image"


def check_pair(
    simulation: Simulation, wiring: Wiring, *, lockstep: bool, camera_hz: float = 0.0
) -> None:
    """WiringError where the wiring commands what the simulation does not take, or at another rate.

    And where it reads a topic as another type than the simulation publishes, or in lockstep, which
    waits for every source, what the simulation does not publish. Topics are those of one namespace.
    `camera_hz` is how often the rendered view is published.
    """
    file, takes = wiring.file, {one.topic: one for one in simulation.command.messages}
    for number, sends in enumerate(wiring.command.messages):
        key, taken = wiring.command.key(number), takes.pop(sends.topic, None)
        if taken is None or taken.type != sends.type:
            known = ", ".join(f"{one.topic} of {one.type}" for one in simulation.command.messages)
            allowed = f"what {simulation.file} takes: {known}"
            raise WiringError(file, key, Shown(f"{sends.topic} of {sends.type}"), allowed)
        _check_fields(sends, taken, f"{key}.actuators", file, simulation.file)
    if takes:
        allowed = f"messages on {', '.join(takes)} too, which {simulation.file} takes"
        raise WiringError(file, "command", Shown(", ".join(wiring.command.topics)), allowed)
    if abs(wiring.rate_hz * simulation.step_s - 1.0) > RATE_TOLERANCE:
        allowed = f"{1.0 / simulation.step_s:g}, one tick a step of {simulation.file}"
        raise WiringError(file, "rate_hz", wiring.rate_hz, allowed)
    types = _published(simulation, camera_hz)
    for source in wiring.sources:
        key, type_ = f"sources.{source.name}", types.get(source.topic, source.type)
        if type_ != source.type:
            allowed = f"{type_}, which {simulation.file} publishes on {source.topic}"
            raise WiringError(file, f"{key}.type", source.type, allowed)
        if lockstep and source.topic not in types:
            allowed = f"what {simulation.file} publishes: {', '.join(types)}"
            raise WiringError(file, f"{key}.topic", source.topic, allowed)


def _check_fields(
    sends: MessageFields, takes: MessageFields, key: str, file: str, simulation: str
) -> None:
    """WiringError where two messages hold other actuators, or hold them in other places."""
    places, wanted = _places(sends), _places(takes)
    if places != wanted:
        text = [", ".join(f"{name} in {field}" for name, field in one) for one in (places, wanted)]
        raise WiringError(file, key, Shown(text[0]), f"as in {simulation}: {text[1]}")


def _places(message: MessageFields) -> list[tuple[str, str | None]]:
    """Each actuator and its field; in the message's order where neither says which it is."""
    places = [(one.name, one.field or message.field) for one in message.actuators]
    ordered = message.type not in BY_NAME and any(one.field is None for one in message.actuators)
    return places if ordered and "*" not in (message.field or "") else sorted(places)


def not_published(simulation: Simulation, wiring: Wiring) -> list[SourceConfig]:
    """The sources of the wiring that the simulation does not publish, without its camera."""
    return [one for one in wiring.sources if one.topic not in _published(simulation, 0.0)]


def _published(simulation: Simulation, camera_hz: float) -> dict[str, str]:
    """The simulation's topics and their types."""
    types = {one.topic: one.type for one in simulation.publish}
    if simulation.camera is not None and camera_hz > 0.0:
        types[simulation.camera.topic] = IMAGE
    return types
