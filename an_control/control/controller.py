"""One control step without ROS: read, estimate, decide, limit, send.

The policy steps on every set of new readings, whether or not its command is sent, with the command
that was really sent as its previous action; so after a stop it knows what has happened meanwhile.
With too few channels it does not step, because steps on a few channels spoil its memory: after 1 s
without the joints' readings 14 of 28 Ants walked again, and 8 of 28 if the policy had stepped on
the other 12 channels (2026-11-22). All state of a tick is here, and is dropped when the node is
cleaned up.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from an_control.control.acting import ActingPolicy
from an_control.control.bring_up import BringUp
from an_control.control.gate import EStop, SafetyGate
from an_control.control.wiring_fit import (
    check_channels,
    check_fit,
    check_images,
    compare_channels,
    describe_differences,
    rate_refusal,
    unread_sources,
)
from an_control.load import EngineName, load_policy, monitor_warning
from an_control.policy import Model, Monitor
from an_control.wiring import (
    ChannelTable,
    Readings,
    Wiring,
    WiringError,
    command_messages,
    load_wiring,
    sendable_limits,
)
from an_control.wiring.checked_yaml import Description

Decide = Callable[[int | None], np.ndarray]
"""Returns the command (A,) to send at the given time in ns (see `Controller.command`)."""


class Controller:
    """A wiring and a policy that fit each other, and the control step that joins them.

    Args:
        wiring_path: The YAML file that connects the robot's topics to the policy.
        model_path: The model file.
        engine: The implementation that computes the policy, see `load_policy`.
        monitor: The reaction to sensors that are rewired unannounced, see `load_policy`; None: as
            the model file says.
        recovery: A robot counts as standing still if its readings change by less than this in a
            tick, and then gets random actions that make it move; 0: never, None: the model's value.
        ramp_s: Seconds in which commands change from the safe command to the policy's, after
            activation and after every safe command; 0: no ramp, None: as the model was trained.
        estop: The e-stop; while it is set all commands are the safe command.

    Raises:
        WiringError: The wiring is invalid or does not fit the model; names file, key, value and
            what is allowed.
        ModelError: The model file is invalid; names the file and the reason.
    """

    def __init__(
        self,
        wiring_path: str,
        model_path: str,
        engine: EngineName | None,
        *,
        monitor: Monitor | None = None,
        recovery: float | None = None,
        ramp_s: float | None = None,
        estop: EStop | None = None,
    ) -> None:
        self.table = ChannelTable(load_wiring(wiring_path))
        self.messages = command_messages(self.wiring.command, wiring_path)
        """The messages that carry a command."""
        policy = load_policy(model_path, monitor, engine=engine, recovery=recovery)
        self.check(model_path, policy.model)
        self.acting = ActingPolicy(self.wiring, model_path, policy, ramp_s)
        self._asked_monitor = monitor
        self.estop = estop or EStop()
        self.step_s = 1.0 / self.wiring.rate_hz
        limits = sendable_limits(self.wiring.command, self.messages)
        self.gate = SafetyGate(self.wiring.command, self.step_s, self.acting.ramp_s, limits)
        self.bring_up = BringUp(self.wiring.command, self.step_s)
        self.safe_reason = ""
        """The reason why the last command was the safe one; "" if it was the policy's."""
        self.safe_cause = ""
        """The same reason without figures that may change at each tick, to recognise a change of
        reason."""
        self.repeats = 0
        """The number of ticks without a new reading, which repeated the last action."""
        self.stepped_ns: int | None = None
        """In lockstep with a simulator, the stamp of the readings that the policy last stepped
        on."""
        self.stepped = False
        """Whether the policy stepped in the last tick."""
        self.seen = -1
        """The number of the command that the policy's last step took as its previous action."""

    @property
    def wiring(self) -> Wiring:
        """The wiring by which the table reads."""
        return self.table.wiring

    def check(self, model_path: str, model: Model) -> None:
        """Check that the wiring fits this model (see `check_fit`).

        Raises:
            WiringError: It does not.
        """
        check_fit(self.wiring, self.table.ids, model_path, model)

    def tick(
        self, now_ns: int, stamp_ns: int | None, send: Callable[[Decide], object] | None
    ) -> Readings:
        """Run one control step (read, estimate, decide, limit, send) and return the readings.

        Args:
            now_ns: The time, from which the age of readings counts.
            stamp_ns: The common stamp of the readings in lockstep with a simulator, else None.
            send: Sends what `command` returns; called once in each tick. None: nothing is sent.
        """
        readings = self.table.read(now_ns, stamp_ns)
        if self.table.measured is not None:
            self.gate.safe_command.record_positions(self.table.measured.values)
        cause, reason = self._why_not_act(readings)
        self.stepped = not cause and self._should_step(readings, stamp_ns)
        if self.stepped:  # the monitor estimates, the policy decides
            self.stepped_ns = stamp_ns
            if self.acting.step(readings, self._last_command()):
                self.gate.set_ramp(self.acting.ramp_s)
        if self.estop.reason:
            cause = reason = self.estop.reason
        self.safe_cause, self.safe_reason = cause, reason
        if send is not None:
            send(self.command)
        return readings

    def command(self, now_ns: int | None) -> np.ndarray:
        """Return the command (A,) in physical units to be sent after the last tick.

        It is the safe command, a step of the bring-up to the start pose, or the policy's command,
        each within the limits of the gate.

        Args:
            now_ns: The time; None: one control period since the last command, as in lockstep.

        Raises:
            BringUpError: An actuator did not reach its start pose in time.
        """
        wanted = self.acting.wanted
        if self.safe_reason or wanted is None:
            self.bring_up.pause()
            return self.gate.safe()
        if not self.bring_up.done:
            assert self.table.measured is not None
            periods = self.gate.periods_since_last(now_ns)
            target = self.bring_up(self.table.measured.values, periods)
            if not self.bring_up.done:
                return self.gate(target, now_ns, ramped=False)
        return self.gate(wanted, now_ns)

    def prepare(self) -> None:
        """Compute in advance what the policy needs in the next tick (control step).

        Call it once the command of this tick is sent, so that it does not delay it.
        """
        self.acting.policy.prepare()

    def start(self, *, bring_up: bool = True) -> None:
        """Start to act: move to the start pose, then ramp to the policy's commands.

        Channels that match a wildcard of the wiring and are present now are expected from now on.

        Args:
            bring_up: Whether to move the robot to its start pose first.
        """
        self.table.expect_present()
        self.gate.start()
        if bring_up:
            self.bring_up.start()
        else:
            self.bring_up.cancel()

    def stop(self) -> np.ndarray:
        """Stop acting and end the bring-up.

        Return the safe command (A,), which must be sent last.
        """
        self.bring_up.cancel()
        return self.gate.safe()

    def reset(self) -> None:
        """Start a new episode: reset policy, monitor and readings."""
        self.acting.reset()
        self.table.reset()
        self.safe_reason = self.safe_cause = ""
        self.stepped_ns = None

    def rewired(self, wiring: Wiring) -> ChannelTable:
        """Return the channel table of a changed wiring, to be passed to `rewire`.

        Args:
            wiring: The changed wiring: other topics, fields or channels.

        Raises:
            WiringError: The wiring differs in something that cannot change while the node runs.
        """
        for name in ("rate_hz", "command"):
            if getattr(wiring, name) != getattr(self.wiring, name):
                allowed = (
                    "what the node was configured with; to change it clean up and configure the"
                    " node, or stop it and start it again"
                )
                raise WiringError(wiring.file, name, Description("a change"), allowed)
        model_path, model = self.acting.model_path, self.acting.policy.model
        check_images(wiring, model_path, model)
        table = self.table.rewired(wiring)
        check_channels(wiring, table.ids, model_path, model)
        return table

    def rewire(self, table: ChannelTable) -> None:
        """Read from this channel table from the next tick on.

        The policy keeps its state, which belongs to channel ids and not to positions in the table.
        """
        self.table = table

    def summary(self) -> str:
        """Return model, wiring, number of channels and rate as text for a log line."""
        wildcards = sum("*" in one.id for one in self.wiring.channels)
        channels = f"{len(self.table.ids)} channels"
        if wildcards:
            channels += f" and those of {wildcards} wildcard{'s' * (wildcards > 1)}"
        return (
            f"{self.acting.model_path} ({self.acting.policy.engine}), {self.wiring.file},"
            f" {channels}, {self.wiring.rate_hz:g} Hz"
        )

    def rate_refusal(self) -> str:
        """Return the reason why the policy should not run at the wiring's control rate, or ""."""
        return rate_refusal(self.wiring, self.acting.policy.model)

    def monitor_warning(self) -> str:
        """Return why the identity monitor is off although nobody asked for that, or "".

        The monitor detects that sensors were rewired.
        """
        return monitor_warning(self.acting.policy.model, self._asked_monitor)

    def notes(self) -> tuple[str, ...]:
        """Return notes on differences between wiring and model, unused sources and the monitor.

        Each is a sentence for the log. Channels that match a wildcard count if they are present
        now.
        """
        policy = self.acting.policy
        found = compare_channels(self.wiring, self.table.ids, policy.model)
        watched = policy.monitor_report is not None
        said = describe_differences(found, self.acting.model_path, watched=watched)
        warning = self.monitor_warning()
        return (*said, *unread_sources(self.wiring).values(), *([warning] if warning else ()))

    def _last_command(self) -> np.ndarray | None:
        """Return the last command (A,) on the robot's topics, whichever node sent it.

        While it is unknown return the safe command, or None before the policy's first step.
        """
        sent, self.seen = self.gate.last.numbered
        return self.gate.safe_command() if sent is None and self.acting.wanted is not None else sent

    def _should_step(self, readings: Readings, stamp_ns: int | None) -> bool:
        """Return whether the policy should step on these readings.

        Count the ticks without a new reading.
        """
        if stamp_ns is not None:
            new = stamp_ns != self.stepped_ns
        else:
            new = readings.new or self.acting.policy.model.task.repeats
        self.repeats += not new
        return new

    def _why_not_act(self, readings: Readings) -> tuple[str, str]:
        """Return the reason why the policy should not act on these readings, or ("", "").

        Returns:
            The reason without figures that change from tick to tick, and the reason with them.
        """
        if missing := self.table.missing():
            reason = f"required source {missing[0]!r} is missing"
            return reason, reason
        if self.table.measured is not None and not self.table.measured.all_measured:
            reason = "no positions of the actuators have been measured yet"
            return reason, reason
        needed = self.wiring.min_present_share
        if readings.has_share(needed):
            return "", ""
        present = len(readings.ids)
        here = f"{present} of {readings.expected} channels present"
        if readings.weights is not None:
            here = f"{readings.present_share:.0%} of the channels present by weight"
        return "min_present_share", f"{here}, {needed:.0%} are needed (min_present_share)"
