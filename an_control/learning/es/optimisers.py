"""Optimisers that only rank candidates: ask for a generation, tell its fitness (larger is better).

Every random number comes from the generator that is handed in, so a generation is a function of
the optimiser's state and that generator alone.

The state of a pycma strategy as plain values, for a checkpoint.

pycma offers only pickle, and whoever unpickles a file runs the code that the file names. pycma also
evaluates options that are text, so even an unpickler that admits nothing but pycma's classes is
unsafe. Here the attributes of pycma's own objects that are numbers, arrays, lists of these or None
are stored by their path (`.sm.C`), and restored by the same paths in a strategy that was
constructed with the same settings. Text, functions and classes are settings: they come from the
constructor alone. A file can therefore change numbers, and nothing else.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Literal, Protocol, get_args

import numpy as np

from an_control.learning.runs.run_folder import CheckpointError

NUMBERS = bool | int | float | np.bool_ | np.integer | np.floating
SKIPPED = frozenset(
    {
        *(".inputargs", ".inopts", ".opts.bounds", ".sp"),  # settings
        *(".logger", ".timer"),  # wall clocks
        *(".ary", ".pop_sorted", "._tell2_args", ".mean_old_old"),  # the past; pycma ignores them
        *(".B", ".C", ".D", ".dC"),  # the sampler's, see `_updateBDfromSM`
    }
)
"""Attributes that no later generation needs from a checkpoint."""


def collect_values(strategy: Any) -> dict[str, Any]:
    """Return the plain values of a strategy between two generations, by their paths."""
    return {path: _plain(owner[key]) for path, (owner, key) in _slots(strategy).items()}


def restore_values(strategy: Any, values: Mapping[str, Any]) -> None:
    """Put collected values into a strategy of the same settings that has the same attributes.

    Raise CheckpointError naming the path of a value that is unknown, missing, or of another type
    or shape.
    """
    slots = _slots(strategy)
    for path in sorted(slots.keys() ^ values.keys()):
        what = "missing" if path in slots else "unknown"
        raise CheckpointError(f"strategy{path}: {what} in the installed pycma's strategy")
    for path, (owner, key) in slots.items():
        owner[key] = _like(owner[key], values[path], path)
    strategy._updateBDfromSM()


def _slots(strategy: Any) -> dict[str, tuple[dict[Any, Any], Any]]:
    """Return the dict and the key that hold each plain value of pycma's objects, by path."""
    found: dict[str, tuple[dict[Any, Any], Any]] = {}
    seen = set()

    def visit(value: Any, path: str) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        own = vars(value) if _is_pycma(value) else {}
        for owner in (own, value) if isinstance(value, dict) else (own,):
            for key, entry in owner.items():
                place = f"{path}.{key}"
                if place in SKIPPED:
                    continue
                if _is_plain(entry):
                    found[place] = owner, key
                elif isinstance(entry, dict) or _is_pycma(entry):
                    visit(entry, place)
                elif not (isinstance(entry, str) or callable(entry)):
                    raise TypeError(f"strategy{place}: a {type(entry).__name__} cannot be stored")

    visit(strategy, "")
    return found


def _is_pycma(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "cma"


def _is_plain(value: Any) -> bool:
    if type(value) in (list, tuple, range):
        return all(isinstance(entry, NUMBERS | np.ndarray) and _is_plain(entry) for entry in value)
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "bif"
    return value is None or isinstance(value, NUMBERS)


def _plain(value: Any) -> Any:
    """Return a plain value as a checkpoint holds it: numbers are Python's, sequences lists."""
    if isinstance(value, list | tuple | range):
        return [_plain(entry) for entry in value]
    return value.item() if isinstance(value, np.generic) else value


def _like(known: Any, value: Any, path: str) -> Any:
    """Return a value of a checkpoint with the type and the memory layout of the known one."""
    expected = _plain(known)
    if _form(value) != _form(expected):
        raise CheckpointError(f"strategy{path}: {_form(value)}, not {_form(expected)}")
    if isinstance(known, np.ndarray):
        array = np.empty_like(known)  # the layout decides how BLAS rounds
        array[...] = value
        return array
    if isinstance(value, list):
        entries = [entry.copy() if isinstance(entry, np.ndarray) else entry for entry in value]
        return tuple(entries) if isinstance(known, tuple) else entries
    return None if known is None else type(known)(value)


def _form(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"array {value.shape} of {value.dtype}"
    if isinstance(value, list) and not _is_plain(value):
        return "list of other than numbers"
    return type(value).__name__


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
