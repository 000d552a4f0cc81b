"""Every figure on README, pages and cards has an entry with its command; stale ones are found."""

import argparse
import importlib
import re
import shlex
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from an_control.cli.help import parse_arguments
from an_control.cli.verbs import load_verb_class
from experiments.__main__ import main as run_experiment
from experiments.figures import run
from experiments.figures.hashes import SourceTree, hash_inputs
from experiments.figures.registry import (
    FIGURES,
    WITHOUT_FIGURES,
    FigureCommand,
    PageFigure,
    find_page_tables,
    has_numbers,
)
from experiments.figures.repeats import check_out_commit

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    "README.md",
    *(str(path.relative_to(ROOT)) for folder in ("docs", "models")
      for path in sorted((ROOT / folder).rglob("*.md"))),
]  # fmt: skip
PICTURE = re.compile(r"!\[[^\]]*\]\(([^)]+)\)")
MAKE = re.compile(r"^([a-z]+):", re.MULTILINE)


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def test_every_table_with_numbers_and_every_picture_has_its_entry_and_no_entry_is_idle():
    shown = set()
    for page in PAGES:
        shown |= {
            (page, place)
            for place, table in find_page_tables(read(page)).items()
            if has_numbers(table) and (page, place) not in WITHOUT_FIGURES
        }
        shown |= {(page, path) for path in PICTURE.findall(read(page))}
    assert shown == {(one.page, one.place) for one in FIGURES if not one.table}
    assert len({one.name for one in FIGURES}) == len(FIGURES)
    for page, place in WITHOUT_FIGURES:
        assert has_numbers(find_page_tables(read(page))[place]), f"{page}: {place} has no numbers"


@pytest.fixture(scope="module")
def tree():
    return SourceTree.from_work_tree()


def test_every_entry_names_models_and_code_that_are_there(tree):
    for one in FIGURES:
        empty = [name for name, found in hash_inputs(one, tree).items() if not found]
        assert not empty, f"{one.name}: {empty}"


COMMANDS = sorted({command.command for one in FIGURES for command in one.commands})


class ParsedError(Exception):
    """A command line was parsed, and is not run."""


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_of_every_entry_parses(command, monkeypatch):
    program, *words = shlex.split(command)
    if program == "an-control":
        if words[0] == "learn":
            pytest.importorskip("torch", reason="needs the train extra")
        parse_arguments(load_verb_class(words[0]), words[0], words[1:])
    elif program == "make":
        assert words[0] in MAKE.findall(read("Makefile"))
    elif words[:2] == ["-m", "experiments"]:
        check_experiment(words[2:], monkeypatch)
    else:
        assert program == "python" and (ROOT / words[0]).is_file()


def check_experiment(words, monkeypatch):
    """Let the experiment parse its options, and stop it there."""
    module = f"experiments.{words[0]}.run"
    try:
        source = Path(importlib.import_module(module).__file__).read_text(encoding="utf-8")
    except ModuleNotFoundError as error:
        pytest.skip(f"needs {error.name}")
    if words[0] == "live_page":  # it reads its words itself
        assert f'"{words[1]}"' in source
        return
    real = argparse.ArgumentParser.parse_args

    def parse_only(self, args=None, namespace=None):
        real(self, args, namespace)
        raise ParsedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
    monkeypatch.setattr(sys, "argv", ["experiments"])
    with pytest.raises(ParsedError):
        run_experiment(words)


FIGURE = PageFigure(
    "page.md", "Results", (FigureCommand("an-control evaluate m", 1),), ("core",), "1", "1", ("m",)
)


def hashes(**changed):
    files = {
        "models/m.safetensors": b"weights",
        "core/a.py": b'"""Say."""\nX = 1  # why\n',
        "core/b.py": b"import a\n",
    } | {name.replace("__", "/").replace("_py", ".py"): data for name, data in changed.items()}
    return hash_inputs(FIGURE, SourceTree({name: lambda d=data: d for name, data in files.items()}))


def test_a_figure_is_stale_once_its_code_or_model_has_changed_and_not_by_a_comment():
    record = {"inputs": hashes()}
    assert run.find_changed_inputs(hashes(), record) == []
    assert run.find_changed_inputs(hashes(core__a_py=b'"""Tell."""\n\nX = 1\n'), record) == []
    assert run.find_changed_inputs(hashes(core__a_py=b"X = 2\n"), record) == ["code core"]
    assert run.find_changed_inputs(hashes(core__c_py=b"X = 2\n"), record) == ["code core"]
    model = {"models/m.safetensors": b"others"}
    assert run.find_changed_inputs(hashes(**model), record) == ["model m"]
    assert run.find_changed_inputs(hashes(), None) == ["no record"]


def test_every_figure_has_a_record_and_stale_ones_are_listed(tree, monkeypatch, capsys):
    """Figures may be stale between releases; that one is not known must not happen."""
    made = run.read_figure_records()
    assert made.keys() == {one.name for one in FIGURES}
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\d", one["date"]) for one in made.values())
    monkeypatch.setattr(SourceTree, "from_work_tree", lambda: tree)
    stale = [
        one.name
        for one in FIGURES
        if run.find_changed_inputs(hash_inputs(one, tree), made[one.name])
    ]
    assert run.main(["--stale"]) == int(bool(stale))
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line in made] == stale
    assert f"{len(stale)} of {len(FIGURES)} figures are stale" in out


def test_an_evaluation_fills_the_rows_of_its_table_and_leaves_the_others(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    table = "| protocol | return |\n|---|---|\n| `reset` | 1 +- 1 |\n"
    page.write_text(f"## Results\n\n{table}| late: `delay=1` | 2.0 +- 1.0 |\n| other | 3 |\n")
    rows = [
        {"protocol": "none,delay=1", "mean": 4.25, "sd": 3.0, "episodes": [{}] * 10},
        {"protocol": "reset", "mean": 7.0, "sd": 6.0, "episodes": [{}] * 10},
    ]

    def evaluate(one, results):
        run.write_file(results, run.json.dumps({"protocols": rows}))
        return 0

    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "run_figure_command", evaluate)
    assert run.remake_figure_or_table(FIGURE) == 0
    assert page.read_text().splitlines()[-3:] == [
        "| `reset` | 7 +- 2 |",
        "| late: `delay=1` | 4.2 +- 1.0 |",
        "| other | 3 |",
    ]


def test_two_tables_with_numbers_under_one_heading_are_refused():
    with pytest.raises(ValueError, match="two tables under 'A'"):
        find_page_tables("# A\n\n| a |\n|---|\n| 1 |\n\n| a |\n|---|\n| 2 |\n")


EVALUATION = "an-control evaluate models/cartpole.safetensors --monitor off --episodes 100 --seed 1"
REPEATED = PageFigure(
    "page.md",
    "Results",
    (FigureCommand(f"{EVALUATION} --table reset reset+100", 1),),
    ("experiments/figures",),
    "100",
    "1",
    ("cartpole",),
)


@pytest.fixture
def one_figure(tmp_path, monkeypatch):
    """Let the list be of one figure, whose record is in a temporary file."""
    monkeypatch.setattr(run, "FIGURES", (REPEATED,))
    monkeypatch.setattr(run, "MADE", tmp_path / "made.json")
    run.record_inputs_of_made_figures([REPEATED], "HEAD", at_commit=False)
    return REPEATED.name


def change_record(name, **changed):
    made = run.read_figure_records()
    run.write_figure_records({name: {**made[name], **changed}})


def test_a_stale_figure_is_fresh_again_if_its_first_episodes_return_the_same(one_figure, capsys):
    inputs = run.read_figure_records()[one_figure]["inputs"]
    ((command, rows),) = run.read_figure_records()[one_figure]["first returns"].items()
    rounded = {name: [one * (1.0 + 1e-14) for one in returns] for name, returns in rows.items()}
    older = {**inputs, "code experiments/figures": "older"}
    change_record(one_figure, inputs=older, **{"first returns": {command: rounded}})
    assert run.main(["--stale"]) == 1
    assert run.main(["--repeat"]) == 0
    assert "the first episodes are the same" in capsys.readouterr().out
    assert run.main(["--stale"]) == 0
    record = run.read_figure_records()[one_figure]
    assert record["inputs"] == inputs
    assert "repeated" in record


@pytest.mark.slow
def test_returns_of_another_processor_are_compared_with_those_of_the_old_code_here(
    one_figure, capsys, monkeypatch
):
    record = run.read_figure_records()[one_figure]
    older = {**record["inputs"], "code experiments/figures": "older"}
    ((command, rows),) = record["first returns"].items()
    elsewhere = {command: {**rows, "reset+100": [1.0, 2.0]}}
    change_record(one_figure, inputs=older, **{"first returns": elsewhere})
    roots: list[Path] = []

    @contextmanager
    def check_out_and_note(commit):
        with check_out_commit(commit) as root:
            roots.append(root)
            yield root

    monkeypatch.setattr(run, "check_out_commit", check_out_and_note)
    assert run.main(["--repeat"]) == 0
    assert "the first episodes are the same" in capsys.readouterr().out
    assert run.read_figure_records()[one_figure]["first returns"] == record["first returns"]
    listed = run.subprocess.run(
        ["git", "worktree", "list"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert len(roots) == 1 and str(roots[0]) not in listed.stdout


def test_a_stale_figure_stays_so_if_its_commit_or_command_is_another(one_figure, capsys):
    record = run.read_figure_records()[one_figure]
    older = {**record["inputs"], "code experiments/figures": "older"}
    returns = record["first returns"]
    ((command, rows),) = returns.items()
    assert list(rows) == ["reset", "reset+100"]
    other = {command: {**rows, "reset+100": [1.0, 2.0]}}
    change_record(one_figure, inputs=older, commit="abc", **{"first returns": other})
    assert run.main(["--repeat"]) == 1
    out = capsys.readouterr().out
    assert f"reset+100: [1.0, 2.0] is now {rows['reset+100']}" in out
    assert "failed at commit abc" in out
    change_record(one_figure, inputs={**older, "command": "older"})
    assert run.main(["--repeat"]) == 1
    assert "its command has changed; make it again" in capsys.readouterr().out
    assert run.main(["--stale"]) == 1


def test_code_whose_returns_differ_from_those_of_its_commit_leaves_a_figure_stale(
    one_figure, capsys, monkeypatch
):
    record = run.read_figure_records()[one_figure]
    older = {**record["inputs"], "code experiments/figures": "older"}
    ((command, rows),) = record["first returns"].items()
    then = {command: {**rows, "reset": [1.0, 2.0]}}
    change_record(one_figure, inputs=older, **{"first returns": {}})
    monkeypatch.setattr(
        run,
        "evaluate_first_episodes_of_figure",
        lambda figure, root=ROOT: record["first returns"] if root == ROOT else then,
    )
    assert run.main(["--repeat"]) == 1
    assert f"reset: [1.0, 2.0] is now {rows['reset']}" in capsys.readouterr().out
    assert run.main(["--stale"]) == 1
