"""Repeats the first episodes of a figure's evaluations, to find out whether the figure still holds.

The same code, model and seed give the same returns; on one machine to the last bit. So if code has
changed and the first episodes under each disturbance still have the returns that they had when the
figure was made, the change did not concern the figure, and nothing has to be made again. Another
processor may have other returns with the same code; then this machine has to run them with the code
of both commits.
"""

from __future__ import annotations

import functools
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from experiments.camera_tables.run import TABLES as CAMERA_TABLES
from experiments.figures.hashes import ROOT
from experiments.figures.registry import PageFigure
from experiments.page_tables import PageTable
from experiments.tables.run import TABLES as ANT_TABLES

EPISODES = 2
"""Number of episodes that are repeated under each disturbance."""
TOLERANCE = 1e-9
"""Relative difference of two returns that count as the same. Other processors round some sums
otherwise; a robot that moves otherwise has another return."""
TABLES: Mapping[str, tuple[PageTable, ...]] = {
    "tables": ANT_TABLES,
    "camera_tables": CAMERA_TABLES,
}

OLDER = "older"
"""Folder in a checked out commit for a link to the folder sim, which was the package itself until
2026-11-27."""
Returns = dict[str, list[float]]
"""The returns of the first episodes under each disturbance, by its words."""


def list_evaluation_commands(figure: PageFigure) -> list[str]:
    """Return the evaluations (`an-control evaluate ...`) that make a figure.

    The list is empty if the figure also needs a command of another kind, because then repeating
    evaluations does not show that the figure is up to date.
    """
    found: list[str] = []
    for one in figure.commands:
        words = shlex.split(one.command)
        if words[:2] == ["an-control", "evaluate"] and words[2].startswith("models/"):
            found.append(one.command)
        elif words[:3] == ["python", "-m", "experiments"] and words[3] in TABLES:
            only = words[words.index("--only") + 1 :] if "--only" in words else None
            tables = TABLES[words[3]]
            found += [
                each.evaluation_command for each in tables if only is None or each.title in only
            ]
        else:
            return []
    return found


def evaluate_first_episodes_of_figure(figure: PageFigure, root: Path = ROOT) -> dict[str, Returns]:
    """Repeat the first episodes of each evaluation of a figure; return their returns by command.

    `root` is the folder with the code to run.
    """
    return {
        command: evaluate_first_episodes(command, root)
        for command in list_evaluation_commands(figure)
    }


@functools.cache
def evaluate_first_episodes(command: str, root: Path = ROOT) -> Returns:
    """Run the first `EPISODES` episodes of an evaluation; return their returns by disturbance.

    `command` is the evaluation's command line, `root` the folder with the code to run.
    """
    words = shlex.split(command)
    words[words.index("--episodes") + 1] = str(EPISODES)
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "rows.json"
        asked = [sys.executable, "-m", "an_control", *words[1:], "--json", str(results)]
        packages = os.pathsep.join(map(str, (root, root / "sim", root / OLDER)))
        here = {**os.environ, "PYTHONPATH": packages}
        subprocess.run(asked, cwd=root, env=here, check=True, stdout=subprocess.DEVNULL)
        rows = json.loads(results.read_text(encoding="utf-8"))["protocols"]
    return {row["protocol"]: [one["return"] for one in row["episodes"]] for row in rows}


@contextmanager
def check_out_commit(commit: str) -> Iterator[Path]:
    """Check out a commit into a temporary folder for a `with` block, and yield the folder."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        add = [*git, "add", "--quiet", "--detach", str(root), commit]
        subprocess.run(add, check=True, capture_output=True)
        if not (root / "sim/an_control_sim").is_dir():
            (root / OLDER).mkdir()
            (root / OLDER / "an_control_sim").symlink_to(root / "sim")
        try:
            yield root
        finally:
            subprocess.run([*git, "remove", "--force", str(root)], check=True)


def list_changed_returns(old: Mapping[str, Returns], new: Mapping[str, Returns]) -> list[str]:
    """Return a text for each disturbance under which the returns of a figure have changed.

    `old` and `new` are what `evaluate_first_episodes_of_figure` returned.
    """
    return [
        f"{protocol}: {old.get(command, {}).get(protocol, 'not known')} is now {returns}"
        for command, rows in new.items()
        for protocol, returns in rows.items()
        if not are_returns_same(old.get(command, {}).get(protocol, []), returns)
    ]


def are_returns_same(old: Sequence[float], new: Sequence[float]) -> bool:
    """Return whether two lists of returns are the same, apart from rounding."""
    return len(old) == len(new) and bool(np.allclose(old, new, rtol=TOLERANCE, atol=0.0))
