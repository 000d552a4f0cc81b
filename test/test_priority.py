"""The priority of the processes that must answer in time, and of the thread that ticks."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from an_control.system import priority
from an_control.system.priority import MAX_SHARE, NICE, SHARE_S, RealTimePriority

SCRIPT = """
import os, sys
from an_control.system.priority import raise_process_priority
os.setpriority(os.PRIO_PROCESS, 0, int(sys.argv[1]))
print(raise_process_priority(), os.getpriority(os.PRIO_PROCESS, 0))
"""
THREADS = """
import os, resource, subprocess, sys, threading
from an_control.system.priority import RealTimePriority

def scheduling(thread=0):
    policy = os.sched_getscheduler(thread) & ~os.SCHED_RESET_ON_FORK
    name = {os.SCHED_OTHER: "other", os.SCHED_FIFO: "fifo", os.SCHED_RR: "rr"}[policy]
    rank = os.sched_getparam(thread).sched_priority or os.getpriority(os.PRIO_PROCESS, thread)
    return f"{name} {rank}"

def in_thread(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]

def in_process():
    code = "import os; print(os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0))"
    return subprocess.check_output([sys.executable, "-c", code], text=True).strip()

os.setpriority(os.PRIO_PROCESS, 0, 0)
"""
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="no priorities of single threads")
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who may raise priorities")


def lines_of(script: str, *words: str) -> list[str]:
    """Return the lines that a fresh process prints."""
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@ROOT_ONLY
def test_a_process_takes_priority_unless_it_was_started_with_a_nice_value():
    assert lines_of(SCRIPT, "0") == [f"True {NICE}"]
    assert lines_of(SCRIPT, "7") == ["False 7"]
    assert lines_of(SCRIPT, "-3") == ["False -3"]


def test_without_the_right_a_process_runs_as_it_is(monkeypatch):
    def refuse(*arguments: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "getpriority", lambda *arguments: 0)
    monkeypatch.setattr(os, "setpriority", refuse)
    assert not priority.raise_process_priority()


@ROOT_ONLY
def test_only_the_thread_that_takes_real_time_priority_has_it_and_any_thread_gives_it_back():
    script = """
os.setpriority(os.PRIO_PROCESS, 0, -10)
ticks, go, done = RealTimePriority(50), threading.Event(), threading.Event()
def tick():
    print(repr(ticks.apply_to_thread()), scheduling())
    ticks.request()
    print(repr(ticks.apply_to_thread()), scheduling())
    print(in_thread(scheduling), in_process())
    done.set()
    go.wait()
    print(repr(ticks.apply_to_thread()), scheduling(), in_thread(scheduling))
thread = threading.Thread(target=tick)
thread.start()
done.wait()
print(scheduling())
ticks.release()
go.set()
thread.join()
"""
    assert lines_of(THREADS + script) == [
        "'' other -10",  # nobody wants it yet
        "'' fifo 50",
        "other 0 0 0",  # of what the thread starts: threads, and a process
        "other -10",  # the main thread
        "'' other -10 other -10",
    ]


@ROOT_ONLY
@pytest.mark.parametrize(
    ("before", "said", "after"),
    [
        ("pass", "", "fifo 50"),
        ("ticks = RealTimePriority(0)", "", "other 0"),
        ("os.setpriority(os.PRIO_PROCESS, 0, 5)", "nice value of 5", "other 5"),
        ("os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(20))", "", "rr 20"),
    ],
)
def test_a_thread_with_a_scheduling_of_its_own_keeps_it(before, said, after):
    script = f"""
ticks = RealTimePriority(50)
{before}
ticks.request()
print(ticks.apply_to_thread())
print(scheduling())
print(ticks.apply_to_thread() + scheduling())
"""
    reason, first, again = lines_of(THREADS + script)
    assert said in reason and bool(said) == bool(reason)
    assert first == again == after


@ROOT_ONLY
def test_a_user_who_may_not_take_it_runs_on_and_reads_the_remedy():
    script = """
resource.setrlimit(resource.RLIMIT_RTPRIO, (0, 0))
os.setuid(65534)
ticks = RealTimePriority(50)
ticks.request()
print(ticks.apply_to_thread())
print(scheduling())
ticks.release()
print(scheduling())
"""
    refusal, *schedulings = lines_of(THREADS + script)
    assert schedulings == ["other 0", "other 0"]
    assert "Operation not permitted" in refusal
    assert "rtprio" in refusal and "limits.conf" in refusal and "thread_priority to 0" in refusal


class Kernel:
    """Stands for the system: time and processor time, and one thread's policy, set by a user.

    To a user limits may allow real-time priority, but not to clear SCHED_RESET_ON_FORK.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, allowed: bool = True) -> None:
        self.now_s = self.processor_s = 0.0
        self.policy, self.flag, self.calls, self.allowed = 0, False, 0, allowed
        clock = SimpleNamespace(monotonic=lambda: self.now_s, thread_time=lambda: self.processor_s)
        monkeypatch.setattr(priority, "time", clock)
        monkeypatch.setattr(os, "getpriority", lambda *arguments: 0)
        monkeypatch.setattr(os, "sched_getscheduler", self.get, raising=False)
        monkeypatch.setattr(os, "sched_setscheduler", self.set, raising=False)

    def get(self, thread: int) -> int:
        return self.policy | (os.SCHED_RESET_ON_FORK if self.flag else 0)

    def set(self, thread: int, policy: int, parameters: object) -> None:
        self.calls += 1
        flag = bool(policy & os.SCHED_RESET_ON_FORK)
        if not self.allowed or (self.flag and not flag):  # as for a user who may not clear it
            raise PermissionError(1, "Operation not permitted")
        self.policy, self.flag = policy & ~os.SCHED_RESET_ON_FORK, flag


@LINUX
def test_a_refusal_is_told_once_and_nothing_is_tried_again_before_the_next_activation(monkeypatch):
    kernel, ticks = Kernel(monkeypatch, allowed=False), RealTimePriority(50)
    ticks.request()
    assert "rtprio" in ticks.apply_to_thread()
    assert [ticks.apply_to_thread() for _ in range(100)] == [""] * 100
    assert kernel.calls == 1
    ticks.request()
    assert "rtprio" in ticks.apply_to_thread()


@LINUX
def test_a_user_may_take_it_and_give_it_back_again_and_again_where_limits_allow_it(monkeypatch):
    kernel, ticks = Kernel(monkeypatch), RealTimePriority(50)
    for _ in range(3):
        ticks.request()
        assert ticks.apply_to_thread() == "" and kernel.policy == os.SCHED_FIFO
        ticks.release()
        assert kernel.policy == os.SCHED_OTHER


@LINUX
def test_a_thread_that_hardly_sleeps_loses_its_real_time_priority(monkeypatch):
    """It would starve the threads that receive messages, on a machine with one core all of them."""
    kernel, ticks = Kernel(monkeypatch), RealTimePriority(50)

    def second(share: float) -> str:
        for _ in range(10):
            kernel.now_s += SHARE_S / 10
            kernel.processor_s += share * SHARE_S / 10
            if said := ticks.apply_to_thread():
                return said
        return ""

    ticks.request()
    assert ticks.apply_to_thread() == "" and kernel.policy == os.SCHED_FIFO
    for share in (0.1, MAX_SHARE - 0.05, 0.5):
        assert second(share) == "" and kernel.policy == os.SCHED_FIFO
    said = [second(MAX_SHARE + 0.15) for _ in range(2)]
    assert any("95 % of a core" in one for one in said)
    assert kernel.policy == os.SCHED_OTHER
    assert second(0.1) == "" and kernel.policy == os.SCHED_OTHER
