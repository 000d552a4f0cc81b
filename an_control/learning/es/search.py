"""Search for a policy by an evolution strategy, which uses only the returns of episodes.

One step of the search is a generation. The optimiser proposes candidate policies (its method
`ask`), all candidates play the same episodes, with the same random numbers, and the optimiser
receives their returns (its method `tell`). The result of a generation depends only on the seed of
the run, on the number of the generation, and on the state before it. A candidate whose episodes
failed gets the worst rank. An episode that failed for all candidates is left out. Every
`validate_every` generations, the policy at the mean of the optimiser's distribution plays
validation episodes, which training never uses.

Without a start model, a search begins at random weights, because at zeros a change of a single
weight changes no action. The results depend more on the random start than on any setting. Several
starts therefore compete in a race (class `Race`), and the best one continues. A search that makes
no more progress competes with new random starts. The number of episodes that each candidate plays
is adapted to the noise of the returns.

Hints are an optional help for a policy that must find out by itself which input is which channel.
Such a policy is hardly ever found directly, because to identify the channels improves the return
only once the policy also acts well on them. A policy that is told its channels is found quickly.
Each channel therefore gets a code, a vector that the channel's network (its sensory neuron) adds to
its gates. The codes are searched like the weights. At first all networks receive their code, then
each receives it in a falling share of the episodes, and in the end none does, so that the result is
a policy without hints.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from an_control.disturbance import DisturbanceSettings
from an_control.learning.es.optimisers import (
    Optimiser,
    OptimiserName,
    make_optimiser,
    replace_nan_with_worst,
)
from an_control.learning.es.parametrisation import PaperForm, PolicyForm
from an_control.learning.rollout.compiled.engine import FusedEngine, IdentityHints
from an_control.learning.rollout.engine import (
    NO_DISTURBANCE,
    EpisodeSeeds,
    Outcomes,
    RolloutEngine,
    RolloutError,
    draw_training_seeds,
    make_evaluation_seeds,
)
from an_control.learning.runs.card import (
    average_returns_of_candidates,
    compute_mean_return,
    compute_standard_error,
    count_failed_episodes,
    drop_episodes_that_all_candidates_failed,
)
from an_control.learning.runs.run_loop import NO_FIGURES
from an_control.policy import AttentionSizes, Model
from an_control.policy.sizes import Shapes
from an_control.policy.task import Task
from an_control.system.environment_output import OUTPUT

ALL_UNTIL, NONE_FROM = 0.2, 0.6
"""Finished share of the run until which every channel's network receives its code, and the share
from which on none does."""
CODE_SCALE = 0.5
"""Usual magnitude of the numbers of a code."""


@dataclass(frozen=True)
class HintedForm(PolicyForm):
    """Parametrisation of a policy together with one hint per channel, used only in training.

    The hint of a channel is a vector, called its code. It tells the channel's small network, its
    sensory neuron, which channel it reads. The finished policy needs no hints.

    Attributes:
        own: Parametrisation of the policy without the codes.
        channels: Number of channels.
    """

    own: PaperForm
    channels: int

    def __post_init__(self) -> None:
        if self.own.stack:
            raise ValueError("--hints: needs neurons with an LSTM (stack 0)")

    @property
    def sizes(self) -> AttentionSizes:
        """Return the layer sizes, which are the same for all policies of this parametrisation."""
        return self.own.sizes

    @property
    def free_parameter_shapes(self) -> Shapes:
        """Return the shape of each array of free parameters by name, in their order in a vector.

        A vector describes one policy and its hints. First come the arrays of the policy, as in
        `own.free_parameter_shapes`. The last array, "codes", holds the hints, which tell each
        channel's network which channel it reads.
        """
        return {**self.own.free_parameter_shapes, "codes": (self.channels, 4 * self.own.neuron)}

    @property
    def typical_element_magnitudes(self) -> np.ndarray:
        """Return the usual magnitude of each element of a policy's vector, as an array (size,)."""
        codes = np.full(self.vector_size - self.own.vector_size, CODE_SCALE)
        return np.concatenate([self.own.typical_element_magnitudes, codes])

    def compute_model_arrays(self, free_parameters: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute the weights of P policies from the contents of P vectors.

        The channels' hints, the array "codes", are left out, because a model file does not contain
        them.

        Args:
            free_parameters: Arrays (P, ...) by name, with the policy as first index. The method
                changes this dict.

        Returns:
            The arrays of the model files (P, ...) by name, with the policy as first index.
        """
        del free_parameters["codes"]
        return self.own.compute_model_arrays(free_parameters)

    def to_vector(self, model: Model) -> np.ndarray:
        """Return the vector (size,) of a policy, in which the elements for hints are zero."""
        own = self.own.to_vector(model)
        return np.concatenate([own, np.zeros(self.vector_size - len(own))])

    def draw_identity_hints(
        self, vectors: np.ndarray, hint_probability: float, episodes: int, rng: np.random.Generator
    ) -> IdentityHints:
        """Return the hints in P vectors, and choose at random which of them are given.

        A hint tells a channel's sensory neuron (its small network) which channel it reads. Whether
        it is given is drawn separately for each channel and episode.

        Args:
            vectors: Vectors (P, size); each describes a policy and its hints.
            hint_probability: Probability that the neuron of a channel gets its hint in an episode.
            episodes: Number of episodes.
            rng: Source of random numbers.
        """
        codes = vectors[:, self.own.vector_size :].reshape(-1, *self.free_parameter_shapes["codes"])
        hinted = rng.random((episodes, self.channels)) < hint_probability
        return IdentityHints(np.ascontiguousarray(codes, np.float32), hinted.astype(np.float32))


def compute_identity_hint_probability(progress: float) -> float:
    """Return the share (0..1) of the episodes in which a channel's sensory neuron gets its hint.

    The hint tells the neuron which channel it reads. The share is 1 at the start of the run and
    falls to 0.

    Args:
        progress: Finished share (0..1) of the run.
    """
    return float(np.clip((NONE_FROM - progress) / (NONE_FROM - ALL_UNTIL), 0.0, 1.0))


MIN_RELIABLE, MAX_RELIABLE = 0.5, 0.9
"""Bounds of the reliability of the candidates' ranks, which is the share of the variance between
the candidates' mean returns that is not noise. Below the first bound more episodes are played,
above the second one fewer."""
MEMORY = 10
"""Number of generations over which the reliability of the ranks is averaged."""
MIN_VALIDATIONS = 20
"""Minimum number of validations without improvement before a search counts as stalled."""
PATIENCE = 0.2
"""Minimum share of the run without improvement before a search counts as stalled. It is this long
because late improvements take long, when the learning rate of the mean has fallen. At least a third
of all validations must be without improvement too."""
MIN_SIGMA = 1e-3
"""Share of the initial standard deviation. If the standard deviation is smaller, a search counts as
stalled."""
MAX_EQUAL = 10
"""Number of successive generations in which all candidates have the same return, after which a
search counts as stalled.
"""


class Race:
    """Competition of searches from several starts, by successive halving (Karnin et al. 2013).

    There is one search, called a contender, for each start. The contenders take turns, and a turn
    is one generation. The duration of the race is divided into equal intervals. After each interval
    the worse half of the contenders is dropped, until one is left.

    Args:
        contender_count: Number of contenders at the start.
        begin_progress: Finished share (0..1) of the run at the start of the race.
        end_progress: Finished share (0..1) of the run at the end of the race.
    """

    def __init__(self, contender_count: int, begin_progress: float, end_progress: float) -> None:
        self.count, self.turn = contender_count, 0
        halvings = math.ceil(math.log2(contender_count))
        self._ends = np.linspace(begin_progress, end_progress, halvings + 1)[1:].tolist()

    @property
    def is_over(self) -> bool:
        """Return whether the race is over, because only one contender is left."""
        return self.count == 1

    def pass_turn_and_check_elimination_due(self, progress: float) -> bool:
        """Give the turn to the next contender, and return whether to drop the worse half now.

        Args:
            progress: Finished share (0..1) of the run.

        Returns:
            True if an interval of the race has ended; the caller must then call `keep_better_half`.
        """
        self.turn = (self.turn + 1) % self.count
        return not self.is_over and self.turn == 0 and progress >= self._ends[0]

    def keep_better_half(self, scores: Sequence[float]) -> list[int]:
        """Drop the worse half of the contenders.

        Args:
            scores: Score of each contender, of which larger is better; NaN counts as worst.

        Returns:
            Indices of the contenders that are kept, the best first.
        """
        ranks = replace_nan_with_worst(np.array(scores))
        ranked = sorted(range(self.count), key=lambda contender: -ranks[contender])
        self.count, self.turn = math.ceil(self.count / 2), 0
        self._ends = self._ends[1:]
        return ranked[: self.count]

    def rescale_elimination_times(self, ratio: float) -> None:
        """Adapt the stored ends of the race's intervals to a changed length of the run.

        Each end is stored as the share (0..1) of the run that is finished then.

        Args:
            ratio: Factor for the stored shares, for example 0.5 if the run is now twice as long.
        """
        self._ends = [ratio * end for end in self._ends]

    def make_checkpoint(self) -> dict[str, Any]:
        """Return the state of the race, from which `restore` continues, as numbers and lists."""
        return {"count": self.count, "turn": self.turn, "ends": self._ends}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint that `make_checkpoint` returned."""
        self.count, self.turn, self._ends = state["count"], state["turn"], list(state["ends"])


class EpisodeCount:
    """Controller of `current`, the number of episodes that each candidate of a search plays.

    The number is doubled if the reliability of the candidates' ranks falls below 0.5, and halved
    if it rises above 0.9. The reliability is the share (0..1) of the variance between the
    candidates' mean returns that is not noise. All candidates play the same episodes. Noise is what
    remains of the returns after the mean of each candidate and of each episode is subtracted.

    Args:
        min_count: Number of episodes at the start, and the minimum.
        max_count: Maximum number of episodes.
    """

    def __init__(self, min_count: int, max_count: int) -> None:
        self._least, self._most = min_count, max(min_count, max_count)
        self.current = min_count
        self.reliable: float | None = None

    def adapt_count_to_return_noise(self, returns: np.ndarray) -> None:
        """Double the number of episodes if noise decides most of the ranks, halve it if hardly any.

        Args:
            returns: Returns (P, R) of P ranked candidates in R episodes. A candidate that has a NaN
                is left out.
        """
        returns = returns[np.isfinite(returns).all(axis=1)]
        candidates, episodes = returns.shape
        if candidates < 2 or episodes < 2:
            return
        means = returns.mean(axis=1)
        rest = returns - means[:, None] - returns.mean(axis=0) + returns.mean()
        noise = float((rest**2).sum()) / ((candidates - 1) * (episodes - 1)) / episodes
        between = float(means.var(ddof=1))
        reliable = max(0.0, 1.0 - noise / between) if between > 0.0 else 1.0
        if self.reliable is None:
            self.reliable = reliable
        self.reliable += (reliable - self.reliable) / MEMORY
        if self.reliable < MIN_RELIABLE and 2 * self.current <= self._most:
            self.current, self.reliable = 2 * self.current, None
        elif self.reliable > MAX_RELIABLE and self.current // 2 >= self._least:
            self.current, self.reliable = self.current // 2, None

    def make_checkpoint(self) -> dict[str, Any]:
        """Return the state from which `restore` continues, as numbers and lists."""
        return {"now": self.current, "reliable": self.reliable}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint that `make_checkpoint` returned."""
        self.current, self.reliable = state["now"], state["reliable"]


class StallDetector:
    """Detector of a stalled search.

    A search has stalled if no validation has been better for long, if all candidates have equal
    returns, or if the standard deviation of the search is tiny.

    Args:
        first_sigma: Initial standard deviation of the search distribution.
    """

    def __init__(self, first_sigma: float) -> None:
        self._min_sigma = MIN_SIGMA * first_sigma
        self.forget_history()

    def forget_history(self) -> None:
        """Forget all validations so far, and the count of generations with equal returns."""
        self._validations: list[float] = []
        self._progress: list[float] = []
        """Finished share (0..1) of the run at each recorded validation."""
        self._equal = 0

    def count_generation_if_returns_equal(self, returns: np.ndarray) -> None:
        """Count successive generations in which all candidates have the same mean return.

        If the candidates' returns differ, the count starts again at 0. A candidate of which an
        episode failed is left out.

        Args:
            returns: Returns (P, R) of P candidates in the R episodes of the newest generation, NaN
                for a failed episode.
        """
        means = returns.mean(axis=1)
        means = means[np.isfinite(means)]
        self._equal = self._equal + 1 if len(means) and np.ptp(means) == 0.0 else 0

    def record_validation_and_explain_stall(
        self, sigma: float, validation: float, error: float, progress: float
    ) -> str | None:
        """Store the result of a validation, and return why the search has stalled, if it has.

        Args:
            sigma: Mean standard deviation of the search distribution.
            validation: Mean return of the validation.
            error: Standard error of this mean.
            progress: Finished share (0..1) of the run.

        Returns:
            The reason as text for a log line; None if the search has not stalled.
        """
        self._validations.append(-math.inf if math.isnan(validation) else validation)
        self._progress.append(progress)
        if self._equal >= MAX_EQUAL:
            return f"all candidates return the same in {self._equal} generations"
        if sigma < self._min_sigma:
            return f"sigma {sigma:.2g} is below {self._min_sigma:.2g}"
        recent = sum(then > progress - PATIENCE for then in self._progress)
        waited = max(MIN_VALIDATIONS, len(self._validations) // 3, recent)
        before, after = self._validations[:-waited], self._validations[-waited:]
        if before and max(after) <= max(before) + error:
            return f"no better validation in {waited}"
        return None

    def rescale_validation_times(self, ratio: float) -> None:
        """Adapt the stored times of the validations to a changed length of the run.

        Each time is stored as the share (0..1) of the run that is finished then.

        Args:
            ratio: Factor for the stored times, for example 0.5 if the run is now twice as long.
        """
        self._progress = [ratio * then for then in self._progress]

    def make_checkpoint(self) -> dict[str, Any]:
        """Return the state from which `restore` continues, as numbers and lists."""
        validations = {"validations": self._validations, "progress": self._progress}
        return {**validations, "equal": self._equal}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint that `make_checkpoint` returned."""
        self._validations, self._equal = list(state["validations"]), state["equal"]
        self._progress = list(state["progress"])


VALIDATION_SEED = 2**20 + 7
"""Seed of the validation episodes; evaluations use other seeds."""
Mixture = Sequence[DisturbanceSettings]
"""Disturbances among which the episodes are divided evenly."""


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a search for a policy by an evolution strategy."""

    optimiser: OptimiserName = "pgpe"
    """Name of the optimiser."""
    generations: int = 300
    """Number of generations of the run; not used if the run has a time limit."""
    minutes: float = 0.0
    """Time limit of the run in minutes of wall-clock time. 0 means no time limit, so that
    `generations` sets the length."""
    score: float | None = None
    """Mean return in a validation at which the run ends early; None for no such limit."""
    population: int = 64
    """Number of candidates in each generation."""
    rollouts: int = 2
    """Number of episodes that each candidate plays in a generation."""
    max_rollouts: int = 0
    """Maximum number of episodes that each candidate plays if the ranks depend mostly on noise. 0
    means that it is always `rollouts`."""
    sigma: float = 0.5
    """Initial standard deviation; without a model, a factor of `typical_element_magnitudes`."""
    starts: int = 0
    """Number of random starts that compete in a race. 0 means that the search begins at the start
    model, or at zeros."""
    race: float = 0.2
    """Duration of a race, as a share of the remaining run."""
    decay: float = 0.0
    """Weight decay. This factor times the squared length of a candidate's vector is subtracted from
    the fitness of the candidate.
    """
    mixture: tuple[DisturbanceSettings, ...] = (NO_DISTURBANCE,)
    """Disturbances among which a generation's episodes are divided evenly. A validation plays all
    its episodes under each of them."""
    validate_every: int = 10
    """Number of generations from one validation to the next."""
    validation_episodes: int = 100
    """Number of episodes of a validation."""
    success: float | None = None
    """Return above which an episode counts as a success; None if successes are not counted."""
    options: dict[str, Any] = field(default_factory=dict)
    """Further arguments of the optimiser, by name."""


class SearchValidation(NamedTuple):
    """Result of a validation of one search, with the policy at the mean of its distribution.

    Every validation has the same episodes.

    Attributes:
        line: Metrics of the validation by name. "validation" is the mean return of the episodes
            that did not fail; it is left out if all failed. "validation_failed" is the number of
            episodes that failed; it is left out if none failed.
        score: The mean return by which competing searches are compared; -inf if all episodes
            failed. While a search still tells the channels' networks by hints which channels they
            read, this is the mean return with these hints.
        error: Standard error of the metric "validation".
    """

    line: dict[str, Any]
    score: float
    error: float


class Search:
    """Trainer that searches for a policy by an evolution strategy.

    The run loop calls `step` once for each generation.

    Args:
        task: The task for the model file.
        form: Parametrisation of the policies to search.
        engine: Engine that plays the episodes.
        settings: Settings of the search, such as its numbers of generations, candidates and
            episodes.
        seed: Seed of all random numbers of the run.
        start: Initial mean (form.vector_size,); None for zeros. It is not used if
            `settings.starts` is over 0: the search then starts at random vectors.

    Raises:
        ValueError: The settings contradict each other, or the form is a `HintedForm` but the engine
            is no `FusedEngine`.
    """

    unit = "generation"

    def __init__(
        self,
        task: Task,
        form: PolicyForm,
        engine: RolloutEngine,
        settings: SearchSettings,
        seed: int,
        start: np.ndarray | None = None,
    ) -> None:
        self._hinted = form if isinstance(form, HintedForm) else None
        if self._hinted is not None and not isinstance(engine, FusedEngine):
            raise ValueError("--hints: needs compiled rollouts (--engine fused)")
        if settings.rollouts < len(settings.mixture):
            raise ValueError(
                f"--rollouts {settings.rollouts}: must be {len(settings.mixture)} or more, one for"
                " each --shuffle"
            )
        self.settings, self.seed = settings, seed
        self._task, self._form, self._engine, self._start = task, form, engine, start
        self._scales = (
            form.typical_element_magnitudes if settings.starts else np.ones(form.vector_size)
        )
        self.generation = self._played = self._restarts = 0
        self._seconds, self._reached = 0.0, False
        self._episodes = EpisodeCount(settings.rollouts, settings.max_rollouts)
        self._stall = StallDetector(settings.sigma)
        begin = np.zeros(form.vector_size) if start is None else start
        first = [] if settings.starts else [begin]
        self._start_race(first, 0.0)

    def _start_race(self, start_vectors: list[np.ndarray], progress: float) -> None:
        """Start a race between searches, of which some start at given vectors, the rest at random.

        The vectors (size,) are divided by `typical_element_magnitudes` of the parametrisation.
        """
        settings = self.settings
        rng = np.random.default_rng([self.seed, 2**31 + self._restarts])
        fresh = max(0, settings.starts - len(start_vectors))
        start_vectors = start_vectors + list(rng.standard_normal((fresh, self._form.vector_size)))
        self._contenders = [self._make_optimiser(mean) for mean in start_vectors]
        self._race = Race(len(start_vectors), progress, progress + settings.race * (1.0 - progress))
        self._stall.forget_history()
        self._begun = progress

    def _make_optimiser(self, mean: np.ndarray) -> Optimiser:
        """Return a new optimiser whose search starts at the given mean (size,)."""
        settings = self.settings
        return make_optimiser(
            settings.optimiser, mean, settings.sigma, settings.population, **settings.options
        )

    @property
    def progress(self) -> float:
        """Return the finished share (0..1) of the run."""
        return 1.0 if self._reached else min(1.0, self._used_share_of_limits)

    @property
    def _used_share_of_limits(self) -> float:
        """Return the used share of the run's time limit; without one, of its number of generations.

        The share may exceed 1.
        """
        if self.settings.minutes:
            return self._seconds / (60.0 * self.settings.minutes)
        return self.generation / self.settings.generations

    @property
    def total_step_calls(self) -> int:
        """Return the number of generations of the whole run; each is one step of the run loop.

        With a time limit this number is not known before the run ends. Until then, the number of
        finished generations plus one is returned.
        """
        if self.settings.minutes or self._reached:
            return self.generation + (self.progress < 1.0)
        return self.settings.generations

    @property
    def distribution_mean(self) -> np.ndarray:
        """Return the mean (size,) of the distribution from which the search draws policies.

        During a race several searches compete. The mean is then that of the one that was best in
        the last validation.
        """
        return self._scales * self._contenders[0].centre

    @property
    def config(self) -> dict[str, Any]:
        """Return the settings that identify the run, for its `config.json`."""
        return {
            "task": self._task.to_header(),
            "seed": self.seed,
            "form": repr(self._form),
            "settings": {
                **asdict(self.settings),
                # Words name only what is disturbed, so a run outlives later disturbances.
                "mixture": [str(disturbance) for disturbance in self.settings.mixture],
            },
            "start": None if self._start is None else self._start.tolist(),
        }

    def make_model(self, run: Mapping[str, Any] = NO_FIGURES) -> Model:
        """Return the policy that the mean of the search distribution describes.

        Args:
            run: Facts about the training run to store in the model file's header, such as
                {"generations": 300, "wall_s": 81.5}.
        """
        settings = self.settings
        trained = {
            "how": f"{settings.optimiser} on the return",
            "seed": self.seed,
            "population": settings.population,
            "rollouts": settings.rollouts,
            "sigma": settings.sigma,
            "steps": self._played,
            **run,
        }
        return self._form.make_model(self.distribution_mean, self._task, trained)

    def play_evaluation_episodes(
        self, model: Model, seed: int, episodes: int, disturbance: DisturbanceSettings
    ) -> np.ndarray:
        """Play the episodes of an evaluation with a model, and return their returns (episodes,).

        Args:
            model: The model.
            seed: Seed of the evaluation.
            episodes: Number of episodes.
            disturbance: Disturbance of the readings.
        """
        starts = make_evaluation_seeds(seed, episodes)
        return self._engine.play([model], starts, disturbance).returns[0]

    def step(self) -> dict[str, Any]:
        """Play one generation and update the search, and return the generation's metrics by name.

        Raises:
            RolloutError: All candidates failed.
        """
        begin, settings, race = time.perf_counter(), self.settings, self._race
        rng = np.random.default_rng([self.seed, self.generation])
        optimiser = self._contenders[race.turn]
        candidates = optimiser.ask(rng)
        starts = draw_training_seeds(rng, self._episodes.current)
        vectors = candidates * self._scales
        models = self._form.make_models(vectors, self._task, {})
        hints = self._draw_hints(vectors, starts, rng)
        outcomes = play_episodes_under_mixed_disturbances(
            self._engine, models, starts, settings.mixture, hints
        )
        episodes = drop_episodes_that_all_candidates_failed(outcomes.returns)
        returns = average_returns_of_candidates(episodes)
        if not np.isfinite(returns).any():
            raise RolloutError(
                f"every candidate of generation {self.generation} failed: {outcomes.failure}"
            )
        if outcomes.failure:
            OUTPUT.add_note(f"an episode failed and is left out: {outcomes.failure}", "failure")
        fitness = returns - settings.decay * (candidates**2).sum(axis=1)
        optimiser.tell(fitness, (self.progress - self._begun) / (1.0 - self._begun))
        self.generation += 1
        played = int(outcomes.steps.sum())
        self._played += played
        self._seconds += time.perf_counter() - begin
        line: dict[str, Any] = {
            "best": float(np.nanmax(returns)),
            "mean": float(np.nanmean(returns)),
            "sigma": optimiser.sigma,
            "length": float(np.linalg.norm(self._scales * optimiser.centre)),
            "steps": self._played,
            "failed": int(np.isnan(outcomes.returns).sum()),
            "steps_per_s": round(played / (time.perf_counter() - begin)),
        }
        if self._hinted is not None:
            line["hints"] = compute_identity_hint_probability(self.progress)
        if settings.starts:
            line |= {"rollouts": self._episodes.current, "starts": race.count}
        begin = time.perf_counter()
        line |= self._choose_next_search_and_validate(episodes)
        self._seconds += time.perf_counter() - begin
        return line

    def _choose_next_search_and_validate(self, returns: np.ndarray) -> dict[str, Any]:
        """Choose the search that plays the next generation, and validate if that is due.

        In a race it is the turn of the next contender. After a race the only search goes on, or, if
        it has stalled, competes with new random starts.
        """
        race, last = self._race, self.generation >= self.total_step_calls
        if not race.is_over:
            if race.pass_turn_and_check_elimination_due(self.progress) or last:
                return self._validate_and_halve_contenders()
            return {}
        self._stall.count_generation_if_returns_equal(returns)
        if self.settings.max_rollouts:
            self._episodes.adapt_count_to_return_noise(returns)
        if self.generation % self.settings.validate_every and not last:
            return {}
        best = self._contenders[0]
        line, score, error = self._validate_contender(best)
        if self._hinted is not None:
            return line
        why = self._stall.record_validation_and_explain_stall(
            best.sigma, score, error, self.progress
        )
        if why and self.settings.starts > 1 and not last:
            self._restarts += 1
            self._start_race([best.centre], self.progress)
            line["note"] = f"stalled ({why}): races against new starts"
        return line

    def _validate_and_halve_contenders(self) -> dict[str, Any]:
        """Validate all searches of the race, and drop the worse half of them."""
        found = [self._validate_contender(contender) for contender in self._contenders]
        kept = self._race.keep_better_half([one.score for one in found])
        self._contenders = [self._contenders[contender] for contender in kept]
        return found[kept[0]].line

    def make_checkpoint(self) -> dict[str, Any]:
        """Return the run's checkpoint, from which `restore` continues."""
        return {
            "contenders": [one.make_checkpoint() for one in self._contenders],
            "race": self._race.make_checkpoint(),
            "episodes": self._episodes.make_checkpoint(),
            "stall": self._stall.make_checkpoint(),
            "restarts": self._restarts,
            "begun": self._begun,
            "share": self._used_share_of_limits,
            "seconds": self._seconds,
            "reached": self._reached,
            "generation": self.generation,
            "played": self._played,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint that `make_checkpoint` returned."""
        size = self._form.vector_size
        self._contenders = [self._make_optimiser(np.zeros(size)) for _ in state["contenders"]]
        for optimiser, its in zip(self._contenders, state["contenders"], strict=True):
            optimiser.restore(its)
        self._race.restore(state["race"])
        self._episodes.restore(state["episodes"])
        self._stall.restore(state["stall"])
        self._restarts, self._begun = state["restarts"], state["begun"]
        self._seconds = state["seconds"]
        self._reached = state["reached"]
        self.generation, self._played = state["generation"], state["played"]
        if state["share"]:  # the run may have another length now
            ratio = self._used_share_of_limits / state["share"]
            self._begun *= ratio
            self._race.rescale_elimination_times(ratio)
            self._stall.rescale_validation_times(ratio)

    def _draw_hints(
        self, vectors: np.ndarray, starts: Sequence[EpisodeSeeds], rng: np.random.Generator
    ) -> IdentityHints | None:
        """Draw a generation's hints for candidates (P, size); None if the search gives none."""
        share = compute_identity_hint_probability(self.progress)
        if self._hinted is None or share == 0.0:
            return None
        return self._hinted.draw_identity_hints(vectors, share, len(starts), rng)

    def _validate_contender(self, contender: Optimiser) -> SearchValidation:
        """Validate one search with the policy at the mean of its distribution."""
        settings = self.settings
        model = self._form.make_model(self._scales * contender.centre, self._task, {})
        returns = np.array(
            [
                self.play_evaluation_episodes(
                    model, VALIDATION_SEED, settings.validation_episodes, disturbance
                )
                for disturbance in settings.mixture
            ]
        )
        means = {"validation": compute_mean_return(returns)}
        if settings.score is not None and means["validation"] >= settings.score:
            self._reached = True
        if len(returns) > 1:
            for disturbance, part in zip(settings.mixture, returns, strict=True):
                means[f"validation {disturbance}"] = compute_mean_return(part)
        shares = {}
        if settings.success is not None:
            shares["success_share"] = float((returns > settings.success).mean())
        if failed := count_failed_episodes(returns):
            shares["validation_failed"] = failed
        if self._hinted is not None and compute_identity_hint_probability(self.progress) > 0.0:
            means["hinted"] = self._measure_return_with_hints(model, contender)
        line = {name: value for name, value in means.items() if value != -np.inf} | shares
        score = means.get("hinted", means["validation"])
        return SearchValidation(line, score, compute_standard_error(returns))

    def _measure_return_with_hints(self, model: Model, contender: Optimiser) -> float:
        """Play the validation episodes with hints, and return the policy's mean return.

        The hints are those that the search gives at the present state of the run.
        """
        settings = self.settings
        starts = make_evaluation_seeds(VALIDATION_SEED, settings.validation_episodes)
        vectors = (self._scales * contender.centre)[None]
        hints = self._draw_hints(vectors, starts, np.random.default_rng(VALIDATION_SEED))
        outcomes = play_episodes_under_mixed_disturbances(
            self._engine, [model], starts, settings.mixture, hints
        )
        return compute_mean_return(outcomes.returns)


def play_episodes_under_mixed_disturbances(
    engine: RolloutEngine,
    models: Sequence[Model],
    starts: Sequence[EpisodeSeeds],
    mixture: Mixture,
    hints: IdentityHints | None = None,
) -> Outcomes:
    """Play the same episodes with every model, each episode under one of several disturbances.

    Args:
        engine: Engine that plays the episodes.
        models: The policies.
        starts: Seeds of the episodes.
        mixture: Disturbances among which the episodes are divided evenly.
        hints: Codes that tell the network of each channel which channel it reads; None for no
            hints. Only a `FusedEngine` supports them.

    Returns:
        The results of all models in all episodes, with the episodes in the order of `starts`.
    """

    def play_episode_range(begin: int, end: int, disturbance: DisturbanceSettings) -> Outcomes:
        if hints is None:
            return engine.play(models, starts[begin:end], disturbance)
        assert isinstance(engine, FusedEngine)
        part = hints._replace(hinted=hints.hinted[begin:end])
        return engine.play(models, starts[begin:end], disturbance, part)

    ends = [len(starts) * i // len(mixture) for i in range(len(mixture) + 1)]
    parts = [
        play_episode_range(begin, end, disturbance)
        for (begin, end), disturbance in zip(pairwise(ends), mixture, strict=True)
    ]
    return Outcomes(
        np.concatenate([part.returns for part in parts], axis=1),
        np.concatenate([part.steps for part in parts], axis=1),
        next((part.failure for part in parts if part.failure), None),
    )
