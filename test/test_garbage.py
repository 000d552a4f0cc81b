"""What a process starts with is not visited again by the garbage collector."""

import subprocess
import sys

import pytest

SCRIPT = """
import gc
from an_control.system.priority import exclude_existing_objects_from_gc

started = [[] for _ in range(600_000)]
{call}
visited, before = len(gc.get_objects()), gc.get_stats()[2]["collections"]
new = [[] for _ in range(100_000)]
print(visited, gc.get_stats()[2]["collections"] - before)
"""


def counted(call: str) -> tuple[int, int]:
    """How many objects are visited after this call, and how many full collections follow."""
    script = SCRIPT.format(call=call)
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    visited, full = run.stdout.split()
    return int(visited), int(full)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="a newer collector counts otherwise")
def test_what_is_there_is_not_visited_again_and_what_is_new_is_before_it_is_as_many():
    assert counted("gc.collect(); gc.freeze()")[1] == 0
    visited, full = counted("exclude_existing_objects_from_gc()")
    assert visited < 10_000
    assert full > 0


def test_new_garbage_is_collected_where_the_old_is_frozen_and_else_left():
    call = """
class Node: pass
def loops():
    for _ in range(50):
        one = Node(); one.itself = one
def left():
    return sum(type(one) is Node for one in gc.get_objects())
gc.disable()
from an_control.system.priority import collect_new_garbage
loops(); collect_new_garbage(); before = left()
exclude_existing_objects_from_gc(); loops(); collect_new_garbage()
assert (before, left()) == (50, 0), (before, left())
"""
    counted(call)
