"""The policy node for your own robot.

    ros2 launch an_control policy.launch.py wiring:=my_robot.yaml model:=my_policy.safetensors
    ros2 lifecycle set /policy configure && ros2 lifecycle set /policy activate

The node acts only once activated: by hand, by a lifecycle manager, or at once with autostart:=true.
With shadow:=true it commands nothing even then, and publishes its commands on ~/proposed instead.
"""

from typing import Any

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, ExecuteProcess, OpaqueFunction, Shutdown
from launch.events.process import ProcessExited
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

from an_control.ros import settings
from an_control.view.process import page_action

BOOLEANS = ["true", "false"]
PARAMETERS = {**settings.PARAMETERS, "use_sim_time": settings.USE_SIM_TIME}


def generate_launch_description() -> LaunchDescription:
    """Return the arguments, and the function that makes the node from them."""
    unset = "; unset: params_file's or the node's default"
    return LaunchDescription(
        [
            DeclareLaunchArgument("namespace", default_value="", description="robot's namespace"),
            DeclareLaunchArgument("name", default_value="policy", description="the node's name"),
            DeclareLaunchArgument(
                "params_file", default_value="", description="a ROS parameter YAML for the node"
            ),
            *(
                DeclareLaunchArgument(
                    name,
                    default_value="",
                    description=one.description + unset,
                    choices=choices(one),
                )
                for name, one in PARAMETERS.items()
            ),
            DeclareLaunchArgument(
                "view",
                default_value="false",
                description="show the robot in the browser; prints the page's address",
                choices=BOOLEANS,
            ),
            DeclareLaunchArgument(
                "view_port", default_value="8765", description="the page's port, 0 = any"
            ),
            OpaqueFunction(function=policy),
        ]
    )


def policy(context: LaunchContext) -> list[ExecuteProcess]:
    """Return the node, and the page if wanted; arguments override the parameter file."""
    texts = {name: LaunchConfiguration(name).perform(context) for name in PARAMETERS}
    given: dict[str, Any] = {name: value(name, text) for name, text in texts.items() if text}
    namespace = LaunchConfiguration("namespace").perform(context)
    shown = LaunchConfiguration("view").perform(context) == "true"
    port = LaunchConfiguration("view_port").perform(context)
    params_file = LaunchConfiguration("params_file").perform(context)
    return [
        Node(
            package="an_control",
            executable="policy_node",
            name=LaunchConfiguration("name"),
            namespace=LaunchConfiguration("namespace"),
            parameters=[part for part in (params_file, given) if part],
            output="screen",
            on_exit=end,
        ),
        *([page_action(namespace, port)] if shown else []),
    ]


def choices(one: settings.Parameter) -> list[str] | None:
    """Return the allowed texts of an argument, if they are few; "" leaves it unset."""
    if isinstance(one.default, bool):
        return ["", *BOOLEANS]
    return ["", *one.choices] if one.choices else None


def value(name: str, text: str) -> ParameterValue:
    """Return a parameter's value in its type.

    Raises:
        ValueError: If the text is no number; names the argument.
    """
    kind = type(PARAMETERS[name].default)
    if kind is bool:
        return ParameterValue(text == "true", value_type=bool)
    try:
        return ParameterValue(kind(text), value_type=kind)
    except ValueError:
        number = "whole number" if kind is int else "number"
        raise ValueError(f"{name}:={text} is no {number}: {PARAMETERS[name].description}") from None


def end(event: ProcessExited, context: LaunchContext) -> list[Shutdown]:
    """End the launch.

    Raises:
        RuntimeError: If the node failed; the launch then has exit status 1.
    """
    if event.returncode and not context.is_shutdown:
        raise RuntimeError(f"{event.process_name} failed with exit status {event.returncode}")
    return [Shutdown(reason=f"{event.process_name} is done")]
