"""The monitor: a forward model in the file, costs and assignments, readings in and signals out."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import an_control
from an_control.policy import (
    AttentionSizes,
    MlpSizes,
    ModelError,
    MonitoredPolicy,
    make_policy,
    read_model,
    write_model,
)
from an_control.policy.monitor import assignment
from an_control.policy.monitor.belief import Belief
from an_control.policy.monitor.costs import Costs
from an_control.policy.monitor.detector import ChangeDetector
from an_control.policy.monitor.forward_model import ForwardModel
from an_control.policy.random_model import random_model
from an_control.policy.sizes import ForwardSizes
from an_control.share import share_path

CHANNELS = [f"wave_{i}" for i in range(5)]
SPEEDS = np.array([0.11, 0.17, 0.29, 0.41, 0.53])
SIZES = AttentionSizes(actions=2, neuron=3, queries=4, key=2, inputs=["value"], head=[5])
TASK = {"name": "waves", "channels": CHANNELS, "step_s": 0.01}
FORWARD = ForwardSizes(hidden=[8], identity=4, binary=[])


def monitored_model(sizes=SIZES, **changes):
    """A model whose forward network knows that channel i changes by SPEEDS[i] at every tick."""
    model = random_model(sizes, seed=3, task=TASK)
    forward = replace(FORWARD, **changes)
    shapes = forward.shapes(len(CHANNELS), sizes.actions)
    ours = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    ours["forward.1.bias"][:5] = SPEEDS
    ours["forward.1.bias"][5:] = -5.0
    ours["forward.step"][:] = 1.0
    ours["forward.usual"][:] = -5.0
    ours["identity.units"][:] = 1.0
    return replace(model, arrays=model.arrays | ours, forward=forward)


def imputing_model(estimates, sizes=SIZES):
    """A monitored model that takes every missing channel for these estimates (5,)."""
    model = monitored_model(sizes, imputation=2)
    shapes = model.forward.shapes(len(CHANNELS), sizes.actions)
    arrays = {
        name: np.zeros(shapes[name], np.float32)
        for name in shapes
        if name.startswith("imputation.")
    }
    arrays["imputation.2.bias"][:] = estimates
    arrays["imputation.typical"][1:] = [[-50.0], [50.0]]
    return replace(model, arrays=model.arrays | arrays)


def waves(tick):
    """What the channels read: ramps of different slopes, which start apart."""
    return (np.arange(5) * 3.0 + SPEEDS * tick).astype(np.float32)


def play(policy, orders, ids=tuple(CHANNELS)):
    """Actions and moved signals, where slot i carries signal order[i] at each tick."""
    found = []
    for tick, order in enumerate(orders):
        action = policy.step_array(waves(tick)[list(order)], ids)
        found.append((action, dict(policy.monitor.moved)))
    return found


STRAIGHT, TURNED = (0, 1, 2, 3, 4), (3, 0, 1, 4, 2)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "waves.safetensors"


def test_the_file_carries_the_forward_model_and_its_default(path):
    write_model(path, monitored_model(monitor="reset"))
    model = read_model(path)
    assert model.forward == replace(FORWARD, monitor="reset")
    policy = an_control.load_policy(path)
    assert isinstance(policy, MonitoredPolicy) and policy.setting == "reset"
    assert an_control.load_policy(path, monitor="match").setting == "match"
    assert not isinstance(an_control.load_policy(path, monitor="off"), MonitoredPolicy)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hidden": [0]}, "forward.hidden: 0"),
        ({"hidden": []}, "forward.hidden"),
        ({"identity": "many"}, "forward.identity: 'many'"),
        ({"binary": ["no such"]}, "forward.binary"),
        ({"imputation": -1}, "forward.imputation: -1"),
        ({"monitor": "always"}, "forward.monitor: 'always' is not one of off, reset, match"),
        ({"more": 1}, "forward"),
    ],
)
def test_a_bad_description_is_refused_by_name(path, change, named):
    write_model(path, monitored_model())
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    tensors = json.loads(content[8 : 8 + length])
    header = json.loads(tensors["__metadata__"]["an_control"])
    header["forward"] |= change
    tensors["__metadata__"]["an_control"] = json.dumps(header)
    begin = json.dumps(tensors).encode()
    path.write_bytes(len(begin).to_bytes(8, "little") + begin + content[8 + length :])
    with pytest.raises(ModelError, match=named):
        read_model(path)


def test_arrays_that_are_missing_or_wrong_are_refused(path):
    model = monitored_model()
    lacking = {name: array for name, array in model.arrays.items() if name != "identity.units"}
    with pytest.raises(ModelError, match=r"identity\.units"):
        write_model(path, replace(model, arrays=lacking))
    with pytest.raises(ModelError, match=r"forward"):
        write_model(path, replace(model, forward=None))
    broken = model.arrays | {"forward.step": np.full(5, np.nan, np.float32)}
    with pytest.raises(ModelError, match=r"forward\.step.*not finite"):
        write_model(path, replace(model, arrays=broken))


def test_while_nothing_moves_every_action_has_the_bits_of_the_policy_alone(engine):
    alone = make_policy(monitored_model(), "off", engine=engine)
    for setting in ("match", "reset"):
        policy = make_policy(monitored_model(), setting, engine=engine)
        alone.reset()
        for tick in range(60):
            action = alone.step_array(waves(tick), tuple(CHANNELS))
            monitored = policy.step_array(waves(tick), tuple(CHANNELS))
            assert monitored.tobytes() == action.tobytes()
        assert policy.monitor.rewires == 0 and not policy.monitor.belief.lost


def test_a_match_gives_every_neuron_its_signal_again_at_the_tick_of_the_move(engine):
    policy = make_policy(monitored_model(), "match", engine=engine)
    plain = [action for action, _ in play(policy, [STRAIGHT] * 40)]
    policy.reset()
    found = play(policy, [STRAIGHT] * 20 + [TURNED] * 20)
    assert policy.monitor.rewires == 1
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
    assert policy.monitor.rewires == 0 and not policy.monitor.belief.lost


def test_a_channel_that_stays_away_does_not_make_it_see_moves():
    policy = make_policy(monitored_model(), "match")
    for tick in range(80):
        policy.step_array(waves(tick)[:4], tuple(CHANNELS[:4]))
    assert policy.monitor.rewires == 0 and policy.monitor.moved == {}


def test_a_header_that_does_not_name_imputation_has_none():
    header = {"hidden": [8], "identity": 4, "binary": [], "monitor": "match"}
    assert ForwardSizes.read(header, CHANNELS) == FORWARD


@pytest.mark.parametrize("lost_at", [0, 30])
def test_missing_channels_are_imputed_where_the_wiring_is_known(engine, lost_at):
    estimates = np.array([0.1, -0.2, 0.3, -0.4, 90.0], np.float32)
    policy = make_policy(imputing_model(estimates), "match", engine=engine)
    alone = make_policy(imputing_model(estimates), "off", engine=engine)
    for tick in range(60):
        values = waves(tick)
        full = values.copy()
        if tick >= lost_at:
            values[[1, 4]] = np.nan
            full[[1, 4]] = [-0.2, 50.0]  # no more than was ever read
        ids = tuple(CHANNELS)
        if tick == lost_at == 0:
            full, ids = full[[0, 2, 3]], (ids[0], ids[2], ids[3])  # nothing is known yet
        action = policy.step_array(values, tuple(CHANNELS))
        assert action.tobytes() == alone.step_array(full, ids).tobytes()
    assert policy.monitor.rewires == 0 and policy.monitor.moved == {}


def test_with_an_unknown_wiring_nothing_is_imputed():
    policy = make_policy(imputing_model(np.zeros(5)), "match")
    for tick in range(40):
        values = waves(tick)[list(TURNED)] * (1 + tick % 2)  # explained by no wiring
        values[1] = np.nan
        policy.step_array(values, tuple(CHANNELS))
        assert set(policy.channel_order) == set(CHANNELS) - {CHANNELS[1]}


def test_more_than_half_of_the_channels_are_not_imputed():
    policy = make_policy(imputing_model(np.zeros(5)), "match")
    for tick in range(40):
        policy.step_array(waves(tick)[:2], tuple(CHANNELS[:2]))
        assert set(policy.channel_order) == set(CHANNELS[:2])


def test_neurons_continue_from_a_saved_state(engine):
    policy = make_policy(monitored_model(), "off", engine=engine)
    for tick in range(5):
        policy.step_array(waves(tick), tuple(CHANNELS))
    kept = policy.save_state()
    for tick in range(5, 9):
        policy.step_array(waves(tick)[::-1], tuple(CHANNELS))
    changed = policy.save_state()
    policy.restore_state(
        {name: kept[name] for name in CHANNELS[:2]} | {"no such": kept[CHANNELS[0]]}
    )
    now = policy.save_state()
    for name in CHANNELS:
        expected = kept if name in CHANNELS[:2] else changed
        assert now[name][:-1].tobytes() == expected[name][:-1].tobytes()


def test_the_shipped_ants_neurons_continue_from_a_saved_state(engine):
    model = read_model(share_path("models/ant.safetensors"))
    policy = make_policy(model, "off", engine=engine)
    rng = np.random.default_rng(7)
    kept = {}
    for tick in range(9):
        policy.step_array(rng.normal(size=28).astype(np.float32), policy.nominal_ids)
        if tick == 4:
            kept = policy.save_state()
    policy.restore_state(kept)
    for name, now in policy.save_state().items():
        there = np.isfinite(now)
        assert np.array_equal(now[there], kept[name][there]) and (~there).sum() <= 2
    action = policy.step_array(rng.normal(size=28).astype(np.float32), policy.nominal_ids)
    assert np.isfinite(action).all()


class Mistaken:
    """Stands for a monitor that confuses two signals from tick 5 to tick 8."""

    def __init__(self):
        self.belief, self.ticks = replace(Belief.nominal(5), settled=True), 0

    def reset(self):
        self.__init__()

    def step(self, readings, action, *, evidence=True):
        belief = replace(self.belief, detected=self.ticks == 5)
        if self.ticks in (5, 9):
            slots = np.array([1, 0, 2, 3, 4]) if belief.detected else np.arange(5)
            belief = replace(belief, slots=slots, outputs=slots)
        self.belief, self.ticks = belief, self.ticks + 1
        return readings[belief.slots]


def test_neurons_that_got_a_wrong_signal_continue_from_before_it(engine):
    policy = MonitoredPolicy(
        make_policy(monitored_model(), "off", engine=engine), Mistaken(), "match"
    )
    before = make_policy(monitored_model(), "off", engine=engine)
    for tick in range(9):
        action = policy.step_array(waves(tick), tuple(CHANNELS))
        if tick < 5:
            before.step_array(waves(tick), tuple(CHANNELS))
    policy.step_array(waves(9), tuple(CHANNELS))
    before.restore_state(before.save_state())  # as they do: with no reading before
    before.previous_action = action
    before.step_array(waves(9), tuple(CHANNELS))
    now, expected = policy.policy.save_state(), before.save_state()
    for name in CHANNELS:
        same = now[name].tobytes() == expected[name].tobytes()
        assert same == (name in CHANNELS[:2])


def test_a_reset_starts_again_from_the_nominal_wiring():
    policy = make_policy(monitored_model(), "match")
    first = play(policy, [STRAIGHT] * 10 + [TURNED] * 10)
    policy.reset()
    assert policy.monitor.moved == {} and policy.monitor.rewires == 0
    again = play(policy, [STRAIGHT] * 10 + [TURNED] * 10)
    assert [action.tobytes() for action, _ in first] == [action.tobytes() for action, _ in again]


def test_neurons_continue_under_other_ids_as_if_these_had_always_been_theirs(engine):
    names = {"wave_0": "wave_2", "wave_2": "wave_0"}
    one, other = (make_policy(monitored_model(), "off", engine=engine) for _ in range(2))
    for tick in range(5):
        one.step_array(waves(tick), tuple(CHANNELS))
        other.step_array(waves(tick), tuple(names.get(name, name) for name in CHANNELS))
    one.rename_channels(names)
    for tick in range(5, 8):
        values = waves(tick)
        action = one.step_array(values, tuple(CHANNELS))
        assert action.tobytes() == other.step_array(values, tuple(CHANNELS)).tobytes()


@pytest.mark.parametrize("count", [1, 2, 4, 6])
def test_the_assignment_is_the_cheapest_of_all(count):
    pytest.importorskip("numba")
    from an_control.policy.monitor import assignment_numba

    for seed in range(10):
        costs = np.random.default_rng(seed).normal(size=(count, count)) * 10
        every = np.array(list(itertools.permutations(range(count))))
        least = costs[every, np.arange(count)].sum(1).min()
        for assign in (assignment.assign, assignment_numba.assign):
            slots = assign(costs)
            assert sorted(slots) == list(range(count))
            assert costs[slots, np.arange(count)].sum() == pytest.approx(least)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000), ticks=st.integers(1, 4))
def test_costs_are_the_same_compiled(seed, ticks):
    pytest.importorskip("numba")
    from an_control.policy.monitor import assignment_numba

    rng = np.random.default_rng(seed)

    def drawn():
        return rng.normal(size=(ticks, 6)).astype(np.float32)

    moved, binary = drawn(), np.arange(6) >= 4
    moved[rng.random(moved.shape) < 0.1] = np.nan
    reads = np.round(rng.random((ticks, 6))).astype(np.float32)
    chance = rng.random((ticks, 6)).astype(np.float32)
    usual = rng.normal(size=6).astype(np.float32)
    rest = (moved, drawn(), np.exp(drawn()), reads, chance, binary, usual, 0.003)
    plain, compiled = np.zeros((6, 6)), np.zeros((6, 6))
    assignment.add_costs(plain, *rest)
    assignment_numba.add_costs(compiled, *rest)
    np.testing.assert_allclose(compiled, plain, atol=1e-4, rtol=1e-4)


def test_the_identity_classifier_gives_probabilities():
    forward = ForwardModel(monitored_model())
    reads = np.stack([waves(tick) for tick in range(7)])
    change = np.diff(reads, axis=0, prepend=reads[:1])
    costs = forward.identity_costs(reads, change, np.zeros((7, 2), np.float32))
    np.testing.assert_allclose(np.exp(-costs).sum(1), 1.0, rtol=1e-5)


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
    assert monitor.moved == {}


def test_signals_that_move_are_found_among_noise_too():
    monitor = noisy_monitor()
    errors(monitor, [STRAIGHT] * 80 + [TURNED] * 40, 0.02)
    names = {CHANNELS[slot]: CHANNELS[place] for slot, place in enumerate(TURNED)}
    assert monitor.moved == names


def test_a_tick_after_a_command_that_no_action_stands_for_is_no_evidence():
    moved = [1, 0, 2, 3, 4]
    for ignored, beliefs in ((False, [False, True]), (True, [False, False])):
        policy = make_policy(monitored_model(), "match")
        play(policy, [STRAIGHT] * 30)
        believed = [bool(policy.monitor.moved)]
        if ignored:
            policy.ignore_next_tick()
        readings = waves(30)[moved]
        policy.step_array(readings, tuple(CHANNELS))
        believed.append(bool(policy.monitor.moved) or policy.monitor.belief.detected)
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
        assert ahead.monitor.moved == plain.monitor.moved
        ahead.prepare()


def test_what_is_done_to_the_action_that_it_returned_does_not_reach_the_monitor():
    plain, spoiled = (make_policy(monitored_model(), "match") for _ in range(2))
    for tick in range(5):
        plain.step_array(waves(tick), tuple(CHANNELS))
        spoiled.step_array(waves(tick), tuple(CHANNELS))[:] = 0.5
        assert spoiled.previous_action.tobytes() == plain.previous_action.tobytes()


def test_a_clearly_better_assignment_is_a_move_unless_the_present_one_is_new():
    forward = ForwardModel(monitored_model())
    costs = Costs(forward)
    detector, belief = ChangeDetector(costs, 5), Belief.nominal(5)
    prediction = forward.predict(np.zeros((1, 5), np.float32), np.zeros((1, 2), np.float32))
    usual = np.diag(forward.usual_costs).astype(np.float64)
    for _ in range(3):
        assert detector.step(usual, prediction, belief, new=False) is None
    assert detector.consistent == 3 and detector.surprise == pytest.approx(0.0)
    moved = np.full((5, 5), 20.0)
    moved[list(TURNED), range(5)] = -5.0
    move = detector.step(moved * 0.4, prediction, belief, new=False)
    assert move is not None and move.slots.tolist() == list(TURNED)
    assert detector.consistent == 3 and detector.surprise == pytest.approx(0.0)
    assert detector.step(moved * 0.4, prediction, belief, new=True) is None
    assert detector.consistent == 0 and detector.surprise > 0.0


def test_a_belief_keeps_each_signal_under_its_id_until_ids_follow_the_wiring():
    belief = Belief.nominal(3)
    swapped = belief.assigned(np.array([1, 0, 2]))
    assert swapped.with_outputs(verifying=False).outputs.tolist() == [0, 1, 2]
    assert swapped.with_outputs(verifying=True).outputs.tolist() == [1, 0, 2]
    unpinned = swapped.unpinned()
    before, now = unpinned.renames
    assert (before.tolist(), now.tolist()) == ([0, 1, 2], [1, 0, 2])
    assert unpinned.with_outputs(verifying=False).outputs.tolist() == [1, 0, 2]
    assert unpinned.next_tick().renames is None
    assert swapped.by_slot(np.array([10.0, 20.0, 30.0])).tolist() == [20.0, 10.0, 30.0]
