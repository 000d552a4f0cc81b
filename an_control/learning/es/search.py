"""Search for a policy by its return alone, with an evolution strategy: ask, play, tell.

One step is a generation: the optimiser proposes candidate policies (ask), all candidates play the
same episodes (common random numbers), and the optimiser gets their returns (tell). A generation
follows from the run's seed, its number, and the state before it. A candidate whose rollouts failed
gets the worst rank; an episode that failed for all candidates is left out. Every `validate_every`
generations the mean of the search plays the validation episodes, which training never uses.

Without a start model a search begins at random weights: at zeros no single weight changes an
action. Results depend more on the random start than on any setting, so several starts race and the
best one continues. A search that stalls races against new starts. The number of episodes follows
the noise of the returns.

Hints help a policy to learn to identify its channels. A policy that knows its channels is found
quickly; one that must identify them is hardly found, since identifying is worth nothing until the
policy also balances. So each channel gets a code, a vector that its sensory neuron adds to its
gates and that is searched like the weights. At first all neurons get their code, then each gets it
in a falling share of the episodes, in the end none does: the result is a policy without hints.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from an_control.disturbance import DisturbanceSettings
from an_control.learning.es.optimisers import (
    Optimiser,
    OptimiserName,
    make_optimiser,
    rank_failed_last,
)
from an_control.learning.es.parametrisation import Authors, PolicyForm
from an_control.learning.rollout.compiled.engine import FusedEngine, IdentityHints
from an_control.learning.rollout.engine import (
    NO_DISTURBANCE,
    EpisodeStart,
    Outcomes,
    RolloutEngine,
    RolloutError,
    draw_training_starts,
    make_evaluation_starts,
)
from an_control.learning.runs.card import (
    compute_mean_return,
    compute_standard_error,
    count_failures,
    drop_unplayable_episodes,
)
from an_control.learning.runs.run_loop import NO_FIGURES
from an_control.policy import AttentionSizes, Model
from an_control.policy.sizes import Shapes
from an_control.policy.task import Task
from an_control.system.environment_output import OUTPUT

ALL_UNTIL, NONE_FROM = 0.2, 0.6
"""Progress (0..1) of the run until which all neurons get their code, and from which none does."""
CODE_SCALE = 0.5
"""Usual size of a code's numbers."""


@dataclass(frozen=True)
class Hinted(PolicyForm):
    """Parametrisation with a code for each channel that tells its sensory neuron the channel.

    Attributes:
        own: Parametrisation of the policy itself.
        channels: Number of channels.
    """

    own: Authors
    channels: int

    def __post_init__(self) -> None:
        if self.own.stack:
            raise ValueError("hints: need neurons with an LSTM (stack 0)")

    @property
    def sizes(self) -> AttentionSizes:
        """Return the sizes that all policies of this family have."""
        return self.own.sizes

    @property
    def shapes(self) -> Shapes:
        """Return names and shapes of the free arrays: those of the policy, and the codes."""
        return {**self.own.shapes, "codes": (self.channels, 4 * self.own.neuron)}

    @property
    def scales(self) -> np.ndarray:
        """Return the usual magnitude of each element of a vector (size,)."""
        codes = np.full(self.size - self.own.size, CODE_SCALE)
        return np.concatenate([self.own.scales, codes])

    def to_arrays(self, free: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute the arrays of model files for P policies, without the codes.

        Args:
            free: Free arrays (P, ...) by name; this changes the dict.
        """
        del free["codes"]
        return self.own.to_arrays(free)

    def to_vector(self, model: Model) -> np.ndarray:
        """Return the vector (size,) that describes a policy, with zeros as the channels' codes."""
        own = self.own.to_vector(model)
        return np.concatenate([own, np.zeros(self.size - len(own))])

    def make_hints(
        self, vectors: np.ndarray, share: float, episodes: int, rng: np.random.Generator
    ) -> IdentityHints:
        """Draw which of the channels' networks (sensory neurons) get their channel's code.

        Args:
            vectors: Vectors (P, size) of P policies with their codes.
            share: Share (0..1) of the episodes in which each channel's neuron gets its code.
            episodes: Number of episodes.
            rng: Source of random numbers.
        """
        codes = vectors[:, self.own.size :].reshape(-1, *self.shapes["codes"])
        hinted = rng.random((episodes, self.channels)) < share
        return IdentityHints(np.ascontiguousarray(codes, np.float32), hinted.astype(np.float32))


def compute_hinted_share(progress: float) -> float:
    """Return the share of the episodes in which a channel's network gets the code of its channel.

    Args:
        progress: Finished share (0..1) of the run.
    """
    return float(np.clip((NONE_FROM - progress) / (NONE_FROM - ALL_UNTIL), 0.0, 1.0))


MIN_RELIABLE, MAX_RELIABLE = 0.5, 0.9
"""Bounds of the share of the variance between candidates that is not noise. Below the first, more
episodes are played; above the second, fewer."""
MEMORY = 10
"""Generations over which that share is averaged."""
MIN_VALIDATIONS = 20
"""Minimum number of validations without improvement after which a search has stalled."""
PATIENCE = 0.2
"""Minimum share of the run without improvement after which a search has stalled. Late improvements
take long, since the mean's learning rate falls. A third of all validations is a minimum too."""
MIN_SIGMA = 1e-3
"""Share of the initial standard deviation below which a search has stalled."""
MAX_EQUAL = 10
"""Generations in a row in which all candidates return the same, after which a search has stalled.
"""


class Race:
    """Race between searches from several starts, by successive halving (Karnin et al. 2013).

    The contenders, one search for each start, take turns of one generation. At equal intervals of
    the race's time the worse half is dropped, until one contender is left.

    Args:
        count: Number of contenders at the start.
        begin: Progress (0..1) of the run at the start of the race.
        end: Progress of the run at its end.
    """

    def __init__(self, count: int, begin: float, end: float) -> None:
        self.count, self.turn = count, 0
        halvings = math.ceil(math.log2(count))
        self._ends = np.linspace(begin, end, halvings + 1)[1:].tolist()

    @property
    def is_over(self) -> bool:
        """Return whether the race is over, as only one contender is left."""
        return self.count == 1

    def pass_turn(self, progress: float) -> bool:
        """Give the next contender its turn.

        Args:
            progress: Finished share (0..1) of the run.

        Returns:
            Whether it is time to call `keep_better_half`.
        """
        self.turn = (self.turn + 1) % self.count
        return not self.is_over and self.turn == 0 and progress >= self._ends[0]

    def keep_better_half(self, scores: Sequence[float]) -> list[int]:
        """Drop the worse half of the contenders.

        Args:
            scores: Score of each contender; NaN counts as worst.

        Returns:
            Indices of the contenders that are kept, the best first.
        """
        ranks = rank_failed_last(np.array(scores))
        ranked = sorted(range(self.count), key=lambda contender: -ranks[contender])
        self.count, self.turn = math.ceil(self.count / 2), 0
        self._ends = self._ends[1:]
        return ranked[: self.count]

    def rescale(self, ratio: float) -> None:
        """Multiply the times of the race by `ratio`, when the run gets a new length."""
        self._ends = [ratio * end for end in self._ends]

    def make_checkpoint(self) -> dict[str, Any]:
        """Return the race's state as plain values, from which `restore` continues."""
        return {"count": self.count, "turn": self.turn, "ends": self._ends}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint that `make_checkpoint` returned."""
        self.count, self.turn, self._ends = state["count"], state["turn"], list(state["ends"])


class EpisodeCount:
    """Number of episodes that each candidate plays, adapted to the noise of the returns.

    The number is doubled if noise decides the candidates' ranks, and halved if it has little
    effect. All candidates play the same episodes, so the residual of the returns (P, R) after
    subtracting candidate means and episode means is noise. The variance between the candidates'
    means, less the noise in it, is their true difference.

    Args:
        min_count: Number of episodes at the start, and the minimum.
        max_count: Maximum number of episodes.
    """

    def __init__(self, min_count: int, max_count: int) -> None:
        self._least, self._most = min_count, max(min_count, max_count)
        self.current = min_count
        self.reliable: float | None = None

    def adapt(self, returns: np.ndarray) -> None:
        """Adapt the number of episodes to the noise in the returns of a generation.

        Args:
            returns: Returns (P, R) of P candidates in R episodes; candidates with NaN are left out.
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
        """Return the state as plain values, from which `restore` continues."""
        return {"now": self.current, "reliable": self.reliable}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint that `make_checkpoint` returned."""
        self.current, self.reliable = state["now"], state["reliable"]


class StallDetector:
    """Detector that says when a search makes no further progress.

    Args:
        first_sigma: Initial standard deviation of the search distribution.
    """

    def __init__(self, first_sigma: float) -> None:
        self._min_sigma = MIN_SIGMA * first_sigma
        self.reset()

    def reset(self) -> None:
        """Forget all validations and generations seen so far."""
        self._validations: list[float] = []
        self._progress: list[float] = []
        """Progress (0..1) of the run at each of these validations."""
        self._equal = 0

    def count_equal(self, returns: np.ndarray) -> None:
        """Count how many generations in a row had the same return for all candidates.

        Args:
            returns: Returns (P, R) of the newest generation.
        """
        means = returns.mean(axis=1)
        self._equal = self._equal + 1 if np.ptp(means[np.isfinite(means)]) == 0.0 else 0

    def find_reason(
        self, sigma: float, validation: float, error: float, progress: float
    ) -> str | None:
        """Record a validation and return why the search has stalled, or None if it has not.

        Args:
            sigma: Mean standard deviation of the search distribution.
            validation: Mean return of the validation.
            error: Standard error of this mean.
            progress: Finished share (0..1) of the run.

        Returns:
            The reason as text for a log line.
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

    def rescale(self, ratio: float) -> None:
        """Multiply the recorded progress by `ratio`, when the run gets a new length."""
        self._progress = [ratio * then for then in self._progress]

    def make_checkpoint(self) -> dict[str, Any]:
        """Return the state as plain values, from which `restore` continues."""
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
Curriculum = Callable[[int], Mixture]
"""Function from the number of a generation to its disturbances."""


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a search for a policy by its return."""

    optimiser: OptimiserName = "pgpe"
    """Name of the optimiser."""
    generations: int = 300
    """Generations of the run, if it has no time limit."""
    minutes: float = 0.0
    """Length of the run in minutes of wall-clock time; 0: `generations` decide."""
    score: float | None = None
    """Mean validation return at which the run ends; None: it runs to its end."""
    population: int = 64
    """Candidates of a generation."""
    rollouts: int = 2
    """Episodes of each candidate in a generation."""
    max_rollouts: int = 0
    """Maximum number of episodes of each candidate, where noise decides the ranks; 0: always
    `rollouts`."""
    sigma: float = 0.5
    """Initial standard deviation; without a start model a multiple of `PolicyForm.scales`."""
    starts: int = 0
    """Number of random starts that race; 0: the search begins at the start model, or at zeros."""
    race: float = 0.2
    """Share of the remaining run that a race takes."""
    decay: float = 0.0
    """Weight of a candidate's squared length (of its vector), which is subtracted from its fitness.
    """
    mixture: tuple[DisturbanceSettings, ...] = (NO_DISTURBANCE,)
    """Disturbances among which a generation's episodes are divided evenly, unless a curriculum
    decides. A validation plays all its episodes under each of them."""
    validate_every: int = 10
    """Generations between validations."""
    validation_episodes: int = 100
    """Episodes of a validation."""
    success: float | None = None
    """Return above which an episode counts as a success; None: successes are not counted."""
    options: dict[str, Any] = field(default_factory=dict)
    """Further settings of the optimiser."""


class SearchValidation(NamedTuple):
    """Result of a validation: returns of the search's mean policy in the validation episodes.

    Attributes:
        line: Figures for the metrics. "validation" is the mean return of the episodes that did not
            fail, if any; "validation_failed" is the number of those that did, if any.
        score: Return by which starts are compared; -inf if all episodes failed.
        error: Standard error of this mean return.
    """

    line: dict[str, Any]
    score: float
    error: float


class Search:
    """Trainer that searches for a policy by its return, with an evolution strategy.

    The run loop calls `step` once for each generation.

    Args:
        task: The task for the model file.
        form: Parametrisation of the policies to search.
        engine: Plays the episodes.
        settings: Numbers of generations, candidates and episodes.
        seed: Seed of all random numbers of the run.
        start: Initial mean (form.size,); None for zeros, or random starts.
        curriculum: Function from a generation's number to its disturbances; None for
            `settings.mixture`.

    Raises:
        ValueError: The settings contradict each other, or a form with hints is to be played by an
            engine that is not compiled.
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
        curriculum: Curriculum | None = None,
    ) -> None:
        self._hinted = form if isinstance(form, Hinted) else None
        if self._hinted is not None and not isinstance(engine, FusedEngine):
            raise ValueError("hints: need compiled rollouts (--engine fused)")
        if settings.rollouts < len(settings.mixture):
            raise ValueError(
                f"rollouts {settings.rollouts}: must be {len(settings.mixture)} or more, one for"
                " each disturbance of the mixture"
            )
        self.settings, self.seed = settings, seed
        self._task, self._form, self._engine, self._start = task, form, engine, start
        self._curriculum = curriculum or (lambda generation: settings.mixture)
        self._scales = form.scales if settings.starts else np.ones(form.size)
        self.generation = self._played = self._restarts = 0
        self._seconds, self._reached = 0.0, False
        self._episodes = EpisodeCount(settings.rollouts, settings.max_rollouts)
        self._stall = StallDetector(settings.sigma)
        begin = np.zeros(form.size) if start is None else start
        first = [] if settings.starts else [begin]
        self._start_race(first, 0.0)

    def _start_race(self, means: list[np.ndarray], progress: float) -> None:
        """Start a race of the given means against random ones.

        Args:
            means: Initial means (size,) of the first contenders, in units of `scales`.
            progress: Finished share (0..1) of the run.
        """
        settings = self.settings
        rng = np.random.default_rng([self.seed, 2**31 + self._restarts])
        fresh = max(0, settings.starts - len(means))
        means = means + list(rng.standard_normal((fresh, self._form.size)))
        self._contenders = [self._make_optimiser(mean) for mean in means]
        self._race = Race(len(means), progress, progress + settings.race * (1.0 - progress))
        self._stall.reset()
        self._begun = progress

    def _make_optimiser(self, mean: np.ndarray) -> Optimiser:
        """Return a new optimiser whose search starts at this mean (size,)."""
        settings = self.settings
        return make_optimiser(
            settings.optimiser, mean, settings.sigma, settings.population, **settings.options
        )

    @property
    def progress(self) -> float:
        """Return the finished share (0..1) of the run."""
        return 1.0 if self._reached else min(1.0, self._used_share)

    @property
    def _used_share(self) -> float:
        """Return the used share of the run's length, by time or generations; it may exceed 1."""
        if self.settings.minutes:
            return self._seconds / (60.0 * self.settings.minutes)
        return self.generation / self.settings.generations

    @property
    def steps(self) -> int:
        """Return the number of generations of the run.

        Under a time limit it is one more than done so far.
        """
        if self.settings.minutes or self._reached:
            return self.generation + (self.progress < 1.0)
        return self.settings.generations

    @property
    def mean(self) -> np.ndarray:
        """Return the mean (size,) of the search distribution.

        During a race it is that of the leading contender.
        """
        return self._scales * self._contenders[0].centre

    @property
    def config(self) -> dict[str, Any]:
        """Return the settings that identify the run, for its `config.json`."""
        return {
            "task": self._task.to_header(),
            "seed": self.seed,
            "form": repr(self._form),
            "settings": asdict(self.settings),
            "start": None if self._start is None else self._start.tolist(),
        }

    def make_model(self, run: Mapping[str, Any] = NO_FIGURES) -> Model:
        """Return the policy that the mean of the search distribution describes.

        Args:
            run: Figures of the run to store in the model file's header.
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
        return self._form.make_model(self.mean, self._task, trained)

    def play(
        self, model: Model, seed: int, episodes: int, disturbance: DisturbanceSettings
    ) -> np.ndarray:
        """Return a model's returns (episodes,) in an evaluation.

        Args:
            model: The model.
            seed: Seed of the evaluation.
            episodes: Number of episodes.
            disturbance: Disturbance of the readings.
        """
        starts = make_evaluation_starts(seed, episodes)
        return self._engine.play([model], starts, disturbance).returns[0]

    def step(self) -> dict[str, Any]:
        """Play one generation, update the search, and return the generation's figures by name.

        Raises:
            RolloutError: All candidates failed.
        """
        begin, settings, race = time.perf_counter(), self.settings, self._race
        rng = np.random.default_rng([self.seed, self.generation])
        optimiser = self._contenders[race.turn]
        candidates = optimiser.ask(rng)
        starts = draw_training_starts(rng, self._episodes.current)
        vectors = candidates * self._scales
        models = self._form.make_models(vectors, self._task, {})
        conditions, hints = (
            self._curriculum(self.generation),
            self._draw_hints(vectors, starts, rng),
        )
        outcomes = play_mixture(self._engine, models, starts, conditions, hints)
        episodes = drop_unplayable_episodes(outcomes.returns)
        returns = episodes.mean(axis=1)
        if not np.isfinite(returns).any():
            raise RolloutError(
                f"every candidate of generation {self.generation} failed: {outcomes.failure}"
            )
        if outcomes.failure:
            OUTPUT.note(f"an episode failed and is left out: {outcomes.failure}", "failure")
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
            line["hints"] = compute_hinted_share(self.progress)
        if settings.starts:
            line |= {"rollouts": self._episodes.current, "starts": race.count}
        begin = time.perf_counter()
        line |= self._finish_generation(episodes)
        self._seconds += time.perf_counter() - begin
        return line

    def _finish_generation(self, returns: np.ndarray) -> dict[str, Any]:
        """Choose the next contender, and validate if it is due.

        Args:
            returns: Returns (P, R) of the generation.

        Returns:
            Figures of the validation by name; empty if there was none.
        """
        race, last = self._race, self.generation >= self.steps
        if not race.is_over:
            if race.pass_turn(self.progress) or last:
                return self._halve_contenders()
            return {}
        self._stall.count_equal(returns)
        if self.settings.max_rollouts:
            self._episodes.adapt(returns)
        if self.generation % self.settings.validate_every and not last:
            return {}
        best = self._contenders[0]
        line, score, error = self._validate(best)
        if self._hinted is not None:
            return line
        why = self._stall.find_reason(best.sigma, score, error, self.progress)
        if why and self.settings.starts > 1 and not last:
            self._restarts += 1
            self._start_race([best.centre], self.progress)
            line["note"] = f"stalled ({why}): races against new starts"
        return line

    def _halve_contenders(self) -> dict[str, Any]:
        """Validate all contenders and keep the better half.

        Returns:
            The best contender's figures by name.
        """
        found = [self._validate(contender) for contender in self._contenders]
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
            "share": self._used_share,
            "seconds": self._seconds,
            "reached": self._reached,
            "generation": self.generation,
            "played": self._played,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint that `make_checkpoint` returned."""
        size = self._form.size
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
        before = state.get("share", self._used_share)  # runs from before 2026-11-24 have none
        if before:  # the run may have another length now
            ratio = self._used_share / before
            self._begun *= ratio
            self._race.rescale(ratio)
            self._stall.rescale(ratio)

    def _draw_hints(
        self, vectors: np.ndarray, starts: Sequence[EpisodeStart], rng: np.random.Generator
    ) -> IdentityHints | None:
        """Draw the hints of a generation at the current progress; None if there are none any more.

        Args:
            vectors: Vectors (P, size) of the candidates.
            starts: Seeds of the episodes.
            rng: Source of random numbers.
        """
        share = compute_hinted_share(self.progress)
        if self._hinted is None or share == 0.0:
            return None
        return self._hinted.make_hints(vectors, share, len(starts), rng)

    def _validate(self, contender: Optimiser) -> SearchValidation:
        """Play the mean of one search of the race through the validation episodes."""
        settings = self.settings
        model = self._form.make_model(self._scales * contender.centre, self._task, {})
        returns = np.array(
            [
                self.play(model, VALIDATION_SEED, settings.validation_episodes, disturbance)
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
        if failed := count_failures(returns):
            shares["validation_failed"] = failed
        if self._hinted is not None and compute_hinted_share(self.progress) > 0.0:
            means["hinted"] = self._compute_hinted_return(model, contender)
        line = {name: value for name, value in means.items() if value != -np.inf} | shares
        score = means.get("hinted", means["validation"])
        return SearchValidation(line, score, compute_standard_error(returns))

    def _compute_hinted_return(self, model: Model, contender: Optimiser) -> float:
        """Return a contender's mean return in the validation episodes with the current hints.

        Args:
            model: The policy of the contender's mean.
            contender: The contender.
        """
        settings = self.settings
        starts = make_evaluation_starts(VALIDATION_SEED, settings.validation_episodes)
        vectors = (self._scales * contender.centre)[None]
        hints = self._draw_hints(vectors, starts, np.random.default_rng(VALIDATION_SEED))
        outcomes = play_mixture(self._engine, [model], starts, settings.mixture, hints)
        return compute_mean_return(outcomes.returns)


def play_mixture(
    engine: RolloutEngine,
    models: Sequence[Model],
    starts: Sequence[EpisodeStart],
    mixture: Mixture,
    hints: IdentityHints | None = None,
) -> Outcomes:
    """Play every model through every episode, with the episodes divided among disturbances.

    Args:
        engine: Plays the episodes.
        models: The policies.
        starts: Seeds of the episodes.
        mixture: Disturbances among which the episodes are divided evenly.
        hints: Codes that tell the channels' networks their channels; only a `FusedEngine` takes
            them. None for none.
    """

    def play(begin: int, end: int, disturbance: DisturbanceSettings) -> Outcomes:
        if hints is None:
            return engine.play(models, starts[begin:end], disturbance)
        assert isinstance(engine, FusedEngine)
        part = hints._replace(hinted=hints.hinted[begin:end])
        return engine.play(models, starts[begin:end], disturbance, part)

    ends = [len(starts) * i // len(mixture) for i in range(len(mixture) + 1)]
    parts = [
        play(begin, end, disturbance)
        for (begin, end), disturbance in zip(pairwise(ends), mixture, strict=True)
    ]
    return Outcomes(
        np.concatenate([part.returns for part in parts], axis=1),
        np.concatenate([part.steps for part in parts], axis=1),
        next((part.failure for part in parts if part.failure), None),
    )
