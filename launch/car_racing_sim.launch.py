"""The simulated racing car and its policy node; the arguments are those of ant_sim.launch.py.

ros2 launch an_control car_racing_sim.launch.py episodes:=1 shuffle:=reset
"""

from pathlib import Path

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource

from an_control.share import share_path

TASK = "car_racing"
SHARE = share_path("config").parent
DEFAULTS = {
    "model": SHARE / f"models/{TASK}.safetensors",
    "wiring": SHARE / f"config/{TASK}.yaml",
    "simulation": SHARE / f"config/{TASK}_sim.yaml",
    "namespace": TASK,
}


def generate_launch_description() -> LaunchDescription:
    """What is declared first keeps its default."""
    ant = Path(__file__).with_name("ant_sim.launch.py")
    return LaunchDescription(
        [
            *(
                DeclareLaunchArgument(name, default_value=str(one))
                for name, one in DEFAULTS.items()
            ),
            IncludeLaunchDescription(PythonLaunchDescriptionSource(str(ant))),
        ]
    )
