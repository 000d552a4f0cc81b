"""Offline learning: training, imitation and evaluation of policies in gymnasium environments.

Each of these functions takes one dataclass of options and returns one dataclass of results.

    train_teacher(TeacherOptions)    train an MLP policy by reinforcement learning
    distill(DistillOptions)          train a permutation-invariant student that imitates a teacher
    train_monitor(MonitorOptions)    train the monitor that detects unannounced rewiring
    evolve(EvolveOptions)            search for a policy by evolution, from returns alone
    evaluate(EvaluateOptions)        measure a model's returns under disturbances
    learn(LearnOptions)              do all of it for one environment, except `evolve`

    >>> from pathlib import Path
    >>> from an_control.learning import TeacherOptions, train_teacher
    >>> options = TeacherOptions("CartPole-v1", Path("runs/teacher"), minutes=1.0)
    >>> result = train_teacher(options)  # doctest: +SKIP
    >>> result.model  # doctest: +SKIP
    PosixPath('runs/teacher/model.safetensors')

`an_control.learning.api` says how progress is reported and how runs are continued.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from an_control.learning.api import (
        DistillOptions,
        DistillResult,
        EvaluateOptions,
        EvaluateResult,
        EvolveOptions,
        EvolveResult,
        LearnOptions,
        LearnResult,
        MonitorOptions,
        MonitorResult,
        OnProgress,
        PolicyParts,
        RunProgress,
        RunStoppedError,
        TeacherOptions,
        TeacherResult,
        distill,
        evaluate,
        evolve,
        learn,
        train_monitor,
        train_teacher,
    )

__all__ = [
    "DistillOptions",
    "DistillResult",
    "EvaluateOptions",
    "EvaluateResult",
    "EvolveOptions",
    "EvolveResult",
    "LearnOptions",
    "LearnResult",
    "MonitorOptions",
    "MonitorResult",
    "OnProgress",
    "PolicyParts",
    "RunProgress",
    "RunStoppedError",
    "TeacherOptions",
    "TeacherResult",
    "distill",
    "evaluate",
    "evolve",
    "learn",
    "train_monitor",
    "train_teacher",
]


def __getattr__(name: str) -> Any:
    """Import a public function or class on first use, so that importing this package is quick.

    No simulator is loaded until then.
    """
    if name in __all__:
        from an_control.learning import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, so that `help` shows them."""
    return sorted({*globals(), *__all__})
