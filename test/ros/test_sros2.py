"""The SROS2 policies allow what each node uses, and nothing that it does not."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from rclpy.node import Node
from rclpy.parameter import Parameter

from an_control.share import share_path

OFTEN = {"/clock", "/parameter_events", "/rosout", "/ant/policy/transition_event"}
"""What rclpy uses or not, by how it is set up, or without telling."""


def allowed(name: str, kind: str, right: str) -> set[str]:
    (profile,) = ElementTree.parse(share_path(f"config/sros2/{name}.xml")).iter("profile")
    assert profile.attrib == {"ns": "/ant", "node": name}
    names = [
        entry.text or ""
        for group in profile.iter(f"{kind}s")
        if group.get(right) == "ALLOW"
        for entry in group.iter(kind)
    ]
    assert len(names) == len(set(names))
    return {one if one.startswith("/") else f"/ant/{one}" for one in names}


def assert_allows(node: Node, clients: set[str] = frozenset()) -> None:
    name = node.get_name()
    used = {one.topic_name for one in node.subscriptions} | OFTEN
    assert used == allowed(name, "topic", "subscribe") | OFTEN
    used = {one.topic_name for one in node.publishers} | OFTEN
    assert used == allowed(name, "topic", "publish") | OFTEN
    assert {one.service_name for one in node.services} == allowed(name, "service", "reply")
    assert {one.srv_name for one in node.clients} == clients == allowed(name, "service", "request")


def test_the_policy_node_may_do_what_it_does_and_no_more(stand):
    stand.wiring.write_bytes(share_path("config/ant.yaml").read_bytes())
    node = stand.start(
        activate=False,
        options={"namespace": "/ant"},
        model=str(share_path("models/ant.safetensors")),
    )
    assert node.trigger_configure().to_label() == "transition_success"
    assert_allows(node)


def test_the_simulator_may_do_what_it_does_and_no_more(stand):
    pytest.importorskip("pybullet")
    from an_control.wiring import load_wiring
    from an_control.wiring.scramble import ScrambleSettings
    from an_control_sim.bridge import Bridge
    from an_control_sim.robot import Robot
    from an_control_sim.scrambler import Scrambler
    from an_control_sim.simulation import load_simulation

    node = Node("simulator", namespace="/ant", context=stand.context)
    robot = Robot(load_simulation(share_path("config/ant_sim.yaml")))
    wiring = load_wiring(share_path("config/ant.yaml"))
    bridge = Bridge(node, robot, tap=Scrambler(node, wiring, ScrambleSettings(), 0), camera_hz=1.0)
    asked = ("reset_state", "estop", "reset_estop")
    assert_allows(node, {f"/ant/policy/{service}" for service in asked})
    bridge.close()
    node.destroy_node()


def test_the_scrambler_may_do_what_it_does_and_no_more(stand):
    pytest.importorskip("pybullet")
    from an_control_sim.scrambler import ScramblerNode

    values = {"wiring": str(share_path("config/ant.yaml")), "shuffle": "reset"}
    overrides = [Parameter(name, value=value) for name, value in values.items()]
    node = ScramblerNode(namespace="/ant", context=stand.context, parameter_overrides=overrides)
    assert_allows(node)
    node.destroy_node()
