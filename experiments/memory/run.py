"""Compare how well recurrent networks learn to remember, on tasks from the literature.

    python -m experiments memory [--smoke]

The networks are those that a policy can have. The experiment writes the tables and the picture of
report.md; it takes half an hour or more of one core.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from an_control.learning.evaluation.comparison import (
    describe_missing_table_marks,
    write_markdown_tables,
)
from an_control.learning.runs.run_folder import RunError, RunFolder
from an_control.system.interrupts import INTERRUPTED
from experiments.memory.comparison import MemoryComparison, TrainingBudget
from experiments.memory.report import TITLES, draw_learning_curves, make_tables

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "experiments/memory/report.md"
PICTURE = ROOT / "experiments/memory/pictures/curves.png"
SEED = 1
SMOKE = TrainingBudget(draws=1, draw_updates=2, seeds=1, updates=2, t_maze=20)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare how well recurrent networks remember; write report.md; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, help="folder of the trainings (default: runs/memory)")
    parser.add_argument(
        "--smoke", action="store_true", help="only test a few updates, in runs/smoke"
    )
    given = parser.parse_args(arguments)
    out = given.out or Path("runs/smoke/memory" if given.smoke else "runs/memory")
    page, picture = (out / "memory.md", out / "curves.png") if given.smoke else (PAGE, PICTURE)
    if not given.smoke and (problem := describe_missing_table_marks(page, TITLES)):
        parser.error(problem)
    try:
        found = compare_memories(out, SMOKE if given.smoke else TrainingBudget(), picture)
    except RunError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        print("stopped; the same command continues it")
        return INTERRUPTED
    write_markdown_tables(page, found)
    return 0


def compare_memories(out: Path, budget: TrainingBudget, picture: Path) -> dict[str, str]:
    """Run the trainings that are missing in the folder `out`; return Markdown tables by title.

    The learning curves are drawn into the image file `picture`.
    """
    comparison = MemoryComparison(
        RunFolder(out, MemoryComparison.make_config(budget, SEED)), budget, SEED
    )

    def print_result(line: Mapping[str, Any], finished_count: int) -> None:
        """Print a result and the number of finished trainings."""
        what = f"{line['task']}, {line['memory']}, {line['stage']} {line['number']}"
        print(
            f"{finished_count} of {comparison.training_count}  {what}: {line['score']:.3f}",
            flush=True,
        )

    comparison.run_trainings(print_result)
    found = make_tables(comparison.lines)
    for title, table in found.items():
        print(f"\n{title}\n{table}")
    picture.parent.mkdir(parents=True, exist_ok=True)
    draw_learning_curves(comparison.lines, picture)
    return found
