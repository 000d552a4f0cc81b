"""Optimisers by ranks: `ask` proposes candidates, `tell` takes their fitness (larger is better).

All random numbers come from the generator passed to `ask`, so a generation follows from the
optimiser's state and that generator alone.

Checkpoints of pycma hold plain values. pycma itself offers only pickle, and unpickling runs the
code that a file names; pycma also evaluates options that are text, so an unpickler restricted to
pycma's classes is unsafe too. Here those attributes of pycma's objects that are numbers, arrays,
lists of these, or None are stored by their path (`.sm.C`) and restored by the same paths in a
strategy that was made with the same settings. Text, functions and classes come from the constructor
alone. So a file can change numbers and nothing else.
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
        *(".ary", ".pop_sorted", "._tell2_args", ".mean_old_old"),  # not read by pycma
        *(".B", ".C", ".D", ".dC"),  # the sampler's, see `_updateBDfromSM`
    }
)
"""Paths of attributes that later generations do not need from a checkpoint."""


def collect_values(strategy: Any) -> dict[str, Any]:
    """Return the numbers, arrays and lists in a pycma strategy, by their paths such as `.sm.C`.

    This must be called between two generations.
    """
    return {path: _to_plain(owner[key]) for path, (owner, key) in _find_values(strategy).items()}


def restore_values(strategy: Any, values: Mapping[str, Any]) -> None:
    """Set the numbers, arrays and lists of a pycma strategy to those of a checkpoint.

    Args:
        strategy: The strategy to change, made with the same settings as that of the checkpoint.
        values: The values by their paths, as `collect_values` returned them.

    Raises:
        CheckpointError: A value is unknown, missing, or of another type or shape; the error names
            its path.
    """
    slots = _find_values(strategy)
    for path in sorted(slots.keys() ^ values.keys()):
        what = "missing" if path in slots else "unknown"
        raise CheckpointError(f"strategy{path}: {what} in the installed version of pycma")
    for path, (owner, key) in slots.items():
        owner[key] = _match_type(owner[key], values[path], path)
    strategy._updateBDfromSM()


def _find_values(strategy: Any) -> dict[str, tuple[dict[Any, Any], Any]]:
    """Find the numbers, arrays and lists in a pycma strategy.

    Returns:
        (dict that holds the value, its key there) by path.
    """
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
    """Return whether a value is an object of one of pycma's classes."""
    return type(value).__module__.partition(".")[0] == "cma"


def _is_plain(value: Any) -> bool:
    """Return whether a value is None, a number, an array of numbers, or a list of these."""
    if type(value) in (list, tuple, range):
        return all(isinstance(entry, NUMBERS | np.ndarray) and _is_plain(entry) for entry in value)
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "bif"
    return value is None or isinstance(value, NUMBERS)


def _to_plain(value: Any) -> Any:
    """Convert a value to what a checkpoint stores: Python numbers, arrays and lists."""
    if isinstance(value, list | tuple | range):
        return [_to_plain(entry) for entry in value]
    return value.item() if isinstance(value, np.generic) else value


def _match_type(example: Any, value: Any, path: str) -> Any:
    """Convert a checkpoint's value to the type and memory layout of the attribute it replaces.

    Args:
        example: The attribute's present value.
        value: The checkpoint's value.
        path: Path of the attribute, for the error.

    Raises:
        CheckpointError: The types or shapes differ.
    """
    expected = _to_plain(example)
    if _describe_type(value) != _describe_type(expected):
        raise CheckpointError(
            f"strategy{path}: {_describe_type(value)}, not {_describe_type(expected)}"
        )
    if isinstance(example, np.ndarray):
        array = np.empty_like(example)  # the layout decides how BLAS rounds
        array[...] = value
        return array
    if isinstance(value, list):
        entries = [entry.copy() if isinstance(entry, np.ndarray) else entry for entry in value]
        return tuple(entries) if isinstance(example, tuple) else entries
    return None if example is None else type(example)(value)


def _describe_type(value: Any) -> str:
    """Return the type of a value as text, for an error message."""
    if isinstance(value, np.ndarray):
        return f"array {value.shape} of {value.dtype}"
    if isinstance(value, list) and not _is_plain(value):
        return "list of other than numbers"
    return type(value).__name__


OptimiserName = Literal["cma", "cma-diagonal", "pgpe", "pgpe-clipup"]


class Optimiser(Protocol):
    """Interface of an optimiser: a distribution from which candidates (n,) are drawn."""

    @property
    def centre(self) -> np.ndarray:
        """Return the mean (n,) of the distribution."""

    @property
    def sigma(self) -> float:
        """Return the mean standard deviation of the vector's elements."""

    def ask(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the P candidate vectors (P, n) of a generation from the distribution."""

    def tell(self, fitness: np.ndarray, progress: float) -> None:
        """Update the distribution by the fitness of the candidates of the last `ask`.

        Args:
            fitness: Fitness (P,) of each candidate, NaN where one failed.
            progress: Finished share (0..1) of the run.
        """

    def make_checkpoint(self) -> dict[str, Any]:
        """Return the state between two generations, from which `restore` continues."""

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint that `make_checkpoint` returned."""


class Cma:
    """CMA-ES by pycma (Hansen 2016), with full or diagonal covariance.

    Where pycma stops, it is restarted at the mean with the initial sigma.

    Args:
        start: Initial mean (n,).
        sigma: Initial standard deviation.
        population: Number of candidates of a generation.
        diagonal: Whether to use a diagonal covariance.
    """

    def __init__(
        self, start: np.ndarray, sigma: float, population: int, diagonal: bool = False
    ) -> None:
        self._sigma0, self._diagonal, self._population = sigma, diagonal, population
        self._restart(start)

    def _restart(self, start: np.ndarray) -> None:
        """Make a new pycma strategy with the initial sigma and this mean (n,)."""
        import cma

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._noise = _NoiseSource()
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
        """Return the mean (n,) of the distribution."""
        return np.array(self._strategy.mean)

    @property
    def sigma(self) -> float:
        """Return the mean standard deviation of the vector's elements."""
        return float(
            self._strategy.sigma
            * np.mean(self._strategy.sigma_vec.scaling * self._strategy.sm.variances**0.5)
        )

    def ask(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the P candidate vectors (P, n) of a generation from the distribution."""
        self._noise.rng = rng
        if self._strategy.stop():
            self._restart(self.centre)
            self._noise.rng = rng
        self._asked = self._strategy.ask()
        return np.array(self._asked)

    def tell(self, fitness: np.ndarray, progress: float) -> None:
        """Update the distribution by the fitness of the candidates of the last `ask`.

        Args:
            fitness: Fitness (P,) of each candidate, NaN where one failed.
            progress: Not used.
        """
        self._strategy.tell(self._asked, list(-rank_failed_last(fitness)))

    def make_checkpoint(self) -> dict[str, Any]:
        """Return the numbers and arrays of pycma's strategy, from which `restore` continues."""
        return {"strategy": collect_values(self._strategy)}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint that `make_checkpoint` returned.

        Raises:
            CheckpointError: The state holds a pickled strategy, or does not fit the installed
                pycma.
        """
        values = state["strategy"]
        if not isinstance(values, dict):
            raise CheckpointError(
                "holds a pickled strategy, which is not read since it could run code; start the"
                " run again in another folder"
            )
        self._restart(self.centre)
        if values.get(".countiter") != 0:  # pycma makes some attributes in the first generation
            self._strategy.tell(self._strategy.ask(), np.zeros(self._population))
        restore_values(self._strategy, values)


class _NoiseSource:
    """Source of pycma's normal random numbers: the generator of the current generation."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def __call__(self, *shape: int) -> np.ndarray:
        return self.rng.standard_normal(shape)


class AscentRule(Protocol):
    """Interface of a rule by which a mean (n,) follows an estimated gradient of unknown scale."""

    def compute_step(self, gradient: np.ndarray) -> np.ndarray:
        """Return the step (n,) of the mean for a learning rate of 1.

        Args:
            gradient: Estimated gradient (n,) of the fitness.
        """

    def make_checkpoint(self) -> dict[str, Any]:
        """Return the rule's state, from which `restore` continues."""

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint that `make_checkpoint` returned."""


class Adam:
    """Adam (Kingma & Ba 2015) with bias-corrected moments, as a rule for the mean's step."""

    def __init__(self, size: int) -> None:
        self._first, self._second, self._generation = np.zeros(size), np.zeros(size), 0

    def compute_step(self, gradient: np.ndarray) -> np.ndarray:
        """Return the step (n,) of the mean for a learning rate of 1 and this gradient (n,)."""
        self._generation += 1
        self._first = 0.9 * self._first + 0.1 * gradient
        self._second = 0.999 * self._second + 0.001 * gradient**2
        mean = self._first / (1.0 - 0.9**self._generation)
        scale = np.sqrt(self._second / (1.0 - 0.999**self._generation)) + 1e-8
        return mean / scale

    def make_checkpoint(self) -> dict[str, Any]:
        """Return the rule's state, from which `restore` continues."""
        moments = {"first": self._first, "second": self._second}
        return moments | {"generation": self._generation}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint that `make_checkpoint` returned."""
        self._first, self._second = state["first"], state["second"]
        self._generation = state["generation"]


class ClipUp:
    """ClipUp (Toklu, Liskowski & Srivastava 2020), as a rule for the mean's step.

    It keeps a momentum of normalised gradients, whose length is at most 1, so the learning rate is
    the length of the largest step. Momentum 0.9 and step 0.5 are the authors' values.
    """

    def __init__(self, size: int) -> None:
        self._velocity = np.zeros(size)

    def compute_step(self, gradient: np.ndarray) -> np.ndarray:
        """Return the step (n,) of the mean for a learning rate of 1 and this gradient (n,)."""
        length = float(np.linalg.norm(gradient))
        velocity = 0.9 * self._velocity + 0.5 * gradient / (length or 1.0)
        self._velocity = velocity / max(1.0, float(np.linalg.norm(velocity)))
        return self._velocity

    def make_checkpoint(self) -> dict[str, Any]:
        """Return the rule's state, from which `restore` continues."""
        return {"velocity": self._velocity}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint that `make_checkpoint` returned."""
        self._velocity = state["velocity"]


class Pgpe:
    """PGPE (Sehnke et al. 2010) with mirrored candidates and centred ranks.

    Adam or ClipUp moves the mean, with a learning rate that falls to a tenth over the run. Each
    element has its own standard deviation (sigma), which changes by at most a tenth in a
    generation.

    Args:
        start: Initial mean (n,).
        sigma: Initial standard deviation.
        population: Number of candidates of a generation.
        rate: Learning rate of the mean.
        sigma_rate: Learning rate of the sigmas.
        clipup: Whether to move the mean by ClipUp, not Adam.

    Raises:
        ValueError: The population is odd.
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
            raise ValueError(f"population {population}: must be even (candidates come in pairs)")
        self.centre = np.array(start, np.float64)
        self._sigmas = np.full(len(start), float(sigma))
        self._population, self._rate, self._sigma_rate = population, rate, sigma_rate
        self._ascent: AscentRule = ClipUp(len(start)) if clipup else Adam(len(start))

    @property
    def sigma(self) -> float:
        """Return the mean standard deviation of the vector's elements."""
        return float(self._sigmas.mean())

    def ask(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the candidate vectors (P, n) of a generation; the second half mirrors the first."""
        shape = self._population // 2, len(self.centre)
        self._steps = rng.standard_normal(shape) * self._sigmas
        return np.concatenate([self.centre + self._steps, self.centre - self._steps])

    def tell(self, fitness: np.ndarray, progress: float) -> None:
        """Update mean and sigmas by the fitness of the candidates of the last `ask`.

        Args:
            fitness: Fitness (P,) of each candidate, NaN where one failed.
            progress: Finished share (0..1) of the run, by which the learning rate falls.
        """
        ranks = compute_centred_ranks(rank_failed_last(fitness))
        plus, minus = np.split(ranks, 2)
        gradient = (self._steps * (plus - minus)[:, None] / 2.0).mean(0)
        spread = (self._steps**2 - self._sigmas**2) / self._sigmas
        sigma_gradient = (spread * (plus + minus)[:, None] / 2.0).mean(0)
        rate = self._rate * (1.0 - 0.9 * progress)
        self.centre = self.centre + rate * self._ascent.compute_step(gradient)
        change = np.clip(self._sigma_rate * sigma_gradient / self._sigmas, -0.1, 0.1)
        self._sigmas = self._sigmas * (1.0 + change)

    def make_checkpoint(self) -> dict[str, Any]:
        """Return the state, from which `restore` continues."""
        mean = {"centre": self.centre, "sigmas": self._sigmas}
        return mean | {"ascent": self._ascent.make_checkpoint()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint that `make_checkpoint` returned."""
        self.centre, self._sigmas = state["centre"], state["sigmas"]
        self._ascent.restore(state["ascent"])


def make_optimiser(
    name: OptimiserName, start: np.ndarray, sigma: float, population: int, **settings: Any
) -> Optimiser:
    """Return the optimiser with this name.

    Args:
        name: One of `OptimiserName`.
        start: Initial mean (n,).
        sigma: Initial standard deviation.
        population: Number of candidates of a generation.
        settings: Further arguments of `Pgpe`.

    Raises:
        ValueError: No optimiser has this name.
    """
    if name in ("pgpe", "pgpe-clipup"):
        return Pgpe(start, sigma, population, **settings, clipup=name == "pgpe-clipup")
    if name not in ("cma", "cma-diagonal"):
        raise ValueError(f"optimiser {name!r} is not one of {', '.join(get_args(OptimiserName))}")
    return Cma(start, sigma, population, diagonal=name == "cma-diagonal")


def rank_failed_last(fitness: np.ndarray) -> np.ndarray:
    """Replace NaN in the fitness (P,) by a value just below the worst of the others."""
    failed = ~np.isfinite(fitness)
    if failed.all():
        return np.zeros_like(fitness)
    worst = fitness[~failed].min()
    return np.where(failed, worst - abs(worst) - 1.0, fitness)


def compute_centred_ranks(fitness: np.ndarray) -> np.ndarray:
    """Return the ranks (P,) of the fitness values (P,), from -0.5 (worst) to 0.5 (best).

    Equal values share their mean rank.
    """
    _, place, counts = np.unique(fitness, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts + 1) / 2.0
    return middle[place] / max(1, len(fitness) - 1) - 0.5
