"""What the comparing scripts share: runs of an-control in folders, and tables of their results."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
ROWS = "rows.json"
"""In a run's folder: the results of its evaluation, there once that has ended."""


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


def results(runs: Path) -> list[dict[str, dict[str, Any]]]:
    """Of each run in this folder that has been evaluated: the entry of every protocol."""
    return [
        {one["protocol"]: one for one in json.loads(path.read_text())["protocols"]}
        for path in sorted(runs.glob(f"*/{ROWS}"))
    ]


def spread(values: list[float]) -> tuple[float, float]:
    """The mean over seeds and its standard error, NaN of a single one."""
    error = float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else math.nan
    return float(np.mean(values)), error


def returns(entries: list[dict[str, Any]]) -> tuple[float, float]:
    """The mean of one protocol's entries and its standard error: over the seeds where there are
    several, else over the episodes."""
    mean, error = spread([one["mean"] for one in entries])
    if len(entries) == 1:
        error = entries[0]["sd"] / max(len(entries[0]["episodes"]) - 1, 1) ** 0.5
    return mean, error


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])
