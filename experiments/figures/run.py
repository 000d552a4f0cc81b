"""List the figures of the pages and whether they are stale, or make some of them again.

    python -m experiments figures                 every figure: where it stands, and its state
    python -m experiments figures ONLY ...        make those again whose name contains one of these
    python -m experiments figures --stale         only stale ones; exit status 1 if there are any
    python -m experiments figures --repeat        repeat the first episodes of stale ones: those
                                                  that are the same are fresh again; where
                                                  they differ, the code of the commit at which
                                                  the figure was made is run here as well
    python -m experiments figures ONLY --made-at COMMIT
                                                  note that they were made at this commit, without
                                                  making them

The mean returns that a command prints are written into the rows of the table. If the list says *by
hand*, run the command, copy the figures into the page, and then note it with `--made-at HEAD`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from an_control.system.files import write_file
from experiments.figures.hashes import ROOT, SourceTree, hash_inputs
from experiments.figures.registry import FIGURES, FigureCommand, PageFigure, find_page_tables
from experiments.figures.repeats import (
    Returns,
    check_out_commit,
    evaluate_first_episodes_of_figure,
    list_changed_returns,
    list_evaluation_commands,
)

MADE = Path(__file__).with_name("made.json")
"""File that records for each figure when and at which commit it was made, and the hashes of its
inputs."""
PROTOCOL = re.compile(r"`([^`]+)`")
DECIMALS = re.compile(r"-?\d+\.?(\d*)")


def read_figure_records() -> dict[str, Any]:
    """Return how each figure was made (date, commit, hashes of inputs), by name of the figure."""
    return dict(json.loads(MADE.read_text(encoding="utf-8"))) if MADE.is_file() else {}


def find_changed_inputs(inputs: Mapping[str, str], record: Mapping[str, Any] | None) -> list[str]:
    """Return which inputs of a figure (commands, models, code) have changed since it was made.

    The inputs are hashes by name. Without a record of the figure, the result is ["no record"].
    """
    if not record:
        return ["no record"]
    then = record["inputs"]
    return sorted(name for name in {*inputs, *then} if inputs.get(name) != then.get(name))


def describe_staleness_of_figure(
    figure: PageFigure, changed: Sequence[str], record: Mapping[str, Any] | None
) -> str:
    """Return lines that say whether a figure is stale, when it was made, and by which commands."""
    how = "" if figure.is_written_by_commands else ", by hand"
    when = f"made {record['date']} at {record['commit']}" if record else "no record"
    if record and "repeated" in record:
        when += f", repeated {record['repeated']}"
    state = f"STALE ({', '.join(changed)})" if changed else "fresh"
    lines = [f"{figure.name}", f"    {state}; {when}; episodes: {figure.episodes}{how}"]
    return "\n".join([*lines, *(f"    {one.command}" for one in figure.commands)])


def fill_table_rows(rows: Sequence[str], column: int, results: Mapping[str, Any]) -> list[str]:
    """Return a Markdown table's lines with the old results replaced by those of an evaluation.

    Each row names its disturbance, such as `delay=1`, which is short for "none,delay=1". The
    returns are written as mean +- standard error, with as many decimals as before. Columns with the
    titles `episodes` and `successes` are filled, too.

    Args:
        rows: The lines of the table.
        column: The index of the column with the returns.
        results: For each disturbance the entry of the evaluation's JSON file.

    Example:
        >>> row = {"mean": 4.25, "sd": 3.0, "episodes": [{}] * 10, "success_share": 0.5}
        >>> table = ["| late | return | successes |", "|---|---|---|", "| `delay=1` | 3.0 | 9 % |"]
        >>> fill_table_rows(table, 1, {"none,delay=1": row})[2]
        '| `delay=1` | 4.2 +- 1.0 | 50 % |'
    """
    from an_control.learning.evaluation.comparison import format_standard_error
    from an_control.learning.rollout.evaluation_protocol import EvaluationProtocol

    titles = [title.strip() for title in rows[0].strip("|").split("|")]
    filled = [*rows[:2]]
    for line in rows[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        protocol = PROTOCOL.search(line)
        row = results.get(str(EvaluationProtocol.parse(protocol[1]))) if protocol else None
        if row is None:
            filled.append(line)
            continue
        count = len(row["episodes"])
        decimals = DECIMALS.match(cells[column])
        digits = len(decimals[1]) if decimals else 0
        cells[column] = (
            f"{row['mean']:.{digits}f} {format_standard_error(row['sd'], count, digits)}"
        )
        for place, title in enumerate(titles):
            if title == "episodes":
                cells[place] = str(count)
            elif title.startswith("successes"):
                cells[place] = f"{100 * row['success_share']:.{int('.' in cells[place])}f} %"
        filled.append(f"| {' | '.join(cells)} |")
    return filled


def run_figure_command(command: FigureCommand, results_file: Path) -> int:
    """Run a command that makes a figure, and return its exit status.

    A command whose results fill a column of a table writes them to `results_file`, a JSON file.
    """
    program, *rest = shlex.split(command.command)
    programs = {
        "an-control": [sys.executable, "-m", "an_control"],
        "python": [sys.executable],
        "make": ["make"],
    }
    asked = ["--json", str(results_file)] if command.column is not None else []
    return subprocess.run([*programs[program], *rest, *asked], cwd=ROOT, check=False).returncode


def read_evaluation_results(results: Path) -> dict[str, Any]:
    """Return the entries of an evaluation's JSON file, one for each disturbance.

    The keys are the disturbances as text, such as "none,delay=1".
    """
    from an_control.learning.rollout.evaluation_protocol import EvaluationProtocol

    rows = json.loads(results.read_text(encoding="utf-8"))["protocols"]
    return {str(EvaluationProtocol.parse(row["protocol"])): row for row in rows}


def remake_figure_or_table(figure: PageFigure) -> int:
    """Run the commands of a figure, fill its table if it has one, and return the exit status."""
    for one in figure.commands:
        print(one.command, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            results = Path(folder) / "rows.json"
            if status := run_figure_command(one, results):
                return status
            if one.column is not None:
                page = ROOT / figure.page
                text = page.read_text(encoding="utf-8")
                rows = find_page_tables(text)[figure.place]
                filled = fill_table_rows(rows, one.column, read_evaluation_results(results))
                write_file(page, text.replace("\n".join(rows), "\n".join(filled)))
    return 0


def record_inputs_of_made_figures(
    figures: Sequence[PageFigure], commit: str, *, at_commit: bool
) -> None:
    """Write to the file of records that figures were made at a commit, with hashes of their inputs.

    The inputs (commands, models and code) are those at the commit if `at_commit`, else those in the
    work tree. If the work tree has the same inputs, the returns of the first episodes are measured
    and recorded, too.
    """
    current = SourceTree.from_work_tree()
    tree = SourceTree.from_commit(commit) if at_commit else current
    asked = ["git", "log", "-1", "--format=%h %cs", commit]
    out = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    short, date = out.split()
    made = read_figure_records()
    for one in figures:
        inputs = hash_inputs(one, tree)
        made[one.name] = {"date": date, "commit": short, "inputs": inputs}
        is_current = inputs == hash_inputs(one, current)
        if is_current and (returns := evaluate_first_episodes_of_figure(one)):
            made[one.name]["first returns"] = returns
    write_figure_records(made)


def repeat_stale_figures_and_count_remaining(figures: Sequence[PageFigure]) -> int:
    """Check stale figures by repeating their first episodes; return how many remain stale.

    A figure is stale if its inputs have changed since the commit at which it was made. It stops
    being stale if the present code gives the same returns as were recorded when the figure was
    made, or the same as the code of that commit gives on this computer.
    """
    tree, stale = SourceTree.from_work_tree(), 0
    for figure in figures:
        record, inputs = read_figure_records().get(figure.name, {}), hash_inputs(figure, tree)
        if not find_changed_inputs(inputs, record):
            continue
        returns, problems = _repeat_and_list_problems(figure, record, inputs)
        if problems:
            stale += 1
            print(f"{figure.name}: still stale: {'; '.join(problems)}", flush=True)
            continue
        print(f"{figure.name}: the first episodes are the same", flush=True)
        today = datetime.date.today().isoformat()
        news = {"inputs": inputs, "repeated": today, "first returns": returns}
        write_figure_records({**read_figure_records(), figure.name: {**record, **news}})
    return stale


def _repeat_and_list_problems(
    figure: PageFigure, record: Mapping[str, Any], inputs: Mapping[str, str]
) -> tuple[dict[str, Returns], list[str]]:
    """Repeat a figure's first episodes, and compare their returns with those of its commit."""
    if not list_evaluation_commands(figure):
        return {}, ["it does not consist of evaluations; make it again"]
    if not record or record["inputs"].get("command") != inputs["command"]:
        return {}, ["its command has changed; make it again"]
    returns = evaluate_first_episodes_of_figure(figure)
    problems = list_changed_returns(record.get("first returns", {}), returns)
    if problems:
        try:
            with check_out_commit(record["commit"]) as root:
                problems = list_changed_returns(
                    evaluate_first_episodes_of_figure(figure, root), returns
                )
        except subprocess.CalledProcessError as error:
            problems.append(f"{shlex.join(error.cmd)} failed at commit {record['commit']}")
    return returns, problems


def write_figure_records(made: Mapping[str, Any]) -> None:
    """Write to a file how each figure was made, without figures not in the registry any more."""
    known = {one.name for one in FIGURES}
    kept = {name: made[name] for name in sorted(made) if name in known}
    write_file(MADE, json.dumps(kept, indent=1) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """List the tables and pictures of results, check them or make them; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("only", nargs="*", metavar="ONLY", help="text in the names of figures")
    parser.add_argument("--stale", action="store_true", help="only list figures that are stale")
    parser.add_argument(
        "--repeat", action="store_true", help="repeat the first episodes of stale figures"
    )
    parser.add_argument("--made-at", metavar="COMMIT", help="note when they were made")
    options = parser.parse_args(arguments)
    wanted = [
        one for one in FIGURES if not options.only or any(text in one.name for text in options.only)
    ]
    if not wanted:
        parser.error(f"{' '.join(options.only)}: in no figure's name")
    if options.made_at:
        record_inputs_of_made_figures(wanted, options.made_at, at_commit=True)
        return 0
    if options.repeat:
        return int(repeat_stale_figures_and_count_remaining(wanted) > 0)
    if options.only and not options.stale:
        return _make_and_record_figures(wanted)
    made, tree, stale = read_figure_records(), SourceTree.from_work_tree(), 0
    for one in wanted:
        changed = find_changed_inputs(hash_inputs(one, tree), made.get(one.name))
        stale += bool(changed)
        if changed or not options.stale:
            print(describe_staleness_of_figure(one, changed, made.get(one.name)))
    print(f"{stale} of {len(wanted)} figures are stale")
    return int(options.stale and stale > 0)


def _make_and_record_figures(figures: Sequence[PageFigure]) -> int:
    """Make and record figures until one fails, and return the exit status."""
    for figure in figures:
        if status := remake_figure_or_table(figure):
            return status
        if figure.is_written_by_commands:
            record_inputs_of_made_figures([figure], "HEAD", at_commit=False)
        else:
            print(f"{figure.name}: copy the figures by hand, then --made-at HEAD")
    return 0
