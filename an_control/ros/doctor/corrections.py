"""Findings of the running doctor, and the correction of channels without a change of the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from rclpy.impl.rcutils_logger import RcutilsLogger

from an_control.control.controller import Controller
from an_control.wiring import Wiring

POINTS = {"certain": 2, "very likely": 2, "likely": 1}
"""Points that a finding gets for its certainty in each of the successive answers that have it."""
SHOWN_LINES = 3
"""Maximum number of lines of the file in a log line."""

Conversions = Mapping[str, tuple[float, float]]
"""Scale and offset by the id of a channel's entry in the wiring."""


@dataclass
class RunningFinding:
    """A mistake in the wiring that was found while the robot runs.

    Args:
        kind: Kind of mistake, such as "sign".
        members: Ids of the channels, or names of the actuators, that are wired wrongly.
        text: What is wrong.
        correction: The new value in the wiring file, or advice if no change of the file can help.
        log_odds: Nats by which the readings are more likely with the correction than without it.
        certainty: "certain", "very likely" or "likely".
        alternatives: Other mistakes that explain the readings as well.
        lines: Lines of the wiring file that the correction changes: number, text and corrected
            text.
        conversions: The corrected scale and offset of each channel, by its id in the wiring file;
            empty if the mistake cannot be corrected while the node runs.
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
        """The kind and the channels or actuators, by which a repeated finding is recognised."""
        return self.kind, self.members

    @property
    def announcement_weight(self) -> int:
        """The points of this finding: 2; 1 if it is only "likely"; 0 if it has `alternatives`.

        A mistake that is found again and again is reported to the user once it has 4 points in all.
        """
        return 0 if self.alternatives else POINTS[self.certainty]

    @property
    def short_member_list(self) -> str:
        """The names of the wrongly wired channels or actuators; after four of them "and N more"."""
        more = len(self.members) - 4
        return ", ".join(self.members[:4]) + (f" and {more} more" if more > 0 else "")

    @property
    def problem_sentence(self) -> str:
        """The names of the channels or actuators, and what is wrong with them."""
        return f"{self.short_member_list} {self.text}"

    @property
    def certainty_with_log_odds(self) -> str:
        """The certainty of the finding as text, such as "certain (31 nats)".

        The number, `log_odds`, is left out if the readings are not more likely with the correction.
        This happens when a wrong motor has brought the robot into a state unknown from training.
        """
        nats = f" ({self.log_odds:.0f} nats)" if self.log_odds > 0.0 else ""
        return f"{self.certainty}{nats}"

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


class Corrections:
    """A maker of corrections to the scales and offsets of channels while the node runs.

    The wiring file is not changed, and all corrections can be undone.

    Args:
        logger: The node's logger.
        controller: The controller, whose wiring is corrected.
        correct: Function that changes scales and offsets of channels from the next tick on. Its
            argument maps the id of a channel's entry in the wiring to its new scale and offset. It
            raises ValueError if the change is not possible.
        kinds: The kinds of mistakes that are corrected without a request: some of "scale", "sign"
            and "offset".
    """

    def __init__(
        self,
        logger: RcutilsLogger,
        controller: Controller,
        correct: Callable[[Conversions], None],
        kinds: Sequence[str] = (),
    ) -> None:
        self._logger, self._controller, self._correct = logger, controller, correct
        self._automatic_kinds = frozenset(kinds)
        self._originals: dict[str, tuple[float, float]] = {}
        """Scale and offset in the wiring file of each corrected entry, by its id."""
        self._undone: set[str] = set()
        """Entries of the wiring whose correction was undone, so that it is not made again unasked.
        """

    def set_automatic_correction_kinds(self, kinds: Sequence[str]) -> None:
        """Set which kinds of wiring mistakes are corrected without a request from now on.

        Mistakes whose correction a person has undone may be corrected again after this call.

        Args:
            kinds: Some of "scale", "sign" and "offset", or none.
        """
        self._automatic_kinds = frozenset(kinds)
        self._undone.clear()

    def is_automatic_correction_allowed(self, finding: RunningFinding) -> bool:
        """Return whether the settings allow that a finding is corrected without a request.

        The finding must be certain and of an allowed kind, and a person must not have undone its
        correction before.
        """
        conversions = finding.conversions
        if finding.certainty != "certain" or not conversions or self._undone & conversions.keys():
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
        return needed <= self._automatic_kinds

    def correct_finding_or_explain_failure(self, finding: RunningFinding) -> str:
        """Correct the wiring mistake that a finding describes, from the next tick on.

        Returns:
            "" if it was corrected, else the reason why it was not.
        """
        configs = {one.id: one for one in self._controller.wiring.channels}
        before = {id_: (configs[id_].scale, configs[id_].offset) for id_ in finding.conversions}
        self._undone -= finding.conversions.keys()
        try:
            self._correct(finding.conversions)
        except ValueError as error:
            self._logger.error(f"doctor: not corrected: {error}")
            return str(error)
        self._originals = {**before, **self._originals}
        finding.corrected = True
        self._logger.warning(
            f"doctor: corrected while the node runs: {finding.short_member_list}:"
            f" {finding.correction}; the wiring file is unchanged"
            " (service undo_corrections: back to the file)"
        )
        return ""

    def undo_all_or_explain_failure(self) -> str:
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
        self._logger.warning(f"doctor: correction undone, the wiring file counts again: {names}")
        return ""

    def restore_original_conversions(self, wiring: Wiring, entries: set[str]) -> Wiring:
        """Return a copy of a wiring without the corrections of some channels.

        Args:
            wiring: The wiring with corrected scales and offsets.
            entries: Ids of the channels' entries in the wiring; uncorrected ones stay as they are.
        """
        return wiring.with_conversions(
            {id_: pair for id_, pair in self._originals.items() if id_ in entries}
        )

    def forget_corrections_of_channels(self, entries: set[str]) -> None:
        """Forget the corrections of some channels, because they have been rewired.

        Args:
            entries: Ids of the channels' entries in the wiring; uncorrected ones are ignored.
        """
        if dropped := entries & self._originals.keys():
            names = ", ".join(sorted(dropped))
            self._logger.info(f"doctor: correction dropped by the rewiring: {names}")
        self._originals = {id_: v for id_, v in self._originals.items() if id_ not in entries}

    def forget_all_corrections(self) -> None:
        """Forget all corrections, because the wiring file was read again."""
        self._originals.clear()
        self._undone.clear()
