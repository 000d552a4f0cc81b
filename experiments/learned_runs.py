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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from an_control.policy import read_model

ROOT = Path(__file__).resolve().parent.parent
ROWS = "rows.json"
"""In a run's folder: the results of its evaluation, there once that has ended."""
SETTINGS = "settings.json"
"""In a run's folder: how it is learned and evaluated."""
Settings = Mapping[str, Any]
"""By name: what rows of one table must have in common; None where it is not known."""
Results = dict[str, dict[str, dict[str, Any]]]
"""By the name of a policy's folder and by seed: settings where they are known, parameters, and the
figures of each protocol."""


class OtherSettings(ValueError):
    """A run that does not belong into this table; the message names it and what is different."""


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


def begin(run: Path, settings: Settings) -> bool:
    """Note the settings in a run's folder; False where it has been evaluated.

    OtherSettings where the folder is of a run with others.
    """
    _check(str(run), _settings_of(run), settings)
    if (run / ROWS).exists():
        return False
    run.mkdir(parents=True, exist_ok=True)
    (run / SETTINGS).write_text(json.dumps(settings, indent=1) + "\n")
    return True


def known(kept: Path, policies: Mapping[Path, Settings]) -> Results:
    """Return the figures of the file `kept`, with those of all runs that have been evaluated.

    Each policy has a folder, with a folder for each seed. A run takes the place of what was kept
    of its policy and seed. OtherSettings where a policy has a run with others.
    """
    found: Results = json.loads(kept.read_text()) if kept.exists() else {}
    for policy, settings in policies.items():
        for path in sorted(policy.glob(f"*/{ROWS}")):
            _check(str(path.parent), _settings_of(path.parent), settings)
            found.setdefault(policy.name, {})[path.parent.name] = _entry(path.parent)
        for seed, one in found.get(policy.name, {}).items():
            _check(f"{kept}: {policy.name}/{seed}", one.get("settings", {}), settings)
    return found


def collect(kept: Path, policies: Mapping[Path, Settings]) -> Results:
    """Return what is `known`, and write it into the file `kept`."""
    found = known(kept, policies)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    return found


def _entry(run: Path) -> dict[str, Any]:
    """Return what is kept of a run."""
    settings = _settings_of(run)
    return {
        **({"settings": settings} if settings else {}),
        "parameters": read_model(run / "model.safetensors").parameters,
        "protocols": {
            one["protocol"]: {
                "mean": round(one["mean"], 4),
                "sd": round(one["sd"], 4),
                "success_share": one["success_share"],
                "episodes": len(one["episodes"]),
            }
            for one in json.loads((run / ROWS).read_text())["protocols"]
        },
    }


def _settings_of(run: Path) -> Settings:
    """Return the settings in a run's folder; none if the run is older than that file."""
    path = run / SETTINGS
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _check(where: str, there: Settings, asked: Settings) -> None:
    """Raise OtherSettings if a run was made with other settings than those that are asked for."""
    for name, value in asked.items():
        before = there.get(name)
        if None not in (before, value) and before != value:
            raise OtherSettings(f"{where}: {name} was {before}, not {value}")


def entries(found: Results, policy: Path, protocol: str) -> list[dict[str, Any]]:
    """Return the results of a policy's seeds under a protocol; none if nothing is known."""
    return [run["protocols"][protocol] for _, run in sorted(found.get(policy.name, {}).items())]


def counts(found: Results, policy: Path) -> list[str]:
    """Return a policy's number of parameters and of seeds."""
    runs = found[policy.name].values()
    return [", ".join(sorted({str(run["parameters"]) for run in runs})), str(len(runs))]


def spread(values: list[float]) -> tuple[float, float]:
    """Return the mean over seeds and its standard error, NaN for a single one."""
    error = float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else math.nan
    return float(np.mean(values)), error


def returns(some: list[dict[str, Any]]) -> tuple[float, float]:
    """Return the mean of one protocol's entries and its standard error: over the seeds if there are
    several, else over the episodes."""
    mean, error = spread([one["mean"] for one in some])
    if len(some) == 1:
        error = some[0]["sd"] / max(some[0]["episodes"] - 1, 1) ** 0.5
    return mean, error


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """Return a table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])
