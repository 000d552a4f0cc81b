"""The commands of the tutorials work as the pages show them, the learning cut short."""

import re
import shlex
import shutil
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from live_robot import Robot
from program import Program
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from std_msgs.msg import Float64MultiArray

DOCS = Path(__file__).resolve().parent.parent / "docs"
SHORT = {
    "learn": ["--smoke"],
    "sim": ["--episodes", "1"],
    "evaluate": ["--episodes", "1"],
    "new": ["--seconds", "2"],
    "check": ["--seconds", "2"],
}
"""What makes a verb quick; the last of an option that comes twice counts."""
WAIT_S = 60.0
TRIES = 5


def commands(page: str) -> list[list[str]]:
    """The arguments of each `an-control` in the page's shell blocks."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)
    lines = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    assert all(line[0] == "an-control" for line in lines)
    return [line[1:] for line in lines]


def shortened(arguments: list[str], *, live: bool = False) -> list[str]:
    seconds = SHORT.get(arguments[0], []) if live or arguments[0] not in ("new", "check") else []
    return [*arguments, *seconds]


def test_a_fifth_robot_is_learned_drafted_and_run(tmp_path):
    page = (DOCS / "tutorial/own-robot-simulated.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "swing.py").write_text(code)
    asked = commands("tutorial/own-robot-simulated.md")
    assert [one[0] for one in asked][:4] == ["learn", "new", "check", "sim"]
    returns = []
    for arguments in asked:
        ended = Program(tmp_path).run(*shortened(arguments))
        assert ended.returncode == 0, f"{shlex.join(arguments)}\n{ended.stdout}{ended.stderr}"
        found = re.search(r"^(?:episode 1: )?return +(-?[\d.]+)", ended.stdout, re.MULTILINE)
        if found and "swing" not in arguments[2]:
            returns.append(float(found[1]))
    over_ros, alone = returns[:2]
    assert over_ros == round(alone)


@pytest.fixture
def walker():
    robot = Robot("/walker", period_s=0.02)
    robot.joints(("hip", "knee"))
    driver = Node("driver", namespace="/walker", context=robot.context)
    heard: dict[str, list[Float64MultiArray]] = {"commands": [], "proposed": []}
    for topic, kept in (("leg_controller/commands", "commands"), ("policy/proposed", "proposed")):
        driver.create_subscription(Float64MultiArray, topic, heard[kept].append, 10)
    executor = SingleThreadedExecutor(context=robot.context)
    executor.add_node(driver)
    robot.start()
    yield executor, heard
    executor.shutdown()
    driver.destroy_node()
    robot.close()


def test_the_first_day_on_a_robot_leads_to_a_policy_that_can_be_rewired(tmp_path, walker):
    executor, heard = walker
    program, running = Program(tmp_path), None
    with ExitStack() as stack:
        for arguments in commands("tutorial/own-robot-running.md"):
            if arguments[0] == "run":
                if running is not None:
                    stop(running)
                running = stack.enter_context(program.started(*arguments))
                kind = "proposed" if "--shadow" in arguments else "commands"
                for _ in range(2):  # what the run before has sent may still come the first time
                    for messages in heard.values():
                        messages.clear()
                    end = time.monotonic() + WAIT_S
                    while len(heard[kind]) < 5:
                        assert time.monotonic() < end and running.poll() is None, arguments
                        executor.spin_once(0.1)
                assert kind == "commands" or not heard["commands"]
                continue
            if arguments[0] == "info":
                shutil.copy(tmp_path / "random.safetensors", tmp_path / "walker.safetensors")
            for _ in range(TRIES):  # a busy machine silences the robot for a moment
                ended = program.run(*shortened(arguments, live=True))
                if arguments[0] != "check" or "s without a message" not in ended.stdout:
                    break
            assert ended.returncode == 0, f"{shlex.join(arguments)}\n{ended.stdout}{ended.stderr}"
            if arguments[0] == "new":
                decide(tmp_path / "walker.yaml")
        assert running is not None and running.poll() is None
        stop(running)


def decide(draft):
    """As the page asks for: decide, and delete the comments that say what is still open."""
    text = draft.read_text()
    assert "# SET scale, limits and safe" in text
    draft.write_text(re.sub(r" *# SET .*", "", text))


def stop(process):
    """As Ctrl-C does."""
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=WAIT_S)
    assert process.returncode in (0, 130)
