"""``an-control train TASK --out RUN``."""

from __future__ import annotations

import importlib.util
import shlex
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from an_control.cli.common import InputError, OutputFile, OutputFolder, write_json
from an_control.cli.disturbance import mixture
from an_control.disturbance import DisturbanceSettings, Shuffle
from an_control.policy import MlpSizes, read_model
from an_control.policy.tasks import SUCCESS

if TYPE_CHECKING:
    from an_control.learning.es.parametrisation import Form
    from an_control.learning.es.search import Search

FINAL_SEED = 1
"""Of the evaluation on a model's card; training and validation take others."""


@dataclass(frozen=True)
class Verb:
    """Search for a policy by its return alone; --resume continues a run that was stopped."""

    task: tyro.conf.Positional[str]
    """A task known by name (cartpole, ant), or a gymnasium id, also as module:id."""
    out: OutputFolder
    """The run's folder."""
    form: Literal["attention", "mlp"] = "attention"
    """The policy's form: permutation-invariant, or a plain network on the channels in order."""
    start: Path | None = None
    """A model file to start from; its form is taken."""
    hidden: tuple[int, ...] = ()
    """Hidden layers: of the MLP (16 by default), or behind the message (none)."""
    queries: int = 16
    """Number of queries of an attention policy; the authors' Ant has 32."""
    neuron: int = 8
    """Units for each channel of an attention policy."""
    stack: int = 0
    """Number of newest readings that each neuron of an attention policy sees; 0: an LSTM."""
    optimiser: Literal["cma", "cma-diagonal", "pgpe"] = "cma"
    """CMA-ES (pycma) with a full or a diagonal covariance, or PGPE with centred ranks."""
    generations: int = 300
    """Number of generations in all."""
    popsize: int = 64
    """Number of candidates in each generation."""
    rollouts: int = 16
    """Number of episodes of each candidate, the same ones for all."""
    sigma: float = 0.1
    """Standard deviation of the first generation."""
    rate: float = 0.02
    """Learning rate of the mean (PGPE)."""
    sigma_rate: float = 0.05
    """Learning rate of the standard deviations (PGPE)."""
    decay: float = 0.0
    """Weight decay: this times a candidate's squared norm is subtracted from its fitness."""
    normalise: bool = False
    """Of the attention form, also one to start from: scale the sums over channels to the task's
    number of channels."""
    shuffle: tuple[str, ...] = ("none",)
    """What is done to the readings, in the words of evaluate --table: when signals move (none,
    reset, K, reset+K), then noise=N, noise-sd=X, copies=N, missing=SHARE and so on; of several,
    each has as many of the episodes."""
    engine: Literal["auto", "fused", "processes", "dask"] = "auto"
    """What plays: compiled code where the environment offers it, else processes."""
    workers: int | None = None
    """Number of threads or processes; by default one for each core."""
    dask: str | None = None
    """The address of a Dask scheduler."""
    validate_every: int = 10
    """Validate the mean after every so many generations."""
    episodes: int = 100
    """Number of episodes of a validation; the evaluation on the card has five times as many."""
    seed: int = 1
    """Seed of everything random."""
    resume: bool = False
    """Continue the run in the folder; it must have been started with the same arguments."""
    json: OutputFile | None = None
    """Also write the result here as JSON."""

    def run(self) -> int:
        for package in ("gymnasium", "cma", "numba"):
            if importlib.util.find_spec(package) is None:
                raise InputError(f"needs {package} (pip install an_control[train])")
        from an_control.learning.rollout.engine import RolloutError
        from an_control.learning.runs.run_folder import RunError

        self._check()
        try:
            return self._train()
        except ValueError as error:
            raise InputError(str(error)) from error
        except (RunError, RolloutError) as error:
            print(f"an-control train: {error}", file=sys.stderr)
            return 1

    def _check(self) -> None:
        for name in ("generations", "popsize", "rollouts", "validate_every", "episodes"):
            if getattr(self, name) < 1:
                raise InputError(f"--{name} {getattr(self, name)}: must be 1 or more")
        if self.stack < 0:
            raise InputError(f"--stack {self.stack}: must be 0 or more")
        if self.popsize < 4:
            raise InputError(f"--popsize {self.popsize}: must be 4 or more")
        if not 0.0 < self.sigma < float("inf"):
            raise InputError(f"--sigma {self.sigma}: must be over 0")
        if self.seed < 0:
            raise InputError(f"--seed {self.seed}: must be 0 or more")
        if self.workers is not None and self.workers < 1:
            raise InputError(f"--workers {self.workers}: must be 1 or more")

    def _train(self) -> int:
        from an_control.learning.environments import describe, environment_of, make_environment
        from an_control.learning.es.search import Search, SearchSettings
        from an_control.learning.rollout.choose import make_engine

        environment = environment_of(self.task)
        env = make_environment(environment)
        task = describe(env, self.task, environment)
        actions = len(task["actuators"])
        form, start = self._form(len(task["channels"]), actions)
        pgpe = {"rate": self.rate, "sigma_rate": self.sigma_rate}
        settings = SearchSettings(
            optimiser=self.optimiser,
            generations=self.generations,
            population=self.popsize,
            rollouts=self.rollouts,
            sigma=self.sigma,
            decay=self.decay,
            mixture=mixture(self.shuffle or ("none",), len(task["channels"])),
            validate_every=self.validate_every,
            validation_episodes=self.episodes,
            success=SUCCESS.get(self.task),
            options=pgpe if self.optimiser == "pgpe" else {},
        )
        engine = make_engine(
            self.engine,
            env,
            environment,
            task["channels"],
            actions,
            self.workers,
            self.dask,
        )
        try:
            search = Search(self.out, task, form, engine, settings, self.seed, start, self.resume)
            if search.generation:
                print(f"{self.out}: goes on behind generation {search.generation}")
            if not self._search(search):
                return 130
            self._finish(search)
        finally:
            engine.close()
            env.close()
        return 0

    def _form(self, channels: int, actions: int) -> tuple[Form, Any]:
        """The form to search, and where to start."""
        from an_control.learning.es.parametrisation import Authors, Whole, form_of

        if self.start is not None:
            model = read_model(self.start)
            if self.normalise:
                model = model.normalised(channels)
            form = form_of(model)
            if model.sizes.actions != actions:
                raise InputError(
                    f"--start {self.start}: {model.sizes.actions} actions, but"
                    f" {self.task} takes {actions}"
                )
            return form, form.vector(model)
        if self.form == "mlp":
            return Whole(MlpSizes(channels, actions, list(self.hidden or (16,)))), None
        if any(width != self.queries for width in self.hidden):
            raise InputError("--hidden: in the attention form every layer is --queries wide")
        layers = len(self.hidden)
        normalise = channels if self.normalise else 0
        form = Authors(
            actions, self.queries, layers, self.neuron, stack=self.stack, normalise=normalise
        )
        return form, None

    def _search(self, search: Search) -> bool:
        """All generations; False where Ctrl-C ended them early."""
        from an_control.learning.runs.card import Board

        asked: list[bool] = []

        def stop(*_: object) -> None:
            if asked:
                raise KeyboardInterrupt
            asked.append(True)
            print("\nstops when this generation is done (Ctrl-C again: at once)", flush=True)

        before = signal.signal(signal.SIGINT, stop)
        board, progress = Board(search.folder), Progress(self.generations)

        def report(line: dict[str, Any]) -> bool:
            board.add(line, "generation")
            progress.show(line)
            return not asked

        try:
            search.run(report)
        finally:
            signal.signal(signal.SIGINT, before)
            board.close()
        if search.generation < self.generations:
            print(
                f"{self.out}: stopped behind generation {search.generation};"
                f" to go on: {self._command()} --resume"
            )
            return False
        return True

    def _finish(self, search: Search) -> None:
        from an_control.learning.runs.card import figures, write_card, write_curve

        evaluations = []
        ordered = search.model(search.best).kind == "mlp"
        clean = DisturbanceSettings(shuffle=Shuffle(at_reset=not ordered))
        others = [one for one in search.settings.mixture if one.active and str(one) != str(clean)]
        for scrambling in [clean, *others]:
            protocol = str(scrambling)
            returns = search.play(search.best, FINAL_SEED, 5 * self.episodes, scrambling).returns[0]
            evaluations.append(
                {
                    "protocol": f"shuffle {protocol}, seed {FINAL_SEED}",
                    **figures(returns, search.settings.success),
                }
            )
        model = search.model(search.best, {"evaluations": evaluations})
        write_card(search.folder, model, self.out.name, evaluations, self._command())
        write_curve(search.folder, search.metrics, "generation")
        for row in evaluations:
            print(
                f"{row['protocol']}: {row['mean']} +- {row['sd']}"
                f"  success share {row.get('success_share')}"
            )
        path = self.out / "model.safetensors"
        print(path)
        write_json(
            self.json,
            {
                "task": self.task,
                "seed": self.seed,
                "model": str(path),
                "evaluations": evaluations,
                "metrics": search.metrics,
            },
        )

    def _command(self) -> str:
        """What began this run, with what differs from the defaults."""
        defaults = {name: field.default for name, field in self.__dataclass_fields__.items()}
        words = ["an-control", "train", self.task]
        for name, default in defaults.items():
            value = getattr(self, name)
            if name not in ("task", "resume", "json") and value != default:
                option = f"--{name.replace('_', '-')}"
                words += [option, *map(str, value if isinstance(value, tuple) else [value])]
        return shlex.join(words)


class Progress:
    """One line that is written over, on a terminal; elsewhere a line every few seconds."""

    def __init__(self, generations: int, every_s: float = 10.0) -> None:
        self._generations, self._every_s = generations, every_s
        self._shown = self._began = time.monotonic()
        self._first: int | None = None
        self._validation = float("nan")

    def show(self, line: dict[str, Any]) -> None:
        now, generation = time.monotonic(), line["generation"]
        self._first = generation - 1 if self._first is None else self._first
        self._validation = line.get("validation", self._validation)
        last, live = generation == self._generations, sys.stdout.isatty()
        if not (live or last or now - self._shown > self._every_s):
            return
        self._shown = now
        left_s = (now - self._began) / (generation - self._first) * (self._generations - generation)
        begin = "\r" if live else ""
        print(
            f"{begin}generation {generation}/{self._generations}"
            f"  best {line['best']:.1f}  mean {line['mean']:.1f}"
            f"  validation {self._validation:.1f}  sigma {line['sigma']:.4f}"
            f"  {line['steps_per_s']:,} steps/s  {left_s / 60:.1f} min left ",
            end="\n" if last or not live else "",
            flush=True,
        )
