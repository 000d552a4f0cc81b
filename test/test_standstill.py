"""A deadlock in C neither stops the suite nor hides: the test runs again, and the run says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SUITE = """
import ctypes, os
from pathlib import Path

def tries(name):
    file = Path(__file__).with_name(name)
    number = len(file.read_text()) if file.exists() else 0
    file.write_text("x" * (number + 1))
    return number

def stand_still():
    mutex, c = ctypes.create_string_buffer(64), ctypes.PyDLL(None)  # keeps the interpreter's lock
    c.pthread_mutex_lock(mutex); c.pthread_mutex_lock(mutex)

def test_that_stands_still_once():
    if tries("once") < 1:
        stand_still()

def test_that_stands_still_twice():
    if tries("twice") < 2:
        stand_still()

def test_that_crashes_once():
    if tries("crash") < 1:
        os.abort()

def test_that_passes():
    pass
"""


def test_what_stands_still_in_c_runs_once_more_and_what_does_so_twice_or_crashes_fails(tmp_path):
    (tmp_path / "test_it.py").write_text(SUITE)
    program = [sys.executable, "-m", "pytest", "-p", "standstill", "-p", "no:cacheprovider"]
    result = subprocess.run(
        [*program, "--numprocesses", "2", "--dist", "worksteal", "-rA", "test_it.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), "STANDSTILL_S": "3"},
        capture_output=True,
        text=True,
    )
    output = result.stdout
    assert result.returncode == 1, output
    assert "2 failed, 2 passed, 2 stood still in C, run again" in output
    assert "PASSED test_it.py::test_that_stands_still_once" in output
    assert "FAILED test_it.py::test_that_stands_still_twice" in output
    assert "FAILED test_it.py::test_that_crashes_once" in output
    assert 'test_it.py", line 13 in stand_still' in output
    assert "Fatal Python error: Aborted" in output
    assert 'test_it.py", line 25 in test_that_crashes_once' in output
