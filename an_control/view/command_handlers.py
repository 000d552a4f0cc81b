"""Execution of the live page's commands, by parameters and services of the robot's nodes."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Mapping
from contextlib import suppress

from an_control.view import schema
from an_control.view.clients import RefusalReason, ServiceCalls, UnansweredCallError
from an_control.view.graph import SCRAMBLED, RobotGraph
from an_control.view.listener import LOOK_S, Listener
from an_control.view.rewiring_panel import (
    NO_SCRAMBLER,
    RefusedChangeError,
    RewiringPanel,
    WiringChange,
)

SETTINGS = ("jitter", "missing", "shuffle")
REWIRABLE = ("sources", "channels")
NO_SIMULATOR = "no simulator is running, so no episode can be restarted"
NO_RECORDING = "this is a robot that runs, not a recording"
NO_ROBOT = "no robot is running"
UNKNOWN = "{} has not answered yet: its parameters are not known"
TICK_S = 0.1
"""Maximum time that a change of the wiring waits for a tick, because it should be made just after
one."""
REPORT_S = 0.5
"""Maximum time that a change of the wiring waits until the scrambler reports it."""
ReplyText = str
"""A text for the reply to a page that says what was done."""


class CommandHandlers:
    """An object that carries out the commands of a page to one robot, one after the other.

    Only an e-stop does not wait until the commands before it are done.

    Args:
        calls: The client that calls services and sets parameters.
        listener: The listener to the robot's topics.
    """

    def __init__(self, calls: ServiceCalls, listener: Listener) -> None:
        self.panel = RewiringPanel()
        self.policy = ""
        """The name of the policy node, which can be stopped even before `try_read_robot_parameters`
        has succeeded."""
        self.found = RobotGraph()
        """The nodes whose parameters have been read."""
        self.lockstep = False
        self.model = ""
        self.wiring = ""
        """Path of the robot's wiring file."""
        self.settings: dict[str, float] = {}
        """The present values of the scrambler's settings that a page can change."""
        self._calls, self._listener, self._rng = calls, listener, random.Random()
        self._turn = asyncio.Lock()

    async def clear_robot_state(self) -> None:
        """Forget the robot, because it has gone or another one is shown."""
        async with self._turn:
            self.found, self.settings = RobotGraph(), {}
            self.lockstep, self.model, self.wiring = False, "", ""

    def update_panel_with_reported_signal_order(self) -> None:
        """Show in the panel where each sensor's signal arrives now, as the scrambler reports it.

        The scrambler is the node that mixes up sensors. Nothing is done if there is no new report.
        The same holds while a command changes the wiring, as the change is then only half made.
        """
        if not self._turn.locked() and (order := self._pop_reported_signal_order()) is not None:
            self.panel.set_signals_by_slot(order)

    async def try_read_robot_parameters(self, graph: RobotGraph, *, node_is_new: bool) -> bool:
        """Read and store the parameters of a robot's nodes; return whether all nodes answered.

        If a node did not answer, nothing is stored.

        Args:
            graph: The robot's nodes.
            node_is_new: Whether the policy node was just found. If so, its present wiring is
                assumed to be the one in its wiring file, which a user can restore later.
        """
        async with self._turn:
            policy = graph.policy
            try:
                wiring = await self._calls.get_parameters_with_prefixes(policy, REWIRABLE)
                shape = await self._calls.get_parameters(policy, ["mode", "model", "wiring"])
                settings, robot = dict[str, object](), dict[str, object]()
                if graph.scrambler:
                    settings = await self._calls.get_parameters(graph.scrambler, SETTINGS)
                    # A separate call: a node that lacks one of several parameters returns none.
                    robot = await self._calls.get_parameters(graph.scrambler, ["wiring"])
            except UnansweredCallError:
                return False
            node_is_new = node_is_new or policy != self.found.policy
            self.found = graph
            self.lockstep = shape.get("mode") == "lockstep"
            self.model = str(shape.get("model", "")).rpartition("/")[2]
            # Behind a scrambler the policy reads a wiring that is derived from the robot's own.
            self.wiring = str(robot.get("wiring", "") or shape.get("wiring", ""))
            self.settings = {
                name: _convert_setting_to_number(value) for name, value in settings.items()
            }
            texts = {key: str(value) for key, value in wiring.items()}
            self.panel.set_policy_wiring(
                texts, SCRAMBLED if graph.scrambler else "", node_is_new=node_is_new
            )
            return True

    async def execute_browser_command(self, command: schema.Command) -> schema.ReplyUpdate:
        """Carry out a command, and return the reply to the page.

        The reply says what was done and how long it took, or why it was not done.
        """
        begin_s = time.monotonic()
        try:
            if isinstance(command, schema.EStopCommand | schema.ResetEStopCommand):
                text = await self._set_estop(command)
            else:
                async with self._turn:
                    text = await self._carry_out_non_estop_command(command)
        except (RefusedChangeError, UnansweredCallError) as error:
            return schema.ReplyUpdate(command.id, False, str(error))
        took_ms = round(1e3 * (time.monotonic() - begin_s), 1)
        return schema.ReplyUpdate(command.id, True, text, took_ms)

    async def _set_estop(
        self, command: schema.EStopCommand | schema.ResetEStopCommand
    ) -> ReplyText:
        """Latch or clear the e-stop; return a description of what was done."""
        if not self.policy:
            raise RefusedChangeError(NO_ROBOT)
        latch = isinstance(command, schema.EStopCommand)
        service = "estop" if latch else "reset_estop"
        await _raise_if_refused(self._calls.call_trigger_service(f"{self.policy}/{service}"))
        return "e-stop" if latch else "e-stop cleared"

    async def _carry_out_non_estop_command(self, command: schema.Command) -> ReplyText:
        """Carry out a command other than an e-stop; return a description of what was done.

        The caller must hold the lock that lets one such command run at a time.
        """
        if not self.found.policy:
            raise RefusedChangeError(UNKNOWN.format(self.policy) if self.policy else NO_ROBOT)
        match command:
            case schema.SeekCommand() | schema.JumpCommand() | schema.PlayCommand():
                raise RefusedChangeError(NO_RECORDING)
            case schema.RestartCommand():
                if not self.found.simulator:
                    raise RefusedChangeError(NO_SIMULATOR)
                await _raise_if_refused(
                    self._calls.call_trigger_service(f"{self.found.simulator}/reset")
                )
                return "episode restarted"
            case schema.CorrectCommand(on=on):
                service = "apply_corrections" if on else "undo_corrections"
                await _raise_if_refused(
                    self._calls.call_trigger_service(f"{self.found.policy}/{service}")
                )
                return "wiring corrected" if on else "correction undone"
            case schema.SetCommand():
                return await self._set_disturbance(command.name, command.value)
            case schema.UndoCommand():
                await self._apply_wiring_change(self.panel.plan_undo(), is_undo=True)
                return "undone"
        change, text = self._plan_wiring_change(command)
        await self._apply_wiring_change(change)
        return text

    def _plan_wiring_change(self, command: schema.Command) -> tuple[WiringChange, ReplyText]:
        """Return the change of the wiring that a command asks for, and its description."""
        panel = self.panel
        match command:
            case schema.ConnectCommand(signal=signal, slot=slot, announced=announced):
                how = "announced" if announced else "unannounced"
                return panel.plan_moving_signal_to_slot(
                    signal, slot, announced=announced
                ), f"{signal} to {slot}, {how}"
            case schema.CutCommand(slot=slot):
                return panel.plan_disconnection(slot), f"{slot} cut"
            case schema.NoiseCommand(slot=slot):
                return panel.plan_noise_on_slot(slot), f"noise in {slot}"
            case schema.CopyCommand(signal=signal, slot=slot):
                return panel.plan_signal_copy(signal, slot), f"{signal} also in {slot}"
            case schema.ShuffleCommand(announced=announced):
                how = "announced" if announced else "unannounced"
                return panel.plan_signal_shuffle(
                    self._rng, announced=announced
                ), f"all shuffled, {how}"
            case _:
                return panel.plan_restoring_file_wiring(), "back to the wiring of the file"

    async def _set_disturbance(self, name: str, value: float) -> ReplyText:
        """Set a disturbance of the scrambler; return a description of what was done.

        For "shuffle" the value is the number of steps between two permutations; 0: none.
        """
        if not self.found.scrambler:
            raise RefusedChangeError(NO_SCRAMBLER)
        given: object = value
        if name == "shuffle":
            given = str(round(value)) if value else "none"
        await _raise_if_refused(self._calls.set_parameters(self.found.scrambler, {name: given}))
        self.settings[name] = value
        return f"{name} {given if isinstance(given, str) else f'{value:g}'}"

    async def _apply_wiring_change(self, change: WiringChange, *, is_undo: bool = False) -> None:
        """Change the wiring in the scrambler and in the policy node between two ticks.

        If one of the two nodes refuses, neither is changed. If the simulator waits for the policy
        at every step (lockstep), it is paused during the change. In real time the change starts
        just after a tick.
        """
        back = self.panel.invert_change(change)
        both = bool(change.order and change.parameters)
        pause = both and self.lockstep and bool(self.found.simulator)
        try:
            if pause:
                await _raise_if_refused(self._set_simulator_paused(True))
            if both and not pause:
                await self._listener.wait_for_message("channels", TICK_S)
            await self._rewire_both_nodes(change, back)
        finally:
            if pause:
                await self._set_simulator_paused(False)
        self.panel.record_change(change, None if is_undo else back)
        await self._wait_for_reported_signal_order(change.order)

    async def _wait_for_reported_signal_order(self, order: Mapping[str, str]) -> None:
        """Wait until the scrambler reports its changed signals, but at most 0.5 s (`REPORT_S`).

        Without this wait a report from before the change, if it arrives late, would replace the
        changed order in the panel, and the next change would be planned from a wrong wiring.
        """
        reported, until_s = None, time.monotonic() + REPORT_S
        while order and time.monotonic() < until_s:
            if (new := self._pop_reported_signal_order()) is not None:
                reported = new
                if order.items() <= new.items():
                    break
            await asyncio.sleep(LOOK_S)
        if reported is not None:
            self.panel.set_signals_by_slot(reported)

    def _pop_reported_signal_order(self) -> dict[str, str] | None:
        """Return each input slot's signal by the scrambler's newest report; None if none is new."""
        message = self._listener.pop_newest_message("order")
        return None if message is None else {pair.key: pair.value for pair in message.values}

    async def _rewire_both_nodes(
        self, change: WiringChange, reverting_change: WiringChange
    ) -> None:
        """Change the wiring in the scrambler and in the policy node at the same time.

        If one of the two refuses, the change of the other is reverted, and the refusal is raised.
        """
        order, rewire = await asyncio.gather(
            self._set_signal_order(change.order),
            self._rewire_policy_node(change.parameters),
            return_exceptions=True,
        )
        if order is None and rewire is not None:
            await self._set_signal_order(reverting_change.order)
        if rewire is None and order is not None:
            await self._rewire_policy_node(reverting_change.parameters)
        if failed := order or rewire:
            raise failed

    async def _set_simulator_paused(self, paused: bool) -> RefusalReason:
        """Pause or resume the simulator; return why it refused, or ""."""
        return await self._calls.call_set_bool(f"{self.found.simulator}/pause", paused)

    async def _set_signal_order(self, order: Mapping[str, str]) -> None:
        """Set which signal each of the scrambler's input slots carries."""
        if order:
            values = {"order": [f"{slot}={signal}" for slot, signal in order.items()]}
            await _raise_if_refused(self._calls.set_parameters(self.found.scrambler, values))

    async def _rewire_policy_node(self, parameters: Mapping[str, str]) -> None:
        """Set parameters of the policy node that rewire its channels."""
        if parameters:
            await _raise_if_refused(self._calls.set_parameters(self.found.policy, parameters))


async def _raise_if_refused(call: Awaitable[RefusalReason]) -> None:
    """Wait for a call of a node, and raise RefusedChangeError if the node refuses."""
    if refusal := await call:
        raise RefusedChangeError(refusal)


def _convert_setting_to_number(value: object) -> float:
    """Return the value of one of the scrambler's settings as a number for the page.

    For a range, such as "0..0.1", the number is its high end. For the shuffle it is the number of
    steps between two permutations, 0 for none.
    """
    number = str(value).removeprefix("reset+").rpartition("..")[2]
    with suppress(ValueError):
        return float(number)
    return 0.0  # none, or only at the reset
