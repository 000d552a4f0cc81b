"""Check that pip finds wheels of all packages that a robot needs, for each CPython and machine.

    python scripts/wheels.py [--machines aarch64 x86_64] [--pythons 3.10 ... 3.14]

A wheel is a package file that pip installs without compiling, and a machine is a processor
architecture. The packages are the requirements of setup.py, the extras `camera` and `view` of
setup.py, and numba. ROS 2 is not among them, because it comes from apt on a robot. Nothing is
installed. The exit status is 1 if a wheel is missing.
"""

from __future__ import annotations

import argparse
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import setuptools

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = runpy.run_path(str(ROOT / "scripts/supported_systems.py"))["PYTHONS"]
GLIBC = ("2_34", "2_28", "2_27", "2_24", "2_17")
"""glibc versions of wheels that Ubuntu 22.04 and later can load."""


def list_robot_requirements() -> list[str]:
    """Return the names and versions of the packages in setup.py that a robot needs."""
    found: dict[str, Any] = {}
    setuptools.setup = lambda **arguments: found.update(arguments)
    runpy.run_path(str(ROOT / "setup.py"))
    extras = found["extras_require"]
    numba = [one for one in extras["sim"] if one.startswith("numba")]
    return [*found["install_requires"], *extras["camera"], *extras["view"], *numba]


def describe_missing_wheels(machine: str, python: str) -> str:
    """Return pip's error line if wheels of the requirements are missing, else "".

    Args:
        machine: Processor architecture, such as "aarch64".
        python: CPython version, such as "3.12".
    """
    platforms = [f"manylinux_{one}_{machine}" for one in GLIBC]
    platforms += [f"manylinux2014_{machine}", f"linux_{machine}"]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet",
             "--disable-pip-version-check", "--only-binary=:all:", "--target", folder,
             "--implementation=cp", f"--python-version={python}",
             *(f"--platform={one}" for one in platforms), *list_robot_requirements()],
            capture_output=True, text=True,
        )  # fmt: skip
    return (done.stderr.strip().splitlines() or ["failed"])[-1] if done.returncode else ""


def print_wheel_coverage_and_get_exit_status() -> int:
    """Print for each processor architecture and CPython version whether all wheels exist.

    A wheel is a package file that pip installs without compiling.

    Returns:
        The exit status, which is 1 if any wheel is missing.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--machines", nargs="+", default=["aarch64", "x86_64"])
    parser.add_argument("--pythons", nargs="+", default=PYTHONS)
    options = parser.parse_args()
    failed = False
    for machine in options.machines:
        for python in options.pythons:
            found = describe_missing_wheels(machine, python)
            failed |= bool(found)
            print(f"{machine}, CPython {python}: {found or 'all wheels found'}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(print_wheel_coverage_and_get_exit_status())
