"""``an-control train TASK --out RUN``."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from an_control.cli.common import InputError, OutputFile, OutputFolder, command, write_json
from an_control.disturbance import DisturbanceSettings, Shuffle
from an_control.interrupts import INTERRUPTED
from an_control.policy import OrderedSizes, read_model
from an_control.policy.tasks import SUCCESS

if TYPE_CHECKING:
    from an_control.learning.es.parametrisation import Form
    from an_control.learning.es.search import Search
    from an_control.learning.runs.run_loop import RunLoop

FINAL_SEED = 1
"""Of the evaluation on a model's card; training and validation take others."""


@dataclass(frozen=True)
class Verb:
    """Search for a policy by its return alone; the same command continues a stopped run."""

    task: tyro.conf.Positional[str]
    """A task known by name (cartpole, ant), or a gymnasium id, also as module:id."""
    out: OutputFolder
    """The run's folder."""
    form: Literal["attention", "ordered"] = "attention"
    """The policy's form: permutation-invariant, or a plain network on the channels in order."""
    start: Path | None = None
    """A model file to start from; its form is taken."""
    hidden: tuple[int, ...] = ()
    """Hidden layers: of the ordered network (16 by default), or behind the message (none)."""
    queries: int = 16
    """Of the attention form: how many, at the authors' Ant 32."""
    neuron: int = 8
    """Of the attention form: units a channel."""
    stack: int = 0
    """Of the attention form: how many of its newest readings a neuron sees; 0 for an LSTM."""
    optimiser: Literal["cma", "cma-diagonal", "pgpe"] = "cma"
    """CMA-ES by pycma, full or diagonal, or PGPE with centred ranks."""
    generations: int = 300
    """In all."""
    popsize: int = 64
    """Candidates a generation."""
    rollouts: int = 16
    """Episodes a candidate, the same ones for all."""
    sigma: float = 0.1
    """The first standard deviation."""
    rate: float = 0.02
    """Of PGPE: the mean's."""
    sigma_rate: float = 0.05
    """Of PGPE: the standard deviations'."""
    decay: float = 0.0
    """Times a candidate's squared length is taken from its fitness."""
    normalise: bool = False
    """Of the attention form, also one to start from: scale the sums over channels to the task's
    number of channels."""
    shuffle: tuple[str, ...] = ("none",)
    """What the readings undergo, in the words of evaluate --table: when contents move (none, reset,
    K, reset+K), then noise=N, noise-sd=X, copies=N, drop=SHARE and so on; of several, each has as
    many of the episodes."""
    noise_channels: int = 0
    """Further channels that carry normal noise of standard deviation 0.1, in all of them."""
    engine: Literal["auto", "fused", "processes", "dask"] = "auto"
    """What plays: compiled code where the environment offers it, else processes."""
    workers: int | None = None
    """Threads or processes; by default one a core."""
    dask: str | None = None
    """A Dask scheduler's address."""
    validate_every: int = 10
    """Generations between two validations of the mean."""
    episodes: int = 100
    """Of a validation; the card's evaluation has five times as many."""
    seed: int = 1
    """Decides everything random."""
    resume: bool = False
    """Refuse to begin anew: the folder must hold a run that the same arguments began."""
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
        from an_control.learning.runs.run_folder import RunFolder
        from an_control.learning.runs.run_loop import RunLoop
        from an_control.learning.runs.terminal import run_at_terminal

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
            mixture=self._mixture(),
            validate_every=self.validate_every,
            validation_episodes=self.episodes,
            success=SUCCESS.get(self.task),
            options=pgpe if self.optimiser == "pgpe" else {},
        )
        engine = make_engine(
            self.engine, env, environment, task["channels"], actions, self.workers, self.dask
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
        if self.form == "ordered":
            return Whole(OrderedSizes(channels, actions, list(self.hidden or (16,)))), None
        if any(width != self.queries for width in self.hidden):
            raise InputError("--hidden: in the attention form every layer is --queries wide")
        layers = len(self.hidden)
        normalise = channels if self.normalise else 0
        form = Authors(
            actions, self.queries, layers, self.neuron, stack=self.stack, normalise=normalise
        )
        return form, None

    def _mixture(self) -> tuple[DisturbanceSettings, ...]:
        from an_control.learning.rollout.protocol import Protocol

        mixture = map(Protocol.parse_disturbance, self.shuffle or ("none",))
        if not self.noise_channels:
            return tuple(mixture)
        count = self.noise_channels
        return tuple(replace(one, noise_channels=count, noise_sd=0.1) for one in mixture)

    def _finish(self, loop: RunLoop, search: Search) -> None:
        """Evaluate the model that was kept, write its card and the result."""
        from an_control.learning.rollout.protocol import words
        from an_control.learning.runs.card import figures, write_card

        model = read_model(loop.model_path)
        clean = DisturbanceSettings(shuffle=Shuffle(at_reset=model.kind != "ordered"))
        others = [
            one for one in search.settings.mixture if one.active and words(one) != words(clean)
        ]
        evaluations = []
        for scrambling in [clean, *others]:
            returns = search.play(model, FINAL_SEED, 5 * self.episodes, scrambling)
            row = {
                "protocol": f"shuffle {words(scrambling)}, seed {FINAL_SEED}",
                **figures(returns, search.settings.success),
            }
            evaluations.append(row)
            print(
                f"{row['protocol']}: {row['mean']} +- {row['sd']}"
                f"  success share {row.get('success_share')}"
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
