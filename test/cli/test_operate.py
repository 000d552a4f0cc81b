"""`an-control status|estop|reset|shadow|activate|deactivate`: a node is operated without ros2."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rclpy")

from stand import SAFE, Stand


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    one = Stand(tmp_path)
    yield one
    one.close()


def operate(program, stand: Stand, *arguments: object):
    """The verb, while the node runs here."""
    return stand.run_beside(lambda: program.run(*arguments))


def test_estop_sends_the_safe_command_and_only_reset_lets_the_policy_act_again(program, stand):
    stand.start()
    free = stand.step(1)
    assert list(free.effort) != SAFE
    ended = operate(program, stand, "estop")
    assert (ended.returncode, ended.stdout) == (0, "/policy: e-stop latched\n"), ended.stderr
    assert list(stand.commands[-1].effort) == SAFE
    shown = operate(program, stand, "status", "/policy", "--once")
    assert shown.returncode == 1
    assert "e-stop by " in shown.stdout and "error" in shown.stdout
    ended = operate(program, stand, "reset", "/policy")
    assert (ended.returncode, ended.stdout) == (0, "/policy: e-stop cleared\n"), ended.stderr
    assert list(stand.step(2).effort) != SAFE


def test_estop_stops_all_nodes_of_a_name_and_says_that_there_are_several(program, stand):
    nodes = [stand.start(activate=False) for _ in range(2)]
    ended = operate(program, stand, "estop", "/policy")
    assert [bool(one._estop.reason) for one in nodes] == [True, True]
    assert ended.returncode == 0
    assert "2 nodes have the name /policy, of which one has answered" in ended.stderr


def test_a_node_is_activated_from_unconfigured_and_deactivated(program, stand):
    stand.start(activate=False)
    assert stand.state() == "unconfigured"
    for _ in range(2):  # a second time it is a success that changes nothing
        ended = operate(program, stand, "activate")
        assert (ended.returncode, ended.stdout) == (0, "/policy: active\n"), ended.stderr
        assert stand.state() == "active"
    stand.connect()
    stand.step(1)
    ended = operate(program, stand, "deactivate", "/policy")
    assert (ended.returncode, ended.stdout) == (0, "/policy: inactive\n"), ended.stderr
    assert stand.state() == "inactive" and list(stand.commands[-1].effort) == SAFE


def test_a_node_that_cannot_be_configured_is_named_with_the_state_it_is_in(program, stand):
    stand.start(activate=False, model="nowhere.safetensors")
    ended = operate(program, stand, "activate", "/policy")
    assert ended.returncode == 1
    assert "/policy: it refused, and is unconfigured; its log says why" in ended.stderr


def test_shadow_off_lets_a_proposing_node_command_and_on_takes_that_back(program, stand):
    stand.start(activate=False, shadow=True)
    assert operate(program, stand, "activate").returncode == 0
    ended = operate(program, stand, "shadow", "off")
    assert ended.returncode == 0, ended.stderr
    assert not stand.node.get_parameter("shadow").value
    assert "commands the robot while it is active" in ended.stdout
    stand.connect()
    stand.step(1)
    assert operate(program, stand, "shadow", "on", "/policy").returncode == 0
    assert stand.node.get_parameter("shadow").value
    stand.until(lambda: not stand.peer.count_publishers("commands"), "no publisher of commands")


def test_status_shows_state_parts_and_rates_and_writes_them_as_json(program, stand, tmp_path):
    stand.start()
    stand.step(1)
    ended = operate(program, stand, "status", "--once", "--json", tmp_path / "status.json")
    assert ended.returncode == 0, ended.stderr
    assert "/policy: active" in ended.stdout and "source joints" in ended.stdout
    assert "rate [Hz]" in ended.stdout and "Traceback" not in ended.stderr
    found = json.loads((tmp_path / "status.json").read_text())
    assert found["state"] == "active"
    assert {"policy", "e-stop", "watchdog", "source tilt"} <= {
        one["part"] for one in found["parts"]
    }


def test_status_of_a_node_without_diagnostics_says_what_to_do(program, stand):
    stand.start(activate=False)
    ended = operate(program, stand, "status", "--once")
    assert ended.returncode == 0, ended.stderr
    assert "/policy: unconfigured; no diagnostics: activate it" in ended.stdout


def test_a_status_that_is_not_printed_on_a_terminal_ends_after_one_table(
    program, stand, monkeypatch
):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in many continuous integration services
    stand.start()
    ended = operate(program, stand, "status", "/policy")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count(": active\n") == 1


def test_a_status_on_a_terminal_goes_on_until_ctrl_c(program, stand):
    stand.start()
    ours, terminal = os.openpty()
    with program.started("status", "/policy", stdout=terminal) as process:
        shown: list[bytes] = []

        def read_three_tables() -> None:
            while b"".join(shown).count(b": active") < 3:
                shown.append(os.read(ours, 4096))
            shown.append(b"done")

        thread = threading.Thread(target=read_three_tables)
        thread.start()
        stand.until(lambda: b"done" in shown or process.poll() is not None, "three tables", 90)
        process.send_signal(signal.SIGINT)
        ended: list[int] = []
        waiter = threading.Thread(target=lambda: ended.append(process.wait(60)))
        waiter.start()
        stand.until(lambda: ended, "the verb's end", 60)
        assert ended == [0], process.stderr.read()
        thread.join()
        waiter.join()
    os.close(ours)
    os.close(terminal)


@pytest.mark.parametrize("verb", [["estop"], ["status", "--once"], ["shadow", "on"], ["activate"]])
def test_without_a_node_it_ends_with_1_and_names_where_it_looked(program, verb):
    ended = program.run(*verb, "--timeout-s", "0.3")
    assert ended.returncode == 1, ended.stdout
    assert "no policy node within 0.3 s" in ended.stderr
    assert f"ROS_DOMAIN_ID {os.environ['ROS_DOMAIN_ID']}" in ended.stderr
    ended = program.run(*verb, "/nobody", "--timeout-s", "0.3")
    assert ended.returncode == 1
    assert "/nobody did not answer within 0.3 s" in ended.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["shadow", "perhaps"],
        ["estop", "no name"],
        ["reset", "policy"],
        ["status", "--timeout-s", "0"],
        ["rewire", "/policy", "tilt=other", "--timeout-s", "-1"],
    ],
)
def test_bad_input_ends_it_with_2(program, arguments):
    ended = program.run(*arguments)
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
