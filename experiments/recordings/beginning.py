"""Start a policy that was learned from recordings in an unknown order of its channels.

Its first motion is the mean beginning of the recorded episodes, by which the order is found.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

from an_control.cli import main as run_verb
from an_control.system.files import write_file
from experiments.foreign_policies.excitation import measure_order_finding_by_excitation


def measure_order_finding_while_walking(
    model: Path, bag: Path, folder: Path, episodes: int, results: Path, steps: int = 1000
) -> int:
    """Test whether a policy finds an unknown order of the Ant's channels while it begins to walk.

    In each of `episodes` tests the actions are fixed for the first 0.25 s: at each step, the mean
    of the actions in that step of the episodes recorded in `bag`. From their effects the policy
    finds the order, and walks on, for at most `steps` steps in all. Returns are written to
    `results` (JSON), other files to `folder`, which is emptied first. Return the exit status.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    policy = folder / "policy.onnx"
    (folder / "policy.policy.yaml").write_text(
        "an_control_policy: 1\nexcitation: policy.excitation.safetensors\n", encoding="utf-8"
    )
    for command in (
        ["export", str(model), "--onnx", str(policy)],
        ["train-monitor", str(policy), "--take", str(model)],
        ["record-excitation", str(policy), "--bag", str(bag)],
    ):
        if status := run_verb(command):
            return status
    measured = measure_order_finding_by_excitation(policy, range(episodes), steps, on_ground=False)
    returns = [one.total for one in measured]
    row = {
        "protocol": "reset",
        "mean": float(np.mean(returns)),
        "sd": float(np.std(returns)),
        "episodes": [{"return": one.total, "found": one.found} for one in measured],
    }
    write_file(results, json.dumps({"protocols": [row]}, indent=1) + "\n")
    return 0
