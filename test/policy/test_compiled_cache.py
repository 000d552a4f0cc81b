"""Machine code kept on disk: it is never older than the sources that went into it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import an_control

pytest.importorskip("numba", reason="only compiled code is kept on disk")
PACKAGE = Path(an_control.__file__).parent

INLINED = """
from an_control.system.compiled_cache import njit
from an_control.number import FACTOR

@njit(inline="always")
def times(x):
    return FACTOR * x
"""
CALLER = """
from an_control.system.compiled_cache import njit
from an_control.inlined import times

@njit(cache=True)
def of_one():
    return times(1)
"""
ASK = "from an_control.caller import of_one as f; print(f(), sum(f.stats.cache_hits.values()))"


@pytest.fixture
def package(tmp_path):
    """A package with this cache, and a function that inlines from another file."""
    package = tmp_path / "an_control"
    package.mkdir()
    (package / "system").mkdir()
    for name in ("__init__", "system/__init__", "system/compilation", "system/compiled_cache"):
        shutil.copy(PACKAGE / f"{name}.py", package / f"{name}.py")
    (package / "number.py").write_text("FACTOR = 2\n")
    (package / "inlined.py").write_text(INLINED)
    (package / "caller.py").write_text(CALLER)
    return package


def answer(package, **environment):
    """What the function returns in a new process, and how often it came from the disk."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment}
    environment["PYTHONPATH"] = str(package.parent)
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env=environment,
        cwd=package.parent,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return tuple(map(int, done.stdout.split()))


def folders(place):
    return sorted(path.name for path in place.rglob("caller-*") if path.is_dir())


def test_an_edit_of_an_inlined_function_or_constant_changes_the_number(package):
    assert answer(package) == (2, 0)
    assert answer(package) == (2, 1), "unchanged sources are not compiled again"
    inlined = package / "inlined.py"
    inlined.write_text(INLINED.replace("FACTOR * x", "FACTOR * x + 100"))
    assert answer(package) == (102, 0)
    (package / "number.py").write_text("FACTOR = 3\n")
    assert answer(package) == (103, 0)
    inlined.write_text(INLINED)
    (package / "number.py").write_text("FACTOR = 2\n")
    assert answer(package) == (2, 1), "the sources of before find their machine code again"


def test_old_machine_code_does_not_pile_up(package):
    for number in range(6):
        (package / "number.py").write_text(f"FACTOR = {number}\n")
        assert answer(package) == (number, 0)
    assert len(folders(package)) == 4


def test_a_cache_folder_that_the_user_names_is_taken(package, tmp_path):
    named = tmp_path / "named"
    assert answer(package, NUMBA_CACHE_DIR=str(named)) == (2, 0)
    assert answer(package, NUMBA_CACHE_DIR=str(named)) == (2, 1)
    assert len(folders(named)) == 1 and not folders(package)


def test_where_the_package_cannot_be_written_the_users_cache_folder_is_taken(package, tmp_path):
    (package / "__pycache__").write_text("in the way, also for root\n")
    home = {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert answer(package, **home) == (2, 0)
    assert answer(package, **home) == (2, 1)
    assert len(folders(tmp_path / "cache")) == 1


TOGETHER = f"""
import sys, time
from pathlib import Path
import an_control.caller
print("ready", flush=True)
while not Path(sys.argv[1]).exists():
    time.sleep(0.001)
{ASK}
"""


def test_of_processes_that_start_together_one_compiles_and_the_others_wait(package, tmp_path):
    go = tmp_path / "go"
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(tmp_path)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", TOGETHER, str(go)], env=environment, cwd=tmp_path,
            stdout=subprocess.PIPE, text=True,
        )
        for _ in range(4)
    ]  # fmt: skip
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    go.touch()
    answers = [process.communicate(timeout=120)[0].split() for process in processes]
    assert sorted(answers) == [["2", "0"], ["2", "1"], ["2", "1"], ["2", "1"]]


FAILS = """
from an_control.system import compiled_cache
from an_control.failing import fails
for _ in range(2):
    try:
        fails()
    except Exception:
        print(len(compiled_cache._locks._held))
"""


def test_a_function_that_cannot_be_compiled_keeps_no_other_process_waiting(package):
    source = CALLER.replace("times(1)", "times('a') + object()").replace("of_one", "fails")
    (package / "failing.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-c", FAILS], env={**os.environ, "PYTHONPATH": str(package.parent)},
        cwd=package.parent, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.split() == ["0", "0"], done.stderr
    assert list(package.rglob("failing.fails-*.lock")), "it was locked"


def test_every_compiled_function_of_the_packages_is_made_here():
    simulators = Path(__file__).parents[2] / "sim"
    for path in [*PACKAGE.rglob("*.py"), *simulators.rglob("*.py")]:
        if path.name != "compiled_cache.py":
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"from numba import .*\b(njit|jit)\b|\bnumba\.n?jit", text), path
