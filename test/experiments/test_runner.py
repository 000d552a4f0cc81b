"""`python -m experiments`: it lists every experiment, and does not repeat a step that is done."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.__main__ import FOLDER, list_experiments, main, read_claim_of_experiment
from experiments.steps import DoneSteps, ExperimentStep, make_step_parser, run_steps

ROOT = Path(__file__).resolve().parents[2]


def test_every_experiment_has_a_page_with_its_claim_its_command_and_a_date():
    folders = {path.name for path in FOLDER.iterdir() if path.is_dir() and path.name[0] != "_"}
    assert folders == set(list_experiments())
    for name in list_experiments():
        page = (FOLDER / name / "README.md").read_text()
        assert read_claim_of_experiment(name) and f"    python -m experiments {name}" in page, name
        assert re.search(r"\b20\d\d-\d\d-\d\d\b", page), name


def test_without_a_name_the_experiments_are_listed_with_their_claims(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(
        f"{name}\n    {read_claim_of_experiment(name)}\n" in shown for name in list_experiments()
    )


def test_an_unknown_experiment_is_refused_with_the_names_of_those_that_exist(capsys):
    assert main(["nonsense"]) == 2
    said = capsys.readouterr().err
    assert (
        said.startswith("nonsense: not an experiment (allowed: ") and list_experiments()[0] in said
    )


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """Return a function that runs steps and returns the status and the words of those that ran."""
    monkeypatch.chdir(tmp_path)
    Path("model.safetensors").write_text("weights")
    Path("step.py").write_text(
        "import sys\n"
        "open('log', 'a').write(sys.argv[2])\n"
        "if 'fail' in sys.argv[2]:\n"
        "    sys.exit(1)\n"
        "open(sys.argv[1], 'w').write('made')\n"
    )

    def run(*steps, options=()):
        before = Path("log").read_text() if Path("log").exists() else ""
        given = [ExperimentStep(makes, f"python step.py {makes} {word}") for makes, word in steps]
        status = run_steps(Path("runs/lab"), given, make_step_parser("").parse_args([*options]))
        after = Path("log").read_text() if Path("log").exists() else ""
        return status, after[len(before) :]

    return run


def test_a_step_that_has_ended_is_not_run_again(lab):
    assert lab(("out/a", "a"), ("out/b", "b")) == (0, "ab")
    assert lab(("out/a", "a"), ("out/b", "b"), ("out/c", "c")) == (0, "c")
    assert lab(("out/a", "a"), ("out/b", "b"), options=["--again"]) == (0, "ab")


def test_a_step_that_failed_ends_the_run_and_is_run_again(lab):
    assert lab(("a", "a"), ("b", "fail"), ("c", "c")) == (1, "afail")
    assert lab(("a", "a"), ("b", "fail"), ("c", "c")) == (1, "fail")


def test_a_step_whose_file_is_gone_or_whose_command_has_changed_is_run_again(lab):
    assert lab(("a", "a"), ("b", "b")) == (0, "ab")
    Path("a").unlink()
    assert lab(("a", "a"), ("b", "other")) == (0, "aother")


def test_a_step_is_run_again_once_a_model_that_it_reads_has_changed(lab):
    step = "a", "a model.safetensors"
    assert lab(step) == (0, "a") and lab(step) == (0, "")
    Path("model.safetensors").write_text("other weights")
    assert lab(step) == (0, "a")


SLOW_TO_STOP = """
import signal, sys, time
def stop(*_):
    time.sleep(0.5)
    open("stopped", "w").close()
    sys.exit(130)
signal.signal(signal.SIGINT, stop)
open("begun", "w").close()
time.sleep(60)
"""
RUN = """
from pathlib import Path
from experiments.steps import ExperimentStep, run_steps, make_step_parser
steps = [ExperimentStep("made", "python slow.py"), ExperimentStep("next", "python slow.py")]
raise SystemExit(run_steps(Path("runs"), steps, make_step_parser("").parse_args([])))
"""


def test_ctrl_c_lets_a_command_end_in_its_own_time_and_starts_no_other(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW_TO_STOP)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", RUN]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        while not (tmp_path / "begun").exists():
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 130 and (tmp_path / "stopped").exists()
    assert b"step 1 ended with status 130; the same command continues there" in out


def test_the_list_of_steps_runs_none(lab, capsys):
    assert lab(("a", "a"), ("b", "b"), options=["--list"]) == (0, "")
    assert capsys.readouterr().out.count("python step.py") == 2


def test_a_record_that_is_none_is_named(tmp_path):
    (tmp_path / "done.json").write_text("nonsense")
    with pytest.raises(ValueError, match=r"done\.json: not a record of steps; delete it"):
        DoneSteps(tmp_path / "done.json")
