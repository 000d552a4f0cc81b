"""The public names: each has a docstring, and the examples in the docstrings run."""

import doctest
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FACES = ("an_control", "an_control.policy", "an_control.monitor", "an_control.disturbance")
WITH_EXAMPLES = (*FACES, "an_control.load", "an_control.disturbance.settings")
MAX_TERMS = 40


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_in_the_docstrings_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write a model file
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted and not result.failed


@pytest.mark.parametrize("name", FACES)
def test_every_public_name_is_there_and_has_a_docstring(name):
    module = importlib.import_module(name)
    assert set(module.__all__) <= set(dir(module))
    for one in module.__all__:
        value = getattr(module, one)
        if inspect.isclass(value) or inspect.isroutine(value):
            assert value.__doc__, f"{name}.{one}"
        if inspect.isclass(value):
            for member, method in vars(value).items():
                if not member.startswith("_") and inspect.isfunction(method):
                    assert inspect.getdoc(method), f"{name}.{one}.{member}"


def test_the_help_of_the_package_shows_its_policy():
    shown = subprocess.run(
        [sys.executable, "-c", "import an_control; help(an_control)"],
        capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip
    for text in ("arXiv 2109.02869", "load_policy(path", "Raises:", "class Policy", "step_array("):
        assert text in shown.replace("(\n        ", "("), "Python 3.13 breaks long signatures"


def test_the_glossary_is_short_and_names_each_term_once():
    rows = [
        line.split("|")[1].strip()
        for line in (ROOT / "docs/reference/glossary.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| ") and not line.startswith("| term")
    ]
    assert rows and len(rows) <= MAX_TERMS
    assert len(set(rows)) == len(rows)
