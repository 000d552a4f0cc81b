"""Measure what identity monitors do on robots that they were not trained on.

An identity monitor detects that sensor signals arrive in other channels than before. Each cell of
the table is the result of one monitor on one robot. In the first set of cells the signals stay in
their channels, in the second set they are moved. Finished cells are kept in the results file, so an
experiment that was stopped continues. The README reports the results.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from an_control.disturbance import Disturber
from an_control.learning.rollout.engine import make_evaluation_seeds
from an_control.learning.rollout.episode import play_episode
from an_control.learning.rollout.evaluation_protocol import EvaluationProtocol
from an_control.load import make_policy
from an_control.monitor.forward_model import ForwardModel
from an_control.monitor.monitored_policy import MonitoredPolicy
from an_control.policy import Policy, read_model
from an_control_sim.gym.environments import find_environment_id, make_environment

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CHUNK = 5_000
"""Number of ticks (control steps) of a cell of the table that are played at a time."""
FOUND_TICKS = 25
"""Number of ticks within which moved signals should be found."""
SEED = 7
"""Seed of the episodes; training and its validation use other seeds."""
TENTH = ("--steps", "20000", "--updates", "2000", "--imputation-updates", "800")
ANT_FAULTS = (
    *("--disturb", "delay=1", "start=rest", "start=posture", "stop=0.5..2", "gain=0.6..1"),
    *("friction=0.5..1", "mass=0.7..1.3", "lag=0..0.5", "--disturb-share", "0.5"),
)
LEARN_FAULTS = ("--disturb", "delay=1", "--disturb-share", "0.25")
"""Options with which `an-control learn` trains its monitors."""


@dataclass(frozen=True)
class MeasuredPolicy:
    """A policy whose identity monitors are tested on changed robots.

    Attributes:
        task: The task or the gymnasium id.
        model: The model file.
        faults: Options of `an-control train-monitor`: the disturbances in its training episodes.
        source: The channels of one sensor, which is slowed down in some tests: the index of the
            first channel, and the index after the last.
        physics: Whether mass and friction of the robot can be changed.
        shipped: Whether the model file already has its monitor.
    """

    task: str
    model: Path
    faults: tuple[str, ...]
    source: tuple[int, int]
    physics: bool = True
    shipped: bool = False


SUBJECTS = {
    "ant": MeasuredPolicy(
        "ant", ROOT / "models/ant.safetensors", ANT_FAULTS, (8, 24), shipped=True
    ),
    "base": MeasuredPolicy(
        "an_control_sim:an_control/MobileBase-v0",
        ROOT / "models/mobile_base.safetensors",
        LEARN_FAULTS,
        (0, 12),
        physics=False,
    ),
    "cheetah": MeasuredPolicy(
        "pybullet_envs_gymnasium:HalfCheetahBulletEnv-v0",
        Path("HalfCheetahBulletEnv-v0/student/model.safetensors"),
        LEARN_FAULTS,
        (8, 20),
    ),
    "hopper": MeasuredPolicy(
        "Hopper-v5", Path("Hopper-v5/student/model.safetensors"), LEARN_FAULTS, (5, 11)
    ),
}
ROBOTS = {
    "nominal": ("", "none"),
    "half rate": ("all", "none"),
    "one source at half rate": ("source", "none"),
    "lag .5": ("", "none,lag=0.5"),
    "gain .7": ("", "none,gain=0.7"),
    "mass x1.3": ("", "none,mass=1.3"),
    "friction x.5": ("", "none,friction=0.5"),
    "mass x1.3, friction x.5, lag .5": ("", "none,mass=1.3,friction=0.5,lag=0.5"),
    "half rate, mass x1.3, friction x.5": ("all", "none,mass=1.3,friction=0.5"),
    "one source at half rate, lag .5": ("source", "none,lag=0.5"),
    "one source at half rate, mass x1.3": ("source", "none,mass=1.3"),
}
"""Robots by name: which readings are updated only in every second tick, and the disturbance."""
MOVES = ("100", "25", "25,swap=2", "reset", "reset+25", "100,lag=0.3")
"""Disturbances that move signals, for the fully trained monitors."""


class SlowSensors(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A gymnasium wrapper that updates some readings only in every second step, like slow sensors.

    Args:
        env: The environment.
        channels: The indices of these readings.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], channels: slice) -> None:
        super().__init__(env)
        self._held = channels

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Reset the environment."""
        observation, info = self.env.reset(**options)
        self._kept, self._steps = observation[self._held].copy(), 0
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Make one step; in every second step some readings keep their previous values."""
        observation, *rest = self.env.step(action)
        self._steps += 1
        if self._steps % 2:
            observation = observation.copy()
            observation[self._held] = self._kept
        else:
            self._kept = observation[self._held].copy()
        return (observation, *rest)


class MonitorWatch:
    """A counter of right and wrong decisions of an identity monitor.

    The monitor detects that a sensor's signal has moved to another input slot (place in the input).
    `play_episode` calls this object in each tick, as its argument `watch`. Its counts are:

    - ticks: ticks (control steps) played
    - invented: false alarms, in which the monitor reported a moved signal before any had moved
    - permuted: ticks before any signal moved, in which the policy got a signal under a wrong id
      because of a false alarm
    - unfit: ticks in which the monitor reported that its model does not fit the robot
    - lost: ticks in which the monitor reported not to know which slot carries which signal
    - moved: signals that moved to another slot
    - found: moved signals whose new slot the monitor knew `FOUND_TICKS` ticks later

    Args:
        policy: The policy with its monitor.
    """

    COUNTS = ("ticks", "invented", "permuted", "unfit", "lost", "moved", "found")

    def __init__(self, policy: MonitoredPolicy) -> None:
        self.counts = dict.fromkeys(self.COUNTS, 0)
        self._policy = policy
        self._nominal = np.arange(len(policy.nominal_ids))
        self._alike = ForwardModel(policy.model).alike
        self.start_episode()

    def start_episode(self) -> None:
        """Prepare for a new episode; its counts are added to those of earlier episodes."""
        self._taken, self._shuffles, self._after = self._nominal, 0, -1
        self._have_moved = np.zeros(len(self._nominal), bool)
        self._truth = self._nominal

    def __call__(self, policy: Policy, disturber: Disturber) -> None:
        """Count what the monitor did in one tick."""
        monitor, counts = self._policy.monitor, self.counts
        slots, outputs = monitor.slot_by_channel, monitor.assignment.outputs
        counts["ticks"] += 1
        counts["unfit"] += monitor.fit.model_fits_robot is False
        counts["lost"] += monitor.is_assignment_lost
        if not disturber.shuffle_count:
            if slots is not self._taken:
                counts["invented"] += bool(self._find_wrong_channels(slots, self._nominal).any())
            counts["permuted"] += bool(self._find_wrong_channels(outputs, self._nominal).any())
        self._taken = slots
        if disturber.shuffle_count != self._shuffles:
            truth = self._find_true_slots(disturber)
            self._have_moved = self._find_wrong_channels(self._truth, truth)
            self._truth, self._shuffles, self._after = truth, disturber.shuffle_count, 0
        elif self._after >= 0:
            self._after += 1
        if self._after == FOUND_TICKS - 1:
            counts["moved"] += int(self._have_moved.sum())
            counts["found"] += int(
                (self._have_moved & ~self._find_wrong_channels(slots, self._truth)).sum()
            )
            self._after = -1

    def _find_true_slots(self, disturber: Disturber) -> np.ndarray:
        """Return for each channel (N,) the slot (input position) that really gets its signal."""
        place = {name: number for number, name in enumerate(self._policy.nominal_ids)}
        slots = np.empty(len(place), np.int64)
        for slot, signal in zip(disturber.ids, disturber.signal_ids_by_slot, strict=True):
            slots[place[signal]] = place[slot]
        return slots

    def _find_wrong_channels(
        self, assigned_slots: np.ndarray, true_slots: np.ndarray
    ) -> np.ndarray:
        """Return for each channel (N,) whether its assigned slot carries a wrong signal.

        A slot is a position in the input. A signal that cannot be distinguished from the channel's
        own is not wrong.
        """
        return ~self._alike[self._nominal, np.argsort(true_slots)[assigned_slots]]


def measure_monitor_in_more_episodes(
    subject: MeasuredPolicy,
    model_file: Path,
    half_rate_and_disturbance: tuple[str, str],
    monitor: str,
    earlier_counts: dict[str, Any],
    needed_ticks: int,
) -> dict[str, Any]:
    """Play further episodes of a policy with its monitor, and add their counts to earlier ones.

    Args:
        subject: The policy and its task.
        model_file: The file of the policy with its monitor.
        half_rate_and_disturbance: A pair. First, which readings are updated only in every second
            tick: "all", those of one "source" (topic), or "" for none. Second, the disturbance,
            such as "none,lag=0.5".
        monitor: The mode of the monitor, "off" or "match".
        earlier_counts: The counts that the previous call returned; {} at first.
        needed_ticks: The number of ticks (control steps) that are wanted in all. One call plays at
            most `CHUNK` of them, rounded up to whole episodes.
    """
    held, words = half_rate_and_disturbance
    protocol = EvaluationProtocol.parse(words)
    model = read_model(model_file)
    env = make_environment(find_environment_id(subject.task))
    if held:
        env = SlowSensors(env, slice(*subject.source) if held == "source" else slice(None))
    policy = make_policy(model, monitor)  # type: ignore[arg-type]
    watch = MonitorWatch(policy) if isinstance(policy, MonitoredPolicy) else None
    channels = model.task.channels
    disturber = Disturber(channels, protocol.disturbance, SEED, episode=None)
    returns: list[float] = []
    wanted = min(CHUNK, needed_ticks - earlier_counts.get("ticks", 0))
    played, begun = 0, time.process_time()
    with closing(env):
        for start in islice(
            make_evaluation_seeds(SEED, 100_000), earlier_counts.get("episodes", 0), None
        ):
            if watch is not None:
                watch.start_episode()
            result = play_episode(policy, env, channels, disturber, start, protocol, watch)
            returns.append(result.total)
            played += result.steps
            if played >= wanted:
                break
    array = np.array(returns)
    found = {
        "ticks": played,
        "episodes": len(returns),
        "return_sum": round(float(array.sum()), 2),
        "return_square_sum": round(float((array**2).sum()), 2),
        "cpu_s": round(time.process_time() - begun, 1),
    }
    if watch is not None:
        found |= watch.counts
    return {key: round(earlier_counts.get(key, 0) + number, 2) for key, number in found.items()}


def find_or_train_monitor(name: str, folder: Path, length: str) -> Path:
    """Return the path of a model with a monitor; train the monitor if `folder` has no such file.

    `name` is the policy's name, a key of `SUBJECTS`. `length` says how long the monitor is trained:
    "full", or "tenth" for a tenth as long.
    """
    subject = SUBJECTS[name]
    if subject.shipped and length == "full":
        return subject.model
    file = folder / f"{name}_{length}.safetensors"
    if not file.exists():
        model = subject.model if subject.model.is_absolute() else folder / subject.model
        if not model.exists():
            learn = [sys.executable, "-m", "an_control", "learn", subject.task]
            subprocess.run([*learn, "--out", str(model.parent.parent)], check=True)
        train = [sys.executable, "-m", "an_control", "train-monitor", str(model)]
        how = (*(TENTH if length == "tenth" else ()), *subject.faults, "--task", subject.task)
        subprocess.run([*train, "--out", str(file), *how], check=True)
    return file


def list_table_cells(
    names: list[str], lengths: list[str], robots: list[str]
) -> Iterator[tuple[str, ...]]:
    """Yield the four names that identify each cell of the results table.

    They are: policy, length of the monitor's training ("none", "tenth" or "full"), changed robot or
    disturbance, and mode of the monitor ("off" or "match").
    """
    for name in names:
        for robot in robots:
            words = ROBOTS.get(robot, ("", ""))[1]
            if not SUBJECTS[name].physics and ("mass" in words or "friction" in words):
                continue
            if robot in ROBOTS:
                yield name, "none", robot, "off"
            for length in lengths:
                if robot in ROBOTS or length == "full":
                    yield name, length, robot, "match"


def measure_unfinished_cells(
    options: argparse.Namespace, report: Callable[[str], None] = print
) -> None:
    """Play episodes for each cell of the results table until it has the wanted number of ticks.

    The cells take turns: one part of a cell is played and saved, then one of the next cell.
    """
    path, folder = Path(options.results), Path(options.folder)
    left = True
    while left:
        left = False
        for name, length, robot, monitor in list_table_cells(
            options.subjects, options.trained, options.robots
        ):
            key = f"{name}/{length}/{robot}"
            results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
            known = results.get(options.label, {}).get(key, {})
            ticks = options.off_ticks if monitor == "off" else options.ticks
            if known.get("ticks", 0) >= ticks:
                continue
            file = (
                folder / SUBJECTS[name].model
                if length == "none"
                else find_or_train_monitor(name, folder, length)
            )
            how = ROBOTS.get(robot, ("", robot))
            found = measure_monitor_in_more_episodes(
                SUBJECTS[name], file, how, monitor, known, ticks
            )
            report(f"{options.label} {key}: {json.dumps(found)}")
            latest = json.loads(path.read_text()) if path.exists() else {}
            latest.setdefault(options.label, {})[key] = found
            path.write_text(json.dumps(latest, indent=1, sort_keys=True) + "\n")
            left = left or found["ticks"] < ticks


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line of the experiment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--label", default="after", help="the set of results to add to")
    parser.add_argument("--results", default=str(HERE / "results.json"))
    parser.add_argument("--folder", default=str(ROOT / "runs/monitor_fit"))
    parser.add_argument("--subjects", nargs="+", default=list(SUBJECTS), choices=list(SUBJECTS))
    parser.add_argument("--trained", nargs="+", default=["tenth", "full"])
    parser.add_argument("--robots", nargs="+", default=[*ROBOTS, *MOVES])
    parser.add_argument("--ticks", type=int, default=100_000)
    parser.add_argument("--off-ticks", type=int, default=20_000)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Test identity monitors on robots with other mass, friction, motors or sensor rates.

    Return the exit status. Cells of the results table that are complete already are skipped.
    """
    measure_unfinished_cells(parse_arguments(arguments))
    return 0
