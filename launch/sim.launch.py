"""Launch a simulated robot and its policy node, in lockstep or in real time.

    ros2 launch an_control sim.launch.py task:=cartpole episodes:=2
    ros2 launch an_control sim.launch.py simulation:=S.yaml wiring:=W.yaml model:=M.safetensors

The launch ends when the episodes are done. Without disturbances the policy reads the robot's own
topics. If readings are disturbed, the policy reads the topic of the scrambler, the node that
disturbs them. The wiring (YAML file of topics) for this is derived from the robot's wiring.
"""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, ExecuteProcess, OpaqueFunction, Shutdown
from launch.events.process import ProcessExited
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

from an_control.disturbance import SETTINGS, DisturbanceSettings, load_schedule
from an_control.load import load_policy
from an_control.ros.parameter_table import PARAMETERS
from an_control.system.share import find_share_path
from an_control.view.process import make_live_page_launch_action
from an_control.wiring import Wiring, load_wiring
from an_control_sim.bridge.policy_link import COMMAND_S, SOURCES_S, START_S
from an_control_sim.bridge.rehearsal import derive_wiring_for_disturbed_simulation
from an_control_sim.bridge.simulation_file import load_simulation
from an_control_sim.bridge.simulator_node import check_wiring_fits_simulation
from an_control_sim.scrambler.wiring import write_wiring

SHARE = find_share_path("config").parent
TASKS = ("ant", "cartpole", "car_racing", "pong")
FILES = {
    "simulation": (f"{SHARE}/config/", "_sim.yaml", "the simulation YAML"),
    "wiring": (f"{SHARE}/config/", ".yaml", "the robot's wiring YAML"),
    "model": (f"{SHARE}/models/", ".safetensors", "the policy's model file"),
}
"""For each file a triple: the text before the task's name in the default path, the text after it,
and a description of the file."""
OF_THE_POLICY = (
    "check_rate", "trigger", "ramp_s", "monitor", "recovery", "thread_priority", "engine", "record",
)  # fmt: skip
"""Parameters of the policy node that become launch arguments with the same name and meaning."""
ARGUMENTS = {
    **{name: ("", f"{about}; by default the task's") for name, (_, _, about) in FILES.items()},
    "namespace": ("", "the robot's namespace; by default the task, or the robot's name"),
    "episodes": (1, "episodes to run, 0 = until stopped"),
    "seed": (0, "seed of everything random"),
    "realtime": (False, "step by the clock instead of waiting for each command"),
    **{
        one.name: (one.default_as_plain_value, f"{one.help_with_unit}: {one.allowed_values_text}")
        for one in SETTINGS
    },
    "schedule": ("", "path of a schedule YAML: how the disturbance changes during each episode"),
    "scrambler": (False, "read by way of the scrambler even while it changes nothing"),
    "rate": (0.0, "control rate in Hz; 0 = the wiring's"),
    "camera_hz": (0.0, "pictures per simulated second if looked at, 0 = off"),
    "command_timeout_s": (
        0.0,
        f"after this the simulator's safe command counts; 0 = {COMMAND_S:g} s, in real time five"
        " steps",
    ),
    "start_timeout_s": (START_S, "seconds to wait for the policy"),
    "shadow": (False, "in real time: propose on policy/proposed, and command nothing"),
    **{name: (PARAMETERS[name].default, PARAMETERS[name].description) for name in OF_THE_POLICY},
    "view": (False, "show the run in the browser, with the scrambler; prints the page's address"),
    "view_port": (8765, "the page's port, 0 = any"),
}
SIMULATOR_PARAMETERS = (
    "simulation", "wiring", "episodes", "seed", "realtime", *(one.name for one in SETTINGS),
    "schedule", "scrambler", "camera_hz", "command_timeout_s", "start_timeout_s",
)  # fmt: skip


def generate_launch_description() -> LaunchDescription:
    """Return the launch description: arguments, simulator, policy node and the robot's web page."""
    task = DeclareLaunchArgument(
        "task",
        default_value="",
        choices=["", *TASKS],
        description="a robot that ships; empty: simulation, wiring and model say which",
    )
    arguments = [
        DeclareLaunchArgument(
            name,
            default_value=str(default).lower() if isinstance(default, bool) else str(default),
            description=description,
            choices=["true", "false"] if isinstance(default, bool) else None,
        )
        for name, (default, description) in ARGUMENTS.items()
    ]
    return LaunchDescription(
        [task, *arguments, OpaqueFunction(function=make_launch_actions_of_simulation)]
    )


def make_launch_actions_of_simulation(context: LaunchContext) -> list[ExecuteProcess]:
    """Return the launch actions of simulator and policy node and, if wanted, the robot's web page.

    Args:
        context: Launch context with the values of the arguments.

    Raises:
        ValueError: An argument or a file is not valid; nothing is started then.
    """
    given = {name: read_launch_argument(context, name) for name in ARGUMENTS}
    task = LaunchConfiguration("task").perform(context)
    given |= choose_paths_of_yaml_and_model_files(task, given)
    if given["shadow"] and not given["realtime"]:
        raise ValueError(
            "shadow:=true (allowed with realtime:=true): in lockstep each step waits for a command"
        )
    given["scrambler"] = given["scrambler"] or given["view"]
    wiring = load_wiring(given["wiring"])
    given["namespace"] = given["namespace"] or task or wiring.robot
    load_policy(given["model"])
    simulation = load_simulation(given["simulation"])
    lockstep, camera_hz = not given["realtime"], given["camera_hz"]
    check_wiring_fits_simulation(simulation, wiring, lockstep=lockstep, camera_hz=camera_hz)
    if lockstep:
        given["command_timeout_s"] = given["command_timeout_s"] or COMMAND_S
    disturbance = DisturbanceSettings.from_values({one.name: given[one.name] for one in SETTINGS})
    if given["schedule"]:
        load_schedule(given["schedule"])
    policy = {
        "model": given["model"],
        "wiring": prepare_wiring_and_get_path(context, given, wiring, disturbance),
        "mode": "lockstep" if lockstep else "rate",
        "lockstep_wait_s": SOURCES_S,
        "autostart": True,
        "executor": "events",
        "shadow": given["shadow"],
        **{name: given[name] for name in OF_THE_POLICY},
    }
    simulator = {name: given[name] for name in SIMULATOR_PARAMETERS}
    return [
        make_launch_action_of_node("policy_node", "policy", given["namespace"], policy),
        make_launch_action_of_node("simulator", "simulator", given["namespace"], simulator),
        *(
            [make_live_page_launch_action(given["namespace"], given["view_port"])]
            if given["view"]
            else []
        ),
    ]


def choose_paths_of_yaml_and_model_files(
    task: str, argument_values: dict[str, Any]
) -> dict[str, str]:
    """Return the paths of the simulation YAML, the wiring and the model, by argument name.

    If an argument is not given, the path is that of the task's own file.

    Args:
        task: Name of the task; "" for none.
        argument_values: Values of all launch arguments, by name; a path is "" if not given.

    Raises:
        ValueError: A path is not given and there is no task.
    """
    if task:
        return {
            name: argument_values[name] or f"{before}{task}{after}"
            for name, (before, after, _) in FILES.items()
        }
    if lacking := [f"{name}:=" for name in FILES if not argument_values[name]]:
        raise ValueError(f"give task:= ({', '.join(TASKS)}), or {', '.join(lacking)}")
    return {name: argument_values[name] for name in FILES}


def read_launch_argument(context: LaunchContext, name: str) -> Any:
    """Return the value of a launch argument, converted to the type of its default value.

    Args:
        context: Launch context with the values of the arguments.
        name: Name of the argument.

    Raises:
        ValueError: The text cannot be converted; the error names the argument.
    """
    text, kind = LaunchConfiguration(name).perform(context), type(ARGUMENTS[name][0])
    if kind is bool:
        return text == "true"
    try:
        return kind(text)
    except ValueError:
        number = "whole number" if kind is int else "number"
        raise ValueError(f"{name}:={text} is not a {number}: {ARGUMENTS[name][1]}") from None


def prepare_wiring_and_get_path(
    context: LaunchContext,
    argument_values: dict[str, Any],
    wiring: Wiring,
    disturbance: DisturbanceSettings,
) -> str:
    """Return the path of the wiring file for the policy node; write a changed copy if needed.

    A wiring says which topics feed the policy. It is changed if readings may be disturbed, because
    the policy then reads the scrambler's topic, or if the argument `rate` sets the control rate.

    Args:
        context: Launch context, which keeps the copy's temporary folder until the launch ends.
        argument_values: Values of all launch arguments, by name.
        wiring: The robot's wiring.
        disturbance: The disturbance at the start of the simulation.
    """
    scrambled = (
        disturbance.does_disturb_target("readings")
        or argument_values["schedule"]
        or argument_values["scrambler"]
    )
    if scrambled:
        wiring = derive_wiring_for_disturbed_simulation(wiring, argument_values["simulation"])
    if argument_values["rate"]:
        wiring = replace(wiring, rate_hz=argument_values["rate"])
    if not (scrambled or argument_values["rate"]):
        return argument_values["wiring"]
    folder = TemporaryDirectory(prefix="an_control_")
    context.extend_globals({"an_control_wiring": folder})
    path = Path(folder.name) / "wiring.yaml"
    write_wiring(wiring, path)
    return str(path)


def make_launch_action_of_node(
    executable: str, name: str, namespace: str, parameters: dict[str, Any]
) -> Node:
    """Return the launch action that runs a node of this package.

    The launch ends when the node ends. It fails if the node fails.

    Args:
        executable: Name of the executable.
        name: Name of the node.
        namespace: ROS namespace of the node.
        parameters: Values of the node's parameters, by name.
    """
    typed = {key: ParameterValue(one, value_type=type(one)) for key, one in parameters.items()}
    return Node(
        package="an_control",
        executable=executable,
        name=name,
        namespace=namespace,
        parameters=[typed],
        output="screen",
        on_exit=shut_down_after_exit,
    )


def shut_down_after_exit(event: ProcessExited, context: LaunchContext) -> list[Shutdown]:
    """Return the action that ends the launch; launch calls this when a node's process has ended.

    Args:
        event: The end of the process, with its exit status.
        context: Launch context.

    Raises:
        RuntimeError: The process failed; the launch then has exit status 1.
    """
    if event.returncode and not context.is_shutdown:
        raise RuntimeError(f"{event.process_name} failed with exit status {event.returncode}")
    return [Shutdown(reason=f"{event.process_name} is done")]
