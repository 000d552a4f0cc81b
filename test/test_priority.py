"""The priority of the processes that must answer in time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from an_control.system.priority import NICE

SCRIPT = """
import os, sys
from an_control.system.priority import take_priority
os.setpriority(os.PRIO_PROCESS, 0, int(sys.argv[1]))
print(take_priority(), os.getpriority(os.PRIO_PROCESS, 0))
"""


def taken(nice: int) -> str:
    """Return what a process of this nice value says and has after `take_priority`."""
    words = [sys.executable, "-c", SCRIPT, str(nice)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who may raise priorities")
def test_a_process_takes_priority_unless_it_was_started_with_a_nice_value():
    assert taken(0) == f"True {NICE}"
    assert taken(7) == "False 7"
    assert taken(-3) == "False -3"


def test_without_the_right_a_process_runs_as_it_is(monkeypatch):
    from an_control.system import priority

    def refuse(*arguments: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "getpriority", lambda *arguments: 0)
    monkeypatch.setattr(os, "setpriority", refuse)
    assert not priority.take_priority()
