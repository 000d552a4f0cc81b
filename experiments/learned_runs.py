"""Functions for experiments that compare trained policies: run an-control and tabulate the results.

The figures of a table are kept in a small file beside the page, because the folder of a run is
large and is not in the repository.
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
"""File in a run's folder with the results of its evaluation, written when the evaluation has
ended."""
SETTINGS = "settings.json"
"""File in a run's folder with the settings of its training and evaluation."""
Settings = Mapping[str, Any]
"""Settings by name that all rows of a table must have in common; a value is None if it is not
known."""
Results = dict[str, dict[str, dict[str, Any]]]
"""The result of each run, by name of the policy's folder and by seed. It has the settings, if they
are known, the number of parameters, and the figures under each protocol (disturbance)."""


class SettingsMismatchError(ValueError):
    """An error: a run was made with other settings than the runs with which it is compared.

    The text names the run and the setting.
    """


def run_an_control(*arguments: str) -> None:
    """Run the command `an-control` with these arguments, and wait for its end."""
    program = Path(sys.executable).parent / "an-control"
    subprocess.run([program, *arguments], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def evaluate_model_of_run(
    folder: Path, task: str, protocols: list[str], episodes: int, seed: int, *options: str
) -> None:
    """Evaluate the model in a run's folder under disturbances; write the results to rows.json."""
    run_an_control(
        *("evaluate", str(folder / "model.safetensors"), "--task", task, *options),
        *("--episodes", str(episodes), "--seed", str(seed)),
        *("--state", str(folder / "rows.state"), "--json", str(folder / ROWS)),
        *("--table", *protocols),
    )


def write_settings_and_tell_if_unfinished(run: Path, settings: Settings) -> bool:
    """Return whether a run still has to be made; if so, write its settings to its folder.

    Raises:
        SettingsMismatchError: The folder has a run with other settings.
    """
    _check_same_settings(str(run), _read_settings(run), settings)
    if (run / ROWS).exists():
        return False
    run.mkdir(parents=True, exist_ok=True)
    (run / SETTINGS).write_text(json.dumps(settings, indent=1) + "\n")
    return True


def read_results(results_file: Path, policies: Mapping[Path, Settings]) -> Results:
    """Return the results of all runs, by name of the policy's folder and then by seed.

    They are read from the results file and the runs' folders. If both have the result of a run, the
    one in the folder is returned. `policies` maps the folder of a policy's runs to the settings
    that these runs must have.

    Raises:
        SettingsMismatchError: A run has other settings.
    """
    found: Results = json.loads(results_file.read_text()) if results_file.exists() else {}
    for policy, settings in policies.items():
        for path in sorted(policy.glob(f"*/{ROWS}")):
            _check_same_settings(str(path.parent), _read_settings(path.parent), settings)
            found.setdefault(policy.name, {})[path.parent.name] = _summarise_run(path.parent)
        for seed, one in found.get(policy.name, {}).items():
            _check_same_settings(
                f"{results_file}: {policy.name}/{seed}", one.get("settings", {}), settings
            )
    return found


def update_results_file(results_file: Path, policies: Mapping[Path, Settings]) -> Results:
    """Add the results in the runs' folders to the results file, and return all results.

    `policies` maps the folder of a policy's runs to the settings that these must have.
    """
    found = read_results(results_file, policies)
    results_file.parent.mkdir(parents=True, exist_ok=True)
    results_file.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    return found


def _summarise_run(run: Path) -> dict[str, Any]:
    """Return a run's settings, number of parameters and results, for the results file."""
    settings = _read_settings(run)
    return {
        **({"settings": settings} if settings else {}),
        "parameters": read_model(run / "model.safetensors").parameter_count,
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


def _read_settings(run: Path) -> Settings:
    """Return the settings in a run's folder; {} if the folder has no file of settings."""
    path = run / SETTINGS
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _check_same_settings(run_name: str, settings: Settings, expected: Settings) -> None:
    """Check that a run has the settings of the table."""
    for name, value in expected.items():
        before = settings.get(name)
        if None not in (before, value) and before != value:
            raise SettingsMismatchError(f"{run_name}: {name} was {before}, not {value}")


def list_results_under_disturbance(
    results: Results, policy: Path, protocol: str
) -> list[dict[str, Any]]:
    """Return a policy's results under one disturbance, one for each seed; [] if it has no runs.

    `results` are all results, from `read_results`; `policy` is the folder of the policy's runs.
    """
    return [run["protocols"][protocol] for _, run in sorted(results.get(policy.name, {}).items())]


def format_parameters_and_seeds(results: Results, policy: Path) -> list[str]:
    """Format a policy's number of parameters and number of seeds as two cells of a table."""
    runs = results[policy.name].values()
    return [", ".join(sorted({str(run["parameters"]) for run in runs})), str(len(runs))]


def compute_mean_and_standard_error(values: list[float]) -> tuple[float, float]:
    """Return the mean of some values and the standard error of the mean; NaN for a single value."""
    error = float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else math.nan
    return float(np.mean(values)), error


def compute_mean_return_with_error(results: list[dict[str, Any]]) -> tuple[float, float]:
    """Return a policy's mean return under a disturbance, and the standard error of that mean.

    `results` has one entry for each seed; see `list_results_under_disturbance`. The error is
    computed over the seeds, or over the episodes if there is one seed.
    """
    mean, error = compute_mean_and_standard_error([one["mean"] for one in results])
    if len(results) == 1:
        error = results[0]["sd"] / max(results[0]["episodes"] - 1, 1) ** 0.5
    return mean, error


def make_markdown_table(head: list[str], rows: list[list[str]]) -> str:
    """Format a Markdown table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])
