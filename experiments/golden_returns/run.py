"""Compare the simulated robots' returns, bit by bit, between versions of ROS 2 and CPython.

    python experiments/golden_returns/run.py [--python PYTHON ...] [--runs NAME ...] [--check]

Each PYTHON is the interpreter of an environment in which an_control is installed with `[ros,sim]`;
the default is the interpreter that runs this script. Results are added to results.json, and the
table of README.md is updated. With `--check` nothing is written, and the status is 1 if a return
differs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS, PAGE = HERE / "results.json", HERE / "README.md"
REFERENCE = "3.11 Kilted"
RUNS = {
    "ant": ["ant", "--episodes", "2", "--shuffle", "reset"],
    "ant, seed 1": ["ant", "--episodes", "1", "--seed", "1"],
    "cartpole": ["cartpole", "--episodes", "4", "--shuffle", "reset"],
    "car_racing": ["car_racing", "--episodes", "1", "--shuffle", "reset"],
    "pong": ["pong", "--episodes", "1", "--shuffle", "reset"],
}
"""Arguments of `an-control sim` for each run."""
NAME = (
    "import sys; from an_control.ros.distributions import get_distribution_name;"
    "print('{}.{}'.format(*sys.version_info), get_distribution_name())"
)


def make_environment_variables_for_other_python() -> dict[str, str]:
    """Return this process's environment variables for a process with another Python interpreter.

    The library paths that PyPI's ROS 2 packages set are left out: they fit only this interpreter.
    """
    found = {"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST", **os.environ}
    if found.pop("_ROS_WHEELS_BOOTSTRAP_COMPLETE", None):
        found.pop("LD_LIBRARY_PATH", None)
    return found


def format_python_and_ros_versions(python: str) -> str:
    """Return the versions of CPython and ROS 2 of a Python interpreter, such as "3.11 Kilted".

    `python` is the path of the interpreter, which is run to get them.
    """
    done = subprocess.run(
        [python, "-c", NAME],
        env=make_environment_variables_for_other_python(),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def run_simulation_and_get_returns(python: str, run: str) -> list[float]:
    """Run a simulation in lockstep over ROS 2 and return the returns of its episodes.

    `python` is the path of the interpreter that runs it; `run` is a key of `RUNS`.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.json")
        command = [python, "-m", "an_control", "sim", *RUNS[run], "--json", str(path)]
        done = subprocess.run(
            command,
            env=make_environment_variables_for_other_python(),
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(
                f"{' '.join(command)}: status {done.returncode}\n{done.stderr[-2000:]}"
            )
        return [episode["return"] for episode in json.loads(path.read_text())["episodes"]]


def read_results() -> dict[str, dict[str, list[float]]]:
    """Return the returns in results.json, by run and by versions such as "3.11 Kilted"."""
    found: dict[str, dict[str, list[float]]] = {}
    if RESULTS.exists():
        found = json.loads(RESULTS.read_text())
    return found


def find_expected_returns(
    results: dict[str, dict[str, list[float]]], run: str, versions: str
) -> list[float]:
    """Return the recorded returns of a simulation, to which new ones are compared.

    They were recorded with `versions`, such as "3.11 Kilted", or else with those in `REFERENCE`.
    """
    return results[run].get(versions) or results[run][REFERENCE]


def make_markdown_results_table(results: dict[str, dict[str, list[float]]]) -> str:
    """Return a Markdown table: rows are simulations, columns are versions of Python and ROS 2.

    A cell is `=` if its returns equal those with the versions `REFERENCE` to the last bit.
    """
    all_versions = sorted(
        {versions for row in results.values() for versions in row}, key=_make_sort_key
    )
    lines = [
        f"| run | {REFERENCE}, returns | " + " | ".join(all_versions) + " |",
        "|" + "---|" * (len(all_versions) + 2),
    ]
    for run, row in results.items():
        reference = row[REFERENCE]
        cells = [
            "not run" if versions not in row else _format_cell(row[versions], reference)
            for versions in all_versions
        ]
        shown = ", ".join(map(repr, reference))
        lines.append(f"| `{' '.join(RUNS[run])}` | {shown} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _make_sort_key(versions: str) -> tuple[str, int]:
    """Return a key to sort texts such as "3.11 Kilted" by ROS 2 distribution, then by CPython."""
    version, name = versions.split()
    return name, int(version.split(".")[1])


def _format_cell(returns: list[float], reference: list[float]) -> str:
    """Format returns as a cell of the table, which is `=` if they equal the reference returns."""
    return "=" if returns == reference else ", ".join(map(repr, returns))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run simulations with several Python interpreters, and compare or record their returns.

    Return the exit status, which is 1 if a compared return differs.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", nargs="+", default=[sys.executable])
    parser.add_argument("--runs", nargs="+", default=list(RUNS), choices=list(RUNS))
    parser.add_argument("--check", action="store_true", help="compare; write nothing")
    options = parser.parse_args(arguments)
    results = read_results()
    failed = False
    for python in options.python:
        versions = format_python_and_ros_versions(python)
        for run in options.runs:
            found = run_simulation_and_get_returns(python, run)
            print(f"{versions}: {run}: {', '.join(map(repr, found))}", flush=True)
            if options.check:
                if found != find_expected_returns(results, run, versions):
                    print(f"  recorded: {find_expected_returns(results, run, versions)}")
                    failed = True
                continue
            results = read_results()  # another run may have added to them meanwhile
            results.setdefault(run, {})[versions] = found
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    if not options.check:
        marks = "<!-- returns -->\n", "<!-- end of returns -->"
        page = PAGE.read_text()
        part = re.compile(f"({marks[0]}).*?({marks[1]})", re.DOTALL)
        PAGE.write_text(
            part.sub(lambda found: found[1] + make_markdown_results_table(results) + found[2], page)
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
