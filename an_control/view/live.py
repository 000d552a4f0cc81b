"""The core of the live page, which watches a robot, executes commands and updates browsers."""

from __future__ import annotations

import asyncio
import time

from rclpy.node import Node

from an_control.view import schema
from an_control.view.clients import BrowserClient, BrowserClients, ServiceCalls
from an_control.view.command_handlers import CommandHandlers
from an_control.view.graph import find_robot_in_ros_graph
from an_control.view.listener import Listener
from an_control.view.rewiring_panel import RewiringPanel
from an_control.view.watch import RobotWatch

RATE_HZ = 20.0
FIND_S = 1.0
HEALTH_S = 2.0
WAITING = "no robot is running here: start one, for example an-control sim ant --realtime --view"
FOUND = "a policy node is there: waiting for its diagnostics and parameters"
SILENT = "the policy node has been silent for some seconds: it has ended, or its machine is busy"
INACTIVE = "the policy node does not act: activate it"


class LiveRobot:
    """A running robot that is shown in all connected browsers.

    Args:
        calls: Node that calls services and sets parameters.
        listener: Node that listens to topics.
        robot: Namespace of the robot; "" for the first policy node that is found.
    """

    def __init__(self, calls: Node, listener: Node, robot: str = "") -> None:
        self.clients = BrowserClients()
        self._node, self._robot = listener, robot
        self._calls = ServiceCalls(calls)
        self._listener = Listener(listener)
        self.handlers = CommandHandlers(self._calls, self._listener)
        self.watch = RobotWatch(self._listener)
        self._known = False
        """Whether the parameters of the robot's nodes have been read."""
        self._shown: dict[str, schema.Update] = {}
        self._cpu = time.monotonic(), time.process_time()

    async def run(self) -> None:
        """Watch the robot and look for its nodes until the task is cancelled."""
        await asyncio.gather(self._publish_updates(), self._find_robot_repeatedly())

    async def _publish_updates(self) -> None:
        """Send updates to the browsers 20 times a second (`RATE_HZ`), without waiting for nodes."""
        health_s, next_s = 0.0, time.monotonic()
        while True:
            now_s = time.monotonic()
            for update in self.watch.iterate_new_updates():
                self.clients.publish(update)
            self.handlers.update_panel_with_reported_signal_order()
            self._publish_if_changed(self._make_robot_update())
            self._publish_if_changed(self._make_wiring_update())
            if now_s >= health_s:
                health_s = now_s + HEALTH_S
                self._publish_if_changed(self._make_health_update())
            next_s = max(next_s + 1.0 / RATE_HZ, time.monotonic())
            await asyncio.sleep(next_s - time.monotonic())

    def add_client(self, client: BrowserClient) -> None:
        """Send a new browser the present state, and all updates from now on."""
        for update in (*self._shown.values(), *self.watch.iterate_updates_for_new_page()):
            client.enqueue(schema.encode_update(update))
        self.clients.add(client)

    async def execute_browser_command(self, command: schema.Command) -> schema.ReplyUpdate:
        """Carry out a command of a browser, and return the reply.

        If it succeeds, the charts of all browsers get a mark that says what was done.
        """
        reply = await self.handlers.execute_browser_command(command)
        if reply.ok:
            self.clients.publish(self.watch.add_chart_mark(reply.text))
            self._publish_if_changed(self._make_wiring_update())
        return reply

    async def _find_robot_repeatedly(self) -> None:
        """Look for the robot's nodes again and again, 1 s (FIND_S) after each search has ended."""
        while True:
            await self._find_robot_once()
            await asyncio.sleep(FIND_S)

    async def _find_robot_once(self) -> None:
        """Look for the robot's nodes; read their parameters if these may have changed."""
        watch, deeds, before = self.watch, self.handlers, self.watch.found
        found = find_robot_in_ros_graph(self._node, self._robot, before.policy)
        new = not self._known or found.scrambler != before.scrambler
        if found != before:
            watch.subscribe_to_robot_topics(found)
            deeds.policy = found.policy
        if found.policy != before.policy:
            self._known, new = False, True
            await deeds.clear_robot_state()
        if found.scrambler != before.scrambler:
            deeds.panel.set_signals_by_slot(None)
        if not found.policy:
            return
        if watch.is_silent:  # the node may come back as another process
            self._known = False
        elif new or watch.changed & {found.policy, found.scrambler}:
            watch.changed.clear()
            self._known = await deeds.try_read_robot_parameters(found, node_is_new=new)
            watch.set_wiring_file(deeds.wiring)

    def _make_robot_update(self) -> schema.RobotUpdate:
        """Return the update about the robot and its state."""
        watch, deeds = self.watch, self.handlers
        found = watch.found
        state, text = "running", ""
        policy = watch.parts.get("policy")
        if not found.policy:
            state, text = "waiting", WAITING
        elif watch.is_silent:
            state, text = ("silent", SILENT) if watch.parts else ("waiting", FOUND)
        elif not self._known:
            state, text = "waiting", FOUND
        elif policy is not None and policy.text == "inactive":
            state, text = "inactive", INACTIVE
        elif policy is not None:
            text = policy.text
        return schema.RobotUpdate(
            state=state,  # type: ignore[arg-type]
            text=text,
            name=found.policy.rpartition("/")[0] or found.policy,
            model=deeds.model,
            others=list(found.others),
            lockstep=deeds.lockstep,
            simulated=bool(found.simulator),
        )

    def _make_wiring_update(self) -> schema.WiringUpdate:
        """Return the update about which signal each input slot carries, and what can be changed."""
        panel = self.handlers.panel if self.handlers.found.policy else RewiringPanel()
        return schema.WiringUpdate(
            signals=panel.signals,
            wires=panel.slot_wirings,
            why_not_announced=panel.refusal_reason_with_rewiring,
            why_not_unannounced=panel.refusal_reason_without_rewiring,
            undo=panel.undo_count,
            settings=dict(self.handlers.settings),
        )

    def _make_health_update(self) -> schema.HealthUpdate:
        """Return the update about the process that serves the page."""
        before_s, used_s = self._cpu
        self._cpu = time.monotonic(), time.process_time()
        load = (self._cpu[1] - used_s) / max(1e-9, self._cpu[0] - before_s)
        return schema.HealthUpdate(
            seconds=round(self.watch.seconds_since_start, 1),
            clients=len(self.clients),
            refused=self.clients.refused,
            load=round(load, 3),
        )

    def _publish_if_changed(self, update: schema.Update) -> None:
        """Send an update to all browsers if it differs from the last one of its kind."""
        name = schema.get_message_tag(update)
        if self._shown.get(name) != update:
            self._shown[name] = update
            self.clients.publish(update)

    def close(self) -> None:
        """End all subscriptions and service clients."""
        self._listener.close()
        self._calls.close()
