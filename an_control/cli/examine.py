"""``an-control examine MODEL --out FOLDER``."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from an_control.cli import InputError, write_json
from an_control.policy import load_policy


@dataclass(frozen=True)
class Verb:
    """What a policy knows of its channels, and how it does without each of them.

    The neurons are asked, so the identity monitor is off.
    """

    model: tyro.conf.Positional[Path]
    """A model file with softmax attention."""
    out: Path
    """The folder for identification.png."""
    task: str | None = None
    """A task known by name or a gymnasium id; by default the model's own."""
    episodes: int = 20
    """Of the identification, and of each frozen channel."""
    seed: int = 1
    """Of the episodes."""
    every: int = 200
    """Steps between two reshuffles."""
    markdown: Path | None = None
    """Put both tables between their marks in this file (`identification`, `frozen`)."""
    json: Path | None = None
    """Also write the figures here as JSON."""

    def run(self) -> int:
        for package in ("gymnasium", "matplotlib"):
            if importlib.util.find_spec(package) is None:
                raise InputError(f"needs {package} (pip install an_control[train])")
        from an_control.learning.environments import environment_of, make_environment
        from an_control.learning.evaluation import identification as examination
        from an_control.learning.evaluation.comparison import write_table
        from an_control.learning.evaluation.plots import save

        for name in ("episodes", "every"):
            if getattr(self, name) < 1:
                raise InputError(f"--{name} {getattr(self, name)}: must be 1 or more")
        policy = load_policy(self.model, monitor="off")
        channels = policy.nominal_ids
        try:
            env = make_environment(environment_of(self.task or policy.model.task.get("name", "")))
            play = policy, env, channels, self.episodes, self.seed
            found = examination.identify(*play, self.every)
            frozen = examination.freeze_each(*play)
            env.close()
            tables = {
                "identification": examination.identification_table(found),
                "frozen": examination.frozen_table(frozen),
            }
            for title, table in tables.items():
                print(f"\n{table}")
                if self.markdown is not None:
                    write_table(self.markdown, title, table)
        except ValueError as error:
            raise InputError(str(error)) from error
        picture = examination.identification_picture(found, channels)
        print(*save({"identification": picture}, self.out))
        write_json(
            self.json,
            {
                "model": str(self.model),
                "first": found.first.mean(1).tolist(),
                "later": found.later.mean(1).tolist(),
                "frozen": {
                    name: float(np.mean([result.total for result in results]))
                    for name, results in frozen.items()
                },
            },
        )
        return 0
