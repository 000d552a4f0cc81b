"""Announces the mistakes that the doctor finds while the robot runs, and lets them be corrected."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from rclpy.impl.rcutils_logger import RcutilsLogger

from an_control.control.controller import Controller, Decision
from an_control.policy.interface import Policy
from an_control.ros.doctor.corrections import Conversions, Corrections, RunningFinding
from an_control.ros.doctor.examinations import Examinations
from an_control.ros.doctor.process import DoctorProcess
from an_control.ros.doctor.watch import ReadingsWatch
from an_control.wiring import ChannelTable, Wiring

CLEAR_S = 10.0
"""Time without improbable readings after which a finding is withdrawn."""
ANNOUNCED_POINTS = 4
"""Points (see `POINTS`) with which a finding is announced."""


class RunningDoctor:
    """A finder of mistakes in the wiring of a running robot, such as a wrong sign or scale.

    It records ticks (control steps). If the readings look improbable to the policy's monitor, a
    separate process searches for the mistake, which is then logged and perhaps corrected.

    Args:
        logger: The node's logger.
        controller: The controller, whose monitor and readings are watched.
        correct: Function that changes scales and offsets of channels from the next tick on; see
            `Corrections`.
        corrects: The kinds of mistakes that are corrected without a request: some of "scale",
            "sign" and "offset".
        process: The doctor's process; None for a new one.
        clock: Function that returns the time in seconds, for pauses.
    """

    def __init__(
        self,
        logger: RcutilsLogger,
        controller: Controller,
        correct: Callable[[Conversions], None],
        corrects: Sequence[str] = (),
        process: DoctorProcess | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger, self._controller, self._clock = logger, controller, clock
        self._examinations = Examinations(controller, process, clock)
        self._corrections = Corrections(logger, controller, correct, corrects)
        self.findings: list[RunningFinding] = []
        """The announced mistakes, the most certain first; those that are corrected come last."""
        self._points: dict[tuple[str, tuple[str, ...]], int] = {}
        """The announcement weight of each finding of the last answer, with those of the answers
        before it."""
        self._blames_motor = False
        """Whether the newest answer names a mistake of a motor."""
        self._failure_logged = False
        self._watched: tuple[ChannelTable | None, Policy | None] = None, None
        self._watch: ReadingsWatch | None = None
        """The watch for the channel table and policy in `_watched`; None without a monitor."""
        self._clear_since_s = clock()
        """Time at which the readings were probable again and the doctor was idle; 0 until then."""

    @property
    def process(self) -> DoctorProcess:
        """The separate process that examines recorded ticks for mistakes in the wiring."""
        return self._examinations.process

    def set_mistake_kinds_to_correct(self, kinds: Sequence[str]) -> None:
        """Set which kinds of wiring mistakes are corrected without a request.

        Mistakes of these kinds that were already reported to the user are corrected at once. If
        `kinds` is empty, all corrections are undone.

        Args:
            kinds: Some of "scale", "sign" and "offset", or none.
        """
        if not kinds:
            self.undo_corrections_or_explain()
        self._corrections.set_automatic_correction_kinds(kinds)
        self._apply_automatic_corrections()

    def mark_gap_before_next_tick(self) -> None:
        """Mark a gap before the next recorded tick, because a new episode starts."""
        if self._watch is not None:
            self._watch.ticks.mark_gap_before_next_tick()

    def record_tick_and_check_readings(
        self,
        decision: Decision,
        previous_command: np.ndarray | None,
        now_ns: int,
        stamp_ns: int | None,
    ) -> None:
        """Record a tick; search for mistakes if readings were improbable for half a second.

        Call this after the tick's command was sent, so that it delays no command. If the search
        raises an exception, the robot continues, and the doctor searches no more.

        Args:
            decision: What was decided in the tick.
            previous_command: (A,) the newest command on the robot's topics when the tick began;
                None if it is unknown.
            now_ns: The time of the tick.
            stamp_ns: In lockstep with a simulator, the time stamp of the tick's readings; otherwise
                None.
        """
        controller = self._controller
        policy, table = controller.acting.policy, controller.table
        try:
            if table is not self._watched[0] or policy is not self._watched[1]:
                self._watched, self._watch = (table, policy), self._start_watch(table, policy)
            watch = self._watch
            if watch is None:
                return
            if decision.stepped:
                time_ns = now_ns if stamp_ns is None else stamp_ns
                watch.record_tick(decision.readings, previous_command, time_ns)
            else:
                watch.ticks.mark_gap_before_next_tick()
            if watch.check_readings_probability_if_due():
                self._handle_answer_or_send_request(watch)
        except Exception as error:
            self.process.fail(repr(error))
            self._log_failure_once()

    def _start_watch(self, table: ChannelTable, policy: Policy) -> ReadingsWatch | None:
        """Return a watch for a new channel table or policy; None if the policy has no monitor.

        What was found with the old ones but not announced is forgotten.
        """
        self._examinations.restart()
        self._points = {}
        if policy.monitor_report is None:
            return None
        actuators = len(self._controller.wiring.command.names)
        return ReadingsWatch(table, policy, actuators, self._controller.step_s)

    def _handle_answer_or_send_request(self, watch: ReadingsWatch) -> None:
        """Announce what the doctor answers, ask it if that is due, or withdraw outdated findings.

        If the doctor's process has failed, this is logged once.
        """
        if watch.are_readings_improbable:
            self._clear_since_s = 0.0
        examinations = self._examinations
        if examinations.process.failure:
            self._log_failure_once()
        elif (answer := examinations.pop_answer()) is not None:
            self._announce_agreed_findings(
                [RunningFinding(**_convert_lists_to_tuples(one)) for one in answer]
            )
        elif watch.have_readings_long_been_improbable:
            examinations.send_request_if_due(watch.ticks)
        if not (watch.are_readings_improbable or examinations.process.is_busy):
            self._withdraw_outdated_findings()

    def _log_failure_once(self) -> None:
        """Log why the doctor is off, unless this was logged before."""
        if not self._failure_logged:
            self._failure_logged = True
            self._logger.warning(
                "the wiring doctor is off until the node is configured again:"
                f" {self.process.failure}"
            )

    def apply_corrections_or_explain(self) -> str:
        """Correct all reported wiring mistakes in scale, sign and offset, on request of a person.

        Returns:
            "" if all were corrected, else the reason why one of them was not.
        """
        wanted = [one for one in self.findings if one.conversions and not one.corrected]
        if not wanted:
            return "the doctor has announced nothing that can be corrected while the robot runs"
        return self._correct_findings_or_explain(wanted)

    def undo_corrections_or_explain(self) -> str:
        """Give corrected channels the scale and offset of the wiring file again.

        Returns:
            "" if all corrections were undone, else the reason why none was.
        """
        reason = self._corrections.undo_all_or_explain_failure()
        if not reason:
            for one in self.findings:
                one.corrected = False
        return reason

    def drop_corrections_of_rewired_channels(self, wiring: Wiring, wiring_before: Wiring) -> Wiring:
        """Return a copy of a wiring without the corrections of channels that were rewired.

        Args:
            wiring: The wiring after the rewiring, with corrected scales and offsets.
            wiring_before: The wiring before the rewiring. A channel counts as rewired if it now
                reads another topic or field.
        """
        rewired = _list_rewired_entries(wiring, wiring_before)
        return self._corrections.restore_original_conversions(wiring, rewired)

    def drop_findings_of_rewired_channels(self, wiring: Wiring, wiring_before: Wiring) -> None:
        """Forget the findings and corrections of channels that have just been rewired.

        Args:
            wiring: The rewired wiring.
            wiring_before: The wiring before the rewiring.
        """
        rewired = _list_rewired_entries(wiring, wiring_before)
        self._corrections.forget_corrections_of_channels(rewired)
        self.findings = [
            one for one in self.findings if not rewired & {*one.conversions, *one.members}
        ]

    def drop_all_findings(self) -> None:
        """Forget all findings and corrections, because the wiring file was read again."""
        self.findings = []
        self._corrections.forget_all_corrections()

    def close(self) -> None:
        """End the doctor's process."""
        self.process.close()

    def make_diagnostics(self) -> tuple[bool, str, dict[str, Any]]:
        """Return the state of the doctor and its findings for the diagnostics.

        Returns:
            Three values: whether all is well (the doctor runs and has found nothing), a description
            in words, and further values of all findings by name.
        """
        file = self._controller.wiring.file
        if self.process.failure:
            text = f"the doctor is off: {self.process.failure}"
        elif self.process.is_busy:
            text = "examines the wiring, because the readings are improbable"
        else:
            text = "nothing found"
        if self.findings:
            first, more = self.findings[0], len(self.findings) - 1
            done = "corrected while the node runs: " if first.corrected else ""
            text = f"{done}{first.problem_sentence}; {first.describe_change(file)}"
            text += f"; and {more} more" if more else ""
        values: dict[str, Any] = {"file": file, "findings": len(self.findings)}
        for number, one in enumerate(self.findings, 1):
            state = "yes" if one.corrected else "no" if one.conversions else "by hand only"
            values |= {
                f"{number} what": one.short_member_list,
                f"{number} is wrong": one.text,
                f"{number} how sure": one.certainty_with_log_odds,
                f"{number} would become": one.correction,
                f"{number} change": one.describe_change(file),
                f"{number} corrected": state,
            }
        return not (self.findings or self.process.failure), text, values

    def _announce_agreed_findings(self, found: Sequence[RunningFinding]) -> None:
        """Announce the findings that successive answers have, up to the newest one.

        Two answers suffice if they are at least very likely, and four if they are only likely.

        Args:
            found: The findings of the newest answer.
        """
        before = self._points
        self._points = {
            one.key: before.get(one.key, 0) + one.announcement_weight
            for one in found
            if one.announcement_weight
        }
        agreed = [one for one in found if self._points.get(one.key, 0) >= ANNOUNCED_POINTS]
        self._blames_motor = any(one.kind.startswith("motor") for one in found)
        self._examinations.set_pause_before_next_request(found=bool(self._points))
        known = {one.key for one in self.findings if not one.corrected}
        corrected = [one for one in self.findings if one.corrected]
        new = [one for one in agreed if one.key not in known]
        if new:
            self.findings = [*agreed, *corrected]
            file = self._controller.wiring.file
            for one in new:
                self._logger.warning(
                    f"doctor: {one.problem_sentence}, {one.certainty_with_log_odds}:"
                    f" {one.describe_change(file)}"
                )
        self._apply_automatic_corrections()

    def _apply_automatic_corrections(self) -> None:
        """Correct the announced mistakes that may be corrected without a request.

        Only what the newest answer names again is corrected, and nothing while that answer also
        names a mistake of a motor, because the effects of that may look like a sensor's mistake.
        """
        if not self._blames_motor:
            may_correct = self._corrections.is_automatic_correction_allowed
            for one in self.findings:
                if not one.corrected and one.key in self._points and may_correct(one):
                    self._correct_findings_or_explain([one])

    def _correct_findings_or_explain(self, findings: Sequence[RunningFinding]) -> str:
        """Correct findings from the next tick on.

        Returns:
            "" if all were corrected, else the reason why one of them was not.
        """
        reason = ""
        for one in findings:
            if reason := self._corrections.correct_finding_or_explain_failure(one):
                break
        self.findings = sorted(self.findings, key=lambda one: one.corrected)
        return reason

    def _withdraw_outdated_findings(self) -> None:
        """Forget the findings that are not corrected, if readings have been probable for 10 s."""
        now_s = self._clock()
        if not self._clear_since_s:
            self._clear_since_s = now_s
        elif now_s - self._clear_since_s >= CLEAR_S:
            left = [one for one in self.findings if one.corrected]
            if len(left) < len(self.findings):
                self._logger.info("doctor: the readings are probable again")
            self.findings, self._points, self._blames_motor = left, {}, False


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
