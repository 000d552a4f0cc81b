"""Engines that play rollouts in processes on this machine, or on many machines with Dask.

A task is one candidate policy and some episodes. Its result depends on the task alone, not on the
worker that plays it, nor on whether a worker died and the task was played again.
`make_rollout_engine` chooses between these engines and compiled rollouts.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np

from an_control.disturbance import DisturbanceSettings
from an_control.learning.rollout.engine import (
    NO_DISTURBANCE,
    EpisodeSeeds,
    Outcomes,
    RolloutEngine,
    RolloutError,
)
from an_control.learning.rollout.episode import WorkerResult, play_pickled_model
from an_control.policy import AttentionSizes, MlpSizes, Model
from an_control.system.environment_output import OUTPUT
from an_control_sim.gym.environments import AdaptedEnvironment, EnvironmentBatch, HasBatch

MAX_LOST_WORKERS = 10
"""Number of times that worker processes may die within one generation."""


class RolloutTask(NamedTuple):
    """Task of a worker: to play some episodes with one candidate policy.

    Attributes:
        row: Index of the candidate in its generation, which is its row in the results (P, R).
        begin: Index of the task's first episode among all episodes of the candidate.
        arguments: Arguments of `play_pickled_model`.
    """

    row: int
    begin: int
    arguments: tuple[str, tuple[str, ...], bytes, Sequence[EpisodeSeeds], DisturbanceSettings]


class ProcessEngine:
    """Rollout engine with several processes, each with its own environment.

    Args:
        environment: The gymnasium id.
        channels: Ids of the observation's entries, in their order.
        workers: Number of processes.
    """

    def __init__(self, environment: str, channels: Sequence[str], workers: int) -> None:
        self._environment, self._channels, self.workers = environment, tuple(channels), workers
        self._pool = self._start_pool()

    def close(self) -> None:
        """Stop the worker processes."""
        self._pool.shutdown(cancel_futures=True)

    def play(
        self,
        models: Sequence[Model],
        starts: Sequence[EpisodeSeeds],
        disturbance: DisturbanceSettings = NO_DISTURBANCE,
    ) -> Outcomes:
        """Play R episodes with each of P policies in the processes, and return the results of all.

        Processes that die are replaced and their tasks played again.

        Args:
            models: The P policies.
            starts: Seeds of each of the R episodes.
            disturbance: Disturbance of the readings.

        Raises:
            RolloutError: Worker processes died too often.
        """
        left = split_into_tasks(
            self._environment, self._channels, models, starts, disturbance, self.workers
        )
        parts: list[tuple[RolloutTask, WorkerResult]] = []
        for _ in range(MAX_LOST_WORKERS):
            futures: list[tuple[RolloutTask, Future[WorkerResult]]] = []
            lost = []
            try:
                with _block_interrupts():  # a worker that still imports prints a traceback
                    for task in left:
                        futures.append(
                            (task, self._pool.submit(play_pickled_model, *task.arguments))
                        )
            except BrokenProcessPool:
                lost = left[len(futures) :]
            for task, future in futures:
                try:
                    parts.append((task, future.result()))
                except BrokenProcessPool:
                    lost.append(task)
            if not lost:
                return join_outcomes(parts, len(models), len(starts))
            left = lost
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = self._start_pool()
        raise RolloutError(
            f"{self._environment}: worker processes died {MAX_LOST_WORKERS} times. A script that"
            ' starts them must do so under `if __name__ == "__main__":`, because each runs the'
            " script's other lines first"
        )

    def _start_pool(self) -> ProcessPoolExecutor:
        """Start the worker processes."""
        return ProcessPoolExecutor(
            self.workers, multiprocessing.get_context("spawn"), initializer=_initialise_worker
        )


class DaskEngine:
    """Rollout engine on the workers of a Dask scheduler, which may run on other machines.

    Args:
        environment: The gymnasium id.
        channels: Ids of the observation's entries, in their order.
        address: Address of the scheduler; None starts a local cluster.
        workers: Number of workers of the local cluster.

    Raises:
        RolloutError: The scheduler does not answer.
    """

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
        """Disconnect, and stop the local cluster if there is one."""
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()

    def play(
        self,
        models: Sequence[Model],
        starts: Sequence[EpisodeSeeds],
        disturbance: DisturbanceSettings = NO_DISTURBANCE,
    ) -> Outcomes:
        """Play R episodes with each of P policies on the Dask workers, and return all results.

        Dask gives the tasks of lost workers to others.

        Args:
            models: The P policies.
            starts: Seeds of each of the R episodes.
            disturbance: Disturbance of the readings.
        """
        workers = max(1, len(self._client.scheduler_info(n_workers=-1)["workers"]))
        tasks = split_into_tasks(
            self._environment, self._channels, models, starts, disturbance, workers
        )
        futures = [
            self._client.submit(play_pickled_model, *task.arguments, pure=False) for task in tasks
        ]
        try:
            played = self._client.gather(futures)
        except Exception as error:
            raise RolloutError(f"dask: {type(error).__name__}: {error}") from error
        return join_outcomes(list(zip(tasks, played, strict=True)), len(models), len(starts))


def split_into_tasks(
    environment: str,
    channels: tuple[str, ...],
    models: Sequence[Model],
    starts: Sequence[EpisodeSeeds],
    disturbance: DisturbanceSettings = NO_DISTURBANCE,
    workers: int = 1,
) -> list[RolloutTask]:
    """Split a generation's rollouts into tasks for workers.

    A task is to play all episodes of one candidate, or some of them if there are few candidates.

    Args:
        environment: The gymnasium id.
        channels: Ids of the observation's entries, in their order.
        models: The candidate policies.
        starts: Seeds of each episode.
        disturbance: Disturbance of the readings.
        workers: Number of workers.
    """
    episodes, tasks = count_episodes_per_task(len(models), len(starts), workers), []
    for row, model in enumerate(models):
        pickled = pickle.dumps(model)
        for begin in range(0, len(starts), episodes):
            part = starts[begin : begin + episodes]
            tasks.append(
                RolloutTask(row, begin, (environment, channels, pickled, part, disturbance))
            )
    return tasks


def count_episodes_per_task(model_count: int, episode_count: int, workers: int) -> int:
    """Return how many episodes of a candidate make one task.

    The number is chosen for four tasks per worker, so that no worker waits long for another.

    Args:
        model_count: Number of candidates.
        episode_count: Number of episodes of each candidate.
        workers: Number of workers.
    """
    shares = max(1, min(episode_count, -(-4 * workers // model_count)))
    return -(-episode_count // shares)


def join_outcomes(
    parts: Sequence[tuple[RolloutTask, WorkerResult]], model_count: int, episode_count: int
) -> Outcomes:
    """Join the results of all tasks of a generation into arrays.

    Args:
        parts: The tasks and their results, in any order.
        model_count: Number P of candidates.
        episode_count: Number R of episodes of each candidate.

    Returns:
        The returns and steps (P, R); NaN and 0 where no task played the episode.
    """
    returns = np.full((model_count, episode_count), np.nan)
    steps, failure = np.zeros((model_count, episode_count), np.int64), None
    for task, played in parts:
        span = slice(task.begin, task.begin + len(played.returns))
        returns[task.row, span], steps[task.row, span] = played.returns, played.steps
        OUTPUT.add_worker_output(played.printed)
        failure = failure or played.failure
    return Outcomes(returns, steps, failure)


@contextmanager
def _block_interrupts() -> Iterator[None]:
    """Block SIGINT in this thread, and in processes that it starts, while a `with` block runs."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _initialise_worker() -> None:
    """Make a worker ignore Ctrl-C, which its parent handles, use one thread, and end with it."""
    parent = multiprocessing.parent_process()

    def end_with_parent() -> None:
        """Wait until the parent has ended, also by a kill, and end this process."""
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=end_with_parent, name="end with parent", daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.environ["OMP_NUM_THREADS"] = "1"


RolloutEngineName = Literal["auto", "fused", "processes", "dask"]


def make_rollout_engine(
    name: RolloutEngineName,
    env: gymnasium.Env[Any, Any],
    environment: str,
    channels: Sequence[str],
    sizes: AttentionSizes | MlpSizes,
    workers: int | None = None,
    dask: str | None = None,
    recovery: float = 0.0,
) -> RolloutEngine:
    """Return an engine that plays rollouts of an environment.

    Args:
        name: "fused" (compiled code), "processes", "dask", or "auto": "fused" if environment and
            policies support it, else "processes".
        env: The environment.
        environment: The gymnasium id of `env`.
        channels: Ids of the observation's entries, in their order.
        sizes: Sizes of the policies.
        workers: Number of threads or processes; by default one per core.
        dask: Address of a Dask scheduler; it implies the engine "dask".
        recovery: The policies' `task.recovery`. If it is not 0, random actions move a robot that
            stands still, which compiled rollouts do not support.

    Raises:
        ValueError: Environment or policies do not support the engine.
    """
    batch = find_compiled_physics(env)
    cores = os.cpu_count() or 1
    if dask is not None or name == "dask":
        return DaskEngine(environment, channels, dask, workers or cores)
    if name == "auto":
        fuses = batch is not None and sizes.can_be_compiled_in_rollouts and not recovery
        name = "fused" if fuses else "processes"
    if name == "fused":
        if batch is None:
            raise ValueError(
                f"engine {name!r}: {environment} has no `batch`; use --engine processes"
            )
        if recovery:
            raise ValueError(
                f"engine {name!r}: does not support task.recovery {recovery:g}, which pushes a"
                " robot that stands still; use --engine processes"
            )
        from an_control.learning.rollout.compiled.engine import FusedEngine

        return FusedEngine(batch, channels, sizes.actions, workers)
    return ProcessEngine(environment, channels, workers or cores)


def find_compiled_physics(env: gymnasium.Env[Any, Any]) -> EnvironmentBatch | None:
    """Return the compiled physics of an environment, or None if there is none.

    It is the environment's own `batch`, or one that this package has for gymnasium's classic
    control tasks. An environment whose readings are scaled has none.
    """
    if isinstance(env, AdaptedEnvironment) and env.units:
        return None
    inner = env.unwrapped
    if isinstance(inner, HasBatch):
        return inner.batch
    try:
        from an_control.learning.rollout.compiled.classic_control import (
            find_physics_of_classic_control,
        )
    except ImportError:  # no numba
        return None
    return find_physics_of_classic_control(env)
