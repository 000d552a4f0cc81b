"""Tests that stand still in C: their worker is ended, and they run once more.

Fast DDS 3.2.3 deadlocks about once in thousands of participants that come and go
(eProsima/Fast-DDS#6502, open), in a call that keeps Python's lock: no time limit of pytest's can
interrupt that. The run says which tests stood still. One that does so twice fails, like one that
crashes; of both the run shows where they were.
"""

from __future__ import annotations

import faulthandler
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

STANDSTILL_S = float(os.environ.get("STANDSTILL_S", "330"))
"""Longer than pytest-timeout's limit: what stands still in Python fails by that."""
OUTCOME = "stood still in C, run again"


class Controller:
    """Of the process that distributes tests to workers."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="an_control_standstill_")
        self._again: set[str] = set()

    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["stacks"] = str(self._stacks(node))

    def pytest_handlecrashitem(self, crashitem: str, report: Any, sched: Any) -> None:
        path = self._stacks(report.node)
        stacks = path.read_text() if path.exists() else ""
        if not stacks.startswith("Timeout"):
            report.longrepr = f"{report.longrepr}\n{stacks}"
            return
        report.longrepr = f"stood still for {STANDSTILL_S:g} s in C\n{stacks}"
        if crashitem not in self._again:
            self._again.add(crashitem)
            sched.mark_test_pending(crashitem)
            report.outcome = OUTCOME

    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        return (OUTCOME, "H", OUTCOME.upper()) if report.outcome == OUTCOME else None

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for report in terminalreporter.stats.get(OUTCOME, ()):
            lines = re.findall(r"^  File .*", report.longrepr, re.MULTILINE)[:6]
            terminalreporter.write_line("\n".join([f"{OUTCOME}: {report.nodeid}", *lines]))

    def _stacks(self, node: Any) -> Path:
        """Where a worker writes its stacks if it stands still."""
        return Path(self._folder.name, f"{node.gateway.id}.txt")


class Worker:
    """Of a process that runs tests."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        with self._path.open("w") as file:
            faulthandler.enable(file)
            faulthandler.dump_traceback_later(STANDSTILL_S, exit=True, file=file)
            try:
                return (yield)
            finally:
                faulthandler.cancel_dump_traceback_later()
                faulthandler.enable(sys.__stderr__ or sys.stderr)


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Worker(config.workerinput["stacks"]))
    elif config.getoption("dist", "no") != "no":
        config.pluginmanager.register(Controller())
