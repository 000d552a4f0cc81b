"""Learn ten environments by other authors, each from its gymnasium id to a policy over ROS 2.

    python -m experiments ten_robots                learn and run all that is missing
    python -m experiments ten_robots Reacher-v5     the same for one environment
    python -m experiments ten_robots --table        only write report.md

For each environment it runs `an-control learn` with default settings. Then, with the wiring that
`an-control new` drafts, it plays lockstep episodes over ROS 2 and the same episodes offline
(without ROS). If a step takes 10 ms or more, it also plays pairs of episodes in real time and
offline. Results stay in the folder as JSON, even if the experiment is stopped. MuJoCo environments
need `pip install "gymnasium[mujoco]"`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from an_control.learning.evaluation.comparison import write_markdown_tables
from an_control.policy import read_model
from experiments.learned_runs import make_markdown_table, run_an_control

ROOT = Path(__file__).resolve().parents[2]
PAGE, TITLE = ROOT / "experiments/ten_robots/report.md", "ten robots"
BULLET = "pybullet_envs_gymnasium:"
PUBLISHED: dict[str, float | None] = {
    "CartPole-v1": 500.0,
    "Pendulum-v1": -172.2,
    "LunarLanderContinuous-v3": 270.9,
    "BipedalWalker-v3": 213.3,
    f"{BULLET}HopperBulletEnv-v0": 2575.0,
    f"{BULLET}HalfCheetahBulletEnv-v0": 2925.0,
    "Hopper-v5": 2410.0,
    "HalfCheetah-v5": 5819.0,
    "Walker2d-v5": 3479.0,
    "Reacher-v5": None,
}
"""Returns that PPO reaches in rl-baselines3-zoo; those of MuJoCo's environments and of the lander
are for an older version of the environment."""
SEED = 1
LOCKSTEP_EPISODES, PAIRS = 3, 30
MIN_STEP_S = 0.01
PROTOCOLS = (
    "clean",
    "shuffled at the reset",
    "reshuffled every 100 steps",
    "reshuffled every 25 steps",
    "10% of the channels missing",
    "delay=1",
    "noise 0.02",
)
HEADS = ("clean", "shuffled", "every 100", "every 25", "10% missing", "delay=1", "noise 0.02")


@dataclass(frozen=True)
class LearnedRobot:
    """An environment by other authors, for which a policy is learned and then run over ROS 2.

    Attributes:
        env: The gymnasium id.
        folder: The folder of the results for this environment.
    """

    env: str
    folder: Path

    @property
    def name(self) -> str:
        """The environment's id without the module that registers it."""
        return self.env.rpartition(":")[2]

    @property
    def model(self) -> Path:
        """The path of the model that `an-control learn` makes."""
        return self.folder / "learn/model.safetensors"

    def read_result(self, name: str) -> Any:
        """Return the results that a command wrote as JSON; None if it has not been run.

        `name` is the name of the results: "learn", "lockstep", "offline" or "real_time".
        """
        path = self.folder / f"{name}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def run_missing_steps(self) -> None:
        """Learn a policy and run it over ROS 2; skip the steps whose results exist already."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._run_command_unless_done(
            "learn", "learn", self.env, "--out", str(self.folder / "learn")
        )
        files = [str(self.folder / f"robot{end}.yaml") for end in ("_sim", "")]
        if not Path(files[0]).exists():
            run_an_control("new", "robot", "--env", self.env, "--out", str(self.folder))
        served = ("sim", "--simulation", files[0], "--wiring", files[1], "--model", str(self.model))
        offline = ("evaluate", str(self.model), "--task", self.env)
        common = ("--seed", str(SEED), "--shuffle", "reset", "--episodes")
        self._run_command_unless_done("lockstep", *served, *common, str(LOCKSTEP_EPISODES))
        self._run_command_unless_done("offline", *offline, *common, str(PAIRS))
        model = read_model(self.model)
        if float(model.task.step_s) >= MIN_STEP_S:
            self._run_command_unless_done("real_time", *served, *common, str(PAIRS), "--realtime")

    def _run_command_unless_done(self, name: str, *arguments: str) -> None:
        """Run a command of an-control unless its result exists."""
        if self.read_result(name) is None:
            print(f"{self.name}: {name}", flush=True)
            run_an_control(*arguments, "--json", str(self.folder / f"{name}.json"))

    def make_results_table_row(self) -> list[str] | None:
        """Return the cells of this robot's row in `make_markdown_results_table`.

        Return None if no policy has been learned for the robot yet.
        """
        learned = self.read_result("learn")
        if learned is None:
            return None
        rows = {one["name"]: one for one in learned["rows"]}
        random, teacher = rows["random policy"]["mean"], rows["teacher"]["mean"]
        published = PUBLISHED[self.env]
        share = "" if published is None else f"{(teacher - random) / (published - random):.0%}"
        scores = []
        for protocol in PROTOCOLS:
            own = rows.get(f"student, {protocol}")
            of_teacher = rows.get(f"teacher, {protocol}")
            text = "" if own is None else _format_score(own, teacher - random)
            scores.append(f"{text} ({of_teacher['score']:.0%})" if own and of_teacher else text)
        goal = "none" if published is None else f"{published:g}"
        first = [self.name, f"{random:.1f}", f"{teacher:.1f}", goal, share]
        return [
            *first,
            *scores,
            self._format_lockstep_comparison(),
            self._format_real_time_comparison(teacher - random),
        ]

    def _format_lockstep_comparison(self) -> str:
        """Return a text that says whether the returns in lockstep over ROS 2 are those offline.

        It is "the same" if the returns agree to the last bit, else "others"; "" if a result is
        missing.
        """
        served, offline = self.read_result("lockstep"), self.read_result("offline")
        if served is None or offline is None:
            return ""
        pairs = zip(_list_returns(served), _list_returns(offline), strict=False)
        return "the same" if all(one == other for one, other in pairs) else "others"

    def _format_real_time_comparison(self, return_span: float) -> str:
        """Format the mean return in real time minus the mean return offline, in points, as text."""
        live, offline = self.read_result("real_time"), self.read_result("offline")
        if live is None or offline is None:
            return ""
        more = (
            100.0 * (np.array(_list_returns(live)) - np.array(_list_returns(offline))) / return_span
        )
        return f"{more.mean():+.1f} +- {more.std(ddof=1) / len(more) ** 0.5:.1f}"


def _format_score(row: dict[str, Any], return_span: float) -> str:
    """Format a student's score and the standard error of the score as a cell of the table."""
    error = row["sd"] / max(1, row["episodes"] - 1) ** 0.5 / return_span
    few = "" if row["episodes"] == 100 else f", {row['episodes']} ep."
    return f"{row['score']:.1%} +- {error:.1%}{few}"


def _list_returns(result: dict[str, Any]) -> list[float]:
    """Return the returns of a result's episodes."""
    return [one["return"] for one in result["episodes"]]


def make_markdown_results_table(robots: list[LearnedRobot]) -> str:
    """Return the Markdown table of the environments for which a policy has been learned."""
    head = ["environment", "random", "teacher", "published", "share", *HEADS]
    head += ["lockstep", "real time, points"]
    rows = [row for row in (robot.make_results_table_row() for robot in robots) if row is not None]
    return make_markdown_table(head, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Learn policies for ten environments, run them over ROS 2, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("env", nargs="*", help="learn only these: " + ", ".join(PUBLISHED))
    parser.add_argument(
        "--out", type=Path, default=Path("runs/ten_robots"), help="folder of all results"
    )
    parser.add_argument("--table", action="store_true", help="only write the page's table")
    given = parser.parse_args(arguments)
    robots = [LearnedRobot(env, given.out.resolve() / env.rpartition(":")[2]) for env in PUBLISHED]
    wanted = [one for one in robots if not given.env or {one.env, one.name} & set(given.env)]
    if not wanted:
        parser.error(f"{' '.join(given.env)}: not one of {', '.join(PUBLISHED)}")
    for robot in [] if given.table else wanted:
        robot.run_missing_steps()
    write_markdown_tables(PAGE, {TITLE: make_markdown_results_table(robots)})
    return 0
