"""What is supported is one list, which README, setup.py, CI and the choice of Python follow."""

from __future__ import annotations

import json
import os
import platform
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import setuptools
from packaging.requirements import Requirement

from an_control.system.ros_source import describe_ros_problem

ROOT = Path(__file__).resolve().parent.parent
SUPPORT = SimpleNamespace(**runpy.run_path(str(ROOT / "scripts/supported_systems.py")))
VERSION = "{}.{}".format(*sys.version_info)


def fake_python(path: Path, *lines: str) -> Path:
    """Write a program that stands for an interpreter."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    path.chmod(0o755)
    return path


def make_venv(folder: Path, *path: Path, **variables: str) -> tuple[int, str, str]:
    """Run make_venv with only these folders and the system's tools on the PATH."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for name in ("sh", "dirname", "awk", "head", "grep", "cat", "env"):
        found = shutil.which(name)
        assert found, f"needs {name}"
        if not (tools / name).exists():
            (tools / name).symlink_to(found)
    environment = {"PATH": os.pathsep.join(map(str, [*path, tools])), "HOME": str(folder)}
    done = subprocess.run(
        [ROOT / "scripts/make_venv", folder / "venv"],
        cwd=ROOT, env=environment | variables, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def refusal(folder: Path, *path: Path, **variables: str) -> str:
    """Return the one line with which make_venv refuses; it has exit status 2 and makes nothing."""
    status, out, line = make_venv(folder, *path, **variables)
    assert (status, out) == (2, "")
    assert line and "\n" not in line
    assert not (folder / "venv").exists()
    return line


def real_python(folder: Path, name: str = f"python{VERSION}") -> Path:
    """Put this interpreter into a folder, under a name; return the folder."""
    fake_python(folder / name, f'exec "{sys._base_executable}" "$@"')
    return folder


def test_every_cell_says_how_it_was_tested_or_why_not():
    begins = tuple(SUPPORT.LEGS), SUPPORT.SOURCES, "by hand, 20", SUPPORT.NOT
    for cells in SUPPORT.TABLE.values():
        assert len(cells) == len(SUPPORT.PYTHONS)
        assert all(cell in begins[0] or cell.startswith(begins[1:]) for cell in cells)
        assert all(len(cell.split()) <= 6 for cell in cells if cell.startswith(SUPPORT.NOT))


def test_the_readme_shows_the_list():
    assert "\n".join(SUPPORT.format_table_of_systems()) in (ROOT / "README.md").read_text()


@pytest.fixture
def setup_arguments(monkeypatch) -> dict[str, Any]:
    """What setup.py hands to setuptools."""
    found: dict[str, Any] = {}
    monkeypatch.setattr(setuptools, "setup", lambda **arguments: found.update(arguments))
    runpy.run_path(str(ROOT / "setup.py"))
    return found


def test_the_classifiers_are_those_of_the_list(setup_arguments):
    versions = "Programming Language :: Python :: 3."
    named = [
        one.split(" :: ")[-1] for one in setup_arguments["classifiers"] if one.startswith(versions)
    ]
    assert named == list(SUPPORT.PYTHONS)


def test_pybullet_is_asked_for_where_the_list_says_that_there_is_a_wheel(setup_arguments):
    sim = map(Requirement, setup_arguments["extras_require"]["sim"])
    wanted = [one for one in sim if one.name in ("pybullet", "pybullet-arm64")]
    linux = {"sys_platform": "linux", "platform_machine": "x86_64"}
    for version in SUPPORT.PYTHONS:
        found = [one for one in wanted if one.marker.evaluate(linux | {"python_version": version})]
        assert len(found) == (version in SUPPORT.PYBULLET)


def test_pybullet_is_built_where_the_machine_or_the_interpreter_has_no_wheel(monkeypatch):
    for info, machine, origin in (
        ((3, 12, 1), "x86_64", "wheel"),
        ((3, 14, 0), "x86_64", "source"),
        ((3, 12, 1), "aarch64", "source"),
    ):
        monkeypatch.setattr(sys, "version_info", info)
        monkeypatch.setattr(platform, "machine", lambda machine=machine: machine)
        assert list(SUPPORT.find_pybullet_package_kind()) == [origin]


def test_ci_runs_each_leg_of_the_list():
    legs = list(SUPPORT.list_ci_systems())
    assert [one for one in legs if one.endswith(" suite")] == ["3.11 kilted suite"]
    assert "find_python 3.11" in (ROOT / ".ci/run").read_text()
    script = (ROOT / ".ci/leg").read_text()
    for what in {one.split()[2] for one in legs} - {"suite"}:
        assert f"\n{what})\n" in script


def test_a_leg_without_its_interpreter_is_named(tmp_path):
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(
        [ROOT / ".ci/leg", "3.99", "jazzy", "ros"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout == "CPython 3.99 is not on this machine: NOT CHECKED with jazzy (ros)\n"


def test_the_newest_supported_interpreter_is_taken_and_said(tmp_path):
    for version in ("3.9", "3.15"):
        fake_python(tmp_path / "bin" / f"python{version}", "echo newer or older is taken; exit 1")
    status, line, error = make_venv(tmp_path, real_python(tmp_path / "bin"))
    assert (status, error) == (0, "")
    assert f"Python {platform.python_version()}, the newest here" in line
    assert "Kilted's packages from PyPI (ROS=kilted)" in line
    assert (tmp_path / "venv/bin/python").exists()


def test_an_interpreter_of_pyenv_is_found_without_a_shim(tmp_path):
    real_python(tmp_path / f".pyenv/versions/{VERSION}.0/bin")
    status, line, _ = make_venv(tmp_path)
    assert status == 0 and "the newest here" in line


@pytest.mark.parametrize("version", ["3.9.1", "3.15.0"])
def test_an_unsupported_interpreter_is_refused(tmp_path, version):
    python = fake_python(
        tmp_path / "python", f'[ "$1" = --version ] && echo Python {version} && exit', "exit 1"
    )
    line = refusal(tmp_path, PYTHON=str(python))
    assert f"Python {version} is not supported, CPython 3.10 to 3.14 are" in line


@pytest.mark.parametrize("info", [(3, 9, 18), (3, 15, 2)])
def test_an_interpreter_says_itself_that_it_is_not_supported(monkeypatch, info):
    monkeypatch.setattr(sys, "version_info", info)
    line = SUPPORT.describe_why_unsupported("kilted")
    assert line == f"CPython {info[0]}.{info[1]} is not supported, 3.10 to 3.14 are"


def test_no_interpreter_at_all_is_one_line(tmp_path):
    line = refusal(tmp_path)
    assert "an_control needs CPython 3.10 to 3.14 with venv, found none" in line
    assert "make PYTHON=" in line


def test_another_c_library_is_refused(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert "built for glibc; this system has another C library" in SUPPORT.describe_why_unsupported(
        "kilted"
    )


def test_without_a_compiler_the_pybullet_that_must_be_built_is_refused(tmp_path):
    folder = tmp_path / "bin"
    fake_python(
        folder / "python3.14",
        'case "$*" in *pybullet*) echo source && exit ;; esac',
        'case "$*" in *fits*) exit ;; esac',
        f'exec "{sys._base_executable}" "$@"',
    )
    line = refusal(tmp_path, folder, PYTHON="python3.14", CXX="no-such-compiler")
    assert "PyPI has no PyBullet for it, and building it needs no-such-compiler" in line
    assert "make PYTHON=python3.13" in line


def test_a_sourced_distribution_of_another_cpython_is_refused(tmp_path):
    folder = real_python(tmp_path / "bin")
    line = refusal(tmp_path, folder, PYTHON=f"python{VERSION}", ROS_DISTRO="jazzy")
    assert f"jazzy is sourced, but python{VERSION} cannot import its rclpy" in line
    assert "ROS=kilted" in line


def rclpy_in(folder: Path, *distributions: tuple[str, str]) -> Path:
    """Write an rclpy that imports, and the metadata of these distributions; return the folder."""
    (folder / "rclpy").mkdir(parents=True)
    (folder / "rclpy/__init__.py").touch()
    for name, version in distributions:
        info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder


def test_a_sourced_distribution_is_taken_with_the_interpreter_that_imports_it(tmp_path):
    sourced = rclpy_in(tmp_path / "ros", ("rclpy", "7.1.6"))
    status, line, _ = make_venv(
        tmp_path,
        real_python(tmp_path / "bin", "python3"),
        ROS_DISTRO="jazzy",
        PYTHONPATH=str(sourced),
    )
    assert status == 0
    assert "imports jazzy's rclpy" in line and line.endswith(f"sourced jazzy, {sourced}/rclpy")
    assert "build=\n" in (tmp_path / "venv/.ros").read_text()


def test_wheels_beside_a_sourced_distribution_are_refused(tmp_path):
    both = rclpy_in(tmp_path / "ros", ("rclpy", "7.1.6"), ("ros-rclpy", "9.1.2"))
    line = refusal(
        tmp_path, real_python(tmp_path / "bin", "python3"), ROS_DISTRO="jazzy", PYTHONPATH=str(both)
    )
    assert "jazzy is sourced, and python3 also has PyPI's ros-rclpy" in line


@pytest.mark.parametrize("command", ["an-control run --wiring w.yaml --model ant", "policy_node"])
@pytest.mark.parametrize(
    ("distributions", "said"),
    [
        ([("rclpy", "7.1.6"), ("ros-rclpy", "9.1.2")], "two ROS 2 at once: PyPI's ros-rclpy in"),
        ([("rclpy", "3.3.21")], "rclpy 3.3.21 is older than Jazzy's 7.1 and lacks"),
    ],
)
def test_a_ros_that_cannot_serve_is_refused_at_start(tmp_path, command, distributions, said):
    folders = []
    for number, distribution in enumerate(distributions):
        folders.append(str(rclpy_in(tmp_path / str(number), distribution)))
    name, *words = command.split()
    code = (
        "import importlib.metadata as m, sys; from pathlib import Path;"
        f"hidden = {len(distributions) == 1};"
        "real = m.distribution;"
        "gone = m.PackageNotFoundError;\n"
        "def distribution(name):\n"
        "    if hidden and name == 'ros-rclpy': raise gone(name)\n"
        "    return real(name)\n"
        "m.distribution = distribution\n"
        "import an_control.entry_points as e\n"
        f"sys.argv = {[name, *words]!r}\n"
        f"sys.exit(e.{name.replace('-', '_')}())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": os.pathsep.join(folders)},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert said in line


def test_the_folder_of_the_wheels_on_pythonpath_is_no_second_ros(tmp_path, monkeypatch):
    wheels = rclpy_in(tmp_path, ("rclpy", "9.1.2"), ("ros-rclpy", "9.1.2"))
    monkeypatch.syspath_prepend(str(wheels))
    monkeypatch.setenv("PYTHONPATH", str(wheels))
    assert describe_ros_problem() == ""


def test_the_ants_returns_hold_to_the_last_bit():
    """Real processes over ROS 2: what was recorded for this pair, else for 3.11 and Kilted."""
    results = json.loads((ROOT / "experiments/golden_returns/results.json").read_text())
    assert results["ant"]["3.11 Kilted"] == [3351.350098743104, 3339.578789651745]
    assert results["ant, seed 1"]["3.11 Kilted"] == [3429.358695027433]
    runs = ["--runs", "ant", "ant, seed 1"]
    done = subprocess.run(
        [sys.executable, "experiments/golden_returns/run.py", "--check", *runs],
        cwd=ROOT, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
