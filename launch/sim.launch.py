"""Any of the simulated robots and its policy node; the arguments are those of ant_sim.launch.py.

    ros2 launch an_control sim.launch.py task:=pong episodes:=1 shuffle:=reset

model, wiring, simulation and namespace are the task's where nobody asks for others.
"""

from pathlib import Path

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration

from an_control.system.share import share_path

SHARE = share_path("config").parent
TASKS = ["ant", "cartpole", "car_racing", "pong"]
DEFAULTS = {
    "model": (f"{SHARE}/models/", ".safetensors"),
    "wiring": (f"{SHARE}/config/", ".yaml"),
    "simulation": (f"{SHARE}/config/", "_sim.yaml"),
    "namespace": ("", ""),
}
"""What stands before and after the task in the default."""


def generate_launch_description() -> LaunchDescription:
    """What is declared first keeps its default."""
    task = LaunchConfiguration("task")
    ant = PythonLaunchDescriptionSource(str(Path(__file__).with_name("ant_sim.launch.py")))
    return LaunchDescription(
        [
            DeclareLaunchArgument("task", choices=TASKS, description="which robot"),
            *(
                DeclareLaunchArgument(
                    name, default_value=[before, task, after], description="the task's by default"
                )
                for name, (before, after) in DEFAULTS.items()
            ),
            IncludeLaunchDescription(ant),
        ]
    )
