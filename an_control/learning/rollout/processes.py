"""Engines for simulators that run in processes: on this machine, or on many by Dask.

A task is one candidate through some episodes. What comes back depends on the task alone, so it
does not matter which worker played it, nor whether one died and another had to play it again.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from an_control.disturbance import DisturbanceSettings
from an_control.learning.rollout.engine import NOTHING, Outcomes, RolloutError, Start
from an_control.learning.rollout.episode import Played, play
from an_control.policy import Model
from an_control.system.environment_output import OUTPUT

LOST_AT_MOST = 10
"""Times that workers may die within one generation."""


class Task(NamedTuple):
    """One candidate (by its row) through the episodes from `begin` on."""

    row: int
    begin: int
    arguments: tuple[str, tuple[str, ...], bytes, Sequence[Start], DisturbanceSettings]


class Processes:
    """As many processes as asked for, each with an environment of its own."""

    def __init__(self, environment: str, channels: Sequence[str], workers: int) -> None:
        self._environment, self._channels, self.workers = environment, tuple(channels), workers
        self._pool = self._start()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def play(
        self,
        models: Sequence[Model],
        starts: Sequence[Start],
        disturbance: DisturbanceSettings = NOTHING,
    ) -> Outcomes:
        """See `Engine`. Workers that die are replaced, and what they had is played again."""
        left = cut(self._environment, self._channels, models, starts, disturbance, self.workers)
        parts: list[tuple[Task, Played]] = []
        for _ in range(LOST_AT_MOST):
            futures: list[tuple[Task, Future[Played]]] = []
            lost = []
            try:
                with _interrupts_held():  # a worker that still imports prints a traceback
                    for task in left:
                        futures.append((task, self._pool.submit(play, *task.arguments)))
            except BrokenProcessPool:
                lost = left[len(futures) :]
            for task, future in futures:
                try:
                    parts.append((task, future.result()))
                except BrokenProcessPool:
                    lost.append(task)
            if not lost:
                return joined(parts, len(models), len(starts))
            left = lost
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = self._start()
        raise RolloutError(f"{self._environment}: workers died {LOST_AT_MOST} times")

    def _start(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self.workers, multiprocessing.get_context("spawn"), initializer=_alone
        )


class Dask:
    """The workers of a Dask scheduler, or of a cluster in this process where `address` is None."""

    def __init__(
        self, environment: str, channels: Sequence[str], address: str | None, workers: int = 2
    ) -> None:
        import distributed

        self._environment, self._channels = environment, tuple(channels)
        self._cluster: Any = None
        if address is None:
            self._cluster = distributed.LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address=None
            )
        try:
            self._client = distributed.Client(address or self._cluster, timeout="10s")
        except OSError as error:
            raise RolloutError(f"dask scheduler {address}: {error}") from error

    def close(self) -> None:
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()

    def play(
        self,
        models: Sequence[Model],
        starts: Sequence[Start],
        disturbance: DisturbanceSettings = NOTHING,
    ) -> Outcomes:
        """See `Engine`. What a lost worker had, Dask gives to another."""
        workers = max(1, len(self._client.scheduler_info(n_workers=-1)["workers"]))
        tasks = cut(self._environment, self._channels, models, starts, disturbance, workers)
        futures = [self._client.submit(play, *task.arguments, pure=False) for task in tasks]
        try:
            played = self._client.gather(futures)
        except Exception as error:
            raise RolloutError(f"dask: {type(error).__name__}: {error}") from error
        return joined(list(zip(tasks, played, strict=True)), len(models), len(starts))


def cut(
    environment: str,
    channels: tuple[str, ...],
    models: Sequence[Model],
    starts: Sequence[Start],
    disturbance: DisturbanceSettings = NOTHING,
    workers: int = 1,
) -> list[Task]:
    """Tasks of whole candidates, or smaller ones where there are few candidates."""
    episodes, tasks = share(len(models), len(starts), workers), []
    for row, model in enumerate(models):
        pickled = pickle.dumps(model)
        for begin in range(0, len(starts), episodes):
            part = starts[begin : begin + episodes]
            tasks.append(Task(row, begin, (environment, channels, pickled, part, disturbance)))
    return tasks


def share(models: int, episodes: int, workers: int) -> int:
    """How many of a candidate's episodes a task has: four tasks for each worker where they allow
    that, so that none waits long for another."""
    shares = max(1, min(episodes, -(-4 * workers // models)))
    return -(-episodes // shares)


def joined(parts: Sequence[tuple[Task, Played]], models: int, episodes: int) -> Outcomes:
    """All tasks' outcomes in one, in order."""
    returns = np.full((models, episodes), np.nan)
    steps, failure = np.zeros((models, episodes), np.int64), None
    for task, played in parts:
        span = slice(task.begin, task.begin + len(played.returns))
        returns[task.row, span], steps[task.row, span] = played.returns, played.steps
        OUTPUT.add(played.printed)
        failure = failure or played.failure
    return Outcomes(returns, steps, failure)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Block SIGINT in this thread; a process that it starts begins with it blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _alone() -> None:
    """A worker leaves Ctrl-C to its parent, and uses one thread."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.environ["OMP_NUM_THREADS"] = "1"
