"""The commands that pages name exist, and `make` writes the tables that pages show."""

import contextlib
import io
import re
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from an_control.bench.memory import TITLES
from an_control.cli import main
from an_control.cli.bench import Verb as Bench
from an_control.cli.evaluate import Verb as Evaluate
from an_control.cli.help import VERBS, parse
from an_control.cli.identification import TABLES
from an_control.learning.rollout.evaluation_protocol import Protocol

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CARDS = sorted((ROOT / "models").glob("*.md"))
TABLE = re.compile(r"<!-- table ([^\n]+) -->\n(.*?)<!-- end of table -->", re.DOTALL)
COMMAND = re.compile(r"(?<!make )\ban-control (?:\\\n\s*)?([a-z][a-z-]*)((?:\\\n|[^\n`#|(])*)")


def recipes(*targets: str) -> list[str]:
    """The lines that `make` would run."""
    make = shutil.which("make")
    if make is None:
        pytest.skip("needs make")
    done = subprocess.run(
        [make, "-n", *targets, "VENV=/nowhere"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.replace("\\\n", " ").splitlines()


@cache
def commands() -> list[list[str]]:
    """The words of the `an-control` commands by which `make` writes tables."""
    lines = [shlex.split(line) for line in recipes("tables", "camera-tables", "memory-tables")]
    return [words[1:] for words in lines if words and words[0].endswith("an-control")]


@cache
def made() -> dict[tuple[Path, str], Evaluate]:
    """What evaluations write: page and title, and the command."""
    found = {}
    for verb, *words in commands():
        if verb == "evaluate":
            one = parse(Evaluate, "make", words)
            for title in TABLES if one.identification else (one.title,):
                if one.markdown is not None:
                    found[ROOT / one.markdown, title] = one
    return found


@cache
def measured() -> set[tuple[Path, str]]:
    """What benchmarks write: page and title."""
    given = [parse(Bench, "make", words) for verb, *words in commands() if verb == "bench"]
    return {(ROOT / one.markdown, title) for one in given if one.markdown for title in TITLES}


def tables() -> dict[tuple[Path, str], str]:
    """The marked tables of all pages."""
    found = {}
    for page in PAGES:
        for title, table in TABLE.findall(page.read_text(encoding="utf-8")):
            assert (page, title) not in found, f"{page} has two tables {title!r}"
            found[page, title] = table
    return found


def test_make_writes_each_marked_table_of_the_pages_and_no_other(load_script):
    targets = ("ten-robots", "parts-tables", "pong-table", "ant-table", "from-nothing")
    called = re.findall(r"scripts/(\w+)\.py (\w*)", "\n".join(recipes(*targets)))
    assert len(called) == len(targets)
    scripted = set()
    for name, task in called:
        script = load_script(name)
        some = getattr(script, "COMPARISONS", {}).get(task)
        scripted.add((script.PAGE, script.TITLE if some is None else some.title))
    assert made().keys() | measured() | scripted == tables().keys()


def test_each_table_has_the_rows_and_the_episodes_of_the_command_that_makes_it():
    for key, command in made().items():
        table = tables()[key]
        if table.startswith("| protocol |"):
            rows = re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE)
            assert rows == [str(Protocol.parse(text)) for text in command.table], key
            counts = set(re.findall(r" of (\d+) \|", table))
            assert counts == {str(command.episodes)}, key


def test_each_return_in_the_readme_is_that_of_a_table_of_the_ant():
    """Of the same protocol and as many episodes."""
    shown = re.findall(
        r"\| `([^`]+)` \| (\d+) \| (\d+ \+- \d+) \|",
        (ROOT / "README.md").read_text(encoding="utf-8"),
    )
    known = {
        (protocol, str(command.episodes), found)
        for key, command in made().items()
        if Path(command.model).stem == "ant"
        for protocol, found in re.findall(r"^\| `(.+?)` \| ([^|]+) \|", tables()[key], re.MULTILINE)
    }
    assert len(shown) > 10
    for protocol, episodes, found in shown:
        assert (str(Protocol.parse(protocol)), episodes, found) in known, protocol


def test_make_reads_models_that_ship():
    assert all((ROOT / command.model).is_file() for command in made().values())


@cache
def options(verb: str) -> set[str]:
    """The options that the help of a verb names."""
    with contextlib.redirect_stdout(io.StringIO()) as shown, pytest.raises(SystemExit):
        main([verb, "--help"])
    return set(re.findall(r"--[a-z][a-z-]*", shown.getvalue()))


@pytest.mark.parametrize("page", [*PAGES, *CARDS], ids=lambda page: page.name)
def test_every_command_on_a_page_has_a_verb_and_options_that_exist(page):
    for verb, rest in COMMAND.findall(page.read_text(encoding="utf-8")):
        assert verb in VERBS, f"an-control {verb}"
        named = set(re.findall(r"(?<!\S)\[?(--[a-z][a-z-]*)", rest))
        assert named <= options(verb), f"an-control {verb}{rest}"


def test_a_command_that_evaluates_names_its_model():
    for page in [*PAGES, *CARDS]:
        for verb, rest in COMMAND.findall(page.read_text(encoding="utf-8")):
            if verb == "evaluate" and "--episodes" in rest:
                assert not rest.split()[0].startswith("--"), f"{page}: an-control evaluate{rest}"
