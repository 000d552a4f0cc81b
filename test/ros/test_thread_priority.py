"""The real-time priority of the thread that ticks, in the policy node as a process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rcl_interfaces.srv import GetParameters
from stand import SAFE, Stand, nanoseconds
from std_srvs.srv import Trigger

LIMIT_S = 60.0
ROOT_ONLY = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="needs root, who may raise priorities"
)


@contextmanager
def running(stand: Stand, **parameters: Any) -> Iterator[int]:
    """Run the node as a process of an ordinary nice value; give its number."""
    values = {"wiring": stand.wiring, "model": stand.model, "autostart": "true"} | parameters
    words = [part for name, value in values.items() for part in ("-p", f"{name}:={value}")]
    command = [sys.executable, "-m", "an_control.ros.node", "--ros-args", *words]
    nice = ["nice", "-n", str(-os.getpriority(os.PRIO_PROCESS, 0))]
    process = subprocess.Popen([*nice, *command], stderr=subprocess.PIPE, text=True)
    try:
        for topic in (stand.joints, stand.tilt):
            stand.until(topic.get_subscription_count, "the node's subscriptions", LIMIT_S)
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def feed(stand: Stand, count: int) -> None:
    """Send readings until so many more commands have come."""
    wanted, step = len(stand.commands) + count, 0

    def came() -> bool:
        nonlocal step
        step += 1
        stand.send(step)
        for _ in range(4):
            stand.executor.spin_once(timeout_sec=0.005)
        return len(stand.commands) >= wanted

    stand.until(came, f"{count} commands", LIMIT_S)


def schedulings(pid: int) -> dict[int, str]:
    """Return the policy and priority of each thread of a process, by its number."""
    found = {}
    for one in Path(f"/proc/{pid}/task").iterdir():
        thread = int(one.name)
        fifo = os.sched_getscheduler(thread) & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO
        rank = os.sched_getparam(thread).sched_priority
        found[thread] = f"fifo {rank}" if fifo else "other"
    return found


def in_real_time(pid: int) -> list[str]:
    """Return the priorities of the threads that have one, first the main thread's."""
    found = schedulings(pid)
    return [found[thread] for thread in sorted(found) if found[thread] != "other"]


def change(stand: Stand, transition: int) -> None:
    request = ChangeState.Request(transition=Transition(id=transition))
    assert stand.call(ChangeState, "policy/change_state", request).success


@ROOT_ONLY
@pytest.mark.parametrize("executor", ["single_threaded", "events"])
def test_only_ticks_and_watchdog_have_real_time_priority_and_only_while_they_act(stand, executor):
    with running(stand, executor=executor) as pid:
        feed(stand, 3)
        assert in_real_time(pid) == ["fifo 50", "fifo 51"]
        assert len(schedulings(pid)) > 5, "the middleware has threads"
        change(stand, Transition.TRANSITION_DEACTIVATE)
        assert in_real_time(pid) == []
        change(stand, Transition.TRANSITION_ACTIVATE)
        feed(stand, 3)
        assert in_real_time(pid) == ["fifo 50", "fifo 51"]


@ROOT_ONLY
def test_at_real_time_priority_the_estop_its_reset_and_the_parameters_answer(stand):
    with running(stand, thread_priority=7) as pid:
        feed(stand, 3)
        assert in_real_time(pid) == ["fifo 7", "fifo 8"]
        request = GetParameters.Request(names=["thread_priority"])
        (value,) = stand.call(GetParameters, "policy/get_parameters", request).values
        assert value.integer_value == 7
        assert stand.call(Trigger, "policy/estop").success
        stopped_ns = time.time_ns()
        stand.until(lambda: nanoseconds(stand.commands[-1]) > stopped_ns, "a command after it")
        feed(stand, 5)
        later = [one for one in stand.commands if nanoseconds(one) > stopped_ns]
        assert all(list(one.effort) == SAFE for one in later)
        assert stand.call(Trigger, "policy/reset_estop").success
        stand.commands.clear()
        feed(stand, 20)
        assert any(list(one.effort) != SAFE for one in stand.commands)
        stand.until(lambda: list(stand.commands[-1].effort) == SAFE, "the safe command, unfed")


@ROOT_ONLY
@pytest.mark.parametrize("given", [{"mode": "lockstep"}, {"thread_priority": 0}])
def test_in_lockstep_and_with_priority_0_no_thread_has_real_time_priority(stand, given):
    with running(stand, **given) as pid:
        feed(stand, 3)
        assert in_real_time(pid) == []


def test_where_the_system_refuses_it_the_node_acts_and_one_line_names_the_remedy(
    stand, said, monkeypatch
):
    def refuse(*arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse, raising=False)
    monkeypatch.setattr(os, "getpriority", lambda *arguments: 0)
    stand.start(mode="rate", thread_priority=50)
    feed(stand, 3)
    stand.node.trigger_deactivate()
    stand.node.trigger_activate()
    feed(stand, 3)
    (line,) = [one for one in said if "thread_priority" in one]
    assert line.startswith("ticks run at ordinary priority, not at thread_priority 50: ")
    assert "limits.conf" in line


SCRIPT = """
import os, sys, time
from pathlib import Path
from stand import SAFE, Stand

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
stand = Stand(Path(sys.argv[1]))
stand.start(mode="rate", watchdog_s=-1.0, thread_priority=50)
step = 0

def scheduled():
    return os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK

def feed(seconds):
    global step
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        step += 1
        stand.send(step)
        for _ in range(4):
            stand.executor.spin_once(timeout_sec=0.005)

def compute(seconds):
    loop = stand.node._loop
    tick = loop.controller.decide

    def slow(*arguments):
        policy, sent = scheduled(), loop._guard.watchdog.sent
        end_s = time.thread_time() + seconds
        while time.thread_time() < end_s:
            pass
        print(policy, loop._guard.watchdog.sent - sent)
        return tick(*arguments)

    loop.controller.decide = slow

"""


def printed(folder: Path, script: str) -> tuple[list[str], str]:
    """Return the lines that a process of an ordinary nice value prints, and its log."""
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    nice = ["nice", "-n", str(-os.getpriority(os.PRIO_PROCESS, 0))]
    done = subprocess.run(
        [*nice, sys.executable, "-c", SCRIPT + script, str(folder)],
        capture_output=True,
        text=True,
        timeout=120.0,
        check=False,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines(), done.stderr


@ROOT_ONLY
def test_on_one_core_the_watchdog_interrupts_a_tick_that_computes_at_real_time_priority(tmp_path):
    script = """
feed(0.5)
compute(0.5)
feed(0.5)
stand.close()
"""
    lines, log = printed(tmp_path, script)
    policy, sent = map(int, lines[0].split())
    assert policy == os.SCHED_FIFO
    assert sent >= 10, "of a period of 10 ms in 0.5 s"
    assert "watchdog: no command" in log


@ROOT_ONLY
def test_ticks_that_never_sleep_run_at_ordinary_priority_after_a_second(tmp_path):
    script = """
feed(0.5)
assert scheduled() == os.SCHED_FIFO
compute(0.03)
feed(3.0)
print(scheduled())
stand.close()
"""
    lines, log = printed(tmp_path, script)
    assert lines[-1] == str(os.SCHED_OTHER)
    assert log.count("ticks run at ordinary priority") == 1
    assert "% of a core" in log
