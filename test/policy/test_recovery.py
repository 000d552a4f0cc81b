"""A robot that stands still is pushed; one that moves is left alone."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from an_control.load import make_policy
from an_control.monitor.kernels import compute_mean_change_and_store_readings
from an_control.monitor.settings import RECOVERY
from an_control.policy.random_model import make_random_model
from an_control.policy.sizes import make_paper_sizes
from an_control_sim.envs.tasks import ANT_TASK

MODEL = make_random_model(make_paper_sizes(8, queries=16, hidden_layers=1), seed=1, task=ANT_TASK)
IDS = ANT_TASK.channels
LEAST = 0.03
STILL = np.linspace(-1.0, 1.0, len(IDS)).astype(np.float32)


def moving(tick: int) -> np.ndarray:
    return STILL + np.float32(0.1) * (tick % 2)


def actions(policy, readings, ticks: int) -> np.ndarray:
    return np.array([policy.step_array(readings(tick), IDS) for tick in range(ticks)])


def test_while_the_robot_moves_the_actions_are_the_policys_bit_for_bit():
    recovering, alone = make_policy(MODEL, recovery=LEAST), make_policy(MODEL)
    assert (actions(recovering, moving, 300) == actions(alone, moving, 300)).all()
    assert recovering.recovery_count == 0


def runs(pushed: np.ndarray) -> tuple[list[int], list[int]]:
    """The first ticks and the lengths of the recoveries that ended."""
    edges = np.diff(pushed.astype(int), prepend=0)
    firsts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    return firsts[: len(ends)].tolist(), (ends - firsts[: len(ends)]).tolist()


def test_a_robot_that_stands_still_is_pushed_once_then_twice_then_three_times():
    recovering, alone = make_policy(MODEL, recovery=LEAST), make_policy(MODEL)
    both = [actions(policy, lambda tick: STILL, 200) for policy in (recovering, alone)]
    pushed = (np.abs(both[0]) == 1.0).all(1)
    firsts, ticks = runs(pushed)
    assert RECOVERY.pause_ticks <= firsts[0] < 60
    assert (both[0][: firsts[0]] == both[1][: firsts[0]]).all(), "alone until then"
    assert len(ticks) >= RECOVERY.max_pushes + 1, "a check of the last"
    for number, (first, length) in enumerate(zip(firsts, ticks, strict=True), 1):
        count = min(number, RECOVERY.max_pushes)
        assert length == count * RECOVERY.held_ticks
        held = both[0][first : first + length].reshape(count, RECOVERY.held_ticks, -1)
        assert (held == held[:, :1]).all() and len(np.unique(held[:, 0], axis=0)) == count
    pauses = [b - a - n for a, b, n in zip(firsts, firsts[1:], ticks, strict=False)]
    assert set(pauses) == {RECOVERY.pause_ticks - 1}, "the policy has a try between two"


def test_after_a_stop_the_pushes_begin_with_one_again():
    policy = make_policy(MODEL, recovery=LEAST)
    actions(policy, lambda tick: STILL, 200)
    policy.step_array(STILL, IDS)
    policy.previous_action = np.zeros(8, np.float32)
    pushed = (np.abs(actions(policy, lambda tick: STILL, 100)) == 1.0).all(1)
    assert runs(pushed)[1][:2] == [RECOVERY.held_ticks, 2 * RECOVERY.held_ticks]


def test_the_policy_learns_of_the_pushes_and_of_what_was_sent_instead():
    policy = make_policy(MODEL, recovery=LEAST)
    while not policy.recovery_count:
        action = policy.step_array(STILL, IDS)
    assert (policy.previous_action == action).all()
    policy.previous_action = np.zeros(8, np.float32)
    assert not policy.previous_action.any()


def test_the_same_pushes_follow_in_each_episode():
    policy = make_policy(MODEL, recovery=LEAST)
    first = actions(policy, lambda tick: STILL, 120)
    policy.reset()
    assert policy.recovery_count == 0
    assert (actions(policy, lambda tick: STILL, 120) == first).all()


def test_a_robot_that_is_stopped_is_not_pushed_until_it_stands_still_in_command():
    policy = make_policy(MODEL, recovery=LEAST)
    for _ in range(200):
        policy.step_array(STILL, IDS)
        policy.previous_action = np.zeros(8, np.float32)
    assert policy.recovery_count == 0
    after = np.abs(actions(policy, lambda tick: STILL, 60)) == 1.0
    assert RECOVERY.pause_ticks <= int(np.argmax(after.all(1))) < 40


def test_a_push_that_a_limit_cuts_continues():
    policy, pushed = make_policy(MODEL, recovery=LEAST), []
    for _ in range(60):
        action = policy.step_array(STILL, IDS)
        pushed.append((np.abs(action) == 1.0).all())
        policy.previous_action = 0.8 * action
    assert runs(np.array(pushed))[1] == [RECOVERY.held_ticks, 2 * RECOVERY.held_ticks]


def test_a_push_behind_a_limited_rate_lasts_as_long():
    """What is sent comes nearer to the push at each tick, so nothing is stopped."""
    policy, sent = make_policy(MODEL, recovery=LEAST), np.zeros(8, np.float32)
    pushed = []
    for _ in range(120):
        action = policy.step_array(STILL, IDS)
        pushed.append((np.abs(action) == 1.0).all())
        sent = np.clip(action, sent - np.float32(0.05), sent + np.float32(0.05))
        policy.previous_action = sent
    assert runs(np.array(pushed))[1][:3] == [
        RECOVERY.held_ticks,
        2 * RECOVERY.held_ticks,
        3 * RECOVERY.held_ticks,
    ]


@given(st.permutations(range(len(IDS))))
def test_channels_in_another_order_are_pushed_alike(order):
    policy, other = make_policy(MODEL, recovery=LEAST), make_policy(MODEL, recovery=LEAST)
    ids = tuple(IDS[place] for place in order)
    for tick in range(70):
        readings = moving(tick) if tick < 10 else STILL
        action = other.step_array(readings[list(order)], ids)
        assert (policy.step_array(readings, IDS) == action).all()
    assert policy.recovery_count == other.recovery_count > 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_a_reading_that_is_no_number_hides_no_robot_that_stands_still(bad):
    policy = make_policy(MODEL, recovery=LEAST)
    readings = STILL.astype(np.float64)
    readings[3] = bad
    for _ in range(120):
        assert np.isfinite(policy.step_array(readings, IDS)).all()
    assert policy.recovery_count


@pytest.mark.parametrize("readings", [moving, lambda tick: STILL])
def test_the_order_of_the_channels_changes_no_bit(readings):
    policy, other = make_policy(MODEL, recovery=LEAST), make_policy(MODEL, recovery=LEAST)
    rng = np.random.default_rng(1)
    for tick in range(150):
        order, values = rng.permutation(len(IDS)), readings(tick)
        shuffled = other.step_array(values[order], tuple(IDS[i] for i in order))
        assert (policy.step_array(values, IDS) == shuffled).all()
    assert policy.recovery_count == other.recovery_count
    assert (policy.recovery_count > 0) == (readings is not moving)


@pytest.mark.parametrize("left_out", [True, False])
@pytest.mark.parametrize("readings", [moving, lambda tick: STILL])
def test_a_channel_that_comes_and_goes_is_no_movement_and_hides_none(readings, left_out):
    policy, whole = make_policy(MODEL, recovery=LEAST), make_policy(MODEL, recovery=LEAST)
    for tick in range(150):
        values, here = readings(tick).copy(), len(IDS) - tick % 2
        whole.step_array(values, IDS)
        values[here:] = np.nan
        count = here if left_out else len(IDS)
        policy.step_array(values[:count], IDS[:count])
    assert policy.recovery_count == whole.recovery_count
    assert (policy.recovery_count > 0) == (readings is not moving)


@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_where_no_channel_stays_for_two_ticks_nothing_is_known_of_the_robot(engine):
    policy = make_policy(MODEL, engine=engine, recovery=LEAST)
    for tick in range(120):
        some = slice(tick % 2, None, 2)
        policy.step_array(STILL[some], IDS[some])
    assert policy.recovery_count == 0


def test_a_model_says_itself_whether_its_robot_is_pushed_unless_another_is_asked_for():
    model = replace(MODEL, task=replace(ANT_TASK, recovery=LEAST))
    own, never, always = (
        make_policy(model), make_policy(model, recovery=0.0), make_policy(MODEL, recovery=LEAST),
    )  # fmt: skip
    pushed = actions(own, lambda tick: STILL, 120)
    assert own.recovery_count and (pushed == actions(always, lambda tick: STILL, 120)).all()
    actions(never, lambda tick: STILL, 120)
    assert never.recovery_count == make_policy(MODEL).recovery_count == 0


@pytest.mark.parametrize("wrong", [-0.1, 1.5, float("nan")])
def test_a_least_change_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match=r"recovery: .* is not between 0 and 1"):
        make_policy(MODEL, recovery=wrong)


READINGS = arrays(np.float64, (3, 5), elements=st.floats(width=64))


@given(READINGS, st.permutations(range(5)))
@example(np.full((3, 5), np.inf), [4, 3, 2, 1, 0])
def test_the_change_has_the_same_bits_uncompiled_and_in_any_order(readings, order):
    plain = getattr(
        compute_mean_change_and_store_readings, "py_func", compute_mean_change_and_store_readings
    )
    lasts = one, other, permuted = np.full((3, 5), np.nan)
    for values in readings:
        changes = [
            compute_mean_change_and_store_readings(values, one, 1.0),
            plain(values, other, 1.0),
            compute_mean_change_and_store_readings(values[order], permuted, 1.0),
        ]
        assert changes[0] == changes[1] == changes[2] >= 0.0 or np.isnan(changes).all()
        for last, now in zip(lasts, (values, values, values[order]), strict=True):
            assert (np.isnan(last) == np.isnan(now)).all()
        np.testing.assert_array_equal(one, other)


def test_a_caller_may_fill_the_same_array_again_at_each_tick():
    policy, readings = make_policy(MODEL, recovery=LEAST), np.empty(len(IDS))
    for tick in range(120):
        readings[:] = moving(tick)
        policy.step_array(readings, IDS)
    assert policy.recovery_count == 0
