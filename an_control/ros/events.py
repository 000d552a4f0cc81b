"""What the log says of a running loop: one line for each change, nothing twice.

Before its first message a source is not lost: one line says what is waited for after WAIT_S, and a
warning names what has not come after START_S, at the start and where a rewiring adds a source. What
changes again and again is logged LINES times in WINDOW_S, and then counted; a source that is lost
FLAPS times in it gets one line that says why.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

from rclpy.impl.rcutils_logger import RcutilsLogger

from an_control.control.action_order import listed
from an_control.control.controller import Controller
from an_control.wiring import Notice, Readings

WAIT_S, START_S = 1.0, 5.0
"""How long the first messages of the sources may take before the log says that they are waited for,
and that they are missing: a node that misses DDS's first announcements hears the next ones after
3 s."""
FLAPS = 3
LINES, WINDOW_S = 6, 10.0
NAMES = "names of channels"
"""The subject of lines about channels that are not the model's."""
MONITOR = "monitor"
"""The subject of lines about signals that the monitor moved."""


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
        self._named: tuple[object, ...] = (None, None, None)
        self._noted: tuple[str, ...] = ()
        self._moved: dict[str, str] = {}
        """The channel whose signal each slot carries, where it is not its own; as it was logged."""
        self._misfit = False
        self.begin(0.0)
        self._log_names(0.0)

    def begin(self, now_s: float) -> None:
        """The loop starts to act now, on the steady clock."""
        self._controller.table.notice_anew()
        self._throttle = Throttle()
        self._begin_s, self._patient_until_s = now_s, now_s + START_S
        self._waiting: dict[str, tuple[float, Notice]] = {}
        """Sources without a message yet, with when they began to be waited for."""
        self._said_waiting: frozenset[str] = frozenset()
        self._losses: dict[str, deque[tuple[float, int]]] = {}
        """When each source was lost, and how many messages it had sent by then."""
        self._flapping_until_s: dict[str, float] = {}
        self._acted = False
        self._logged_cause = ""
        """The cause of the safe command that was logged last; empty once the policy acts."""

    def log(self, readings: Readings, now_s: float, *, shadow: bool) -> None:
        """Log what a tick changed."""
        for subject, count in self._throttle.ended(now_s):
            if count:
                self._log_left_out(subject, count)
        self._log_names(now_s)
        for notice in self._controller.table.notices():
            self._log_source(notice, now_s)
        if self._waiting:
            self._log_waiting(now_s)
        cause = self._controller.safe_cause
        if cause:
            if cause != self._logged_cause and (self._acted or now_s >= self._patient_until_s):
                if self._throttle.lets("", now_s):
                    self._logger.warning(f"safe command: {self._controller.safe_reason}")
                self._logged_cause = cause
        elif not self._acted or self._logged_cause:
            if self._throttle.lets("", now_s):
                self._log_acting(readings, shadow)
            self._acted, self._logged_cause = True, ""
        self._log_monitor(now_s)

    def _log_monitor(self, now_s: float) -> None:
        """Log each move that the monitor made, and that the robot does not fit its model, or does
        again."""
        report = self._controller.policy.monitor_report
        if report is None:
            return
        if bool(report.misfit) is not self._misfit:
            self._misfit = bool(report.misfit)
            if self._misfit and self._throttle.lets(MONITOR, now_s):
                self._logger.warning(
                    f"the monitor's model does not fit this robot: {report.misfit}; no further"
                    " signal is moved"
                )
        moved = report.moved
        if report.lost or moved == self._moved:
            return
        changed = {
            slot: moved.get(slot, slot)
            for slot in sorted({*moved, *self._moved})
            if moved.get(slot) != self._moved.get(slot)
        }
        self._moved = moved
        if self._throttle.lets(MONITOR, now_s):
            where = listed(
                f"{signal} is read where {'it' if signal == slot else slot} is wired"
                for slot, signal in changed.items()
            )
            self._logger.info(f"the monitor moved {len(changed)} signals: {where}")

    def _log_names(self, now_s: float) -> None:
        """How the names of wiring and model differ, where one of them is another than before."""
        controller = self._controller
        named = controller.table.ids, controller.policy, controller.wiring
        old, before = self._named, self._noted
        if named[0] is old[0] and named[1] is old[1] and named[2] is old[2]:
            return
        self._named = named
        self._noted = controller.name_notes()
        if warning := controller.monitor_warning():
            self._noted += (warning,)
        for note in self._noted:
            if note not in before and self._throttle.lets(NAMES, now_s):
                self._logger.warning(note)

    def _log_source(self, notice: Notice, now_s: float) -> None:
        name = notice.source
        if notice.kind == "lost" and notice.never and not notice.channels:
            self._waiting[name] = now_s, notice
        elif notice.kind == "recovered" and not notice.channels and name in self._waiting:
            del self._waiting[name]
        elif self._flaps(notice, now_s) or not self._throttle.lets(name, now_s):
            return
        elif notice.kind == "lost":
            self._logger.warning(str(notice))
        else:
            self._logger.info(str(notice))

    def _log_waiting(self, now_s: float) -> None:
        """Log what is waited for, and warn of what has been waited for too long."""
        late = {name for name, (then_s, _) in self._waiting.items() if now_s >= then_s + WAIT_S}
        if late - self._said_waiting:
            self._logger.info(f"waiting for {', '.join(sorted(late))}")
        self._said_waiting = frozenset(late)
        for name, (then_s, notice) in tuple(self._waiting.items()):
            if now_s >= then_s + START_S:
                self._logger.warning(str(notice))
                del self._waiting[name]

    def _flaps(self, notice: Notice, now_s: float) -> bool:
        """Return whether a source is lost again and again; log that once, instead of its losses."""
        name = notice.source
        if notice.channels:
            return False
        if now_s < self._flapping_until_s.get(name, 0.0):
            return True
        if notice.kind != "lost":
            return False
        losses = self._losses.setdefault(name, deque(maxlen=FLAPS))
        losses.append((now_s, self._messages(name)))
        (then_s, before), (_, messages) = losses[0], losses[-1]
        if len(losses) < FLAPS or not 0.0 < now_s - then_s < WINDOW_S:
            return False
        self._flapping_until_s[name] = now_s + WINDOW_S
        max_age_s = self._controller.wiring.source(name).max_age_s
        self._logger.warning(
            f"source {name!r} was lost {FLAPS} times in {now_s - then_s:.1f} s:"
            f" {(messages - before) / (now_s - then_s):.3g} messages a second come, and its"
            f" max_age_s is {max_age_s:g}; raise it, or find out what delays the messages"
        )
        return True

    def _messages(self, source: str) -> int:
        statuses = self._controller.table.status(0)
        return next((one.messages for one in statuses if one.name == source), 0)

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
        if subject == MONITOR:
            self._logger.info(
                f"the monitor moved signals {count} more times in {WINDOW_S:g} s; now"
                f" {len(self._moved)} are not where they are wired"
            )
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
