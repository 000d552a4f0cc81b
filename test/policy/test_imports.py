"""Imports run one way: ros, learning, cli, sim -> policy, wiring, safety, never back."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import an_control

PACKAGE = Path(an_control.__file__).parent
CORE = [
    *sorted((PACKAGE / "policy").rglob("*.py")),
    *sorted((PACKAGE / "wiring").rglob("*.py")),
    *sorted((PACKAGE / "disturbance").rglob("*.py")),
    *sorted((PACKAGE / "monitor").rglob("*.py")),
    *sorted((PACKAGE / "control").rglob("*.py")),
    *sorted((PACKAGE / "system").rglob("*.py")),
    PACKAGE / "load.py",
]
OURS = (
    "an_control.policy",
    "an_control.wiring",
    "an_control.disturbance",
    "an_control.monitor",
    "an_control.control",
    "an_control.load",
    "an_control.system",
)
OPTIONAL = {"numba", "cv2", "onnx", "onnxruntime"}
MAY_IMPORT = {"numpy", "yaml", "safetensors", *OPTIONAL, *sys.stdlib_module_names}
FORBIDDEN = ["rclpy", "torch", "gymnasium", "pybullet", "an_control.ros", "an_control_sim"]

IMPORT_ALL = f"""
import importlib, importlib.abc, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        for forbidden in {FORBIDDEN!r}:
            if name == forbidden or name.startswith(forbidden + "."):
                raise AssertionError(f"{{name}} was imported")

sys.meta_path.insert(0, Refuse())
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def imported_by(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            yield node.module


@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_core_imports_only_itself_and_what_the_robot_has(path):
    for name in imported_by(path):
        if name.split(".")[0] == "an_control":
            assert name.startswith(OURS), f"{path.name} imports {name}"
        else:
            assert name.split(".")[0] in MAY_IMPORT, f"{path.name} imports {name}"


def test_the_core_runs_where_neither_ros_nor_torch_nor_a_simulator_is():
    """Every module is really imported, with a finder that refuses the others."""
    modules = [
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for path in CORE
        if not path.stem.startswith("numba_")
    ]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORT_ALL, *modules],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
