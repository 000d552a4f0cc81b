"""The table of settings: one entry makes every check, word, option and parameter."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan
from typing import Any

import numpy as np
import pytest
import tyro

from an_control.disturbance import (
    SETTINGS,
    DisturbanceSettings,
    Disturber,
    Range,
    Setting,
    Shuffle,
    load_schedule,
)
from an_control.learning.api.evolution import parse_disturbances

IDS = tuple(f"channel_{i}" for i in range(12))
WALK = pytest.mark.parametrize("one", SETTINGS, ids=lambda one: one.name)


def another(one: Setting) -> Any:
    """A value that is not the default."""
    if one.kind is Shuffle:
        return Shuffle(True, 3)
    if one.kind is bool:
        return not one.default
    if one.choices:
        return one.choices[1]
    if one.kind is Range:
        step = 2 if one.whole else 0.5 if one.maximum == inf else one.maximum / 2
        return Range.from_value(one.default.low + step)
    if one.kind is int:
        return one.default + 2
    return one.default + (0.5 if one.maximum == inf else (one.maximum - one.default) / 2)


def having(one: Setting) -> DisturbanceSettings:
    """Settings with another value of this one, and of the one that it modifies."""
    both = [other for other in SETTINGS if other.name in (one.name, one.modifies)]
    return DisturbanceSettings(**{other.name: another(other) for other in both})


def as_text(one: Setting) -> str:
    return str(another(one)).lower()


@WALK
def test_what_a_setting_does_not_allow_is_refused_with_its_name_and_what_it_allows(one):
    for bad in (-1, nan, inf, "much", None, *one.forbidden, one.maximum + 1):
        with pytest.raises(ValueError, match=one.name) as refused:
            DisturbanceSettings(**{one.name: bad})
        assert f"(allowed: {one.allowed_values_text})" in str(refused.value)
    if one.kind is Range:
        for bad in (f"{one.minimum - 1}..1", "1..", "2..1", "1..2..3"):
            with pytest.raises(ValueError, match=one.name):
                one.convert_value(bad)
    assert one.convert_value(one.default_as_plain_value) == one.default
    assert one.convert_value(as_text(one)) == another(one)


@WALK
def test_a_setting_changes_what_comes_out_and_nothing_else_turns_it_on(one):
    def outs(settings: DisturbanceSettings) -> list[Any]:
        disturber, noise = Disturber(IDS, settings, 1), np.random.default_rng(1)
        ticks = (noise.normal(size=12).astype(np.float32) for _ in range(12))
        return [
            (values.tolist(), ids) for values, ids in (disturber.disturb(t, IDS) for t in ticks)
        ]

    settings = having(one)
    assert settings.is_active and settings.does_disturb_target(one.target)
    if one.target != "readings":
        assert outs(settings) == outs(DisturbanceSettings())
        assert not settings.does_disturb_target("readings")
        return
    np.testing.assert_equal(outs(settings), outs(settings))
    assert repr(outs(settings)) != repr(outs(replace(settings, **{one.name: one.default})))
    alone = DisturbanceSettings(**{one.name: another(one)})
    assert alone.is_active == (not one.modifies)
    if not alone.is_active:
        assert repr(outs(alone)) == repr(outs(DisturbanceSettings()))


@WALK
def test_a_recorded_episode_is_disturbed_as_it_would_have_been_tick_by_tick(one):
    """To the bit, with a range where there can be one; also where readings were missing."""
    recorded = np.random.default_rng(5).normal(size=(60, 12)).astype(np.float32)
    recorded[:3, 4] = recorded[20:30, 7] = np.nan
    if one.target != "readings" or one.name == "announce":
        return
    wide = {one.name: Range(0, 4 if one.whole else 0.5)} if one.kind is Range else {}
    for settings in (having(one), replace(having(one), shuffle=Shuffle(True, 7), **wide)):
        live, again = (Disturber(IDS, settings, 3, missing_as_nan=True) for _ in range(2))
        ticks = [(live.disturb(tick, live.ids)[0], live.has_message_arrived) for tick in recorded]
        replay = again.disturb_episode(recorded)
        assert replay.steps.tolist() == [step for step, (_, came) in enumerate(ticks) if came]
        np.testing.assert_array_equal(replay.values, [values for values, came in ticks if came])
        assert replay.signals.shape == replay.values.shape


@pytest.mark.parametrize("text", ["none,jitter=0.1000001", "none,noise=1234567", "none,lose=1e-7"])
def test_every_digit_of_a_number_reads_back(text):
    settings = DisturbanceSettings.parse(text)
    assert DisturbanceSettings.parse(str(settings)) == settings
    assert str(DisturbanceSettings.parse("none,jitter=0.05,missing=0.1..1")) == (
        "none,missing=0.1..1,jitter=0.05"
    )


@WALK
def test_a_setting_has_a_word_that_reads_back(one):
    settings = having(one)
    assert DisturbanceSettings.parse(str(settings)) == settings
    assert one.kind is Shuffle or one.word in str(settings)


@WALK
def test_a_schedule_sets_what_can_change_within_an_episode(one, tmp_path):
    path = tmp_path / "schedule.yaml"
    path.write_text(f"an_control_schedule: 1\nchanges:\n  3: {{{one.name}: {as_text(one)}}}\n")
    if one.scheduled:
        assert load_schedule(path) == ((3, {one.name: another(one)}),)
    else:
        with pytest.raises(ValueError, match=one.name):
            load_schedule(path)


@WALK
@pytest.mark.parametrize("verb", ["sim", "evaluate"])
def test_a_setting_is_an_option_of_the_verbs_that_disturb(one, verb, capsys):
    from an_control.cli.verbs import load_verb_class

    command = load_verb_class(verb)
    option = f"--{one.name.replace('_', '-')}"
    value = [] if one.kind is bool else [as_text(one)]
    given = tyro.cli(command, args=["ant", option, *value]).disturbance.to_settings()
    assert getattr(given, one.name) == another(one)
    with pytest.raises(SystemExit):
        tyro.cli(command, args=["--help"])
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert option in shown and one.help_with_unit[1:] in shown
    assert one.kind is bool or f": {one.allowed_values_text}." in shown


@WALK
def test_a_setting_is_a_parameter_of_simulator_and_scrambler(one):
    rclpy = pytest.importorskip("rclpy")
    from rclpy.parameter import Parameter

    from an_control_sim.parameters import (
        call_when_disturbance_changes,
        declare_disturbance_parameters,
    )

    context = rclpy.Context()
    rclpy.init(context=context)
    node = rclpy.create_node("host", context=context)
    taken: list[DisturbanceSettings] = []
    try:
        assert declare_disturbance_parameters(node) == DisturbanceSettings()
        call_when_disturbance_changes(node, taken.append)
        described = node.describe_parameter(one.name)
        assert (described.description, described.additional_constraints) == (
            one.help_with_unit,
            one.allowed_values_text,
        )
        value = str(another(one)) if one.is_given_as_text else another(one)
        (result,) = node.set_parameters([Parameter(one.name, value=value)])
        if one.target == "readings":
            assert result.successful and getattr(taken[-1], one.name) == another(one)
        else:
            assert not result.successful and "read-only" in result.reason and not taken
    finally:
        node.destroy_node()
        rclpy.shutdown(context=context)


@WALK
@pytest.mark.parametrize("kind", ["scalar channels", "image patches", "images"])
def test_a_setting_disturbs_the_kinds_of_observation_that_it_names_and_no_other(one, kind):
    settings = DisturbanceSettings(**{one.name: another(one)})
    if kind in one.observations:
        settings.check_settings_fit_observation(kind)
    else:
        with pytest.raises(ValueError, match=f"{one.name}: .*allowed for {kind}: shuffle"):
            settings.check_settings_fit_observation(kind)


@WALK
def test_what_evaluation_does_to_patches_never_touches_their_numbers(one):
    """A patch is a place: noise on it would be another patch."""
    from an_control.disturbance.patches import PatchDisturber

    disturber = Disturber(IDS, having(one), 1)
    if "image patches" not in one.observations:
        with pytest.raises(ValueError, match="allowed for image patches"):
            PatchDisturber(disturber)
        return
    numbers = np.arange(12, dtype=np.uint8)[:, None, None, None]
    patches = np.broadcast_to(numbers, (12, 4, 6, 6)).copy()
    seen = PatchDisturber(disturber).disturb(patches, IDS)[0]
    assert set(np.unique(seen)) <= set(range(12))


def test_more_signals_than_channels_cannot_move():
    DisturbanceSettings(swap=28).check_swap_count(28)
    with pytest.raises(ValueError, match=r"swap: 99 .*0 to 28, the number of channels"):
        DisturbanceSettings(swap=99).check_swap_count(28)


def test_training_refuses_such_a_swap_by_its_text():
    assert parse_disturbances(("none", "25,swap=5"), 5)[1].swap == 5
    with pytest.raises(ValueError, match=r"--shuffle 25,swap=9: swap: 9 .*0 to 5"):
        parse_disturbances(("none", "25,swap=9"), 5)


def test_of_a_range_each_episode_has_a_number_of_its_own_that_nothing_else_changes():
    def drawn(**settings: object) -> list[tuple[float, float]]:
        disturber = Disturber(IDS, DisturbanceSettings(**settings), 3)
        found = []
        for episode in range(60):
            disturber.start_episode(episode)
            found.append((disturber.settings.delay.value, disturber.settings.gain.value))
        return found

    both = drawn(delay=Range(0, 2), gain=Range(0.6, 1))
    delays, gains = zip(*both, strict=True)
    assert {0, 1, 2} == set(delays) and min(map(delays.count, delays)) > 10
    assert 0.6 <= min(gains) < 0.65 < 0.95 < max(gains) <= 1.0
    assert [gain for _, gain in drawn(gain=Range(0.6, 1), noise_channels=2)] == list(gains)
    assert drawn(delay=Range(0, 2), gain=Range(0.6, 1)) == both


def test_a_word_alone_moves_no_signal():
    assert DisturbanceSettings.parse("delay=0..2,lose=0.1") == DisturbanceSettings(
        delay=Range(0, 2), lose=0.1
    )
    assert str(DisturbanceSettings.parse("delay=1")) == "none,delay=1"
    with pytest.raises(ValueError, match=r"'start=high': start: 'high' \(allowed: usual, rest"):
        DisturbanceSettings.parse("start=high")
