"""What ``an-control evaluate MODEL --identification`` does."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from an_control.cli.common import InputError
from an_control.load import load_policy

TABLES = ("identification", "frozen")
"""The titles of the tables, between whose marks they go in a Markdown file."""


def evaluate_identification(
    model: Path,
    task: str | None,
    episodes: int,
    seed: int,
    every: int,
    markdown: Path | None,
    plots: Path | None,
) -> dict[str, Any]:
    """Print how soon the neurons identify their channels, and the returns without each of these.

    The policy plays without its monitor. `every` is the number of steps between two reshuffles.
    Returns the figures for JSON, NaN where there was no such step; ValueError where the policy has
    no softmax attention.
    """
    from an_control.learning.evaluation import identification
    from an_control.learning.evaluation.comparison import write_tables
    from an_control.learning.evaluation.plots import save
    from an_control_sim.gym.environments import environment_of, make_environment
    from an_control_sim.gym.units import Units

    policy = load_policy(model, monitor="off")
    channels = policy.nominal_ids
    name = task or policy.model.task.get("name", "")
    units = Units.of_task(policy.model.task)
    with closing(make_environment(environment_of(name), units)) as env:
        play = policy, env, channels, episodes, seed
        found = identification.identify(*play, every)
        frozen = identification.freeze_each(*play)
    texts = identification.identification_table(found), identification.frozen_table(frozen)
    print("\n\n".join(texts))
    if markdown is not None:
        write_tables(markdown, dict(zip(TABLES, texts, strict=True)))
    if plots is not None:
        picture = identification.identification_picture(found, channels)
        try:
            print(*save({"identification": picture}, plots))
        except OSError as error:
            raise InputError(f"--plots: {error}") from error
    return {
        "model": str(model),
        "task": name,
        "seed": seed,
        "first": found.first.mean(1).tolist(),
        "later": found.later.mean(1).tolist(),
        "frozen": {
            channel: float(np.mean([result.total for result in results]))
            for channel, results in frozen.items()
        },
    }
