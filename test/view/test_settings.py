"""The sliders' values, as the scrambler has them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("msgspec")
from an_control.view.clients import ServiceCalls
from an_control.view.command_handlers import CommandHandlers
from an_control.view.graph import RobotGraph


class Scrambler(ServiceCalls):
    """Nodes with these parameters."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values

    async def get_parameters_with_prefixes(
        self, node: str, prefixes: Sequence[str]
    ) -> dict[str, object]:
        return {}

    async def get_parameters(self, node: str, names: Sequence[str]) -> dict[str, object]:
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
    deeds = CommandHandlers(Scrambler(given), None)
    found = RobotGraph(policy="/r/policy", scrambler="/r/simulator")
    assert asyncio.run(deeds.try_read_robot_parameters(found, node_is_new=True))
    assert list(deeds.settings.values()) == [shown]


@pytest.mark.parametrize(
    ("simulator", "wiring"),
    [({"wiring": "walker.yaml"}, "walker.yaml"), ({"wiring": ""}, "seen.yaml"), ({}, "seen.yaml")],
)
def test_the_robots_own_wiring_is_that_of_its_scrambler_where_it_names_one(simulator, wiring):
    class Nodes(Scrambler):
        """Like rclpy's nodes they return nothing where one of the parameters is not declared."""

        async def get_parameters(self, node: str, names: Sequence[str]) -> dict[str, object]:
            found = await super().get_parameters(node, [f"{node} {name}" for name in names])
            plain = {key.split()[1]: value for key, value in found.items()}
            return plain if len(plain) == len(names) else {}

    policy = {"mode": "rate", "model": "m", "wiring": "seen.yaml"}
    simulator |= {"jitter": 0.1, "missing": 0.0, "shuffle": "none"}
    nodes = {"/r/policy": policy, "/r/simulator": simulator}
    values = {f"{node} {key}": one[key] for node, one in nodes.items() for key in one}
    deeds = CommandHandlers(Nodes(values), None)
    assert asyncio.run(
        deeds.try_read_robot_parameters(RobotGraph("/r/policy", "/r/simulator"), node_is_new=True)
    )
    assert deeds.wiring == wiring
    assert deeds.settings == {"jitter": 0.1, "missing": 0.0, "shuffle": 0.0}
    asyncio.run(deeds.clear_robot_state())
    assert deeds.wiring == ""
