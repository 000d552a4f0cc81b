"""What the log says of a running loop: one line for each change, nothing twice.

Right after the start what has not come yet is no loss: it is told once START_S have passed.
"""

from __future__ import annotations

from rclpy.impl.rcutils_logger import RcutilsLogger

from an_control.ros.controller import Controller
from an_control.wiring import Notice, Readings

START_S = 1.0
"""How long the first messages of the sources may take without a word."""


class EventLog:
    """Tells what changed since the last tick.

    Args:
        logger: of the node.
        controller: whose sources and commands are told of.
    """

    def __init__(self, logger: RcutilsLogger, controller: Controller) -> None:
        self._logger, self._controller = logger, controller
        self.begin(0.0)

    def begin(self, now_s: float) -> None:
        """The loop starts to act now, on the steady clock."""
        self._controller.table.notice_anew()
        self._patient_until_s = now_s + START_S
        self._waiting: dict[str, Notice] = {}
        self._acted = self._said_safe = False

    def tell(self, readings: Readings, now_s: float, *, shadow: bool) -> None:
        """Log what a tick changed."""
        for notice in self._controller.table.notices():
            self._tell_source(notice, now_s)
        if self._waiting and now_s >= self._patient_until_s:
            for notice in self._waiting.values():
                self._logger.warning(str(notice))
            self._waiting.clear()
        reason = self._controller.safe_reason
        if reason and not self._said_safe and (self._acted or now_s >= self._patient_until_s):
            self._logger.warning(f"safe command: {reason}")
            self._said_safe = True
        elif not reason and (not self._acted or self._said_safe):
            self._tell_acting(readings, shadow)

    def _tell_source(self, notice: Notice, now_s: float) -> None:
        name = notice.source
        if notice.kind == "lost" and notice.never and now_s < self._patient_until_s:
            self._waiting[name] = notice
        elif notice.kind == "recovered" and not notice.channels and name in self._waiting:
            del self._waiting[name]
        elif notice.kind == "lost":
            self._logger.warning(str(notice))
        else:
            self._logger.info(str(notice))

    def _tell_acting(self, readings: Readings, shadow: bool) -> None:
        present = f"{len(readings.ids)} of {readings.expected} channels"
        rate = f"{1.0 / self._controller.step_s:.1f} Hz"
        how = "proposing (shadow)" if shadow else "acting"
        self._logger.info(f"{how}{' again' if self._acted else ''}: {present}, {rate}")
        self._acted, self._said_safe = True, False
