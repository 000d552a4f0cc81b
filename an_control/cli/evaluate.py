"""``an-control evaluate MODEL``: one protocol, or with ``--table`` several beside each other.

What ``an-control evaluate MODEL --identification`` does.
"""

from __future__ import annotations

import hashlib
import sys
from contextlib import closing
from dataclasses import Field, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import tyro

from an_control.cli.common import InputError, OutputFile, OutputFolder, need, option, write_json
from an_control.cli.disturbance import Options, defaults
from an_control.disturbance import Shuffle
from an_control.learning.evaluation.ablation import without
from an_control.load import load_policy, monitor_of, monitor_warning
from an_control.policy import MlpSizes, Model, Monitor, read_model
from an_control.policy.recovery import recovery_of
from an_control.policy.tasks import SUCCESS, WALK_M
from an_control.system.files import WriteError

if TYPE_CHECKING:
    import gymnasium

    from an_control.learning.evaluation.evaluate import Stage
    from an_control.learning.rollout.episode import Protocol, Result


TABLES = ("identification", "frozen")
"""The titles of the tables, between whose marks they go in a Markdown file."""


def evaluate_identification(
    model: Path,
    task: str | None,
    episodes: int,
    seed: int,
    every: int,
    markdown: Path | None,
    plots: Path | None,
) -> dict[str, Any]:
    """Print how soon the neurons identify their channels, and the returns without each of these.

    The policy plays without its monitor. `every` is the number of steps between two reshuffles.
    Returns the figures for JSON, NaN where there was no such step; ValueError where the policy has
    no softmax attention.
    """
    from an_control.learning.evaluation import identification
    from an_control.learning.evaluation.comparison import write_tables
    from an_control.learning.evaluation.plots import save
    from an_control_sim.gym.environments import environment_of, make_environment
    from an_control_sim.gym.units import Units

    policy = load_policy(model, monitor="off")
    channels = policy.nominal_ids
    name = task or policy.model.task.get("name", "")
    units = Units.of_task(policy.model.task)
    with closing(make_environment(environment_of(name), units)) as env:
        play = policy, env, channels, episodes, seed
        found = identification.identify(*play, every)
        frozen = identification.freeze_each(*play)
    texts = identification.identification_table(found), identification.frozen_table(frozen)
    print("\n\n".join(texts))
    if markdown is not None:
        write_tables(markdown, dict(zip(TABLES, texts, strict=True)))
    if plots is not None:
        picture = identification.identification_picture(found, channels)
        try:
            print(*save({"identification": picture}, plots))
        except OSError as error:
            raise InputError(f"--plots: {error}") from error
    return {
        "model": str(model),
        "task": name,
        "seed": seed,
        "first": found.first.mean(1).tolist(),
        "later": found.later.mean(1).tolist(),
        "frozen": {
            channel: float(np.mean([result.total for result in results]))
            for channel, results in frozen.items()
        },
    }


RESHUFFLE_STEPS = 200
"""Steps between two reshuffles of an identification."""
USUAL = defaults(shuffle="reset")
"""What is done to the readings where nobody says."""


@dataclass(frozen=True)
class Verb:
    """Measure a model's returns without ROS, its readings rewired as in the simulator.

    One protocol is given by options. Several are given to --table as comma-separated words:
    none, reset, K (every K steps) or reset+K, none where left out; then announced; reset or zeroed
    (what becomes of the neurons' state); the other disturbance options without their dashes, as in
    delay=1, delay=0..2 (drawn for each episode) or missing=0.1 (noise=N for --noise-channels);
    until=STEP, monitor=off|reset|match; without=attention|queries|action (of the policy's parts);
    and background=NAME, of CarRacing.
    The same seed gives the same starts and permutations under every protocol.
    """

    model: tyro.conf.Positional[Path]
    """A .safetensors model file."""
    task: str | None = None
    """A task known by name, or a gymnasium id, also as module:id; by default the model's."""
    episodes: int = 100
    """Number of episodes."""
    seed: int = 1
    """Seed of starts and disturbances; not one that training used."""
    disturbance: Options = USUAL
    """What is done to the readings. By default they are shuffled at each reset, also those of a
    model that needs them in order; then it is said."""
    memory: Literal["kept", "reset", "zeroed"] = "kept"
    """What becomes of the neurons' state: kept (left in its slot, or carried with --announce),
    reset (when signals move on the way), zeroed (at every step)."""
    until: int | None = None
    """The step after which no signal moves any more."""
    normalise: bool = False
    """Divide the attention's sums by the number of channels that are present, relative to the
    task's, whatever the model file says; added channels then do not make them larger."""
    monitor: Monitor | None = None
    """What to do about unannounced rewiring: off (nothing), reset (clear the state of the neurons
    whose signal moved), match (move that state along with the signal); by default what the model
    file says."""
    recovery: float | None = None
    """Push a robot that stands still by random actions: where its readings change by less than
    this at a tick in the mean (docs/safety.md); 0: never; by default what the model file says."""
    success: float | None = None
    """A return above this is a success; by default the task's own."""
    table: tuple[str, ...] = ()
    """Protocols to compare, instead of the one that options describe, which are refused beside it;
    the others are compared with the first."""
    identification: bool = False
    """Instead of a protocol: how many steps the neurons need to identify their channels after each
    reshuffle (--shuffle reset+K, reset+200 by default), and the return with each channel frozen in
    turn. The monitor is off; the model must have softmax attention. --markdown writes the tables
    `identification` and `frozen`, --plots the picture identification.png."""
    markdown: OutputFile | None = None
    """Write the table here: between `<!-- table TITLE -->` and `<!-- end of table -->`, or into a
    new file."""
    title: str = "results"
    """The table's TITLE."""
    plots: OutputFolder | None = None
    """Write recovery curves, attention maps and keys into this folder."""
    json: OutputFile | None = None
    """Also write the result here as JSON."""
    state: OutputFile | None = None
    """Keep each finished row of --table here until the table is whole: the same command plays only
    the rows that a stopped one lacks."""

    def run(self) -> int:
        need("sim", "gymnasium")
        from an_control.learning.evaluation.evaluate import Stage

        if self.plots is not None:
            need("train", "matplotlib")
        if self.episodes < 1:
            raise InputError(f"--episodes {self.episodes}: must be 1 or more")
        if self.seed < 0:
            raise InputError(f"--seed {self.seed}: must be 0 or more")
        if self.state is not None and not self.table:
            raise InputError(f"--state {self.state}: keeps the rows of a --table")
        self._check_marks()
        if self.identification:
            return self._identify()
        model = read_model(self.model)
        task = self.task or str(model.task.get("name", "ant"))
        try:
            protocols = self._protocols()
            recovery = recovery_of(model, self.recovery)
            for protocol in protocols.values():
                monitor_of(model, protocol.monitor)
                if protocol.without is not None:
                    without(model, protocol.without)
            env = self._environment(task, model)
        except ValueError as error:
            raise InputError(str(error)) from error
        self._warn_of_order(model, protocols)
        asked = [one.monitor for one in protocols.values()]
        if None in asked and (warning := monitor_warning(model, None)):
            print(warning, file=sys.stderr)
        with closing(env):
            self._check_robot(env, protocols)
            if self.normalise:
                model = self._normalised(model, env)
            stage = Stage(model, env, self.seed, self._stepwise(protocols), recovery)
            try:
                self._evaluate(task, protocols, stage)
            except (ValueError, WriteError) as error:
                raise InputError(str(error)) from error
        return 0

    def _stepwise(self, protocols: dict[str, Protocol]) -> bool:
        """Whether pictures, or rows that are compared after their last move, want each reward."""
        ends = any(one.until is not None for one in protocols.values())
        return ends or self.plots is not None

    def _check_robot(self, env: gymnasium.Env[Any, Any], protocols: dict[str, Protocol]) -> None:
        """InputError where a protocol asks for a robot that the environment does not offer."""
        from an_control_sim.gym.varied_robot import check_robot

        try:
            for one in protocols.values():
                check_robot(env, one.disturbance)
        except ValueError as error:
            raise InputError(str(error)) from error

    def _warn_of_order(self, model: Model, protocols: dict[str, Protocol]) -> None:
        """Say that a policy which needs its channels in order gets them permuted."""
        if not isinstance(model.sizes, MlpSizes):
            return
        moved = [
            text
            for text, one in protocols.items()
            if one.disturbance.shuffle != Shuffle() and not one.disturbance.announce
        ]
        if moved:
            print(
                f"{self.model} needs its channels in order, and {' '.join(moved)} permutes them;"
                " --shuffle none does not",
                file=sys.stderr,
            )

    def _check_marks(self) -> None:
        """InputError where the Markdown file lacks the marks of what is to be written."""
        from an_control.learning.evaluation.comparison import missing_marks

        if self.markdown is None:
            return
        try:
            titles = TABLES if self.identification else (self.title,)
            problem = missing_marks(self.markdown, titles)
        except (ValueError, OSError) as error:
            problem = f"{self.markdown}: {error}"
        if problem:
            raise InputError(f"--markdown {problem}")

    def _identify(self) -> int:
        need("train", "matplotlib")
        try:
            disturbance = self.disturbance.settings()
            given = [one.name for one in disturbance.changed if one.name != "shuffle"]
            others = {"memory", "until", "monitor", "recovery"}
            others |= {"table", "normalise", "success", "title"}
            given += [one.name for one in fields(self) if one.name in others and self._gives(one)]
            if given:
                raise InputError(f"{option(given[0])}: not for --identification")
            shuffle = disturbance.shuffle
            if not shuffle.at_reset:
                raise InputError(f"--shuffle {shuffle}: --identification needs reset+K")
            result = evaluate_identification(
                self.model,
                self.task,
                self.episodes,
                self.seed,
                shuffle.every or RESHUFFLE_STEPS,
                self.markdown,
                self.plots,
            )
        except ValueError as error:
            raise InputError(str(error)) from error
        write_json(self.json, result)
        return 0

    def _gives(self, one: Field[Any]) -> bool:
        """Whether this option is not at its default."""
        return bool(getattr(self, one.name) != one.default)

    def _environment(self, task: str, model: Model) -> gymnasium.Env[Any, Any]:
        from an_control_sim.gym.environments import describe, environment_of, make_environment
        from an_control_sim.gym.units import Units

        environment = environment_of(task)
        env = make_environment(environment, Units.of_task(model.task))
        (actuators,), actions = env.action_space.shape or (0,), model.sizes.actions
        if actuators != actions:
            env.close()
            raise ValueError(
                f"{self.model}: {actions} actions, but {environment} takes {actuators}"
            )
        channels = len(describe(env, "", environment)["channels"])
        expected = len(model.task.get("channels", ())) or channels
        if isinstance(model.sizes, MlpSizes):
            expected = model.sizes.channels
        if channels != expected:
            env.close()
            raise ValueError(
                f"{self.model}: expects {expected} channels, but {environment} has {channels}"
                " (allowed: the task that it was trained for, or one with as many channels)"
            )
        return env

    def _normalised(self, model: Model, env: gymnasium.Env[Any, Any]) -> Model:
        from an_control_sim.gym.environments import describe

        try:
            return model.normalised(len(describe(env, "", "")["channels"]))
        except ValueError as error:
            raise InputError(f"--{error}") from error

    def _protocols(self) -> dict[str, Protocol]:
        """What to play, by its text."""
        from an_control.learning.rollout.episode import Protocol

        if self.table:
            self._check_table()
            parsed = [Protocol.parse(text) for text in self.table]
            return {str(one): replace(one, monitor=one.monitor or self.monitor) for one in parsed}
        one = self._described()
        return {str(one): one}

    def _check_table(self) -> None:
        """InputError for an option that the protocols of --table say for themselves."""
        given = {n: v for n, v in vars(self.disturbance).items() if v != getattr(USUAL, n)}
        others = [one for one in fields(self) if one.name in ("memory", "until")]
        given |= {one.name: getattr(self, one.name) for one in others if self._gives(one)}
        if given:
            name, value = next(iter(given.items()))
            typed = option(name) if value is True else f"{option(name)} {value}"
            words = self._described()
            raise InputError(f"{typed}: --table takes it among a protocol's words, as in {words}")

    def _described(self) -> Protocol:
        """The protocol that the options describe."""
        from an_control.learning.rollout.episode import Protocol

        return Protocol(self.disturbance.settings(), self.memory, self.until, self.monitor)

    def _evaluate(self, task: str, protocols: dict[str, Protocol], stage: Stage) -> None:
        from an_control.learning.evaluation.comparison import (
            KeptRows,
            compare,
            lines,
            markdown,
            write_tables,
        )

        runs = {}
        kept = None if self.state is None else KeptRows(self.state, self._played(task))
        for name, protocol in protocols.items():
            if kept is not None and (row := kept.row(name, stepwise=stage.stepwise)):
                runs[name] = row
            else:
                runs[name] = stage.play(protocol, self.episodes, None if self.table else _report)
                if kept is not None:
                    kept.keep(name, runs[name])
            if self.table:
                print(_line(name, runs[name]), flush=True)
        success = SUCCESS.get(task) if self.success is None else self.success
        until = {name: one.until for name, one in protocols.items()}
        rows = compare(runs, success, until, WALK_M.get(task))
        about = {"task": task, "model": str(self.model), "seed": self.seed, **self._for_all()}
        if self.table:
            print(f"\n{markdown(rows)}")
            write_json(self.json, {**about, "protocols": rows})
        else:
            print("\n".join(lines(rows[0], success, WALK_M.get(task))))
            described = {**self.disturbance.plain(), "memory": self.memory, "until": self.until}
            write_json(self.json, {**about, **described, **_figures(rows[0])})
        if self.markdown is not None:
            try:
                write_tables(self.markdown, {self.title: markdown(rows)})
            except (ValueError, OSError) as error:
                raise InputError(f"--markdown: {error}") from error
        if self.plots is not None:
            self._draw(self.plots, protocols, runs, stage)
        if kept is not None:
            kept.drop()

    def _played(self, task: str) -> dict[str, Any]:
        """What decides the returns of a table beside its protocols."""
        return {
            "model": hashlib.sha256(self.model.read_bytes()).hexdigest(),
            "task": task,
            "episodes": self.episodes,
            "seed": self.seed,
            **self._for_all(),
        }

    def _for_all(self) -> dict[str, Any]:
        """The options that also count for the protocols of a table; None: what the model says."""
        return {name: getattr(self, name) for name in ("monitor", "recovery", "normalise")}

    def _draw(
        self,
        folder: Path,
        protocols: dict[str, Protocol],
        runs: dict[str, list[Result]],
        stage: Stage,
    ) -> None:
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
            for path in plots.save(figures, folder):
                print(f"wrote {path}")
        except OSError as error:
            raise InputError(f"--plots: {error}") from error


def _line(name: str, results: list[Result]) -> str:
    """A protocol's mean return, and the moves that a monitor found: where none was, false ones."""
    mean, ticks = (
        sum(one.total for one in results) / len(results),
        sum(one.steps for one in results),
    )
    moved, found = (sum(getattr(one, n) for one in results) for n in ("shuffles", "detected"))
    detected = f", {found} moves detected of {moved} in {ticks} ticks" if found or not moved else ""
    return f"{name}: {mean:.1f}{detected}"


def _report(result: Result) -> None:
    print(f"return {result.total:8.1f}  steps {result.steps}", flush=True)


def _figures(row: dict[str, Any]) -> dict[str, Any]:
    """A protocol's figures without its name and what it has beside others."""
    return {name: value for name, value in row.items() if name not in ("protocol", "difference")}
