"""The commands that pages name exist, and experiments write the tables that pages show."""

import contextlib
import importlib.util
import io
import re
from functools import cache
from pathlib import Path

import pytest

from an_control.cli import main
from an_control.cli.evaluate import EvaluateCommand
from an_control.cli.help import OFFERS, VERBS, parse_arguments
from an_control.learning.evaluation.identification import TABLES
from an_control.learning.rollout.evaluation_protocol import EvaluationProtocol
from experiments.camera_tables import run as camera_run
from experiments.from_nothing import run as from_nothing_run
from experiments.memory.report import TITLES
from experiments.parts import run as parts_run
from experiments.recordings import learned as recordings_learned
from experiments.students import run as students_run
from experiments.tables import run as tables_run
from experiments.ten_robots import run as ten_robots_run

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "experiments").glob("*/*.md")),
]
CARDS = sorted((ROOT / "models").glob("*.md"))
TABLE = re.compile(r"<!-- table ([^\n]+) -->\n(.*?)<!-- end of table -->", re.DOTALL)
COMMAND = re.compile(r"(?<!make )\ban-control (?:\\\n\s*)?([a-z][a-z-]*)((?:\\\n|[^\n`#|(])*)")


@cache
def commands() -> list[list[str]]:
    """The words of the `an-control` commands by which experiments write tables."""
    steps = [
        *(table.make_step(tables_run.RUNS) for table in tables_run.TABLES),
        *tables_run.OTHERS,
        *(table.make_step(camera_run.RUNS) for table in camera_run.TABLES),
        *camera_run.OTHERS,
    ]
    return [step.command_words[1:] for step in steps]


@cache
def made() -> dict[tuple[Path, str], EvaluateCommand]:
    """What evaluations write: page and title, and the command."""
    found = {}
    for verb, *words in commands():
        if verb == "evaluate":
            one = parse_arguments(EvaluateCommand, "evaluate", words)
            for title in TABLES if one.identification else (one.title,):
                if one.markdown is not None:
                    found[ROOT / one.markdown, title] = one
    return found


@cache
def studied() -> set[tuple[Path, str]]:
    """What studies with a table of their own write: page and title."""
    students = {(students_run.PAGE, one.title) for one in students_run.COMPARISONS.values()}
    runs = from_nothing_run, parts_run, recordings_learned, ten_robots_run
    pairs = {(one.PAGE, one.TITLE) for one in runs}
    return students | pairs | {(ROOT / "experiments/memory/report.md", title) for title in TITLES}


def tables() -> dict[tuple[Path, str], str]:
    """The marked tables of all pages."""
    found = {}
    for page in PAGES:
        for title, table in TABLE.findall(page.read_text(encoding="utf-8")):
            assert (page, title) not in found, f"{page} has two tables {title!r}"
            found[page, title] = table
    return found


def test_experiments_write_each_marked_table_of_the_pages_and_no_other():
    assert made().keys() | studied() == tables().keys()


def test_each_table_has_the_rows_and_the_episodes_of_the_command_that_makes_it():
    for key, command in made().items():
        table = tables()[key]
        if table.startswith("| protocol |"):
            rows = re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE)
            assert rows == [str(EvaluationProtocol.parse(text)) for text in command.table], key
            counts = set(re.findall(r" of (\d+) \|", table))
            assert counts == {str(command.episodes)}, key


def test_each_return_of_the_ant_on_readme_and_results_is_that_of_a_table():
    """Of the same protocol and as many episodes."""
    pages = (ROOT / "README.md", ROOT / "docs/explanation/results.md")
    shown = [
        row
        for page in pages
        for row in re.findall(
            r"`([^`]+)` \| (\d+) \| (\d+ \+- \d+) \|", page.read_text(encoding="utf-8")
        )
    ]
    known = {
        (protocol, str(command.episodes), found)
        for key, command in made().items()
        if Path(command.model).stem == "ant"
        for protocol, found in re.findall(r"^\| `(.+?)` \| ([^|]+) \|", tables()[key], re.MULTILINE)
    }
    assert len(shown) > 20
    for protocol, episodes, found in shown:
        assert (str(EvaluationProtocol.parse(protocol)), episodes, found) in known, protocol


def test_experiments_read_models_that_ship():
    assert all((ROOT / command.model).is_file() for command in made().values())


@cache
def options(verb: str) -> set[str]:
    """The options that the help of a verb names."""
    return set(re.findall(r"--[a-z][a-z-]*", help_of(verb)))


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


@cache
def help_of(verb: str) -> str:
    """The help of a verb without the breaks of its lines."""
    with contextlib.redirect_stdout(io.StringIO()) as shown, pytest.raises(SystemExit):
        main([verb, "--help"])
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", shown.getvalue()).split())


def test_page_and_help_name_what_an_environment_may_offer_and_nothing_else():
    """It stood in the source code only."""
    pytest.importorskip("gymnasium", reason="needs the sim extra")
    from an_control_sim.gym import environments

    protocols = [one for name, one in vars(environments).items() if name.startswith("Has")]
    taken = {
        name
        for one in protocols
        for name in (*vars(one), *one.__annotations__)
        if not name.startswith("_")
    }
    assert taken == set(OFFERS) and len(protocols) > 8
    page = (ROOT / "docs/reference/environments.md").read_text(encoding="utf-8")
    section = page.partition("## What an environment may offer\n")[2].partition("\n## ")[0]
    first = " ".join(re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE))
    assert {name.split("(")[0] for name in re.findall(r"`([^`]+)`", first)} == {
        *OFFERS,
        'info["distance_m"]',
    }
    assert "*after* its `*` and `pool` are expanded" in section
    for verb in ("learn", "train", "train-teacher", "distill"):
        assert "see docs/reference/environments.md" in help_of(verb), verb


def test_page_and_help_say_that_a_function_may_be_the_teacher():
    page = (ROOT / "docs/how-to/train.md").read_text(encoding="utf-8")
    assert "`--teacher python:MODULE:FUNCTION` takes any function" in page
    for verb in ("learn", "distill"):
        assert "python:MODULE:FUNCTION, a function from an array of readings" in help_of(verb)


LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
LINKING = [
    *PAGES,
    *CARDS,
    *(ROOT / f"{name}.md" for name in ("CONTRIBUTING", "SECURITY", "QUALITY_DECLARATION")),
    *sorted(ROOT.glob("test/*/README.md")),
]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", heading.replace("`", "")) for heading in headings)
    return {heading.strip().lower().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_link_within_the_repository_is_dead(page):
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}"
        assert not anchor or file.is_dir() or anchor in anchors(file), f"{page.name}: {target}"


def test_nothing_names_the_diaries_that_are_gone():
    for folder in ("an_control", "sim", "launch", "experiments", "recipes", "config"):
        for path in (ROOT / folder).rglob("*.*"):
            if path.suffix in (".py", ".md", ".yaml"):
                assert "docs/log" not in path.read_text(encoding="utf-8"), path


def test_each_card_says_what_its_model_file_says_and_is_short():
    """`python scripts/cards.py` writes the facts."""
    spec = importlib.util.spec_from_file_location("cards", ROOT / "scripts/cards.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert len(CARDS) == len(list(script.MODELS.glob("*.safetensors")))
    for page in CARDS:
        text = page.read_text(encoding="utf-8")
        assert script.format_updated_card(page.with_suffix(".safetensors")) == text
        assert len([word for word in text.split() if word != "|"]) <= 250, page


def test_readme_and_architecture_are_short():
    for page, most in (
        (ROOT / "README.md", 900),
        (ROOT / "docs/explanation/architecture.md", 1200),
    ):
        assert len(page.read_text(encoding="utf-8").split()) <= most, page
