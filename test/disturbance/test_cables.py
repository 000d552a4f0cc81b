"""SignalRouting: which signal each channel carries because somebody plugged it in there."""

from __future__ import annotations

import numpy as np
import pytest

from an_control.disturbance.signal_routing import SignalRouting

IDS = ("a", "b", "c")
VALUES = np.array([1.0, 2.0, 3.0], np.float32)


def carried(cables: SignalRouting, values=VALUES, ids=IDS) -> dict[str, float]:
    given, names = cables.route_readings_to_channels(values, ids)
    return dict(zip(names, given.tolist(), strict=True))


def test_at_first_the_very_readings_come_out():
    cables = SignalRouting(IDS)
    values, ids = cables.route_readings_to_channels(VALUES, IDS)
    assert values is VALUES and ids is IDS
    assert cables.signal_by_channel == {"a": "a", "b": "b", "c": "c"}


def test_signals_are_moved_cut_and_copied_and_the_ids_stay_one_tuple():
    cables = SignalRouting(IDS)
    cables.assign_signals_to_channels({"a": "b", "b": "a"})
    assert carried(cables) == {"a": 2.0, "b": 1.0, "c": 3.0}
    cables.assign_signals_to_channels({"c": "b", "a": ""})
    assert carried(cables) == {"b": 1.0, "c": 2.0}
    assert cables.signal_by_channel == {"a": "", "b": "a", "c": "b"}
    assert (
        cables.route_readings_to_channels(VALUES, IDS)[1]
        is cables.route_readings_to_channels(VALUES, IDS)[1]
    )
    cables.assign_signals_to_channels({"a": "a", "b": "b", "c": "c"})
    assert cables.route_readings_to_channels(VALUES, IDS)[0] is VALUES


def test_noise_is_another_number_at_each_tick_and_the_same_by_its_seed():
    first, second = SignalRouting(IDS, 3), SignalRouting(IDS, 3)
    for one in first, second:
        one.assign_signals_to_channels({"b": "noise"})
    drawn = [carried(first)["b"] for _ in range(50)]
    assert drawn == [carried(second)["b"] for _ in range(50)]
    assert len(set(drawn)) == 50 and 0.5 < np.std(drawn) < 2.0
    assert carried(first)["a"] == 1.0


def test_a_channel_is_missing_while_its_signal_is():
    cables = SignalRouting(IDS)
    cables.assign_signals_to_channels({"a": "c", "b": "noise"})
    assert set(carried(cables, VALUES[:2], ("a", "b"))) == {"b"}
    assert set(carried(cables)) == {"a", "b", "c"}


def test_what_turns_up_later_carries_its_own_signal():
    cables = SignalRouting(("a",))
    cables.assign_signals_to_channels({"a": ""})
    cables.add_channels(("a", "b"))
    assert carried(cables, VALUES[:2], ("a", "b")) == {"b": 2.0}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"d": "a"}, "'d' is not a channel"),
        ({"a": "d"}, "'d' is not a signal"),
        ({"": ""}, "not a channel"),
    ],
)
def test_what_is_not_there_is_named_and_nothing_changes(changes, named):
    cables = SignalRouting(IDS)
    with pytest.raises(ValueError, match=named):
        cables.assign_signals_to_channels({"a": "b", **changes})
    assert cables.signal_by_channel == {"a": "a", "b": "b", "c": "c"}
