"""Checkpoints of optimisers: a resumed search equals an uninterrupted one, no file runs code."""

import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cma", reason="needs the train extra")

from an_control.cli import main
from an_control.learning.es.optimisers import Cma, make_optimiser
from an_control.learning.runs.run_folder import (
    CHECKPOINT,
    CheckpointError,
    pack_checkpoint,
    unpack_checkpoint,
)

NAMES = ["cma", "cma-diagonal", "pgpe", "pgpe-clipup"]
CMA_NAMES = NAMES[:2]
POPULATION = 8


def hill(candidates):
    """A hill that is 30 times steeper along the last axis."""
    return -(np.geomspace(1.0, 30.0, candidates.shape[1]) * (candidates - 0.5) ** 2).sum(1)


def climb(optimiser, generations, fitness=hill):
    """Play the generations of these numbers, some candidates and some generations failing.

    Return the bits of all candidates, means and sigmas, and the largest step of sigma.
    """
    bits, sigmas = [], [optimiser.sigma]
    for generation in generations:
        candidates = optimiser.ask(np.random.default_rng([0, generation]))
        returns = fitness(candidates)
        returns[generation % 3 :: 4] = np.nan
        if generation % 20 == 19:
            returns[:] = np.nan
        optimiser.tell(returns, generation / 200)
        sigmas.append(optimiser.sigma)
        bits += [candidates.tobytes(), optimiser.centre.tobytes(), repr(optimiser.sigma)]
    return bits, max((b / a for a, b in pairwise(sigmas)), default=1.0)


def restored(state, name, size, population=POPULATION):
    """Return an optimiser that began elsewhere, with this state from a checkpoint's bytes."""
    np.random.seed(123)
    optimiser = make_optimiser(name, np.full(size, 7.0), 0.1, population)
    optimiser.restore(unpack_checkpoint(pack_checkpoint({"optimiser": state}))["optimiser"])
    return optimiser


@pytest.mark.parametrize("before", [0, 1, 2, 7, 33])
@pytest.mark.parametrize(("size", "population"), [(1, 8), (3, 4), (4, 6), (40, 14)])
@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_optimiser_continues_to_the_same_bits(name, size, population, before):
    """Of 4 candidates pycma mirrors some in the next generation."""
    optimiser = make_optimiser(name, np.zeros(size), 0.1, population)
    climb(optimiser, range(before))
    where, ahead = (name, size, population), range(before, before + 30)
    copy = restored(optimiser.make_checkpoint(), *where)
    assert climb(copy, ahead) == climb(optimiser, ahead)
    assert pack_checkpoint(
        restored(copy.make_checkpoint(), *where).make_checkpoint()
    ) == pack_checkpoint(optimiser.make_checkpoint())


@pytest.mark.parametrize("name", CMA_NAMES)
def test_a_resumed_cma_restarts_where_the_uninterrupted_one_does(name):
    """A restart jumps back to the first sigma: 0.1, from where it had stalled."""
    optimiser = make_optimiser(name, np.zeros(2), 0.1, POPULATION)
    copy = optimiser
    for begin in range(0, 400, 50):
        ahead = range(begin, begin + 50)
        copy = restored(copy.make_checkpoint(), name, 2)
        bits, jump = climb(copy, ahead)
        assert (bits, jump) == climb(optimiser, ahead)
        if begin and jump > 100.0:
            return
    pytest.fail("no restart")


@pytest.mark.parametrize("name", CMA_NAMES)
def test_a_cma_whose_sigma_has_grown_a_billion_times_is_resumed(name):
    """There pycma moves a part of sigma into the covariance."""
    optimiser = make_optimiser(name, np.zeros(3), 0.1, POPULATION)
    climb(optimiser, range(3))
    optimiser._strategy.sigma = 1e10
    climb(optimiser, range(3, 4))
    copy = restored(optimiser.make_checkpoint(), name, 3)
    assert climb(copy, range(4, 9)) == climb(optimiser, range(4, 9))


class Code:
    """What unpickling makes a file of."""

    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return Path.touch, (self._path,)


def crafted(path):
    """Return the bytes of a pickle that makes this file where it is read."""
    return np.frombuffer(pickle.dumps(Code(path)), np.uint8)


@pytest.mark.parametrize("name", CMA_NAMES)
def test_a_pickle_in_the_place_of_the_strategy_is_refused_and_not_run(tmp_path, name):
    trap = tmp_path / "trap"
    with pytest.raises(CheckpointError, match=r"pickled strategy.*start the run again"):
        restored({"strategy": crafted(trap)}, name, 3)
    assert not trap.exists()
    pickle.loads(crafted(trap).tobytes())
    assert trap.exists()


def test_a_run_whose_checkpoint_holds_a_pickle_ends_in_one_line(tmp_path, capsys):
    pytest.importorskip("numba", reason="needs the sim extra")
    arguments = ["train", "cartpole", "--form", "mlp", "--hidden", "4", "--optimiser", "cma"]
    arguments += ["--popsize", "4", "--rollouts", "1", "--episodes", "2", "--starts", "0"]
    arguments += ["--out", str(tmp_path / "run"), "--generations"]
    assert main([*arguments, "1"]) == 0
    checkpoint, trap = tmp_path / "run" / CHECKPOINT, tmp_path / "trap"
    state = unpack_checkpoint(checkpoint.read_bytes())
    state["learner"]["contenders"] = [{"strategy": crafted(trap)}]
    checkpoint.write_bytes(pack_checkpoint(state))
    capsys.readouterr()
    assert main([*arguments, "2"]) == 1
    assert not trap.exists()
    (line,) = capsys.readouterr().err.splitlines()
    assert str(checkpoint) in line and "start the run again" in line


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (".sm.C", np.zeros((2, 2)), r"array \(2, 2\) of float64, not array \(3, 3\) of float64"),
        (".mean", np.zeros(3, np.float32), "float32, not"),
        (".mean", 1.0, "float, not array"),
        (".sigma", "__import__('os')", "str, not float"),
        (".opts.tolx", "__import__('os')", "str, not float"),
        (".countiter", 1.5, "float, not int"),
        (".best.x", None, "NoneType, not array"),
        (".fit.hist", ["__import__('os')"], "list of other than numbers, not list"),
        (".opts.verb_filenameprefix", "elsewhere/", "unknown"),
        (".opts.randn", 1.0, "unknown"),
        (".ask", 1.0, "unknown"),
        (".sm.no_such.place", np.zeros(3), "unknown"),
        (".pc", ..., "missing"),
    ],
)
def test_a_value_that_does_not_fit_the_strategy_is_named(path, value, said):
    optimiser = Cma(np.zeros(3), 0.1, POPULATION)
    climb(optimiser, range(5))
    state = unpack_checkpoint(pack_checkpoint(optimiser.make_checkpoint()))
    state["strategy"][path] = value
    if value is ...:
        del state["strategy"][path]
    with pytest.raises(CheckpointError, match=rf"^strategy{path}: .*{said}"):
        Cma(np.zeros(3), 0.1, POPULATION).restore(state)


@pytest.mark.parametrize("name", CMA_NAMES)
def test_no_file_in_the_folder_changes_what_cma_does(tmp_path, monkeypatch, name):
    """By default pycma reads its options, which it evaluates, from cma_signals.in."""
    elsewhere = climb(make_optimiser(name, np.zeros(3), 0.1, POPULATION), range(30))
    monkeypatch.chdir(tmp_path)
    Path("cma_signals.in").write_text("{'tolx': '1e3', 'maxiter': 2}")
    assert climb(make_optimiser(name, np.zeros(3), 0.1, POPULATION), range(30)) == elsewhere


def test_the_centre_lies_among_its_candidates_also_on_a_narrow_ridge():
    """At a condition of 1e12 pycma would move the mean into other coordinates."""
    turn = np.linalg.qr(np.random.default_rng(5).normal(size=(4, 4)))[0]
    optimiser, rng = Cma(np.ones(4), 1.0, 12), np.random.default_rng(0)
    for _ in range(180):
        candidates = optimiser.ask(rng)
        before = optimiser.centre
        assert np.abs(candidates.mean(0) - before).max() <= np.ptp(candidates, axis=0).max()
        optimiser.tell(-(np.geomspace(1.0, 1e13, 4) * ((candidates - 3.0) @ turn) ** 2).sum(1), 0.0)
