"""The verb ``an-control bench inference|parts|monitor|ros|ant|training``."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from an_control.bench.inference import (
    CHANNELS,
    compute_tick_time_growth_with_channels,
    measure_tick_time_on_one_core,
)
from an_control.cli.common import (
    InputError,
    ModelFile,
    OutputFile,
    format_flag,
    require_packages,
    write_json,
)
from an_control.load import EngineName
from an_control.policy import AttentionSizes, VisionSizes, read_model
from an_control.system.share import find_share_path

INFERENCE_COLUMNS = {
    "task": "task",
    "engine": "engine",
    "channels": "channels",
    "step_array_p50_us": "array p50",
    "step_array_p99_us": "p99",
    "step_p50_us": "dict p50",
    "step_p99_us": "p99",
}
PARTS_COLUMNS = {
    "parts": "part",
    "channels": "channels",
    "step_array_p50_us": "p50",
    "step_array_p99_us": "p99",
}
MONITOR_COLUMNS = {
    "engine": "engine",
    "tick": "tick",
    "p50_us": "p50",
    "p99_us": "p99",
    "max_us": "max",
}
LATENCY_COLUMNS = {"path": "path", "p50_us": "p50", "p99_us": "p99"}
LOCKSTEP_COLUMNS = {
    "node": "node",
    "steps_per_s": "steps/s",
    "step_us": "step",
    "environment_us": "environment",
    "latency_p50_us": "answer p50",
    "latency_p99_us": "p99",
    "timeouts": "timeouts",
}
RANDOM = "random"
"""Text that results show in place of the path of a model file, if a policy with random weights is
measured. It has the sizes of the policies of the AttentionNeuron paper's authors."""
ANT_ACTIONS = 8
USED_OPTIONS = {
    "inference": ("model", "seconds"),
    "parts": ("seconds",),
    "monitor": ("model", "seconds"),
    "ros": ("model", "seconds"),
    "ant": ("seconds",),
    "training": ("seconds",),
}
"""A mapping from each benchmark to the options that have an effect on it, apart from --json."""


@dataclass(frozen=True)
class BenchCommand:
    """Measure the speed of the policy, the policy node or a simulator on this machine."""

    what: tyro.conf.Positional[Literal["inference", "parts", "monitor", "ros", "ant", "training"]]
    """What to measure. inference: the duration of a policy's tick (one control step) on one core.
    parts: the tick of the authors' Ant policy with each encoder, pooling and recurrence. monitor:
    the additional time of the identity monitor (with the shipped Ant policy, or --model), while
    signals move to other channels every 100 steps, and while no assignment of signals to channels
    explains the readings. ros: the time from sensor message to command, compared with a node that
    only echoes the same message, and the steps a second of simulator and node in lockstep (each
    waits for the other). ant: the steps a second of the environment alone, beside the package's
    own. training: the steps a second of the rollout engines, beside a plain rollout."""
    model: ModelFile | None = None
    """inference, monitor, ros: a .safetensors model file; by default random weights of the size of
    the authors' policies (for monitor, and for ros in lockstep: the shipped Ant policy)."""
    seconds: float = 1.0
    """Approximate number of seconds for which each figure is measured."""
    json: OutputFile | None = None
    """Also write the result here as JSON."""

    def run(self) -> int:
        """Run the chosen benchmark, print its tables and return the exit status."""
        if not 0.0 < self.seconds <= 600.0:
            raise InputError(f"--seconds {self.seconds}: must be over 0 and at most 600")
        self._check_options_affect_benchmark()
        if self.model is not None:
            sizes = read_model(self.model).sizes
            vision = isinstance(sizes, VisionSizes) and self.what == "inference"
            if not isinstance(sizes, AttentionSizes) and not vision:
                raise InputError(f"--model {self.model}: must be an attention_neuron")
            if self.what == "ros" and sizes.actions != ANT_ACTIONS:
                found = f"{sizes.actions} actions"
                raise InputError(f"--model {self.model}: has {found}, the Ant takes {ANT_ACTIONS}")
        measure = {  # each returns the values for --json
            "inference": self._measure_and_print_tick_duration,
            "parts": self._measure_and_print_architecture_variants,
            "monitor": self._measure_and_print_monitor_overhead_per_tick,
            "ros": self._measure_and_print_ros_latency_and_speed,
            "ant": self._measure_and_print_ant_simulation_speed,
            "training": self._measure_and_print_training_speed,
        }[self.what]
        try:
            result = measure()
        except RuntimeError as error:
            print(f"an-control bench: {error}", file=sys.stderr)
            return 1
        write_json(self.json, {"bench": self.what, **result})
        return 0

    def _check_options_affect_benchmark(self) -> None:
        """Check that each option that was given has an effect on the benchmark that is run."""
        reads = *USED_OPTIONS[self.what], "json"
        for one in fields(self)[1:]:
            if one.name not in reads and (value := getattr(self, one.name)) != one.default:
                allowed = ", ".join(map(format_flag, reads))
                raise InputError(
                    f"{format_flag(one.name)} {value}: not for bench {self.what}"
                    f" (allowed: {allowed})"
                )

    def _measure_and_print_tick_duration(self) -> dict[str, Any]:
        """Measure and print the duration of a policy's tick (control step) on one core."""
        rows = list(measure_tick_time_on_one_core(self.model, self.seconds))
        _print_table("a tick on one core, us", INFERENCE_COLUMNS, rows)
        ratios = (
            compute_tick_time_growth_with_channels(rows)
            if any(row["inputs"] == "readings" for row in rows)
            else {}
        )
        _print_ratios_of_time_per_channel(ratios)
        return {"model": str(self.model or RANDOM), "rows": rows, "linearity": ratios}

    def _measure_and_print_architecture_variants(self) -> dict[str, Any]:
        """Measure and print the duration of a tick of each variant of the policy's architecture."""
        rows = list(measure_tick_time_on_one_core(None, self.seconds, compare_variants=True))
        _print_table("a tick on one core, us", PARTS_COLUMNS, rows)
        ratios = compute_tick_time_growth_with_channels(rows, group_by="parts")
        _print_ratios_of_time_per_channel(ratios)
        return {"model": RANDOM, "rows": rows, "linearity": ratios}

    def _measure_and_print_monitor_overhead_per_tick(self) -> dict[str, Any]:
        """Measure and print the time that the identity monitor adds to a tick."""
        require_packages("sim", "gymnasium")
        from an_control.bench.monitor import measure_monitor_overhead

        path = self.model or find_share_path("models/ant.safetensors")
        model = read_model(path)
        if model.forward is None:
            raise InputError(f"{path}: has no forward model (an-control train-monitor makes one)")
        engines: list[EngineName] = ["numpy"]
        if importlib.util.find_spec("numba") is not None:
            engines.append("numba")
        rows = measure_monitor_overhead(model, engines, self.seconds)
        _print_table("what the monitor adds to a tick, us", MONITOR_COLUMNS, rows)
        return {"model": str(path), "rows": rows}

    def _measure_and_print_ros_latency_and_speed(self) -> dict[str, Any]:
        """Measure and print the policy node's latency and its steps per second in lockstep."""
        require_packages("ros", "rclpy")
        from an_control.bench.latency import make_policy_node_command_line, measure_latency

        latency = measure_latency(self.model, self.seconds)
        latency["model"] = str(self.model or RANDOM)
        _print_table("JointState out, answer back, us", LATENCY_COLUMNS, latency["rows"])
        print(f"the node takes {latency['ratio']:.2f} times as long as the echo")
        if importlib.util.find_spec("pybullet") is None:
            print("lockstep: not measured, needs pybullet (pip install 'an_control[sim]')")
            return {"latency": latency}
        from an_control.bench.lockstep import measure_lockstep_speed

        steps = max(round(500 * self.seconds), 20)
        model = self.model or find_share_path("models/ant.safetensors")
        lockstep = []
        for name, used, process in (
            (
                "policy",
                str(model),
                make_policy_node_command_line(find_share_path("config/ant.yaml"), model),
            ),
            ("stub", None, None),
        ):
            figures = measure_lockstep_speed(steps=steps, node_command_line=process)
            lockstep.append({"node": name, "model": used, **figures})
        _print_table("the Ant in lockstep, two processes, us", LOCKSTEP_COLUMNS, lockstep)
        return {"latency": latency, "lockstep": lockstep}

    def _measure_and_print_ant_simulation_speed(self) -> dict[str, Any]:
        """Measure and print the steps per second of the Ant environment."""
        require_packages("sim", "pybullet_envs_gymnasium")
        from an_control_sim.envs.ant_benchmark import ROUNDS, compare_ant_simulation_speeds

        result = compare_ant_simulation_speeds(steps=max(round(2000 * self.seconds / ROUNDS), 10))
        rows = [
            {"environment": "an_control/Ant-v0", "steps_per_s": result["ant_steps_per_s"]},
            {"environment": "AntBulletEnv", "steps_per_s": result["package_steps_per_s"]},
        ]
        _print_table("one core", {"environment": "environment", "steps_per_s": "steps/s"}, rows)
        print(f"{result['ratio']:.2f} times the package's own")
        return result

    def _measure_and_print_training_speed(self) -> dict[str, Any]:
        """Measure and print how many environment steps per second the rollouts of training play."""
        require_packages("train", "cma")
        from an_control.bench.training import measure_training_speed, measure_worker_speedup

        result = measure_training_speed(self.seconds)
        _print_table(
            "CartPole, 256 x 16 episodes",
            {"engine": "engine", "steps_per_s": "steps/s"},
            result["rows"],
        )
        for name, what in (
            ("over_the_authors", "torch modules as the authors', tick by tick"),
            ("over_tick_by_tick", "our compiled policy tick by tick"),
            ("over_evojax", "EvoJAX"),
        ):
            if result[name] is None:
                print(f"{what}: not installed, not measured")
            else:
                print(f"fused: {result[name]:.3g} times {what}")
        task = "ant" if importlib.util.find_spec("pybullet") else "cartpole"
        workers = measure_worker_speedup(task, self.seconds)
        columns = {"engine": "engine", "one": "one worker", "two": "two", "ratio": "ratio"}
        _print_table(f"{task}, steps/s of worker processes", columns, workers["rows"])
        same = "yes" if workers["same_numbers"] else "no"
        print(f"returns are equal for every number of workers: {same}")
        return {"rollouts": result, "workers": workers}


def _print_table(title: str, columns: dict[str, str], rows: Iterable[dict[str, Any]]) -> None:
    """Print rows of values as a table.

    `columns` has the heading of each shown column, by the key of its values in `rows`.
    """
    table = Table(title=title, title_justify="left")
    for heading in columns.values():
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*(_format_cell(row[key]) for key in columns))
    Console().print(table)


def _format_cell(value: Any) -> str:
    """Return a value as the text of a table cell, with thousands separators; "-" for None."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _print_ratios_of_time_per_channel(ratios: dict[str, float]) -> None:
    """Print, for each engine or part, how the time per added channel grows with their number.

    The ratio is the time that one more channel takes if there are many, divided by that if there
    are few.
    """
    low, middle, high = CHANNELS[1:]
    for name, ratio in ratios.items():
        print(
            f"{name}: time per added channel, {middle} to {high} relative to {low} to {middle}:"
            f" {ratio:.2f}"
        )
