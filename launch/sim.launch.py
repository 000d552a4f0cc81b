"""Any of the simulated robots and its policy node; the arguments are those of ant_sim.launch.py.

    ros2 launch an_control sim.launch.py task:=pong episodes:=1 shuffle:=reset

model, wiring, simulation and namespace are the task's where nobody asks for others.
"""

from pathlib import Path

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription, OpaqueFunction
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration

from an_control.share import share_path

SHARE = share_path("config").parent
TASKS = ["ant", "cartpole", "car_racing", "pong"]


def generate_launch_description() -> LaunchDescription:
    task = DeclareLaunchArgument("task", choices=TASKS, description="which robot")
    return LaunchDescription([task, OpaqueFunction(function=simulated)])


def simulated(context: LaunchContext) -> list[DeclareLaunchArgument | IncludeLaunchDescription]:
    """What is declared first keeps its default."""
    task = LaunchConfiguration("task").perform(context)
    defaults = {
        "model": SHARE / f"models/{task}.safetensors",
        "wiring": SHARE / f"config/{task}.yaml",
        "simulation": SHARE / f"config/{task}_sim.yaml",
        "namespace": task,
    }
    ant = Path(__file__).with_name("ant_sim.launch.py")
    return [
        *(DeclareLaunchArgument(name, default_value=str(one)) for name, one in defaults.items()),
        IncludeLaunchDescription(PythonLaunchDescriptionSource(str(ant))),
    ]
