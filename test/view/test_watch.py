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
