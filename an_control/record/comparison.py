"""Compare replayed commands with the recorded ones, for a table and a plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from an_control.record.layout import CommandKind
from an_control.record.replayed_session import ReplayedCommand

BINS = 1000
"""Minimum number of points of time in a plot of a long recording; the maximum is twice as many."""


class Comparison:
    """Statistics of how recorded commands differ from the same commands computed again.

    Its memory does not grow with the length of the recording.

    Attributes:
        commands: Number of compared commands.
        first_tick: For each of the A actuators, the number of the first tick at which its command
            differs, or -1 if there is none; None before the first command.
    """

    def __init__(self) -> None:
        self.commands = 0
        self.first_tick: np.ndarray | None = None
        self._sum = self._largest = self._different = np.zeros(0)
        self._course: list[np.ndarray] = []
        self._bin = np.zeros(0)
        self._in_bin, self._bin_size = 0, 1

    def add_command(self, command: ReplayedCommand) -> None:
        """Add the next command's difference to the statistics.

        Args:
            command: The command as recorded and as replayed (computed again). A command that does
                not come from the policy is ignored.
        """
        if command.kind != CommandKind.POLICY:
            return
        away = np.abs(command.replayed - command.recorded)
        unsent = np.isnan(command.replayed) & np.isnan(command.recorded)
        away = np.where(unsent, 0.0, np.where(np.isnan(away), np.inf, away))
        if self.first_tick is None:
            self.first_tick = np.full(len(away), -1)
            self._sum, self._largest = np.zeros(len(away)), np.zeros(len(away))
            self._different, self._bin = np.zeros(len(away)), np.zeros(len(away))
        self.commands += 1
        differs = command.replayed.view(np.int64) != command.recorded.view(np.int64)
        self.first_tick[(self.first_tick < 0) & differs] = command.tick
        self._sum += away
        self._largest = np.maximum(self._largest, away)
        self._different += differs
        self._bin = np.maximum(self._bin, away)
        self._in_bin += 1
        if self._in_bin == self._bin_size:
            self._course.append(self._bin)
            self._bin, self._in_bin = np.zeros(len(away)), 0
            if len(self._course) == 2 * BINS:
                pairs = zip(self._course[::2], self._course[1::2], strict=True)
                self._course = [np.maximum(one, other) for one, other in pairs]
                self._bin_size *= 2

    def summarise_differences_by_actuator(self, actuators: tuple[str, ...]) -> list[dict[str, Any]]:
        """Return one dict for each actuator, which summarises the differences of its commands.

        A dict has the number and the share of commands that differ, the first tick with a
        difference, and the mean and the largest difference.

        Args:
            actuators: Names of the actuators (A).
        """
        if self.first_tick is None:
            return []
        return [
            {
                "actuator": name,
                "different": int(self._different[place]),
                "share": float(self._different[place] / self.commands),
                "first_tick": int(self.first_tick[place]),
                "mean": float(self._sum[place] / self.commands),
                "largest": float(self._largest[place]),
            }
            for place, name in enumerate(actuators)
        ]

    def plot_differences(self, path: Path, actuators: tuple[str, ...]) -> None:
        """Plot how much replayed and recorded commands differ, with one line for each actuator.

        The horizontal axis is the number of the command. In a long recording a point shows the
        largest difference of several successive commands.

        Args:
            path: Path of the picture to write.
            actuators: Names of the actuators (A).
        """
        from matplotlib.figure import Figure  # pyplot would choose a backend for the whole process

        figure = Figure(figsize=(9, 4))
        axes = figure.subplots()
        course = np.array(self._course).reshape(-1, len(actuators))
        ticks = np.arange(len(course)) * self._bin_size
        for place, name in enumerate(actuators):
            axes.plot(ticks, course[:, place], label=name, linewidth=0.8)
        axes.set_xlabel("command")
        axes.set_ylabel("replayed - recorded, largest")
        axes.legend(fontsize="small", ncols=2)
        figure.tight_layout()
        figure.savefig(path, dpi=120)
