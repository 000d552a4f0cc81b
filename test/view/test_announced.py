"""An announced change: the scrambler and the policy node change together, or neither does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("msgspec")
import rclpy
from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from rclpy.context import Context
from rclpy.node import Node
from sensor_msgs.msg import JointState

from an_control.view.clients import ServiceCalls, UnansweredCallError
from an_control.view.command_handlers import CommandHandlers
from an_control.view.graph import SCRAMBLED, RobotGraph
from an_control.view.listener import NEWEST, SEVERAL, Listener, TopicSubscription
from an_control.view.schema import ConnectCommand

POLICY, SCRAMBLER = "/r/policy", "/r/scrambler"
STRAIGHT = {"a": "a", "b": "b"}
SWAPPED = {"a": "b", "b": "a"}
DRAG = ConnectCommand(id=1, signal="a", slot="b", announced=True)
TICK_TOPIC, ORDER_TOPIC = "/r/policy/channels", f"{SCRAMBLER}/order"


class Nodes(ServiceCalls):
    """The two nodes of a robot as the page calls them, each answering when the other was asked."""

    def __init__(self, refusing: str = "", silent: str = "") -> None:
        self.order, self.reads = dict(STRAIGHT), dict(STRAIGHT)
        self.asked: list[str] = []
        self._refusing, self._silent = refusing, silent

    async def set_parameters(self, node: str, values: Mapping[str, object]) -> str:
        self.asked.append(node)
        while len(self.asked) < 2:
            await asyncio.sleep(0.0)
        if node == self._silent:
            raise UnansweredCallError(f"{node} did not answer")
        if node == self._refusing:
            return "no"
        for key, value in values.items():
            if key == "order":
                self.order.update(entry.split("=") for entry in value)
            else:
                self.reads[key.split(".")[1]] = value.removeprefix("position[").removesuffix("]")
        return ""


@pytest.fixture
def heard() -> Iterator[tuple[Node, Listener]]:
    context = Context()
    rclpy.init(args=[], context=context)
    speaker, hearer = (Node(name, context=context) for name in ("speaker", "hearer"))
    listener = Listener(hearer)
    listener.subscribe_to_topics({"channels": TopicSubscription(TICK_TOPIC, JointState, NEWEST)})
    yield speaker, listener
    listener.close()
    for node in speaker, hearer:
        node.destroy_node()
    rclpy.shutdown(context=context)


def deeds_of(nodes: Nodes, listener: Listener) -> CommandHandlers:
    deeds = CommandHandlers(nodes, listener)
    deeds.found = RobotGraph(policy=POLICY, scrambler=SCRAMBLER)
    deeds.panel.set_signals_by_slot(STRAIGHT)
    wiring = {"sources.s.topic": f"/r/{SCRAMBLED}"}
    for one in STRAIGHT:
        wiring |= {f"channels.{one}.source": "s", f"channels.{one}.field": f"position[{one}]"}
    deeds.panel.set_policy_wiring(wiring, SCRAMBLED, node_is_new=True)
    return deeds


def test_in_real_time_both_nodes_are_asked_at_once_just_after_a_tick(heard, monkeypatch):
    speaker, listener = heard
    ticks = speaker.create_publisher(JointState, TICK_TOPIC, NEWEST)
    monkeypatch.setattr("an_control.view.command_handlers.TICK_S", 60.0)

    async def run() -> None:
        while not ticks.get_subscription_count():
            await asyncio.sleep(0.01)
        ticks.publish(JointState(name=["before"]))
        while not (last := listener.pop_newest_message("channels")):
            await asyncio.sleep(0.01)
        assert last.name == ["before"]
        nodes = Nodes()
        drag = asyncio.create_task(deeds_of(nodes, listener).execute_browser_command(DRAG))
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not nodes.asked
        ticks.publish(JointState(name=["tick"]))
        reply = await asyncio.wait_for(drag, 60.0)
        assert reply.ok, reply.text
        assert sorted(nodes.asked) == [POLICY, SCRAMBLER]
        assert nodes.order == SWAPPED and nodes.reads == SWAPPED
        assert listener.pop_newest_message("channels").name == ["tick"], (
            "whoever shows the tick gets it too"
        )

    asyncio.run(run())


def report_of(order: Mapping[str, str]) -> DiagnosticStatus:
    return DiagnosticStatus(values=[KeyValue(key=k, value=v) for k, v in order.items()])


def test_an_earlier_report_of_the_scrambler_that_arrives_late_does_not_hide_a_change(heard):
    speaker, listener = heard
    listener.subscribe_to_topics(
        {"order": TopicSubscription(ORDER_TOPIC, DiagnosticStatus, SEVERAL)}
    )
    reports = speaker.create_publisher(DiagnosticStatus, ORDER_TOPIC, SEVERAL)
    handlers = deeds_of(Nodes(), listener)

    async def run() -> None:
        while not reports.get_subscription_count():
            await asyncio.sleep(0.01)
        drag = asyncio.create_task(handlers.execute_browser_command(DRAG))
        await asyncio.sleep(0.0)
        reports.publish(report_of(STRAIGHT))
        while handlers.panel.order != SWAPPED:  # recorded, not yet reported
            await asyncio.sleep(0.0)
        await asyncio.sleep(0.05)
        handlers.update_panel_with_reported_signal_order()
        assert handlers.panel.order == SWAPPED
        reports.publish(report_of(SWAPPED))
        assert (await asyncio.wait_for(drag, 60.0)).ok
        handlers.update_panel_with_reported_signal_order()
        assert handlers.panel.order == SWAPPED

    asyncio.run(run())


def test_half_of_a_change_is_never_shown(heard, monkeypatch):
    speaker, listener = heard
    listener.subscribe_to_topics(
        {
            "channels": TopicSubscription(TICK_TOPIC, JointState, NEWEST),
            "order": TopicSubscription(ORDER_TOPIC, DiagnosticStatus, SEVERAL),
        }
    )
    reports = speaker.create_publisher(DiagnosticStatus, ORDER_TOPIC, SEVERAL)
    ticks = speaker.create_publisher(JointState, TICK_TOPIC, NEWEST)
    monkeypatch.setattr("an_control.view.command_handlers.TICK_S", 60.0)
    handlers = deeds_of(Nodes(), listener)

    async def run() -> None:
        while not (reports.get_subscription_count() and ticks.get_subscription_count()):
            await asyncio.sleep(0.01)
        drag = asyncio.create_task(handlers.execute_browser_command(DRAG))
        await asyncio.sleep(0.01)
        reports.publish(report_of(SWAPPED))
        for _ in range(20):
            await asyncio.sleep(0.01)
            handlers.update_panel_with_reported_signal_order()
            assert handlers.panel.order == STRAIGHT, "the policy node has not been asked yet"
        ticks.publish(JointState(name=["tick"]))
        assert (await asyncio.wait_for(drag, 60.0)).ok
        assert handlers.panel.order == SWAPPED
        assert all(one.signal == one.channel for one in handlers.panel.slot_wirings)

    asyncio.run(run())


def test_a_robot_that_does_not_tick_is_rewired_all_the_same(heard):
    nodes = Nodes()
    begin_s = time.monotonic()
    reply = asyncio.run(deeds_of(nodes, heard[1]).execute_browser_command(DRAG))
    assert reply.ok and time.monotonic() - begin_s < 5.0
    assert nodes.order == SWAPPED and nodes.reads == SWAPPED


@pytest.mark.parametrize("node", [POLICY, SCRAMBLER])
@pytest.mark.parametrize("how", ["refusing", "silent"])
def test_where_one_node_fails_the_other_takes_its_change_back(heard, node, how):
    nodes = Nodes(**{how: node})
    reply = asyncio.run(deeds_of(nodes, heard[1]).execute_browser_command(DRAG))
    assert not reply.ok
    assert reply.text == ("no" if how == "refusing" else f"{node} did not answer")
    assert nodes.order == STRAIGHT and nodes.reads == STRAIGHT
