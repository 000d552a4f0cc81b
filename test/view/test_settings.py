"""The sliders' values, as the scrambler has them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("msgspec")
from an_control.view.clients import Calls
from an_control.view.command_handlers import Deeds
from an_control.view.graph import Found


class Scrambler(Calls):
    """Nodes with these parameters."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values

    async def parameters_below(self, node: str, prefixes: Sequence[str]) -> dict[str, object]:
        return {}

    async def parameters(self, node: str, names: Sequence[str]) -> dict[str, object]:
        return {name: self._values[name] for name in names if name in self._values}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"jitter": "0.05"}, 0.05),
        ({"jitter": "0.01..0.2"}, 0.2),
        ({"jitter": 0.1}, 0.1),
        ({"missing": 0.4}, 0.4),
        ({"shuffle": "none"}, 0.0),
        ({"shuffle": "50"}, 50.0),
        ({"shuffle": "reset"}, 0.0),
        ({"shuffle": "reset+50"}, 50.0),
    ],
)
def test_a_slider_shows_what_the_scrambler_was_started_with(given, shown):
    deeds = Deeds(Scrambler(given), None)
    found = Found(policy="/r/policy", scrambler="/r/simulator")
    assert asyncio.run(deeds.see(found, new=True))
    assert list(deeds.settings.values()) == [shown]


@pytest.mark.parametrize(
    ("given", "wiring"),
    [
        ({"/r/policy": "derived.yaml", "/r/simulator": "walker.yaml"}, "walker.yaml"),
        ({"/r/policy": "walker.yaml", "/r/simulator": ""}, "walker.yaml"),
        ({"/r/policy": "walker.yaml"}, "walker.yaml"),
        ({}, ""),
    ],
)
def test_the_robots_own_wiring_is_that_of_its_scrambler_where_it_has_one(given, wiring):
    class Nodes(Scrambler):
        async def parameters(self, node: str, names: Sequence[str]) -> dict[str, object]:
            return {"wiring": given[node]} if node in given else {}

    deeds = Deeds(Nodes({}), None)
    assert asyncio.run(deeds.see(Found("/r/policy", "/r/simulator"), new=True))
    assert deeds.wiring == wiring and deeds.settings == {}
    asyncio.run(deeds.forget())
    assert deeds.wiring == ""
