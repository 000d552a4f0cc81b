"""What the log says of a running loop: one line for each change, nothing twice.

Right after the start what has not come yet is no loss: it is logged once START_S have passed. What
changes again and again is logged LINES times in WINDOW_S, and then counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rclpy.impl.rcutils_logger import RcutilsLogger

from an_control.controller import Controller
from an_control.wiring import Notice, Readings

START_S = 5.0
"""How long the first messages of the sources may take before the log says that they are missing:
a node that misses DDS's first announcements hears the next ones after 3 s."""
LINES, WINDOW_S = 6, 10.0
NAMES = "names of channels"
"""The subject of lines about channels that are not the model's."""


class Throttle:
    """Lets LINES lines of each subject through in WINDOW_S, and counts the others."""

    def __init__(self) -> None:
        self._until_s: dict[str, float] = {}
        self._lines: Counter[str] = Counter()

    def lets(self, subject: str, now_s: float) -> bool:
        """Whether a line of the subject may be logged now."""
        if now_s >= self._until_s.get(subject, 0.0):
            self._until_s[subject] = now_s + WINDOW_S
        self._lines[subject] += 1
        return self._lines[subject] <= LINES

    def ended(self, now_s: float) -> Iterator[tuple[str, int]]:
        """The subjects whose window has ended, and how many of their lines were left out."""
        for subject, until_s in tuple(self._until_s.items()):
            if now_s >= until_s:
                del self._until_s[subject]
                yield subject, max(0, self._lines.pop(subject) - LINES)


class EventLog:
    """Tells what changed since the last tick.

    Args:
        logger: of the node.
        controller: whose sources and commands are reported.
    """

    def __init__(self, logger: RcutilsLogger, controller: Controller) -> None:
        self._logger, self._controller = logger, controller
        self._named: tuple[object, object] = (None, None)
        self._noted: tuple[str, ...] = ()
        self.begin(0.0)
        self._log_names(0.0)

    def begin(self, now_s: float) -> None:
        """The loop starts to act now, on the steady clock."""
        self._controller.table.notice_anew()
        self._throttle = Throttle()
        self._patient_until_s = now_s + START_S
        self._waiting: dict[str, Notice] = {}
        self._acted = self._said_safe = False

    def log(self, readings: Readings, now_s: float, *, shadow: bool) -> None:
        """Log what a tick changed."""
        for subject, count in self._throttle.ended(now_s):
            if count:
                self._log_left_out(subject, count)
        self._log_names(now_s)
        for notice in self._controller.table.notices():
            self._log_source(notice, now_s)
        if self._waiting and now_s >= self._patient_until_s:
            for notice in self._waiting.values():
                self._logger.warning(str(notice))
            self._waiting.clear()
        reason = self._controller.safe_reason
        if reason and not self._said_safe and (self._acted or now_s >= self._patient_until_s):
            if self._throttle.lets("", now_s):
                self._logger.warning(f"safe command: {reason}")
            self._said_safe = True
        elif not reason and (not self._acted or self._said_safe):
            if self._throttle.lets("", now_s):
                self._log_acting(readings, shadow)
            self._acted, self._said_safe = True, False

    def _log_names(self, now_s: float) -> None:
        """How the names of wiring and model differ, where one of them is another than before."""
        named = self._controller.table.ids, self._controller.policy
        if named[0] is self._named[0] and named[1] is self._named[1]:
            return
        self._named, before = named, self._noted
        self._noted = self._controller.name_notes()
        for note in self._noted:
            if note not in before and self._throttle.lets(NAMES, now_s):
                self._logger.warning(note)

    def _log_source(self, notice: Notice, now_s: float) -> None:
        name = notice.source
        if notice.kind == "lost" and notice.never and now_s < self._patient_until_s:
            self._waiting[name] = notice
        elif notice.kind == "recovered" and not notice.channels and name in self._waiting:
            del self._waiting[name]
        elif not self._throttle.lets(name, now_s):
            return
        elif notice.kind == "lost":
            self._logger.warning(str(notice))
        else:
            self._logger.info(str(notice))

    def _log_acting(self, readings: Readings, shadow: bool) -> None:
        present = f"{len(readings.ids)} of {readings.expected} channels"
        rate = f"{1.0 / self._controller.step_s:.1f} Hz"
        how = "proposing (shadow)" if shadow else "acting"
        self._logger.info(f"{how}{' again' if self._acted else ''}: {present}, {rate}")

    def _log_left_out(self, subject: str, count: int) -> None:
        """How often a subject changed besides what was logged, and how it is now."""
        if subject == NAMES:
            self._logger.warning(f"channels: {count} more changes of ids in {WINDOW_S:g} s")
            return
        if not subject:
            now = self._controller.safe_reason or "acting"
            self._logger.warning(f"commands: {count} more changes in {WINDOW_S:g} s; now {now}")
            return
        for status in self._controller.table.status(0):
            if status.name == subject:
                self._logger.warning(
                    f"source {subject!r}: {count} more changes in {WINDOW_S:g} s; now"
                    f" {status.present} of {status.expected} channels present"
                )
