"""`an-control run`: the policy node alone."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("rclpy")

from rcl_interfaces.srv import GetParameters
from stand import SAFE, WIRING, Stand, tiny_model

from an_control import cli


@pytest.fixture
def stand(tmp_path: Path):
    one = Stand(tmp_path)
    yield one
    one.close()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "wiring.yaml").write_text(WIRING)
    return tiny_model(tmp_path / "model.safetensors")


def test_it_acts_at_once_where_asked_to_and_ends_with_the_safe_command(program, stand):
    arguments = ["--wiring", stand.wiring, "--model", stand.model, "--activate", "--namespace", "x"]
    remaps = ["-r", "commands:=/commands", "-r", "tilt:=/tilt", "-r", "joint_states:=/joint_states"]
    with program.started("run", *arguments, "--", *remaps) as process:
        stand.until(lambda: stand.commands, "a command", 60)
        assert list(stand.commands[0].effort) == SAFE
        known = stand.peer.get_node_names_and_namespaces
        stand.until(lambda: ("policy", "/x") in known(), "the node's name")
        stand.connect()
        count = len(stand.commands)

        def moved() -> bool:
            stand.send(0)
            stand.executor.spin_once(timeout_sec=0.02)
            return any(list(one.effort) != SAFE for one in stand.commands[count:])

        stand.until(moved, "a command that answers the readings", 20)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    stand.until(lambda: list(stand.commands[-1].effort) == SAFE, "the safe command last")


def test_without_being_asked_to_it_waits_for_a_lifecycle_manager(program, stand):
    arguments = ["--wiring", stand.wiring, "--model", stand.model, "--thread-priority", "7"]
    with program.started("run", *arguments) as process:
        stand.until(lambda: stand.state() == "unconfigured", "the node", 60)
        request = GetParameters.Request(names=["thread_priority"])
        (value,) = stand.call(GetParameters, "policy/get_parameters", request).values
        assert value.integer_value == 7
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors


def test_what_is_set_after_the_dashes_counts_unless_an_option_sets_it_too(
    stand, tmp_path, monkeypatch
):
    got: list[str] = []
    monkeypatch.setattr("an_control.ros.node.main", lambda arguments: got.extend(arguments) or 0)
    (tmp_path / "params.yaml").write_text("/**: {ros__parameters: {shadow: true, ramp_s: 3.0}}\n")
    arguments = ["run", "--wiring", str(stand.wiring), "--model", str(stand.model), "--ramp", "2"]
    after = ["-p", "trigger:=timer", "--params-file", str(tmp_path / "params.yaml")]
    assert cli.main([*arguments, "--", *after]) == 0
    node = stand.start(activate=False, options={"cli_args": got, "parameter_overrides": []})
    values = {name: node.get_parameter(name).value for name in ("shadow", "trigger", "ramp_s")}
    assert values == {"shadow": True, "trigger": "timer", "ramp_s": 2.0}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("rate_hz: 100.0", "rate_hz: 50"), "rate_hz: 50, but the model was trained at 100 Hz"),
        (("rate_hz: 100.0", "rate_hz: fast"), "rate_hz"),
        (("robot: tiny", "robot: tiny\nrobot: other"), "robot"),
        (("sensor_msgs/msg/JointState, max", "sensor_msgs/msg/Nothing, max"), "Nothing"),
    ],
)
def test_a_bad_wiring_ends_it_with_2_and_one_line(program, model, tmp_path, change, said):
    (tmp_path / "wiring.yaml").write_text(WIRING.replace(*change, 1))
    one_line(program.run("run", "--wiring", tmp_path / "wiring.yaml", "--model", model), said)


def test_missing_files_end_it_with_2_and_one_line(program, model, tmp_path):
    one_line(program.run("run", "--wiring", "gone.yaml", "--model", model), "gone.yaml")
    one_line(program.run("run", "--wiring", tmp_path / "wiring.yaml", "--model", "gone"), "gone")


def test_bad_ros_arguments_end_it_with_2(program, model, tmp_path):
    files = ["--wiring", tmp_path / "wiring.yaml", "--model", model]
    ended = program.run("run", *files, "--", "--params-file", "gone.yaml")
    assert ended.returncode == 2 and "gone.yaml" in ended.stderr
    ended = program.run("run", *files, "--thread-priority", "99")
    assert ended.returncode == 2 and "thread_priority" in ended.stderr
    ended = program.run("run", *files, "--namespace", "no space")
    assert ended.returncode == 2 and "Traceback" not in ended.stderr


def test_a_path_with_odd_characters_is_a_path(program, stand, tmp_path):
    folder = tmp_path / "my robot: #1 {x}"
    folder.mkdir()
    wiring, model = folder / "it's.yaml", folder / "1e3"
    wiring.write_text(WIRING)
    model.write_bytes(stand.model.read_bytes())
    with program.started("run", "--wiring", wiring, "--model", model, "--activate"):
        stand.until(lambda: stand.commands, "a command", 60)


def one_line(ended: subprocess.CompletedProcess[str], said: str) -> None:
    assert ended.returncode == 2, ended.stderr
    assert said in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1, ended.stderr
