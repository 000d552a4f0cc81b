"""Search for a policy by its return alone: ask, play, tell, generation by generation.

A generation follows from the run's seed, its number and the search's state before it. All its
candidates play the same episodes (common random numbers); a candidate whose rollouts failed takes
the worst rank, but an episode that failed for all of them counts for none. Every `validate_every`
generations the mean plays the validation episodes, which training never uses.

Without a model to start from, a policy begins at random: where all its numbers are zero, no single
one of them changes an action. What a random start leads to differs more than what any setting does,
so several of them race, and the best one continues. A search that has stalled races against new
starts.

What keeps a search from stalling: races of starts, a number of episodes that follows the noise,
and when a search has stalled.

Hints: in training, neurons are told which channel they read; ever fewer of them, then none.

A policy that knows its channels is found quickly, one that has to find them out hardly ever: until
it balances, what tells channels apart is worth nothing. So each channel has a code, searched like
the weights, that its neuron adds to its gates. First all neurons get theirs; then each gets it in a
falling share of the episodes, so that a neuron without it learns among others that do their work.
At the end there are no codes left: the policy is one of the form without hints.
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
from an_control.learning.es.optimisers import Name, Optimiser, finite, make_optimiser
from an_control.learning.es.parametrisation import Authors, Form
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
    count_failures,
    drop_unplayable_episodes,
    mean_return,
    standard_error,
)
from an_control.learning.runs.run_loop import NO_FIGURES
from an_control.policy import AttentionSizes, Model
from an_control.policy.sizes import Shapes
from an_control.system.environment_output import OUTPUT

ALL_UNTIL, NONE_FROM = 0.2, 0.6
"""Shares of the run: until when all neurons are told, and from when on none."""
CODE_SCALE = 0.5
"""How large a code's numbers usually are."""


@dataclass(frozen=True)
class Hinted(Form):
    """The form `own`, and a code for each of its task's channels."""

    own: Authors
    channels: int

    def __post_init__(self) -> None:
        if self.own.stack:
            raise ValueError("hints: only neurons with an LSTM take them")

    @property
    def sizes(self) -> AttentionSizes:
        return self.own.sizes

    @property
    def shapes(self) -> Shapes:
        return {**self.own.shapes, "codes": (self.channels, 4 * self.own.neuron)}

    @property
    def scales(self) -> np.ndarray:
        codes = np.full(self.size - self.own.size, CODE_SCALE)
        return np.concatenate([self.own.scales, codes])

    def arrays(self, free: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Without the codes: a model has none."""
        del free["codes"]
        return self.own.arrays(free)

    def vector(self, model: Model) -> np.ndarray:
        """With codes of zeros."""
        own = self.own.vector(model)
        return np.concatenate([own, np.zeros(self.size - len(own))])

    def hints(
        self, vectors: np.ndarray, share: float, episodes: int, rng: np.random.Generator
    ) -> IdentityHints:
        """For policies (P, size): each channel's neuron is told in this share of the episodes."""
        codes = vectors[:, self.own.size :].reshape(-1, *self.shapes["codes"])
        told = rng.random((episodes, self.channels)) < share
        return IdentityHints(np.ascontiguousarray(codes, np.float32), told.astype(np.float32))


def share_at(progress: float) -> float:
    """In what share of the episodes a neuron is told, at this progress (0 to 1) of the run."""
    return float(np.clip((NONE_FROM - progress) / (NONE_FROM - ALL_UNTIL), 0.0, 1.0))


MIN_RELIABLE, MAX_RELIABLE = 0.5, 0.9
"""Of the variance between candidates, the share that is theirs: with less more episodes are played,
with more fewer."""
MEMORY = 10
"""Generations over which that share is averaged."""
MIN_VALIDATIONS = 20
PATIENCE = 0.2
"""A search is given so many validations without a new best one, a third of all, and this share of
the run: the mean learns ever more slowly, so late gains take long."""
MIN_SIGMA = 1e-3
"""Of the first standard deviation."""
MAX_EQUAL = 10
"""Generations in a row in which all candidates return the same."""


class Race:
    """Successive halving (Karnin et al. 2013): contenders take turns, a generation each, and at
    even shares of the race's time the worse half leaves, until one is left.

    Args:
        count: how many contenders begin.
        begin, end: when, as a share of the run (0 to 1).
    """

    def __init__(self, count: int, begin: float, end: float) -> None:
        self.count, self.turn = count, 0
        halvings = math.ceil(math.log2(count))
        self._ends = np.linspace(begin, end, halvings + 1)[1:].tolist()

    @property
    def over(self) -> bool:
        return self.count == 1

    def next(self, progress: float) -> bool:
        """The next one's turn; whether it is time to `halve`: all have had as many."""
        self.turn = (self.turn + 1) % self.count
        return not self.over and self.turn == 0 and progress >= self._ends[0]

    def halve(self, scores: Sequence[float]) -> list[int]:
        """Who is left by these scores, the best first; NaN, of episodes that failed, is last."""
        ranks = finite(np.array(scores))
        ranked = sorted(range(self.count), key=lambda contender: -ranks[contender])
        self.count, self.turn = math.ceil(self.count / 2), 0
        self._ends = self._ends[1:]
        return ranked[: self.count]

    def rescale(self, ratio: float) -> None:
        """The run has another length: what was at a share of it is at `ratio` times that now."""
        self._ends = [ratio * end for end in self._ends]

    def state(self) -> dict[str, Any]:
        return {"count": self.count, "turn": self.turn, "ends": self._ends}

    def restore(self, state: dict[str, Any]) -> None:
        self.count, self.turn, self._ends = state["count"], state["turn"], list(state["ends"])


class EpisodeCount:
    """How many episodes each candidate plays: twice as many where chance decides the ranks, half as
    many where it hardly does.

    All candidates play the same episodes. So of the returns (P, R), what is left without the
    candidates' and the episodes' means is noise; the variance between candidates' means, without
    what that noise gives to it, is theirs.
    """

    def __init__(self, least: int, most: int) -> None:
        self._least, self._most = least, max(least, most)
        self.now = least
        self.reliable: float | None = None

    def see(self, returns: np.ndarray) -> None:
        """A generation's returns (P, R); rows with a NaN say nothing."""
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
        if self.reliable < MIN_RELIABLE and 2 * self.now <= self._most:
            self.now, self.reliable = 2 * self.now, None
        elif self.reliable > MAX_RELIABLE and self.now // 2 >= self._least:
            self.now, self.reliable = self.now // 2, None

    def state(self) -> dict[str, Any]:
        return {"now": self.now, "reliable": self.reliable}

    def restore(self, state: dict[str, Any]) -> None:
        self.now, self.reliable = state["now"], state["reliable"]


class Stall:
    """Knows a search that will not get further."""

    def __init__(self, first_sigma: float) -> None:
        self._min_sigma = MIN_SIGMA * first_sigma
        self.start_over()

    def start_over(self) -> None:
        self._validations: list[float] = []
        self._progress: list[float] = []
        """Of the run, at each of these validations."""
        self._equal = 0

    def see(self, returns: np.ndarray) -> None:
        """A generation's returns (P, R); rows with a NaN say nothing."""
        means = returns.mean(axis=1)
        self._equal = self._equal + 1 if np.ptp(means[np.isfinite(means)]) == 0.0 else 0

    def found(self, sigma: float, validation: float, error: float, progress: float) -> str | None:
        """Why the search has stalled, or None: its sigma, a validation with its standard error, and
        the run's progress (0 to 1)."""
        self._validations.append(-math.inf if math.isnan(validation) else validation)
        self._progress.append(progress)
        if self._equal >= MAX_EQUAL:
            return f"all candidates return the same in {self._equal} generations"
        if sigma < self._min_sigma:
            return f"sigma {sigma:.2g} is below {self._min_sigma:.2g}"
        lately = sum(then > progress - PATIENCE for then in self._progress)
        waited = max(MIN_VALIDATIONS, len(self._validations) // 3, lately)
        before, after = self._validations[:-waited], self._validations[-waited:]
        if before and max(after) <= max(before) + error:
            return f"no better validation in {waited}"
        return None

    def rescale(self, ratio: float) -> None:
        """See `Race.rescale`."""
        self._progress = [ratio * then for then in self._progress]

    def state(self) -> dict[str, Any]:
        validations = {"validations": self._validations, "progress": self._progress}
        return {**validations, "equal": self._equal}

    def restore(self, state: dict[str, Any]) -> None:
        self._validations, self._equal = list(state["validations"]), state["equal"]
        self._progress = list(state["progress"])


VALIDATION_SEED = 2**20 + 7
"""Of the validation episodes; evaluations take others."""
Mixture = Sequence[DisturbanceSettings]
"""Conditions that share the episodes evenly."""
Curriculum = Callable[[int], Mixture]
"""The conditions of a generation, by its number."""


@dataclass(frozen=True)
class SearchSettings:
    """A run's numbers."""

    optimiser: Name = "pgpe"
    generations: int = 300
    minutes: float = 0.0
    """How long the run takes; 0: as many generations as there are."""
    score: float | None = None
    """Ends where a validation's mean return is this high; None: it does not matter."""
    population: int = 64
    rollouts: int = 2
    max_rollouts: int = 0
    """Where chance decides the ranks, up to so many episodes; 0: always `rollouts`."""
    sigma: float = 0.5
    """Without a start relative to `Form.scales`."""
    starts: int = 0
    """How many random starts race; 0: the mean begins at the start, or at zeros."""
    race: float = 0.2
    """The race's share of the time that is left."""
    decay: float = 0.0
    """Times the squared length of a candidate is taken from its fitness."""
    mixture: tuple[DisturbanceSettings, ...] = (NO_DISTURBANCE,)
    """Each is that of as many episodes, where no curriculum says otherwise; validation plays all
    its episodes under each of them."""
    validate_every: int = 10
    validation_episodes: int = 100
    success: float | None = None
    """The return that counts as a success."""
    options: dict[str, Any] = field(default_factory=dict)
    """Further settings of the optimiser."""


class Validation(NamedTuple):
    """What a mean made of the validation episodes."""

    line: dict[str, Any]
    """For the metrics: "validation" is the mean of the episodes that did not fail, if any, and
    "validation_failed" how many did, if any."""
    score: float
    """By which starts are compared; -inf where all episodes failed."""
    error: float
    """The standard error of the mean."""


class Search:
    """A search as the run loop takes it: a step is a generation."""

    unit = "generation"

    def __init__(
        self,
        task: dict[str, Any],
        form: Form,
        engine: RolloutEngine,
        settings: SearchSettings,
        seed: int,
        start: np.ndarray | None = None,
        curriculum: Curriculum | None = None,
    ) -> None:
        """`start` (form.size,) is the first mean; ValueError for bad settings, and for a form with
        hints where rollouts are not compiled."""
        self._hinted = form if isinstance(form, Hinted) else None
        if self._hinted is not None and not isinstance(engine, FusedEngine):
            raise ValueError("hints: only compiled rollouts can give them")
        if settings.rollouts < len(settings.mixture):
            raise ValueError(
                f"rollouts {settings.rollouts}: must be {len(settings.mixture)} or more, one for"
                " each of the conditions"
            )
        self.settings, self.seed = settings, seed
        self._task, self._form, self._engine, self._start = task, form, engine, start
        self._curriculum = curriculum or (lambda generation: settings.mixture)
        self._scales = form.scales if settings.starts else np.ones(form.size)
        self.generation = self._played = self._restarts = 0
        self._seconds, self._reached = 0.0, False
        self._episodes = EpisodeCount(settings.rollouts, settings.max_rollouts)
        self._stall = Stall(settings.sigma)
        begin = np.zeros(form.size) if start is None else start
        first = [] if settings.starts else [begin]
        self._race_from(first, 0.0)

    def _race_from(self, means: list[np.ndarray], progress: float) -> None:
        """These means (size,), in scaled numbers, race with random ones."""
        settings = self.settings
        rng = np.random.default_rng([self.seed, 2**31 + self._restarts])
        fresh = max(0, settings.starts - len(means))
        means = means + list(rng.standard_normal((fresh, self._form.size)))
        self._contenders = [self._optimiser_at(mean) for mean in means]
        self._race = Race(len(means), progress, progress + settings.race * (1.0 - progress))
        self._stall.start_over()
        self._begun = progress

    def _optimiser_at(self, mean: np.ndarray) -> Optimiser:
        settings = self.settings
        return make_optimiser(
            settings.optimiser, mean, settings.sigma, settings.population, **settings.options
        )

    @property
    def progress(self) -> float:
        """How much of the run is over, from 0 to 1."""
        return 1.0 if self._reached else min(1.0, self._share)

    @property
    def _share(self) -> float:
        """How much of the run's length is used, also where it is more than all."""
        if self.settings.minutes:
            return self._seconds / (60.0 * self.settings.minutes)
        return self.generation / self.settings.generations

    @property
    def steps(self) -> int:
        if self.settings.minutes or self._reached:
            return self.generation + (self.progress < 1.0)
        return self.settings.generations

    @property
    def mean(self) -> np.ndarray:
        """The search distribution's mean: in a race that of the contender that was best last."""
        return self._scales * self._contenders[0].centre

    @property
    def config(self) -> dict[str, Any]:
        """What decides the run, for its folder."""
        return {
            "task": self._task,
            "seed": self.seed,
            "form": repr(self._form),
            "settings": asdict(self.settings),
            "start": None if self._start is None else self._start.tolist(),
        }

    def model(self, run: Mapping[str, Any] = NO_FIGURES) -> Model:
        """The policy of the mean."""
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
        return self._form.model(self.mean, self._task, trained)

    def play(
        self, model: Model, seed: int, episodes: int, disturbance: DisturbanceSettings
    ) -> np.ndarray:
        """The returns (episodes,) of an evaluation."""
        starts = make_evaluation_starts(seed, episodes)
        return self._engine.play([model], starts, disturbance).returns[0]

    def step(self) -> dict[str, Any]:
        """One generation. RolloutError where all its candidates failed."""
        begin, settings, race = time.perf_counter(), self.settings, self._race
        rng = np.random.default_rng([self.seed, self.generation])
        optimiser = self._contenders[race.turn]
        candidates = optimiser.ask(rng)
        starts = draw_training_starts(rng, self._episodes.now)
        vectors = candidates * self._scales
        models = self._form.models(vectors, self._task, {})
        conditions, hints = self._curriculum(self.generation), self._hints(vectors, starts, rng)
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
            line["hints"] = share_at(self.progress)
        if settings.starts:
            line |= {"rollouts": self._episodes.now, "starts": race.count}
        begin = time.perf_counter()
        line |= self._continue(episodes)
        self._seconds += time.perf_counter() - begin
        return line

    def _continue(self, returns: np.ndarray) -> dict[str, Any]:
        """What follows a generation with these returns (P, R): who is next, and a validation where
        it is time for one."""
        race, last = self._race, self.generation >= self.steps
        if not race.over:
            if race.next(self.progress) or last:
                return self._halve()
            return {}
        self._stall.see(returns)
        if self.settings.max_rollouts:
            self._episodes.see(returns)
        if self.generation % self.settings.validate_every and not last:
            return {}
        best = self._contenders[0]
        line, score, error = self._validate(best)
        if self._hinted is not None:
            return line
        why = self._stall.found(best.sigma, score, error, self.progress)
        if why and self.settings.starts > 1 and not last:
            self._restarts += 1
            self._race_from([best.centre], self.progress)
            line["note"] = f"stalled, {why}: it races against new starts"
        return line

    def _halve(self) -> dict[str, Any]:
        """Validate all that race, and continue with the better half; the figures of the best."""
        found = [self._validate(contender) for contender in self._contenders]
        kept = self._race.halve([one.score for one in found])
        self._contenders = [self._contenders[contender] for contender in kept]
        return found[kept[0]].line

    def state(self) -> dict[str, Any]:
        return {
            "contenders": [one.state() for one in self._contenders],
            "race": self._race.state(),
            "episodes": self._episodes.state(),
            "stall": self._stall.state(),
            "restarts": self._restarts,
            "begun": self._begun,
            "share": self._share,
            "seconds": self._seconds,
            "reached": self._reached,
            "generation": self.generation,
            "played": self._played,
        }

    def restore(self, state: dict[str, Any]) -> None:
        size = self._form.size
        self._contenders = [self._optimiser_at(np.zeros(size)) for _ in state["contenders"]]
        for optimiser, its in zip(self._contenders, state["contenders"], strict=True):
            optimiser.restore(its)
        self._race.restore(state["race"])
        self._episodes.restore(state["episodes"])
        self._stall.restore(state["stall"])
        self._restarts, self._begun = state["restarts"], state["begun"]
        self._seconds = state["seconds"]
        self._reached = state["reached"]
        self.generation, self._played = state["generation"], state["played"]
        before = state.get("share", self._share)  # runs from before 2026-11-24 have none
        if before:  # the run may have another length now
            ratio = self._share / before
            self._begun *= ratio
            self._race.rescale(ratio)
            self._stall.rescale(ratio)

    def _hints(
        self, vectors: np.ndarray, starts: Sequence[EpisodeStart], rng: np.random.Generator
    ) -> IdentityHints | None:
        """What these policies' neurons are told at this progress; None in other forms."""
        share = share_at(self.progress)
        if self._hinted is None or share == 0.0:
            return None
        return self._hinted.hints(vectors, share, len(starts), rng)

    def _validate(self, contender: Optimiser) -> Validation:
        """Its mean in the validation episodes, under each of the conditions."""
        settings = self.settings
        model = self._form.model(self._scales * contender.centre, self._task, {})
        returns = np.array(
            [
                self.play(model, VALIDATION_SEED, settings.validation_episodes, disturbance)
                for disturbance in settings.mixture
            ]
        )
        means = {"validation": mean_return(returns)}
        if settings.score is not None and means["validation"] >= settings.score:
            self._reached = True
        if len(returns) > 1:
            for disturbance, part in zip(settings.mixture, returns, strict=True):
                means[f"validation {disturbance}"] = mean_return(part)
        shares = {}
        if settings.success is not None:
            shares["success_share"] = float((returns > settings.success).mean())
        if failed := count_failures(returns):
            shares["validation_failed"] = failed
        if self._hinted is not None and share_at(self.progress) > 0.0:
            means["hinted"] = self._told(model, contender)
        line = {name: value for name, value in means.items() if value != -np.inf} | shares
        score = means.get("hinted", means["validation"])
        return Validation(line, score, standard_error(returns))

    def _told(self, model: Model, contender: Optimiser) -> float:
        """The mean return of its policy in the validation episodes with the hints of the moment."""
        settings = self.settings
        starts = make_evaluation_starts(VALIDATION_SEED, settings.validation_episodes)
        vectors = (self._scales * contender.centre)[None]
        hints = self._hints(vectors, starts, np.random.default_rng(VALIDATION_SEED))
        told = play_mixture(self._engine, [model], starts, settings.mixture, hints)
        return mean_return(told.returns)


def play_mixture(
    engine: RolloutEngine,
    models: Sequence[Model],
    starts: Sequence[EpisodeStart],
    mixture: Mixture,
    hints: IdentityHints | None = None,
) -> Outcomes:
    """Every model through every episode, as many of them under each of the conditions.

    `hints` are for a fused engine.
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
