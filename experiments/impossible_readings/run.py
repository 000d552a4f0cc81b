"""Measure how long the shipped Ant's control steps take on readings that fit no assignment.

    python -m experiments impossible_readings [--loops 0 2] [--json FILE]

A tick is a control step. An assignment says which sensor signal arrives in which channel; the Ant's
monitor looks for one. The experiment first calls the library directly, with a pause before each
tick. Then it starts the policy node as a process and publishes the readings to it at the Ant's
rate. Meanwhile `--loops` processes that only compute run too. The wall-clock time and the processor
time of a tick are reported, which differ when other processes take the core.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from an_control import load_policy
from an_control.monitor.forward_model import get_channel_ranges_in_training
from an_control.policy import read_model
from an_control.system.share import find_share_path

MODEL = find_share_path("models/ant.safetensors")
POSE_TICKS, SWING_TICKS = 400, 1000
"""Ticks after which the robot hangs in another pose, and ticks after which its legs swing
differently."""
SETTLE_TICKS = 100
"""Ticks of the node that are not measured."""
QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


class TrainedRanges:
    """The range that each of the Ant's readings had in training.

    Attributes:
        ids: The ids of the channels (N,).
        low: The lowest readings (N,).
        high: The highest readings (N,).
        contacts: The indices of the foot contacts.
        speeds: The indices of the velocities.
        pose: The indices of roll, pitch and height.
    """

    def __init__(self) -> None:
        ranges = get_channel_ranges_in_training(read_model(MODEL))
        self.ids = tuple(ranges)
        self.low, self.high = np.array(list(ranges.values())).T
        place = {name: number for number, name in enumerate(self.ids)}
        self.contacts = [place[name] for name in self.ids if name.endswith("contact")]
        self.speeds = [place[name] for name in self.ids if "velocity" in name]
        self.pose = [place[name] for name in ("roll", "pitch", "height")]


def generate_readings_on_stand(
    ranges: TrainedRanges, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Yield readings (N,) of an Ant that hangs upside down on a stand, with no ground contact."""
    for tick in range(1 << 62):
        if tick % POSE_TICKS == 0:
            base = rng.uniform(ranges.low, ranges.high)
            base[ranges.pose] = rng.uniform(2, 3), rng.uniform(-1.5, -1.0), 0.6
            base[ranges.speeds] = 0.0
        values = base + 0.003 * rng.standard_normal(len(base))
        values[ranges.contacts] = 0.0
        yield values


def generate_readings_while_carried(
    ranges: TrainedRanges, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Yield readings (N,) that drift at random, as if the Ant were carried by hand."""
    values, span = (ranges.low + ranges.high) / 2, ranges.high - ranges.low
    while True:
        step = 0.1 * span * rng.standard_normal(len(span)) * rng.random()
        values = np.clip(values + step, ranges.low, ranges.high)
        yield values


def generate_readings_on_side(
    ranges: TrainedRanges, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Yield readings (N,) of an Ant that lies on its side and swings its legs at random."""
    middle, half = (ranges.low + ranges.high) / 2, (ranges.high - ranges.low) / 2
    for tick in range(1 << 62):
        if tick % SWING_TICKS == 0:
            speed, start = rng.uniform(0.02, 0.3, len(half)), rng.uniform(0.0, 6.3, len(half))
        values = middle + 0.8 * half * np.sin(speed * tick + start)
        values[ranges.pose] = np.array([1.55, 0.3, -0.4]) + 0.02 * rng.standard_normal(3)
        values[ranges.contacts] = rng.random(len(ranges.contacts)) < 0.2
        yield values


ReadingSource = Callable[[TrainedRanges, np.random.Generator], Iterator[np.ndarray]]
KINDS: dict[str, ReadingSource] = {
    "on a stand": generate_readings_on_stand,
    "carried": generate_readings_while_carried,
    "on its side": generate_readings_on_side,
}


@contextmanager
def keep_processors_busy(count: int) -> Iterator[None]:
    """Run `count` processes that only compute, while the `with` block runs."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def measure_library_tick_times(kind: ReadingSource, count: int, pause_s: float) -> np.ndarray:
    """Measure how long control steps of the Ant's policy take if it is called without ROS.

    `kind` generates the readings. There is a pause of `pause_s` before each of the `count` steps.
    Return the wall-clock time and the processor time of each step in seconds (count, 2).
    """
    policy, ranges, times_s = load_policy(MODEL), TrainedRanges(), np.empty((count, 2))
    readings = kind(ranges, np.random.default_rng(0))
    for number in range(-SETTLE_TICKS, count):
        values = next(readings)
        if pause_s:
            time.sleep(pause_s)
        begin_s, begin_cpu_s = time.perf_counter(), time.thread_time()
        policy.step_array(values, ranges.ids)
        cpu_s = time.thread_time() - begin_cpu_s
        if number >= 0:
            times_s[number] = time.perf_counter() - begin_s, cpu_s
    return times_s


def make_wiring(ranges: TrainedRanges, rate_hz: float, actuators: list[str]) -> str:
    """Return the text of a wiring: one message array has all channels, another all actuators."""
    channels = "".join(
        f"  {name}: {{source: all, field: 'data[{place}]'}}\n"
        for place, name in enumerate(ranges.ids)
    )
    commands = "".join(f"    {name}: {{limits: [-1, 1], safe: 0.0}}\n" for name in actuators)
    return f"""an_control_wiring: 1
robot: ant
rate_hz: {rate_hz}
min_present_share: 0.5
sources:
  all: {{topic: readings, type: std_msgs/msg/Float64MultiArray, max_age_s: 0.5}}
channels:
{channels}command:
  topic: commands
  type: std_msgs/msg/Float64MultiArray
  field: data
  actuators:
{commands}"""


def run_node_timing_ticks(times_file: Path, ros_arguments: list[str]) -> int:
    """Run the policy node in this process, write each tick's times, and return the exit status.

    The file `times_file` (.npy) gets each tick's wall-clock and processor time in seconds (T, 2).
    """
    from an_control.ros import node
    from an_control.ros.control_loop import Loop

    times_s: list[tuple[float, float]] = []
    tick = Loop._run_tick

    def time_tick(self: Loop, stamp_ns: int | None) -> None:
        """Run a tick (control step) and record its wall-clock and processor time."""
        before_s, before_cpu_s = time.perf_counter(), time.thread_time()
        tick(self, stamp_ns)
        cpu_s = time.thread_time() - before_cpu_s
        times_s.append((time.perf_counter() - before_s, cpu_s))

    Loop._run_tick = time_tick  # type: ignore[method-assign]
    status = node.main(["--ros-args", *ros_arguments])
    np.save(times_file, np.array(times_s).reshape(-1, 2))
    return status


def measure_node_tick_times(kind: ReadingSource, count: int) -> np.ndarray:
    """Measure how long ticks (control steps) of the Ant's policy node take.

    `kind` generates the readings. Return the wall-clock time and the processor time of each tick in
    seconds (count, 2).
    """
    import rclpy
    from std_msgs.msg import Float64MultiArray

    ranges, model = TrainedRanges(), read_model(MODEL)
    step_s = float(model.task.step_s)
    readings = kind(ranges, np.random.default_rng(0))
    with tempfile.TemporaryDirectory() as folder:
        wiring, file = Path(folder) / "wiring.yaml", Path(folder) / "times.npy"
        wiring.write_text(make_wiring(ranges, 1.0 / step_s, list(model.task.actuators)))
        settings = {"wiring": wiring, "model": MODEL, "autostart": "true"}
        words = [word for name, value in settings.items() for word in ("-p", f"{name}:={value}")]
        node = subprocess.Popen([sys.executable, __file__, "--as-node", str(file), *words])
        rclpy.init()
        robot = rclpy.create_node("robot")
        publisher = robot.create_publisher(Float64MultiArray, "readings", 10)
        answers: list[float] = []
        robot.create_subscription(
            Float64MultiArray, "commands", lambda _: answers.append(time.monotonic()), 10
        )
        try:
            next_s = time.monotonic()
            end_s = next_s + 60.0 + 2 * count * step_s
            while len(answers) < count + 2 * SETTLE_TICKS:
                if node.poll() is not None or time.monotonic() > end_s:
                    raise TimeoutError(
                        f"the policy node ended or sent only {len(answers)} commands in time"
                    )
                publisher.publish(Float64MultiArray(data=next(readings).tolist()))
                next_s = max(next_s + step_s, time.monotonic())
                while (left_s := next_s - time.monotonic()) > 0.0:
                    rclpy.spin_once(robot, timeout_sec=left_s)
        finally:
            node.send_signal(signal.SIGINT)
            node.wait(10.0)
            robot.destroy_node()
            rclpy.shutdown()
        found: np.ndarray = np.load(file)[SETTLE_TICKS:][:count]
        return found


def compute_tick_quantiles(times_s: np.ndarray) -> dict[str, float]:
    """Return quantiles of the ticks' times in ms by name, such as "p99_clock_ms".

    `times_s` has the wall-clock time and the processor time of each of T ticks in seconds (T, 2).
    """
    return {
        f"{name}_{measured}_ms": 1e3 * float(np.quantile(column, share))
        for measured, column in zip(("clock", "cpu"), times_s.T, strict=True)
        for name, share in QUANTILES.items()
    }


def measure_tick_times_of_all_combinations(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure the times of control steps under all conditions, and return a dict for each.

    The conditions are: policy called by the library or the node, number of other busy processes,
    and kind of readings. Each result is printed, too.
    """
    calls = {
        "library": (
            options.library,
            lambda kind, n: measure_library_tick_times(kind, n, options.pause),
        ),
        "node": (options.node, measure_node_tick_times),
    }
    rows = []
    for called, (count, times_of) in calls.items():
        for loops in options.loops if count else []:
            for name in options.kinds:
                with keep_processors_busy(loops):
                    times_s = times_of(KINDS[name], count)
                what = {"called": called, "loops": loops, "readings": name, "ticks": len(times_s)}
                note = {"note": options.note} if options.note else {}
                rows.append({**what, **compute_tick_quantiles(times_s), **note})
                print(json.dumps(rows[-1]), flush=True)
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the times of the Ant's control steps on impossible readings; print and store them.

    Return the exit status.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--library", type=int, default=100_000, metavar="N", help="ticks of each row"
    )
    parser.add_argument("--node", type=int, default=5_000, metavar="N", help="ticks of each row")
    parser.add_argument("--loops", type=int, nargs="+", default=[0, 2])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--pause", type=float, default=0.002, help="seconds before each tick")
    parser.add_argument("--note", default="", help="text that is added to each row")
    parser.add_argument("--json", type=Path, help="file to which the rows are added")
    options = parser.parse_args(arguments)
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    rows = measure_tick_times_of_all_combinations(options)
    if options.json:
        before = json.loads(options.json.read_text()) if options.json.exists() else []
        options.json.write_text(json.dumps(before + rows, indent=1) + "\n")
    return 0


if __name__ == "__main__" and sys.argv[1:2] == ["--as-node"]:
    sys.exit(run_node_timing_ticks(Path(sys.argv[2]), sys.argv[3:]))
