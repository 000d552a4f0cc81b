"""Optimisers that only rank candidates: ask for a generation, tell its fitness (larger is better).

Every random number comes from the generator that is handed in, so a generation is a function of
the optimiser's state and that generator alone.
"""

from __future__ import annotations

import warnings
from typing import Any, Literal, Protocol, get_args

import numpy as np

from an_control.learning.es.strategy_state import collect_values, restore_values
from an_control.learning.runs.checkpoint import CheckpointError

Name = Literal["cma", "cma-diagonal", "pgpe", "pgpe-clipup"]


class Optimiser(Protocol):
    """A search distribution over vectors (n,)."""

    @property
    def centre(self) -> np.ndarray:
        """Its mean (n,)."""

    @property
    def sigma(self) -> float:
        """Its mean standard deviation."""

    def ask(self, rng: np.random.Generator) -> np.ndarray:
        """A generation's candidates (P, n)."""

    def tell(self, fitness: np.ndarray, progress: float) -> None:
        """Their fitness (P,), NaN where a candidate failed; `progress` (0..1) of the run."""

    def state(self) -> dict[str, Any]:
        """Arrays and numbers for `restore`, between two generations."""

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state."""


class Cma:
    """CMA-ES by pycma (Hansen 2016), full or diagonal covariance, restarted where it stalls.

    A restart begins at the mean with the first sigma.
    """

    def __init__(
        self, start: np.ndarray, sigma: float, population: int, diagonal: bool = False
    ) -> None:
        self._sigma0, self._diagonal, self._population = sigma, diagonal, population
        self._restart(start)

    def _restart(self, start: np.ndarray) -> None:
        import cma

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._noise = _Noise()
            self._strategy = cma.CMAEvolutionStrategy(
                start,
                self._sigma0,
                {
                    "popsize": self._population,
                    "CMA_diagonal": self._diagonal,
                    "CMA_stds": np.ones(len(start)),
                    "conditioncov_alleviate": [1e8, 0],  # 0: the mean stays in our coordinates
                    "signals_filename": "",  # by default pycma evaluates a file of this folder
                    "verbose": -9,
                    "randn": self._noise,
                    "seed": 1,
                    "maxiter": np.inf,
                    "tolfun": 0,
                    "tolfunhist": 0,
                    "tolflatfitness": np.inf,
                    "tolstagnation": 0,
                    "tolx": 1e-9,
                },
            )
            if self._diagonal:  # gives the sampler an attribute that it needs for a huge sigma
                self._strategy.sm *= 1.0

    @property
    def centre(self) -> np.ndarray:
        return np.array(self._strategy.mean)

    @property
    def sigma(self) -> float:
        return float(
            self._strategy.sigma
            * np.mean(self._strategy.sigma_vec.scaling * self._strategy.sm.variances**0.5)
        )

    def ask(self, rng: np.random.Generator) -> np.ndarray:
        self._noise.rng = rng
        if self._strategy.stop():
            self._restart(self.centre)
            self._noise.rng = rng
        self._asked = self._strategy.ask()
        return np.array(self._asked)

    def tell(self, fitness: np.ndarray, progress: float) -> None:
        self._strategy.tell(self._asked, list(-finite(fitness)))

    def state(self) -> dict[str, Any]:
        return {"strategy": collect_values(self._strategy)}

    def restore(self, state: dict[str, Any]) -> None:
        values = state["strategy"]
        if not isinstance(values, dict):
            raise CheckpointError(
                "holds a pickled strategy, which could run code and is not read; start the run"
                " again in another folder"
            )
        self._restart(self.centre)
        if values.get(".countiter") != 0:  # pycma makes some attributes in the first generation
            self._strategy.tell(self._strategy.ask(), np.zeros(self._population))
        restore_values(self._strategy, values)


class _Noise:
    """pycma's source of normal numbers: the generator at hand."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def __call__(self, *shape: int) -> np.ndarray:
        return self.rng.standard_normal(shape)


class Ascent(Protocol):
    """How a mean (n,) follows an estimated gradient (n,) of a size that says little."""

    def change(self, gradient: np.ndarray) -> np.ndarray:
        """The step (n,) for a rate of 1."""

    def state(self) -> dict[str, Any]:
        """For `restore`."""

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state."""


class Adam:
    """Adam (Kingma & Ba 2015), the prior of its moments corrected."""

    def __init__(self, size: int) -> None:
        self._first, self._second, self._generation = np.zeros(size), np.zeros(size), 0

    def change(self, gradient: np.ndarray) -> np.ndarray:
        self._generation += 1
        self._first = 0.9 * self._first + 0.1 * gradient
        self._second = 0.999 * self._second + 0.001 * gradient**2
        mean = self._first / (1.0 - 0.9**self._generation)
        scale = np.sqrt(self._second / (1.0 - 0.999**self._generation)) + 1e-8
        return mean / scale

    def state(self) -> dict[str, Any]:
        moments = {"first": self._first, "second": self._second}
        return moments | {"generation": self._generation}

    def restore(self, state: dict[str, Any]) -> None:
        self._first, self._second = state["first"], state["second"]
        self._generation = state["generation"]


class ClipUp:
    """ClipUp (Toklu, Liskowski & Srivastava 2020): momentum of normalised gradients, its length at
    most 1; the rate is the largest step's length. Momentum and step are the authors'."""

    def __init__(self, size: int) -> None:
        self._velocity = np.zeros(size)

    def change(self, gradient: np.ndarray) -> np.ndarray:
        length = float(np.linalg.norm(gradient))
        velocity = 0.9 * self._velocity + 0.5 * gradient / (length or 1.0)
        self._velocity = velocity / max(1.0, float(np.linalg.norm(velocity)))
        return self._velocity

    def state(self) -> dict[str, Any]:
        return {"velocity": self._velocity}

    def restore(self, state: dict[str, Any]) -> None:
        self._velocity = state["velocity"]


class Pgpe:
    """PGPE (Sehnke et al. 2010): mirrored candidates, centred ranks, Adam or ClipUp on the mean.

    The mean's rate falls to a tenth over the run; each number's sigma moves by at most a tenth a
    generation.
    """

    def __init__(
        self,
        start: np.ndarray,
        sigma: float,
        population: int,
        rate: float = 0.2,
        sigma_rate: float = 0.05,
        clipup: bool = False,
    ) -> None:
        if population % 2:
            raise ValueError(f"population {population}: must be even, candidates come in pairs")
        self.centre = np.array(start, np.float64)
        self._sigmas = np.full(len(start), float(sigma))
        self._population, self._rate, self._sigma_rate = population, rate, sigma_rate
        self._ascent: Ascent = ClipUp(len(start)) if clipup else Adam(len(start))

    @property
    def sigma(self) -> float:
        return float(self._sigmas.mean())

    def ask(self, rng: np.random.Generator) -> np.ndarray:
        shape = self._population // 2, len(self.centre)
        self._steps = rng.standard_normal(shape) * self._sigmas
        return np.concatenate([self.centre + self._steps, self.centre - self._steps])

    def tell(self, fitness: np.ndarray, progress: float) -> None:
        ranks = centred_ranks(finite(fitness))
        plus, minus = np.split(ranks, 2)
        gradient = (self._steps * (plus - minus)[:, None] / 2.0).mean(0)
        spread = (self._steps**2 - self._sigmas**2) / self._sigmas
        sigma_gradient = (spread * (plus + minus)[:, None] / 2.0).mean(0)
        rate = self._rate * (1.0 - 0.9 * progress)
        self.centre = self.centre + rate * self._ascent.change(gradient)
        change = np.clip(self._sigma_rate * sigma_gradient / self._sigmas, -0.1, 0.1)
        self._sigmas = self._sigmas * (1.0 + change)

    def state(self) -> dict[str, Any]:
        mean = {"centre": self.centre, "sigmas": self._sigmas}
        return mean | {"ascent": self._ascent.state()}

    def restore(self, state: dict[str, Any]) -> None:
        self.centre, self._sigmas = state["centre"], state["sigmas"]
        self._ascent.restore(state["ascent"])


def make_optimiser(
    name: Name, start: np.ndarray, sigma: float, population: int, **settings: Any
) -> Optimiser:
    """ValueError where there is none of that name."""
    if name in ("pgpe", "pgpe-clipup"):
        return Pgpe(start, sigma, population, **settings, clipup=name == "pgpe-clipup")
    if name not in ("cma", "cma-diagonal"):
        raise ValueError(f"optimiser {name!r} is not one of {', '.join(get_args(Name))}")
    return Cma(start, sigma, population, diagonal=name == "cma-diagonal")


def finite(fitness: np.ndarray) -> np.ndarray:
    """Failed candidates take the worst rank: just below the worst of the others."""
    failed = ~np.isfinite(fitness)
    if failed.all():
        return np.zeros_like(fitness)
    worst = fitness[~failed].min()
    return np.where(failed, worst - abs(worst) - 1.0, fitness)


def centred_ranks(fitness: np.ndarray) -> np.ndarray:
    """Ranks from -0.5 (worst) to 0.5 (best); equals share theirs."""
    _, place, counts = np.unique(fitness, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts + 1) / 2.0
    return middle[place] / max(1, len(fitness) - 1) - 0.5
