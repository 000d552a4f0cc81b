"""Lets the doctor's process examine the recorded ticks, again and again with pauses."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from an_control.control.controller import ROUNDING, Controller
from an_control.control.recent_ticks import RecentTicks, TickArrays
from an_control.ros.doctor.process import DoctorProcess

LEAST_TICKS = 80
"""Ticks that are recorded before the doctor is asked."""
PAUSE_S, LONGEST_PAUSE_S = 0.5, 60.0
"""Time between an answer and the next request. It doubles after an answer without a finding, up to
the longest."""


class Examinations:
    """A client of the wiring doctor, a process that finds wrong lines of the wiring.

    It sends recorded ticks (control steps) to the process, and pauses after each answer.

    Args:
        controller: The controller, whose wiring and model are examined.
        process: The doctor's process; None for a new one.
        clock: Function that returns the time in seconds, for the pauses.
    """

    def __init__(
        self,
        controller: Controller,
        process: DoctorProcess | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.process = DoctorProcess() if process is None else process
        self._controller, self._clock = controller, clock
        self.restart()

    def restart(self) -> None:
        """Allow a new examination at once, because the wiring or policy has changed.

        An answer that is still awaited is about the old wiring, and is dropped when it arrives.
        """
        self._pause_s, self._next_s = PAUSE_S, 0.0
        self._is_stale = self.process.is_busy
        """Whether the answer that is awaited is about an earlier wiring."""

    def send_request_if_due(self, ticks: RecentTicks) -> None:
        """Send the recorded ticks to the process that looks for mistakes in the wiring.

        Do nothing while that process is busy, during a pause, or if there are fewer than 80 ticks.
        """
        if self.process.is_busy or len(ticks) < LEAST_TICKS or self._clock() < self._next_s:
            return
        self.send_request(ticks)

    def send_request(self, ticks: RecentTicks) -> None:
        """Send the recorded ticks to the process that looks for wiring mistakes, even in a pause.

        Fetch the answer to the previous request before calling this.
        """
        self.process.send_request(self._make_request(ticks.copy_arrays_oldest_first()))

    def pop_answer(self) -> list[dict[str, Any]] | None:
        """Return the mistakes that were found in the wiring, once the answer has come, else None.

        The answer is a list of findings as mappings. An answer about an earlier wiring is dropped.
        With each answer a pause begins; `send_request_if_due` sends nothing before the pause ends.
        """
        answer = self.process.pop_answer()
        if answer is None:
            return None
        self._next_s = self._clock() + self._pause_s
        is_stale, self._is_stale = self._is_stale, False
        return None if is_stale else answer

    def set_pause_before_next_request(self, *, found: bool) -> None:
        """Set how long the pause after the next answer is, in which no request is sent.

        The pause after the present answer, which `pop_answer` started, is not changed.

        Args:
            found: Whether the present answer has a finding. If so, the next pause is 0.5 s, else
                twice the length that was set before, at most 60 s.
        """
        self._pause_s = PAUSE_S if found else min(2.0 * self._pause_s, LONGEST_PAUSE_S)

    def _make_request(
        self, arrays: TickArrays
    ) -> Callable[[], tuple[dict[str, Any], dict[str, np.ndarray]]]:
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
