"""The monitor's parts: noise filter, detector, assignment."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waves import (
    CHANNELS,
    STRAIGHT,
    TURNED,
    imputing_model,
    monitored_model,
    waves,
)

from an_control.load import make_policy
from an_control.monitor import kernels
from an_control.monitor.assignment import Assignment
from an_control.monitor.costs import CostCalculator
from an_control.monitor.evidence import AssignmentEvidence, SearchTimeBudget, TickRecord
from an_control.monitor.forward_model import ChangePrediction, ForwardModel
from an_control.monitor.partial_search import PartialAssignmentSearch
from an_control.monitor.search import MoveDetector
from an_control.monitor.settings import MONITOR

ASSIGN = (
    kernels.solve_assignment,
    getattr(kernels.solve_assignment, "py_func", kernels.solve_assignment),
)
"""Compiled, where numba is installed, and as the plain Python that it is without."""


def noisy_monitor(roughest=0.003):
    model = imputing_model(np.zeros(5))
    model.arrays["imputation.max_roughness"][:] = roughest
    return make_policy(model, "match").monitor


def errors(monitor, orders, sd, seed=3):
    """Of what it gives out, and of what it got, at each tick."""
    rng, found = np.random.default_rng(seed), []
    for tick, order in enumerate(orders):
        signals = waves(tick)
        noise = (sd * rng.normal(size=5)).astype(np.float32)
        given = monitor.step((signals + noise)[list(order)], np.zeros(2, np.float32))
        found.append((np.abs(given - signals).mean(), np.abs(noise).mean()))
    return np.array(found)


def test_noisy_readings_are_smoothed_and_quiet_ones_keep_their_bits():
    monitor = noisy_monitor()
    for tick in range(60):
        readings = waves(tick)
        assert monitor.step(readings, np.zeros(2, np.float32)).tobytes() == readings.tobytes()
    monitor.reset()
    given, got = errors(monitor, [STRAIGHT] * 120, 0.02)[60:].mean(0)
    assert given < 0.8 * got
    assert monitor.channel_by_rewired_slot == {}


def test_noisy_readings_are_smoothed_also_while_a_channel_is_missing():
    monitor, rng = noisy_monitor(), np.random.default_rng(3)
    monitor_errors, noises = [], []
    for tick in range(120):
        noise = (0.02 * rng.normal(size=5)).astype(np.float32)
        readings = waves(tick) + noise
        readings[4] = np.nan
        given = monitor.step(readings, np.zeros(2, np.float32))
        monitor_errors.append(np.abs(given - waves(tick))[:4].mean())
        noises.append(np.abs(noise)[:4].mean())
    assert np.mean(monitor_errors[60:]) < 0.8 * np.mean(noises[60:])
    assert monitor.channel_by_rewired_slot == {}


def search_with_one_missing(classified, ordered):
    """The slots that feed each channel after 60 ticks, by a classifier that gives `classified`."""
    forward = SimpleNamespace(
        channels=tuple(CHANNELS),
        alike=np.eye(5, dtype=bool),
        compute_identity_classifier_costs=lambda reads, change, actions: classified.copy(),
    )
    search = PartialAssignmentSearch(forward, kernels.solve_assignment, ordered=ordered)
    assignment = Assignment.make_nominal(5)
    for tick in range(60):
        readings = waves(tick)
        readings[4] = np.nan
        assignment = search.update_assignment(readings, np.zeros(2, np.float32), assignment, None)
    return assignment.slots.tolist()


def test_only_a_policy_that_needs_no_order_is_given_another_than_the_wired_one_that_explains_all():
    """A classifier of another walker confuses two legs a little."""
    classified = np.full((5, 5), 9.0)
    np.fill_diagonal(classified, 0.0)
    classified[[0, 1], [0, 1]], classified[[0, 1], [1, 0]] = 5.0, 0.0
    assert search_with_one_missing(classified, ordered=False) == [1, 0, 2, 3, 4]
    assert search_with_one_missing(classified, ordered=True) == list(STRAIGHT)


def test_a_wired_order_that_does_not_explain_the_readings_is_left_for_any_policy():
    classified = np.full((5, 5), 9.0)
    classified[[0, 1, 2, 3, 4], [1, 2, 3, 0, 4]] = 0.0
    for ordered in (False, True):
        assert search_with_one_missing(classified, ordered) == [3, 0, 1, 2, 4]


def test_channels_that_read_the_same_constant_do_not_make_it_less_sure():
    model = imputing_model(np.zeros(5))
    model.arrays["forward.1.bias"][3:5] = 0.0
    model.arrays["imputation.typical"][1:, 3:5] = 7.0
    monitor = make_policy(model, "match").monitor
    for tick in range(40):
        signals = waves(tick)
        signals[3:5] = 7.0
        monitor.step(signals, np.zeros(2, np.float32))
    assert (
        not monitor.assignment.lost
        and monitor._search.compute_min_swap_cost(monitor.assignment) > MONITOR.trust.sure
    )


def test_readings_are_compared_with_the_last_ones_as_these_came_not_as_the_monitor_filtered_them():
    monitor, rng = noisy_monitor(), np.random.default_rng(3)
    for tick in range(60):
        readings = waves(tick) + (0.02 * rng.normal(size=5)).astype(np.float32)
        given = monitor.step(readings, np.zeros(2, np.float32))
    assert not np.array_equal(given, readings), "filtered"
    np.testing.assert_array_equal(monitor._imputation.readings, readings)


def test_signals_that_move_are_found_among_noise_too():
    monitor = noisy_monitor()
    errors(monitor, [STRAIGHT] * 80 + [TURNED] * 40, 0.02)
    names = {CHANNELS[slot]: CHANNELS[place] for slot, place in enumerate(TURNED)}
    assert monitor.channel_by_rewired_slot == names


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [np.s_[:], np.s_[2], np.s_[:, 1], np.s_[1, 3]])
def test_costs_that_are_no_numbers_end_in_an_assignment_all_the_same(bad, where):
    costs = np.random.default_rng(1).normal(size=(5, 5))
    costs[:, 0] -= costs[0, 0] + 10.0  # several channels would take the same slot
    costs[where] = bad
    for assign in ASSIGN:
        with np.errstate(invalid="ignore"):
            assert sorted(assign(costs)) == list(range(5))


@pytest.mark.parametrize("count", [1, 2, 4, 6])
def test_the_assignment_is_the_cheapest_of_all(count):
    for seed in range(10):
        costs = np.random.default_rng(seed).normal(size=(count, count)) * 10
        every = np.array(list(itertools.permutations(range(count))))
        least = costs[every, np.arange(count)].sum(1).min()
        for assign in ASSIGN:
            slots = assign(costs)
            assert sorted(slots) == list(range(count))
            assert costs[slots, np.arange(count)].sum() == pytest.approx(least)


def test_the_assignment_of_many_channels_is_the_cheapest_where_one_slot_suits_most_of_them():
    linear_sum_assignment = pytest.importorskip("scipy.optimize").linear_sum_assignment
    for seed in range(20):
        costs = np.random.default_rng(seed).normal(size=(28, 28)) * 10
        costs[3] -= 5.0 * (seed % 4)
        least = costs[linear_sum_assignment(costs)].sum()
        for assign in ASSIGN:
            slots = assign(costs)
            assert sorted(slots) == list(range(28))
            assert costs[slots, np.arange(28)].sum() == pytest.approx(least)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000), ticks=st.integers(1, 4))
def test_costs_are_the_same_by_the_formula_and_by_the_kernel(seed, ticks):
    rng = np.random.default_rng(seed)

    def drawn():
        return rng.normal(size=(ticks, 6)).astype(np.float32)

    forward = SimpleNamespace(
        actions=1,
        binary=np.arange(6) >= 4,
        constant=np.array([False, True] * 3),
        usual_costs=rng.normal(size=6).astype(np.float32),
        predict_changes=lambda readings, actions: ChangePrediction(*np.ones((3, 1, 6), np.float32)),
    )
    costs = CostCalculator(forward)
    costs.noise_sd = 0.05 * (seed % 3)
    moved = drawn()
    moved[rng.random(moved.shape) < 0.1] = np.nan
    reads = np.round(rng.random((ticks, 6))).astype(np.float32)
    chance = rng.random((ticks, 6)).astype(np.float32)
    expected, prediction = drawn(), ChangePrediction(drawn(), np.exp(drawn()), chance)
    kernel, formula = np.zeros((2, 6, 6))
    costs.add_tick_costs_to_matrix(kernel, moved, expected, reads, prediction)
    costs.add_tick_costs_uncompiled(formula, moved, expected, prediction.scale, reads, chance)
    np.testing.assert_allclose(kernel, formula, atol=1e-4, rtol=1e-4)


def test_a_clearly_better_assignment_is_a_move_unless_the_present_one_is_new():
    forward = ForwardModel(monitored_model())
    costs = CostCalculator(forward)
    detector, assignment = MoveDetector(costs, 5), Assignment.make_nominal(5)
    prediction = forward.predict_changes(np.zeros((1, 5), np.float32), np.zeros((1, 2), np.float32))
    usual = np.diag(forward.usual_costs).astype(np.float64)
    for _ in range(3):
        assert detector.detect_move(usual, prediction, assignment, assignment_is_new=False) is None
    assert detector.consistent == 3 and detector.excess_nll == pytest.approx(0.0)
    moved = np.full((5, 5), 20.0)
    moved[list(TURNED), range(5)] = -5.0
    move = detector.detect_move(moved * 0.4, prediction, assignment, assignment_is_new=False)
    assert move is not None and move.slots.tolist() == list(TURNED)
    assert detector.consistent == 3 and detector.excess_nll == pytest.approx(0.0)
    assert detector.detect_move(moved * 0.4, prediction, assignment, assignment_is_new=True) is None
    assert detector.consistent == 0 and detector.excess_nll > 0.0


def test_an_assignment_keeps_each_signal_under_its_id_until_ids_follow_the_wiring():
    assignment = Assignment.make_nominal(3)
    swapped = assignment.copy_with_slots(np.array([1, 0, 2]))
    assert swapped.copy_with_outputs_updated_from_slots(verifying_move=False).outputs.tolist() == [
        0,
        1,
        2,
    ]
    assert swapped.copy_with_outputs_updated_from_slots(verifying_move=True).outputs.tolist() == [
        1,
        0,
        2,
    ]
    unpinned = swapped.copy_with_signals_under_own_ids()
    before, now = unpinned.renames
    assert (before.tolist(), now.tolist()) == ([0, 1, 2], [1, 0, 2])
    assert unpinned.copy_with_outputs_updated_from_slots(verifying_move=False).outputs.tolist() == [
        1,
        0,
        2,
    ]
    assert unpinned.copy_without_tick_events().renames is None
    assert swapped.arrange_by_slot(np.array([10.0, 20.0, 30.0])).tolist() == [20.0, 10.0, 30.0]


@pytest.mark.parametrize("kept", [4, 20])
@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10_000))
def test_evidence_for_an_assignment_does_not_depend_on_when_it_was_asked_for(kept, seed):
    forward = ForwardModel(monitored_model())
    rng = np.random.default_rng(seed)
    link = rng.normal(size=(5, 5))
    every = np.array(list(itertools.permutations(range(5))))

    def fresh():
        costs, budget = (
            CostCalculator(forward),
            SearchTimeBudget(forward),
        )
        evidence = AssignmentEvidence(forward, costs, kept, budget)
        evidence.restart_with_initial_costs(link)
        return evidence

    def drawn(count):
        return rng.normal(size=count).astype(np.float32)

    asked, records = fresh(), []
    for _ in range(8):
        now, before = drawn(5), drawn(5)
        now[rng.random(5) < 0.1] = np.nan
        records.append(TickRecord(before, drawn(2), now - before, now))
        asked.add_record(records[-1])
        asked.compute_and_store_identity_classifier_costs()
        some = rng.permutation(every)[:3]
        totals = asked.compute_total_cost_of_each_assignment(some)
        first = fresh()
        for record in records:
            first.add_record(record)
        first.compute_and_store_identity_classifier_costs()
        for slots, total in zip(some, totals, strict=True):
            known, new = asked.evaluate_assignment(slots), first.evaluate_assignment(slots)
            np.testing.assert_allclose(known.costs, new.costs, rtol=1e-5, atol=1e-4)
            assert known.total == pytest.approx(new.total, rel=1e-5, abs=1e-3)
            assert total == pytest.approx(new.total, rel=1e-5, abs=1e-3)


def test_a_lost_assignment_keeps_what_the_policy_got_before():
    slots, outputs = np.array([1, 0, 2]), np.array([2, 1, 0])
    known = Assignment(slots, outputs, np.arange(3), np.arange(3), pinned=False, lost=False)
    lost = known.copy_marked_as_lost()
    assert lost.lost and lost.previous is slots and lost.previous_outputs is outputs
