"""``an-control train TASK --out RUN``."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import tyro

from an_control.cli.common import (
    InputError,
    OutputFile,
    OutputFolder,
    command,
    need,
    option,
    write_json,
)
from an_control.cli.distill import PartOptions, Parts
from an_control.cli.disturbance import mixture
from an_control.disturbance import DisturbanceSettings, Shuffle
from an_control.learning.runs.terminal import explained
from an_control.policy import MlpSizes, Model, read_model
from an_control.policy.tasks import SUCCESS
from an_control.system.interrupts import INTERRUPTED
from an_control_sim.gym.offers import with_offers

if TYPE_CHECKING:
    from an_control.learning.es.parametrisation import Form
    from an_control.learning.es.search import Search
    from an_control.learning.runs.run_loop import RunLoop

SIZES = "queries", "neuron", "stack"
"""Options of the attention forms, as those of `Parts` are."""

FINAL_SEED = 1
"""Of the evaluation on a model's card; training and validation take others."""

SIGMA, RATE = 0.5, 0.2
"""Of a search from nothing."""
REFINING_SIGMA, REFINING_RATE = 0.01, 0.002
"""Of a search that begins at a model; the shipped Ant loses two thirds of its return to one step
with 0.02 and 0.02."""


@dataclass(frozen=True)
class Verb:
    """Search for a policy by its return alone; the same command continues a stopped run."""

    task: tyro.conf.Positional[str]
    """A task known by name (cartpole, ant), or a gymnasium id, also as module:id."""
    out: OutputFolder
    """The run's folder."""
    form: Literal["attention", "attention-raw", "mlp"] = "attention"
    """attention: permutation-invariant. attention-raw: the same policies, searched by all of the
    authors' parameters, some of which are redundant. mlp: a plain network that needs its channels
    in order."""
    start_model: Path | None = None
    """A model file to start from; its form is taken, and how it acts where messages are lost or the
    robot stands still."""
    hidden: tuple[int, ...] = ()
    """Units of the hidden layers: of the MLP (16 by default), or after the attention (by default
    there is none)."""
    queries: int = 16
    """Number of queries of an attention policy; the authors' Ant has 32."""
    neuron: int = 8
    """Units for each channel of an attention policy."""
    stack: int = 0
    """Number of newest readings that each neuron of an attention policy sees; 0: an LSTM."""
    parts: PartOptions = field(default_factory=Parts)
    optimiser: Literal["cma", "cma-diagonal", "pgpe", "pgpe-clipup"] = "pgpe"
    """PGPE with centred ranks and Adam or ClipUp, or CMA-ES (pycma) with a full or a diagonal
    covariance."""
    generations: int = 300
    """Number of generations in all."""
    minutes: float = 0.0
    """Train for this many minutes of wall-clock time instead of `--generations`; 0: off."""
    score: float | None = None
    """Stop once a validation's mean return is this high."""
    starts: int | None = None
    """Number of random starts that race, until the best one continues; a search that has stalled
    races against new ones. 0: start with zeros. By default 8 for the attention form without
    `--start-model`, else 0."""
    popsize: int = 64
    """Number of candidates in each generation."""
    rollouts: int = 2
    """Number of episodes of each candidate, the same ones for all."""
    max_rollouts: int = 0
    """Candidates whose ranks are uncertain play more episodes, up to this many; 0: always
    `--rollouts`."""
    sigma: float | None = None
    """Standard deviation of the first generation; of random starts in units of what is usual for a
    layer's weights. By default 0.5, with `--start-model` 0.01."""
    rate: float | None = None
    """Learning rate of the mean (PGPE); with ClipUp the largest step's length. By default 0.2, with
    `--start-model` 0.002."""
    sigma_rate: float = 0.05
    """Learning rate of the standard deviations (PGPE)."""
    decay: float = 0.0
    """Weight decay: this times a candidate's squared norm is subtracted from its fitness."""
    normalise: bool = False
    """Attention forms, also with `--start-model`: divide the attention's sums by the number of
    channels that are present, relative to the task's."""
    hints: bool = False
    """Attention forms with LSTM neurons: tell all neurons which channel they read until a fifth of
    the run, then ever fewer, from three fifths on none. For compiled rollouts."""
    shuffle: tuple[str, ...] = ("none",)
    """Disturbances to train under, each in the words of evaluate --table: when signals move (none,
    reset, K, reset+K), then noise=N, copies=N, missing=SHARE, delay=0..2, lose=SHARE, gain=0.6..1
    and so on; several share the episodes equally."""
    engine: Literal["auto", "fused", "processes", "dask"] = "auto"
    """What plays: compiled code where the environment offers it, else processes."""
    workers: int | None = None
    """Number of threads or processes; by default one for each core."""
    dask: str | None = None
    """Address of a Dask scheduler; implies --engine dask, which by default starts a scheduler and
    workers here."""
    validate_every: int = 10
    """Validate the mean after every so many generations."""
    episodes: int = 100
    """Number of episodes of a validation; the evaluation on the card has five times as many."""
    seed: int = 1
    """Seed of everything random."""
    resume: bool = False
    """Fail unless the folder holds a run of the same arguments. Without this option such a run is
    continued too, and otherwise a new one begins."""
    json: OutputFile | None = None
    """Also write the result here as JSON."""

    def run(self) -> int:
        need("train", "gymnasium", "cma", "numba")
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
        for name in ("generations", "rollouts", "validate_every", "episodes"):
            if (value := getattr(self, name)) < 1:
                raise InputError(f"--{name.replace('_', '-')} {value}: must be 1 or more")
        for name in ("minutes", "starts", "max_rollouts"):
            if (value := getattr(self, name)) is not None and not 0 <= value < float("inf"):
                raise InputError(f"--{name.replace('_', '-')} {value}: must be 0 or more")
        if self.max_rollouts and (self.rollouts < 2 or self.max_rollouts < 2 * self.rollouts):
            raise InputError(
                f"--max-rollouts {self.max_rollouts}: must be 0, or twice --rollouts"
                f" ({self.rollouts}, which must then be 2 or more) or more"
            )
        if self.score is not None and math.isnan(self.score):
            raise InputError(f"--score {self.score}: must be a number")
        if self.starts and self.start_model is not None:
            raise InputError(f"--starts {self.starts}: must be 0 with --start-model")
        if self.stack < 0:
            raise InputError(f"--stack {self.stack}: must be 0 or more")
        if self.popsize < 4:
            raise InputError(f"--popsize {self.popsize}: must be 4 or more")
        if self.sigma is not None and not 0.0 < self.sigma < float("inf"):
            raise InputError(f"--sigma {self.sigma}: must be over 0")
        if self.seed < 0:
            raise InputError(f"--seed {self.seed}: must be 0 or more")
        if self.workers is not None and self.workers < 1:
            raise InputError(f"--workers {self.workers}: must be 1 or more")
        self._check_read()

    def _check_read(self) -> None:
        """InputError for an option that would not be read."""
        if self.start_model is not None:
            why = "not with --start-model, whose form is taken; allowed is --normalise"
            self._refuse([*self._other("form", "hidden", *SIZES), *self.parts.asked], why)
        elif self.form == "mlp":
            why = "not for --form mlp; allowed is --hidden"
            self._refuse([*self._other(*SIZES, "normalise"), *self.parts.asked], why)
        elif self.parts.pma or self.parts.learned_queries:
            names = ("form",) if self.hidden else ("form", "queries")
            self._refuse(self._other(*names), "not with --pma or --learned-queries")
        if not self.optimiser.startswith("pgpe"):
            why = f"not for --optimiser {self.optimiser}; only for pgpe and pgpe-clipup"
            self._refuse(self._other("rate", "sigma_rate"), why)
        if self.dask is not None:
            self._refuse(self._other("workers"), "not with --dask, whose scheduler has its own")

    def _other(self, *names: str) -> list[str]:
        """Those of these options that are not as by default."""
        return [name for name in names if getattr(self, name) != getattr(Verb, name)]

    def _refuse(self, names: Sequence[str], why: str) -> None:
        if names:
            raise InputError(f"{', '.join(map(option, names))}: {why}")

    def _train(self) -> int:
        from an_control.learning.es.search import Search, SearchSettings
        from an_control.learning.rollout.processes import make_engine
        from an_control.learning.runs.run_folder import RunFolder, units_of_run
        from an_control.learning.runs.run_loop import RunLoop
        from an_control.learning.runs.terminal import run_at_terminal
        from an_control_sim.gym.environments import describe, environment_of, make_environment
        from an_control_sim.gym.units import Units
        from an_control_sim.gym.varied_robot import check_robot

        environment = environment_of(self.task)
        model = None if self.start_model is None else read_model(self.start_model)
        units = units_of_run(self.out, environment) if model is None else Units.of_task(model.task)
        env = make_environment(environment, units)
        task = describe(env, self.task, environment)
        if model is not None:  # what the environment says nothing of
            task |= {name: value for name, value in model.task.items() if name not in task}
        form, start = self._form(len(task["channels"]), len(task["actuators"]), model)
        if self.hints:
            form, start = self._hinted(form, start, len(task["channels"]))
        pgpe = {
            "rate": self._or_default(self.rate, RATE, REFINING_RATE),
            "sigma_rate": self.sigma_rate,
        }
        settings = SearchSettings(
            optimiser=self.optimiser,
            generations=self.generations,
            minutes=self.minutes,
            score=self.score,
            starts=self._starts,
            max_rollouts=self.max_rollouts,
            population=self.popsize,
            rollouts=self.rollouts,
            sigma=self._or_default(self.sigma, SIGMA, REFINING_SIGMA),
            decay=self.decay,
            mixture=mixture(self.shuffle or ("none",), len(task["channels"])),
            validate_every=self.validate_every,
            validation_episodes=self.episodes,
            success=SUCCESS.get(self.task),
            options=pgpe if self.optimiser.startswith("pgpe") else {},
        )
        for disturbance in settings.mixture:
            check_robot(env, disturbance)
        engine = make_engine(
            self.engine,
            env,
            environment,
            task["channels"],
            form.sizes,
            self.workers,
            self.dask,
            task.get("recovery", 0.0),
        )
        try:
            search = Search(task, form, engine, settings, self.seed, start)
            loop = RunLoop(RunFolder(self.out, search.config, self.resume), search)
            if not run_at_terminal(loop, command(self, "train")):
                return INTERRUPTED
            self._finish(loop, search)
        finally:
            engine.close()
            env.close()
        return 0

    @property
    def _starts(self) -> int:
        if self.starts is None:
            return 8 if self.start_model is None and self.form != "mlp" else 0
        return self.starts

    def _or_default(self, given: float | None, from_nothing: float, refining: float) -> float:
        """What was given; else the default, which must not throw away what a start model knows."""
        if given is not None:
            return given
        return from_nothing if self.start_model is None else refining

    def _form(self, channels: int, actions: int, model: Model | None) -> tuple[Form, Any]:
        """The form to search, and where to start: at this model, if there is one."""
        from an_control.learning.es.parametrisation import Authors, AuthorsRaw, Whole, form_of

        if model is not None:
            if self.normalise:
                model = model.normalised(channels)
            form = form_of(model)
            if isinstance(model.sizes, MlpSizes) and model.sizes.channels != channels:
                raise InputError(
                    f"--start-model {self.start_model}: {model.sizes.channels} channels in a fixed"
                    f" order, but {self.task} has {channels}"
                )
            if model.sizes.actions != actions:
                raise InputError(
                    f"--start-model {self.start_model}: {model.sizes.actions} actions, but"
                    f" {self.task} takes {actions}"
                )
            return form, form.vector(model)
        if self.form == "mlp":
            return Whole(MlpSizes(channels, actions, list(self.hidden or (16,)))), None
        if any(width != self.queries for width in self.hidden):
            raise InputError("--hidden: in the attention form every layer is --queries wide")
        authors = AuthorsRaw if self.form == "attention-raw" else Authors
        form = authors(
            actions,
            self.queries,
            len(self.hidden),
            self.neuron,
            stack=self.stack,
            normalise=channels if self.normalise else 0,
            **self.parts.paper(),
        )
        pooled = self.parts.pooled(form.sizes)
        return (form if pooled == form.sizes else Whole(pooled)), None

    def _hinted(self, form: Form, start: Any, channels: int) -> tuple[Form, Any]:
        """The same with hints."""
        from an_control.learning.es.parametrisation import Authors
        from an_control.learning.es.search import Hinted

        if not isinstance(form, Authors):
            raise InputError("--hints: only for the paper's attention forms")
        hinted = Hinted(form, channels)
        if start is not None:
            start = np.concatenate([start, np.zeros(hinted.size - form.size)])
        return hinted, start

    def _finish(self, loop: RunLoop, search: Search) -> None:
        """Evaluate the model that was kept, write its card and the result."""
        from an_control.learning.runs.card import figures, write_card

        model = read_model(loop.model_path)
        clean = DisturbanceSettings(shuffle=Shuffle(at_reset=model.kind != "mlp"))
        others = [one for one in search.settings.mixture if one.active and str(one) != str(clean)]
        evaluations = []
        for disturbance in [clean, *others]:
            returns = search.play(model, FINAL_SEED, 5 * self.episodes, disturbance)
            row = {
                "protocol": f"shuffle {disturbance}, seed {FINAL_SEED}",
                **figures(returns, search.settings.success),
            }
            evaluations.append(row)
            failed = f"  {row['failed']} episodes failed" if "failed" in row else ""
            print(
                f"{row['protocol']}: {row['mean']}, standard deviation {row['sd']}"
                f"  success share {row.get('success_share')}{failed}"
            )
        model = replace(model, trained={**model.trained, "evaluations": evaluations})
        write_card(loop.folder, model, self.out.name, evaluations, command(self, "train"))
        print(loop.model_path)
        write_json(
            self.json,
            {
                "task": self.task,
                "seed": self.seed,
                "model": str(loop.model_path),
                "evaluations": evaluations,
                "metrics": loop.metrics,
            },
        )


Verb.__doc__ = with_offers(
    explained(Verb.__doc__, "best", "mean", "validation", "failed", "validation_failed", "note")
)
