"""What `an-control` answers beside its verbs' own work: help, names, completion, bad paths."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import get_type_hints

import pytest
from program import START

import an_control
from an_control.cli import main, run_verb
from an_control.cli.common import Output, find_output_path_markers
from an_control.cli.help import GROUPS, RENAMED, SHELLS, VERBS
from an_control.cli.verbs import load_verb_class
from an_control.learning.api.parts import PolicyParts
from an_control.system.compilation import BEGINS, find_innermost_compilation_report
from an_control.system.environment_output import OUTPUT

PACKAGE = Path(an_control.__file__).parent


def process(*arguments, **options):
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True, text=True, timeout=120, check=False, **options,
    )  # fmt: skip


def test_help_lists_each_verb_under_its_group(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for group, verbs in GROUPS.items():
        listed = out.partition(f"\n{group}\n")[2].partition("\n\n")[0].splitlines()
        assert [line.split()[0] for line in listed] == list(verbs)


def test_every_verb_has_a_module_and_every_module_of_the_folder_is_known():
    shared = {"__init__", "common", "disturbance", "help", "identification", "sim_view"}
    shared |= {"terminal", "verbs"}
    files = {path.stem for path in (PACKAGE / "cli").glob("*.py")} - shared
    assert {load_verb_class(verb).__module__.rpartition(".")[2] for verb in VERBS} == files


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_has_a_text_for_each_option_and_no_none(verb, capsys):
    with pytest.raises(SystemExit) as end:
        main([verb, "--help"])
    assert end.value.code == 0
    out = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "None" not in out and "default: )" not in out
    options = {field.name: field for field in fields(load_verb_class(verb))}
    if options.pop("parts", None):
        options |= {field.name: field for field in fields(PolicyParts)}
    for field in options.values():
        if field.type == "Options":  # of the disturbance: test/disturbance/test_settings.py
            continue
        name = f"--{field.name.replace('_', '-')}"
        assert name in out or field.name.upper() in out or "Literal" in str(field.type)
        assert not re.search(rf"{name}( [A-Z]+)? --", out), f"{name} has no text"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sim", "None"], "one of ('ant', 'cartpole', 'car_racing', 'pong')"),
        (["sim", "no"], "one of ('ant', 'cartpole', 'car_racing', 'pong')"),
        (["sim", "ant", "--monitor", "None"], "one of ('off', 'reset', 'match')"),
    ],
)
def test_none_is_no_choice_and_the_choices_are_named_in_order(arguments, said, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    shown = " ".join(capsys.readouterr().err.replace("│", "").split())
    assert f"invalid choice '{arguments[-1]}'" in shown and said in shown


@pytest.mark.parametrize("verb", ["train", "distill", "train-teacher", "learn"])
def test_each_verb_that_picks_a_model_by_validation_says_that_its_best_is_partly_luck(verb, capsys):
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    assert "(the model is the policy with the highest, which is partly luck" in " ".join(
        capsys.readouterr().out.replace("│", " ").split()
    )


@pytest.mark.parametrize("option", ["--monitor", "--recovery"])
def test_an_option_of_the_policy_is_described_alike_by_all_verbs(option, capsys):
    texts = set()
    for verb in ("run", "sim", "evaluate"):
        with pytest.raises(SystemExit):
            main([verb, "--help"])
        words = " ".join(capsys.readouterr().out.replace("│", " ").split())
        texts.add(words.partition(f"{option} ")[2].partition(" --")[0])
    assert len(texts) == 1, texts


def test_version_and_module_are_the_command(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"an_control {an_control.__version__}\n"
    done = process("-m", "an_control", "--version")
    assert (done.returncode, done.stdout) == (0, f"an_control {an_control.__version__}\n")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("evalaute", "did you mean evaluate?"),
        ("trainteacher", "did you mean train-teacher"),
        ("xyzzy", "the verbs are sim, run, new, check, view, rewire, status"),
        *((old, f"{old.split()[-1]!r} is now: {new}") for old, new in RENAMED.items()),
    ],
)
def test_an_unknown_verb_ends_with_2_and_one_line_that_names_a_near_or_new_one(word, said, capsys):
    assert main(word.split()) == 2
    captured = capsys.readouterr()
    assert said in captured.err and captured.err.count("\n") == 1 and not captured.out


def test_without_a_verb_the_usage_is_an_error(capsys):
    assert main([]) == 2
    captured = capsys.readouterr()
    assert "usage: an-control VERB" in captured.err and not captured.out


def completed(tmp_path, *words):
    """What bash offers after these words, the last of them unfinished."""
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    script = tmp_path / "complete.bash"
    script.write_text(process("-c", START, "--completion", "bash").stdout)
    line = f"COMP_WORDS=({' '.join(map(repr, words))}); COMP_CWORD={len(words) - 1}"
    function = re.search(r"complete .*-F (\S+)", script.read_text())
    assert function is not None
    code = f'. {script}; {line}; {function[1]}; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(
        ["bash", "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.split()


def test_bash_completes_verbs_their_options_and_their_choices(tmp_path):
    assert {"train", "train-teacher", "train-monitor"} <= set(
        completed(tmp_path, "an-control", "train")
    )
    assert "--episodes" in completed(tmp_path, "an-control", "evaluate", "--ep")
    assert "match" in completed(tmp_path, "an-control", "evaluate", "--monitor", "ma")


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_a_script_and_another_is_refused(shell, capsys):
    with pytest.raises(SystemExit) as end:
        main(["--completion", shell])
    assert end.value.code in (None, 0)
    assert "train-monitor" in capsys.readouterr().out
    assert main(["--completion", "cmd"]) == 2
    assert "bash, zsh, fish" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [(["-h"], ""), (["-h"], "1"), (["--version"], ""), (["run", "--help"], "")],
)
def test_help_whose_reader_has_gone_ends_without_a_word(arguments, unbuffered):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [sys.executable, "-c", START, *arguments],
            stdout=writer,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            timeout=120,
            check=False,
        )
    finally:
        os.close(writer)
    assert (ended.stderr, ended.returncode) == (b"", 141)


def outputs():
    """Verb, option and kind of everything that is written where an option says."""
    for verb in VERBS:
        work = load_verb_class(verb)
        for name, hint in get_type_hints(work, include_extras=True).items():
            for kind in find_output_path_markers(hint):
                yield pytest.param(verb, f"--{name.replace('_', '-')}", kind, id=f"{verb} {name}")


NEEDED = {
    "sim": ["ant"],
    "new": ["mine", "--env", "CartPole-v1"],
    "run": ["--wiring", "w", "--model", "ant"],
    "rewire": ["/ant/policy"],
    "shadow": ["on"],
    "bench": ["inference"],
    "learn": ["cartpole", "--out", "run"],
    "train": ["cartpole", "--out", "run"],
    "train-teacher": ["ant", "--out", "run"],
    "distill": ["cartpole", "--out", "run"],
    "record-excitation": ["policy.onnx", "--amplitude", "0.3"],
    "import-authors": ["a.npz", "--kind", "ant_pi", "--out", "m"],
}


@pytest.mark.parametrize(("verb", "option", "kind"), list(outputs()))
def test_a_path_that_cannot_be_written_ends_with_2_before_the_work(
    verb, option, kind, tmp_path, monkeypatch, capsys
):
    def work(self):
        raise AssertionError("it began to work")

    monkeypatch.setattr(load_verb_class(verb), "run", work)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    bad = [tmp_path / "file" / "x"]
    bad += [tmp_path, tmp_path / "no" / "x"] if kind is Output.FILE else [tmp_path / "file"]
    for path in bad:
        assert main([verb, *NEEDED.get(verb, ["ant"]), option, str(path)]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"an-control {verb}: {option} {path}: "), said


def test_what_a_verb_writes_is_known_to_be_checked():
    found = {(one.values[0], one.values[1]) for one in outputs()}
    for verb in ("sim", "evaluate", "info", "bench", "train", "distill", "train-teacher"):
        assert (verb, "--json") in found
    assert {("sim", "--video"), ("evaluate", "--markdown"), ("evaluate", "--plots")} <= found


def test_a_page_without_the_tables_marks_ends_it_with_2_before_the_first_episode(tmp_path, capsys):
    pytest.importorskip("gymnasium")
    page = tmp_path / "page.md"
    page.write_text("no marks\n")
    assert main(["evaluate", "gone.safetensors", "--markdown", str(page), "--title", "x"]) == 2
    assert f"--markdown {page}: has no <!-- table x -->" in capsys.readouterr().err
    assert page.read_text() == "no marks\n"


def test_nothing_but_the_command_line_imports_the_benchmarks():
    users = [
        path.relative_to(PACKAGE)
        for path in PACKAGE.rglob("*.py")
        if "an_control.bench" in path.read_text(encoding="utf-8")
    ]
    assert {path.parts[0] for path in users} <= {"bench", "cli"}


def test_the_command_line_and_the_start_of_a_command_do_not_import_each_other_in_a_circle():
    for path in (PACKAGE / "cli").glob("*.py"):
        assert "an_control.entry_points" not in path.read_text(encoding="utf-8"), path


WITHOUT_EXTRAS = """
import sys

sys.modules.update(dict.fromkeys(sys.argv[1:]))  # as if they were not installed
from an_control.cli.help import VERBS
from an_control.cli.verbs import load_verb_class
print(*(load_verb_class(verb).__module__ for verb in VERBS))
"""


def test_every_verb_is_known_where_no_extra_is_installed():
    """So that `--help` says what it needs; `sim` once asked for what only its page needs."""
    extras = "torch", "gymnasium", "pybullet", "matplotlib", "msgspec", "tornado", "numba", "cv2"
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS, *extras, "stable_baselines3", "cma", "distributed"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == len(VERBS)


@dataclass(frozen=True)
class CompileCommand:
    """Compile a function in the code of an environment."""

    def run(self) -> int:
        """Compile it."""
        report = find_innermost_compilation_report()
        with OUTPUT:
            report.record_compilation_start()
            report.record_compilation_end()
        return 0


def test_what_is_compiled_for_an_environment_is_no_output_of_the_environment(capsys):
    assert run_verb(lambda: CompileCommand, "an-control x", []) == 0
    begins, ends = capsys.readouterr().err.splitlines()
    assert begins == f"an-control x: {BEGINS}"
    assert ends.startswith("an-control x: compiled in ")
