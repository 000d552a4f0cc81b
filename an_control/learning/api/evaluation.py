"""What a model is worth under the disturbances of the simulator."""

from __future__ import annotations

import hashlib
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from an_control.disturbance import Shuffle
from an_control.learning.runs.progress import OnProgress, Progress, RunStopped, ignore
from an_control.load import monitor_of, monitor_warning
from an_control.monitor.recovery import recovery_of
from an_control.policy import Model, Monitor, OrderedSizes, read_model
from an_control_sim.envs.tasks import SUCCESS, WALK_M

if TYPE_CHECKING:
    import gymnasium

    from an_control.learning.evaluation.evaluate import Stage
    from an_control.learning.rollout.episode import Result
    from an_control.learning.rollout.evaluation_protocol import Protocol

FOR_ALL = "monitor", "recovery", "normalise"
"""Options that count for all protocols; None: what the model says."""


@dataclass(frozen=True)
class EvaluateOptions:
    """What `evaluate` measures.

    Attributes:
        model: a model file.
        protocols: what is done to the readings, in the words of `evaluate --table`; they are
            compared with the first one. The same seed gives the same starts under each.
        task: a task known by name, or a gymnasium id; by default the model's.
        episodes: number of episodes.
        seed: of starts and disturbances; not one that training used.
        monitor: off, reset or match; None: what the model says.
        recovery: the change at a tick below which a robot is pushed; None: what the model says.
        normalise: divide the attention's sums by the number of channels that are present.
        success: a return above this is a success; by default the task's own.
        state: a file that keeps each finished row until all are there, for a call that continues.
        markdown: a file in which the table is put between the marks of its `title`.
        plots: a folder for recovery curves, attention maps and keys.
    """

    model: Path
    protocols: tuple[str | Protocol, ...] = ("reset",)
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

    def check(self) -> None:
        """Raise ValueError for a number that is out of bounds."""
        if self.episodes < 1:
            raise ValueError(f"--episodes {self.episodes}: must be 1 or more")
        if self.seed < 0:
            raise ValueError(f"--seed {self.seed}: must be 0 or more")


@dataclass(frozen=True)
class EvaluateResult:
    """What a model is worth.

    Attributes:
        task: that it played.
        rows: one a protocol: its name, its episodes, and their returns in a few numbers.
        table: the rows in Markdown.
        success: the return above which an episode is a success; None where none is known.
        walk_m: the way that a robot must walk after a stop to walk again; None for other tasks.
        pictures: files that were written.
    """

    task: str
    rows: list[dict[str, Any]]
    table: str
    success: float | None
    walk_m: float | None
    pictures: list[Path] = field(default_factory=list)


def evaluate(options: EvaluateOptions, progress: OnProgress = ignore) -> EvaluateResult:
    """Play a model's episodes without ROS, its readings disturbed as in the simulator.

    Reported are each episode that is not compiled (unit "episode") and each protocol (unit "row").

    Raises:
        ValueError: options that are out of bounds, or fit neither the model nor the task.
        ModelError: the model file cannot be read.
        WriteError: the disk refuses.
        RunStopped: `progress` returned False; with `state` the same call continues.
    """
    from an_control.learning.evaluation.comparison import (
        KeptRows,
        compare,
        markdown,
        write_tables,
    )
    from an_control.learning.evaluation.evaluate import Stage
    from an_control_sim.gym.varied_robot import check_robot

    options.check()
    if options.markdown is not None:
        check_marks(options.markdown, (options.title,))
    model = read_model(options.model)
    task = options.task or str(model.task.get("name", "ant"))
    protocols = _protocols(options, model)
    recovery = recovery_of(model, options.recovery)
    env = _environment(options, task, model)
    for note in _warnings(options, model, protocols):
        progress(Progress("note", note=note))
    with closing(env):
        for one in protocols.values():
            check_robot(env, one.disturbance)
        if options.normalise:
            model = _normalised(model, env)
        ends = any(one.until is not None for one in protocols.values())
        stepwise = ends or options.plots is not None  # each reward is wanted
        stage = Stage(model, env, options.seed, stepwise, recovery)
        kept = None if options.state is None else KeptRows(options.state, _played(options, task))
        runs: dict[str, list[Result]] = {}
        for name, protocol in protocols.items():
            row = kept and kept.row(name, stepwise=stage.stepwise)
            runs[name] = row or _play(stage, protocol, options.episodes, progress)
            if kept is not None and not row:
                kept.keep(name, runs[name])
            figures = {"protocol": name, "results": runs[name]}
            done = len(runs), len(protocols), len(runs) / len(protocols)
            if progress(Progress("step", "row", *done, figures=figures)) is False:
                raise RunStopped(options.state)
        success = SUCCESS.get(task) if options.success is None else options.success
        until = {name: one.until for name, one in protocols.items()}
        rows = compare(runs, success, until, WALK_M.get(task))
        if options.markdown is not None:
            try:
                write_tables(options.markdown, {options.title: markdown(rows)})
            except (ValueError, OSError) as error:
                raise ValueError(f"--markdown: {error}") from error
        drawn = [] if options.plots is None else _draw(options.plots, protocols, runs, stage)
        if kept is not None:
            kept.drop()
    return EvaluateResult(task, rows, markdown(rows), success, WALK_M.get(task), drawn)


def check_marks(path: Path, titles: tuple[str, ...]) -> None:
    """Raise ValueError where a Markdown file lacks the marks of tables that are to be written."""
    from an_control.learning.evaluation.comparison import missing_marks

    try:
        problem = missing_marks(path, titles)
    except (ValueError, OSError) as error:
        problem = f"{path}: {error}"
    if problem:
        raise ValueError(f"--markdown {problem}")


def _protocols(options: EvaluateOptions, model: Model) -> dict[str, Protocol]:
    """Return what to play, by its text."""
    from an_control.learning.evaluation.ablation import without
    from an_control.learning.rollout.evaluation_protocol import Protocol

    found = {}
    for given in options.protocols:
        one = Protocol.parse(given) if isinstance(given, str) else given
        found[str(one)] = replace(one, monitor=one.monitor or options.monitor)
    for one in found.values():
        monitor_of(model, one.monitor)
        if one.without is not None:
            without(model, one.without)
    return found


def _warnings(options: EvaluateOptions, model: Model, protocols: dict[str, Protocol]) -> list[str]:
    """Return what the user should know before the work."""
    warnings = []
    moved = [
        text
        for text, one in protocols.items()
        if one.disturbance.shuffle != Shuffle()
        and not one.disturbance.announce
        and monitor_of(model, one.monitor) == "off"
    ]
    if moved and isinstance(model.sizes, OrderedSizes):
        warnings.append(
            f"{options.model} needs its channels in order, and {' '.join(moved)} permutes them;"
            " --shuffle none does not"
        )
    asked = [one.monitor for one in protocols.values()]
    if None in asked and (warning := monitor_warning(model, None)):
        warnings.append(warning)
    return warnings


def _environment(options: EvaluateOptions, task: str, model: Model) -> gymnasium.Env[Any, Any]:
    from an_control_sim.gym.environments import describe, environment_of, make_environment
    from an_control_sim.gym.units import Units

    environment = environment_of(task)
    env = make_environment(environment, Units.of_task(model.task))
    (actuators,), actions = env.action_space.shape or (0,), model.sizes.actions
    if actuators != actions:
        env.close()
        raise ValueError(f"{options.model}: {actions} actions, but {environment} takes {actuators}")
    channels = len(describe(env, "", environment)["channels"])
    expected = len(model.task.get("channels", ())) or channels
    if isinstance(model.sizes, OrderedSizes):
        expected = model.sizes.channels
    if channels != expected:
        env.close()
        raise ValueError(
            f"{options.model}: expects {expected} channels, but {environment} has {channels}"
            " (allowed: the task that it was trained for, or one with as many channels)"
        )
    return env


def _normalised(model: Model, env: gymnasium.Env[Any, Any]) -> Model:
    from an_control_sim.gym.environments import describe

    try:
        return model.normalised(len(describe(env, "", "")["channels"]))
    except ValueError as error:
        raise ValueError(f"--{error}") from error


def _play(stage: Stage, protocol: Protocol, episodes: int, progress: OnProgress) -> list[Result]:
    """Return the results of a protocol's episodes; report each."""
    done = 0

    def report(result: Result) -> None:
        nonlocal done
        done += 1
        figures = {"return": result.total, "steps": result.steps}
        progress(Progress("step", "episode", done, episodes, done / episodes, figures=figures))

    return stage.play(protocol, episodes, report)


def _played(options: EvaluateOptions, task: str) -> dict[str, Any]:
    """Return what decides the returns of a table beside its protocols."""
    return {
        "model": hashlib.sha256(options.model.read_bytes()).hexdigest(),
        "task": task,
        "episodes": options.episodes,
        "seed": options.seed,
        **{name: getattr(options, name) for name in FOR_ALL},
    }


def _draw(
    folder: Path,
    protocols: dict[str, Protocol],
    runs: dict[str, list[Result]],
    stage: Stage,
) -> list[Path]:
    """Write pictures and return their paths."""
    from an_control.learning.evaluation import plots

    lost = {name: protocol.disturbance.missing.middle for name, protocol in protocols.items()}
    loss = plots.loss_curves(runs, lost)
    figures = {"recovery": plots.recovery_curves(runs), "loss": loss}
    moving = {n: p for n, p in protocols.items() if p.disturbance.shuffle.every}
    for name, protocol in (moving or ({} if loss else protocols)).items():
        trace = plots.Trace(stage.channels)
        (result,) = stage.play(protocol, 1, watch=trace.see)
        word = plots.file_name(name)
        if trace.attention:
            figures[f"attention_{word}"] = plots.attention_maps(trace, result.rewired)
            figures[f"keys_{word}"] = plots.key_map(trace, result.rewired)
        if trace.keys:
            figures[f"clusters_{word}"] = plots.key_clusters(trace)
    try:
        return list(plots.save(figures, folder))
    except OSError as error:
        raise ValueError(f"--plots: {error}") from error
