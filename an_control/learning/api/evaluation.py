"""Evaluate a model file in simulated episodes under disturbances, without ROS."""

from __future__ import annotations

import glob
import hashlib
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from an_control.control.model_wiring_check import describe_assumed_action_limit
from an_control.disturbance import Shuffle
from an_control.learning.runs.progress import (
    OnProgress,
    RunProgress,
    RunStoppedError,
    ignore_progress,
)
from an_control.load import find_model_path, resolve_monitor_setting
from an_control.monitor.recovery import resolve_stillness_threshold
from an_control.policy import Model, Monitor, OrderedSizes, read_model
from an_control.policy.onnx_file import has_onnx_suffix
from an_control.system.files import describe_read_error
from an_control_sim.envs.tasks import SUCCESS, WALK_M

if TYPE_CHECKING:
    import gymnasium

    from an_control.learning.evaluation.evaluate import ProtocolPlayer
    from an_control.learning.rollout.episode import PlayedEpisode
    from an_control.learning.rollout.evaluation_protocol import EvaluationProtocol

SHARED_OPTIONS = "monitor", "recovery", "normalise"
"""Options of an evaluation that apply to every protocol."""


@dataclass(frozen=True)
class EvaluateOptions:
    """Options of `evaluate`, which measures a model's returns under disturbances.

    A protocol is a text such as "reset,noise=5" that says how the episodes are disturbed.

    Attributes:
        model: The model file to evaluate.
        protocols: The protocols. Each becomes a row of the table of results. All rows are compared
            with the first row; their episodes have the same start states.
        task: A task known by name, or a gymnasium id; by default the model's own.
        episodes: Number of episodes in each row.
        seed: Seed of the start states and disturbances; training never uses these seeds.
        monitor: Setting of the monitor, which detects unannounced rewiring: off, reset or match.
            None takes the setting in the model file.
        recovery: Threshold for the mean change of the readings in a tick. Below it, a robot counts
            as standing still and gets random actions until it moves. 0 means never, None takes the
            value in the model file.
        normalise: Whether to divide the attention's sums over channels by the number of channels
            that are present. Missing channels then do not make the sums smaller.
        success: An episode with a return above this is a success; None takes the task's threshold.
        state: A file that keeps each finished row until the table is complete. If a call is
            interrupted, repeating it plays only the rows that are not in this file.
        markdown: A Markdown file into which the table is written, between the comments
            `<!-- table TITLE -->` and `<!-- end of table -->`.
        title: The TITLE in the comment `<!-- table TITLE -->`.
        plots: A folder for pictures of recovery curves, attention maps and keys.
    """

    model: Path
    protocols: tuple[str | EvaluationProtocol, ...] = ("reset",)
    task: str | None = None
    episodes: int = 100
    seed: int = 1
    monitor: Monitor | None = None
    recovery: float | None = None
    normalise: bool = False
    success: float | None = None
    state: Path | None = None
    markdown: Path | None = None
    title: str = "results"
    plots: Path | None = None

    def check_options(self) -> None:
        """Check that all numbers are within their bounds.

        Raises:
            ValueError: A number is out of bounds.
        """
        if self.episodes < 1:
            raise ValueError(f"--episodes {self.episodes}: must be 1 or more")
        if self.seed < 0:
            raise ValueError(f"--seed {self.seed}: must be 0 or more")


@dataclass(frozen=True)
class EvaluateResult:
    """Result of `evaluate`: returns of a model under one or more kinds of disturbance (protocols).

    Attributes:
        task: The task that was played.
        rows: One dict for each protocol, with the protocol's text, its episodes and the
            distribution of their returns.
        table: The rows as a Markdown table.
        success: An episode with a return above this is a success; None if no threshold is known.
        walk_m: Distance in metres that a robot must cover after the disturbance `stop` to count as
            walking again; None for tasks without such a distance.
        pictures: Paths of the picture files that were written.
    """

    task: str
    rows: list[dict[str, Any]]
    table: str
    success: float | None
    walk_m: float | None
    pictures: list[Path] = field(default_factory=list)


def evaluate(options: EvaluateOptions, progress: OnProgress = ignore_progress) -> EvaluateResult:
    """Measure a model's returns under disturbances of its readings, without ROS.

    The episodes are the same as in the simulator over ROS.

    Args:
        options: The model, the protocols (disturbances as text) and the number of episodes.
        progress: Called after each protocol (unit "row"), and after each episode (unit "episode")
            unless compiled code plays them.

    Returns:
        The table of returns, with one row for each protocol.

    Raises:
        ValueError: Options are out of bounds, or do not fit the model or the task.
        ModelError: The model file cannot be read.
        WriteError: A file cannot be written.
        RunStoppedError: `progress` returned False after an episode or a protocol, and it was not
            the last one. With the option `state`, repeating the call continues after the last
            finished protocol.
    """
    from an_control.learning.evaluation.comparison import (
        KeptResults,
        compare_protocols,
        format_comparison_table,
        write_markdown_tables,
    )
    from an_control.learning.evaluation.evaluate import ProtocolPlayer, make_environment_for_model
    from an_control_sim.gym.varied_robot import check_robot_settings

    options.check_options()
    if options.markdown is not None:
        check_markdown_table_marks(options.markdown, (options.title,))
    options = replace(options, model=Path(find_model_path(options.model)))
    model = read_model(options.model)
    task = options.task or (model.task.name or "ant")
    protocols = _parse_protocols(options, model)
    recovery = resolve_stillness_threshold(model, options.recovery)
    env = make_environment_for_model(options.model, model, task)
    for note in _collect_warnings(options, model, protocols):
        progress(RunProgress("note", note=note))
    with closing(env):
        for one in protocols.values():
            check_robot_settings(env, one.disturbance)
        if options.normalise:
            model = _enable_attention_normalisation(model, env)
        ends = any(one.until is not None for one in protocols.values())
        stepwise = ends or options.plots is not None  # each reward is wanted
        stage = ProtocolPlayer(model, env, options.seed, stepwise, recovery)
        kept = (
            None
            if options.state is None
            else KeptResults(options.state, _collect_options_affecting_results(options, task))
        )
        runs: dict[str, list[PlayedEpisode]] = {}
        for name, protocol in protocols.items():
            row = kept and kept.find_results(name, with_step_rewards=stage.stepwise)
            is_last = len(runs) == len(protocols) - 1
            runs[name] = row or _play_protocol_with_progress(
                stage, protocol, options, progress, is_last
            )
            if kept is not None and not row:
                kept.add_results(name, runs[name])
            figures = {"protocol": name, "results": runs[name]}
            done = len(runs), len(protocols), len(runs) / len(protocols)
            step = RunProgress("step", "row", *done, figures=figures)
            if progress(step) is False and not is_last:
                raise RunStoppedError(options.state)
        success = SUCCESS.get(task) if options.success is None else options.success
        until = {name: one.until for name, one in protocols.items()}
        rows = compare_protocols(runs, success, until, WALK_M.get(task))
        if options.markdown is not None:
            try:
                write_markdown_tables(
                    options.markdown, {options.title: format_comparison_table(rows)}
                )
            except (ValueError, OSError) as error:
                raise ValueError(
                    f"--markdown {options.markdown}: {describe_read_error(error)}"
                ) from error
        drawn = (
            []
            if options.plots is None
            else _save_evaluation_pictures(options.plots, protocols, runs, stage)
        )
        if kept is not None:
            kept.delete_file()
    return EvaluateResult(
        task, rows, format_comparison_table(rows), success, WALK_M.get(task), drawn
    )


def check_markdown_table_marks(path: Path, titles: tuple[str, ...]) -> None:
    """Raise ValueError unless a Markdown file has the marks between which tables are written.

    The marks of a table are two comments, `<!-- table TITLE -->` and `<!-- end of table -->`.

    Args:
        path: The Markdown file. A file that does not exist is no error, because it can be created.
        titles: Titles of the tables that are going to be written.

    Raises:
        ValueError: A mark is missing, or the file cannot be read.
    """
    from an_control.learning.evaluation.comparison import describe_missing_table_marks

    try:
        problem = describe_missing_table_marks(path, titles)
    except (ValueError, OSError) as error:
        problem = f"{path}: {describe_read_error(error)}"
    if problem:
        raise ValueError(f"--markdown {problem}")


def _parse_protocols(options: EvaluateOptions, model: Model) -> dict[str, EvaluationProtocol]:
    """Parse the protocols, texts such as "reset,noise=5" that say how episodes are disturbed."""
    from an_control.learning.evaluation.evaluate import make_model_without_part
    from an_control.learning.rollout.evaluation_protocol import EvaluationProtocol

    found = {}
    for given in options.protocols:
        one = EvaluationProtocol.parse(given) if isinstance(given, str) else given
        found[str(one)] = replace(one, monitor=one.monitor or options.monitor)
    for text, one in found.items():
        for idle in one.disturbance.settings_without_effect:
            raise ValueError(f"{text}: {idle.word} does nothing without {idle.modifies}")
        resolve_monitor_setting(model, one.monitor)
        if one.without is not None:
            make_model_without_part(model, one.without)
    return found


def _collect_warnings(
    options: EvaluateOptions, model: Model, protocols: dict[str, EvaluationProtocol]
) -> list[str]:
    """Return warnings to show to the user before the episodes are played.

    One warning says that protocols permute the signals of a model that needs its channels in order
    and has no monitor to restore the order. Others say that the model file sets the monitor to off,
    and that an ONNX file does not say how large its actions may be.
    """
    assumed = describe_assumed_action_limit(str(options.model), model)
    warnings = [assumed] if assumed else []
    moved = [
        text
        for text, one in protocols.items()
        if one.disturbance.shuffle != Shuffle()
        and not one.disturbance.announce
        and resolve_monitor_setting(model, one.monitor) == "off"
    ]
    if moved and isinstance(model.sizes, OrderedSizes):
        warnings.append(
            f"{options.model}: needs its channels in order, but {' '.join(moved)} permutes them"
            " (--shuffle none does not)"
        )
    asked = [one.monitor for one in protocols.values()]
    if None in asked and (warning := model.monitor_default_off_reason):
        warnings.append(warning)
    return warnings


def _enable_attention_normalisation(model: Model, env: gymnasium.Env[Any, Any]) -> Model:
    """Return a copy of the model whose attention sums do not grow with the number of channels.

    The sums are divided by the number of channels that are present, and multiplied by the number of
    channels of the task.
    """
    from an_control_sim.gym.environments import describe_task

    try:
        return model.copy_with_normalised_channel_sums(len(describe_task(env, "", "").channels))
    except ValueError as error:
        raise ValueError(f"--{error}") from error


def _play_protocol_with_progress(
    player: ProtocolPlayer,
    protocol: EvaluationProtocol,
    options: EvaluateOptions,
    progress: OnProgress,
    is_last: bool,
) -> list[PlayedEpisode]:
    """Play the episodes of one protocol, report each to `progress`, and return their results.

    A request to stop after the last episode of the last protocol stops nothing.
    """
    done, episodes = 0, options.episodes

    def report_progress(result: PlayedEpisode) -> None:
        nonlocal done
        done += 1
        figures = {"return": result.total, "steps": result.steps}
        step = RunProgress("step", "episode", done, episodes, done / episodes, figures=figures)
        if progress(step) is False and not (is_last and step.finished):
            raise RunStoppedError(options.state)

    return player.play(protocol, episodes, report_progress)


def _collect_options_affecting_results(options: EvaluateOptions, task: str) -> dict[str, Any]:
    """Return the options, apart from the protocols, on which the return of an episode depends.

    They are stored with the results by name. A file of results is only continued with equal ones.
    """
    content = hashlib.sha256()
    for path in _list_policy_files(options.model):
        content.update(path.read_bytes())
    return {
        "model": content.hexdigest(),
        "task": task,
        "episodes": options.episodes,
        "seed": options.seed,
        **{name: getattr(options, name) for name in SHARED_OPTIONS},
    }


def _list_policy_files(model: Path) -> list[Path]:
    """Return the files that decide what a policy does, its model file first.

    An ONNX file has others beside it: they begin with its name, or hold its tensors.
    """
    if not has_onnx_suffix(model):
        return [model]
    beside = sorted(model.parent.glob(f"{glob.escape(model.stem)}.*"))
    return [model, *(one for one in beside if one.is_file() and one != model)]


def _save_evaluation_pictures(
    folder: Path,
    protocols: dict[str, EvaluationProtocol],
    runs: dict[str, list[PlayedEpisode]],
    player: ProtocolPlayer,
) -> list[Path]:
    """Draw the pictures of an evaluation, write them as files and return the paths of the files."""
    from an_control.learning.evaluation import plots

    lost = {name: protocol.disturbance.missing.middle for name, protocol in protocols.items()}
    loss = plots.plot_returns_by_missing_share(runs, lost)
    figures = {"recovery": plots.plot_rewards_around_permutations(runs), "loss": loss}
    moving = {n: p for n, p in protocols.items() if p.disturbance.shuffle.every}
    for name, protocol in (moving or ({} if loss else protocols)).items():
        trace = plots.AttentionTrace(player.channels)
        (result,) = player.play(protocol, 1, watch=trace.record_attention_and_keys)
        word = plots.make_protocol_file_name(name)
        if trace.attention:
            figures[f"attention_{word}"] = plots.plot_attention(trace, result.rewired)
            figures[f"keys_{word}"] = plots.plot_keys(trace, result.rewired)
        if trace.keys:
            figures[f"clusters_{word}"] = plots.plot_key_clusters(trace)
    try:
        return list(plots.save_figures(figures, folder))
    except OSError as error:
        raise ValueError(f"--plots {folder}: {describe_read_error(error)}") from error
