"""The patch bay without ROS: what a drag means for the scrambler and for the policy node."""

from __future__ import annotations

import random

import pytest

from an_control.view.bay import NO_SCRAMBLER, RefusedChangeError, RewiringPanel, WiringChange

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
    bay = RewiringPanel()
    bay.set_order({one: one for one in reversed(IDS)})
    bay.set_wiring(SCRAMBLED, "scrambled", new=True)
    return bay


def plain() -> RewiringPanel:
    bay = RewiringPanel()
    bay.set_wiring(PLAIN, new=True)
    return bay


def do(bay: RewiringPanel, change: WiringChange) -> None:
    bay.record_change(change, bay.inverse_of(change))


def wires(bay: RewiringPanel) -> dict[str, tuple[str, str]]:
    return {one.plug: (one.signal, one.channel) for one in bay.wires}


def test_an_unannounced_drag_swaps_two_signals_behind_the_channels():
    bay = scrambled()
    change = bay.connect("a", "b", announced=False)
    assert dict(change.order) == {"b": "a", "a": "b"} and not change.parameters
    do(bay, change)
    assert wires(bay) == {"a": ("b", "a"), "b": ("a", "b"), "c": ("c", "c")}


def test_an_announced_drag_lets_both_channels_follow_their_signals():
    bay = scrambled()
    change = bay.connect("a", "b", announced=True)
    assert dict(change.order) == {"b": "a", "a": "b"}
    assert dict(change.parameters) == {
        "channels.a.field": "position[b]", "channels.b.field": "position[a]",
    }  # fmt: skip
    do(bay, change)
    assert wires(bay) == {"a": ("b", "b"), "b": ("a", "a"), "c": ("c", "c")}


def test_after_any_announced_drags_each_channel_reads_its_own_signal():
    bay, rng = scrambled(), random.Random(1)
    for _ in range(100):
        signal, plug = rng.choice(IDS), rng.choice(IDS)
        if wires(bay)[plug][0] != signal:
            do(bay, bay.connect(signal, plug, announced=True))
        do(bay, bay.shuffle(rng, announced=True))
        assert all(signal == channel for signal, channel in wires(bay).values())
    assert bay.signals == list(IDS)


def test_cut_noise_copy_and_a_signal_that_is_plugged_in_again():
    bay = scrambled()
    do(bay, bay.cut_signal("a"))
    do(bay, bay.put_noise("b"))
    do(bay, bay.copy_signal("c", "a"))
    assert wires(bay) == {"a": ("c", "a"), "b": ("noise", "b"), "c": ("c", "c")}
    do(bay, bay.connect("a", "b", announced=True))
    assert wires(bay) == {"a": ("c", "a"), "b": ("a", "b"), "c": ("c", "c")}


def test_undo_takes_everything_back_in_turn_and_straighten_too():
    bay, rng, seen = scrambled(), random.Random(2), []
    for make in (
        lambda: bay.shuffle(rng, announced=True),
        lambda: (
            bay.connect(bay.wires[0].signal, "c", announced=False)
            if wires(bay)["c"][0] != bay.wires[0].signal
            else bay.cut_signal("c")
        ),
        lambda: bay.cut_signal("b"),
        bay.restore_file_wiring,
    ):
        seen.append(wires(bay))
        do(bay, make())
    assert wires(bay) == {one: (one, one) for one in IDS}
    while seen:
        bay.record_change(bay.undo(), None)
        assert wires(bay) == seen.pop()
    with pytest.raises(RefusedChangeError, match="no change to undo"):
        bay.undo()


def test_a_robot_that_is_started_again_takes_nothing_back():
    bay = scrambled()
    do(bay, bay.connect("a", "b", announced=False))
    bay.set_wiring(SCRAMBLED, "scrambled", new=False)
    assert bay.undos == 1
    bay.set_wiring(SCRAMBLED, "scrambled", new=True)
    assert bay.undos == 0


def test_where_the_scrambler_comes_or_goes_nothing_is_taken_back():
    bay = scrambled()
    do(bay, bay.cut_signal("a"))
    bay.set_order(None)
    assert bay.undos == 0
    do(bay, WiringChange(parameters={"channels.a.field": "position[b]"}))
    bay.set_order({one: one for one in IDS})
    assert bay.undos == 0


def test_a_change_of_plugs_or_channels_that_have_gone_is_refused():
    bay = scrambled()
    with pytest.raises(RefusedChangeError, match="the robot no longer has x"):
        bay.inverse_of(WiringChange({"x": "a"}))
    with pytest.raises(RefusedChangeError, match="the robot no longer has y"):
        bay.inverse_of(WiringChange(parameters={"channels.y.field": "position[a]"}))


def test_without_a_scrambler_fields_are_moved_between_channels_and_nothing_can_be_hidden():
    bay = plain()
    assert bay.signals == ["imu: roll(orientation)", "legs: position[hip]"]
    assert bay.why_not_unannounced == NO_SCRAMBLER and not bay.why_not_announced
    change = bay.connect("legs: position[hip]", "roll", announced=True)
    assert not change.order and dict(change.parameters) == {
        "channels.roll.source": "legs", "channels.roll.field": "position[hip]",
        "channels.hip.source": "imu", "channels.hip.field": "roll(orientation)",
    }  # fmt: skip
    do(bay, change)
    assert wires(bay)["roll"] == ("legs: position[hip]", "roll")
    do(bay, bay.restore_file_wiring())
    assert wires(bay)["roll"] == ("imu: roll(orientation)", "roll")
    for refused in (
        lambda: bay.cut_signal("roll"),
        lambda: bay.connect("imu: roll(orientation)", "hip", announced=False),
    ):
        with pytest.raises(RefusedChangeError, match="scrambler"):
            refused()


@pytest.mark.parametrize(
    ("refused", "named"),
    [
        (lambda bay: bay.connect("x", "a", announced=False), "'x' is no signal"),
        (lambda bay: bay.connect("a", "x", announced=False), "'x' is no plug"),
        (lambda bay: bay.connect("a", "a", announced=False), "carries a already"),
        (lambda bay: bay.copy_signal("noise", "a"), "'noise' is no signal"),
        (lambda bay: bay.cut_signal("x"), "'x' is no plug"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(refused, named):
    with pytest.raises(RefusedChangeError, match=named):
        refused(scrambled())


def test_a_policy_that_reads_by_a_wildcard_takes_no_announced_change():
    bay = RewiringPanel()
    bay.set_order({one: one for one in IDS})
    bay.set_wiring({"sources.all.topic": "scrambled", "channels.*.source": "all",
                    "channels.*.field": "position[*]"}, "scrambled", new=True)  # fmt: skip
    assert "wildcard" in bay.why_not_announced and not bay.why_not_unannounced
    do(bay, bay.connect("a", "b", announced=False))
    with pytest.raises(RefusedChangeError, match="wildcard"):
        bay.connect("a", "c", announced=True)
