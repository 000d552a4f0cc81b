"""One tick, without ROS: readings -> policy -> gate -> command.

`tick` reads the channels and steps the policy; `command` says what goes out, at the moment when it
does. The policy steps on the readings that come whether its command goes out or not, with what was
really sent as its previous action: after a stop it continues from what it has seen of it. With too
few channels to act on it waits, which leaves it knowing more than steps on a few do: after 1 s
without the joints' readings 14 of 28 Ants walked again, with steps on the 12 other channels 8 of 28
(2026-11-22). All state that a tick needs is here and is thrown away when the node is cleaned up.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from an_control.control.action_order import (
    ActionOrder,
    check_channels,
    compare_channels,
    notes,
    unread_sources,
)
from an_control.control.attention_picture import attended_picture, shares
from an_control.control.bring_up import BringUp
from an_control.control.gate import EStop, Gate
from an_control.load import EngineName, load_policy, monitor_warning
from an_control.policy import Model, Monitor, Policy, VisionSizes
from an_control.wiring import (
    ChannelTable,
    Readings,
    Wiring,
    WiringError,
    command_messages,
    load_wiring,
    sendable_limits,
)
from an_control.wiring.checked_yaml import Shown

RATE_TOLERANCE = 0.1
ROUNDING = 1e-6
"""How far beyond 1 an action may seem that was sent as float32."""
WATCH_S = 1.0
"""For so long a new model watches beside the old one before it acts: without a memory of its gait a
walker stops."""


class _Newcomer(NamedTuple):
    """A model that will act; `ticks` it still watches."""

    path: str
    policy: Policy
    order: ActionOrder
    ticks: int


class Controller:
    """A wiring and a policy that fit each other.

    Args:
        wiring_path, model_path: the files.
        engine: what computes the policy.
        monitor: what watches for unannounced rewiring; None for what the model says.
        recovery: push a robot whose readings change by less than this at a tick; 0 = never, None:
            as the model says.
        ramp_s: how long authority grows after activation and every safe command; 0 = off, None: as
            the model was trained.
        estop: while it is latched every command is the safe one.

    Raises WiringError or ModelError naming file, key, value and what is allowed.
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
        self.wiring: Wiring = load_wiring(wiring_path)
        self.table = ChannelTable(self.wiring)
        self.messages = command_messages(self.wiring.command, wiring_path)
        """What carries a command."""
        self.policy: Policy = load_policy(model_path, monitor, engine=engine, recovery=recovery)
        self.model_path = model_path
        self.estop = estop or EStop()
        self.new_model = ""
        """What has become of the model that was set last; empty once it acts."""
        self._given: deque[_Newcomer] = deque(maxlen=1)  # filled from other threads
        self._newcomer: _Newcomer | None = None
        self.step_s = 1.0 / self.wiring.rate_hz
        self._asked_ramp_s, self._asked_monitor = ramp_s, monitor
        self.ramp_s = self._ramp_for(self.policy.model)
        limits = sendable_limits(self.wiring.command, self.messages)
        self.gate = Gate(self.wiring.command, self.step_s, self.ramp_s, limits)
        self.bring_up = BringUp(self.wiring.command, self.step_s)
        self.safe_reason = ""
        """Why the last command was the safe one, empty where it was the policy's."""
        self.safe_cause = ""
        """The same without figures, which may change at each tick."""
        self.repeats = 0
        """Ticks that had no new reading, and so repeated the last action."""
        self._wanted: np.ndarray | None = None
        self._stepped_ns: int | None = None
        self.check(model_path, self.policy.model)
        self._order = ActionOrder(self.wiring, model_path, self.policy.model)

    def check(self, model_path: str, model: Model) -> None:
        """WiringError where the wiring does not fit the model.

        There must be an actuator for each of its actions, by name where it names them, and what it
        reads, numbers or patches; for an ordered model just its channels.
        """
        _check_images(self.wiring, model_path, model)
        ActionOrder(self.wiring, model_path, model)
        check_channels(self.wiring, self.table.ids, model_path, model)

    def summary(self) -> str:
        """Return model, wiring, channels and rate as text for a log line."""
        wildcards = sum("*" in one.id for one in self.wiring.channels)
        channels = f"{len(self.table.ids)} channels"
        if wildcards:
            channels += f" and those of {wildcards} wildcard{'s' * (wildcards > 1)}"
        return (
            f"{self.model_path} ({self.policy.engine}), {self.wiring.file}, {channels},"
            f" {self.wiring.rate_hz:g} Hz"
        )

    def monitor_warning(self) -> str:
        """Return why the model's monitor is off although nobody asked for that, or ""."""
        return monitor_warning(self.policy.model, self._asked_monitor)

    def name_notes(self) -> tuple[str, ...]:
        """What to say of channels that are not the model's, and of the model's that are not here.

        Of wildcards as they are now.
        """
        found = compare_channels(self.wiring, self.table.ids, self.policy.model)
        watched = self.policy.monitor_report is not None
        return notes(found, self.model_path, watched=watched) + tuple(
            unread_sources(self.wiring).values()
        )

    def _ramp_for(self, model: Model) -> float:
        """How long authority grows with this model."""
        if _chooses(model):
            return 0.0  # there is nothing between two buttons
        return trained_ramp_s(model) if self._asked_ramp_s is None else self._asked_ramp_s

    def rate_refusal(self, model: Model | None = None) -> str:
        """Why the policy, or another model, should not run at the wiring's rate, or nothing."""
        trained_s = (model or self.policy.model).task.get("step_s")
        if trained_s is None or abs(self.step_s / trained_s - 1.0) <= RATE_TOLERANCE:
            return ""
        return (
            f"{self.wiring.file}: rate_hz: {self.wiring.rate_hz:g}, but the model was trained at"
            f" {1.0 / trained_s:g} Hz (allowed: a difference of 10%; more with the parameter"
            " check_rate false, which is --no-check-rate of `an-control run`)"
        )

    def ramp_warning(self) -> str:
        """What to say of a ramp that the model was not trained with, or nothing."""
        trained_s = trained_ramp_s(self.policy.model)
        if self.ramp_s <= trained_s:
            return ""
        return (
            f"ramp_s: {self.ramp_s:g} s, but {self.model_path} was trained with up to"
            f" {trained_s:g} s: the robot may not start to move"
        )

    def rewired(self, wiring: Wiring) -> ChannelTable:
        """The table for `rewire`; WiringError where the wiring cannot take over while running."""
        for name in ("rate_hz", "command"):
            if getattr(wiring, name) != getattr(self.wiring, name):
                allowed = (
                    "what the node was configured with; to change it clean up and configure the"
                    " node, or stop it and start it again"
                )
                raise WiringError(wiring.file, name, Shown("a change"), allowed)
        _check_images(wiring, self.model_path, self.policy.model)
        table = self.table.rewired(wiring)
        check_channels(wiring, table.ids, self.model_path, self.policy.model)
        return table

    def rewire(self, table: ChannelTable) -> None:
        """Read from this table from the next tick on; the policy's state stays with the ids."""
        self.table, self.wiring = table, table.wiring

    def start(self, *, bring_up: bool = True) -> None:
        """Begin to act: bring the robot up, where the wiring says how, and with the ramp.

        Of wildcards what is there now is expected from now on.
        """
        self.table.expect_present()
        self.gate.start()
        if bring_up:
            self.bring_up.begin()
        else:
            self.bring_up.cancel()

    def stop(self) -> np.ndarray:
        """End acting, and bring-up with it: the safe command (A,), which must be the last."""
        self.bring_up.cancel()
        return self.gate.safe()

    def reset(self) -> None:
        """Start a new episode: forget what policy and monitor remember."""
        self.policy.reset()
        if self._newcomer is not None:
            self._newcomer.policy.reset()
        self.table.reset()
        self.safe_reason = self.safe_cause = ""
        self._wanted = self._stepped_ns = None

    def swap(self, model_path: str, policy: Policy) -> None:
        """Let `policy` act after it has watched for WATCH_S; callable from any thread."""
        order = ActionOrder(self.wiring, model_path, policy.model)
        self.new_model = f"watching {model_path}"
        self._given.append(_Newcomer(model_path, policy, order, round(WATCH_S / self.step_s)))

    def tick(self, now_ns: int, stamp_ns: int | None) -> Readings:
        """Read the channels and step the policy; return the readings.

        Args:
            now_ns: by which readings age.
            stamp_ns: in lockstep the stamp of the readings, else None.
        """
        readings = self.table.read(now_ns, stamp_ns)
        if self.table.measured is not None:
            self.gate.safe_command.measure(self.table.measured.values)
        cause, reason = self._too_little(readings)
        if not cause:
            self._step(readings, stamp_ns)
        if self.estop.reason:
            cause = reason = self.estop.reason
        self.safe_cause, self.safe_reason = cause, reason
        return readings

    def command(self, now_ns: int | None) -> np.ndarray:
        """Return the command (A,) in physical units that goes out now, by the last tick.

        None as time stands for one period since the last command, as in lockstep. Raises
        BringUpError where the start pose is not reached in time.
        """
        if self.safe_reason or self._wanted is None:
            self.bring_up.pause()
            return self.gate.safe()
        if not self.bring_up.done:
            assert self.table.measured is not None
            periods = self.gate.periods_since_last(now_ns)
            target = self.bring_up(self.table.measured.values, periods)
            if not self.bring_up.done:
                return self.gate(target, now_ns, ramped=False)
        return self.gate(self._wanted, now_ns)

    def prepare(self) -> None:
        """Work ahead for the next tick, once the command is out."""
        self.policy.prepare()

    def _step(self, readings: Readings, stamp_ns: int | None) -> None:
        """Step the policy on readings that it has not seen, if there are any.

        Its previous action is what was sent last, by whoever; where nobody is known to have sent
        anything, the safe command.
        """
        if not self._new(readings, stamp_ns):
            self.repeats += 1
            return
        self._stepped_ns = stamp_ns
        sent = self.gate.last.values
        if self._wanted is not None:
            sent = self.gate.safe_command() if sent is None else sent
            if (sent != self._wanted).any():
                _set_previous_action(self.policy, self._order.action(sent))
        if self._given:
            self._newcomer = self._given.pop()
        if self._newcomer is not None and self._wanted is None:  # nobody knows more than it does
            self._newcomer = self._newcomer._replace(ticks=0)
        if self._newcomer is not None:
            self._watch(self._newcomer, readings, sent)
        action = self.policy.step_array(readings.values, readings.ids)
        self._wanted = self._order.command(action)

    def _new(self, readings: Readings, stamp_ns: int | None) -> bool:
        """Whether the policy should step on these readings."""
        if stamp_ns is not None:
            return stamp_ns != self._stepped_ns
        return readings.new or bool(self.policy.model.task.get("repeats"))

    def _watch(self, new: _Newcomer, readings: Readings, sent: np.ndarray | None) -> None:
        """Let a new model see this tick too; when it has seen enough, it acts."""
        path, policy, order, ticks = new
        if sent is not None:
            _set_previous_action(policy, order.action(sent))
        if ticks <= 0:
            self.model_path, self.policy, self._newcomer = path, policy, None
            self._order, self.ramp_s = order, self._ramp_for(policy.model)
            self.gate.set_ramp(self.ramp_s)
            if not self._given and self.new_model == f"watching {path}":
                self.new_model = ""
        else:
            policy.step_array(readings.values, readings.ids)
            self._newcomer = new._replace(ticks=ticks - 1)

    def _too_little(self, readings: Readings) -> tuple[str, str]:
        """Return why the policy should not act on these readings, without and with figures.

        Empty texts where it should act.
        """
        if missing := self.table.missing():
            reason = f"required source {missing[0]!r} is missing"
            return reason, reason
        if not self._measured():
            reason = "no positions of the actuators have been measured yet"
            return reason, reason
        needed = self.wiring.min_present_share
        if readings.enough(needed):
            return "", ""
        present = len(readings.ids)
        here = f"{present} of {readings.expected} channels present"
        if readings.weights is not None:
            here = f"{readings.present_share:.0%} of the channels present by weight"
        return "min_present_share", f"{here}, {needed:.0%} are needed (min_present_share)"

    def _measured(self) -> bool:
        """Whether all positions that are held or moved from are known."""
        return self.table.measured is None or self.table.measured.known

    def attention(self, ids: tuple[str, ...]) -> np.ndarray | None:
        """(M, N) of the last tick, columns in the order of `ids`; None without attention."""
        attention = self.policy.attention
        places = None if attention is None else self._places(ids)
        return None if attention is None or places is None else attention[:, places]

    def keys(self, ids: tuple[str, ...]) -> np.ndarray | None:
        """(N, k) of the last tick, rows in the order of `ids`; None for a policy without keys.

        Of a policy that sees these are the messages of its patches.
        """
        keys = self.policy.keys
        if keys is None:
            keys = self.policy.messages
        places = None if keys is None else self._places(ids)
        return None if keys is None or places is None else keys[places]

    def _places(self, ids: tuple[str, ...]) -> list[int] | None:
        """Where the policy's last step had these channels; None where it lacked one.

        It may have had more: a monitor imputes the channels that are missing.
        """
        place = {name: number for number, name in enumerate(self.policy.channel_order)}
        return [place[name] for name in ids] if place.keys() >= set(ids) else None

    def attended(self) -> np.ndarray | None:
        """The first camera's newest frame with the last tick's attention, rgb (H, W, 3); or None.

        What was not there for the policy is covered.
        """
        attention = self.policy.attention
        if not self.table.cameras or attention is None:
            return None
        camera, order = self.table.cameras[0], self.policy.channel_order
        grid = camera.image.grid
        return attended_picture(
            camera.frames[-1],
            camera.image.patch,
            shares(attention, order, camera.ids).reshape(grid),
            present=np.isin(camera.ids, order).reshape(grid),
        )


def trained_ramp_s(model: Model) -> float:
    """The longest soft start that a model was trained with; 0 where its file names none."""
    return float(model.task.get("ramp_s", 0.0))


def _check_images(wiring: Wiring, model_path: str, model: Model) -> None:
    """WiringError where a wiring has images and the model reads numbers, or other patches."""
    images, file = wiring.images, wiring.file
    sizes = model.sizes
    if not isinstance(sizes, VisionSizes):
        if images:
            allowed = f"fields of numbers, which {model_path} reads"
            raise WiringError(file, "channels", Shown("images"), allowed)
        return
    if not images:
        allowed = f"images, whose patches {model_path} reads"
        raise WiringError(file, "channels", Shown("fields of numbers"), allowed)
    for name in ("patch", "stack"):
        if getattr(images[0], name) != getattr(sizes, name):
            allowed = f"{getattr(sizes, name)}, which {model_path} reads"
            key = f"channels.{wiring.channels[0].id}.image.{name}"
            raise WiringError(file, key, getattr(images[0], name), allowed)


def _chooses(model: Model) -> bool:
    """Whether its action is one of several, with nothing in between."""
    return bool(getattr(model.sizes, "choice", False))


def _set_previous_action(policy: Policy, action: np.ndarray) -> None:
    """The action (A,) that stands for what was sent; a monitor learns nothing from one beyond 1."""
    within = np.clip(action, -1.0, 1.0)
    if (np.abs(within - action) > ROUNDING).any():
        policy.ignore_next_tick()
    policy.previous_action = within
