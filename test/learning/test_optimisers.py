"""Optimisers rank, forms map back and forth, and nothing random comes from anywhere else."""

import numpy as np
import pytest

pytest.importorskip("cma", reason="needs the train extra")

from an_control.learning.es.optimisers import (
    Cma,
    compute_centred_ranks,
    make_optimiser,
    replace_nan_with_worst,
)
from an_control.learning.es.parametrisation import (
    PaperForm,
    RedundantPaperForm,
    WholeModelForm,
    choose_policy_parametrisation,
)
from an_control.learning.import_authors import import_policy_of_authors
from an_control.load import make_policy
from an_control.policy import AttentionSizes, MlpSizes
from an_control.policy.random_model import make_random_model
from an_control.policy.task import Task

NAMES = ["cma", "cma-diagonal", "pgpe", "pgpe-clipup"]


def climb(optimiser, generations, fitness=lambda x: -((x - 0.5) ** 2).sum(1)):
    for g in range(generations):
        candidates = optimiser.ask(np.random.default_rng([0, g]))
        optimiser.tell(fitness(candidates), g / generations)
    return optimiser


@pytest.mark.parametrize("name", NAMES)
def test_every_optimiser_climbs_a_hill(name):
    optimiser = climb(make_optimiser(name, np.zeros(8), 0.1, 16), 200)
    assert np.abs(optimiser.centre - 0.5).max() < 0.1


@pytest.mark.parametrize("name", NAMES)
def test_only_the_rank_counts(name):
    plain = climb(make_optimiser(name, np.zeros(4), 0.1, 8), 20)
    bent = climb(
        make_optimiser(name, np.zeros(4), 0.1, 8), 20, lambda x: -np.exp(((x - 0.5) ** 2).sum(1))
    )
    assert plain.centre.tobytes() == bent.centre.tobytes()


def test_failed_candidates_rank_below_all_others():
    fitness = replace_nan_with_worst(np.array([3.0, np.nan, -5.0, np.nan]))
    assert np.isfinite(fitness).all() and fitness[[1, 3]].max() < -5.0
    assert compute_centred_ranks(fitness) == pytest.approx([0.5, -1 / 3, 1 / 6, -1 / 3])


def test_cma_restarts_from_its_mean_where_it_has_stalled():
    optimiser = Cma(np.zeros(3), 0.1, 8)
    climb(optimiser, 3000, lambda x: -(x**2).sum(1))
    assert optimiser.sigma > 1e-9


@pytest.mark.parametrize(("actions", "queries", "layers", "free", "theirs"), [(1, 16, 0, 417, 913)])
def test_the_authors_form_has_no_degenerate_numbers(actions, queries, layers, free, theirs):
    form = PaperForm(actions, queries, layers)
    assert form.vector_size == free
    lstm, projections = 32 * (1 + actions + 8 + 2), 2 * 8 * 32
    assert lstm + projections + queries * actions + actions == theirs
    assert RedundantPaperForm(actions, queries, layers).vector_size == theirs


@pytest.mark.parametrize("stack", [0, 4])
def test_the_authors_own_numbers_stand_for_the_same_policies(stack):
    raw, reduced = RedundantPaperForm(stack=stack), PaperForm(stack=stack)
    model = raw.make_model(np.random.default_rng(0).normal(0.0, 0.5, raw.vector_size), Task(), {})
    for form in (raw, reduced):
        again = form.make_model(form.to_vector(model), Task(), {})
        one, two = make_policy(model, engine="numpy"), make_policy(again, engine="numpy")
        for _ in range(10):
            values = np.random.default_rng(1).normal(size=5)
            np.testing.assert_allclose(
                one.step_array(values, tuple("abcde")), two.step_array(values, tuple("abcde")),
                atol=1e-4,
            )  # fmt: skip


@pytest.mark.parametrize("form", [PaperForm(), PaperForm(neuron=40), PaperForm(neuron=24, stack=4)])
def test_the_authors_form_maps_back_exactly(form):
    """Also where neurons are wider than keys, which once failed."""
    rng = np.random.default_rng(0)
    vector = rng.normal(0.0, 0.5, form.vector_size)
    model = form.make_model(vector, Task(), {})
    assert choose_policy_parametrisation(model) == form
    np.testing.assert_allclose(form.to_vector(model), vector, atol=1e-4)
    again = form.make_model(form.to_vector(model), Task(), {})
    one, two = make_policy(model, engine="numpy"), make_policy(again, engine="numpy")
    ids = tuple("abcde")
    for _ in range(10):
        values = rng.normal(size=5)
        np.testing.assert_allclose(
            one.step_array(values, ids), two.step_array(values, ids), atol=1e-3
        )


def test_the_authors_weights_are_of_the_authors_form(shared):
    model = import_policy_of_authors(shared / "reference/official/cartpole_pi.npz", "cartpole_pi")
    assert choose_policy_parametrisation(model) == PaperForm()


@pytest.mark.parametrize(
    "sizes", [MlpSizes(5, 1, [16]), AttentionSizes(2, 4, 6, 8, ["value", "change"], [3])]
)
def test_the_whole_form_takes_every_number(sizes):
    model = make_random_model(sizes, seed=1)
    form = choose_policy_parametrisation(model)
    assert form == WholeModelForm(sizes) and form.vector_size == model.parameter_count
    again = form.make_model(form.to_vector(model), Task(), {})
    assert all(
        again.arrays[name].tobytes() == array.tobytes() for name, array in model.arrays.items()
    )


def test_a_start_of_another_size_is_refused():
    with pytest.raises(ValueError, match="sizes"):
        PaperForm().to_vector(make_random_model(MlpSizes(5, 1, [16])))
