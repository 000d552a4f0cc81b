"""BLAS has one thread while a policy computes, and afterwards as many as the process had."""

import os
import subprocess
import sys
import threading

import pytest

from an_control.system.blas import OneBlasThread, find_blas_thread_functions
from an_control.system.share import find_share_path

THREADS = """
import sys
import numpy as np
from an_control.load import (load_policy)
from an_control.monitor import forward_model
from an_control.policy import mlp
from an_control.system.blas import find_blas_thread_functions

read, set_to = find_blas_thread_functions()
before, seen = read(), set()

def watched(function):
    def call(*args, **kwargs):
        seen.add(read())
        return function(*args, **kwargs)
    return call

forward_model._apply_silu = watched(forward_model._apply_silu)
mlp.ActionHead.__call__ = watched(mlp.ActionHead.__call__)
policy = load_policy(sys.argv[1], engine=sys.argv[2])
for values in np.random.default_rng(0).uniform(-1.0, 1.0, (60, len(policy.nominal_ids))):
    policy.step_array(values, policy.nominal_ids)
    assert read() == before
    policy.prepare_next_tick()
    assert read() == before
print(before, sorted(seen))
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="BLAS has but one thread anyway")
@pytest.mark.skipif(
    find_blas_thread_functions() is None, reason="numpy's BLAS does not say its threads"
)
@pytest.mark.parametrize("name", ["ant", "ant_teacher"])
def test_a_step_has_one_blas_thread_and_leaves_the_process_its_own(name, engine):
    done = subprocess.run(
        [sys.executable, "-c", THREADS, str(find_share_path(f"models/{name}.safetensors")), engine],
        env=os.environ | {"OPENBLAS_NUM_THREADS": "4"},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    before, seen = done.stdout.split(maxsplit=1)
    assert int(before) > 1 and seen.strip() == "[1]"


class Library:
    """The threads of a BLAS library."""

    def __init__(self):
        self.threads = 4

    def read(self):
        return self.threads

    def set_to(self, threads):
        self.threads = threads


def test_an_error_restores_the_threads():
    library = Library()

    @OneBlasThread((library.read, library.set_to))
    def fail():
        assert library.threads == 1
        raise ValueError("as asked")

    with pytest.raises(ValueError, match="as asked"):
        fail()
    assert library.threads == 4


def test_two_policies_at_a_time_leave_the_threads_as_they_were():
    """The first to begin is the first to end: it must not restore what the other relies on."""
    library, begun, may_end = Library(), threading.Event(), threading.Event()
    limit = OneBlasThread((library.read, library.set_to))

    @limit
    def first():
        begun.set()
        assert may_end.wait(10.0)

    @limit
    def second(thread):
        may_end.set()
        thread.join(10.0)
        return library.threads

    thread = threading.Thread(target=first)
    thread.start()
    assert begun.wait(10.0)
    assert second(thread) == 1
    assert library.threads == 4
