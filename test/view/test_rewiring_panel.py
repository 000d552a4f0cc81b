"""The wiring panel without ROS: what a drag means for the scrambler and for the policy node."""

from __future__ import annotations

import random

import pytest

from an_control.view.rewiring_panel import (
    NO_SCRAMBLER,
    RefusedChangeError,
    RewiringPanel,
    WiringChange,
)

IDS = ("a", "b", "c")
SCRAMBLED = {f"channels.{one}.field": f"position[{one}]" for one in IDS}
SCRAMBLED |= {f"channels.{one}.source": "all" for one in IDS} | {"sources.all.topic": "scrambled"}
PLAIN = {
    "sources.imu.topic": "imu",
    "sources.legs.topic": "legs",
    "channels.roll.source": "imu",
    "channels.roll.field": "roll(orientation)",
    "channels.hip.source": "legs",
    "channels.hip.field": "position[hip]",
    "channels.scan.*.source": "legs",
    "channels.scan.*.field": "position[*]",
}


def scrambled() -> RewiringPanel:
    panel = RewiringPanel()
    panel.set_signals_by_slot({one: one for one in reversed(IDS)})
    panel.set_policy_wiring(SCRAMBLED, "scrambled", node_is_new=True)
    return panel


def plain() -> RewiringPanel:
    panel = RewiringPanel()
    panel.set_policy_wiring(PLAIN, node_is_new=True)
    return panel


def do(panel: RewiringPanel, change: WiringChange) -> None:
    panel.record_change(change, panel.invert_change(change))


def wires(panel: RewiringPanel) -> dict[str, tuple[str, str]]:
    return {one.slot: (one.signal, one.channel) for one in panel.slot_wirings}


def test_an_unannounced_drag_swaps_two_signals_behind_the_channels():
    panel = scrambled()
    change = panel.plan_moving_signal_to_slot("a", "b", announced=False)
    assert dict(change.order) == {"b": "a", "a": "b"} and not change.parameters
    do(panel, change)
    assert wires(panel) == {"a": ("b", "a"), "b": ("a", "b"), "c": ("c", "c")}


def test_an_announced_drag_lets_both_channels_follow_their_signals():
    panel = scrambled()
    change = panel.plan_moving_signal_to_slot("a", "b", announced=True)
    assert dict(change.order) == {"b": "a", "a": "b"}
    assert dict(change.parameters) == {
        "channels.a.field": "position[b]", "channels.b.field": "position[a]",
    }  # fmt: skip
    do(panel, change)
    assert wires(panel) == {"a": ("b", "b"), "b": ("a", "a"), "c": ("c", "c")}


def test_after_any_announced_drags_each_channel_reads_its_own_signal():
    panel, rng = scrambled(), random.Random(1)
    for _ in range(100):
        signal, slot = rng.choice(IDS), rng.choice(IDS)
        if wires(panel)[slot][0] != signal:
            do(panel, panel.plan_moving_signal_to_slot(signal, slot, announced=True))
        do(panel, panel.plan_signal_shuffle(rng, announced=True))
        assert all(signal == channel for signal, channel in wires(panel).values())
    assert panel.signals == list(IDS)


def test_cut_noise_copy_and_a_signal_that_is_plugged_in_again():
    panel = scrambled()
    do(panel, panel.plan_disconnection("a"))
    do(panel, panel.plan_noise_on_slot("b"))
    do(panel, panel.plan_signal_copy("c", "a"))
    assert wires(panel) == {"a": ("c", "a"), "b": ("noise", "b"), "c": ("c", "c")}
    do(panel, panel.plan_moving_signal_to_slot("a", "b", announced=True))
    assert wires(panel) == {"a": ("c", "a"), "b": ("a", "b"), "c": ("c", "c")}


def test_undo_takes_everything_back_in_turn_and_restoring_too():
    panel, rng, seen = scrambled(), random.Random(2), []
    for make in (
        lambda: panel.plan_signal_shuffle(rng, announced=True),
        lambda: (
            panel.plan_moving_signal_to_slot(panel.slot_wirings[0].signal, "c", announced=False)
            if wires(panel)["c"][0] != panel.slot_wirings[0].signal
            else panel.plan_disconnection("c")
        ),
        lambda: panel.plan_disconnection("b"),
        panel.plan_restoring_file_wiring,
    ):
        seen.append(wires(panel))
        do(panel, make())
    assert wires(panel) == {one: (one, one) for one in IDS}
    while seen:
        panel.record_change(panel.plan_undo(), None)
        assert wires(panel) == seen.pop()
    with pytest.raises(RefusedChangeError, match="no change to undo"):
        panel.plan_undo()


def test_a_robot_that_is_started_again_takes_nothing_back():
    panel = scrambled()
    do(panel, panel.plan_moving_signal_to_slot("a", "b", announced=False))
    panel.set_policy_wiring(SCRAMBLED, "scrambled", node_is_new=False)
    assert panel.undo_count == 1
    panel.set_policy_wiring(SCRAMBLED, "scrambled", node_is_new=True)
    assert panel.undo_count == 0


def test_where_the_scrambler_comes_or_goes_nothing_is_taken_back():
    panel = scrambled()
    do(panel, panel.plan_disconnection("a"))
    panel.set_signals_by_slot(None)
    assert panel.undo_count == 0
    do(panel, WiringChange(parameters={"channels.a.field": "position[b]"}))
    panel.set_signals_by_slot({one: one for one in IDS})
    assert panel.undo_count == 0


def test_a_change_of_slots_or_channels_that_have_gone_is_refused():
    panel = scrambled()
    with pytest.raises(RefusedChangeError, match="the robot no longer has x"):
        panel.invert_change(WiringChange({"x": "a"}))
    with pytest.raises(RefusedChangeError, match="the robot no longer has y"):
        panel.invert_change(WiringChange(parameters={"channels.y.field": "position[a]"}))


def test_without_a_scrambler_fields_are_moved_between_channels_and_nothing_can_be_hidden():
    panel = plain()
    assert panel.signals == ["imu: roll(orientation)", "legs: position[hip]"]
    assert (
        panel.refusal_reason_without_rewiring == NO_SCRAMBLER
        and not panel.refusal_reason_with_rewiring
    )
    change = panel.plan_moving_signal_to_slot("legs: position[hip]", "roll", announced=True)
    assert not change.order and dict(change.parameters) == {
        "channels.roll.source": "legs", "channels.roll.field": "position[hip]",
        "channels.hip.source": "imu", "channels.hip.field": "roll(orientation)",
    }  # fmt: skip
    do(panel, change)
    assert wires(panel)["roll"] == ("legs: position[hip]", "roll")
    do(panel, panel.plan_restoring_file_wiring())
    assert wires(panel)["roll"] == ("imu: roll(orientation)", "roll")
    for refused in (
        lambda: panel.plan_disconnection("roll"),
        lambda: panel.plan_moving_signal_to_slot("imu: roll(orientation)", "hip", announced=False),
    ):
        with pytest.raises(RefusedChangeError, match="scrambler"):
            refused()


@pytest.mark.parametrize(
    ("refused", "named"),
    [
        (
            lambda panel: panel.plan_moving_signal_to_slot("x", "a", announced=False),
            "'x' is not a signal",
        ),
        (
            lambda panel: panel.plan_moving_signal_to_slot("a", "x", announced=False),
            "'x' is not an input slot",
        ),
        (
            lambda panel: panel.plan_moving_signal_to_slot("a", "a", announced=False),
            "carries a already",
        ),
        (lambda panel: panel.plan_signal_copy("noise", "a"), "'noise' is not a signal"),
        (lambda panel: panel.plan_disconnection("x"), "'x' is not an input slot"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(refused, named):
    with pytest.raises(RefusedChangeError, match=named):
        refused(scrambled())


def test_a_policy_that_reads_by_a_wildcard_takes_no_announced_change():
    panel = RewiringPanel()
    panel.set_signals_by_slot({one: one for one in IDS})
    panel.set_policy_wiring({"sources.all.topic": "scrambled", "channels.*.source": "all",
                    "channels.*.field": "position[*]"}, "scrambled", node_is_new=True)  # fmt: skip
    assert (
        "wildcard" in panel.refusal_reason_with_rewiring
        and not panel.refusal_reason_without_rewiring
    )
    do(panel, panel.plan_moving_signal_to_slot("a", "b", announced=False))
    with pytest.raises(RefusedChangeError, match="wildcard"):
        panel.plan_moving_signal_to_slot("a", "c", announced=True)
