"""Ctrl-C and SIGTERM at any moment of a start: a silent end, and nothing that still acts.

A real process sends itself the signal, at a chosen import or on entering a chosen function, so that
no moment depends on how busy the machine is.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("gymnasium", reason="needs the extra sim")

from stand import Stand

LIMIT_S = 60.0
AT_IMPORT = """
import os, sys
from an_control.entry_points import {command}
left = {imports}
def hook(event, arguments):
    global left
    if event == "import":
        left -= 1
        if left == 0:
            os.kill(os.getpid(), {number})
sys.addaudithook(hook)
sys.exit({command}())
"""
AT_CALL = """
import importlib, os, sys
from an_control.entry_points import {command}
owner = importlib.import_module({module!r})
for part in {owner!r}.split():
    owner = getattr(owner, part)
really = owner.{name}
def signalled(*arguments, **named):
    os.kill(os.getpid(), {number})
    return really(*arguments, **named)
owner.{name} = signalled
sys.exit({command}())
"""


def ended(code: str, *arguments: object) -> tuple[int, str]:
    """The exit status and standard error of a process that ends by itself.

    Without what Fast DDS says there of ports in shared memory that killed processes left locked.
    """
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    lines = done.stderr.splitlines(keepends=True)
    return done.returncode, "".join(line for line in lines if "RTPS_TRANSPORT_SHM" not in line)


@pytest.mark.parametrize("imports", [1, 100, 400])
@pytest.mark.parametrize("command", ["policy_node", "simulator", "scrambler"])
def test_a_signal_while_an_executable_imports_ends_it_silently_with_0(command, imports):
    number = signal.SIGTERM if imports == 100 else signal.SIGINT
    code = AT_IMPORT.format(command=command, imports=imports, number=int(number))
    assert ended(code) == (0, "")


@pytest.mark.parametrize("imports", [1, 150])
@pytest.mark.parametrize("verb", ["run", "sim"])
def test_an_interrupt_while_the_command_line_imports_ends_it_silently_with_130(
    verb, imports, tmp_path
):
    one = Stand(tmp_path)
    one.close()
    given = ["ant"] if verb == "sim" else ["--wiring", one.wiring, "--model", one.model]
    code = AT_IMPORT.format(command="an_control", imports=imports, number=int(signal.SIGINT))
    assert ended(code, verb, *given) == (130, "")


def test_an_import_that_answers_an_interrupt_with_its_own_error_is_still_interrupted(tmp_path):
    """As an extension module does, whose own import of numpy was interrupted."""
    (tmp_path / "inspect_slowly.py").write_text(
        "import os, signal\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT)\n"
        "except KeyboardInterrupt:\n    raise ImportError('numpy.core failed to import')\n"
    )
    code = (
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
        "from an_control.entry_points import an_control\n"
        "from an_control.cli import models\n"
        "models.InfoCommand.run = lambda self: __import__('inspect_slowly')\n"
        "sys.exit(an_control())\n"
    )
    said = "an-control info: interrupted\n"
    assert ended(code, "info", "model.safetensors") == (130, said)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        ("rclpy", "init"),
        ("PolicyNode", "__init__"),
        ("PolicyNode", "trigger_configure"),
        ("PolicyNode", "_make_loop"),
    ],
)
def test_a_signal_before_the_policy_node_acts_keeps_it_from_acting(tmp_path, owner, name):
    one = Stand(tmp_path)
    one.close()
    number = int(signal.SIGTERM if owner == "rclpy" else signal.SIGINT)
    code = AT_CALL.format(
        command="policy_node", module="an_control.ros.node", owner=owner, name=name, number=number
    ).replace(
        "sys.exit(",
        "from an_control.ros.node import PolicyNode\n"
        "PolicyNode.on_activate = lambda self, state: sys.exit('activated')\n"
        "sys.exit(",
    )
    given = {"wiring": one.wiring, "model": one.model, "engine": "numpy", "autostart": "true"}
    parameters = [part for key, value in given.items() for part in ("-p", f"{key}:={value}")]
    assert ended(code, "--ros-args", "--log-level", "warn", *parameters) == (0, "")


@pytest.mark.parametrize("command", ["simulator", "scrambler"])
@pytest.mark.parametrize(("owner", "name"), [("rclpy", "init"), ("rclpy", "try_shutdown")])
def test_a_signal_while_ros_comes_and_goes_ends_the_others_with_0(command, owner, name):
    module = "an_control_sim.process"
    config = Path(__file__).parent.parent / "config"
    key, file = {"simulator": ("simulation", "ant_sim"), "scrambler": ("wiring", "ant")}[command]
    given = ["-p", f"{key}:={config / file}.yaml"]
    if name == "try_shutdown":
        given = ["-p", f"{key}:=gone.yaml"]
    code = AT_CALL.format(
        command=command, module=module, owner=owner, name=name, number=int(signal.SIGINT)
    )
    status, errors = ended(code, "--ros-args", *given)
    assert "Traceback" not in errors
    assert status == (2 if name == "try_shutdown" else 0), errors


@pytest.mark.parametrize("command", ["policy_node", "simulator", "scrambler", "an_control"])
def test_a_second_signal_while_python_ends_leaves_the_status_as_it_was(command):
    code = (
        "import os, signal, sys\n"
        f"from an_control.entry_points import {command}\n"
        "class Late:\n"
        "    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGINT):\n"
        "        kill(pid, number)\n"
        "late = Late()\n"
        f"sys.exit({command}())\n"
    )
    status, errors = ended(code, "--ros-args", "-p", "wiring")
    assert status == 2, errors


@pytest.mark.parametrize(
    ("command", "parameters"),
    [
        ("policy_node", ["wiring:=''", "mode:='rate', one of rate, lockstep", "watchdog_s:=-1.0"]),
        ("simulator", ["simulation:=''", "seed:=0, from 0 to 2147483647", "shuffle:='none'"]),
        ("scrambler", ["wiring:=''", "mode:='rate'", "noise_sd:="]),
    ],
)
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_an_executable_that_is_asked_for_help_prints_its_parameters_and_starts_no_ros(
    command, parameters, option
):
    code = (
        "import rclpy, sys\n"
        f"from an_control.entry_points import {command}\n"
        "rclpy.init = lambda *_, **__: sys.exit('ROS starts')\n"
        f"sys.exit({command}())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, option],
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: {command} [--ros-args")
    for line in (*parameters, "--params-file FILE"):
        assert line in done.stdout


@pytest.mark.parametrize("command", ["policy_node", "simulator", "scrambler"])
def test_the_help_of_an_executable_whose_reader_has_gone_ends_without_a_word(command):
    code = f"import sys; from an_control.entry_points import {command}; sys.exit({command}())"
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, "--help"],
            stdout=writer, stderr=subprocess.PIPE, timeout=LIMIT_S, check=False,
        )  # fmt: skip
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
