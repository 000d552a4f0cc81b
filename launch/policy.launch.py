"""Launch the policy node for your own robot.

    ros2 launch an_control policy.launch.py wiring:=my_robot.yaml model:=my_policy.safetensors
    ros2 lifecycle set /policy configure && ros2 lifecycle set /policy activate

The node sends commands only after it has been activated: by hand as above, by a lifecycle manager,
or at once with autostart:=true. With shadow:=true it never sends commands to the robot, but
publishes them on ~/proposed.
"""

from typing import Any, List  # noqa: UP035  (launch knows no list[str])

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, ExecuteProcess, OpaqueFunction, Shutdown
from launch.events.process import ProcessExited
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

from an_control.ros.parameter_table import ALL_PARAMETERS, Parameter
from an_control.view.process import make_live_page_launch_action

BOOLEANS = ["true", "false"]


def generate_launch_description() -> LaunchDescription:
    """Return the launch description: arguments, policy node and, if wanted, its web page."""
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
                    choices=list_allowed_values(one),
                )
                for name, one in ALL_PARAMETERS.items()
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
            OpaqueFunction(function=make_launch_actions_of_policy),
        ]
    )


def make_launch_actions_of_policy(context: LaunchContext) -> list[ExecuteProcess]:
    """Return the launch actions of the policy node and, if `view` is true, of the robot's web page.

    A launch argument that is given overrides the parameter file.

    Args:
        context: Launch context with the values of the arguments.
    """
    texts = {name: LaunchConfiguration(name).perform(context) for name in ALL_PARAMETERS}
    given: dict[str, Any] = {
        name: parse_parameter_value(name, text) for name, text in texts.items() if text
    }
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
            on_exit=shut_down_after_exit,
        ),
        *([make_live_page_launch_action(namespace, port)] if shown else []),
    ]


def list_allowed_values(parameter: Parameter) -> list[str] | None:
    """Return the allowed values of the launch argument for a node parameter; None for any value.

    The list contains "", with which the parameter keeps its default value.

    Args:
        parameter: Parameter of the policy node.
    """
    if isinstance(parameter.default, bool):
        return ["", *BOOLEANS]
    if isinstance(parameter.default, tuple):
        return None
    return ["", *parameter.choices] if parameter.choices else None


def parse_parameter_value(name: str, text: str) -> ParameterValue:
    """Convert the text of a launch argument to the type of the node parameter with the same name.

    Args:
        name: Name of the argument and of the parameter.
        text: Value of the argument, which is not empty.

    Raises:
        ValueError: The text is not a number; the error names the argument.
    """
    kind = type(ALL_PARAMETERS[name].default)
    if kind is bool:
        return ParameterValue(text == "true", value_type=bool)
    if kind is tuple:
        names = [one.strip(" '\"") for one in text.strip("[] ").split(",")]
        return ParameterValue([one for one in names if one], value_type=List[str])  # noqa: UP006
    try:
        return ParameterValue(kind(text), value_type=kind)
    except ValueError:
        number = "whole number" if kind is int else "number"
        raise ValueError(
            f"{name}:={text} is not a {number}: {ALL_PARAMETERS[name].description}"
        ) from None


def shut_down_after_exit(event: ProcessExited, context: LaunchContext) -> list[Shutdown]:
    """Return the action that ends the launch; launch calls this when the node's process has ended.

    Args:
        event: The end of the process, with its exit status.
        context: Launch context.

    Raises:
        RuntimeError: The process failed; the launch then has exit status 1.
    """
    if event.returncode and not context.is_shutdown:
        raise RuntimeError(f"{event.process_name} failed with exit status {event.returncode}")
    return [Shutdown(reason=f"{event.process_name} is done")]
