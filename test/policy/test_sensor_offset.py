"""The monitor estimates the constant offsets of sensors, and subtracts those that are clear."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from an_control.disturbance import DisturbanceSettings, Disturber
from an_control.learning.rollout.engine import make_evaluation_seeds
from an_control.learning.rollout.episode import LiveEpisode
from an_control.load import find_model_path, load_policy
from an_control.monitor.forward_model import ChangePrediction, ExpectedReadings, ForwardModel
from an_control.monitor.sensor_offset import SensorOffsetEstimator
from an_control.monitor.settings import MONITOR
from an_control.policy import read_model
from an_control.ros.diagnostics import make_monitor_diagnostics
from an_control_sim.envs.ant import ANT_CHANNELS
from an_control_sim.gym.environments import find_environment_id, make_environment

CHANNELS, SD = 4, 0.01
SWAPPED = {"hip_1.position": "ankle_2.position", "ankle_2.position": "hip_1.position"}
JOINTS = [name for name in ANT_CHANNELS if name.endswith(".position")]
MIX = 0.6 * np.roll(np.eye(CHANNELS, dtype=np.float32), 1, axis=0)
"""How the change of each channel depends on another one."""
USUAL = np.full(CHANNELS, 0.1, np.float32)


def linear(binary=(), constant=(), products=10):
    """A forward model of a linear system, whose last channels may be binary or constant."""

    def change(signals):
        return signals @ MIX.T - 0.3 * signals

    def expect(signals, action):
        prediction = ChangePrediction(
            change(signals)[None], np.full((1, CHANNELS), SD, np.float32), np.zeros((1, CHANNELS))
        )
        expected = signals + prediction.change[0]
        return ExpectedReadings(signals, action, prediction, expected, expected)

    return SimpleNamespace(
        channels=tuple("abcd"),
        binary=np.isin(np.arange(CHANNELS), binary),
        constant=np.isin(np.arange(CHANNELS), constant),
        usual_change=USUAL,
        products=products,
        compute_expected_readings=expect,
        compute_jacobian_of_change=lambda signals, action: MIX - np.float32(0.3) * np.eye(CHANNELS),
    )


def feed(estimator, forward, offsets, ticks, seed=0, slots=None, noise=SD):
    """Let the system move for some ticks; return what was subtracted in each of them (T, N)."""
    rng, subtracted, before, seen = np.random.default_rng(seed), [], None, None
    slots = np.arange(CHANNELS) if slots is None else slots
    for _ in range(ticks):
        estimator.update_offsets_from_stored_tick()
        signals = rng.uniform(-1.0, 1.0, CHANNELS).astype(np.float32)
        if before is not None:
            signals = forward.compute_expected_readings(before, None).expected
            signals = signals + noise * rng.standard_t(3.0, CHANNELS).astype(np.float32)
            signals[forward.binary] = rng.integers(0, 2, forward.binary.sum())
        given = np.empty_like(signals)
        given[slots] = signals + np.asarray(offsets, np.float32)
        estimator.start_tick()
        corrected = estimator.subtract_offsets(given, slots)[slots]
        if before is not None:
            expectation = forward.compute_expected_readings(seen, np.zeros(1, np.float32))
            estimator.store_tick(expectation, seen, corrected)
        before, seen = signals, corrected
        if rng.random() < 0.3:  # something unforeseen, so that the signals do not come to rest
            before = None
        subtracted.append(estimator.offsets)
    return np.array(subtracted)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.floats(-0.25, 0.25), min_size=CHANNELS, max_size=CHANNELS),
    st.permutations(range(CHANNELS)),
    st.integers(0, 99),
)
def test_the_offsets_of_all_channels_are_found_whichever_slots_they_arrive_at(offsets, slots, seed):
    forward = linear()
    estimator = SensorOffsetEstimator(forward)
    feed(estimator, forward, offsets, 600, seed, np.array(slots))
    off = estimator.offsets - np.array(offsets)
    assert np.abs(off).max() < max(0.03, MONITOR.offset.min_size * USUAL[0])


@pytest.mark.parametrize("seed", range(20))
def test_readings_without_offsets_are_the_same_to_the_last_bit(seed):
    forward = linear(binary=[3])
    estimator = SensorOffsetEstimator(forward)
    feed(estimator, forward, np.zeros(CHANNELS), 400, seed)
    readings = np.ones(CHANNELS, np.float32)
    assert estimator.subtract_offsets(readings, np.arange(CHANNELS)) is readings
    assert estimator.offset_by_channel == {}


def test_what_is_subtracted_changes_in_steps_too_small_to_look_like_a_rewiring():
    forward = linear()
    estimator = SensorOffsetEstimator(forward)
    subtracted = feed(estimator, forward, [0.2, -0.2, 0.0, 0.1], 500)
    largest = MONITOR.offset.step * USUAL[0] * 1.001
    assert 0.0 < np.abs(np.diff(subtracted, axis=0)).max() <= largest
    assert not subtracted[: MONITOR.offset.min_ticks].any()


@pytest.mark.parametrize("name", ["ant", "cartpole", "mobile_base"])
def test_a_robot_that_is_held_seems_to_have_no_offsets(name):
    policy, rng = load_policy(name), np.random.default_rng(0)
    forward = ForwardModel(policy.model)
    rest = forward.typical if forward.imputes else np.zeros(len(forward.channels))
    for _ in range(700):
        readings = rest + 1e-4 * rng.standard_normal(len(rest))
        policy.step_array(readings.astype(np.float32), policy.nominal_ids)
        assert not policy.monitor.offset.offsets.any()


def test_an_offset_that_ends_is_no_longer_subtracted():
    forward = linear()
    estimator = SensorOffsetEstimator(forward)
    feed(estimator, forward, [0.2, 0.0, 0.0, 0.0], 500)
    assert estimator.offset_by_channel.keys() == {"a"}
    feed(estimator, forward, np.zeros(CHANNELS), 1500, seed=1)
    assert not estimator.offsets.any() and estimator.offset_by_channel == {}


def test_a_contact_reads_0_or_1_after_its_offset_is_subtracted():
    forward = linear(binary=[3])
    estimator = SensorOffsetEstimator(forward)
    feed(estimator, forward, [0.0, 0.0, 0.0, 0.07], 400)
    assert estimator.offset_by_channel.keys() == {"d"}
    assert estimator.offsets[3] == pytest.approx(0.07, abs=2e-3)


def test_the_offset_of_a_channel_that_never_changed_in_training_is_left():
    forward = linear(constant=[3])
    estimator = SensorOffsetEstimator(forward)
    feed(estimator, forward, [0.1, 0.1, 0.1, 0.2], 400)
    assert "a" in estimator.offset_by_channel and "d" not in estimator.offset_by_channel


def test_an_offset_too_large_for_the_estimate_is_left_to_the_doctor():
    forward = linear()
    estimator = SensorOffsetEstimator(forward)
    feed(estimator, forward, [MONITOR.offset.max_offset + 0.1, 0.0, 0.0, 0.0], 500)
    assert "a" not in estimator.offset_by_channel


def test_missing_readings_leave_the_estimate_as_it_is():
    forward = linear()
    estimator = SensorOffsetEstimator(forward)
    feed(estimator, forward, [0.2, 0.0, 0.0, 0.0], 500)
    found = estimator.offset_by_channel
    gap = np.array([np.nan, 0.1, 0.1, 0.1], np.float32)
    for _ in range(200):
        estimator.update_offsets_from_stored_tick()
        estimator.start_tick()
        corrected = estimator.subtract_offsets(gap, np.arange(CHANNELS))
        expectation = forward.compute_expected_readings(corrected, None)
        estimator.store_tick(expectation, corrected, corrected)
    assert estimator.offset_by_channel == found
    assert np.isnan(corrected[0]) and np.isfinite(estimator.offsets).all()


def test_a_reset_forgets_the_offsets():
    forward = linear()
    estimator = SensorOffsetEstimator(forward)
    feed(estimator, forward, [0.2, 0.0, 0.0, 0.0], 500)
    estimator.reset()
    assert not estimator.offsets.any() and estimator.offset_by_channel == {}


def test_a_large_model_is_used_in_fewer_ticks_and_one_of_too_many_channels_in_none():
    class Counting(SimpleNamespace):
        used = 0

        def compute_jacobian_of_change(self, signals, action):
            self.used += 1
            return MIX

    def count(**changes):
        forward = Counting(**{**vars(linear()), **changes})
        del forward.compute_jacobian_of_change
        feed(SensorOffsetEstimator(forward), forward, np.zeros(CHANNELS), 300)
        return forward.used

    small = count()
    assert small > 60
    assert count(products=30 * MONITOR.offset.products_per_tick // CHANNELS) <= 300 // 30
    many = MONITOR.offset.max_channels + 1
    wide = SimpleNamespace(
        channels=tuple(map(str, range(many))), products=1, usual_change=np.ones(many, np.float32),
        binary=np.zeros(many, bool), constant=np.zeros(many, bool),
    )  # fmt: skip
    estimator = SensorOffsetEstimator(wide)
    zeros = np.zeros(many, np.float32)
    prediction = ChangePrediction(zeros[None], zeros[None] + 1, zeros[None])
    for _ in range(30):  # fails if the Jacobian is asked for
        expectation = ExpectedReadings(zeros, zeros, prediction, zeros, zeros)
        estimator.store_tick(expectation, zeros, zeros + 1)
        estimator.update_offsets_from_stored_tick()


def test_the_jacobian_is_the_derivative_of_the_prediction():
    forward = ForwardModel(read_model(find_model_path("ant")))
    rng = np.random.default_rng(3)
    signals = rng.normal(0.0, 0.4, len(forward.channels)).astype(np.float32)
    action = rng.uniform(-1.0, 1.0, forward.actions).astype(np.float32)
    step = np.float32(0.01) * np.eye(len(signals), dtype=np.float32)
    actions = np.broadcast_to(action, (len(signals), len(action)))
    ahead = forward.predict_changes(signals + step, actions).change
    behind = forward.predict_changes(signals - step, actions).change
    numeric = ((ahead - behind) / 0.02).T
    jacobian = forward.compute_jacobian_of_change(signals, action)
    assert np.abs(jacobian - numeric).max() < 0.002 * np.abs(numeric).max()


def walk(policy, offset_by_channel, ticks, noise=0.0, swap_at=None):
    """Let the Ant walk for some ticks with sensors that have offsets, and perhaps noise.

    At the tick `swap_at` the sensors of `SWAPPED` are exchanged. The last true readings are
    returned, by channel.
    """
    env = make_environment(find_environment_id("ant"))
    start = make_evaluation_seeds(1, 1)[0]
    disturber = Disturber(ANT_CHANNELS, DisturbanceSettings.from_values({"jitter": noise}), 1)
    disturber.start_episode(start.episode)
    policy.reset()
    live = LiveEpisode(env, start.environment, disturber, ANT_CHANNELS)
    for number, tick in enumerate(live):
        if number == ticks:
            break
        offsets = np.array([offset_by_channel.get(name, 0.0) for name in tick.ids], np.float32)
        values = dict(zip(tick.ids, (np.asarray(tick.values) + offsets).tolist(), strict=True))
        if swap_at is not None and number >= swap_at:
            values |= {one: values[other] for one, other in SWAPPED.items()}
        given = np.array([values[name] for name in tick.ids], np.float32)
        true = dict(zip(tick.ids, tick.values, strict=True))
        live.send_action(policy.step_array(given, tick.ids))
    env.close()
    return true


@pytest.mark.parametrize(
    "offset_by_channel",
    [dict.fromkeys(JOINTS, 0.05), {"roll": 0.05, "pitch": 0.05}],
    ids=["joints", "roll and pitch"],
)
def test_the_walking_ant_gets_readings_without_the_offsets_of_its_sensors(offset_by_channel):
    policy = load_policy("ant")
    walk(policy, offset_by_channel, 420)
    found = policy.monitor_report.offsets
    assert found.keys() >= offset_by_channel.keys()
    for name, offset in offset_by_channel.items():
        assert found[name] == pytest.approx(offset, abs=0.02)
    fine, text, values = make_monitor_diagnostics(policy.monitor_report)
    assert not fine and text.endswith("channels have a constant offset")
    name = next(iter(offset_by_channel))
    assert values[f"{name} offset"] == f"{found[name]:+.3g}"


def test_sensors_that_are_exchanged_keep_their_own_offsets():
    policy = load_policy("ant")
    offsets = {"hip_1.position": 0.15, "ankle_2.position": -0.15}
    true = walk(policy, offsets, 480, swap_at=450)
    report = policy.monitor_report
    assert report.moved == SWAPPED
    for name, offset in offsets.items():
        assert report.offsets[name] == pytest.approx(offset, abs=0.03)
        given = policy.monitor._imputation.signals[policy.nominal_ids.index(name)]
        assert given == pytest.approx(true[name], abs=0.03)


@pytest.mark.parametrize("noise", [0.02, 0.05])
def test_noise_is_not_taken_for_an_offset(noise):
    policy = load_policy("ant")
    walk(policy, {}, 420, noise)
    assert policy.monitor_report.offsets == {}


def test_offsets_are_found_behind_noise_too_but_later():
    policy = load_policy("ant")
    walk(policy, {"roll": 0.1, "pitch": 0.1}, 900, noise=0.02)
    found = policy.monitor_report.offsets
    assert found["roll"] == pytest.approx(0.1, abs=0.03)
    assert found["pitch"] == pytest.approx(0.1, abs=0.03)


def test_the_preparation_between_two_ticks_changes_no_action():
    prepared, plain = load_policy("ant"), load_policy("ant")
    actions = []

    class Both:
        """Both policies on the same readings, of which one prepares its ticks."""

        reset = staticmethod(lambda: (prepared.reset(), plain.reset()))

        @staticmethod
        def step_array(values, ids):
            actions.append((prepared.step_array(values, ids), plain.step_array(values, ids)))
            prepared.prepare_next_tick()
            return actions[-1][1]

    walk(Both, dict.fromkeys(JOINTS, 0.05), 250)
    assert plain.monitor_report.offsets
    assert all((one == other).all() for one, other in actions)
