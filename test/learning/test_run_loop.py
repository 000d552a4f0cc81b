"""The run loop: what it keeps, what it refuses, and that a killed run repeats to the same bits."""

import errno
import fcntl
import json
import subprocess
import sys
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

from an_control.learning.runs.run_folder import (
    CHECKPOINT,
    LIMIT_SETTINGS,
    CheckpointError,
    RunError,
    RunFolder,
    pack_checkpoint,
    read_or_measure_observation_units,
    unpack_checkpoint,
)
from an_control.learning.runs.run_loop import RunLoop
from an_control.policy import MlpSizes, read_model
from an_control.policy.random_model import make_random_model
from an_control_sim.gym.units import UNSCALED


class Walk:
    """Learns nothing: a random walk, whose steps `values` validate."""

    unit = "step"

    def __init__(self, values=(), killed_after=None, steps=6) -> None:
        self.place, self.number, self.values, self.killed_after = 0.0, 0, values, killed_after
        self.total_step_calls = steps

    def step(self):
        if self.number == self.killed_after:
            raise KeyboardInterrupt
        self.place += float(np.random.default_rng(self.number).normal())
        self.number += 1
        value = {"validation": self.values[self.number - 1]} if self.values else {}
        return {"place": self.place, **value}

    def make_checkpoint(self):
        return {"place": np.array(self.place), "number": self.number}

    def restore(self, state):
        self.place, self.number = float(state["place"]), state["number"]

    def make_model(self, run):
        model = make_random_model(MlpSizes(2, 1, [3]), seed=self.number)
        model.trained.update(run)
        return model


def loop(path, learner, **config) -> RunLoop:
    return RunLoop(RunFolder(path, {"seed": 1, **config}), learner)


def test_a_checkpoint_gives_back_what_it_was_given():
    torch = pytest.importorskip("torch", reason="needs the train extra")
    state = {
        "weights": np.arange(6, dtype=np.float32).reshape(2, 3)[:, ::-1],
        "optimiser": {"state": {0: {"step": torch.tensor(3.0)}}, "groups": [{"lr": 1e-3}]},
        "rng": np.random.default_rng(1).bit_generator.state,
        "best": -np.inf,
        "nothing": None,
        "empty": np.zeros((0, 3)),
    }
    found = unpack_checkpoint(pack_checkpoint(state))
    assert found["weights"].tobytes() == np.ascontiguousarray(state["weights"]).tobytes()
    assert found["optimiser"]["state"][0]["step"].shape == ()
    assert {k: found[k] for k in ("rng", "best", "nothing")} == {
        k: state[k] for k in ("rng", "best", "nothing")
    }
    with pytest.raises(TypeError):
        pack_checkpoint({"policy": object()})
    for broken in (b"", b"x" * 100, pack_checkpoint(state)[:-5]):
        with pytest.raises(CheckpointError, match="not a checkpoint"):
            unpack_checkpoint(broken)


def test_the_model_with_the_best_validation_is_kept(tmp_path):
    run = loop(tmp_path, Walk([1.0, 3.0, 2.0, 3.0, -5.0, 0.0]))
    run.run()
    trained = read_model(run.model_path).trained
    assert run.is_finished and trained["steps"] == 4
    assert set(trained) >= {"wall_s", "cpu_s", "version"}
    assert list((tmp_path / "tensorboard").iterdir()) and (tmp_path / "curve.png").exists()


def test_a_picture_leaves_a_notebooks_backend_of_matplotlib_as_it_is(tmp_path):
    """In a process of its own, as the backend is one for the whole process."""
    pytest.importorskip("matplotlib", reason="needs the train extra")
    code = """
import sys
from pathlib import Path
import matplotlib
import numpy
matplotlib.use("svg")
from an_control.learning.evaluation import identification, plots
from an_control.learning.runs.card import write_learning_curve
from an_control.learning.runs.run_folder import RunFolder
from an_control.record.comparison import Comparison
folder = Path(sys.argv[1])
write_learning_curve(RunFolder(folder, {}), [{"step": 1, "best": 1.0}], "step")
Comparison().plot_differences(folder / "differences.png", ("a",))
shares = identification.IdentifiedShares(numpy.eye(2), numpy.eye(2), numpy.ones((2, 3), int))
plots.save_figures({"one": identification.plot_channel_identification(shares, "ab")}, folder)
print(matplotlib.get_backend())
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True)
    assert done.stdout == "svg\n", done.stderr
    assert {one.name for one in tmp_path.glob("*.png")} == {
        "curve.png",
        "differences.png",
        "one.png",
    }


def test_a_curve_that_a_busy_machine_draws_slowly_warns_of_nothing(tmp_path, monkeypatch):
    """Matplotlib warns of a legend that takes over a second to place: the whole run failed."""
    legend = pytest.importorskip("matplotlib.legend", reason="needs the plot extra")
    slow = SimpleNamespace(perf_counter=count(0.0, 2.0).__next__)
    monkeypatch.setattr(legend, "time", slow)
    loop(tmp_path, Walk([1.0, 3.0], steps=2)).run()
    assert (tmp_path / "curve.png").exists() and slow.perf_counter() > 0.0


def test_a_run_that_is_stopped_before_any_validation_leaves_its_newest_model(tmp_path):
    run = loop(tmp_path, Walk())
    run.run(lambda line: line["step"] < 2)
    assert run.done == 2 and read_model(run.model_path).trained["steps"] == 2
    run.run(stop_after=3)
    assert run.done == 3 and not run.is_finished


def test_a_folder_in_which_another_process_works_is_refused(tmp_path):
    folder = tmp_path / "run"
    code = (
        "import sys, pathlib; from an_control.system.files import lock_folder\n"
        "with lock_folder(pathlib.Path(sys.argv[1])): print('in', flush=True); sys.stdin.read()"
    )
    folder.mkdir()
    other = subprocess.Popen(
        [sys.executable, "-c", code, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with other:
        assert other.stdout.readline() == "in\n"
        with pytest.raises(RunError, match="run: another process is working in this folder"):
            loop(folder, Walk()).run()
        assert not list(folder.iterdir())
        other.stdin.close()
    loop(folder, Walk()).run()
    assert (folder / "model.safetensors").exists()


def test_on_a_file_system_without_locks_a_run_runs_all_the_same(tmp_path, monkeypatch):
    def refuse(descriptor, operation):
        raise OSError(errno.EBADF, "as on NFS, where a folder takes no exclusive lock")

    monkeypatch.setattr(fcntl, "flock", refuse)
    loop(tmp_path / "run", Walk()).run()
    assert (tmp_path / "run/model.safetensors").exists()


@pytest.mark.parametrize("every_s", [0.0, 1e9])
def test_a_killed_run_repeats_to_the_same_lines(tmp_path, monkeypatch, every_s):
    monkeypatch.setattr(RunLoop, "save_every_s", every_s)
    whole = loop(tmp_path / "whole", Walk())
    whole.run()
    with pytest.raises(KeyboardInterrupt):
        loop(tmp_path / "part", Walk(killed_after=4)).run()
    part = loop(tmp_path / "part", Walk())
    assert part.done == (4 if every_s == 0.0 else 0)
    part.run()
    for run in (whole, part):
        written = (run.folder.path / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in written] == [1, 2, 3, 4, 5, 6]
    places = [[line["place"] for line in run.metrics] for run in (whole, part)]
    assert places[0] == places[1]


def test_a_killed_run_whose_steps_follow_a_clock_keeps_its_best_model(tmp_path, monkeypatch):
    """The checkpoint was older than the model, and a lower validation overwrote it."""
    monkeypatch.setattr(RunLoop, "save_every_s", 1e9)
    with pytest.raises(KeyboardInterrupt):
        loop(tmp_path, Walk([1.0, 5.0, 0.0, 0.0], killed_after=3)).run()
    other = loop(tmp_path, Walk([1.0, 2.0, 2.0, 2.0, 2.0, 2.0]))
    assert other.done == 2
    other.run()
    assert read_model(other.model_path).trained["steps"] == 2


@pytest.mark.parametrize("there", [False, True])
def test_a_first_step_that_fails_leaves_nothing_that_refuses_the_corrected_command(tmp_path, there):
    folder = tmp_path / "run"
    if there:
        folder.mkdir()
    with pytest.raises(KeyboardInterrupt):
        loop(folder, Walk(killed_after=0), rate=1).run()
    assert folder.exists() == there and not list(tmp_path.rglob("*.json"))
    run = loop(folder, Walk(), rate=2)
    run.run()
    assert run.is_finished


def test_a_run_that_was_killed_before_its_first_checkpoint_refuses_no_other(tmp_path):
    run = loop(tmp_path, Walk(), rate=1)
    run.folder.write_settings_and_metrics([])
    loop(tmp_path, Walk(), rate=2).run()
    assert json.loads((tmp_path / "config.json").read_text())["rate"] == 2


@pytest.mark.parametrize("rate", [1, 2])
def test_nothing_is_resumed_before_the_first_checkpoint(tmp_path, rate):
    loop(tmp_path, Walk(), rate=1).folder.write_settings_and_metrics([])
    with pytest.raises(RunError, match="there is no run to resume"):
        RunFolder(tmp_path, {"seed": 1, "rate": rate}, resume=True)
    loop(tmp_path, Walk(), rate=rate).run(stop_after=1)
    RunFolder(tmp_path, {"seed": 1, "rate": rate}, resume=True)


@pytest.mark.parametrize("limit", LIMIT_SETTINGS)
def test_a_run_is_continued_with_more_steps_than_it_was_begun_with(tmp_path, limit):
    loop(tmp_path, Walk(steps=3), settings={limit: 3, "rate": 1}).run()
    longer = loop(tmp_path, Walk(steps=5), settings={limit: 5, "rate": 1})
    assert longer.done == 3
    longer.run()
    assert longer.done == 5 and read_model(longer.model_path).trained["steps"] == 5
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["settings"] == {limit: 5, "rate": 1}
    with pytest.raises(RunError, match=r"other settings \(settings.rate is 1, not 2\)"):
        loop(tmp_path, Walk(steps=5), settings={limit: 5, "rate": 2})


def test_a_folder_of_other_settings_or_a_broken_checkpoint_is_refused(tmp_path):
    loop(tmp_path, Walk()).run(stop_after=2)
    with pytest.raises(RunError, match=r"other settings \(rate is none, not 2\)"):
        loop(tmp_path, Walk(), rate=2)
    others = {name: [1] for name in "abcde"}
    with pytest.raises(RunError, match=r"a is none, not \[1\];.*; and 2 more\)"):
        loop(tmp_path, Walk(), **others)
    with pytest.raises(
        RunError, match=r"start is none, not \[0, 1, .* \.\.\. .*, 799\]\)"
    ) as error:
        loop(tmp_path, Walk(), start=list(range(800)))
    assert len(str(error.value)) < 300
    (tmp_path / CHECKPOINT).write_bytes(b"broken")
    with pytest.raises(RunError, match=f"{CHECKPOINT}: not a checkpoint"):
        loop(tmp_path, Walk())


@pytest.mark.parametrize("content", [b'{"step": 1', b"\0\0\0\0", b"\xff\n"])
def test_metrics_that_a_crash_of_the_machine_has_damaged_are_named(tmp_path, content):
    loop(tmp_path / "run", Walk()).run(stop_after=1)
    (tmp_path / "run/metrics.jsonl").write_bytes(content)
    with pytest.raises(RunError, match=r"metrics\.jsonl: "):
        loop(tmp_path / "run", Walk())


def test_the_units_of_a_folder_that_holds_another_kind_of_run_are_left_to_the_folders_check(
    tmp_path,
):
    (tmp_path / "config.json").write_text('{"task": "CartPole-v1", "versions": {}}')
    (tmp_path / CHECKPOINT).write_bytes(b"")
    assert read_or_measure_observation_units(tmp_path, "CartPole-v1") == UNSCALED
    with pytest.raises(RunError, match="other settings"):
        RunFolder(tmp_path, {"task": {"name": "CartPole-v1"}})


def test_a_loop_that_never_ran_leaves_no_file(tmp_path):
    loop(tmp_path / "run", Walk())
    assert not (tmp_path / "run").exists()
