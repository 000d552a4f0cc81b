"""The experiment on evolution alone: its curve shows what its runs have validated."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from an_control.cli import main
from an_control.learning import EvolveOptions, RunStoppedError, evolve
from an_control.learning.runs.progress import ignore_progress
from an_control.policy import read_model
from experiments.cartpole_evolution.run import (
    SAVED,
    make_steps,
    read_learning_curve,
    restore_states,
    save_states,
)

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
    command += ["--saved", "none"]
    subprocess.run(
        [*command, "--picture", "curve.png"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert (tmp_path / "curve.png").stat().st_size > 5000


def test_a_run_continues_in_another_clone_from_its_saved_state_with_the_same_bits(tmp_path):
    whole, stopped, other = (tmp_path / name / "seed-1" for name in ("whole", "stopped", "other"))

    def evolve_in(folder, progress=ignore_progress):
        evolve(
            EvolveOptions(
                "cartpole", folder, form="attention-raw", queries=4, generations=4, starts=0,
                popsize=4, validate_every=1, episodes=2, shuffle=(),
            ),
            progress,
        )  # fmt: skip

    evolve_in(whole)
    with pytest.raises(RunStoppedError):
        evolve_in(stopped, lambda progress: progress.done < 2)
    save_states(stopped.parent, tmp_path / "saved")
    restore_states(other.parent, tmp_path / "saved")
    evolve_in(other)
    arrays, expected = (read_model(run / "model.safetensors").arrays for run in (other, whole))
    assert arrays.keys() == expected.keys()
    assert all(np.array_equal(arrays[name], expected[name]) for name in arrays)
    curve, expected = read_learning_curve(other), read_learning_curve(whole)
    assert np.array_equal(curve[[0, 2]], expected[[0, 2]])
    restore_states(stopped.parent, tmp_path / "saved")  # leaves a run that is there as it is
    assert len((stopped / "metrics.jsonl").read_text().splitlines()) == 2


def test_each_seed_is_a_run_of_its_own_with_the_asked_number_of_generations():
    first, judged, second, _ = make_steps([1, 2], 7)
    assert first.makes != second.makes and first.makes in judged.input_files
    assert "--generations 7 --seed 1" in first.command and "--seed 2" in second.command


@pytest.mark.parametrize("state", sorted(SAVED.glob("seed-*")), ids=lambda state: state.name)
def test_the_saved_states_of_the_repository_fit_the_command_that_continues_them(
    state, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    runs = Path("runs/cartpole_evolution")
    restore_states(runs, SAVED)
    seed = int(state.name.removeprefix("seed-"))
    done = json.loads((state / "metrics.jsonl").read_text().splitlines()[-1])["generation"]
    train = shlex.split(make_steps([seed], done)[0].command)
    assert main(train[1:]) == 0
    assert f"of {done} generations were done before" in capsys.readouterr().out
