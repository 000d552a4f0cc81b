"""What the comparing scripts share: runs of an-control in folders, and tables of their results.

The figures of a table are kept beside its page, in a small file of the repository: a run's folder
is large, and lost with the machine that made it.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from an_control.policy import read_model

ROOT = Path(__file__).resolve().parent.parent
ROWS = "rows.json"
"""In a run's folder: the results of its evaluation, there once that has ended."""
Results = dict[str, dict[str, dict[str, Any]]]
"""By the name of a policy's folder and by seed: parameters, and the figures of each protocol."""


def call(*words: str) -> None:
    """Run an-control; CalledProcessError where it fails."""
    program = Path(sys.executable).parent / "an-control"
    subprocess.run([program, *words], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def evaluate(
    folder: Path, task: str, protocols: list[str], episodes: int, seed: int, *words: str
) -> None:
    """Evaluate the model of a run's folder, with the results in its `ROWS`."""
    call(
        *("evaluate", str(folder / "model.safetensors"), "--task", task, *words),
        *("--episodes", str(episodes), "--seed", str(seed)),
        *("--state", str(folder / "rows.state"), "--json", str(folder / ROWS)),
        *("--table", *protocols),
    )


def collect(kept: Path, policies: Iterable[Path]) -> Results:
    """The figures of the file `kept`, with those of all runs that have been evaluated.

    Each policy has a folder, with a folder for each seed. A run takes the place of what was kept
    of its policy and seed; the file is written anew.
    """
    found: Results = json.loads(kept.read_text()) if kept.exists() else {}
    for path in (path for policy in policies for path in sorted(policy.glob(f"*/{ROWS}"))):
        run = path.parent
        found.setdefault(run.parent.name, {})[run.name] = {
            "parameters": read_model(run / "model.safetensors").parameters,
            "protocols": {
                one["protocol"]: {
                    "mean": round(one["mean"], 4),
                    "sd": round(one["sd"], 4),
                    "success_share": one["success_share"],
                    "episodes": len(one["episodes"]),
                }
                for one in json.loads(path.read_text())["protocols"]
            },
        }
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    return found


def entries(found: Results, policy: Path, protocol: str) -> list[dict[str, Any]]:
    """What the seeds of a policy made under a protocol; none where nothing is known."""
    return [run["protocols"][protocol] for _, run in sorted(found.get(policy.name, {}).items())]


def counts(found: Results, policy: Path) -> list[str]:
    """A policy's number of parameters and of seeds."""
    runs = found[policy.name].values()
    return [", ".join(sorted({str(run["parameters"]) for run in runs})), str(len(runs))]


def spread(values: list[float]) -> tuple[float, float]:
    """The mean over seeds and its standard error, NaN of a single one."""
    error = float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else math.nan
    return float(np.mean(values)), error


def returns(some: list[dict[str, Any]]) -> tuple[float, float]:
    """The mean of one protocol's entries and its standard error: over the seeds where there are
    several, else over the episodes."""
    mean, error = spread([one["mean"] for one in some])
    if len(some) == 1:
        error = some[0]["sd"] / max(some[0]["episodes"] - 1, 1) ** 0.5
    return mean, error


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])
