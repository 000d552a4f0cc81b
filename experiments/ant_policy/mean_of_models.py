r"""Average the weights of several models into one model.

    python -m experiments.ant_policy.mean_of_models \
        runs/first/model.safetensors runs/second/model.safetensors --out runs/mean.safetensors

If several models were trained further from the same model, their average keeps what most of them
learned, and loses less of what each forgot (Wortsman et al. 2022, "Model soups"). The policies must
have the same sizes, channels and actuators; other entries of the task, such as `recovery`, are
taken from the last file. Monitors are left out (`an-control train-monitor`).
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from an_control.monitor.forward_model import NETWORKS
from an_control.policy import Model, read_model, write_model


def average_models(models: list[Model]) -> Model:
    """Return a model with the mean of the weights of all models, and without a monitor.

    Everything else is copied from the last model in the list, except the description of its
    training.
    """
    first = models[0]
    for other in models[1:]:
        for key in ("kind", "sizes"):
            if getattr(other, key) != getattr(first, key):
                raise ValueError(f"{key}: {getattr(other, key)} is not {getattr(first, key)}")
        for key in ("channels", "actuators"):
            theirs, ours = getattr(other.task, key), getattr(first.task, key)
            if theirs != ours:
                raise ValueError(f"task.{key}: {theirs} is not {ours}")
    names = [name for name in first.arrays if not name.startswith(NETWORKS)]
    arrays = {
        name: np.asarray(np.mean([one.arrays[name] for one in models], 0, np.float64), np.float32)
        for name in names
    }
    trained = {"how": "mean of models", "of": [model.trained for model in models]}
    return replace(models[-1], arrays=arrays, trained=trained, forward=None)


def main() -> None:
    """Average the weights of the model files on the command line, and write the resulting model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", type=Path, nargs="+", help="model files of the same sizes")
    parser.add_argument("--out", type=Path, required=True, help="the model file to write")
    given = parser.parse_args()
    try:
        model = average_models([read_model(path) for path in given.models])
    except ValueError as error:
        parser.error(str(error))
    write_model(given.out, model)
    print(given.out)


if __name__ == "__main__":
    main()
