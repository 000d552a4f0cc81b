"""Evolution strategies, optimisers that use only how candidates rank by their fitness.

A generation consists of two calls. `ask` proposes candidates, and `tell` receives their fitness, of
which larger values are better. All random numbers come from the generator that is passed to `ask`,
so that a generation depends only on the state of the optimiser and on this generator.

The package pycma implements CMA-ES, and can store its strategy objects only as pickles. A pickle
would be unsafe in a checkpoint, because unpickling runs code that the file names. Even an unpickler
that allows only the classes of pycma would be unsafe, because pycma evaluates options that are
text. Checkpoints therefore hold only those attributes of pycma's objects that are numbers, arrays,
lists of these, or None, each under its attribute path such as `.sm.C`. To restore them, a new
strategy is made with the same settings, and these attributes of it are set. Text, functions and
classes always come from the constructor, so that a checkpoint file can change numbers and nothing
else.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Literal, get_args

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
"""Attribute paths that a checkpoint leaves out, because later generations do not need their values.
"""


def collect_pycma_values(strategy: Any) -> dict[str, Any]:
    """Collect the state of a pycma search as plain numbers, arrays and lists, for a checkpoint.

    This must be called between two generations.

    Args:
        strategy: The search, a `cma.CMAEvolutionStrategy`.

    Returns:
        The values by attribute path, such as `.sm.C`.
    """
    return {
        path: _to_storable(owner[key])
        for path, (owner, key) in _locate_storable_values(strategy).items()
    }


def restore_pycma_values(strategy: Any, values: Mapping[str, Any]) -> None:
    """Set the state of a pycma search to the numbers, arrays and lists of a checkpoint.

    Args:
        strategy: The search to change, made with the same settings as that of the checkpoint.
        values: The values by attribute path, as `collect_pycma_values` returned them.

    Raises:
        CheckpointError: A value is unknown, missing, or of another type or shape; the error names
            the attribute path of the value.
    """
    slots = _locate_storable_values(strategy)
    for path in sorted(slots.keys() ^ values.keys()):
        what = "missing" if path in slots else "unknown"
        raise CheckpointError(f"strategy{path}: {what} in the installed version of pycma")
    for path, (owner, key) in slots.items():
        owner[key] = _convert_to_type_of(owner[key], values[path], path)
    strategy._updateBDfromSM()


def _locate_storable_values(strategy: Any) -> dict[str, tuple[dict[Any, Any], Any]]:
    """Return for the attribute path of each storable value the dict in which it is, and its key."""
    found: dict[str, tuple[dict[Any, Any], Any]] = {}
    seen = set()

    def add_storable_values_of(value: Any, path: str) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        own = vars(value) if _is_pycma_object(value) else {}
        for owner in (own, value) if isinstance(value, dict) else (own,):
            for key, entry in owner.items():
                place = f"{path}.{key}"
                if place in SKIPPED:
                    continue
                if _is_storable(entry):
                    found[place] = owner, key
                elif isinstance(entry, dict) or _is_pycma_object(entry):
                    add_storable_values_of(entry, place)
                elif not (isinstance(entry, str) or callable(entry)):
                    raise TypeError(f"strategy{place}: a {type(entry).__name__} cannot be stored")

    add_storable_values_of(strategy, "")
    return found


def _is_pycma_object(value: Any) -> bool:
    """Return whether a value is an instance of a class that the package pycma defines."""
    return type(value).__module__.partition(".")[0] == "cma"


def _is_storable(value: Any) -> bool:
    """Return whether a value is None, a number, an array of numbers, or a list of these."""
    if type(value) in (list, tuple, range):
        return all(
            isinstance(entry, NUMBERS | np.ndarray) and _is_storable(entry) for entry in value
        )
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "bif"
    return value is None or isinstance(value, NUMBERS)


def _to_storable(value: Any) -> Any:
    """Convert a value to types that a checkpoint can store, Python numbers, arrays and lists."""
    if isinstance(value, list | tuple | range):
        return [_to_storable(entry) for entry in value]
    return value.item() if isinstance(value, np.generic) else value


def _convert_to_type_of(example: Any, value: Any, attribute_path: str) -> Any:
    """Convert a value from a checkpoint to the type and array layout of the value it replaces."""
    expected = _to_storable(example)
    if _describe_type(value) != _describe_type(expected):
        raise CheckpointError(
            f"strategy{attribute_path}: {_describe_type(value)}, not {_describe_type(expected)}"
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
    if isinstance(value, list) and not _is_storable(value):
        return "list of other than numbers"
    return type(value).__name__


OptimiserName = Literal["cma", "cma-diagonal", "pgpe", "pgpe-clipup"]


class Cma:
    """Optimiser CMA-ES (Hansen 2016), implemented by the package pycma.

    It draws candidate vectors (n,) from a normal distribution, which it moves towards those with
    high fitness. If pycma ends its search, a new one starts at the present mean, with the initial
    standard deviation.

    Args:
        start: Initial mean (n,) of the distribution.
        sigma: Initial standard deviation.
        population: Number of candidates of a generation.
        diagonal: Whether the covariance matrix is diagonal instead of full.
    """

    def __init__(
        self, start: np.ndarray, sigma: float, population: int, diagonal: bool = False
    ) -> None:
        self._sigma0, self._diagonal, self._population = sigma, diagonal, population
        self._start_new_strategy(start)

    def _start_new_strategy(self, start: np.ndarray) -> None:
        """Make a new pycma strategy with the mean `start` (n,) and the initial standard deviation.

        It replaces the present one.
        """
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
        """Return the mean (n,) of the distribution from which `ask` draws candidates."""
        return np.array(self._strategy.mean)

    @property
    def sigma(self) -> float:
        """Return the mean standard deviation of the search distribution's n vector elements."""
        return float(
            self._strategy.sigma
            * np.mean(self._strategy.sigma_vec.scaling * self._strategy.sm.variances**0.5)
        )

    def ask(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the P candidate vectors (P, n) of a generation from the distribution."""
        self._noise.rng = rng
        if self._strategy.stop():
            self._start_new_strategy(self.centre)
            self._noise.rng = rng
        self._asked = self._strategy.ask()
        return np.array(self._asked)

    def tell(self, fitness: np.ndarray, progress: float) -> None:
        """Update the distribution by the fitness of the candidates that `ask` returned last.

        Args:
            fitness: Fitness (P,) of each candidate, NaN where one failed.
            progress: Not used; it is here because `Pgpe.tell` takes this argument.
        """
        self._strategy.tell(self._asked, list(-replace_nan_with_worst(fitness)))

    def make_checkpoint(self) -> dict[str, Any]:
        """Return the numbers and arrays of pycma's strategy, from which `restore` continues."""
        return {"strategy": collect_pycma_values(self._strategy)}

    def restore(self, state: dict[str, Any]) -> None:
        """Set the state to a checkpoint that `make_checkpoint` returned.

        Raises:
            CheckpointError: The state is a pickle, which is refused because it could run code, or
                does not fit the installed pycma.
        """
        values = state["strategy"]
        if not isinstance(values, dict):
            raise CheckpointError(
                "holds a pickled strategy, which is not read since it could run code; start the"
                " run again in another folder"
            )
        self._start_new_strategy(self.centre)
        if values.get(".countiter") != 0:  # pycma makes some attributes in the first generation
            self._strategy.tell(self._strategy.ask(), np.zeros(self._population))
        restore_pycma_values(self._strategy, values)


class _NoiseSource:
    """Callable object from which pycma gets its normally distributed random numbers.

    It draws them from its attribute `rng`, which `Cma.ask` sets in each generation.
    """

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def __call__(self, *shape: int) -> np.ndarray:
        return self.rng.standard_normal(shape)


class Adam:
    """Rule by which the optimiser `Pgpe` moves its mean: Adam (Kingma & Ba 2015)."""

    def __init__(self, size: int) -> None:
        self._first, self._second, self._generation = np.zeros(size), np.zeros(size), 0

    def compute_step(self, gradient: np.ndarray) -> np.ndarray:
        """Return the step (n,) by which to move the mean at learning rate 1, and update this rule.

        Args:
            gradient: Estimated gradient (n,) of the fitness at the mean.
        """
        self._generation += 1
        self._first = 0.9 * self._first + 0.1 * gradient
        self._second = 0.999 * self._second + 0.001 * gradient**2
        mean = self._first / (1.0 - 0.9**self._generation)
        scale = np.sqrt(self._second / (1.0 - 0.999**self._generation)) + 1e-8
        return mean / scale

    def make_checkpoint(self) -> dict[str, Any]:
        """Return the state of the rule, from which `restore` continues."""
        moments = {"first": self._first, "second": self._second}
        return moments | {"generation": self._generation}

    def restore(self, state: dict[str, Any]) -> None:
        """Set the state to a checkpoint that `make_checkpoint` returned."""
        self._first, self._second = state["first"], state["second"]
        self._generation = state["generation"]


class ClipUp:
    """Rule by which the optimiser `Pgpe` moves its mean: ClipUp (Toklu et al. 2020).

    It keeps a momentum of normalised gradients, whose length is at most 1. A step of the mean is
    therefore never longer than the learning rate. The momentum factor 0.9 and the step size 0.5 are
    the values of the paper.
    """

    def __init__(self, size: int) -> None:
        self._velocity = np.zeros(size)

    def compute_step(self, gradient: np.ndarray) -> np.ndarray:
        """Return the step (n,) by which to move the mean at learning rate 1, and update this rule.

        Args:
            gradient: Estimated gradient (n,) of the fitness at the mean.
        """
        length = float(np.linalg.norm(gradient))
        velocity = 0.9 * self._velocity + 0.5 * gradient / (length or 1.0)
        self._velocity = velocity / max(1.0, float(np.linalg.norm(velocity)))
        return self._velocity

    def make_checkpoint(self) -> dict[str, Any]:
        """Return the state of the rule, from which `restore` continues."""
        return {"velocity": self._velocity}

    def restore(self, state: dict[str, Any]) -> None:
        """Set the state to a checkpoint that `make_checkpoint` returned."""
        self._velocity = state["velocity"]


class Pgpe:
    """Optimiser PGPE (Sehnke et al. 2010), which uses only the ranks of the fitness values.

    Candidate vectors (n,) are drawn from a normal distribution, in pairs with opposite deviations
    from its mean. Adam or ClipUp moves the mean. The learning rate falls gradually; at the end of
    the run it is a tenth of the initial one. Each element of a vector has its own standard
    deviation (sigma), which changes by at most a tenth in one generation.

    Args:
        start: Initial mean (n,).
        sigma: Initial standard deviation.
        population: Number of candidates of a generation.
        rate: Learning rate of the mean.
        sigma_rate: Learning rate of the standard deviations.
        clipup: Whether ClipUp moves the mean, instead of Adam.

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
            raise ValueError(f"--popsize {population}: must be even (candidates come in pairs)")
        self.centre = np.array(start, np.float64)
        self._sigmas = np.full(len(start), float(sigma))
        self._population, self._rate, self._sigma_rate = population, rate, sigma_rate
        self._ascent: Adam | ClipUp = ClipUp(len(start)) if clipup else Adam(len(start))

    @property
    def sigma(self) -> float:
        """Return the mean standard deviation of the search distribution's n vector elements."""
        return float(self._sigmas.mean())

    def ask(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the P candidate vectors (P, n) of a generation.

        For each vector x in the first half, the second half contains 2 * mean - x.
        """
        shape = self._population // 2, len(self.centre)
        self._steps = rng.standard_normal(shape) * self._sigmas
        return np.concatenate([self.centre + self._steps, self.centre - self._steps])

    def tell(self, fitness: np.ndarray, progress: float) -> None:
        """Update mean and sigmas by the fitness of the candidates that `ask` returned last.

        Args:
            fitness: Fitness (P,) of each candidate, NaN where one failed.
            progress: Finished share (0..1) of the run, on which the learning rate depends.
        """
        ranks = compute_centred_ranks(replace_nan_with_worst(fitness))
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
        """Set the state to a checkpoint that `make_checkpoint` returned."""
        self.centre, self._sigmas = state["centre"], state["sigmas"]
        self._ascent.restore(state["ascent"])


Optimiser = Cma | Pgpe
"""Optimiser that draws candidate vectors (n,) from a distribution. In each generation `ask` returns
the candidates, and `tell` receives their fitness."""


def make_optimiser(
    name: OptimiserName, start: np.ndarray, sigma: float, population: int, **settings: Any
) -> Optimiser:
    """Return a new optimiser of the named kind.

    Args:
        name: "cma", "cma-diagonal", "pgpe" or "pgpe-clipup".
        start: Initial mean (n,) of the distribution of candidates.
        sigma: Initial standard deviation.
        population: Number of candidates of a generation.
        settings: Further arguments of `Pgpe`; not used by the other optimisers.

    Raises:
        ValueError: No optimiser has this name.
    """
    if name in ("pgpe", "pgpe-clipup"):
        return Pgpe(start, sigma, population, **settings, clipup=name == "pgpe-clipup")
    if name not in ("cma", "cma-diagonal"):
        raise ValueError(f"optimiser {name!r} is not one of {', '.join(get_args(OptimiserName))}")
    return Cma(start, sigma, population, diagonal=name == "cma-diagonal")


def replace_nan_with_worst(fitness: np.ndarray) -> np.ndarray:
    """Return the fitness (P,) with each NaN replaced by a number below all other values.

    The candidates that failed then rank last. If all failed, all numbers are 0.
    """
    failed = ~np.isfinite(fitness)
    if failed.all():
        return np.zeros_like(fitness)
    worst = fitness[~failed].min()
    return np.where(failed, worst - abs(worst) - 1.0, fitness)


def compute_centred_ranks(fitness: np.ndarray) -> np.ndarray:
    """Return the ranks (P,) of the fitness values (P,), from -0.5 (worst) to 0.5 (best).

    Equal values all get the mean of their ranks.
    """
    _, place, counts = np.unique(fitness, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts + 1) / 2.0
    return middle[place] / max(1, len(fitness) - 1) - 0.5
