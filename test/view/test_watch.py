"""What the page's watch makes of a robot's topics, without a robot."""

from types import SimpleNamespace

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("msgspec")

from an_control.view import schema, watch


class Topics:
    """A listener whose messages the test chooses."""

    def __init__(self) -> None:
        self.newest: dict = {}

    def pop_new_messages(self, name: str) -> list:
        one = self.newest.pop(name, None)
        return [] if one is None else [one]

    def pop_newest_message(self, name: str) -> object:
        return self.newest.pop(name, None)


def test_the_page_goes_on_where_a_return_is_not_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SCORE_S", 0.0)
    topics = Topics()
    one = watch.RobotWatch(topics)
    one.parts = {"policy": schema.DiagnosticsPart("policy", 0, "acting", {})}
    one._heard_s = float("inf")
    rows = []
    for step, total in enumerate([1.0, float("nan"), 3.0, 4.5]):
        names, values = ["episode", "step", "return"], [0.0, float(step), total]
        topics.newest["progress"] = SimpleNamespace(name=names, position=values)
        rows += [
            up.rows[0] for up in one.iterate_new_updates() if isinstance(up, schema.ScoreUpdate)
        ]
    assert [row[1:3] for row in rows] == [[1.0, None], [None, None], [3.0, None], [4.5, 1.5]]


def test_joints_that_two_nodes_publish_on_one_topic_are_drawn_together() -> None:
    topics = Topics()
    one = watch.RobotWatch(topics)
    drawn, ticks = [], []
    for names, positions in (
        (["arm"], [0.5]), (["left", "right"], [1.0, float("nan")]), (["arm"], [0.75]),
    ) * 2:  # fmt: skip
        topics.newest["joints"] = SimpleNamespace(name=names, position=positions)
        topics.newest["channels"] = SimpleNamespace(name=["arm.position"], position=[0.5])
        updates = list(one.iterate_new_updates())
        drawn += [up.joints for up in updates if isinstance(up, schema.DrawingUpdate)]
        ticks += [up.joints for up in updates if isinstance(up, schema.TickUpdate)]
    assert drawn == [["arm"], ["arm", "left", "right"]]
    assert ticks[2] == ticks[-1] == [0.75, 1.0, 0.0]


def test_a_robot_whose_image_cannot_be_drawn_is_drawn_as_bars() -> None:
    topics = Topics()
    one = watch.RobotWatch(topics)
    drawn = []
    for encoding in ("16UC1", "16UC1", "mono8"):
        depth = 2 if encoding == "16UC1" else 1
        topics.newest["image"] = SimpleNamespace(
            height=3, width=4, step=4 * depth, encoding=encoding, data=bytes(12 * depth)
        )
        topics.newest["channels"] = SimpleNamespace(name=["range"], position=[0.5])
        updates = one.iterate_new_updates()
        drawn += [up.kind for up in updates if isinstance(up, schema.DrawingUpdate)]
    assert drawn == ["bars", "camera"]
