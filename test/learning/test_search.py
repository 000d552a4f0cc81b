"""A search resumes to the same bits, survives what fails, and explains itself in its folder."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

pytest.importorskip("cma", reason="needs the train extra")
pytest.importorskip("gymnasium", reason="needs the sim extra")

from an_control.cli import main
from an_control.disturbance import DisturbanceSettings, Shuffle
from an_control.learning.es.parametrisation import PaperForm, WholeModelForm
from an_control.learning.es.search import (
    Search,
    SearchSettings,
    play_episodes_under_mixed_disturbances,
)
from an_control.learning.rollout.engine import (
    NO_DISTURBANCE,
    Outcomes,
    RolloutError,
    draw_training_seeds,
)
from an_control.learning.runs.run_folder import CHECKPOINT, RunError, RunFolder, unpack_checkpoint
from an_control.learning.runs.run_loop import RunLoop
from an_control.load import load_policy
from an_control.policy import MlpSizes, read_model
from an_control_sim.envs.tasks import CARTPOLE_TASK

COMMAND = [sys.executable, "-c", "import sys; from an_control.cli import main; sys.exit(main())"]
SMALL = dict(generations=6, population=8, rollouts=2, validate_every=2, validation_episodes=4)
TIMES = ("wall_s", "cpu_s", "steps_per_s")


def search(folder, engine, optimiser="pgpe", resume=False, seed=1, **settings) -> RunLoop:
    form = WholeModelForm(MlpSizes(5, 1, [4]))
    settings = SearchSettings(optimiser=optimiser, **{**SMALL, **settings})
    learner = Search(CARTPOLE_TASK, form, engine, settings, seed)
    return RunLoop(RunFolder(folder, learner.config, resume), learner)


def timeless(metrics):
    return [{k: v for k, v in line.items() if k not in TIMES} for line in metrics]


@pytest.mark.parametrize("optimiser", ["cma", "cma-diagonal", "pgpe"])
def test_a_resumed_search_continues_to_the_same_bits(tmp_path, fused, optimiser):
    whole = search(tmp_path / "whole", fused, optimiser)
    whole.run()
    for stop in (1, 4, 6):
        part = search(tmp_path / "part", fused, optimiser, resume=stop > 1)
        part.run(stop_after=stop)
    assert part.is_finished
    assert part.learner.distribution_mean.tobytes() == whole.learner.distribution_mean.tobytes()
    ours, theirs = (read_model(run.model_path).arrays for run in (part, whole))
    assert all(array.tobytes() == theirs[name].tobytes() for name, array in ours.items())
    assert timeless(part.metrics) == timeless(whole.metrics)


def test_a_killed_search_continues_as_if_nothing_had_been(tmp_path):
    """kill -9 in the middle; the metrics are those of a search that was left alone."""
    command = [
        *COMMAND,
        "train",
        "cartpole",
        "--optimiser",
        "cma",
        "--form",
        "mlp",
        "--popsize",
        "8",
        "--rollouts",
        "2",
        "--episodes",
        "4",
        "--out",
    ]
    folder = tmp_path / "killed"
    process = subprocess.Popen(
        [*command, str(folder), "--generations", "100000"], stdout=subprocess.DEVNULL
    )
    checkpoint = folder / CHECKPOINT
    while not (checkpoint.exists() and unpack_checkpoint(checkpoint.read_bytes())["done"] > 0):
        assert process.poll() is None, "ended before its first checkpoint"
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    written = len((folder / "metrics.jsonl").read_text().splitlines())
    arguments = command[len(COMMAND) :]
    ours = [*arguments, str(folder), "--generations", str(written + 5), "--resume"]
    assert main(ours) == 0
    assert main([*arguments, str(tmp_path / "whole"), "--generations", str(written + 5)]) == 0
    lines = [
        [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        for run in (folder, tmp_path / "whole")
    ]
    assert len(lines[0]) == written + 5
    assert timeless(lines[0])[:-1] == timeless(lines[1])[:-1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_says_how_to_go_on(tmp_path, number):
    process = subprocess.Popen(
        [
            *COMMAND,
            "train",
            "cartpole",
            "--popsize",
            "8",
            "--generations",
            "100000",
            "--out",
            str(tmp_path / "run"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "run/metrics.jsonl").exists() or (
        (tmp_path / "run/metrics.jsonl").stat().st_size == 0
    ):
        time.sleep(0.05)
    process.send_signal(number)
    said = process.communicate(timeout=120)[0]
    assert process.returncode == 130
    assert "to continue: an-control train cartpole" in said
    assert (tmp_path / "run" / CHECKPOINT).exists()
    assert (tmp_path / "run/model.safetensors").exists(), "before any validation too"


def test_a_refused_start_leaves_nothing_that_refuses_the_corrected_command(tmp_path, capsys):
    out = tmp_path / "run"
    assert train("CartPole-v1", out, "--shuffle", "reset", "none", "--resume") == 2
    assert "rollouts 1: must be 2" in capsys.readouterr().err
    assert train("CartPole-v1", out, "--resume") == 1
    assert train("CartPole-v1", out, "--form", "mlp") == 0


def test_a_run_folder_explains_itself(tmp_path, capsys):
    out = tmp_path / "run"
    arguments = [
        "train",
        "cartpole",
        "--out",
        str(out),
        "--generations",
        "4",
        "--popsize",
        "8",
        "--rollouts",
        "2",
        "--episodes",
        "20",
        "--validate-every",
        "2",
        "--json",
        str(tmp_path / "result.json"),
    ]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "generation 4 of 4, 0 s left  best" in printed and "validation" in printed
    config = json.loads((out / "config.json").read_text())
    assert config["seed"] == 1 and config["settings"]["population"] == 8
    assert config["versions"]["an_control"]
    assert [
        json.loads(line)["generation"] for line in (out / "metrics.jsonl").read_text().splitlines()
    ] == [1, 2, 3, 4]
    model = read_model(out / "model.safetensors")
    assert model.trained["evaluations"][0]["episodes"] == 100
    assert load_policy(out / "model.safetensors").nominal_ids == CARTPOLE_TASK.channels
    card = (out / "model.md").read_text()
    assert "an-control train cartpole" in card and "success share" in card and "wall_s" in card
    assert (out / "curve.png").read_bytes()[:4] == b"\x89PNG"
    assert list((out / "tensorboard").iterdir())
    assert json.loads((tmp_path / "result.json").read_text())["evaluations"]


def test_random_starts_race_by_default_and_zeros_are_asked_for(tmp_path, capsys):
    few = ["--popsize", "4", "--rollouts", "2", "--episodes", "4", "--form", "attention-raw"]
    out = str(tmp_path / "run")
    arguments = ["train", "cartpole", "--out", out, "--generations", "100", *few]
    assert main([*arguments, "--optimiser", "pgpe-clipup", "--max-rollouts", "4"]) == 0
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    metrics = [json.loads(line) for line in lines]
    assert [metrics[i]["starts"] for i in (0, -1)] == [8, 1]
    zeros = ["train", "cartpole", "--out", str(tmp_path / "zeros"), "--generations", "1", *few]
    assert main([*zeros, "--starts", "0"]) == 0
    assert "starts" not in (tmp_path / "zeros/metrics.jsonl").read_text()
    model = str(tmp_path / "run/model.safetensors")
    assert main([*zeros, "--start-model", model, "--starts", "2"]) == 2
    assert "--starts 2: must be 0 with --start-model" in capsys.readouterr().err
    assert main([*zeros, "--minutes", "-1"]) == 2
    assert "--minutes -1: must be 0 or more" in capsys.readouterr().err


def test_another_runs_folder_is_refused(tmp_path, fused):
    search(tmp_path, fused).run(stop_after=1)
    assert search(tmp_path, fused).done == 1
    with pytest.raises(RunError, match="other settings"):
        search(tmp_path, fused, seed=2, resume=True)
    with pytest.raises(RunError, match="no run to resume"):
        search(tmp_path / "nowhere", fused, resume=True)


class Failing:
    """An engine whose rollouts fail where it is told to."""

    def __init__(self, fused, failing) -> None:
        self._fused, self._failing = fused, failing

    def play(self, models, starts, disturbance=NO_DISTURBANCE) -> Outcomes:
        outcomes = self._fused.play(models, starts, disturbance)
        outcomes.returns[self._failing(len(models))] = np.nan
        return outcomes._replace(failure="the motor is on fire")

    def close(self) -> None: ...


@pytest.mark.parametrize("optimiser", ["cma", "pgpe"])
def test_a_failed_candidate_takes_the_worst_rank_and_is_never_nan(tmp_path, fused, optimiser):
    engine = Failing(fused, lambda n: [0] if n > 1 else [])
    run = search(tmp_path, engine, optimiser)
    run.run()
    assert np.isfinite(run.learner.distribution_mean).all() and run.metrics[-1]["failed"] == 2
    assert all(np.isfinite(line["mean"]) for line in run.metrics)


def test_a_search_in_which_all_rollouts_fail_ends_with_its_last_checkpoint(tmp_path, fused):
    search(tmp_path, fused).run(stop_after=3)
    before = (tmp_path / CHECKPOINT).read_bytes()
    with pytest.raises(RolloutError, match="generation 3 failed: the motor is on fire"):
        search(tmp_path, Failing(fused, lambda n: slice(None)), resume=True).run()
    assert (tmp_path / CHECKPOINT).read_bytes() == before


def test_a_full_disk_ends_in_one_line_with_the_checkpoint_intact(tmp_path, fused, monkeypatch):
    search(tmp_path, fused).run(stop_after=3)
    before = (tmp_path / CHECKPOINT).read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="No space left on device"):
        search(tmp_path, fused, resume=True).run()
    assert (tmp_path / CHECKPOINT).read_bytes() == before
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".part")]


def test_neurons_with_stacked_readings_are_searched(tmp_path):
    out = tmp_path / "run"
    arguments = ["train", "cartpole", "--out", str(out), "--stack", "4", "--neuron", "12"]
    few = ["--generations", "2", "--popsize", "4", "--rollouts", "2", "--episodes", "4"]
    assert main([*arguments, *few]) == 0
    sizes = read_model(out / "model.safetensors").sizes
    assert (sizes.stack, sizes.neuron) == (4, 12)


def test_conditions_share_the_episodes_and_are_validated_each(fused, people):
    clean, moving = NO_DISTURBANCE, DisturbanceSettings(shuffle=Shuffle(True, 20))
    starts = draw_training_seeds(np.random.default_rng(0), 5)
    together = play_episodes_under_mixed_disturbances(fused, people, starts, [clean, moving])
    apart = [fused.play(people, starts[:2], clean), fused.play(people, starts[2:], moving)]
    expected = np.concatenate([part.returns for part in apart], axis=1)
    assert together.returns.tobytes() == expected.tobytes()
    learner = Search(
        CARTPOLE_TASK, PaperForm(), fused, SearchSettings(**SMALL, mixture=(clean, moving)), 1
    )
    learner.step()
    line = learner.step()
    assert line["validation"] == pytest.approx(
        np.mean([line["validation none"], line["validation reset+20"]])
    )
    few = SearchSettings(**SMALL, mixture=(clean, moving, clean))
    with pytest.raises(ValueError, match="rollouts 2"):
        Search(CARTPOLE_TASK, PaperForm(), fused, few, 1)


def train(environment, folder, *further) -> int:
    return main(
        [
            "train",
            environment,
            "--out",
            str(folder),
            "--generations",
            "2",
            "--popsize",
            "4",
            "--rollouts",
            "1",
            "--episodes",
            "2",
            "--workers",
            "1",
            *further,
        ]
    )


@pytest.mark.parametrize("environment", ["CartPole-v1", "Pendulum-v1", "MountainCarContinuous-v0"])
@pytest.mark.filterwarnings("ignore:.*obs.*:UserWarning")
def test_environments_that_are_not_ours_train_from_their_ids_alone(tmp_path, environment):
    assert train(environment, tmp_path, "--form", "mlp") == 0
    model = read_model(tmp_path / "model.safetensors")
    assert model.task.environment == environment


@pytest.mark.parametrize(
    ("name", "named"), [("Pictures", "observation space"), ("Words", "action space")]
)
def test_an_unsupported_space_ends_in_one_clear_line(tmp_path, broken, capsys, name, named):
    assert train(broken(name), tmp_path) == 2
    said = capsys.readouterr().err
    assert named in said and name in said and said.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "named"),
    [("Raises", "the motor is on fire"), ("Nan", None), ("Sometimes", None)],
)
def test_a_broken_step_ends_in_one_clear_line_or_costs_only_ranks(
    tmp_path, broken, capsys, name, named
):
    status = train(broken(name), tmp_path, "--rollouts", "1", "--seed", "4")
    said = capsys.readouterr().err
    if named:
        assert status == 1 and named in said and said.count("\n") == 1
    else:
        assert status in (0, 1)


def test_a_step_that_breaks_later_leaves_the_last_checkpoint(tmp_path, broken, capsys, monkeypatch):
    fuse = tmp_path / "fuse"
    monkeypatch.setenv("AN_CONTROL_TEST_FUSE", str(fuse))
    monkeypatch.setattr(RunLoop, "save_every_s", 0.0)
    run = tmp_path / "run"
    monkeypatch.setattr(
        "an_control.cli.terminal.ProgressLine.show_progress",
        lambda self, progress: fuse.touch() if progress.done == 1 else None,
    )
    assert train(broken("Later"), run) == 1
    assert "on fire" in capsys.readouterr().err
    assert unpack_checkpoint((run / CHECKPOINT).read_bytes())["done"] == 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--sigma", "0"], "sigma"),
        (["--popsize", "2"], "popsize"),
        (["--shuffle", "x"], "shuffle"),
        (["--seed", "-1"], "seed"),
        (["--engine", "fused"], "fused"),
        (["--max-rollouts", "3"], "--max-rollouts 3"),
        (["--max-rollouts", "8", "--rollouts", "1"], "--max-rollouts 8"),
        (["--popsize", "5", "--optimiser", "pgpe"], "even"),
        (["--queries", "0"], "--queries 0: must be 1 or more"),
        (["--neuron", "0"], "--neuron 0: must be 1 or more"),
        (["--form", "mlp", "--hidden", "8", "0"], "--hidden 0: must be 1 or more"),
        (["--rate", "nan"], "--rate nan: must be over 0"),
        (["--sigma-rate", "nan"], "--sigma-rate nan: must be 0 or more"),
        (["--decay", "nan"], "--decay nan: must be 0 or more"),
    ],
)
def test_bad_input_ends_with_2_and_names_it(tmp_path, arguments, named, capsys):
    task = "MountainCarContinuous-v0" if "fused" in named else "cartpole"
    assert main(["train", task, "--out", str(tmp_path), *arguments]) == 2
    assert named in capsys.readouterr().err
