"""Runs the executable `simulator`: a simulated robot on ROS 2 topics, episode after episode.

`check_wiring_fits_simulation` checks, before either is run, whether a simulation YAML and a wiring
fit together.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from rclpy.exceptions import NameValidationException
from rclpy.node import Node

from an_control.disturbance import DisturbanceSettings, ScheduledChange
from an_control.ros.graph import QuietNode
from an_control.ros.node import print_help_if_asked
from an_control.wiring import SourceConfig, Wiring, WiringError, load_wiring
from an_control.wiring.checked_yaml import Description
from an_control.wiring.command import MessageFields
from an_control_sim.bridge.bridge import Bridge
from an_control_sim.bridge.episodes import (
    EpisodeProgress,
    ProgressCallback,
    RunSummary,
    run_episodes,
)
from an_control_sim.bridge.policy_link import START_S, BridgeError
from an_control_sim.bridge.robot import SimulatedRobot
from an_control_sim.bridge.simulation_file import Simulation, load_simulation
from an_control_sim.gym.failure import BrokenEnvironmentError
from an_control_sim.parameters import (
    call_when_disturbance_changes,
    declare_disturbance_parameters,
    declare_parameter,
    declare_schedule_parameter,
)
from an_control_sim.process import catch_signals, create_node, initialise_ros
from an_control_sim.scrambler.scrambler import Scrambler

ABOUT = (
    "A simulated robot: plays the episodes of a simulation YAML, publishes its sensor readings and"
    " applies the commands of the policy node."
)


@dataclass(frozen=True)
class SimulatorSettings:
    """The settings of a simulation run, which are also the parameters of the node `simulator`.

    Attributes:
        simulation: The path of the simulation YAML.
        wiring: The path of the robot's wiring YAML, which is needed to disturb its readings.
        episodes: The number of episodes; 0 runs until stopped.
        seed: The seed of everything random.
        realtime: True to step at the pace of the clock, False to wait for each command (lockstep).
        policy: The name of the policy node. If it is "", any node may send commands, and no service
            of a policy node is called.
        command_timeout_s: Seconds without a command after which the safe command is applied; 0
            stands for 1 second in lockstep, and for five steps in real time.
        start_timeout_s: Seconds to wait for the policy node.
        camera_hz: Camera pictures per simulated second; 0 for none.
        scrambler: Whether the scrambler, which disturbs readings, runs even if nothing is disturbed
            at first.
        disturbance: What is done on purpose to readings, commands and the robot.
        schedule: Changes of the disturbance within each episode.
    """

    simulation: str
    wiring: str = ""
    episodes: int = 1
    seed: int = 0
    realtime: bool = False
    policy: str = "policy"
    command_timeout_s: float = 0.0
    start_timeout_s: float = START_S
    camera_hz: float = 0.0
    scrambler: bool = False
    disturbance: DisturbanceSettings = field(default_factory=DisturbanceSettings)
    schedule: tuple[ScheduledChange, ...] = ()

    @property
    def uses_scrambler(self) -> bool:
        """Whether readings may be disturbed, so that the policy must read the scrambler's topic."""
        return (
            self.scrambler
            or self.disturbance.does_disturb_target("readings")
            or bool(self.schedule)
        )


def read_simulator_settings(node: Node) -> SimulatorSettings:
    """Declare the settings as parameters of the node `simulator`, and return their values.

    Raises:
        ValueError: A value is not valid; the message names the parameter.
    """
    return SimulatorSettings(
        simulation=declare_parameter(node, "simulation", "", "path of the simulation YAML"),
        wiring=declare_parameter(
            node, "wiring", "", "path of the robot's wiring YAML; needed to disturb its readings"
        ),
        episodes=declare_parameter(
            node, "episodes", 0, "episodes to run, 0 = until stopped", (0, 10**9)
        ),
        seed=declare_parameter(node, "seed", 0, "seed of everything random", (0, 2**31 - 1)),
        realtime=declare_parameter(
            node, "realtime", False, "step by the clock instead of waiting for each command"
        ),
        policy=declare_parameter(
            node, "policy", "policy", "name of the policy node; empty: do not call its reset_state"
        ),
        command_timeout_s=declare_parameter(
            node,
            "command_timeout_s",
            0.0,
            "seconds without a command after which the safe one is applied; 0 = 1 s in lockstep,"
            " five steps in real time",
            (0.0, 3600.0),
        ),
        start_timeout_s=declare_parameter(
            node, "start_timeout_s", START_S, "seconds to wait for the policy", (0.001, 3600.0)
        ),
        camera_hz=declare_parameter(
            node,
            "camera_hz",
            0.0,
            "pictures per simulated second while subscribed, 0 = off",
            (0, 1000),
        ),
        scrambler=declare_parameter(
            node,
            "scrambler",
            False,
            "let the policy read the scrambler's topic even if nothing is disturbed",
        ),
        disturbance=declare_disturbance_parameters(node),
        schedule=declare_schedule_parameter(node),
    )


def simulate(
    node: Node, settings: SimulatorSettings, progress: ProgressCallback | None = None
) -> RunSummary:
    """Run the episodes of a simulation and return a summary.

    SIGINT and SIGTERM end the run early. So do a policy node that cannot be reached and an
    environment that fails; the summary's `failure` then says so. In all cases the summary has the
    episodes that had ended before. Call this on the main thread, within the block of
    `process.initialise_ros`.

    Args:
        node: The simulator's node.
        settings: The settings of the run.
        progress: Called during and after each episode.

    Raises:
        WiringError: A YAML file is not valid.
        ValueError: A setting is missing, or the environment does not support one.
    """
    if not node.has_parameter("wiring"):  # the live page looks for the robot's drawing beside it
        declare_parameter(node, "wiring", settings.wiring, "path of the robot's wiring YAML")
    running: list[Bridge] = []

    def stop_run() -> None:
        """End the run early, because SIGINT or SIGTERM has arrived."""
        for one in running:
            one.run.stop()

    with catch_signals(stop_run) as stopped:
        bridge = _make_bridge(node, settings)
        running.append(bridge)
        try:
            if stopped():
                return RunSummary(())
            results = run_episodes(
                bridge,
                episodes=settings.episodes,
                seed=settings.seed,
                progress=progress,
                disturbance=settings.disturbance,
            )
            figures = bridge.read_diagnostics() if settings.realtime and not stopped() else None
            return RunSummary(tuple(results), figures)
        except BridgeError as error:
            return RunSummary(tuple(error.finished), failure=str(error))
        finally:
            bridge.close()


def _make_bridge(node: Node, settings: SimulatorSettings) -> Bridge:
    """Create the server of the robot (`Bridge`) that these settings describe."""
    if settings.uses_scrambler and not settings.wiring:
        raise ValueError(
            "parameter wiring: is not set (allowed: a wiring YAML, to disturb its readings)"
        )
    if not settings.simulation:
        raise ValueError("parameter simulation: is not set (allowed: a simulation YAML)")
    simulation = load_simulation(settings.simulation)
    if settings.camera_hz > 0 and simulation.camera is None:
        raise WiringError(simulation.file, "camera", None, "topic and frame_id, for its pictures")
    tap = None
    if settings.uses_scrambler:
        wiring = load_wiring(settings.wiring)
        tap = Scrambler(node, wiring, settings.disturbance, settings.seed, settings.schedule)
    else:
        call_when_disturbance_changes(node, None)
    return Bridge(
        node,
        SimulatedRobot(simulation, camera=settings.camera_hz > 0, disturbance=settings.disturbance),
        tap=tap,
        policy=settings.policy,
        realtime=settings.realtime,
        command_timeout_s=settings.command_timeout_s or None,
        start_timeout_s=settings.start_timeout_s,
        camera_hz=settings.camera_hz,
    )


def main(args: Sequence[str] | None = None) -> int:
    """Run the executable `simulator` and return its exit status.

    Args:
        args: ROS arguments; None for the arguments of this process.

    Returns:
        0: finished or stopped; 1: the policy cannot be reached, or the environment fails; 2:
        invalid input.
    """
    if print_help_if_asked("simulator", ABOUT, read_simulator_settings, args):
        return 0
    try:
        with catch_signals(), initialise_ros(args):
            node = create_node(lambda: QuietNode("simulator"))
            try:
                summary = simulate(
                    node, read_simulator_settings(node), partial(_log_result_if_episode_ended, node)
                )
            finally:
                node.destroy_node()
    except (ValueError, NameValidationException) as error:
        print(f"simulator: {error}", file=sys.stderr)
        return 2
    except BrokenEnvironmentError as error:  # before the first episode
        print(f"simulator: {error}", file=sys.stderr)
        return 1
    print("\n".join(summary.format_lines()), flush=True)
    if summary.failure:
        print(f"simulator: {summary.failure}", file=sys.stderr)
        return 1
    return 0


def _log_result_if_episode_ended(node: Node, progress: EpisodeProgress) -> None:
    """Log the result of an episode if a progress report says that it has ended."""
    if progress.finished is not None:
        one, name = progress.finished, f"episode {progress.episode}"
        node.get_logger().info(f"{name}: return {one.return_:.1f} in {one.steps} steps")


RATE_TOLERANCE = 0.1
BY_NAME = ("sensor_msgs/msg/JointState", "trajectory_msgs/msg/JointTrajectory")
"""Message types that have a name beside each value."""
IMAGE = "sensor_msgs/msg/Image"


def check_wiring_fits_simulation(
    simulation: Simulation, wiring: Wiring, *, lockstep: bool, camera_hz: float = 0.0
) -> None:
    """Check that wiring and simulation fit each other: topics, message types, commands and rate.

    Args:
        simulation: The content of the simulation YAML: environment, topics and commands.
        wiring: The robot's wiring; its topics are in the simulation's namespace.
        lockstep: Whether the simulation must publish every source (topic) of the wiring, because in
            lockstep the policy node waits for all of them.
        camera_hz: Camera pictures per simulated second; 0 for none.

    Raises:
        WiringError: Commands, rates, message types or topics differ.
    """
    file, takes = wiring.file, {one.topic: one for one in simulation.command.messages}
    for number, sends in enumerate(wiring.command.messages):
        key, taken = wiring.command.format_message_key(number), takes.pop(sends.topic, None)
        if taken is None or taken.type != sends.type:
            known = ", ".join(f"{one.topic} of {one.type}" for one in simulation.command.messages)
            allowed = f"what {simulation.file} takes: {known}"
            raise WiringError(file, key, Description(f"{sends.topic} of {sends.type}"), allowed)
        _check_same_command_fields(sends, taken, f"{key}.actuators", file, simulation.file)
    if takes:
        allowed = f"messages on {', '.join(takes)} too, which {simulation.file} takes"
        raise WiringError(
            file, "command", Description(", ".join(wiring.command.topic_keys)), allowed
        )
    if abs(wiring.rate_hz * simulation.step_s - 1.0) > RATE_TOLERANCE:
        allowed = f"{1.0 / simulation.step_s:g}, one tick a step of {simulation.file}"
        raise WiringError(file, "rate_hz", wiring.rate_hz, allowed)
    types = _map_published_topics_to_message_types(simulation, camera_hz)
    for source in wiring.sources:
        key, type_ = f"sources.{source.name}", types.get(source.topic, source.type)
        if type_ != source.type:
            allowed = f"{type_}, which {simulation.file} publishes on {source.topic}"
            raise WiringError(file, f"{key}.type", source.type, allowed)
        if lockstep and source.topic not in types:
            allowed = f"what {simulation.file} publishes: {', '.join(types)}"
            raise WiringError(file, f"{key}.topic", source.topic, allowed)


def _check_same_command_fields(
    wired: MessageFields, simulated: MessageFields, key: str, wiring_file: str, simulation_file: str
) -> None:
    """Check that wiring and simulation have the same actuators and fields in a command message."""
    places, wanted = _list_actuator_fields(wired), _list_actuator_fields(simulated)
    if places != wanted:
        text = [", ".join(f"{name} in {field}" for name, field in one) for one in (places, wanted)]
        raise WiringError(
            wiring_file, key, Description(text[0]), f"as in {simulation_file}: {text[1]}"
        )


def _list_actuator_fields(message: MessageFields) -> list[tuple[str, str | None]]:
    """Return a pair for each actuator of a command message: its name, and the field of its value.

    The field is None if the message has none for a single actuator. The pairs are sorted by name,
    or stay in the message's order if only that says which value is which actuator's.
    """
    places = [(one.name, one.field or message.field) for one in message.actuators]
    ordered = message.type not in BY_NAME and any(one.field is None for one in message.actuators)
    return places if ordered and "*" not in (message.field or "") else sorted(places)


def find_unpublished_sources(simulation: Simulation, wiring: Wiring) -> list[SourceConfig]:
    """Return the sources (topics) that a wiring reads but the simulation does not publish.

    A source that reads the camera's topic is always returned, because the camera may be off.
    """
    return [
        one
        for one in wiring.sources
        if one.topic not in _map_published_topics_to_message_types(simulation, 0.0)
    ]


def _map_published_topics_to_message_types(
    simulation: Simulation, camera_hz: float
) -> dict[str, str]:
    """Return the message type of each topic that the simulation publishes, by the topic's name."""
    types = {one.topic: one.type for one in simulation.publish}
    if simulation.camera is not None and camera_hz > 0.0:
        types[simulation.camera.topic] = IMAGE
    return types


if __name__ == "__main__":
    sys.exit(main())
