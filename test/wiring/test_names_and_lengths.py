"""Names that are nearly those of the wiring, names of any characters, arrays of another length."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from an_control.wiring import ChannelTable, WiringError
from an_control.wiring.config import describe_nearest_name
from an_control.wiring.messages import format_element_path, parse_field_path

Table = Callable[..., ChannelTable]
JOINTS = "sensor_msgs/msg/JointState"
SO, ONE_EACH = "write it so in the wiring", "the sender must send one for each name"


def joints(names: Sequence[str], position: Sequence[float], velocity: Sequence[float] = ()) -> Any:
    return SimpleNamespace(
        name=list(names), position=array("d", position), velocity=array("d", velocity)
    )


def read(table: ChannelTable, message: Any) -> tuple[dict[str, float], list[str]]:
    """The readings by id, and what the table says of losses."""
    table.store_message("s", message, None, 0)
    readings = table.read(0)
    found = dict(zip(readings.ids, readings.values.tolist(), strict=True))
    return found, [str(notice) for notice in table.pop_notices()]


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        (["J6"], f"it names J6, which differs in case: {SO}"),
        (["j6 "], f"it names 'j6 ', which differs in blanks: {SO}"),
        (["robot1/j6"], f"it names robot1/j6, which differs in its prefix: {SO}"),
        (["arm_j6", "x"], f"it names arm_j6, which differs in its prefix: {SO}"),
        (["j66", "q"], "it names j66, which is similar"),
        (["a", "b"], "it names a, b"),
        (list("abcdefgh"), "it names a, b, c, d, e and 3 more"),
        ([], "it names nothing"),
    ],
)
def test_a_missing_name_is_told_with_the_nearest_that_the_message_has(
    table: Table, listed: list[str], words: str
) -> None:
    arm = table({"s": JOINTS}, {"six": "position[j6]"})
    found, said = read(arm, joints(listed, [0.0] * len(listed)))
    assert found == {}
    assert said == [f"source 's': six lost: the message does not name it: {words}"]
    assert arm.list_source_statuses(0)[0].reasons == (f"the message does not name it: {words}",)


@pytest.mark.parametrize(
    ("listed", "velocity", "words"),
    [
        (["J6"], [1.0], f": the newest one names J6, which differs in case: {SO}"),
        (
            ["robot1/j6"],
            [1.0],
            f": the newest one names robot1/j6, which differs in its prefix: {SO}",
        ),
        (["j6"], [], ": in the newest one velocity is empty"),
        (["finger"], [1.0], ""),
    ],
)
def test_what_messages_have_no_longer_is_told_with_what_they_have_instead(
    table: Table, listed: list[str], velocity: list[float], words: str
) -> None:
    arm = table({"s": JOINTS}, {"six": "velocity[j6]"})
    read(arm, joints(["j6"], [0.0], [1.0]))
    said: list[str] = []
    for now_ns in range(0, 300_000_000, 10_000_000):
        arm.store_message("s", joints(listed, [0.0], velocity), None, now_ns)
        arm.read(now_ns)
        said += [str(notice) for notice in arm.pop_notices()]
    reason = f"no message with it for more than 0.1 s{words}"
    assert said == [f"source 's': six lost: {reason}"]
    assert arm.list_source_statuses(300_000_000)[0].reasons == (reason,)


def test_names_that_differ_in_their_encoding_are_told_apart() -> None:
    assert "how its characters are encoded" in describe_nearest_name(
        "gelenk_\u00e4", ["gelenk_a\u0308"]
    )


@given(st.text(min_size=1, max_size=20), st.lists(st.text(max_size=20), max_size=8))
def test_whatever_the_names_are_something_is_said(name: str, names: list[str]) -> None:
    assert describe_nearest_name(name, names).startswith("it names ")


NAMES = st.text(min_size=1, max_size=20).filter(
    lambda name: '"' not in name and "\n" not in name and name != "*"
)


@given(NAMES)
def test_every_name_has_a_path_that_means_it(name: str) -> None:
    (step,) = parse_field_path(format_element_path("position", name)).steps
    assert (step.name, step.key) == ("position", name)


@pytest.mark.parametrize("name", ["hip[1]", "gelenk_\u00e4", "3", "\u81c2"])
def test_joints_of_any_name_can_be_read(table: Table, name: str) -> None:
    arm = table(
        {"s": JOINTS}, {"a": format_element_path("position", name), f"{name}x": "velocity[0]"}
    )
    found, _ = read(arm, joints(["other", name], [1.0, 2.0], [5.0, 6.0]))
    assert found["a"] == 2.0


def test_a_name_with_blanks_is_no_id(table: Table) -> None:
    with pytest.raises(WiringError, match="visible characters"):
        table({"s": JOINTS}, {"a\u200bb": "position[a]"})


@pytest.mark.parametrize(
    ("velocity", "words"),
    [
        ([1.0, 2.0], f"velocity has 2 of 3 elements: {ONE_EACH}"),
        ([1.0] * 4, f"velocity has 4 elements for 3 names: {ONE_EACH}"),
        ([], "velocity is empty"),
    ],
)
def test_an_array_of_another_length_than_its_names_says_so(
    table: Table, velocity: list[float], words: str
) -> None:
    fields = {f"{name}.v": f"velocity[{name}]" for name in "abc"}
    arm = table({"s": JOINTS}, {"p": "position[a]", **fields})
    found, said = read(arm, joints("abc", [0.0] * 3, velocity))
    kept = {"p", "a.v", "b.v"} if len(velocity) == 2 else {"p"}
    assert found.keys() == kept
    assert len(said) == 1 and said[0].endswith(f"lost: {words}")


def test_the_same_holds_of_wildcards(table: Table) -> None:
    arm = table({"s": JOINTS}, {"*.v": "velocity[*]"})
    for step in range(150):
        arm.store_message("s", joints("ab", [], [1.0, 2.0]), step + 1, step * 10_000_000)
        arm.read(step * 10_000_000)
    arm.pop_notices()
    now_ns = 1_500_000_000
    arm.store_message("s", joints("ab", [], [1.0, 2.0, 3.0]), 999, now_ns)
    assert arm.read(now_ns).ids == ()
    (notice,) = arm.pop_notices()
    assert str(notice).endswith(f"a.v, b.v lost: velocity has 3 elements for 2 names: {ONE_EACH}")
