"""The core of the page: finds and watches a robot, carries out commands, updates all browsers."""

from __future__ import annotations

import asyncio
import time

from rclpy.node import Node

from an_control.view import schema
from an_control.view.bay import Bay
from an_control.view.clients import Calls, Client, Clients
from an_control.view.command_handlers import Deeds
from an_control.view.graph import find
from an_control.view.listener import Listener
from an_control.view.watch import Watch

RATE_HZ = 20.0
FIND_S = 1.0
HEALTH_S = 2.0
WAITING = "no robot runs here: start one, for example an-control sim ant --realtime --view"
FOUND = "a policy node is there: waiting for its diagnostics and parameters"
SILENT = "the policy node has been silent for some seconds: it has ended, or its machine is busy"
INACTIVE = "the policy node does not act: activate it"


class Live:
    """One robot, shown to all browsers.

    Args:
        calls: Node that calls services and parameters.
        listener: Node that listens to topics.
        robot: Namespace of the robot; "": the robot of the first policy node.
    """

    def __init__(self, calls: Node, listener: Node, robot: str = "") -> None:
        self.clients = Clients()
        self._node, self._robot = listener, robot
        self._calls = Calls(calls)
        self._listener = Listener(listener)
        self.deeds = Deeds(self._calls, self._listener)
        self.watch = Watch(self._listener)
        self._known = False
        """Whether the parameters of the robot's nodes have been read."""
        self._shown: dict[str, schema.Update] = {}
        self._load, self._cpu = 0.0, (time.monotonic(), time.process_time())

    async def run(self) -> None:
        """Watch the robot and look for its nodes, for ever."""
        await asyncio.gather(self._look(), self._find())

    async def _look(self) -> None:
        """Publish updates RATE_HZ times a second; nothing here waits for another node."""
        health_s, next_s = 0.0, time.monotonic()
        while True:
            now_s = time.monotonic()
            for update in self.watch.look():
                self.clients.publish(update)
            if self.watch.order is not None:
                self.deeds.bay.see_order(self.watch.order)
                self.watch.order = None
            self._show(self._robot_now())
            self._show(self._bay_now())
            if now_s >= health_s:
                health_s = now_s + HEALTH_S
                self._show(self._health())
            next_s = max(next_s + 1.0 / RATE_HZ, time.monotonic())
            await asyncio.sleep(next_s - time.monotonic())

    def welcome(self, client: Client) -> None:
        """Send a new browser the present state, and all updates from now on."""
        for update in (*self._shown.values(), *self.watch.known()):
            client.tell(schema.encode(update))
        self.clients.add(client)

    async def do(self, command: schema.Command) -> schema.Reply:
        """Carry out a command, and tell all browsers what was rewired."""
        reply = await self.deeds.do(command)
        if reply.ok:
            self.clients.publish(self.watch.mark(reply.text))
            self._show(self._bay_now())
        return reply

    async def _find(self) -> None:
        """Look for the robot's nodes, FIND_S after the last look has ended."""
        while True:
            await self._find_once()
            await asyncio.sleep(FIND_S)

    async def _find_once(self) -> None:
        """Look for nodes; read the parameters of nodes that are new or whose were set."""
        watch, deeds, before = self.watch, self.deeds, self.watch.found
        found = find(self._node, self._robot, before.policy)
        new = not self._known or found.scrambler != before.scrambler
        if found != before:
            watch.follow(found)
            deeds.policy = found.policy
        if found.policy != before.policy:
            self._known, new = False, True
            await deeds.forget()
        if found.scrambler != before.scrambler:
            deeds.bay.see_order(None)
        if not found.policy:
            return
        if watch.silent:  # the node may come back as another process
            self._known = False
        elif new or watch.changed & {found.policy, found.scrambler}:
            watch.changed.clear()
            self._known = await deeds.see(found, new=new)
            watch.see_wiring(deeds.wiring)

    def _robot_now(self) -> schema.Robot:
        """Return the update on the robot and its state."""
        watch, deeds = self.watch, self.deeds
        found = watch.found
        state, text = "running", ""
        policy = watch.parts.get("policy")
        if not found.policy:
            state, text = "waiting", WAITING
        elif watch.silent:
            state, text = ("silent", SILENT) if watch.parts else ("waiting", FOUND)
        elif not self._known:
            state, text = "waiting", FOUND
        elif policy is not None and policy.text == "inactive":
            state, text = "inactive", INACTIVE
        elif policy is not None:
            text = policy.text
        return schema.Robot(
            state=state,  # type: ignore[arg-type]
            text=text,
            name=found.policy.rpartition("/")[0] or found.policy,
            model=deeds.model,
            others=list(found.others),
            lockstep=deeds.lockstep,
            simulated=bool(found.simulator),
        )

    def _bay_now(self) -> schema.Bay:
        """Return the update on the wiring."""
        bay = self.deeds.bay if self.deeds.found.policy else Bay()
        return schema.Bay(
            signals=bay.signals,
            wires=bay.wires,
            why_not_announced=bay.why_not_announced,
            why_not_unannounced=bay.why_not_unannounced,
            undo=bay.undos,
            settings=dict(self.deeds.settings),
        )

    def _health(self) -> schema.Health:
        """Return the update on the page's own process."""
        before_s, used_s = self._cpu
        self._cpu = time.monotonic(), time.process_time()
        load = (self._cpu[1] - used_s) / max(1e-9, self._cpu[0] - before_s)
        return schema.Health(
            seconds=round(self.watch.seconds, 1),
            clients=len(self.clients),
            refused=self.clients.refused,
            load=round(load, 3),
        )

    def _show(self, update: schema.Update) -> None:
        """Send an update to all browsers if it differs from the last one."""
        name = schema.name_of(update)
        if self._shown.get(name) != update:
            self._shown[name] = update
            self.clients.publish(update)

    def close(self) -> None:
        """Destroy all subscriptions and clients."""
        self._listener.close()
        self._calls.close()
