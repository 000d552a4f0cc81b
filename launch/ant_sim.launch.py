"""The simulated Ant and its policy node: `sim.launch.py` with the Ant as its task.

ros2 launch an_control ant_sim.launch.py episodes:=2 shuffle:=reset
"""

from pathlib import Path

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource


def generate_launch_description() -> LaunchDescription:
    """Return the launch description: that of `sim.launch.py`, but with "ant" as the default task.

    `sim.launch.py` declares the argument `task` too. The declaration here comes first, and launch
    uses the default of the first declaration.
    """
    sim = PythonLaunchDescriptionSource(str(Path(__file__).with_name("sim.launch.py")))
    return LaunchDescription(
        [
            DeclareLaunchArgument("task", default_value="ant", description="the robot"),
            IncludeLaunchDescription(sim),
        ]
    )
