"""List the experiments, or run one: ``python -m experiments [NAME [OPTION ...]]``.

Run it in the root of a clone. Each experiment has its own options (``NAME --help``). It and its
processes compute with one thread each, unless ``OMP_NUM_THREADS`` and the like say otherwise.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
CLAIM = re.compile(r"\*\*Claim\.\*\* (.+)")
THREADS = ("OPENBLAS", "OMP", "MKL", "NUMEXPR", "VECLIB_MAXIMUM")


def list_experiments() -> list[str]:
    """Return the names of all experiments, sorted."""
    return sorted(path.parent.name for path in FOLDER.glob("*/run.py"))


def read_claim_of_experiment(name: str) -> str:
    """Return the claim or question in an experiment's README, or "" if it has none."""
    found = CLAIM.search((FOLDER / name / "README.md").read_text(encoding="utf-8"))
    return found[1] if found else ""


def main(arguments: Sequence[str]) -> int:
    """Run the experiment named by the first argument, or list all; return the exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print((__doc__ or "").strip(), "\n")
        for name in list_experiments():
            print(f"{name}\n    {read_claim_of_experiment(name)}")
        return 0
    name, *options = arguments
    if name not in list_experiments():
        print(
            f"{name}: not an experiment (allowed: {', '.join(list_experiments())})", file=sys.stderr
        )
        return 2
    for library in THREADS:
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")  # before numpy is imported
    sys.argv[0] = f"python -m experiments {name}"  # which `--help` shows
    run = importlib.import_module(f"experiments.{name}.run")
    status: int = run.main(options)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
