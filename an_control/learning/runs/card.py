"""Model card, learning curve and TensorBoard metrics of a training run.

In arrays of returns (sums of the rewards of an episode), NaN stands for an episode that failed.
Means are computed without such episodes.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from an_control.learning.runs.run_folder import RunFolder
from an_control.policy import Model, write_model


def select_finite_returns(returns: np.ndarray) -> np.ndarray:
    """Return the finite returns as a flat array (K,); failed episodes are left out."""
    known = np.isfinite(returns)
    return returns.ravel() if known.all() else returns[known]


def compute_mean_return(returns: np.ndarray) -> float:
    """Return the mean of the finite returns, or -inf if there are none."""
    known = select_finite_returns(returns)
    return float(known.mean()) if known.size else -np.inf


def compute_standard_error(returns: np.ndarray) -> float:
    """Return the standard error of the mean of the finite returns; 0 if there are less than two."""
    known = select_finite_returns(returns)
    return float(known.std(ddof=1) / np.sqrt(known.size)) if known.size > 1 else 0.0


def count_failed_episodes(returns: np.ndarray) -> int:
    """Return the number of failed episodes, whose return is not finite."""
    return returns.size - select_finite_returns(returns).size


def drop_episodes_that_all_candidates_failed(returns: np.ndarray) -> np.ndarray:
    """Return the returns without those episodes that failed for all candidates.

    If all episodes failed for all candidates, the returns are unchanged.

    Args:
        returns: Returns (P, R) of P candidates in R episodes, NaN for a failed episode.
    """
    some = np.isfinite(returns).any(axis=0)
    return returns[:, some] if some.any() and not some.all() else returns


def average_returns_of_candidates(returns: np.ndarray) -> np.ndarray:
    """Return the mean return (P,) of each candidate, such that failed episodes are no advantage.

    A plain mean would be too high for a candidate that failed only in difficult episodes. Its lead
    over the average candidate is therefore averaged over its finished episodes, and added to the
    average candidate's mean over all episodes. If all its episodes failed, the result is NaN.

    Args:
        returns: Returns (P, R) of P candidates in R episodes, NaN for a failed episode.
    """
    known = np.isfinite(returns)
    if known.all():
        return np.asarray(returns.mean(axis=1))
    totals = np.where(known, returns, 0.0).sum(axis=0)
    usual = totals / np.maximum(known.sum(axis=0), 1)
    better = np.where(known, returns - usual, 0.0).sum(axis=1)
    counts = known.sum(axis=1)
    return np.where(counts > 0, usual.mean() + better / np.maximum(counts, 1), np.nan)


CURVES = {
    "best": "best candidate of the generation",
    "mean": "mean of the generation",
    "validation": "validation, without exploration",
    "return": "mean of the training episodes",
}
"""A mapping from each metric that a learning curve shows to the name of that metric in the legend.
"""
DECILES = range(0, 101, 10)


def summarise_returns(returns: np.ndarray, success: float | None) -> dict[str, Any]:
    """Summarise returns as a dict for JSON: "episodes", "mean", "sd", "deciles", "success_share".

    If episodes failed, their number is added as "failed". They count as episodes without success,
    and are left out of all other statistics. If all episodes failed, "mean" and "sd" are None, and
    "deciles" is empty. Values are rounded to 0.1, or to 0.001 if all returns are below 10.

    Args:
        returns: Returns (E,), NaN for a failed episode.
        success: An episode with a return above this is a success; if it is None, "success_share" is
            left out.
    """
    some = select_finite_returns(returns)
    known: dict[str, Any] = {"episodes": len(returns), "mean": None, "sd": None, "deciles": []}
    if failed := count_failed_episodes(returns):
        known["failed"] = failed
    if some.size:
        digits = 1 if np.abs(some).max() >= 10.0 else 3
        known["mean"] = round(float(some.mean()), digits)
        known["sd"] = round(float(some.std()), digits)
        known["deciles"] = [round(float(x), digits) for x in np.percentile(some, DECILES)]
    if success is not None:
        known["success_share"] = round(float((returns > success).mean()), 3)
    return known


def write_model_and_card(
    folder: RunFolder,
    model: Model,
    title: str,
    evaluations: Sequence[Mapping[str, Any]],
    command: str,
    further_table: str = "",
) -> None:
    """Write a model (`model.safetensors`) and a page about it (`model.md`) into the run's folder.

    Args:
        folder: The run's folder.
        model: The model.
        title: Title of the page.
        evaluations: Results of `summarise_returns`, each with its "protocol" (the disturbances of
            the evaluation, as text).
        command: The command line that made the model.
        further_table: A further table in Markdown; "" for none.
    """
    write_model(folder.path / "model.safetensors", model)
    trained = {key: value for key, value in model.trained.items() if key != "evaluations"}
    lines = [
        f"# {title}",
        "",
        f"A policy of kind `{model.kind}` for `{model.task.environment}`,"
        f" {model.parameter_count} numbers in its arrays.",
        "",
        "| trained | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in trained.items()),
        "",
        f"Command: `{command}`",
        "",
        "| protocol | episodes | mean | sd | success share | deciles of the return |",
        "|---|---|---|---|---|---|",
    ]
    for row in evaluations:
        deciles = " ".join(f"{value:.4g}" for value in row["deciles"])
        failed = f", {row['failed']} failed" if "failed" in row else ""
        lines.append(
            f"| {row['protocol']} | {row['episodes']}{failed} | {row['mean']} | {row['sd']} |"
            f" {row.get('success_share', '')} | {deciles} |"
        )
    if further_table:
        lines += ["", further_table]
    folder.write_file("model.md", "\n".join(lines) + "\n")


def write_learning_curve(
    folder: RunFolder, metrics: Sequence[Mapping[str, Any]], step_name: str
) -> None:
    """Draw the run's learning curve, returns over steps, into `curve.png` in its folder.

    Nothing is written if the run has none of the metrics "best", "mean", "validation" and "return",
    or if matplotlib is not installed.

    Args:
        folder: The run's folder.
        metrics: The metrics of each step of the run, by name.
        step_name: Name of the metric on the horizontal axis, such as "generation".
    """
    curves = {
        name: [(line[step_name], line[name]) for line in metrics if name in line] for name in CURVES
    }
    if not any(curves.values()):
        return
    try:
        from matplotlib.figure import Figure  # pyplot would choose a backend for the whole process
    except ImportError:
        return
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, points in curves.items():
        if points:
            axes.plot(*zip(*points, strict=True), label=CURVES[name], linewidth=1)
    axes.set_xlabel(step_name)
    axes.set_ylabel("return")
    axes.grid(alpha=0.3)
    axes.legend(loc="best")
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    folder.write_file("curve.png", picture.getvalue())


class MetricsBoard:
    """Writer of a run's metrics for TensorBoard; does nothing if TensorBoard is not installed.

    Args:
        folder: The run's folder.
        done: Number of steps that the run's checkpoint contains. Values of later steps are removed,
            because a run that continues from the checkpoint makes those steps again.
    """

    def __init__(self, folder: RunFolder, done: int = 0) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            self._writer: Any = None
        else:
            self._writer = SummaryWriter(str(folder.path / "tensorboard"), purge_step=done + 1)

    def add_metrics(self, metrics: Mapping[str, Any], step_name: str) -> None:
        """Write the numeric metrics of one step to the TensorBoard file; skip all others.

        Args:
            metrics: Metrics of one step, by name.
            step_name: Key in `metrics` of the step's number, such as "generation".
        """
        if self._writer is not None:
            for name, value in metrics.items():
                if name != step_name and isinstance(value, int | float):
                    self._writer.add_scalar(name, value, metrics[step_name])

    def close(self) -> None:
        """Close the TensorBoard file."""
        if self._writer is not None:
            self._writer.close()
