"""The functions of `learning.api` do what the page shows, print nothing, and stop when asked."""

import re
from contextlib import nullcontext
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("stable_baselines3", reason="needs the train extra")

from an_control.learning.api import (
    EvolveOptions,
    RunStoppedError,
    TeacherOptions,
    evolve,
    train_teacher,
)
from an_control.load import load_policy

PAGE = Path(__file__).parents[2] / "docs/learning.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
TINY = {"generations": 3, "popsize": 4, "rollouts": 1, "starts": 0, "episodes": 1, "workers": 1}


@pytest.mark.timeout(900)
def test_the_page_shows_each_function_in_five_lines_that_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"print": lambda *words: None}
    for block in BLOCKS:
        assert len([line for line in block.splitlines() if line]) <= 5
        stopped = pytest.raises(RunStoppedError) if "progress.done" in block else nullcontext()
        with stopped:
            exec(compile(block, PAGE.name, "exec"), names)
        assert capsys.readouterr() == ("", ""), "the functions print nothing"
    called = re.findall(r"\b(\w+)\(\w+Options\(", "".join(BLOCKS))
    assert set(called) == {
        "train_teacher", "distill", "train_monitor", "evaluate", "evolve", "learn"
    }  # fmt: skip
    for name in ("teacher", "student", "monitor", "found", "made"):
        assert load_policy(names[name].model).nominal_ids
    assert [row["protocol"] for row in names["measured"].rows] == ["none", "reset", "reset+50"]


def test_a_run_that_is_stopped_after_a_step_continues_to_the_same_bits(tmp_path):
    whole = evolve(EvolveOptions("CartPole-v1", tmp_path / "whole", **TINY))
    options, reports = EvolveOptions("CartPole-v1", tmp_path / "parts", **TINY), []

    def stop(progress):
        reports.append((progress.event, progress.unit, progress.done, progress.steps))
        return progress.event != "step"

    with pytest.raises(RunStoppedError):
        evolve(options, stop)
    assert reports == [(event, "generation", n, 3) for event, n in
                       (("begin", 0), ("step", 1), ("end", 1))]  # fmt: skip
    parts = evolve(options)
    assert parts.model.read_bytes()[-1000:] == whole.model.read_bytes()[-1000:]
    assert parts.evaluations == whole.evaluations


def test_options_that_are_out_of_bounds_are_refused_by_their_name(tmp_path):
    with pytest.raises(ValueError, match=r"^--minutes 0: must be over 0$"):
        train_teacher(TeacherOptions("CartPole-v1", tmp_path / "run", minutes=0))
    assert not (tmp_path / "run").exists()
