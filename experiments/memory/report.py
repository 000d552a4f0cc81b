"""Tables and a picture of the comparison of memories (recurrent networks)."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np

from an_control.system.files import replace_file_atomically
from experiments.learned_runs import make_markdown_table
from experiments.memory.comparison import TrainingResult, find_best_random_settings_index
from experiments.memory.training import MEMORIES

matplotlib.use("Agg")
from matplotlib import pyplot as plt

TITLES = ("memory scores", "memory draws")
"""Titles that mark the tables in report.md."""
SCORES, DRAWS = TITLES
NORMAL_95 = 1.96
"""Half the width of a 95 % confidence interval, in standard errors."""


def make_tables(results: list[TrainingResult]) -> dict[str, str]:
    """Return the Markdown tables of the comparison by title; {} before the final trainings."""
    final = [one for one in results if one["stage"] == "final"]
    if not final:
        return {}
    tasks = list(dict.fromkeys(one["task"] for one in final))
    scores, draws = [], []
    settings = ["rate", "heads", "layers", "batch", "cut"]
    for memory in MEMORIES:
        own = [one for one in final if one["memory"] == memory.name]
        cells = [
            _format_mean([one["score"] for one in own if one["task"] == task]) for task in tasks
        ]
        seconds = f"{np.mean([one['cpu_s'] for one in own]):.0f}" if own else ""
        scores.append([memory.name, *cells, seconds])
        drawn = [one for one in results if one["stage"] == "draw" and one["memory"] == memory.name]
        best = drawn[find_best_random_settings_index(results, memory)]
        found = [one["score"] for one in drawn]
        diverged = f"{sum(one['diverged'] for one in drawn)} of {len(drawn)}"
        draws.append([memory.name, diverged, f"{max(found):.2f}", f"{np.median(found):.2f}"])
        draws[-1] += [_format_setting(value) for value in best["settings"].values()]
    return {
        SCORES: make_markdown_table(["memory", *tasks, "seconds a training"], scores),
        DRAWS: make_markdown_table(["memory", "diverged", "best", "median", *settings], draws),
    }


def _format_mean(scores: list[float]) -> str:
    """Format scores as their mean and its standard error; a single score has no error."""
    if len(scores) < 2:
        return "".join(f"{one:.3f}" for one in scores)
    return f"{np.mean(scores):.3f} +- {np.std(scores, ddof=1) / len(scores) ** 0.5:.3f}"


def _format_setting(value: float | None) -> str:
    """Format the value of a setting as a cell of a table; "no" for None."""
    return "no" if value is None else f"{value:.2g}"


def draw_learning_curves(results: list[TrainingResult], path: Path) -> None:
    """Draw the share of right answers during the trainings, as means over seeds with 95 % bands."""
    final = [one for one in results if one["stage"] == "final"]
    tasks = list(dict.fromkeys(one["task"] for one in final))
    figure, panels = plt.subplots(
        1, len(tasks), figsize=(4 * len(tasks), 4), sharey=True, squeeze=False, layout="constrained"
    )
    for axes, task in zip(panels[0], tasks, strict=True):
        for memory in MEMORIES:
            own = [one for one in final if (one["task"], one["memory"]) == (task, memory.name)]
            whole = [one["curve"] for one in own if one["curve"]]
            points = min((len(one) for one in whole), default=0)
            if not points:
                continue
            curves = np.array([one[:points] for one in whole])  # (seeds, points, 2)
            updates, shares = curves[0, :, 0], curves[:, :, 1]
            mean = shares.mean(0)
            (line,) = axes.plot(updates, mean, label=memory.name, linewidth=1.5)
            if len(shares) > 1:
                band = NORMAL_95 * shares.std(0, ddof=1) / len(shares) ** 0.5
                edges = np.clip(mean - band, 0, 1), np.clip(mean + band, 0, 1)
                axes.fill_between(updates, *edges, alpha=0.2, color=line.get_color(), linewidth=0)
        axes.set_title(task)
        axes.set_xlabel("updates")
        axes.grid(alpha=0.3)
    panels[0][0].set_ylabel("share of right answers")
    panels[0][-1].legend(loc="lower right", fontsize=8)
    with replace_file_atomically(path) as part:
        figure.savefig(part, dpi=110, format="png")
    plt.close(figure)
