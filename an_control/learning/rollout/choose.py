"""Which engine plays an environment: compiled, batched in torch, in processes, or by Dask."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal

import gymnasium

from an_control.learning.rollout.engine import Engine

EngineName = Literal["auto", "fused", "torch", "processes", "dask"]


def make_engine(
    name: EngineName,
    env: gymnasium.Env[Any, Any],
    environment: str,
    channels: Sequence[str],
    actions: int,
    workers: int | None = None,
    dask: str | None = None,
    device: str = "cpu",
) -> Engine:
    """The engine of that name; "auto" takes the fused one where the environment offers it.

    `workers` are threads or processes, by default one a core; `dask` is a scheduler's address.
    ValueError where the environment does not offer what the engine needs.
    """
    inner: Any = env.unwrapped
    if dask is not None or name == "dask":
        from an_control.learning.rollout.processes import Dask

        return Dask(environment, channels, dask, workers or 2)
    if name == "auto":
        name = "fused" if hasattr(inner, "lanes") else "processes"
    if name == "fused":
        _need(inner, "lanes", environment, name)
        from an_control.learning.rollout.compiled.engine import FusedEngine

        return FusedEngine(inner.lanes, channels, actions, workers)
    if name == "torch":
        _need(inner, "batched", environment, name)
        from an_control.learning.rollout.torch_engine import TorchEngine

        return TorchEngine(inner, channels, actions, device)
    from an_control.learning.rollout.processes import Processes

    return Processes(environment, channels, workers or os.cpu_count() or 1)


def _need(inner: Any, attribute: str, environment: str, name: str) -> None:
    if not hasattr(inner, attribute):
        raise ValueError(
            f"engine {name!r}: {environment} offers no `{attribute}`; take --engine processes"
        )
