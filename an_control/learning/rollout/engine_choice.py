"""Which engine plays an environment: compiled, in processes, or by Dask."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal

import gymnasium

from an_control.learning.rollout.engine import Engine
from an_control.policy import AttentionSizes, MlpSizes
from an_control_sim.gym.environments import Adapted, Batch, Batched

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
