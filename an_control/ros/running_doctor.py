"""The wiring doctor while the robot runs: finds the wrong line, and corrects it if that is allowed.

The doctor is asked when the monitor finds the readings improbable for half a second and no move of
signals explains them. It examines the last ten seconds, in a process of its own. A mistake that two
examinations in a row find is announced: by one line in the log, and in the diagnostics until the
readings are probable again. Mistakes in scale, sign and offset of sensors can be corrected while
the robot runs: at once (parameter `monitor_corrects`), or by a service. The correction lasts until
it is undone, until another topic or field feeds the channel, or until the wiring file is read
again. A motor is never corrected.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rclpy.impl.rcutils_logger import RcutilsLogger

from an_control.control.controller import ROUNDING, Controller
from an_control.control.recent_ticks import RecentTicks, TickArrays
from an_control.policy.interface import MonitorReport, Policy
from an_control.ros.doctor_process import DoctorProcess
from an_control.wiring import ChannelTable, Readings, Wiring

DOUBT_NATS = 0.35
"""Excess NLL in nats a tick and channel from which on the readings count as improbable, as for the
doctor (`DoctorSettings.misfit`)."""
CHECK_S = 0.1
"""Time between two looks at the monitor's report. Ticks are recorded all the time."""
DOUBT_S, LEAST_DOUBT_TICKS = 0.5, 20
"""Time, and ticks at least, for which readings must be improbable before the doctor is asked."""
LEAST_TICKS = 80
"""Ticks that are recorded before the doctor is asked."""
PAUSE_S, LONGEST_PAUSE_S = 0.5, 60.0
"""Time between an answer and the next request. It doubles after an answer without a finding, up to
the longest."""
CLEAR_S = 10.0
"""Time without improbable readings after which a finding is withdrawn."""
SURE = ("certain", "very likely")
"""How certain a finding must be to be announced."""
SHOWN_LINES = 3
"""Maximum number of lines of the file in a log line."""

Conversions = Mapping[str, tuple[float, float]]
"""Scale and offset by the id of a channel's entry in the wiring."""


@dataclass
class RunningFinding:
    """A mistake in the wiring that was found while the robot runs.

    Args:
        kind: Kind of mistake, such as "sign".
        members: Ids of the channels, or names of the actuators.
        text: What is wrong.
        correction: The new value in the wiring file, or advice if no change of the file can help.
        log_odds: Nats by which the readings are more likely with the correction than without it.
        certainty: "certain", "very likely" or "likely".
        alternatives: Other mistakes that explain the readings as well.
        lines: Lines of the wiring file that the correction changes: number, text and corrected
            text.
        conversions: The corrected scales and offsets; empty if the mistake cannot be corrected
            while the node runs.
        corrected: Whether the mistake is corrected at present, without a change of the file.
    """

    kind: str
    members: tuple[str, ...]
    text: str
    correction: str
    log_odds: float
    certainty: str
    alternatives: Sequence[str]
    lines: Sequence[tuple[int, str, str]]
    conversions: Conversions
    corrected: bool = False

    @property
    def key(self) -> tuple[str, tuple[str, ...]]:
        """The kind and the channels or motors: equal for the same finding in two examinations."""
        return self.kind, self.members

    @property
    def is_announceable(self) -> bool:
        """Whether the finding is at least very likely, and no other mistake as likely."""
        return self.certainty in SURE and not self.alternatives

    @property
    def member_names(self) -> str:
        """The names of the first four channels or actuators, and how many more there are."""
        more = len(self.members) - 4
        return ", ".join(self.members[:4]) + (f" and {more} more" if more > 0 else "")

    @property
    def sentence(self) -> str:
        """The names of the channels or actuators, and what is wrong with them."""
        return f"{self.member_names} {self.text}"

    @property
    def how_sure(self) -> str:
        """The certainty of the finding in words, with its nats."""
        return f"{self.certainty} ({self.log_odds:.0f} nats)"

    def describe_change(self, file: str) -> str:
        """Return as text which lines of the wiring file to change, or what else to do.

        Args:
            file: The path of the file, for the text.
        """
        if not self.lines:
            return self.correction
        said = [f"line {number}: {old}  ->  {new}" for number, old, new in self.lines[:SHOWN_LINES]]
        more = len(self.lines) - SHOWN_LINES
        return f"{file}, " + "; ".join(said) + (f"; and {more} more lines" if more > 0 else "")


class RunningDoctor:
    """Lets the wiring doctor examine a running robot, and announces and corrects its findings.

    Args:
        logger: The node's logger.
        controller: The controller, whose monitor and readings are watched.
        correct: Function that changes scales and offsets of channels from the next tick on. Its
            argument holds them by the id of the channel's entry in the wiring. It raises ValueError
            if the change is not possible.
        corrects: The kinds of mistakes that are corrected without a request: some of "scale",
            "sign" and "offset".
        process: The doctor's process; None for a new one.
    """

    def __init__(
        self,
        logger: RcutilsLogger,
        controller: Controller,
        correct: Callable[[Conversions], None],
        corrects: Sequence[str] = (),
        process: DoctorProcess | None = None,
    ) -> None:
        self._logger, self._controller, self._correct = logger, controller, correct
        self._corrects = frozenset(corrects)
        self.findings: list[RunningFinding] = []
        """The announced mistakes, the most certain first; those that are corrected come last."""
        self._blames_motor = False
        """Whether the answer with the announced mistakes also names a motor's."""
        self._process = DoctorProcess() if process is None else process
        self._failure_logged = False
        self._originals: dict[str, tuple[float, float]] = {}
        """Scale and offset in the wiring file of each corrected entry, by its id."""
        self._undone: set[str] = set()
        """Entries of the wiring whose correction was undone, so that it is not made again unasked.
        """
        self._table: ChannelTable | None = None
        self._policy: Policy | None = None
        self._ticks: RecentTicks | None = None
        self._moved: Mapping[str, str] = {}
        self._check_ticks = max(1, round(CHECK_S / controller.step_s))
        self._unchecked = 0
        """Number of ticks since the last look at the monitor's report."""
        ticks = max(LEAST_DOUBT_TICKS, round(DOUBT_S / controller.step_s))
        self._needed_doubts = -(-ticks // self._check_ticks)
        self._doubts = 0
        """Number of looks in a row at which the readings were improbable."""
        self._restart_examination()
        self._clear_since_s = time.monotonic()

    @property
    def process(self) -> DoctorProcess:
        """The doctor's process."""
        return self._process

    def set_automatically_corrected_kinds(self, kinds: Sequence[str]) -> None:
        """Set which kinds of mistakes are corrected without a request.

        Announced mistakes of these kinds are corrected at once. Without any kind, all corrections
        are undone.

        Args:
            kinds: Some of "scale", "sign" and "offset", or none.
        """
        self._corrects = frozenset(kinds)
        self._undone.clear()
        if kinds:
            self._apply_automatic_corrections()
        else:
            self.undo_corrections_or_explain()
            self._undone.clear()

    def mark_gap(self) -> None:
        """Mark the next tick as one that does not directly follow the tick before it."""
        if self._ticks is not None:
            self._ticks.mark_gap()

    def record_tick_and_check_readings(
        self,
        readings: Readings,
        previous_command: np.ndarray | None,
        now_ns: int,
        stamp_ns: int | None,
    ) -> None:
        """Record a tick, and ask the doctor if the readings have been improbable for some time.

        This is called after the tick's command was sent, so that it delays no command.

        Args:
            readings: The readings of the tick.
            previous_command: (A,) the newest command on the robot's topics when the tick began;
                None if it is unknown.
            now_ns: The time of the tick.
            stamp_ns: The stamp of its readings in lockstep with a simulator, else None.
        """
        controller = self._controller
        policy, table = controller.acting.policy, controller.table
        if table is not self._table or policy is not self._policy:
            self._start_recording(table, policy)
        ticks = self._ticks
        if ticks is None:
            return
        if controller.stepped:
            ticks.record_tick(
                table, readings, previous_command, now_ns if stamp_ns is None else stamp_ns
            )
        else:
            ticks.mark_gap()
        self._unchecked += 1
        if self._unchecked >= self._check_ticks:
            self._unchecked = 0
            report = policy.monitor_report
            if report is not None:
                self._act_on_monitor_report(report, ticks)

    def _act_on_monitor_report(self, report: MonitorReport, ticks: RecentTicks) -> None:
        """Examine the recorded ticks, or withdraw findings, as the monitor's report demands.

        If the readings have been improbable for some time, the doctor is asked, and its answer is
        handled. If they have been probable for some time, findings are withdrawn.

        Args:
            report: The monitor's report.
            ticks: The recorded ticks.
        """
        if report.moved is not self._moved:
            if report.moved != self._moved:  # what came before has another order
                ticks.clear()
            self._moved = report.moved
        improbable = (
            report.excess_nll > self._doubt_nats or report.lost or bool(report.misfit)
        ) and not (report.moved or report.waiting)
        self._doubts = self._doubts + 1 if improbable else 0
        process = self._process
        failed = bool(process.failure) and not self._failure_logged
        if self._doubts >= self._needed_doubts or process.is_busy or failed:
            self._handle_answer_or_send_request(ticks)
        elif self.findings and not self._doubts:
            self._withdraw_outdated_findings()
        if self._doubts:
            self._clear_since_s = 0.0

    def apply_corrections_or_explain(self) -> str:
        """Correct the announced mistakes in scale, sign and offset, on request of a person.

        Returns:
            "" if all were corrected, else the reason why one of them was not.
        """
        wanted = [one for one in self.findings if one.conversions and not one.corrected]
        if not wanted:
            return "the doctor has announced nothing that can be corrected while the robot runs"
        for one in wanted:
            self._undone -= one.conversions.keys()
            if reason := self._correct_finding_or_explain(one):
                return reason
        return ""

    def undo_corrections_or_explain(self) -> str:
        """Give corrected channels the scale and offset of the wiring file again.

        Returns:
            "" if all corrections were undone, else the reason why none was.
        """
        if not self._originals:
            return "nothing is corrected"
        try:
            self._correct(self._originals)
        except ValueError as error:
            return str(error)
        names = ", ".join(self._originals)
        self._undone |= self._originals.keys()
        self._originals = {}
        for one in self.findings:
            one.corrected = False
        self._logger.warning(f"doctor: correction undone, the wiring file counts again: {names}")
        return ""

    def drop_corrections_of_rewired_channels(self, wiring: Wiring, wiring_before: Wiring) -> Wiring:
        """Return a wiring in which rewired channels have the scale and offset of the file again.

        Args:
            wiring: The rewired wiring, in which channels are still corrected.
            wiring_before: The wiring before the rewiring; channels that read another topic or field
                in it are rewired.
        """
        rewired = _list_rewired_entries(wiring, wiring_before)
        return wiring.with_conversions(
            {id_: pair for id_, pair in self._originals.items() if id_ in rewired}
        )

    def drop_findings_of_rewired_channels(self, wiring: Wiring, wiring_before: Wiring) -> None:
        """Forget the findings and corrections of channels that have just been rewired.

        Args:
            wiring: The rewired wiring.
            wiring_before: The wiring before the rewiring.
        """
        rewired = _list_rewired_entries(wiring, wiring_before)
        if dropped := rewired & self._originals.keys():
            names = ", ".join(sorted(dropped))
            self._logger.info(f"doctor: correction dropped by the rewiring: {names}")
        self._originals = {id_: v for id_, v in self._originals.items() if id_ not in rewired}
        self.findings = [
            one for one in self.findings if not rewired & {*one.conversions, *one.members}
        ]

    def drop_all_findings(self) -> None:
        """Forget all findings and corrections, because the wiring file was read again."""
        self.findings = []
        self._originals.clear()
        self._undone.clear()

    def close(self) -> None:
        """End the doctor's process."""
        self._process.close()

    def make_diagnostics(self) -> tuple[bool, str, dict[str, Any]]:
        """Return the state of the doctor and its findings for the diagnostics.

        Returns:
            Whether the doctor runs and has found nothing, a description, and the values of all
            findings by name.
        """
        file = self._controller.wiring.file
        if self._process.failure:
            text = f"the doctor is off: {self._process.failure}"
        elif self._process.is_busy:
            text = "examines the wiring, because the readings are improbable"
        else:
            text = "nothing found"
        if self.findings:
            first, more = self.findings[0], len(self.findings) - 1
            done = "corrected while the node runs: " if first.corrected else ""
            text = f"{done}{first.sentence}; {first.describe_change(file)}"
            text += f"; and {more} more" if more else ""
        values: dict[str, Any] = {"file": file, "findings": len(self.findings)}
        for number, one in enumerate(self.findings, 1):
            state = "yes" if one.corrected else "no" if one.conversions else "by hand only"
            values |= {
                f"{number} what": one.member_names,
                f"{number} is wrong": one.text,
                f"{number} how sure": one.how_sure,
                f"{number} would become": one.correction,
                f"{number} change": one.describe_change(file),
                f"{number} corrected": state,
            }
        return not (self.findings or self._process.failure), text, values

    def _restart_examination(self) -> None:
        """Forget earlier answers and the pause before the next request.

        If the doctor is busy, its answer is dropped when it arrives.
        """
        self._doubts = 0
        self._candidates: dict[tuple[str, tuple[str, ...]], RunningFinding] = {}
        self._pause_s, self._next_s = PAUSE_S, 0.0
        self._stale = self._process.is_busy
        """Whether the answer that is awaited is about an earlier wiring."""

    def _start_recording(self, table: ChannelTable, policy: Policy) -> None:
        """Start a new recording, because the channel table or the policy was replaced.

        Nothing is recorded if the policy has no monitor.

        Args:
            table: The new channel table.
            policy: The new policy.
        """
        self._table, self._policy, self._ticks = table, policy, None
        self._restart_examination()
        if policy.monitor_report is None:
            return
        task, names = policy.model.task, self._controller.wiring.command.names
        self._ticks = RecentTicks(task.channels, len(names), self._controller.step_s)
        self._doubt_nats = DOUBT_NATS * len(task.channels)

    def _handle_answer_or_send_request(self, ticks: RecentTicks) -> None:
        """Handle the doctor's answer if there is one; else send a request if one is due.

        If the doctor's process has failed, this is logged once.

        Args:
            ticks: The recorded ticks.
        """
        process = self._process
        if process.failure:
            if not self._failure_logged:
                self._failure_logged = True
                self._logger.warning(
                    f"the wiring doctor is off until the node is configured again:"
                    f" {process.failure}"
                )
            return
        answer = process.pop_answer()
        if answer is not None:
            self._next_s = time.monotonic() + self._pause_s
            if not self._stale:
                self._announce_agreed_findings(
                    [RunningFinding(**_convert_lists_to_tuples(one)) for one in answer]
                )
            self._stale = False
            return
        if process.is_busy or self._doubts < self._needed_doubts:
            return
        if len(ticks) >= LEAST_TICKS and time.monotonic() >= self._next_s:
            self.request_examination()

    def request_examination(self) -> None:
        """Let the doctor examine the recorded ticks.

        The answer to the request before must have been handled.
        """
        if self._ticks is not None:
            self._process.send_request(self._make_request(self._ticks.copy_arrays()))

    def _make_request(self, arrays: TickArrays) -> Callable[[], Any]:
        """Return a function that makes the request to examine some ticks.

        The function is called on another thread, so that the conversion of the commands delays no
        tick.

        Args:
            arrays: The readings and commands of the ticks.
        """
        acting, table = self._controller.acting, self._controller.table
        model_path, convert = acting.model_path, acting.convert_to_action
        task = acting.policy.model.task

        def make() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
            """Return the request: values for JSON, and arrays by name."""
            actions = np.array([convert(values) for values in arrays.commands])
            outside = (np.abs(actions) > 1.0 + ROUNDING).any(1)
            starts = arrays.starts.copy()
            starts[1:] |= outside[:-1]  # as no action of the model gives this command
            configs = table.configs
            channels = [
                None
                if (one := configs.get(id_)) is None
                else {
                    "entry": one.id,
                    "source": one.source,
                    "field": one.field,
                    "scale": one.scale,
                    "offset": one.offset,
                    "clip": one.clip,
                }
                for id_ in task.channels
            ]
            actuators = task.actuators or [f"action.{i}" for i in range(actions.shape[1])]
            about = {
                "model": os.path.abspath(model_path),
                "wiring": os.path.abspath(table.wiring.file),
                "ids": list(task.channels),
                "actuators": list(actuators),
                "channels": channels,
            }
            clipped = np.clip(actions, -1.0, 1.0).astype(np.float32)
            return about, {"raw": arrays.raw, "actions": clipped, "starts": starts}

        return make

    def _announce_agreed_findings(self, found: list[RunningFinding]) -> None:
        """Announce the findings that are both in the newest answer and in the one before.

        Args:
            found: The findings of the newest answer.
        """
        sure = {one.key: one for one in found if one.is_announceable}
        agreed = [one for key, one in sure.items() if key in self._candidates]
        self._candidates = sure
        self._pause_s = PAUSE_S if sure else min(2.0 * self._pause_s, LONGEST_PAUSE_S)
        known = {one.key for one in self.findings if not one.corrected}
        corrected = [one for one in self.findings if one.corrected]
        new = [one for one in agreed if one.key not in known]
        if not new:
            return
        self.findings = [*agreed, *corrected]
        file = self._controller.wiring.file
        for one in new:
            self._logger.warning(
                f"doctor: {one.sentence}, {one.how_sure}: {one.describe_change(file)}"
            )
        self._blames_motor = any(one.kind.startswith("motor") for one in found)
        self._apply_automatic_corrections()

    def _apply_automatic_corrections(self) -> None:
        """Correct the announced mistakes that may be corrected without a request.

        They must be certain. Nothing is corrected while the newest answer also names a mistake of a
        motor, because the effects of that may look like a sensor's mistake.
        """
        if self._blames_motor:
            return
        for one in tuple(self.findings):
            if (
                not one.corrected
                and one.certainty == "certain"
                and self._may_correct_automatically(one)
            ):
                self._correct_finding_or_explain(one)

    def _may_correct_automatically(self, finding: RunningFinding) -> bool:
        """Return whether the settings allow that a finding is corrected without a request.

        A finding whose correction a person has undone is not corrected again.
        """
        conversions = finding.conversions
        if not conversions or self._undone & conversions.keys():
            return False
        needed = {finding.kind}
        configs = {one.id: one for one in self._controller.wiring.channels}
        for id_, (scale, offset) in conversions.items():
            own = configs[id_]
            if not np.isclose(abs(scale), abs(own.scale)):
                needed.add("scale")
            if scale * own.scale < 0:
                needed.add("sign")
            if not np.isclose(offset, own.offset):
                needed.add("offset")
        return needed <= self._corrects

    def _correct_finding_or_explain(self, finding: RunningFinding) -> str:
        """Correct a finding from the next tick on.

        Returns:
            "" if it was corrected, else the reason why it was not.
        """
        configs = {one.id: one for one in self._controller.wiring.channels}
        before = {id_: (configs[id_].scale, configs[id_].offset) for id_ in finding.conversions}
        try:
            self._correct(finding.conversions)
        except ValueError as error:
            self._logger.error(f"doctor: not corrected: {error}")
            return str(error)
        self._originals = {**before, **self._originals}
        finding.corrected = True
        self.findings.sort(key=lambda one: one.corrected)
        self._logger.warning(
            f"doctor: corrected while the node runs: {finding.member_names}: {finding.correction};"
            " the wiring file is unchanged (service undo_corrections: back to the file)"
        )
        return ""

    def _withdraw_outdated_findings(self) -> None:
        """Drop findings that are not corrected, if readings have been probable for 10 s."""
        now_s = time.monotonic()
        if not self._clear_since_s:
            self._clear_since_s = now_s
        elif now_s - self._clear_since_s >= CLEAR_S:
            left = [one for one in self.findings if one.corrected]
            if len(left) < len(self.findings):
                self._logger.info("doctor: the readings are probable again")
            self.findings, self._candidates = left, {}


def _list_rewired_entries(wiring: Wiring, wiring_before: Wiring) -> set[str]:
    """Return the ids of the channel entries that read another topic, source or field than before.

    Args:
        wiring: The rewired wiring.
        wiring_before: The wiring before the rewiring.
    """
    new, old = (
        {
            one.id: (one.field, one.source, each.find_source(one.source).topic)
            for one in each.channels
        }
        for each in (wiring, wiring_before)
    )
    return {id_ for id_, read in new.items() if old.get(id_) != read}


def _convert_lists_to_tuples(finding: dict[str, Any]) -> dict[str, Any]:
    """Return a finding from JSON, with tuples instead of lists in its members and conversions."""
    return {
        **finding,
        "members": tuple(finding["members"]),
        "conversions": {id_: tuple(pair) for id_, pair in finding["conversions"].items()},
    }
