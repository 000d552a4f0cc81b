"""The verb ``an-control record-excitation POLICY.onnx --amplitude A``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from an_control.cli.common import InputError, OutputFile, require_packages
from an_control.cli.terminal import ProgressLine, RunAtTerminal
from an_control.learning.excitation import ExcitationOptions, record_excitation
from an_control.learning.runs.progress import RunProgress
from an_control.monitor.excitation import ChannelOrderFinder, write_excitation
from an_control.policy import read_model
from an_control.policy.onnx_file import SUFFIX, has_onnx_suffix
from an_control.policy.onnx_layout import get_policy_yaml_name
from an_control.system.files import WriteError


@dataclass(frozen=True)
class RecordExcitationCommand(ExcitationOptions):
    """Record how a robot's sensors answer small motions, so that unknown sensors can be told apart.

    The motions are played in the simulator, where it is known which channel is which, or taken from
    the beginning of recorded episodes. A policy node that starts on a robot with channels in an
    unknown order first plays the same motions, compares the answers, and so finds the order. Only
    then does the policy act. This needs a monitor (an-control train-monitor).
    """

    model: tyro.conf.Positional[Path]
    out: OutputFile | None = None
    """The file to write; by default NAME.excitation.safetensors beside the policy."""

    def run(self) -> int:
        """Record the motions, write the file and return the exit status.

        The channels that the motions do not tell apart are printed.
        """
        if not self.bag:
            require_packages("sim", "gymnasium")
        if not has_onnx_suffix(self.model):
            raise InputError(
                f"{self.model}: must end in {SUFFIX} (an-control export MODEL --onnx POLICY.onnx)"
            )
        out = self.out or self.model.with_name(f"{self.model.stem}.excitation.safetensors")
        if out.suffix != ".safetensors":
            raise InputError(f"--out {out}: must end in .safetensors")
        model = read_model(self.model, monitor=False)
        with RunAtTerminal(ProgressLine(None)) as terminal:
            self.check_options()
            if not self.bag:
                terminal.report_progress(RunProgress("begin", unit="run", steps=self.runs))
            excitation = record_excitation(
                self, model, lambda done: self._show_played_runs(terminal, done)
            )
        try:
            write_excitation(out, excitation)
        except WriteError as error:
            raise InputError(f"--out {error}") from error
        for alike in ChannelOrderFinder(excitation).list_indistinguishable_channel_groups():
            print(f"not told apart, which the monitor must do later: {', '.join(alike)}")
        beside = Path(get_policy_yaml_name(str(self.model))).name
        print(f"{out}: name it in {beside}: excitation: {out.name}")
        return 0

    def _show_played_runs(self, terminal: RunAtTerminal, run_count: int) -> None:
        """Show how many runs of the motions have been played."""
        share = run_count / self.runs
        progress = RunProgress("step", unit="run", done=run_count, steps=self.runs, share=share)
        terminal.report_progress(progress)
