"""The verb ``an-control train-monitor MODEL``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import tyro

from an_control.cli.common import (
    InputError,
    OutputFile,
    OutputFolder,
    describe_problem_with_writing_file,
    require_packages,
    write_json,
)
from an_control.cli.terminal import ProgressLine, RunAtTerminal, append_progress_and_metrics_help
from an_control.learning.api.monitor import MonitorOptions, train_monitor
from an_control.learning.command_line import format_command
from an_control.policy.onnx_file import get_monitor_path, has_onnx_suffix


@dataclass(frozen=True)
class TrainMonitorCommand(MonitorOptions):
    """Train the forward model of a model's identity monitor and write it into the model file.

    The forward model predicts each channel's next reading; with it the monitor detects that signals
    arrive in other channels than before. It is trained on episodes in which the model's policy
    acts, with random exploration added; this takes about ten minutes. The policy stays as it is. At
    the end the monitor is tested on new episodes, also on robots with slower sensors and other mass
    and friction. If it reports false rewirings, or finds less than half of the signals that were
    moved to other channels, the model file says so, and the monitor is off by default.
    """

    model: tyro.conf.Positional[Path]
    out: OutputFile | None = None
    folder: OutputFolder | None = None
    json: OutputFile | None = None
    """Also write the losses of the training here as JSON."""

    def run(self) -> int:
        """Train the monitor, print its validation and model file, and return the exit status."""
        require_packages("train", "torch", "gymnasium")
        if self.bag:
            require_packages("record", "mcap")
        written = get_monitor_path(self.model) if has_onnx_suffix(self.model) else self.model
        if self.out is None and (problem := describe_problem_with_writing_file(written)):
            raise InputError(f"{written}: {problem}")
        again = format_command(self, "train-monitor") if self.folder is not None else None
        with RunAtTerminal(ProgressLine(again)) as terminal:
            result = train_monitor(self, terminal.report_progress)
        made = {"model": str(result.model)}
        if result.validation is None:
            if self.bag:
                print(
                    "the monitor was not validated, as recordings contain no rewiring; with a"
                    f" simulator: an-control train-monitor {self.out or self.model} --validate"
                )
            print(result.model)
            how = {"taken": str(self.take)} if self.take else {"course": result.metrics}
            write_json(self.json, {**made, **how})
            return 0
        print(result.why_off or f"the monitor: {result.validation}")
        print(result.model)
        figures = {"course": result.metrics, "validation": asdict(result.validation)}
        write_json(self.json, {**made, "seed": self.seed, **figures})
        return 0


TrainMonitorCommand.__doc__ = append_progress_and_metrics_help(
    TrainMonitorCommand.__doc__, "learns"
)
