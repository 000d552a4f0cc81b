"""One control step without ROS: read, estimate, decide, limit; `ros.control_loop` sends commands.

The policy computes a step on every set of new readings, whether or not its command is sent. It gets
the command that was really sent as its previous action. So after a stop it knows what has happened
meanwhile. If too few channels (sensor readings) are present it does not step, because steps on a
few channels spoil its recurrent state. In a test on 28 simulated Ants that got no joint readings
for 1 s, 14 walked again if the policy paused, and 8 if it stepped on the remaining 12 channels
(2026-11-22). All state of a tick is here, and is dropped when the node is cleaned up.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from an_control.control.bring_up import BringUp
from an_control.control.command_safety import EStop, SafetyGate
from an_control.control.model_wiring_check import (
    ActionCommandConverter,
    check_channel_kind,
    check_channels_of_fixed_order_model,
    check_wiring_fits_model,
    compare_wired_with_trained_channels,
    describe_all_zero_weights,
    describe_channel_differences,
    describe_sources_without_channel,
    explain_control_rate_mismatch,
    has_discrete_action,
    join_names_shortened,
)
from an_control.load import EngineName, load_policy
from an_control.policy import Model, Monitor, Policy
from an_control.wiring import (
    ChannelTable,
    Readings,
    Wiring,
    WiringError,
    compute_field_steps,
    compute_sendable_limits,
    load_wiring,
    make_command_messages,
)
from an_control.wiring.channel_table import MeasuredPositions
from an_control.wiring.checked_yaml import Description

ROUNDING = 1e-6
"""The largest amount by which an action may exceed 1 because it was rounded to float32 in a
message."""
WATCH_S = 1.0
"""Seconds for which a new model computes on live readings before it takes over, because a walking
robot stops if its new policy knows nothing of the gait so far."""


class Decision(NamedTuple):
    """What a controller decided in one tick (control step), from which the command is computed.

    Attributes:
        readings: The sensor readings of the tick.
        stepped: Whether the policy made a step on these readings.
        previous_command: The running number of the command that the policy's newest step got as its
            previous action; -1 for none.
        safe_reason: The reason why the command is the safe command; "" if it is the policy's.
        safe_cause: The text of `safe_reason` without figures that change from tick to tick, so that
            a new reason can be recognised.
    """

    readings: Readings
    stepped: bool = False
    previous_command: int = -1
    safe_reason: str = ""
    safe_cause: str = ""


class LoadedModel(NamedTuple):
    """A policy, its model file, and the converter of its actions to commands.

    Attributes:
        path: The model file.
        policy: The policy that was loaded from the model file.
        order: The converter between the policy's actions and the robot's commands.
        ticks: The number of control steps that a new model's policy must still compute before it
            acts; 0 for the model that acts.
    """

    path: str
    policy: Policy
    order: ActionCommandConverter
    ticks: int = 0


class ActingPolicy:
    """The policy that controls the robot.

    It computes an action in each tick (control step) and can be replaced at run time. For its first
    second (`WATCH_S`) a new policy only watches: it computes on the same readings as the old one,
    but its actions are not used.

    Args:
        wiring: The robot's configuration, which names the actuators.
        model_path: The model file of the first policy.
        policy: The first policy.
        ramp_s: Seconds in which commands change from the safe command to the policy's; None: for
            each model, the duration that it was trained with.
    """

    def __init__(
        self, wiring: Wiring, model_path: str, policy: Policy, ramp_s: float | None
    ) -> None:
        self._wiring, self._asked_ramp_s = wiring, ramp_s
        self._now = LoadedModel(
            model_path, policy, ActionCommandConverter(wiring, model_path, policy.model)
        )
        self._next: LoadedModel | None = None
        self._given: deque[LoadedModel] = deque(maxlen=1)  # filled from other threads
        self.new_model = ""
        """The state of the replacement in words, for diagnostics; "" once the new model acts."""
        self.wanted: np.ndarray | None = None
        """The command (A,) of the policy's newest step; None before the first step."""

    @property
    def model_path(self) -> str:
        """The model file of the policy whose actions are used now."""
        return self._now.path

    @property
    def policy(self) -> Policy:
        """The policy whose actions are used now."""
        return self._now.policy

    @property
    def pending_or_acting_model(self) -> LoadedModel:
        """The new model if one is about to take over, else the model that acts."""
        return self._next or self._now

    @property
    def acting_and_pending_models(self) -> list[LoadedModel]:
        """The model that acts, and any new one that is about to take over."""
        return [one for one in (self._now, self._next, *self._given) if one is not None]

    @property
    def ramp_s(self) -> float:
        """The seconds of the ramp from the safe command to the acting policy's commands.

        They are 0 for a policy that chooses one of several actions, which cannot be blended.
        """
        model = self.policy.model
        if has_discrete_action(model):
            return 0.0  # choices such as buttons cannot be blended
        return model.task.ramp_s if self._asked_ramp_s is None else self._asked_ramp_s

    def convert_to_action(self, command_values: np.ndarray) -> np.ndarray:
        """Convert a command (A,) in physical units to the acting model's action (A,).

        A value outside [-1, 1] means that no action produces this command.
        """
        return self._now.order.convert_to_action(command_values)

    def convert_to_command(self, action: np.ndarray) -> np.ndarray:
        """Convert an action (A,) of the acting model to a command (A,) in physical units."""
        return self._now.order.convert_to_command(action)

    def start_policy_swap(self, model_path: str, policy: Policy) -> None:
        """Start to replace the acting policy by a new one; any thread may call this.

        For one second (`WATCH_S`) the new policy computes on the readings of each tick, but its
        actions are not used. Then it replaces the old policy.

        Args:
            model_path: The new model file.
            policy: The new policy.

        Raises:
            WiringError: The model and the wiring do not have the same actuators.
        """
        order = ActionCommandConverter(self._wiring, model_path, policy.model)
        self.new_model = f"watching {model_path}"
        ticks = round(WATCH_S * self._wiring.rate_hz)
        self._given.append(LoadedModel(model_path, policy, order, ticks))

    def reset(self) -> None:
        """Start a new episode: reset the acting policy, and one that waits to replace it."""
        self.policy.reset()
        if self._next is not None:
            self._next.policy.reset()
        self.wanted = None

    def restart_monitor(self) -> None:
        """Restart the identity monitors of all policies, because scales of channels have changed.

        A monitor detects rewired sensors. It would take a new scale of the readings for rewiring.
        """
        self.policy.restart_monitor()
        if self._next is not None:
            self._next.policy.restart_monitor()

    def set_previous_action_and_swap_if_ready(
        self, readings: Readings, last_command: np.ndarray | None
    ) -> bool:
        """Tell the policies which command was sent; let a new policy take over after one second.

        Call this before the policy's step. In its first second, a new policy from
        `start_policy_swap` makes a step on these readings too, but its action is not used.

        Args:
            readings: The sensor readings of this tick, which no policy has seen yet.
            last_command: The newest command (A,) on the robot's topics, whichever node sent it;
                None if it is unknown. It becomes the previous action of each policy.

        Returns:
            Whether a new model has replaced the old one in this call.
        """
        if (
            self.wanted is not None
            and last_command is not None
            and (last_command != self.wanted).any()
        ):
            _set_previous_action(self.policy, self._now.order.convert_to_action(last_command))
        if self._given:
            self._next = self._given.pop()
        new = self._next
        if new is None:
            return False
        if last_command is not None:
            _set_previous_action(new.policy, new.order.convert_to_action(last_command))
        if new.ticks > 0 and self.wanted is not None:  # else the old policy knows no more
            new.policy.step_array(readings.values, readings.ids)
            self._next = new._replace(ticks=new.ticks - 1)
            return False
        self._now, self._next = new, None
        if not self._given and self.new_model == f"watching {new.path}":
            self.new_model = ""
        return True


def _set_previous_action(policy: Policy, action: np.ndarray) -> None:
    """Set the policy's previous action to the executed one (A,), clipped to [-1, 1].

    The policy's identity monitor, which detects rewired sensors, predicts the next readings from
    the previous action. If clipping changes the action, that prediction is wrong, so the monitor
    ignores the next tick.
    """
    within = np.clip(action, -1.0, 1.0)
    if (np.abs(within - action) > ROUNDING).any():
        policy.ignore_next_readings_for_wiring()
    policy.previous_action = within


class Controller:
    """The control step of one robot, from sensor readings to a limited command.

    It loads a wiring and a model, checks that they fit each other, and needs no ROS.

    Args:
        wiring_path: The YAML file that connects the robot's topics to the policy.
        model_path: The model file.
        engine: The implementation that computes the policy (see `load_policy`).
        monitor: What to do if readings arrive on other channels than before, without announcement:
            "off", "reset" or "match" (see `load_policy`); None: as the model file says.
        recovery: The mean change of the readings per tick, in their units, below which the robot
            counts as standing still and gets random actions that make it move. 0: never; None: the
            model's value.
        ramp_s: Seconds in which commands change from the safe command to the policy's, after
            activation and after every safe command; 0: no ramp; None: the duration that the model
            was trained with.
        estop: The e-stop; while it is set all commands are the safe command.

    Raises:
        WiringError: The wiring is invalid or does not fit the model. The text names file, key,
            value and what is allowed.
        ModelError: The model file is invalid. The text names the file and the reason.
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
        self.messages = make_command_messages(self.wiring.command, wiring_path)
        """The message objects that together carry a command, one for each topic."""
        policy = load_policy(model_path, monitor, engine=engine, recovery=recovery)
        self.check_model_fits_wiring(model_path, policy.model)
        self.acting = ActingPolicy(self.wiring, model_path, policy, ramp_s)
        self._asked_monitor = monitor
        self.estop = estop or EStop()
        self.step_s = 1.0 / self.wiring.rate_hz
        limits = compute_sendable_limits(self.wiring.command, self.messages)
        steps = compute_field_steps(self.messages)
        self.gate = SafetyGate(self.wiring.command, self.step_s, self.acting.ramp_s, limits, steps)
        self.bring_up = BringUp(self.wiring.command, self.step_s)
        self._known_to_bring_up = -1
        """The number of the newest command at the bring-up's newest step; -1 if it is unknown."""
        self.decision = Decision(Readings(np.empty(0, np.float32), (), 0))
        """What was decided in the newest tick."""
        self.repeats = 0
        """The number of ticks without a new reading, in which the previous action was repeated."""
        self.stepped_ns: int | None = None
        """In lockstep with a simulator, the time stamp of the readings on which the policy made its
        newest step."""

    @property
    def wiring(self) -> Wiring:
        """The wiring by which the channel table reads sensor messages."""
        return self.table.wiring

    def check_model_fits_wiring(self, model_path: str, model: Model) -> None:
        """Check that a model fits the controller's wiring (see `check_wiring_fits_model`).

        Raises:
            WiringError: The model does not fit the wiring.
        """
        check_wiring_fits_model(self.wiring, self.table.ids, model_path, model)

    def decide(self, now_ns: int, stamp_ns: int | None) -> Decision:
        """Read the sensors, let the policy make a step on new readings, and return the decision.

        The policy makes no step if a required source is missing or too few channels have readings.
        Call `compute_command` afterwards to get the command that is to be sent.

        Args:
            now_ns: The time now in ns, against which the age of readings is measured.
            stamp_ns: In lockstep with a simulator, the common time stamp of the readings; otherwise
                None.
        """
        readings = self.table.read(now_ns, stamp_ns)
        if self.table.measured is not None:
            self._record_positions_to_hold(self.table.measured)
        cause, reason = self._explain_safe_command(readings)
        stepped = not cause and self._should_step(readings, stamp_ns)
        number = self.decision.previous_command
        if stepped:
            self.stepped_ns = stamp_ns
            command, number = self._get_previous_command_and_number()
            if self.acting.set_previous_action_and_swap_if_ready(readings, command):
                self.gate.set_ramp_duration_s(self.acting.ramp_s)
            # The monitor, which is a part of the policy, estimates; then the policy decides.
            action = self.acting.policy.step_array(readings.values, readings.ids)
            self.acting.wanted = self.acting.convert_to_command(action)
        if self.estop.reason:
            cause = reason = self.estop.reason
        elif not cause and self._needs_newer_positions:
            cause = reason = "the measured positions of the actuators are too old"
        self.decision = Decision(readings, stepped, number, reason, cause)
        return self.decision

    def compute_command(self, now_ns: int | None) -> np.ndarray:
        """Return the command (A,) in physical units that is to be sent in the newest tick.

        It is the safe command, a step of the motion to the start pose, or the policy's command. It
        is kept within the actuators' limits.

        Args:
            now_ns: The time of sending in ns. None: one control period after the previous command,
                as in lockstep.

        Raises:
            BringUpError: An actuator did not reach its start pose in time.
        """
        wanted = self.acting.wanted
        if self.decision.safe_reason or wanted is None:
            self.bring_up.pause()
            return self.gate.restart_ramp_and_get_safe_command()
        if not self.bring_up.done:
            assert self.table.measured is not None
            number = self.gate.last.values_and_sequence_number[1]
            if 0 <= self._known_to_bring_up < number - 1:  # the watchdog or another node commanded
                self.bring_up.pause()
            self._known_to_bring_up = number
            periods = self.gate.compute_control_periods_since_command(now_ns)
            if self.gate.last.values is None:
                self.gate.use_positions_as_previous_command(self.table.measured.values)
            target = self.bring_up(self.table.measured.values, periods)
            if not self.bring_up.done:
                return self.gate(target, now_ns, ramped=False)
        return self.gate(wanted, now_ns)

    def start(self, *, bring_up: bool = True) -> None:
        """Start to act: move to the start pose, then ramp to the policy's commands.

        Forget this node's earlier command, because the robot may have been moved since. Stop
        expecting channels that a wildcard (`*`) in the wiring found earlier, but that have long
        been missing.

        Args:
            bring_up: Whether to move the robot to its start pose first.
        """
        self.table.stop_expecting_absent_channels()
        self.gate.last.forget_command_if_own()
        self.gate.forget_positions_and_restart_ramp()
        if bring_up:
            self.bring_up.start_moving_to_start_pose()
        else:
            self.bring_up.cancel()

    def stop_and_get_safe_command(self) -> np.ndarray:
        """Stop acting, end the bring-up, and return the safe command (A,).

        The caller must send it as the final command.
        """
        self.bring_up.cancel()
        return self.gate.restart_ramp_and_get_safe_command()

    def reset(self) -> None:
        """Start a new episode: reset the state of the policy, and discard old camera frames."""
        self.acting.reset()
        self.table.discard_camera_frames()
        self.decision = self.decision._replace(safe_reason="", safe_cause="")
        self.stepped_ns = None

    @property
    def _needs_newer_positions(self) -> bool:
        """Whether measured positions are too old, and no known command can replace them.

        A bring-up starts from positions and always needs them; else the newest command serves.
        """
        measured = self.table.measured
        if measured is None or not measured.are_too_old:
            return False
        return not self.bring_up.done or self.gate.last.values is None

    def _record_positions_to_hold(self, measured: MeasuredPositions) -> None:
        """Tell the safe command which positions it would hold.

        In place of a position that is too old it is the newest command to that actuator, where the
        motor's controller keeps it; NaN if no command is known.
        """
        positions, last = measured.values, self.gate.last.values
        if measured.are_too_old:
            instead = np.full(len(positions), np.nan) if last is None else last
            positions = np.where(measured.is_old & np.isfinite(positions), instead, positions)
        self.gate.safe_command.record_measured_positions(positions)

    def make_rewired_table(self, wiring: Wiring) -> ChannelTable:
        """Make the table that reads sensors by a changed wiring; `switch_wiring` puts it to use.

        Args:
            wiring: The changed wiring: other topics, fields or channels.

        Raises:
            WiringError: The new wiring does not fit the model, or changes the control rate or the
                command section, which cannot change while the node runs.
        """
        for name in ("rate_hz", "command"):
            if getattr(wiring, name) != getattr(self.wiring, name):
                allowed = (
                    "what the node was configured with; to change it clean up and configure the"
                    " node, or stop it and start it again"
                )
                raise WiringError(wiring.file, name, Description("a change"), allowed)
        models = [(one.path, one.policy.model) for one in self.acting.acting_and_pending_models]
        for model_path, model in models:
            check_channel_kind(wiring, model_path, model)
        table = self.table.make_rewired_table(wiring)
        for model_path, model in models:
            check_channels_of_fixed_order_model(wiring, table.ids, model_path, model)
        return table

    def switch_wiring(self, table: ChannelTable) -> None:
        """Switch to a changed wiring from the next tick on; the policy keeps its state.

        Args:
            table: The table of the changed wiring, as `make_rewired_table` returned it.
        """
        self.table = table

    def format_summary(self) -> str:
        """Return text for a log line: model, wiring, number of channels and control rate."""
        wildcards = sum("*" in one.id for one in self.wiring.channels)
        channels = f"{len(self.table.ids)} channels"
        if wildcards:
            channels += f" and those of {wildcards} wildcard{'s' * (wildcards > 1)}"
        return (
            f"{self.acting.model_path} ({self.acting.policy.engine}), {self.wiring.file},"
            f" {channels}, {self.wiring.rate_hz:g} Hz"
        )

    def explain_control_rate_mismatch(self) -> str:
        """Return why the policy should not run at the wiring's control rate, or "" if it may.

        The rate may differ by at most 10 % from that of the training. If the latter is unknown, any
        rate may be used.
        """
        return explain_control_rate_mismatch(self.wiring, self.acting.policy.model)

    def explain_disabled_monitor(self) -> str:
        """Return why the model file turns off the identity monitor, which detects rewired sensors.

        The result is "" if the monitor is on, if the user turned it off, or if the model has none.
        """
        if self._asked_monitor is not None:
            return ""
        return self.acting.policy.model.monitor_default_off_reason

    def list_configuration_notes(self) -> tuple[str, ...]:
        """Return sentences for the log on what is unusual in the wiring and the model.

        They tell how the channels in the wiring file differ from the model's, and which sources
        (subscribed topics) feed no channel (input of the policy). Two warnings may follow: that the
        monitor is off, and that all weights are 0. A channel that a wildcard (`*`) stands for
        counts if it is present now.
        """
        policy = self.acting.policy
        found = compare_wired_with_trained_channels(self.wiring, self.table.ids, policy.model)
        watched = policy.monitor_report is not None
        said = describe_channel_differences(found, self.acting.model_path, monitor_is_on=watched)
        warnings = (
            self.explain_disabled_monitor(),
            describe_all_zero_weights(self.acting.model_path, policy.model),
        )
        return (
            *said,
            *describe_sources_without_channel(self.wiring).values(),
            *filter(None, warnings),
        )

    def _get_previous_command_and_number(self) -> tuple[np.ndarray | None, int]:
        """Return the newest command (A,) on the robot's topics, from any node, and its number.

        While that command is unknown, return the safe command, or None before the policy's first
        step and while the positions that the safe command holds are unknown. The number is then -1.
        """
        sent, number = self.gate.last.values_and_sequence_number
        if (
            sent is None
            and self.acting.wanted is not None
            and self.gate.safe_command.has_all_needed_positions
        ):
            return self.gate.safe_command(), number
        return sent, number

    def _should_step(self, readings: Readings, stamp_ns: int | None) -> bool:
        """Return whether the policy should make a step on these readings.

        In lockstep the policy makes one step for each stamp. In real time it makes a step if a
        reading is new; a policy that was trained to do so steps on old readings too. The attribute
        `repeats` counts the ticks without a step.

        Args:
            readings: The readings of the tick.
            stamp_ns: In lockstep with a simulator, their common time stamp; otherwise None.
        """
        if stamp_ns is not None:
            new = stamp_ns != self.stepped_ns
        else:
            new = readings.new or self.acting.policy.model.task.repeats
        self.repeats += not new
        return new

    def _explain_safe_command(self, readings: Readings) -> tuple[str, str]:
        """Return the reason why the policy should not act on these readings, in two versions.

        Returns:
            A pair: the reason without numbers that change from tick to tick, and the reason with
            these numbers; ("", "") if the policy should act.
        """
        if missing := self.table.list_missing_sources():
            reason = f"required source {missing[0]!r} is missing"
            return reason, reason
        if self.table.measured is not None and not self.table.measured.has_all_positions:
            unmeasured = join_names_shortened(self.table.measured.list_unmeasured_actuators())
            return "measured", f"no position has been measured yet of {unmeasured}"
        needed = self.wiring.min_present_share
        if readings.has_min_present_share(needed):
            return "", ""
        present = len(readings.ids)
        here = f"{present} of {readings.expected} channels present"
        if readings.weights is not None:
            here = f"{readings.present_share:.0%} of the channels present by weight"
        return "min_present_share", f"{here}, {needed:.0%} are needed (min_present_share)"
