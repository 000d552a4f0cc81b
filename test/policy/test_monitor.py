"""The monitored policy: readings in, signals out."""

import subprocess
import sys

import numpy as np
import pytest
from waves import (
    CHANNELS,
    SIZES,
    STRAIGHT,
    TURNED,
    imputing_model,
    missing_one,
    monitored_model,
    play,
    telling_apart,
    waves,
)

from an_control.load import make_policy
from an_control.monitor.assignment import Assignment
from an_control.monitor.monitored_policy import MonitoredPolicy
from an_control.policy import MlpSizes, read_model
from an_control.system.share import find_share_path


def test_while_nothing_moves_every_action_has_the_bits_of_the_policy_alone(engine):
    alone = make_policy(monitored_model(), "off", engine=engine)
    for setting in ("match", "reset"):
        policy = make_policy(monitored_model(), setting, engine=engine)
        alone.reset()
        for tick in range(60):
            action = alone.step_array(waves(tick), tuple(CHANNELS))
            monitored = policy.step_array(waves(tick), tuple(CHANNELS))
            assert monitored.tobytes() == action.tobytes()
        assert policy.monitor.detected_move_count == 0 and not policy.monitor.assignment.lost


def test_a_match_gives_every_neuron_its_signal_again_at_the_tick_of_the_move(engine):
    policy = make_policy(monitored_model(), "match", engine=engine)
    plain = [action for action, _ in play(policy, [STRAIGHT] * 40)]
    policy.reset()
    found = play(policy, [STRAIGHT] * 20 + [TURNED] * 20)
    assert policy.monitor.detected_move_count == 1
    assert found[19][1] == {} and found[20][1] == found[39][1]
    assert found[20][1] == {CHANNELS[slot]: CHANNELS[place] for slot, place in enumerate(TURNED)}
    assert all(
        one.tobytes() == other.tobytes() for (one, _), other in zip(found, plain, strict=True)
    )


def test_an_mlp_policy_can_have_a_monitor_too():
    policy = make_policy(monitored_model(MlpSizes(5, 2, [6])), "match")
    plain = [action for action, _ in play(policy, [STRAIGHT] * 40)]
    policy.reset()
    found = play(policy, [STRAIGHT] * 20 + [TURNED] * 20)
    assert all(
        one.tobytes() == other.tobytes() for (one, _), other in zip(found, plain, strict=True)
    )


def test_a_reset_clears_the_neurons_whose_signal_moved_and_no_other(engine):
    swapped = (1, 0, 2, 3, 4)
    policy = make_policy(monitored_model(), "reset", engine=engine)
    play(policy, [STRAIGHT] * 20)
    before = policy.policy.keys
    policy.step_array(waves(20)[list(swapped)], tuple(CHANNELS))
    fresh = make_policy(monitored_model(), "off", engine=engine)
    fresh.previous_action = play(make_policy(monitored_model(), "match"), [STRAIGHT] * 20)[-1][0]
    fresh.step_array(waves(20)[list(swapped)], tuple(CHANNELS))
    cleared = np.isclose(policy.policy.keys, fresh.keys, atol=1e-6).all(1)
    assert cleared.tolist() == [True, True, False, False, False] and before.shape == (5, 2)


def test_ids_that_the_task_does_not_know_pass_by_and_missing_ones_are_left_out(engine):
    policy = make_policy(monitored_model(), "match", engine=engine)
    ids = (*CHANNELS, "noise.0")
    for tick in range(20):
        policy.step_array(np.append(waves(tick), tick % 3), ids)
    assert set(policy.channel_order) == set(ids)
    policy.step_array(waves(20)[1:], tuple(CHANNELS[1:]))
    assert set(policy.channel_order) == set(CHANNELS[1:])
    gap = waves(21)
    gap[3] = np.nan
    policy.step_array(gap, tuple(CHANNELS))
    assert set(policy.channel_order) == set(CHANNELS) - {CHANNELS[3]}
    for tick in range(22, 60):
        policy.step_array(waves(tick), tuple(CHANNELS))
    assert policy.monitor.detected_move_count == 0 and not policy.monitor.assignment.lost


def test_a_channel_that_stays_away_does_not_make_it_see_moves():
    policy = make_policy(monitored_model(), "match")
    for tick in range(80):
        policy.step_array(waves(tick)[:4], tuple(CHANNELS[:4]))
    assert policy.monitor.detected_move_count == 0 and policy.monitor.channel_by_rewired_slot == {}


@pytest.mark.parametrize("lost_at", [0, 30])
def test_missing_channels_are_imputed_where_the_wiring_is_known(engine, lost_at):
    estimates = np.array([0.1, -0.2, 0.3, -0.4, 90.0], np.float32)
    model = imputing_model(estimates)
    model.arrays["imputation.typical"][0] = [0.5, 0.6, 0.7, 0.8, 0.9]
    policy = make_policy(model, "match", engine=engine)
    alone = make_policy(model, "off", engine=engine)
    for tick in range(60):
        values = waves(tick)
        full = values.copy()
        if tick >= lost_at:
            values[[1, 4]] = np.nan
            full[[1, 4]] = [-0.2, 50.0]  # no more than was ever read
        if tick == lost_at == 0:
            full[[1, 4]] = model.arrays["imputation.typical"][0, [1, 4]]
        action = policy.step_array(values, tuple(CHANNELS))
        assert action.tobytes() == alone.step_array(full, tuple(CHANNELS)).tobytes()
    assert policy.monitor.detected_move_count == 0 and policy.monitor.channel_by_rewired_slot == {}


def test_with_an_unknown_wiring_nothing_is_imputed():
    policy = make_policy(telling_apart(imputing_model(np.zeros(5))), "match")
    for tick in range(40):
        values = waves(tick)[list(TURNED)] * (1 + tick % 2)  # explained by no wiring
        values[1] = np.nan
        policy.step_array(values, tuple(CHANNELS))
        if tick > 1:  # an episode starts in the nominal wiring
            assert set(policy.channel_order) == set(CHANNELS) - {CHANNELS[1]}


def test_a_poor_first_estimate_does_not_end_the_imputation():
    model = telling_apart(imputing_model(np.zeros(5)))
    model.arrays["forward.0.weight"][0, 1] = 1.0  # what the others do follows from channel 1
    model.arrays["forward.1.weight"][:5, 0] = 3.0
    model.arrays["forward.1.bias"][5:] = -6.0
    model.arrays["imputation.typical"][0] = 9.0
    policy = make_policy(model, "match")
    for tick in range(30):
        values = waves(tick)
        values[1] = np.nan
        policy.step_array(values, tuple(CHANNELS))
        assert set(policy.channel_order) == set(CHANNELS)


def here(moved):
    """Of the slots that are not missing: TURNED has all signals elsewhere."""
    return {slot: moved.get(slot) for slot in CHANNELS if slot != CHANNELS[2]}


ELSEWHERE = {CHANNELS[slot]: CHANNELS[signal] for slot, signal in enumerate(TURNED)}


def test_an_unknown_order_is_found_while_a_channel_is_missing(engine):
    policy = make_policy(telling_apart(imputing_model(np.full(5, 7.0))), "match", engine=engine)
    for tick in range(30):
        policy.step_array(missing_one(tick, TURNED), tuple(CHANNELS))
    assert here(policy.monitor.channel_by_rewired_slot) == here(ELSEWHERE)
    assert set(policy.channel_order) == set(CHANNELS)  # the missing one is imputed


@pytest.mark.parametrize("sizes", [SIZES, MlpSizes(5, 2, [6])])
def test_signals_that_move_while_a_channel_is_missing_are_found_at_once(engine, sizes):
    model = telling_apart(imputing_model(np.full(5, 3.0), sizes))
    plain, moving = (make_policy(model, "match", engine=engine) for _ in range(2))
    for tick in range(60):
        order = STRAIGHT if tick < 30 else TURNED
        expected = plain.step_array(missing_one(tick, STRAIGHT), tuple(CHANNELS))
        found = moving.step_array(missing_one(tick, order), tuple(CHANNELS))
        assert found.tobytes() == expected.tobytes()
    assert here(moving.monitor.channel_by_rewired_slot) == here(ELSEWHERE)
    assert plain.monitor.detected_move_count == 0 and moving.monitor.detected_move_count == 1


def test_an_order_that_was_known_stays_when_a_sensor_fails_whatever_the_classifier_says():
    policy = make_policy(telling_apart(imputing_model(np.full(5, 3.0))), "match")
    for tick in range(120):
        values = waves(tick)
        if tick >= 40:
            values[TURNED[2]] = np.nan
            values *= 1.0 + 0.1 * (tick - 40)  # changes as no channel does, and does not jump
        policy.step_array(values, tuple(CHANNELS))
    assert policy.monitor.channel_by_rewired_slot == {}


def test_a_wrong_order_is_not_sought_by_a_tick_that_is_no_evidence():
    policy = make_policy(telling_apart(imputing_model(np.full(5, 3.0))), "match")
    for tick in range(40):
        policy.step_array(missing_one(tick, STRAIGHT), tuple(CHANNELS))
    policy.ignore_next_readings_for_wiring()
    policy.step_array(missing_one(40, TURNED), tuple(CHANNELS))
    assert policy.monitor.channel_by_rewired_slot == {} and not policy.monitor.assignment.detected


def test_a_channel_that_stands_still_where_it_moved_to_is_not_stuck(engine):
    """A joint at its limit, just after a move, was judged by where signals had been before: it was
    left out, and what had been found was given up."""
    model = monitored_model()
    model.arrays["forward.1.bias"][0] = 0.0
    policy = make_policy(model, "match", engine=engine)
    swapped = [1, 0, 2, 3, 4]
    for tick in range(60):
        values = waves(tick)
        values[0] = 0.4
        policy.step_array(values if tick < 30 else values[swapped], tuple(CHANNELS))
        if tick > 31:
            assert policy.monitor.channel_by_rewired_slot == {
                "wave_0": "wave_1",
                "wave_1": "wave_0",
            }
            assert not policy.monitor.assignment.lost


def test_more_than_half_of_the_channels_are_not_imputed():
    policy = make_policy(imputing_model(np.zeros(5)), "match")
    for tick in range(40):
        policy.step_array(waves(tick)[:2], tuple(CHANNELS[:2]))
        assert set(policy.channel_order) == set(CHANNELS[:2])


class Knowing:
    """Stands for a monitor in the nominal wiring that has identified some channels."""

    assignment = Assignment.make_nominal(28)

    def __init__(self, *channels):
        self.identified_channel_mask = np.isin(np.arange(28), channels)

    def reset(self): ...

    def step(self, readings, action, *, readings_follow_action=True):
        return readings


def test_the_attention_learns_of_those_channels_that_the_monitor_has_identified(engine):
    model = read_model(find_share_path("models/ant.safetensors"))
    alone, told = (
        MonitoredPolicy(make_policy(model, "off", engine=engine, recovery=0.0), monitor, "match")
        for monitor in (Knowing(), Knowing(3, 7))
    )
    values = np.linspace(-0.5, 0.5, 28).astype(np.float32)
    for _ in range(2):  # at the first tick there is no neuron yet
        for policy in (alone, told):
            policy.step_array(values, policy.nominal_ids)
    before, after = alone.policy.save_state(), told.policy.save_state()
    changed = [i for i, name in enumerate(alone.nominal_ids) if (before[name] != after[name]).any()]
    assert changed == [3, 7]


class Mistaken:
    """Stands for a monitor that confuses two signals from tick 5 to 8, and from 12 to 15."""

    identified_channel_mask = np.zeros(5, bool)
    correct_readings = staticmethod(lambda readings: readings)

    def __init__(self):
        self.assignment, self.ticks = Assignment.make_nominal(5), 0

    def reset(self):
        self.__init__()

    def step(self, readings, action, *, readings_follow_action=True):
        assignment = self.assignment._replace(detected=self.ticks in (5, 12))
        if self.ticks in (5, 9, 12, 16):
            slots = np.array([1, 0, 2, 3, 4]) if assignment.detected else np.arange(5)
            assignment = assignment._replace(slots=slots, outputs=slots)
        self.assignment, self.ticks = assignment, self.ticks + 1
        return readings[assignment.slots]


def test_neurons_that_got_a_wrong_signal_continue_as_if_it_had_been_the_right_one(engine):
    policy = MonitoredPolicy(
        make_policy(monitored_model(), "off", engine=engine), Mistaken(), "match"
    )
    right = make_policy(monitored_model(), "off", engine=engine)
    for tick in range(18):
        action = policy.step_array(waves(tick), tuple(CHANNELS))
        right.step_array(waves(tick), tuple(CHANNELS))
        now, expected = policy.policy.save_state(), right.save_state()
        right.previous_action = action
        wrong = CHANNELS[:2] if 5 <= tick < 9 or 12 <= tick < 16 else []
        for name in CHANNELS:
            assert (now[name].tobytes() == expected[name].tobytes()) == (name not in wrong)


def test_a_reset_starts_again_from_the_nominal_wiring():
    policy = make_policy(monitored_model(), "match")
    first = play(policy, [STRAIGHT] * 10 + [TURNED] * 10)
    policy.reset()
    assert policy.monitor.channel_by_rewired_slot == {} and policy.monitor.detected_move_count == 0
    again = play(policy, [STRAIGHT] * 10 + [TURNED] * 10)
    assert [action.tobytes() for action, _ in first] == [action.tobytes() for action, _ in again]


def test_a_tick_after_a_command_that_no_action_stands_for_is_no_evidence():
    moved = [1, 0, 2, 3, 4]
    for ignored, beliefs in ((False, [False, True]), (True, [False, False])):
        policy = make_policy(monitored_model(), "match")
        play(policy, [STRAIGHT] * 30)
        believed = [bool(policy.monitor.channel_by_rewired_slot)]
        if ignored:
            policy.ignore_next_readings_for_wiring()
        readings = waves(30)[moved]
        policy.step_array(readings, tuple(CHANNELS))
        believed.append(
            bool(policy.monitor.channel_by_rewired_slot) or policy.monitor.assignment.detected
        )
        assert believed == beliefs


def test_working_ahead_for_the_next_tick_changes_no_bit():
    model, draw = monitored_model(), np.random.default_rng(0)
    plain, ahead = (make_policy(model, "match") for _ in range(2))
    for tick in range(120):
        order = STRAIGHT if tick < 40 else TURNED
        readings = waves(tick)[list(order)]
        if tick % 17 == 3:
            readings[2] = np.nan
        if tick % 23 == 5:
            plain.previous_action = ahead.previous_action = draw.uniform(-1.0, 1.0, 2)
        same = plain.step_array(readings, tuple(CHANNELS))
        assert ahead.step_array(readings, tuple(CHANNELS)).tobytes() == same.tobytes()
        assert ahead.monitor.channel_by_rewired_slot == plain.monitor.channel_by_rewired_slot
        ahead.prepare_next_tick()


def test_what_is_done_to_the_action_that_it_returned_does_not_reach_the_monitor():
    plain, spoiled = (make_policy(monitored_model(), "match") for _ in range(2))
    for tick in range(5):
        plain.step_array(waves(tick), tuple(CHANNELS))
        spoiled.step_array(waves(tick), tuple(CHANNELS))[:] = 0.5
        assert spoiled.previous_action.tobytes() == plain.previous_action.tobytes()


WITHOUT_NUMBA = """
import sys
sys.modules["numba"] = None
import pytest
sys.exit(pytest.main(["-q", "-p", "no:xdist", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


def test_all_this_holds_where_numba_is_not_installed_too():
    others = f"not {test_all_this_holds_where_numba_is_not_installed_too.__name__}"
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_NUMBA, __file__, "-k", others],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout
