"""Any simulated robot and its policy node; the other arguments are those of ant_sim.launch.py.

    ros2 launch an_control sim.launch.py task:=pong episodes:=1 shuffle:=reset
    ros2 launch an_control sim.launch.py simulation:=S.yaml wiring:=W.yaml model:=M.safetensors

simulation, wiring, model and namespace are the task's where nobody gives others; without a task the
three files must be given, and the namespace is the robot's name in the wiring.
"""

from pathlib import Path

from launch import LaunchContext, LaunchDescription
from launch.actions import (
    DeclareLaunchArgument,
    IncludeLaunchDescription,
    OpaqueFunction,
    SetLaunchConfiguration,
)
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration

from an_control.system.share import share_path
from an_control.wiring import load_wiring

SHARE = share_path("config").parent
TASKS = ["ant", "cartpole", "car_racing", "pong"]
FILES = {
    "simulation": (f"{SHARE}/config/", "_sim.yaml", "the simulation YAML"),
    "wiring": (f"{SHARE}/config/", ".yaml", "the robot's wiring YAML"),
    "model": (f"{SHARE}/models/", ".safetensors", "the policy's model file"),
}
"""What stands before and after the task in a file's default, and what the file is."""


def generate_launch_description() -> LaunchDescription:
    """What is declared and set first is kept by the description that is included."""
    ant = PythonLaunchDescriptionSource(str(Path(__file__).with_name("ant_sim.launch.py")))
    return LaunchDescription(
        [
            DeclareLaunchArgument(
                "task", default_value="", choices=["", *TASKS],
                description="a robot that ships; empty: simulation, wiring and model say which",
            ),
            *(
                DeclareLaunchArgument(
                    name, default_value="", description=f"{about}; by default the task's"
                )
                for name, (_, _, about) in FILES.items()
            ),
            DeclareLaunchArgument(
                "namespace", default_value="",
                description="the robot's namespace; by default the task, or the robot's name",
            ),
            OpaqueFunction(function=fill),
            IncludeLaunchDescription(ant),
        ]
    )  # fmt: skip


def fill(context: LaunchContext) -> list[SetLaunchConfiguration]:
    """Set what was not given; ValueError where no task says what it is."""
    task = LaunchConfiguration("task").perform(context)
    files = {name: LaunchConfiguration(name).perform(context) for name in FILES}
    if task:
        files = {
            name: files[name] or f"{before}{task}{after}"
            for name, (before, after, _) in FILES.items()
        }
    elif lacking := [f"{name}:=" for name, path in files.items() if not path]:
        raise ValueError(f"give task:= ({', '.join(TASKS)}), or {', '.join(lacking)}")
    namespace = LaunchConfiguration("namespace").perform(context)
    namespace = namespace or task or load_wiring(files["wiring"]).robot
    return [
        SetLaunchConfiguration(name, value)
        for name, value in {**files, "namespace": namespace}.items()
    ]
