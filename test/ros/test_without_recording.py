"""The policy node where nothing is recorded."""

from __future__ import annotations

import pytest

from an_control.ros import recording


@pytest.mark.parametrize("installed", [True, False])
def test_a_node_acts_without_a_black_box_and_without_the_package_for_it(
    stand, reference, monkeypatch, installed
):
    if not installed:
        monkeypatch.setattr(recording, "missing_package", lambda: "pip install it")
    stand.start(**({"black_box_s": 0.0} if installed else {}))
    assert [list(stand.step(step).effort) for step in range(3)] == [
        reference.step(step) for step in range(3)
    ]
