"""What a robot's user reads: the node's log, its diagnostics and `an-control check --live`.

Lines are compared with the campaign file's regular expressions. One of the log begins with its
level, such as `WARN source 'imu' lost: ...`; one of the diagnostics with its level and part, and
goes on with its values, such as `WARN source imu: ...; topic: imu; publishers: 1; ...`.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus

from campaign import child
from campaign.plan import NOT, Fault
from campaign.robot_under_test import NAMESPACE, RobotUnderTest

CALM_S, CALM_WAIT_S = 10.0, 120.0
"""So long nothing was wrong before something is broken: within it the log leaves out what it said
already. And how long that may take."""
CHECK_S = 2.0
CHECK_WAIT_S = 120.0
_LOGGED = re.compile(r"\[([A-Z]+)\] \[(\d+\.\d+)\] \[[^]]*\]: (.*)")
_BUSY = re.compile(
    r"no command for .*: safe command \(.*(or the machine is|has been running for)"
    r"|the middleware took .* to send a command|commands: \d+ more changes"
)
"""In a line that says that the machine is busy: what the commands then do is judged by itself."""
_LEVELS = {
    DiagnosticStatus.OK: "OK",
    DiagnosticStatus.WARN: "WARN",
    DiagnosticStatus.ERROR: "ERROR",
    DiagnosticStatus.STALE: "STALE",
}

Lines = Iterable[tuple[float, str]]
"""Each with the time (s) from the fault to it."""


@dataclass
class Read:
    """What of a fault's patterns was read.

    at_s      when the last of them was first read, in seconds from the fault, 0 at least
    lacking   those that no line has, as complaints
    unwanted  lines that should not be there, as complaints
    """

    at_s: float
    lacking: list[str]
    unwanted: list[str]


def wait_for_calm(robot: RobotUnderTest) -> None:
    """Wait until no diagnostics have told of anything for CALM_S; RuntimeError where they do."""
    if not robot.until(
        lambda: time.monotonic() - robot.troubled_s >= CALM_S and bool(robot.diagnosed),
        CALM_WAIT_S,
    ):
        told = "; ".join(line(one) for one in robot.troubles) or "something was, before"
        raise RuntimeError(f"nothing wrong for {CALM_S:g} s not within {CALM_WAIT_S:g} s: {told}")


def judge(robot: RobotUnderTest, fault: Fault) -> Read:
    """Return what of the fault's promises was read."""
    told = [(at_s - robot.broken_s, line(one)) for at_s, one in robot.diagnosed]
    log = logged(robot.policy.logged(robot.log_bytes), time.time() - time.monotonic())
    log = [(at_s - robot.broken_s, text) for at_s, text in log]
    one = compare("the log", fault.log, log)
    other = compare("the diagnostics", fault.diagnostics, told)
    return Read(
        max(one.at_s, other.at_s), one.lacking + other.lacking, one.unwanted + other.unwanted
    )


def compare(where: str, patterns: Sequence[str], lines: Lines) -> Read:
    """Return what of these patterns the lines of a place have."""
    read, lines = Read(0.0, [], []), list(lines)
    for pattern in patterns:
        search = re.compile(pattern.removeprefix(NOT)).search
        found = [(at_s, text) for at_s, text in lines if search(text)]
        if pattern.startswith(NOT):
            unwanted = [text for _, text in found if not _BUSY.search(text)]
            read.unwanted += [f"{where}: {text!r}" for text in unwanted[:1]]
        elif found:
            read.at_s = max(read.at_s, found[0][0])
        else:
            read.lacking.append(f"{where}: no line has {pattern!r}")
    return read


def logged(text: str, wall_ahead_s: float) -> list[tuple[float, str]]:
    """Return the lines of a log with level and steady time, of which the wall clock is ahead."""
    return [
        (float(stamp) - wall_ahead_s, f"{level} {words}")
        for level, stamp, words in _LOGGED.findall(text)
    ]


def line(status: Any) -> str:
    """Return a status of the diagnostics as one line."""
    values = "".join(f"; {one.key}: {one.value}" for one in status.values)
    return f"{_LEVELS[status.level]} {status.name.partition(': ')[2]}: {status.message}{values}"


def run_check(robot: RobotUnderTest, fault: Fault) -> list[str]:
    """Run `check --live` beside the robot; return what is wrong with what it prints."""
    path = robot.policy.folder / "check.txt"
    words = ["check", str(robot.policy.wiring), "--live", "--namespace", NAMESPACE]
    with path.open("wb") as file:
        process = child.start(
            [sys.executable, "-m", "an_control", *words, "--seconds", str(CHECK_S)],
            stdout=file,
            stderr=file,
        )
    ended = robot.until(lambda: process.poll() is not None, CHECK_WAIT_S)
    process.kill()
    process.wait()
    if not ended:
        return [f"check --live does not end within {CHECK_WAIT_S:g} s"]
    read = compare("check", fault.check, [(0.0, one) for one in path.read_text().splitlines()])
    return read.lacking + read.unwanted
