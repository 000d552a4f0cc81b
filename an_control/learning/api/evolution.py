"""Search for a policy by an evolution strategy, which uses only the returns of episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from an_control.disturbance import DisturbanceSettings, Shuffle
from an_control.learning.api.parts import PolicyParts
from an_control.learning.command_line import format_command, format_flag, get_setting_name_for_user
from an_control.learning.limits import (
    AnyNumber,
    CountOrZero,
    OverZero,
    Positive,
    SettingLimits,
    ZeroOrOver,
    check_numbers_within_limits,
)
from an_control.learning.runs.progress import OnProgress, RunProgress, ignore_progress
from an_control.policy import MlpSizes, Model, read_model
from an_control_sim.envs.tasks import SUCCESS

if TYPE_CHECKING:
    from an_control.learning.es.parametrisation import PolicyForm
    from an_control.learning.es.search import Search, SearchSettings
    from an_control.learning.runs.run_loop import RunLoop

ATTENTION_OPTIONS = "queries", "neuron", "stack"
"""Options that only the forms with attention use, in addition to the fields of `PolicyParts`."""

FINAL_SEED = 1
"""Seed of the evaluation for the model's card; training and validation use other seeds."""

START_SIGMA, START_RATE, RACING_STARTS = 0.5, 0.2, 8
"""Defaults of the options `sigma`, `rate` and `starts` for a search that starts at random."""
REFINING_SIGMA, REFINING_RATE = 0.01, 0.002
"""Defaults of the options `sigma` and `rate` for a search that starts at a model. They are small,
because with 0.02 for both a single step of the search takes two thirds of the return from the Ant
model that ships with this package."""

OPTIONS_OF_SETTINGS = {
    "population": "--popsize",
    "mixture": "--shuffle",
    "validation_episodes": "--episodes",
    "form": "--form, or an option of its sizes and parts,",
    "start": "--start-model",
}
"""A mapping from settings of the search to the options that set them."""


@dataclass(frozen=True)
class EvolveOptions:
    """Options of `evolve`, the search for a policy by an evolution strategy."""

    task: str
    """A task known by name (cartpole, ant), or a gymnasium id, also as module:id."""
    out: Path
    """The run's folder."""
    form: Literal["attention", "attention-raw", "mlp"] = "attention"
    """attention: permutation-invariant. attention-raw: the same policies, searched by all of the
    authors' parameters, some of which are redundant. mlp: a plain network that needs its channels
    in order."""
    start_model: Path | None = None
    """A model file to start from. Its form is taken over, and its settings for lost messages and
    for a robot that stands still."""
    hidden: tuple[Positive, ...] = ()
    """Units of each hidden layer: of the MLP (by default one layer of 16), or between the attention
    and the action (by default none)."""
    queries: Positive = 16
    """Number of queries of an attention policy; the authors' Ant has 32."""
    neuron: Positive = 8
    """Number of units in each channel's neuron of an attention policy."""
    stack: CountOrZero = 0
    """Number of newest readings that each neuron of an attention policy receives; 0 for an LSTM."""
    parts: PolicyParts = field(default_factory=PolicyParts)
    optimiser: Literal["cma", "cma-diagonal", "pgpe", "pgpe-clipup"] = "pgpe"
    """PGPE with centred ranks and Adam or ClipUp, or CMA-ES (pycma) with a full or a diagonal
    covariance."""
    generations: Positive = 300
    """Number of generations of the whole run."""
    minutes: ZeroOrOver = 0.0
    """Train for this many minutes of wall-clock time instead of `--generations`; 0: off."""
    score: AnyNumber | None = None
    """Stop as soon as the mean return of a validation reaches this."""
    starts: CountOrZero | None = None
    """Number of random starts that compete until the best one continues; a search that stops
    improving competes with new random starts. 0: start with zeros. By default 8 for the attention
    form without `--start-model`, else 0."""
    popsize: Annotated[int, SettingLimits(4)] = 64
    """Number of candidates in each generation."""
    rollouts: Positive = 2
    """Number of episodes that each candidate plays, the same for all candidates."""
    max_rollouts: CountOrZero = 0
    """Let candidates whose ranks are uncertain play more episodes, up to this many; 0: always
    `--rollouts`."""
    sigma: OverZero | None = None
    """Standard deviation of the first generation; with random starts in units of the usual scale of
    a layer's initial weights. By default 0.5, with `--start-model` 0.01."""
    rate: OverZero | None = None
    """Learning rate of the mean (PGPE); with ClipUp the maximum length of a step. By default 0.2,
    with `--start-model` 0.002."""
    sigma_rate: ZeroOrOver = 0.05
    """Learning rate of the standard deviations (PGPE)."""
    decay: ZeroOrOver = 0.0
    """Weight decay: this times a candidate's squared norm is subtracted from its fitness."""
    normalise: bool = False
    """Attention forms, also with `--start-model`: divide the attention's sums by the number of
    channels that are present, relative to the task's number."""
    hints: bool = False
    """Attention forms with LSTM neurons: give all neurons the identity of their channel as an input
    during the first fifth of the run, then fade it out until three fifths of the run. Needs
    compiled rollouts."""
    shuffle: tuple[str, ...] = ("none",)
    """Disturbances to train under, each in the words of evaluate --table: when signals are permuted
    (none, reset, K, reset+K), then noise=N, copies=N, missing=SHARE, delay=0..2, lose=SHARE,
    gain=0.6..1 and so on. Several share the episodes equally."""
    engine: Literal["auto", "fused", "processes", "dask"] = "auto"
    """What plays the episodes; auto is compiled code if the environment has it, else processes."""
    workers: Positive | None = None
    """Number of threads or processes; by default one per core."""
    dask: str | None = None
    """Address of a Dask scheduler; implies --engine dask, which without an address starts a
    scheduler and workers on this machine."""
    validate_every: Positive = 10
    """Number of generations from one validation of the mean to the next."""
    episodes: Positive = 100
    """Number of episodes of a validation; the evaluation on the model's card has five times as
    many."""
    seed: CountOrZero = 1
    """Seed of everything random."""
    resume: bool = False
    """Fail unless the folder holds a run with the same options. Without this flag such a run is
    continued as well, and otherwise a new one is started."""

    def check_options(self) -> None:
        """Check that all numbers are within their bounds, and that the options fit each other.

        Raises:
            ValueError: An option is out of bounds, or would be ignored.
        """
        parse_disturbances(self.shuffle)
        check_numbers_within_limits(self)
        if self.max_rollouts and (self.rollouts < 2 or self.max_rollouts < 2 * self.rollouts):
            raise ValueError(
                f"--max-rollouts {self.max_rollouts}: must be 0, or twice --rollouts"
                f" ({self.rollouts}, which must then be 2 or more) or more"
            )
        if self.starts and self.start_model is not None:
            raise ValueError(f"--starts {self.starts}: must be 0 with --start-model")
        self._refuse_ignored_options()

    def _refuse_ignored_options(self) -> None:
        """Raise ValueError if an option is set that the chosen form or optimiser does not use."""
        if self.start_model is not None:
            why = "not with --start-model, whose form is taken; allowed is --normalise"
            self._refuse_options(
                [
                    *self._list_changed_options("form", "hidden", *ATTENTION_OPTIONS),
                    *self.parts.chosen_option_names,
                ],
                why,
            )
        elif self.form == "mlp":
            why = "not for --form mlp; allowed is --hidden"
            self._refuse_options(
                [
                    *self._list_changed_options(*ATTENTION_OPTIONS, "normalise"),
                    *self.parts.chosen_option_names,
                ],
                why,
            )
        elif self.parts.pma or self.parts.learned_queries:
            names = ("form",) if self.hidden else ("form", "queries")
            self._refuse_options(
                self._list_changed_options(*names), "not with --pma or --learned-queries"
            )
        if not self.optimiser.startswith("pgpe"):
            why = f"not for --optimiser {self.optimiser}; only for pgpe and pgpe-clipup"
            self._refuse_options(self._list_changed_options("rate", "sigma_rate"), why)
        if self.dask is not None:
            self._refuse_options(
                self._list_changed_options("workers"),
                "not with --dask, whose scheduler has its own",
            )

    def _list_changed_options(self, *names: str) -> list[str]:
        """Return the given option names whose values differ from the defaults."""
        return [name for name in names if getattr(self, name) != getattr(EvolveOptions, name)]

    def _refuse_options(self, names: Sequence[str], why: str) -> None:
        """Raise a ValueError that names the given options, unless no option is given."""
        if names:
            raise ValueError(f"{', '.join(map(format_flag, names))}: {why}")


@dataclass(frozen=True)
class EvolveResult:
    """Result of `evolve`, the search for a policy by an evolution strategy.

    Attributes:
        model: The model file of the best validated policy.
        evaluations: The distribution of this policy's returns, undisturbed and under each
            disturbance of the option `shuffle`.
        metrics: The metrics of each generation, by name.
    """

    model: Path
    evaluations: list[dict[str, Any]]
    metrics: list[dict[str, Any]]


def evolve(options: EvolveOptions, progress: OnProgress = ignore_progress) -> EvolveResult:
    """Search for a policy by an evolution strategy, or continue the run in its folder.

    Args:
        options: The task, the run's folder and the settings of the search.
        progress: Called with a report after each generation (unit "generation"), and after each
            evaluation at the end (unit "evaluation").

    Returns:
        The model file, its evaluations and the run's metrics.

    Raises:
        ValueError: Options are out of bounds, or do not fit each other or the task.
        RunError: The folder holds another run, or a file cannot be written.
        RolloutError: All episodes of a generation failed.
        RunStoppedError: `progress` returned False.
    """
    from an_control.learning.es.search import Search
    from an_control.learning.rollout.processes import make_rollout_engine
    from an_control.learning.runs.run_folder import RunFolder, read_or_measure_observation_units
    from an_control.learning.runs.run_loop import RunLoop
    from an_control_sim.gym.environments import describe_task, find_environment_id, make_environment
    from an_control_sim.gym.units import Units
    from an_control_sim.gym.varied_robot import check_robot_settings

    options.check_options()
    environment = find_environment_id(options.task)
    model = None if options.start_model is None else read_model(options.start_model)
    units = (
        Units.from_task(model.task)
        if model
        else read_or_measure_observation_units(options.out, environment)
    )
    env = make_environment(environment, units)
    task = describe_task(env, options.task, environment)
    if model is not None:  # keep keys that the environment does not define
        known = {name: getattr(model.task, name) for name in ("ramp_s", "recovery", "repeats")}
        task = replace(task, **known)
    channels = len(task.channels)
    form, start = _make_parametrisation_and_start_vector(
        options, channels, len(task.actuators), model
    )
    if options.hints:
        form, start = _add_hints_to_parametrisation(form, start, channels)
    settings = _make_search_settings(options, channels)
    for disturbance in settings.mixture:
        check_robot_settings(env, disturbance)
    engine = make_rollout_engine(
        options.engine,
        env,
        environment,
        task.channels,
        form.sizes,
        options.workers,
        options.dask,
        task.recovery,
    )
    try:
        search = Search(task, form, engine, settings, options.seed, start)
        loop = RunLoop(RunFolder(options.out, search.config, options.resume, _name_setting), search)
        loop.run_remaining_steps(progress)
        evaluations = _evaluate_and_write_model_card(options, loop, search, progress)
    finally:
        engine.close()
        env.close()
    return EvolveResult(loop.model_path, evaluations, loop.metrics)


def _name_setting(key: str) -> str:
    """Return the option of `train` that sets a setting of a run's `config.json`."""
    return get_setting_name_for_user(key, EvolveOptions, OPTIONS_OF_SETTINGS)


def _make_search_settings(options: EvolveOptions, channels: int) -> SearchSettings:
    """Return the settings of the search, with a default for each option that is not set.

    Some defaults depend on whether the search starts from a model, and on the form of the policy.
    """
    from an_control.learning.es.search import SearchSettings

    refining = options.start_model is not None  # take small steps, to keep what it has learned
    sigma, rate = (REFINING_SIGMA, REFINING_RATE) if refining else (START_SIGMA, START_RATE)
    starts = 0 if refining or options.form == "mlp" else RACING_STARTS
    pgpe = {
        "rate": rate if options.rate is None else options.rate,
        "sigma_rate": options.sigma_rate,
    }
    return SearchSettings(
        optimiser=options.optimiser,
        generations=options.generations,
        minutes=options.minutes,
        score=options.score,
        starts=starts if options.starts is None else options.starts,
        max_rollouts=options.max_rollouts,
        population=options.popsize,
        rollouts=options.rollouts,
        sigma=sigma if options.sigma is None else options.sigma,
        decay=options.decay,
        mixture=parse_disturbances(options.shuffle or ("none",), channels),
        validate_every=options.validate_every,
        validation_episodes=options.episodes,
        success=SUCCESS.get(options.task),
        options=pgpe if options.optimiser.startswith("pgpe") else {},
    )


def parse_disturbances(
    texts: Sequence[str], channels: int | None = None
) -> tuple[DisturbanceSettings, ...]:
    """Parse the texts of disturbances, and check that the task has enough channels for them.

    Args:
        texts: Disturbances as the command `evaluate --table` takes them, such as "reset,noise=5".
        channels: Number of channels of the task; None if it is not known yet.

    Raises:
        ValueError: A text is not valid, or swaps more channels than the task has.
    """
    found = []
    for text in texts:
        try:
            found.append(DisturbanceSettings.parse(text))
            if channels is not None:
                found[-1].check_swap_count(channels)
        except ValueError as error:
            raise ValueError(f"--shuffle {text}: {error}") from error
    return tuple(found)


def _make_parametrisation_and_start_vector(
    options: EvolveOptions, channels: int, actions: int, model: Model | None
) -> tuple[PolicyForm, Any]:
    """Return a parametrisation and the vector that describes `model`; None for a random start."""
    from an_control.learning.es.parametrisation import (
        PaperForm,
        RedundantPaperForm,
        WholeModelForm,
        choose_policy_parametrisation,
    )

    if model is not None:
        if options.normalise:
            model = model.copy_with_normalised_channel_sums(channels)
        form = choose_policy_parametrisation(model)
        if isinstance(model.sizes, MlpSizes) and model.sizes.channels != channels:
            raise ValueError(
                f"--start-model {options.start_model}: {model.sizes.channels} channels in a fixed"
                f" order, but {options.task} has {channels} channels"
            )
        if model.sizes.actions != actions:
            raise ValueError(
                f"--start-model {options.start_model}: {model.sizes.actions} actions, but"
                f" {options.task} has {actions} actuators"
            )
        return form, form.to_vector(model)
    if options.form == "mlp":
        return WholeModelForm(MlpSizes(channels, actions, list(options.hidden or (16,)))), None
    if any(width != options.queries for width in options.hidden):
        raise ValueError(
            "--hidden: must be equal to --queries for every layer of an attention form"
        )
    authors = RedundantPaperForm if options.form == "attention-raw" else PaperForm
    form = authors(
        actions,
        options.queries,
        len(options.hidden),
        options.neuron,
        stack=options.stack,
        normalise=channels if options.normalise else 0,
        **options.parts.collect_paper_policy_sizes(),
    )
    pooled = options.parts.apply_pooling_to_sizes(form.sizes)
    return (form if pooled == form.sizes else WholeModelForm(pooled)), None


def _add_hints_to_parametrisation(
    form: PolicyForm, start: Any, channels: int
) -> tuple[PolicyForm, Any]:
    """Add hints to a parametrisation, and zeros for them to the start vector unless it is None.

    During the first part of the search each channel's sensory neuron (its small network) gets the
    hint of its channel, a vector that tells the channel's identity, as an additional input.
    """
    from an_control.learning.es.parametrisation import PaperForm
    from an_control.learning.es.search import HintedForm

    if not isinstance(form, PaperForm):
        raise ValueError("--hints: only for policies in the paper's attention form")
    hinted = HintedForm(form, channels)
    if start is not None:
        start = np.concatenate([start, np.zeros(hinted.vector_size - form.vector_size)])
    return hinted, start


def _evaluate_and_write_model_card(
    options: EvolveOptions, loop: RunLoop, search: Search, progress: OnProgress
) -> list[dict[str, Any]]:
    """Evaluate the best model of the run, write its model card and return the evaluations."""
    from an_control.learning.runs.card import summarise_returns, write_model_and_card

    model = read_model(loop.model_path)
    clean = DisturbanceSettings(shuffle=Shuffle(at_reset=model.kind != "mlp"))
    others = [one for one in search.settings.mixture if one.is_active and str(one) != str(clean)]
    evaluations: list[dict[str, Any]] = []
    for disturbance in [clean, *others]:
        returns = search.play_evaluation_episodes(
            model, FINAL_SEED, 5 * options.episodes, disturbance
        )
        row = {
            "protocol": f"shuffle {disturbance}, seed {FINAL_SEED}",
            **summarise_returns(returns, search.settings.success),
        }
        evaluations.append(row)
        progress(RunProgress("step", "evaluation", len(evaluations), 1 + len(others), figures=row))
    model = replace(model, trained={**model.trained, "evaluations": evaluations})
    write_model_and_card(
        loop.folder, model, options.out.name, evaluations, format_command(options, "train")
    )
    return evaluations
