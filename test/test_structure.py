"""The structure of the code: imports run one way, from the command line down to the policy."""

import ast
import importlib.util
import re
import sys
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LEVELS = (
    {"system"},
    {"policy", "wiring"},
    {"disturbance", "monitor"},
    {"load"},
    {"control"},
    {"record"},
    {"ros"},
    {"commissioning", "view"},
    {"an_control_sim"},
    {"learning"},
    {"bench"},
    {"cli"},
    {"entry_points", "__main__"},
)
"""What stands on which level; each imports only from its own and from below."""


@pytest.fixture(scope="module")
def structure():
    """The script that draws the picture of the architecture page."""
    spec = importlib.util.spec_from_file_location("structure", ROOT / "scripts/structure.py")
    module = sys.modules["structure"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["structure"]


def level_of(module):
    parts = module.split(".")
    name = parts[0] if parts[0] == "an_control_sim" else parts[1] if len(parts) > 1 else None
    if name is None:
        return None  # an_control itself: the version, and the policy on first use
    return next(number for number, names in enumerate(LEVELS) if name in names)


def test_no_file_imports_from_a_higher_floor(structure):
    for module, imports in structure.collect_imports_of_modules().items():
        for other in imports:
            levels = level_of(module), level_of(other)
            assert None in levels or levels[0] >= levels[1], f"{module} imports {other}"


def test_the_product_never_imports_the_laboratory():
    for folder in ("an_control", "sim", "launch", "scripts", "."):
        files = (ROOT / folder).glob("*.py" if folder == "." else "**/*.py")
        for path in files:
            words = re.findall(
                r"^\s*(?:from|import)\s+(\w+)", path.read_text(encoding="utf-8"), re.MULTILINE
            )
            assert "experiments" not in words, path


ROBOT = {"control", "load", "monitor", "policy", "record", "ros", "system", "wiring"}
"""The folders of what a robot runs."""
ROBOT_HAS = {
    "builtin_interfaces", "cv2", "diagnostic_msgs", "lifecycle_msgs", "mcap", "numba",
    "numpy", "onnx", "onnxruntime", "rcl_interfaces", "rclpy", "safetensors", "sensor_msgs",
    "std_msgs", "std_srvs", "yaml",
}  # fmt: skip
COMPUTED = {
    "an_control/wiring/messages.py": "the packages of the message types that a wiring names",
    "an_control/learning/teacher/teachers.py": "the user's teacher",
    "sim/an_control_sim/gym/environments.py": "the user's environment",
}
"""Files that import a module by a name that is computed, and of what."""


def test_the_node_reaches_only_what_a_robot_has(structure):
    texts, reached = (
        structure.read_module_sources(),
        structure.collect_imported_modules(structure.NODE),
    )
    folders = {module.split(".")[1] for module in reached if "." in module}
    assert folders == ROBOT
    others = {
        name.split(".")[0]
        for module in reached
        for node in ast.walk(ast.parse(texts[module]))
        for name in (
            [alias.name for alias in node.names] if isinstance(node, ast.Import)
            else [node.module] if isinstance(node, ast.ImportFrom) else []
        )
    }  # fmt: skip
    assert others - set(sys.stdlib_module_names) - {"an_control"} <= ROBOT_HAS


def test_no_module_is_imported_by_a_computed_name_but_the_users(structure):
    found = set()
    for folder in ("an_control", "sim"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if (
                    isinstance(node, ast.Call)
                    and getattr(node.func, "attr", getattr(node.func, "id", ""))
                    in ("import_module", "__import__")
                    and not (node.args and isinstance(node.args[0], ast.Constant))
                ):
                    found.add(str(path.relative_to(ROOT)))
    assert found == set(COMPUTED)


def test_no_files_import_each_other_in_a_cycle(structure):
    try:
        tuple(TopologicalSorter(structure.collect_imports_of_modules()).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_no_rooms_import_each_other_in_a_cycle(structure):
    folders = structure.collect_folders()
    structure.compute_import_levels_of_folders(
        {name: folder.imports for name, folder in folders.items()}
    )


def test_a_cycle_and_its_rooms_are_found(structure):
    with pytest.raises(CycleError):
        structure.compute_import_levels_of_folders({"a": {"b"}, "b": {"c"}, "c": {"a"}})


def test_a_class_name_has_one_meaning():
    places = defaultdict(list)
    for folder in ("an_control", "sim/an_control_sim", "launch", "scripts", "experiments"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_lines_of_code_are_counted_without_docstrings(structure):
    text = '"""One\nmodule."""\n\nA = 1\n"""Its meaning."""\nB = "no docstring"\n'
    assert structure.count_lines_without_docstrings(text) == 3
    assert structure.describe_imported_modules("an_control.system.blas").startswith(
        "an_control.system.blas reaches 1 files, "
    )


def test_the_picture_of_the_structure_is_drawn(structure, tmp_path):
    pytest.importorskip("matplotlib")
    structure.draw_folders(structure.collect_folders(), tmp_path / "structure.png", "an_control")
    assert (tmp_path / "structure.png").stat().st_size > 10_000


def test_every_file_that_the_architecture_page_names_is_there():
    page = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_0-9/]+\.py)`", page))
    assert len(named) > 15
    homes = ROOT, ROOT / "an_control"
    assert [one for one in named if not any((home / one).is_file() for home in homes)] == []


def test_every_method_that_the_architecture_page_names_is_in_a_file_of_its_row():
    page = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    checked = 0
    for row in page.splitlines():
        files = [ROOT / "an_control" / one for one in re.findall(r"`([a-z_0-9/]+\.py)`", row)]
        there = {
            f"{cls.name}.{method.name}"
            for file in files
            for cls in ast.parse(file.read_text(encoding="utf-8")).body
            if isinstance(cls, ast.ClassDef)
            for method in cls.body
            if isinstance(method, ast.FunctionDef)
        }
        named = re.findall(r"`([A-Z]\w+\.\w+)`", row) if row.startswith("|") else []
        assert set(named) <= there, row
        checked += len(named)
    assert checked > 15
