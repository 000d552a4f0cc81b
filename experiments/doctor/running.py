"""Measure the wiring doctor beside a control loop: how long ticks take, and what it announces.

    python -m experiments.doctor.running ticks [--seconds N]
    python -m experiments.doctor.running healthy [--seconds N] [--seeds N]

The loop is that of a policy node without ROS, on the simulated robot. `ticks` runs in real time,
and changes every 300 ticks (control steps) between no doctor, one that only watches, and one whose
process examines recordings all the time. `healthy` runs a robot whose wiring is right, as it is or
with another mass, friction, lag or motor gain; the doctor answers 2.5 simulated seconds after it
was asked. It prints what was announced, of which nothing is right.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from an_control.commissioning.doctor.worker import Examiner
from an_control.control.controller import Controller
from an_control.disturbance import DisturbanceSettings
from an_control.ros.doctor.process import Request
from an_control.ros.doctor.running_doctor import RunningDoctor
from an_control_sim.bridge.direct_robot import DirectRobot
from an_control_sim.bridge.simulation_file import load_simulation
from experiments.doctor.mistakes import MODELS

CONFIG = MODELS.parent / "config"
ROBOTS = ("ant", "mobile_base")
OTHERS = ("", "mass=1.3", "mass=1.6", "friction=0.5", "lag=0.3", "lag=0.5", "gain=0.7")
BLOCK, SETTLED = 300, 30
"""Ticks between two changes, and ticks after a change that are not counted."""
ANSWER_S = 2.5
"""Simulated seconds until the doctor answers."""


class ControlLoop:
    """A policy's control loop on a simulated robot, while a doctor looks for wiring mistakes.

    Args:
        name: The robot, "ant" or "mobile_base".
        difference: How the robot differs from the usual one, such as "mass=1.3"; "" for not at all.
        process: An `AnsweringExaminer`, which examines recordings in place of the doctor's separate
            process; the doctor then measures time by the simulated clock. None: the doctor starts
            the process, and measures time by the computer's clock.
    """

    def __init__(self, name: str, difference: str = "", process: Any = None) -> None:
        model = str(MODELS / f"{name}.safetensors")
        self.controller = Controller(str(CONFIG / f"{name}.yaml"), model, None)
        simulation = load_simulation(CONFIG / f"{name}_sim.yaml")
        self._direct = DirectRobot(simulation, self.controller.wiring, self.controller.messages)
        self.robot = self._direct.robot
        if difference:
            key, value = difference.split("=")
            self.robot.vary_robot(DisturbanceSettings.from_values({key: float(value)}))
        self.said: list[str] = []
        logger: Any = SimpleNamespace(
            warning=self.said.append, error=self.said.append, info=lambda text: None
        )
        self.doctor = RunningDoctor(
            logger,
            self.controller,
            lambda conversions: None,
            process=process,
            clock=time.monotonic if process is None else self.get_time_s,
        )
        self.tick_s = self.cpu_s = self.doctor_s = 0.0
        """How long the last tick took until its command was decided, its processor time, and how
        long the doctor's part took after that."""
        self._episodes = 0

    def get_time_s(self) -> float:
        """Return the simulated time in seconds."""
        return self._direct.now_ns / 1e9

    def step(self, seed: int, *, watched: bool, wait: Callable[[], object] = lambda: None) -> None:
        """Make one tick of the controller and one step of the robot, and measure the time.

        A new episode is started first if the last one is over. The doctor gets the readings if
        `watched`. `wait` is called after the readings were stored and before the time is measured.
        """
        controller, robot, doctor = self.controller, self.robot, self.doctor
        if not self._episodes or robot.over:
            robot.reset(1000 * seed + self._episodes)
            self._episodes += 1
            controller.reset()
            controller.gate.last.forget_command()
            controller.start()
            doctor.mark_gap_before_next_tick()
        self._direct.store_readings_of_next_step(controller.table)
        now_ns = self._direct.now_ns
        wait()
        before, begin_s, begin_cpu_s = (
            controller.gate.last.values, time.perf_counter(), time.thread_time(),
        )  # fmt: skip
        decision = controller.decide(now_ns, now_ns)
        sent = controller.compute_command(None)
        self.tick_s = time.perf_counter() - begin_s
        self.cpu_s = time.thread_time() - begin_cpu_s
        controller.gate.last.record(sent, now_ns)
        controller.acting.policy.prepare_next_tick()
        begin_s = time.perf_counter()
        if watched:
            doctor.record_tick_and_check_readings(decision, before, now_ns, now_ns)
        self.doctor_s = time.perf_counter() - begin_s
        self._direct.step(sent)


class AnsweringExaminer:
    """A substitute for the doctor's process, whose answers come after 2.5 simulated seconds.

    Results then do not depend on the computer's speed.
    """

    failure = ""

    def __init__(self) -> None:
        self.asked = 0
        self.now_s: Callable[[], float] = time.monotonic
        """Returns the time in seconds by which answers come."""
        self._examiner, self._due_s = Examiner(), 0.0
        self._answer: list[dict[str, Any]] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a request was sent whose answer has not been fetched yet."""
        return self._answer is not None

    def send_request(self, request: Request) -> None:
        """Examine the recording in a request at once, and keep the findings for `pop_answer`."""
        about, arrays = request()
        content = io.BytesIO()
        np.savez(content, about=np.array(json.dumps(about)), **arrays)  # type: ignore[arg-type]
        self._answer = json.loads(
            json.dumps(self._examiner.find_wiring_mistakes(content.getvalue()))
        )
        self.asked, self._due_s = self.asked + 1, self.now_s() + ANSWER_S

    def pop_answer(self) -> list[dict[str, Any]] | None:
        """Return the findings of the last request when they are due; None before and afterwards."""
        if self.now_s() < self._due_s:
            return None
        answer, self._answer = self._answer, None
        return answer

    def close(self) -> None:
        """Do nothing, because there is no process to end."""


def measure_and_print_tick_times(seconds: float) -> None:
    """Print how long the Ant's control steps take without the wiring doctor, and with it."""
    loop = ControlLoop("ant")
    doctor, modes = loop.doctor, ("off", "watching", "examining")
    times: dict[str, list[tuple[float, float, float]]] = {mode: [] for mode in modes}
    sys.setswitchinterval(0.0005)
    gc.collect()
    gc.freeze()
    step_s = loop.robot.simulation.step_s
    start_s = time.perf_counter()
    for number in range(round(seconds / step_s)):
        mode = modes[number // BLOCK % len(modes)]
        due_s = start_s + number * step_s
        loop.step(
            1,
            watched=mode != "off",
            wait=partial(_wait_until, due_s),
        )
        if mode == "off":
            doctor.mark_gap_before_next_tick()
        elif mode == "examining" and doctor._watch is not None and not doctor.process.is_busy:
            doctor._examinations.send_request(doctor._watch.ticks)
        if number % BLOCK >= SETTLED:
            times[mode].append((loop.tick_s, loop.cpu_s, loop.doctor_s))
    doctor.close()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    for mode, rows in times.items():
        tick, cpu, own = 1e6 * np.array(rows).T
        print(
            f"{mode:9}  {len(rows)} ticks, us: median {np.median(tick):.0f},"
            f" p99 {np.percentile(tick, 99):.0f}; processor time median {np.median(cpu):.0f},"
            f" p99 {np.percentile(cpu, 99):.0f}; the doctor's part median {np.median(own):.1f}"
        )


def _wait_until(due_s: float) -> None:
    """Wait until a time by `time.perf_counter`."""
    time.sleep(max(0.0, due_s - time.perf_counter()))


def print_findings_on_healthy_robots(seconds: float, seeds: int) -> None:
    """Run robots whose wiring is right, and print which mistakes the doctor wrongly reports."""
    total = 0
    for name in ROBOTS:
        for other in OTHERS if name == "ant" else OTHERS[:1]:
            for seed in range(1, seeds + 1):
                examiner = AnsweringExaminer()
                loop = ControlLoop(name, other, examiner)
                examiner.now_s = loop.get_time_s
                ticks = round(seconds / loop.robot.simulation.step_s)
                for _ in range(ticks):
                    loop.step(seed, watched=True)
                total += ticks
                said = "; ".join(loop.said) or "nothing"
                print(
                    f"{name} {other or 'none'}, seed {seed}: {ticks} ticks, asked"
                    f" {examiner.asked} times: {said}",
                    flush=True,
                )
    print(f"{total} ticks in all")


def main() -> None:
    """Measure what the wiring doctor costs and how often it is wrong; print the result.

    The argument "ticks" measures the times of control steps while the doctor runs, "healthy" counts
    its false alarms. The doctor looks for wiring mistakes while the robot moves.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("what", choices=["ticks", "healthy"])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    if given.what == "ticks":
        measure_and_print_tick_times(given.seconds)
    else:
        print_findings_on_healthy_robots(given.seconds, given.seeds)


if __name__ == "__main__":
    main()
