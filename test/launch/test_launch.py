"""The launch files under the real `ros2 launch`, where the ROS 2 tools are installed."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from an_control.disturbance import SETTINGS, Shuffle
from an_control.system.share import share_path

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("launch_ros") is None or shutil.which("ros2") is None,
        reason="needs launch_ros and ros2cli, which PyPI does not have",
    ),
    pytest.mark.skipif(
        importlib.util.find_spec("pybullet") is None, reason="needs pybullet (the extra sim)"
    ),
]
DONE_S = 90.0
PAGE = {"view", "view_port"}
"""Arguments that are no node's."""
START = (
    "#!{python}\nimport sys\nfrom an_control.entry_points import {command}\nsys.exit({command}())\n"
)


def environment(folder: Path) -> dict[str, str]:
    """Finds the launch files and the executables of the code under test."""
    prefix = folder / "prefix"
    if not prefix.exists():
        index = prefix / "share/ament_index/resource_index/packages"
        for path in (index, prefix / "lib/an_control"):
            path.mkdir(parents=True)
        (index / "an_control").touch()
        shutil.copytree(share_path("launch"), prefix / "share/an_control/launch")
        for command in ("policy_node", "simulator"):
            executable = prefix / "lib/an_control" / command
            executable.write_text(START.format(python=sys.executable, command=command))
            executable.chmod(0o755)
    prefixes = [str(prefix), sys.prefix, os.environ.get("AMENT_PREFIX_PATH", "")]
    return {**os.environ, "AMENT_PREFIX_PATH": os.pathsep.join(filter(None, prefixes))}


class Launch:
    """One `ros2 launch` in a process group of its own; `text` is what it has printed so far."""

    def __init__(self, folder: Path, file: str, *arguments: str) -> None:
        self._log = (folder / "log.txt").open("w+b")
        self._process = subprocess.Popen(
            ["ros2", "launch", "an_control", file, *arguments],
            env=environment(folder),
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip

    @property
    def text(self) -> str:
        return Path(self._log.name).read_text(encoding="utf-8", errors="replace")

    def wait_for(self, what: str) -> None:
        """Until it has printed `what`."""
        until = time.monotonic() + DONE_S
        while what not in self.text:
            assert self._process.poll() is None, f"ended without {what!r}:\n{self.text}"
            assert time.monotonic() < until, f"no {what!r}:\n{self.text}"
            time.sleep(0.1)

    def interrupt(self) -> None:
        """What Ctrl-C in a terminal does: SIGINT to the whole group."""
        os.killpg(self._process.pid, signal.SIGINT)

    def end(self) -> int:
        """Its exit status, once it has ended by itself."""
        return self._process.wait(DONE_S)

    def close(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._log.close()


@pytest.fixture
def launch(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Launch]:
    def start(file: str, *arguments: str) -> Launch:
        started = Launch(tmp_path, file, *arguments)
        request.addfinalizer(started.close)
        return started

    return start


def ros2(*arguments: str) -> str:
    """What a ros2 command prints; asked again where it gave up before it had found the node."""
    until = time.monotonic() + DONE_S
    while True:
        done = subprocess.run(
            ["ros2", *arguments], capture_output=True, text=True, timeout=DONE_S, check=False
        )
        if "Node not found" not in done.stderr or time.monotonic() > until:
            break
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("shuffle", ["none", "reset"])
def test_the_ant_walks_and_the_launch_ends_with_its_episodes(
    launch: Callable[..., Launch], shuffle: str
) -> None:
    ant = launch("ant_sim.launch.py", "episodes:=1", f"shuffle:={shuffle}")
    assert ant.end() == 0, ant.text
    assert "episode 0: return" in ant.text
    assert "steps/s" in ant.text
    assert "Traceback" not in ant.text


@pytest.mark.parametrize("task", ["car_racing", "pong"])
def test_a_game_seen_by_camera_is_played_and_the_launch_ends_with_it(
    launch: Callable[..., Launch], task: str, tmp_path: Path
) -> None:
    for module in ("Box2D", "ale_py"):
        pytest.importorskip(module, reason="needs the extra sim")
    from an_control.policy import write_model
    from an_control.policy.random_model import random_model
    from an_control.policy.sizes import CAR_RACING_SIZES, PONG_SIZES

    model, short = tmp_path / "model.safetensors", tmp_path / "short_sim.yaml"
    write_model(model, random_model(CAR_RACING_SIZES if task == "car_racing" else PONG_SIZES))
    text = share_path(f"config/{task}_sim.yaml").read_text()
    short.write_text(f"{text}\noptions: {{max_episode_steps: 50}}\n")
    arguments = f"task:={task}", f"model:={model}", f"simulation:={short}", "shuffle:=reset"
    game = launch("sim.launch.py", *arguments)
    assert game.end() == 0, game.text
    assert "in 50 steps" in game.text and "Traceback" not in game.text


def test_the_shipped_cartpole_balances_under_its_own_names(launch: Callable[..., Launch]) -> None:
    cart = launch("sim.launch.py", "task:=cartpole", "shuffle:=reset")
    assert cart.end() == 0, cart.text
    assert "cartpole.simulator" in cart.text and "episode 0: return" in cart.text
    assert "Traceback" not in cart.text


def test_a_robot_of_ones_own_is_simulated_under_its_own_name(
    launch: Callable[..., Launch], tmp_path: Path
) -> None:
    from an_control.cli import main
    from an_control.policy import AttentionSizes, write_model
    from an_control.policy.random_model import random_model

    arguments = ["--env", "Pendulum-v1", "--out", str(tmp_path)]
    assert main(["new", "pendulum", *arguments]) == 0
    model = tmp_path / "pendulum.safetensors"
    sizes = AttentionSizes(1, neuron=2, queries=4, key=2, inputs=["value"], head=[])
    write_model(model, random_model(sizes))
    files = {"simulation": "pendulum_sim.yaml", "wiring": "pendulum.yaml", "model": model.name}
    given = [f"{name}:={tmp_path / file}" for name, file in files.items()]
    pendulum = launch("sim.launch.py", *given, "shuffle:=reset")
    assert pendulum.end() == 0, pendulum.text
    assert "pendulum.simulator" in pendulum.text and "in 200 steps" in pendulum.text
    assert "Traceback" not in pendulum.text


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["wiring:={config}/ant.yaml"], "simulation:=, model:="),
        (["task:=cartpole", "wiring:={config}/ant.yaml"], "joint_commands of sensor_msgs"),
    ],
)
def test_a_simulation_whose_files_do_not_say_it_all_starts_nothing(
    launch: Callable[..., Launch], arguments: list[str], named: str
) -> None:
    config = share_path("config")
    robot = launch("sim.launch.py", *(one.format(config=config) for one in arguments))
    assert robot.end() == 1
    assert named in robot.text and "process started" not in robot.text


def test_in_real_time_the_ant_is_stopped_on_its_way_and_its_arguments_are_taken(
    launch: Callable[..., Launch],
) -> None:
    ant = launch(
        "ant_sim.launch.py", "realtime:=true", "trigger:=timer", "ramp_s:=0.05", "stop:=1",
        "command_timeout_s:=0.5", "shadow:=false",
    )  # fmt: skip
    assert ant.end() == 0, ant.text
    for said in ("ramp_s: 0.05 s", "e-stop by service", "e-stop cleared", "watchdog  ", "stops  "):
        assert said in ant.text, ant.text
    assert "Traceback" not in ant.text


def test_the_page_is_shown_beside_the_ant_and_ends_with_it(launch: Callable[..., Launch]) -> None:
    for package in ("tornado", "msgspec"):
        pytest.importorskip(package, reason="needs the extra view")
    ant = launch("ant_sim.launch.py", "episodes:=0", "view:=true", "view_port:=0")
    ant.wait_for("http://127.0.0.1:")
    ant.wait_for("acting: 28 of 28 channels")
    ant.interrupt()
    ant.end()
    assert ant.text.count("process has finished cleanly") == 3, ant.text
    assert "Traceback" not in ant.text


def test_ctrl_c_stops_the_ant_cleanly(launch: Callable[..., Launch]) -> None:
    ant = launch("ant_sim.launch.py", "episodes:=0", "realtime:=true")
    ant.wait_for("acting: 28 of 28 channels")
    ant.interrupt()
    ant.end()
    assert ant.text.count("process has finished cleanly") == 2, ant.text
    assert "Traceback" not in ant.text


@pytest.mark.parametrize(
    ("argument", "named"),
    [
        ("wiring:=/no/such.yaml", "/no/such.yaml"),
        ("model:=/no/such.safetensors", "/no/such.safetensors"),
        ("episodes:=many", "episodes:=many"),
        ("realtime:=maybe", '"realtime"'),
        ("shuffle:=often", "'often'"),
    ],
)
def test_a_bad_argument_is_named_and_starts_nothing(
    launch: Callable[..., Launch], argument: str, named: str
) -> None:
    ant = launch("ant_sim.launch.py", argument)
    assert ant.end() == 1
    assert named in ant.text
    assert "process started" not in ant.text


def test_a_rate_the_model_was_not_trained_at_ends_the_launch(launch: Callable[..., Launch]) -> None:
    ant = launch("ant_sim.launch.py", "rate:=20")
    assert ant.end() == 1
    assert "rate_hz: 20" in ant.text


def test_ones_own_robot_is_configured_activated_and_rewired_by_hand(
    launch: Callable[..., Launch],
) -> None:
    robot = launch(
        "policy.launch.py",
        f"wiring:={share_path('config/ant.yaml')}",
        f"model:={share_path('models/ant.safetensors')}",
        "namespace:=bot",
    )
    robot.wait_for("process started")
    node = "/bot/policy"
    until = time.monotonic() + DONE_S
    while node not in ros2("node", "list", "--no-daemon") and time.monotonic() < until:
        pass
    assert "Transitioning successful" in ros2("lifecycle", "set", node, "configure")
    assert "Transitioning successful" in ros2("lifecycle", "set", node, "activate")
    assert "active" in ros2("lifecycle", "get", node)
    parameter = "sources.joints.topic"
    assert "successful" in ros2("param", "set", node, parameter, "other_joints")
    assert "other_joints" in ros2("param", "get", node, parameter)
    robot.interrupt()
    robot.end()
    assert "process has finished cleanly" in robot.text
    assert "Traceback" not in robot.text


POLICY = {
    "wiring": "{ant_wiring}", "model": "{ant_model}", "namespace": "bot", "name": "pilot",
    "params_file": "{params_file}", "mode": "lockstep", "trigger": "timer", "shadow": "true",
    "ramp_s": "0.25", "autostart": "true", "check_rate": "false", "engine": "numpy",
    "use_sim_time": "true", "recovery": "0.125", "watchdog_s": "0.5", "lockstep_wait_s": "2.5",
    "monitor": "off", "executor": "events", "thread_priority": "7", "record": "{recordings}",
    "record_split_s": "60.0", "record_split_mb": "64.0", "record_max_mb": "128.0",
    "black_box_s": "5.0", "black_box": "{boxes}",
}  # fmt: skip
SIMULATED = {
    "wiring": "{ant_wiring}", "model": "{ant_model}", "simulation": "{ant_simulation}",
    "schedule": "{schedule}", "namespace": "bot", "episodes": "0", "seed": "3",
    "realtime": "true", "trigger": "timer", "ramp_s": "0.25", "shadow": "true",
    **{one.name: {bool: "true", int: "2", float: "0.125", Shuffle: "reset+50", str: "rest"}
       .get(one.kind, "2" if one.whole else "0.25..0.5") for one in SETTINGS},
    "scrambler": "true", "rate": "30.0", "check_rate": "false", "camera_hz": "5.0",
    "command_timeout_s": "0.5", "start_timeout_s": "60.0", "engine": "numpy", "monitor": "off",
    "recovery": "0.125", "thread_priority": "7", "record": "{recordings}",
}  # fmt: skip
VALUES = {
    "policy.launch.py": POLICY,
    "ant_sim.launch.py": {"task": "cartpole", **SIMULATED},
    "sim.launch.py": {"task": "cartpole", **SIMULATED},
}
"""Of every argument of every launch file a value that is not its default."""


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Copies of what ships: none of their paths is a default."""
    paths = {"params_file": tmp_path / "params.yaml", "schedule": tmp_path / "schedule.yaml"}
    paths |= {name: tmp_path / name for name in ("recordings", "boxes")}
    paths["params_file"].write_text("/**:\n  ros__parameters:\n    lockstep_wait_s: 3.5\n")
    paths["schedule"].write_text("an_control_schedule: 1\nchanges:\n  900: {missing: 0.25}\n")
    for key, name in (
        ("ant_wiring", "config/ant.yaml"),
        ("ant_simulation", "config/ant_sim.yaml"),
        ("ant_model", "models/ant.safetensors"),
    ):
        paths[key] = tmp_path / f"my_{Path(name).name}"
        paths[key].write_bytes(share_path(name).read_bytes())
    return paths


def declared(file: str) -> dict[str, str]:
    """The arguments of a launch file and their defaults; included files' too."""
    from launch import LaunchContext
    from launch.launch_description_sources import PythonLaunchDescriptionSource
    from launch.utilities import perform_substitutions

    context = LaunchContext()
    context.launch_configurations["task"] = "ant"
    source = PythonLaunchDescriptionSource(str(share_path(f"launch/{file}")))
    return {
        one.name: perform_substitutions(context, one.default_value or [])
        for one in source.get_launch_description(context).get_launch_arguments()
    }


@pytest.mark.parametrize("path", sorted(share_path("launch").iterdir()), ids=lambda path: path.name)
def test_every_launch_argument_is_tested_with_a_value_that_is_not_its_default(path: Path) -> None:
    if path.suffix != ".py":
        return
    arguments = declared(path.name)
    assert VALUES[path.name].keys() | PAGE == arguments.keys()
    assert not VALUES[path.name].items() & arguments.items()


@pytest.mark.parametrize("file", VALUES)
def test_show_args_lists_every_argument(file: str, tmp_path: Path) -> None:
    shown = subprocess.run(
        ["ros2", "launch", "--show-args", "an_control", file],
        env=environment(tmp_path), capture_output=True, text=True, timeout=DONE_S, check=True,
    ).stdout  # fmt: skip
    assert [name for name in VALUES[file] if shown.count(f"    '{name}':\n") != 1] == []


def on_node(node: str) -> dict[str, Any]:
    """All parameters of a node, once it is there."""
    dumped = yaml.safe_load(ros2("param", "dump", node))
    parameters: dict[str, Any] = dumped[node]["ros__parameters"]
    return parameters


@pytest.mark.parametrize("file", VALUES)
def test_every_argument_reaches_its_node_in_its_type(
    launch: Callable[..., Launch], files: dict[str, Path], file: str
) -> None:
    given = {name: value.format(**files) for name, value in VALUES[file].items()}
    started = launch(file, *(f"{name}:={value}" for name, value in given.items()))
    started.wait_for("ramp_s: 0.25 s")
    policy = on_node(f"/{given['namespace']}/{given.get('name', 'policy')}")
    found = dict(policy)
    if file == "policy.launch.py":
        found |= {name: given[name] for name in ("params_file", "namespace", "name")}
    else:
        found = {**on_node("/bot/simulator"), **policy, "wiring": given["wiring"]}
        found |= {name: given[name] for name in ("namespace", "task") if name in given}
        found["rate"] = yaml.safe_load(Path(policy["wiring"]).read_text())["rate_hz"]
        assert policy["mode"] == "rate"
    told = {name: str(found[name]) for name in given}
    assert {name: text.lower() for name, text in told.items()} == {
        name: text.lower() for name, text in given.items()
    }
    started.interrupt()
    started.end()
    assert "has died" not in started.text and "Traceback" not in started.text, started.text


def test_a_number_that_is_none_is_named(launch: Callable[..., Launch]) -> None:
    robot = launch("policy.launch.py", "ramp_s:=soon")
    assert robot.end() == 1
    assert "ramp_s:=soon" in robot.text


def test_a_parameter_file_configures_ones_own_robot(
    launch: Callable[..., Launch], tmp_path: Path
) -> None:
    file = tmp_path / "robot.yaml"
    file.write_text(
        "/**:\n  ros__parameters:\n    autostart: true\n"
        f"    wiring: {share_path('config/ant.yaml')}\n    model: /no/such.safetensors\n"
    )
    robot = launch("policy.launch.py", f"params_file:={file}")
    assert robot.end() == 1
    assert "/no/such.safetensors" in robot.text
