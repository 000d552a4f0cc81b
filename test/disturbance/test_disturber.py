"""What a Disturber does to readings: seeded, tick by tick, one random thing apart from another."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from an_control.disturbance import (
    DisturbanceSettings,
    Disturber,
    ScheduledChange,
    Shuffle,
    derive_episode_seed,
)
from an_control.disturbance.disturber import GarbageReadings

IDS = tuple(f"channel_{i}" for i in range(12))
VALUES = np.arange(12, dtype=np.float32)


def disturber(seed: int = 1, **settings: Any) -> Disturber:
    shuffle = Shuffle.parse(settings.pop("shuffle", "none"))
    return Disturber(IDS, DisturbanceSettings(shuffle, **settings), seed)


def run(one: Disturber, ticks: int) -> list[tuple[list[float], tuple[str, ...]]]:
    outs = (one.disturb(VALUES + 100 * t, IDS) for t in range(ticks))
    return [(values.tolist(), ids) for values, ids in outs]


def test_a_swap_moves_so_many_signals_and_no_other():
    one = disturber(shuffle="1", swap=2)
    values = [np.array(tick[0]) % 100 for tick in run(one, 20)]
    assert all((a != b).sum() == 2 for a, b in pairwise(values))
    assert all(sorted(a.tolist()) == VALUES.tolist() for a in values)


def test_jitter_is_noise_of_that_size_and_changes_no_permutation():
    plain, noisy = (run(disturber(shuffle="5", jitter=sd), 200) for sd in (0.0, 0.02))
    apart = np.array([one[0] for one in noisy]) - np.array([one[0] for one in plain])
    assert 0.018 < apart.std() < 0.022 and abs(apart.mean()) < 0.002


def test_a_bias_is_one_offset_of_each_signal_which_moves_with_it_and_differs_between_episodes():
    plain, biased = disturber(shuffle="reset+5"), disturber(shuffle="reset+5", bias=0.1)
    seen = []
    for episode in range(60):
        for one in (plain, biased):
            one.start_episode(episode)
        before = np.array([one[0] for one in run(plain, 20)])
        after = np.array([one[0] for one in run(biased, 20)])
        places = np.argsort(before, 1)
        offsets = np.take_along_axis(after - before, places, 1)
        assert np.ptp(offsets, 0).max() < 1e-3
        seen.append(offsets[0])
    assert 0.09 < np.std(seen) < 0.11 and abs(np.mean(seen)) < 0.01
    assert len({one.tobytes() for one in seen}) == len(seen)


def test_a_schedule_scales_the_offsets_of_a_bias():
    schedule = (ScheduledChange(5, {"bias": 0.2}), ScheduledChange(10, {"bias": 0.0}))
    settings = DisturbanceSettings(bias=0.1)
    ticks = run(Disturber(IDS, settings, 1, schedule), 15)
    plain = run(Disturber(IDS, DisturbanceSettings(), 1), 15)
    offsets = np.array([one[0] for one in ticks]) - np.array([one[0] for one in plain])
    assert np.allclose(offsets[5:10], 2.0 * offsets[:5], atol=1e-3)
    assert np.ptp(offsets[:5]) > 0.05 and not offsets[10:].any()


def test_none_changes_nothing():
    values, ids = disturber().disturb(VALUES, IDS)
    assert dict(zip(ids, values.tolist(), strict=True)) == dict(
        zip(IDS, VALUES.tolist(), strict=True)
    )
    assert not DisturbanceSettings().is_active


def test_an_unannounced_shuffle_moves_signals_behind_the_same_ids():
    one = disturber(shuffle="reset")
    values, ids = one.disturb(VALUES, IDS)
    assert set(ids) == set(IDS) and sorted(values.tolist()) == VALUES.tolist()
    shown = dict(zip(ids, values.tolist(), strict=True))
    truth = dict(zip(one.ids, one.signal_ids_by_slot, strict=True))
    assert all(shown[slot] == VALUES[IDS.index(truth[slot])] for slot in IDS)
    assert any(truth[slot] != slot for slot in IDS)
    assert one.shuffle_count == 1


def test_an_announced_shuffle_leaves_every_signal_with_its_id():
    one = disturber(shuffle="reset+2", announce=True)
    orders = set()
    for _ in range(6):
        values, ids = one.disturb(VALUES, IDS)
        orders.add(ids)
        assert dict(zip(ids, values.tolist(), strict=True)) == dict(
            zip(IDS, VALUES.tolist(), strict=True)
        )
    assert len(orders) == 3 == one.shuffle_count


def test_every_k_steps_starts_nominal_and_permutes_anew():
    one = disturber(shuffle="3")
    outs = [values for values, _ in (one.disturb(VALUES, IDS) for _ in range(9))]
    assert [a.tolist() == b.tolist() for a, b in pairwise(outs)] == [
        True, True, False, True, True, False, True, True]  # fmt: skip
    assert outs[0].tolist() == disturber().disturb(VALUES, IDS)[0].tolist()


def test_everything_follows_from_seed_and_episode():
    settings = {
        "shuffle": "reset+3",
        "noise_channels": 2,
        "missing": 0.25,
        "spike": 0.2,
        "nan": 0.1,
    }
    one, other = disturber(**settings), disturber(**settings)
    one.start_episode(4)
    run(one, 10)
    for episode in (4, 2, 4):
        one.start_episode(episode)
        other.start_episode(episode)
        np.testing.assert_equal(run(one, 10), run(other, 10))
    other.start_episode(5)
    assert str(run(one, 10)) != str(run(other, 10))


def test_the_order_of_the_ids_does_not_matter():
    one, other = disturber(shuffle="reset+2"), disturber(shuffle="reset+2")
    for _ in range(5):
        values, ids = one.disturb(VALUES, IDS)
        reversed_values, reversed_ids = other.disturb(VALUES[::-1], IDS[::-1])
        assert (values.tolist(), ids) == (reversed_values.tolist(), reversed_ids)


def test_noise_channels_come_after_the_shuffle_and_leave_it_alone():
    plain, noisy = disturber(shuffle="reset"), disturber(shuffle="reset", noise_channels=3)
    values, ids = noisy.disturb(VALUES, IDS)
    assert values[:12].tolist() == plain.disturb(VALUES, IDS)[0].tolist()
    assert ids[12:] == ("noise.0", "noise.1", "noise.2")
    noise = np.array([noisy.disturb(VALUES, IDS)[0][12:] for _ in range(2000)])
    assert noise.std() == pytest.approx(0.1, rel=0.05) and abs(noise.mean()) < 0.01


def test_added_channels_take_no_id_that_a_channel_of_the_robot_has():
    own = ("copy.0", "noise.1", "position")
    one = Disturber(own, DisturbanceSettings.parse("none,noise=2,copies=2"), 1)
    _, ids = one.disturb(np.zeros(3, np.float32), own)
    assert ids == (*own, "copy.1", "copy.2", "noise.0", "noise.2")


def test_a_missing_share_is_missing_for_the_whole_episode():
    one = disturber(missing=0.25)
    shown = {ids for _, ids in run(one, 5)}
    assert len(shown) == 1 and len(shown.pop()) == 9
    one.start_episode(1)
    assert {ids for _, ids in run(one, 5)} != shown


def test_a_channel_that_does_not_come_is_missing_in_the_slot_that_carries_it():
    one = disturber(shuffle="reset")
    values, ids = one.disturb(VALUES[1:], IDS[1:])
    hidden = one.ids[one.signal_ids_by_slot.index(IDS[0])]
    assert set(ids) == set(IDS) - {hidden}
    assert sorted(values.tolist()) == VALUES[1:].tolist()
    assert len(one.disturb(VALUES, IDS)[1]) == 12


def test_the_same_ids_come_back_as_the_same_tuple():
    one = disturber(shuffle="reset", noise_channels=1)
    assert one.disturb(VALUES, IDS)[1] is one.disturb(VALUES, IDS)[1]


def test_delay_freeze_spike_and_nan_do_what_they_say():
    late = [min(values) for values, _ in run(disturber(delay=2), 5)]
    assert late == [0.0, 0.0, 0.0, 100.0, 200.0]
    frozen = np.array([values for values, _ in run(disturber(freeze=0.5), 3)])
    assert (np.ptp(frozen, axis=0) == 0).sum() == 6
    spiked = np.array([values for values, _ in run(disturber(spike=0.5), 50)])
    clean = np.array([values for values, _ in run(disturber(), 50)])
    assert 0.4 < (spiked != clean).mean() < 0.6
    lost = np.array([values for values, _ in run(disturber(nan=0.5), 50)])
    assert 0.4 < np.isnan(lost).mean() < 0.6


def test_settings_that_change_on_the_way_draw_anew_only_what_they_decide():
    one, steady = disturber(shuffle="reset", missing=0.25), disturber(shuffle="reset", missing=0.25)
    run(one, 3)
    run(steady, 3)
    one.change_settings(replace(one.settings, noise_channels=2, nan=0.0))
    (values, ids), (before, names) = one.disturb(VALUES, IDS), steady.disturb(VALUES, IDS)
    assert ids[: len(names)] == names and values[: len(names)].tolist() == before.tolist()
    assert ids[len(names) :] == ("noise.0", "noise.1")
    one.change_settings(replace(one.settings, noise_channels=0, missing=0.0))
    assert len(one.disturb(VALUES, IDS)[1]) == 12
    assert one.signal_ids_by_slot == steady.signal_ids_by_slot
    one.shuffle()
    assert one.signal_ids_by_slot != steady.signal_ids_by_slot and one.shuffle_count == 2
    one.start_episode(1)
    steady.start_episode(1)
    assert one.signal_ids_by_slot == steady.signal_ids_by_slot and not one.settings.missing


def test_a_delay_that_grows_holds_the_reading_until_it_is_that_late():
    one = disturber(delay=1)
    run(one, 5)
    one.change_settings(replace(one.settings, delay=3))
    late = [min(values) for values, _ in run(one, 4)]
    assert late == [300.0, 300.0, 400.0, 0.0]
    one.change_settings(replace(one.settings, delay=0, spike=1e-9))
    assert min(one.disturb(VALUES + 900, IDS)[0]) == 900.0


def test_a_schedule_changes_the_same_steps_of_every_episode():
    schedule = (
        ScheduledChange(4, {"missing": 0.0, "shuffle": Shuffle(False, 2)}),
        ScheduledChange(2, {"missing": 0.5}),
    )
    one = Disturber(IDS, DisturbanceSettings(), 1, schedule)
    for episode in (0, 1):
        one.start_episode(episode)
        counts = [(len(ids), one.shuffle_count) for _, ids in run(one, 2)]
        assert counts == [(12, 0), (12, 0)]
        assert [len(ids) for _, ids in run(one, 2)] == [6, 6]
        assert [len(ids) for _, ids in run(one, 3)] == [12, 12, 12]
        assert one.shuffle_count == 2
    one.start_episode(0)
    first = run(one, 8)
    again = Disturber(IDS, DisturbanceSettings(), 1, schedule[::-1])
    assert run(again, 8) == first


def test_episode_seeds_differ_and_are_fixed():
    seeds = {derive_episode_seed(seed, episode) for seed in range(20) for episode in range(20)}
    assert len(seeds) == 400 and all(0 <= seed < 2**31 for seed in seeds)
    assert derive_episode_seed(1, 2) == derive_episode_seed(1, 2)


def test_the_same_seed_gives_the_same_bits_as_ever():
    """Every random thing at once; recorded before the module was split."""
    every = {"shuffle": "reset+3", "noise_channels": 2, "missing": 0.25, "copies": 5, "swap": 4}
    faults = {"freeze": 0.2, "delay": 1, "jitter": 0.1, "spike": 0.2, "nan": 0.05}
    digest = hashlib.sha256()
    for values, ids in run(disturber(7, **every, **faults), 20):
        digest.update(repr((np.round(values, 3).tolist(), ids)).encode())
    assert digest.hexdigest()[:16] == "93d194135d1b672f"


def messages(one: Disturber, ticks: int) -> list[tuple[float, bool, bool]]:
    """Of each tick's message the number of the tick that it was made in; arrived; new."""
    found = []
    for tick in range(ticks):
        values, _ = one.disturb(VALUES + 100 * tick, IDS)
        found.append((float(values.min()) // 100, one.has_message_arrived, one.is_message_new))
    return found


def test_where_a_message_is_lost_the_one_before_it_stays_and_does_not_arrive_again():
    found = messages(disturber(lose=0.3), 300)
    last = 0.0
    for tick, (shown, arrived, new) in enumerate(found):
        last = float(tick) if arrived else last
        assert shown == last and new == arrived
    assert found[0] == (0.0, True, True)
    assert 60 < sum(not arrived for _, arrived, _ in found) < 120


def test_a_message_that_is_repeated_arrives_again_in_the_place_of_the_next():
    found = messages(disturber(repeat=0.3), 300)
    last = 0.0
    for tick, (shown, arrived, new) in enumerate(found):
        last = float(tick) if new else last
        assert shown == last and arrived
    assert 60 < sum(not new for _, _, new in found) < 120


def test_the_same_messages_are_lost_whether_others_are_repeated_or_not():
    lost = [arrived for _, arrived, _ in messages(disturber(lose=0.2), 200)]
    assert lost == [arrived for _, arrived, _ in messages(disturber(lose=0.2, repeat=0.4), 200)]
    one = disturber(lose=0.2)
    run(one, 7)
    one.start_episode(0)
    assert lost == [arrived for _, arrived, _ in messages(one, 200)]


def test_a_drift_that_reaches_its_bound_comes_back_from_it():
    whole, ticks = (GarbageReadings(np.random.default_rng(5), 40) for _ in range(2))
    readings = whole.draw_readings(50_000)
    drifts = readings[:, readings.std(0) > 2.0]  # all other channels are noise or zeros
    assert drifts.shape[1] > 4 and 4.9 < np.abs(drifts).max() <= 5.0
    assert (np.abs(drifts[1:] - drifts[:-1]).max(0) < 0.3).all()
    assert (np.abs(drifts[-5_000:]) < 5.0).any(0).all()
    assert all((ticks.draw_readings(1)[0] == one).all() for one in readings[:100])
