"""The schedule file, and the text of a shuffle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from an_control.disturbance import Range, ScheduledChange, Shuffle, load_schedule
from an_control.wiring import WiringError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", Shuffle()),
        ("reset", Shuffle(True)),
        ("25", Shuffle(False, 25)),
        ("reset+25", Shuffle(True, 25)),
    ],
)
def test_shuffle_texts(text, expected):
    assert Shuffle.parse(text) == expected


@pytest.mark.parametrize("text", ["", "0", "-3", "resets", "none+5", "reset+", "2.5", "reset+0"])
def test_any_other_shuffle_text_is_refused_with_what_is_allowed(text):
    with pytest.raises(ValueError, match=r"allowed: none, reset, K, reset\+K"):
        Shuffle.parse(text)


@given(st.booleans(), st.integers(0, 999))
def test_a_shuffle_reads_back_from_its_text(at_reset: bool, every: int):
    assert Shuffle.parse(str(Shuffle(at_reset, every))) == Shuffle(at_reset, every)


SCHEDULE = (
    "an_control_schedule: 1\nchanges:\n  2: {missing: 0.5, shuffle: 3}\n  7: {announce: true}\n"
)


def test_a_schedule_file_says_from_which_step_on_what_changes(tmp_path):
    (tmp_path / "schedule.yaml").write_text(SCHEDULE)
    assert load_schedule(tmp_path / "schedule.yaml") == (
        ScheduledChange(2, {"missing": Range(0.5, 0.5), "shuffle": Shuffle(False, 3)}),
        ScheduledChange(7, {"announce": True}),
    )


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("missing: 0.5", "missing: 1.5", "changes.2.missing.*0 to 1"),
        ("missing: 0.5", "gain: 0.5", "missing"),
        ("missing: 0.5", "copies: 1.5", "whole"),
        ("shuffle: 3", "shuffle: often", "changes.2.shuffle.*reset"),
        ("announce: true", "announce: 1", "true or false"),
        ("  7:", "  later:", "a step"),
        ("schedule: 1", "schedule: 2", "version"),
    ],
)
def test_a_schedule_file_that_is_not_right_is_refused_with_place_and_choices(
    tmp_path, right, wrong, said
):
    (tmp_path / "schedule.yaml").write_text(SCHEDULE.replace(right, wrong))
    with pytest.raises(WiringError, match=said):
        load_schedule(tmp_path / "schedule.yaml")
