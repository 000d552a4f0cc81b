"""Registry of every table and picture of figures on README, the pages and the model cards.

Each entry says where the figure stands, which commands make it, and on which models and code it
depends. A test checks that every figure on the pages is in this list.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.camera_tables.run import TABLES as CAMERA_TABLES
from experiments.page_tables import PageTable
from experiments.tables.run import TABLES as ANT_TABLES

POLICY = ("an_control/policy", "an_control/monitor", "an_control/load.py")
OFFLINE = (
    *POLICY,
    "an_control/disturbance",
    "an_control/learning/rollout",
    "sim/an_control_sim/gym",
)
ANT = (*OFFLINE, "sim/an_control_sim/envs/ant.py")
CARTPOLE = (*OFFLINE, "sim/an_control_sim/envs/cartpole.py")
BASE = (*OFFLINE, "sim/an_control_sim/envs/mobile_base.py")
CAMERA = (*OFFLINE, "sim/an_control_sim/envs")
NODE = (*POLICY, "an_control/ros", "an_control/control", "an_control/wiring")
SIMULATED = (*NODE, "an_control/disturbance", "sim/an_control_sim")
PAGE = (*SIMULATED, "an_control/view", "experiments/live_page")


@dataclass(frozen=True)
class FigureCommand:
    """A command line that makes a figure (table or picture), or fills one column of a table."""

    command: str
    """Command line as in a shell, in the root of a clone."""
    column: int | None = None
    """Index of the table's column into which mean returns are written; the row names the protocol
    (disturbance). None if the command writes the figure itself, or if somebody has to copy it."""


@dataclass(frozen=True)
class PageFigure:
    """A table or picture of results on a page, with the commands, models and code that make it."""

    page: str
    """Path of the page from the root of the repository."""
    place: str
    """Heading above the table, or path of the picture from the page's folder."""
    commands: tuple[FigureCommand, ...]
    code: tuple[str, ...]
    """Files and folders of code from the root of the repository."""
    episodes: str = ""
    """Number of episodes or tries for each row of the table."""
    seeds: str = "1"
    models: tuple[str, ...] = ()
    """Names of models in the folder `models`."""
    table: str = ""
    """Title in the marks around the table in the page; "" without marks."""

    @property
    def name(self) -> str:
        """The name by which the command line selects the figure, such as "README.md: Results"."""
        return f"{self.page}: {self.table or self.place}"

    @property
    def is_picture(self) -> bool:
        """Return whether the figure is a picture."""
        return self.place.endswith((".png", ".gif"))

    @property
    def is_written_by_commands(self) -> bool:
        """Return whether the commands write the whole figure, with nothing to copy by hand."""
        return (
            self.is_picture or bool(self.table) or all(c.column is not None for c in self.commands)
        )


def format_evaluation_command(model: str, options: str, episodes: int, protocols: str) -> str:
    """Return the command line that evaluates a model with seed 1.

    `model` is the name of a file in the folder `models`, without ".safetensors". `options` are
    further options of `an-control evaluate`. `protocols` are the disturbances, such as
    "none delay=1". `episodes` is the number of episodes that are played under each.
    """
    words = f"--episodes {episodes} --seed 1 --table {protocols}"
    return " ".join(f"an-control evaluate models/{model}.safetensors {options} {words}".split())


def make_card_table_entry(
    model: str,
    code: tuple[str, ...],
    episodes: int,
    protocols: str,
    options: str = "--monitor off",
    column: int = 1,
    unmonitored_protocols: str = "",
) -> PageFigure:
    """Return the registry's entry for the table of results on a model's card (the page about it).

    Args:
        model: The name of the model's file in the folder `models`, without ".safetensors".
        code: The files and folders of code on which the results depend.
        episodes: The number of episodes under each disturbance.
        protocols: The disturbances, such as "none delay=1"; each has a row in the table.
        options: Further options of `an-control evaluate`.
        column: The index of the table's column with the mean returns.
        unmonitored_protocols: The disturbances of a second evaluation without the monitor, whose
            returns fill the next column; "" for none.
    """
    commands = [
        FigureCommand(format_evaluation_command(model, options, episodes, protocols), column)
    ]
    if unmonitored_protocols:
        off = format_evaluation_command(model, "--monitor off", episodes, unmonitored_protocols)
        commands.append(FigureCommand(off, column + 1))
    return PageFigure(
        f"models/{model}.md", "Results", tuple(commands), code, str(episodes), models=(model,)
    )


def make_table_entry(table: PageTable) -> PageFigure:
    """Return the registry's entry for a table that an experiment writes into a page."""
    known = {"ant": ANT, "ant_quick": ANT, "cartpole": CARTPOLE}
    folder = table.page.split("/")[1]
    return PageFigure(
        table.page,
        table.title,
        (
            FigureCommand(
                shlex.join(["python", "-m", "experiments", folder, "--only", table.title])
            ),
        ),
        known.get(table.model, CAMERA),
        str(table.episodes),
        str(table.seed),
        (table.model,),
        table.title,
    )


def make_picture_entry(
    page: str, path: str, command: str, code: Sequence[str], *models: str
) -> PageFigure:
    """Return the registry's entry for a picture on a page.

    `path` is relative to the page's folder; `command` draws the picture from `code` and `models`.
    """
    return PageFigure(page, path, (FigureCommand(command),), tuple(code), "1", "0", tuple(models))


RESULTS = "docs/explanation/results.md"
PICTURES = "python -m experiments live_page pictures docs/how-to/watch"
ALL = "none 100 25 reset+100 reset,missing=0.25 jitter=0.05 delay=1 delay=2 lose=0.1 gain=0.6"
FORTY = "none,missing=0.1 none,missing=0.25 none,missing=0.5 reset,missing=0.1 25,missing=0.1"
FOREIGN = (
    "an-control evaluate teacher.onnx --seed 1 --table none 100 25 missing=0.1 delay=1 jitter=0.02"
)
BASE_ENV = "--task an_control_sim:an_control/MobileBase-v0"

FIGURES: tuple[PageFigure, ...] = (
    PageFigure(
        "README.md",
        "How well it works",
        (
            FigureCommand(
                format_evaluation_command(
                    "ant", "", 100, "reset+100 25 reset,missing=0.25 delay=1 none"
                ),
                2,
            ),
        ),
        ANT,
        "100",
        models=("ant",),
    ),
    PageFigure(
        RESULTS,
        "Against the paper",
        (
            FigureCommand("python -m experiments tables"),
            FigureCommand("python -m experiments camera_tables"),
            FigureCommand(format_evaluation_command("cartpole", "--monitor off", 5000, "reset")),
        ),
        CAMERA,
        "100; CartPole 5,000",
        models=("ant", "cartpole", "car_racing", "car_racing_grass", "pong"),
    ),
    PageFigure(
        RESULTS,
        "The Ant with the monitor",
        (
            FigureCommand(format_evaluation_command("ant", "", 100, f"{ALL} friction=0.5"), 3),
            FigureCommand(format_evaluation_command("ant", "", 40, f"{FORTY} 100,missing=0.25"), 3),
        ),
        ANT,
        "100 or 40, as the rows say",
        models=("ant",),
    ),
    PageFigure(
        RESULTS,
        "Against other methods",
        (
            FigureCommand("python -m experiments students ant"),
            FigureCommand("python -m experiments parts"),
            FigureCommand("python -m experiments memory"),
            FigureCommand("python -m experiments scaling"),
        ),
        ("an_control/learning", "an_control/policy", "sim/an_control_sim/envs"),
        "as the experiments say",
        "as the experiments say",
    ),
    PageFigure(
        RESULTS,
        "Speed",
        (
            FigureCommand("an-control bench inference"),
            FigureCommand("an-control bench monitor"),
            FigureCommand("an-control bench ros"),
        ),
        (*NODE, "an_control/bench"),
        "medians",
        "-",
        ("ant",),
    ),
    PageFigure(
        "docs/explanation/guarantees.md",
        "Promises",
        (FigureCommand("make campaign"), FigureCommand("make soak")),
        (*NODE, "test/campaign"),
        "20 tries of each fault",
        "0",
        ("ant",),
    ),
    PageFigure(
        "docs/how-to/doctor.md",
        "Figures",
        (
            FigureCommand(
                "python -m experiments doctor table --robots ant --first-seed 340 --returns 3"
            ),
            FigureCommand(
                "python -m experiments doctor table --robots base --first-seed 330 --returns 3"
            ),
            FigureCommand(
                "python -m experiments doctor random --robots ant base hopper --first-trial 1000"
            ),
            FigureCommand(
                "python -m experiments doctor random --first-trial 1000 --mistakes 2 --trials 25"
                " --robots ant base"
            ),
            FigureCommand("python -m experiments doctor robots --robots ant base --first-seed 300"),
        ),
        (*NODE, "an_control/commissioning/doctor"),
        "10 s a recording",
        "300 to 349, trials 1000 to 1074",
    ),
    PageFigure(
        "docs/how-to/foreign-policies.md",
        "Use a policy from another tool",
        (
            FigureCommand("an-control export models/ant_teacher.safetensors --onnx teacher.onnx"),
            FigureCommand("an-control train-monitor teacher.onnx --take models/ant.safetensors"),
            FigureCommand(f"{FOREIGN} --episodes 20"),
            FigureCommand(f"{FOREIGN} --episodes 20 --monitor off"),
        ),
        ANT,
        "20",
        models=("ant_teacher", "ant"),
    ),
    PageFigure(
        "docs/how-to/mobile-base.md",
        "Drive a mobile base with a laser scanner",
        (
            FigureCommand(
                format_evaluation_command(
                    "mobile_base", f"--success 10 {BASE_ENV}", 100, "none reset 50"
                )
            ),
            # Run it once more with --shuffle 50; the copy has `options: {lost_beams: 0.3}`.
            FigureCommand(
                "an-control sim --simulation lost_beams_sim.yaml --wiring config/mobile_base.yaml"
                " --model models/mobile_base.safetensors --episodes 100 --seed 1"
            ),
        ),
        (*BASE, "config/mobile_base.yaml"),
        "100",
        models=("mobile_base",),
    ),
    make_card_table_entry(
        "ant",
        ANT,
        100,
        "none reset reset+100 reset+25 reset,missing=0.25 delay=1 gain=0.6",
        options="",
        unmonitored_protocols="reset reset+100 reset+25 reset,missing=0.25",
    ),
    make_card_table_entry(
        "ant_ppo",
        ANT,
        100,
        "reset reset+100 reset+25 reset,missing=0.1 reset,missing=0.25",
        column=2,
    ),
    make_card_table_entry(
        "ant_quick",
        ANT,
        100,
        "reset reset,noise=5,noise-sd=1 reset,missing=0.1 reset+100 reset+25",
        column=2,
    ),
    make_card_table_entry(
        "ant_teacher",
        ANT,
        100,
        "none none,delay=1 none,jitter=0.02 none,jitter=0.05 none,gain=0.6",
    ),
    make_card_table_entry(
        "ant_teacher_worn",
        ANT,
        100,
        "none none,gain=0.6 none,friction=0.5 none,mass=1.3 none,lag=0.5 none,delay=1",
    ),
    make_card_table_entry(
        "cartpole", CARTPOLE, 5000, "reset reset,noise=5,noise-sd=0.1 reset+200 reset+100"
    ),
    make_card_table_entry(
        "cartpole_reshuffle", CARTPOLE, 5000, "reset reset,noise=5,noise-sd=0.1 reset+100 reset+25"
    ),
    make_card_table_entry(
        "mobile_base",
        BASE,
        100,
        "none reset reset+25 none,missing=0.1 none,delay=1 none,jitter=0.02",
        options=f"--success 10 {BASE_ENV}",
    ),
    *(
        make_picture_entry(page, path, PICTURES, PAGE, *models)
        for page, path, *models in (
            ("README.md", "docs/how-to/watch/ant.gif", "ant"),
            ("docs/index.md", "how-to/watch/ant.gif", "ant"),
            ("docs/tutorial/ant.md", "../how-to/watch/ant.png", "ant"),
            ("docs/how-to/watch.md", "watch/car_racing.png", "car_racing"),
            ("docs/how-to/watch.md", "watch/own_robot.png", "mobile_base"),
        )
    ),
    make_picture_entry(
        "docs/how-to/cameras.md",
        "cameras/drive.png",
        "an-control sim car_racing --episodes 1 --seed 0 --shuffle reset"
        " --video docs/how-to/cameras/drive.png",
        SIMULATED,
        "car_racing",
    ),
    make_picture_entry(
        "docs/explanation/architecture.md",
        "architecture/folders.png",
        "python scripts/structure.py docs/explanation/architecture/folders.png",
        ("scripts/structure.py", "imports of an_control"),
    ),
    *map(make_table_entry, (*ANT_TABLES, *CAMERA_TABLES)),
)

WITHOUT_FIGURES: dict[tuple[str, str], str] = {
    ("README.md", "Where it runs"): "scripts/supported_systems.py",
    ("docs/how-to/cameras.md", "Wire a camera"): "what is read",
    ("docs/how-to/cameras.md", "Train"): "what the environments are",
    ("docs/how-to/train.md", "Train a policy"): "names",
    ("docs/how-to/wire.md", "Commands"): "names",
    ("docs/reference/disturbances.md", "Columns of a table"): "definitions",
    ("docs/reference/environments.md", "Readings and actions"): "definitions",
    ("docs/reference/environments.md", "What an environment may offer"): "definitions",
    ("docs/reference/environments.md", "What happens with an unusual one"): "limits",
    ("docs/reference/glossary.md", "From the policy to the motor"): "definitions",
    ("docs/reference/model-file.md", "Model file"): "limits",
    ("docs/reference/topics.md", "Topics, services and diagnostics"): "definitions",
}
"""For each table with numbers that nobody measured, by page and heading, what the numbers are."""

TABLE_ROW = re.compile(r"^\|.*\|$")


def find_page_tables(text: str) -> dict[str, list[str]]:
    """Return the tables of a Markdown page, each as its lines.

    The key is the title in the comment before the table, or else the heading above it.
    """
    found: dict[str, list[str]] = {}
    place, fenced, lines = "", False, text.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and line.startswith("#"):
            place = line.strip("# ")
        elif line.startswith("<!-- table "):
            place = line.removeprefix("<!-- table ").removesuffix(" -->")
        elif not fenced and TABLE_ROW.match(line):
            if not number or not TABLE_ROW.match(lines[number - 1]):
                if has_numbers(found.get(place, [])):
                    raise ValueError(f"two tables under {place!r}: give the second a heading")
                found[place] = []
            found[place].append(line)
    return found


def has_numbers(table: Sequence[str]) -> bool:
    """Return whether a Markdown table contains digits, except in its head, in code and in links."""
    body = (re.sub(r"`[^`]*`|\]\([^)]*\)", "", row) for row in table[2:])
    return any(re.search(r"\d", row) for row in body)
