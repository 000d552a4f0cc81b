"""The experiment on evolution alone: its curve shows what its runs have validated."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from experiments.cartpole_evolution.run import make_steps, read_learning_curve

ROOT = Path(__file__).resolve().parents[2]


def test_a_stopped_run_is_drawn_with_the_validations_that_it_has(tmp_path):
    folder = tmp_path / "runs/cartpole_evolution/seed-3"
    folder.mkdir(parents=True)
    lines = [
        {"generation": 1, "steps": 10**9, "wall_s": 1800.0},
        {"generation": 2, "steps": 2 * 10**9, "wall_s": 3600.0, "validation": 250.0},
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert np.array_equal(read_learning_curve(folder), [[2.0], [1.0], [250.0]])
    command = [sys.executable, "-m", "experiments", "cartpole_evolution", "--draw"]
    subprocess.run(
        [*command, "--picture", "curve.png"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert (tmp_path / "curve.png").stat().st_size > 5000


def test_each_seed_is_a_run_of_its_own_with_the_asked_number_of_generations():
    first, judged, second, _ = make_steps([1, 2], 7)
    assert first.makes != second.makes and first.makes in judged.input_files
    assert "--generations 7 --seed 1" in first.command and "--seed 2" in second.command
