"""Engines for simulators that run in processes: on this machine, or on many by Dask.

A task is one candidate through some episodes. What comes back depends on the task alone, so it
does not matter which worker played it, nor whether one died and another had to play it again.

Which engine plays an environment: compiled, in processes, or by Dask.
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
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np

from an_control.disturbance import DisturbanceSettings
from an_control.learning.rollout.engine import NOTHING, Engine, Outcomes, RolloutError, Start
from an_control.learning.rollout.episode import Played, play
from an_control.policy import AttentionSizes, MlpSizes, Model
from an_control.system.environment_output import OUTPUT
from an_control_sim.gym.environments import Adapted, Batch, Batched

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


EngineName = Literal["auto", "fused", "processes", "dask"]


def make_engine(
    name: EngineName,
    env: gymnasium.Env[Any, Any],
    environment: str,
    channels: Sequence[str],
    sizes: AttentionSizes | MlpSizes,
    workers: int | None = None,
    dask: str | None = None,
    recovery: float = 0.0,
) -> Engine:
    """The engine of that name for policies of these sizes; "auto" takes the fused one where the
    environment offers it and it knows their parts.

    `workers` are threads or processes, by default one a core; `dask` is a scheduler's address.
    `recovery` is that of the policies' task, which the fused engine cannot do. ValueError where the
    environment does not offer what the engine needs, or the engine not what the policies need.
    """
    batch = batch_of(env)
    cores = os.cpu_count() or 1
    if dask is not None or name == "dask":
        from an_control.learning.rollout.processes import Dask

        return Dask(environment, channels, dask, workers or cores)
    if name == "auto":
        fuses = batch is not None and sizes.compiles_in_rollouts and not recovery
        name = "fused" if fuses else "processes"
    if name == "fused":
        if batch is None:
            raise ValueError(
                f"engine {name!r}: {environment} has no `batch`; take --engine processes"
            )
        if recovery:
            raise ValueError(
                f"engine {name!r}: pushes no robot that stands still, as task.recovery"
                f" {recovery:g} asks for; take --engine processes"
            )
        from an_control.learning.rollout.compiled.engine import FusedEngine

        return FusedEngine(batch, channels, sizes.actions, workers)
    from an_control.learning.rollout.processes import Processes

    return Processes(environment, channels, workers or cores)


def batch_of(env: gymnasium.Env[Any, Any]) -> Batch | None:
    """The compiled physics that an environment brings, or that we have of gymnasium's.

    None where its readings are scaled, which compiled physics are not.
    """
    if isinstance(env, Adapted) and env.units:
        return None
    inner = env.unwrapped
    if isinstance(inner, Batched):
        return inner.batch
    try:
        from an_control.learning.rollout.compiled.classic_control import classic_control
    except ImportError:  # no numba
        return None
    return classic_control(env)
