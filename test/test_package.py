"""What colcon and pip make of the package: both must serve `ros2 launch` and `ros2 run`."""

import ast
import importlib.metadata
import os
import re
import shutil
import stat
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import an_control

ROOT = Path(__file__).resolve().parent.parent
TASKS = "/proc/self/task"
DEPLOY = ROOT / "docs/how-to/deploy.md"
EXECUTABLES = ["an-control", "policy_node", "scrambler", "simulator"]
ROS_PACKAGES = {
    "builtin_interfaces", "diagnostic_msgs", "geometry_msgs", "launch", "launch_ros",
    "lifecycle_msgs", "nav_msgs", "rcl_interfaces", "rclpy", "rosgraph_msgs", "sensor_msgs",
    "std_msgs", "std_srvs", "trajectory_msgs",
}  # fmt: skip
ROSDEP_KEYS = {
    "python3-hypothesis", "python3-jsonschema", "python3-myst-parser-pip", "python3-numpy",
    "python3-opencv", "python3-pytest", "python3-pytest-timeout", "python3-rich", "python3-scipy",
    "python3-sphinx", "python3-tornado", "python3-yaml", "ros2launch",
}  # fmt: skip
"""Keys of rosdistro's rosdep/python.yaml and jazzy/distribution.yaml, read in 2026-11."""
NOT_ON_THE_ROBOT = ROS_PACKAGES | {
    "an_control_sim", "cma", "dask", "distributed", "gymnasium", "matplotlib", "pybullet",
    "tensorboard", "torch",
}  # fmt: skip


CORE = (
    "policy", "wiring", "safety.py", "share.py", "files.py", "start.py", "interrupts.py",
    "__init__.py",
)  # fmt: skip


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source tree, as a workspace's src/an_control, for builds to write beside."""
    workspace = tmp_path_factory.mktemp("workspace")
    parts = ["package.xml", "setup.py", "setup.cfg", "pyproject.toml", "LICENSE", "README.md"]
    parts += ["an_control", "sim", "launch", "config", "recipes", "models", "resource", "scripts"]
    copy = workspace / "src" / "an_control"
    copy.mkdir(parents=True)
    for part in parts:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / part, copy / part)
    return copy


def colcon(workspace: Path, *arguments: str) -> str:
    """Run colcon in a workspace without what this shell has sourced; its standard output."""
    program = Path(sys.executable).parent / "colcon"
    if not program.is_file():
        pytest.skip(f"needs colcon-common-extensions beside {sys.executable}")
    unset = ("AMENT_PREFIX_PATH", "COLCON_PREFIX_PATH", "CMAKE_PREFIX_PATH", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment["PATH"] = f"{program.parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        [program, *arguments],
        cwd=workspace, env=environment, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def assert_serves_ros2(prefix: Path, site: Path) -> None:
    """The prefix holds what ros2 looks for, and its code finds its files there."""
    assert (prefix / "share/ament_index/resource_index/packages/an_control").is_file()
    for folder in ("launch", "config", "recipes", "models"):
        shipped = {one.name for one in (ROOT / folder).iterdir() if one.is_file()}
        installed = prefix / "share/an_control" / folder
        assert {one.name for one in installed.iterdir() if one.is_file()} == shipped
    assert (prefix / "share/an_control/package.xml").is_file()
    executables = prefix / "lib/an_control"
    assert sorted(one.name for one in executables.iterdir()) == EXECUTABLES
    for one in executables.iterdir():
        assert one.stat().st_mode & stat.S_IXUSR, f"{one} is not executable"
    paths = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "PATH": "/usr/bin:/bin"}
    shown = subprocess.run(
        [executables / "an-control", "--help"],
        env=environment, cwd=prefix, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert "an-control" in shown.stdout
    code = (
        "import an_control, an_control_sim; from an_control.system.share import find_share_path;"
        "print(an_control.__file__); print(find_share_path('config/ant.yaml'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment, cwd=prefix, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    module, wiring = done.stdout.splitlines()
    assert Path(module).is_relative_to(site)
    assert Path(wiring).read_bytes() == (ROOT / "config/ant.yaml").read_bytes()


def assert_gymnasium_finds_the_environments(site: Path) -> None:
    """Gymnasium, which knows no plugins since 1.0, imports the package that an id names."""
    pytest.importorskip("gymnasium", reason="needs the sim extra")
    code = (
        "import gymnasium;"
        "env = gymnasium.make('an_control_sim:an_control/CartPoleSwingUpHarder-v0');"
        "import an_control_sim; print(an_control_sim.__file__, env.reset(seed=1)[0].shape)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        cwd=site, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0].startswith(str(site))


def test_colcon_takes_the_package_for_an_ament_python_one(source: Path) -> None:
    assert "(ros.ament_python)" in colcon(source.parent.parent, "list")


def test_a_test_module_that_needs_an_extra_is_skipped_without_it(tmp_path: Path) -> None:
    lacking = "raise ModuleNotFoundError(\"No module named 'gymnasium'\", name='gymnasium')"
    (tmp_path / "gymnasium.py").write_text(lacking)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test/sim/test_bridge.py"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=ROOT, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 5, done.stdout
    assert "needs gymnasium" in done.stdout


@pytest.mark.parametrize("option", [[], ["--symlink-install"]], ids=["plain", "symlink"])
def test_a_colcon_install_serves_ros2(source: Path, tmp_path: Path, option: list[str]) -> None:
    bases = ["--build-base", f"{tmp_path}/build", "--install-base", f"{tmp_path}/install"]
    colcon(source.parent.parent, "--log-base", f"{tmp_path}/log", "build", *bases, *option)
    prefix = tmp_path / "install" / "an_control"
    site = next(prefix.glob("lib/python3*/site-packages"))
    assert_serves_ros2(prefix, tmp_path / "build" / "an_control" if option else site)


@pytest.mark.parametrize("option", [[], ["--editable"]], ids=["plain", "editable"])
def test_a_pip_install_serves_ros2(source: Path, tmp_path: Path, option: list[str]) -> None:
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation"]
    command += ["--disable-pip-version-check", "--no-index", "--ignore-installed", "--prefix"]
    done = subprocess.run(
        [*command, str(tmp_path), *option, str(source)],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    site = next(tmp_path.glob("lib/python3*/site-packages"))
    if option:
        pth = next(site.glob("__editable__*.pth")).read_text()
        assert "an_control" in pth
        assert sorted(one.name for one in (tmp_path / "lib/an_control").iterdir()) == EXECUTABLES
    else:
        assert_serves_ros2(tmp_path, site)
        assert_gymnasium_finds_the_environments(site)


def test_the_versions_agree() -> None:
    version = an_control.__version__
    assert ElementTree.parse(ROOT / "package.xml").findtext("version") == version
    assert f'version="{version}"' in (ROOT / "setup.py").read_text()
    assert f"\n{version} (" in (ROOT / "CHANGELOG.rst").read_text()
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()


def test_package_xml_names_every_ros_package_that_is_imported() -> None:
    package = ElementTree.parse(ROOT / "package.xml")
    named = {one.text for one in package.iter("exec_depend")}
    used = set()
    for part in ("an_control", "sim", "launch"):
        used |= set().union(*map(imports, (ROOT / part).rglob("*.py")))
    assert used & ROS_PACKAGES <= named


def test_rosdep_resolves_all_that_package_xml_names() -> None:
    package = ElementTree.parse(ROOT / "package.xml")
    kinds = ("exec_depend", "test_depend", "doc_depend", "depend", "build_depend")
    named = {one.text for kind in kinds for one in package.iter(kind)}
    assert named <= ROS_PACKAGES | ROSDEP_KEYS


def test_the_page_installs_what_has_no_rosdep_key() -> None:
    needed = importlib.metadata.requires("an_control") or []
    names = {re.split(r"[^\w.-]", one)[0].lower() for one in needed if "extra ==" not in one}
    keys = {"numpy": "python3-numpy", "pyyaml": "python3-yaml", "rich": "python3-rich"}
    assert set(keys.values()) <= ROSDEP_KEYS
    (line,) = re.findall(r"pip install (.*?) +# they have no rosdep key", DEPLOY.read_text())
    recording = {"mcap"}  # of an extra; without it there is no black box
    assert set(line.split()) == names - set(keys) | recording


def test_what_runs_on_a_robot_needs_neither_torch_nor_a_simulator() -> None:
    needed = importlib.metadata.requires("an_control") or []
    names = {re.split(r"[^\w.-]", one)[0].lower() for one in needed if "extra ==" not in one}
    assert names == {"numpy", "pyyaml", "safetensors", "tyro", "rich"}


@pytest.mark.parametrize(
    "part",
    [
        "policy",
        "wiring",
        "safety.py",
        "share.py",
        "files.py",
        "start.py",
        "interrupts.py",
        "__init__.py",
    ],
)
def test_the_core_imports_neither_ros_nor_what_only_learning_needs(part: str) -> None:
    path = ROOT / "an_control" / part
    for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
        assert not imports(file) & NOT_ON_THE_ROBOT, file


def test_learning_needs_no_ros() -> None:
    for file in sorted((ROOT / "an_control/learning").rglob("*.py")):
        assert not imports(file) & ROS_PACKAGES, file


def imports(file: Path) -> set[str]:
    """The top-level names of the packages that a file imports, at its top or in a function."""
    found = set()
    for statement in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(statement, ast.Import):
            found |= {alias.name.split(".")[0] for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            found.add(statement.module.split(".")[0])
    return found


@pytest.mark.parametrize("name", EXECUTABLES)
def test_every_command_leads_to_a_function(name: str) -> None:
    pytest.importorskip("rclpy")
    scripts = importlib.metadata.entry_points(group="console_scripts", name=name)
    (script,) = [one for one in scripts if one.dist and one.dist.name == "an_control"]
    assert callable(script.load())


def test_another_python_is_refused_in_one_line(tmp_path: Path) -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("needs make")
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.1\nexit 1\n')
    python.chmod(0o755)
    done = subprocess.run(
        [make, "ant", f"PYTHON={python}", f"VENV={tmp_path}/venv"],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    line, *rest = done.stderr.splitlines()
    assert done.returncode != 0
    assert "CPython 3.10 to 3.14" in line
    assert "Python 3.9.1" in line
    assert [one for one in rest if not one.startswith("make")] == []
    assert not (tmp_path / "venv").exists()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="BLAS has but one thread anyway")
@pytest.mark.parametrize("module", ["an_control.cli", "an_control.ros.node"])
def test_what_acts_has_one_blas_thread_unless_asked(module):
    if module == "an_control.ros.node":
        pytest.importorskip("rclpy")

    count = f"import {module}, numpy, os; print(len(os.listdir({TASKS!r})))"

    def threads(asked: str | None) -> int:
        unset = {key: value for key, value in os.environ.items() if key != "OPENBLAS_NUM_THREADS"}
        counted = subprocess.run(
            [sys.executable, "-c", count],
            env=unset | ({} if asked is None else {"OPENBLAS_NUM_THREADS": asked}),
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        return int(counted.stdout)

    assert threads(None) == threads("1") == threads("2") - 1
