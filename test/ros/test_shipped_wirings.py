"""Every wiring that ships runs by `an-control run`: alone, beside its robot, until Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from an_control.system.share import find_share_path
from an_control.wiring import load_wiring
from an_control_sim.bridge.simulation_file import load_simulation

LIMIT_S = 180.0
RUN = "import sys; from an_control.cli import main; sys.exit(main())"
CONFIG = find_share_path("config")
WIRINGS = sorted(
    path.stem for path in CONFIG.glob("*.yaml") if "\nan_control_wiring:" in path.read_text()
)
NEEDS = {"ant": ("pybullet",), "car_racing": ("Box2D", "cv2"), "pong": ("ale_py", "cv2")}


class Process:
    """A process whose output is read from a file as it comes."""

    def __init__(self, log: Path, *arguments: object) -> None:
        self._log = log
        with log.open("wb") as file:
            self.popen = subprocess.Popen(
                [sys.executable, *map(str, arguments)], stdout=file, stderr=subprocess.STDOUT
            )

    @property
    def text(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, what: str) -> None:
        end_s = time.monotonic() + LIMIT_S
        while what not in self.text:
            assert self.popen.poll() is None, f"ended without {what!r}:\n{self.text}"
            assert time.monotonic() < end_s, f"no {what!r} in {LIMIT_S:g} s:\n{self.text}"
            time.sleep(0.05)

    def interrupt(self) -> int:
        """Do what Ctrl-C does, and return the exit status."""
        self.popen.send_signal(signal.SIGINT)
        return self.popen.wait(LIMIT_S)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def begin(*arguments: object) -> Process:
        started.append(Process(tmp_path / f"{len(started)}.log", *arguments))
        return started[-1]

    yield begin
    for one in started:
        one.popen.kill()
        one.popen.wait()


def test_wirings_ship_and_each_has_a_model_and_a_simulation() -> None:
    assert len(WIRINGS) >= 5
    for name in WIRINGS:
        assert find_share_path(f"models/{name}.safetensors").exists(), name
        load_simulation(CONFIG / f"{name}_sim.yaml")


@pytest.mark.parametrize("name", WIRINGS)
def test_a_shipped_wiring_waits_for_its_robot_acts_beside_it_and_ends_at_ctrl_c(
    name: str, start: Callable[..., Process]
) -> None:
    for package in ("gymnasium", "numba", *NEEDS.get(name, ())):
        pytest.importorskip(package, reason="needs the sim extra")
    wiring = CONFIG / f"{name}.yaml"
    files = "--wiring", wiring, "--model", find_share_path(f"models/{name}.safetensors")
    quick = "-p", "engine:=numpy"  # what is not compiled yet would be compiled first
    policy = start("-c", RUN, "run", *files, "--activate", "--", *quick)
    policy.wait_for("waiting for the first message of ")
    waiting = (
        policy.text.partition("waiting for the first message of ")[2].split("\n")[0].split(", ")
    )
    for source in load_wiring(wiring).sources:
        assert source.name in waiting, policy.text
    simulation = f"simulation:={CONFIG / f'{name}_sim.yaml'}"
    given = [simulation, "realtime:=true", "episodes:=0"]
    robot = start(
        "-m", "an_control_sim.bridge.simulator_node", "--ros-args",
        *(part for one in given for part in ("-p", one)),
    )  # fmt: skip
    policy.wait_for("acting: ")
    assert policy.interrupt() == 0, policy.text
    assert robot.interrupt() == 0, robot.text
    assert "Traceback" not in policy.text and "[FATAL]" not in policy.text, policy.text
