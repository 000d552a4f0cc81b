"""The verbs that train: learn, train, train-teacher, distill, train-monitor, record-excitation."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from an_control.cli.common import (
    InputError,
    OutputFile,
    OutputFolder,
    WorkError,
    describe_problem_with_writing_file,
    require_packages,
    write_json,
)
from an_control.cli.help import add_help_texts, append_environment_attributes_help
from an_control.cli.terminal import (
    PartBars,
    ProgressLine,
    RunAtTerminal,
    append_progress_and_metrics_help,
)
from an_control.learning.api.evolution import EvolveOptions, evolve
from an_control.learning.api.monitor import MonitorOptions, train_monitor
from an_control.learning.api.parts import PolicyParts
from an_control.learning.api.pipeline import PARTS, LearnOptions, learn
from an_control.learning.api.student import DistillOptions, distill
from an_control.learning.api.teacher import TeacherOptions, train_teacher
from an_control.learning.command_line import format_command
from an_control.learning.excitation import ExcitationOptions, record_excitation
from an_control.learning.runs.progress import RunProgress, RunStoppedError
from an_control.monitor.excitation import ChannelOrderFinder, write_excitation
from an_control.policy import read_model
from an_control.policy.onnx_file import SUFFIX, get_monitor_path, has_onnx_suffix
from an_control.policy.onnx_layout import get_policy_yaml_name
from an_control.system.environment_output import BrokenEnvironmentError
from an_control.system.files import WriteError
from an_control.system.interrupts import INTERRUPTED

PartOptions = Annotated[
    PolicyParts, tyro.conf.arg(name="", constructor=add_help_texts(PolicyParts))
]


@dataclass(frozen=True)
class DistillCommand(DistillOptions):
    """Train a permutation-invariant student to imitate a teacher's actions (DAgger).

    The same command continues a stopped run.
    """

    task: tyro.conf.Positional[str]
    out: OutputFolder
    parts: PartOptions = field(default_factory=PolicyParts)
    json: OutputFile | None = None
    """Also write the metrics of each round here as JSON."""

    def run(self) -> int:
        """Train the student, print the model file's path and return the exit status."""
        require_packages("train", "torch")
        if self.bag:
            require_packages("record", "mcap")
        with RunAtTerminal(ProgressLine(format_command(self, "distill"))) as terminal:
            result = distill(self, terminal.report_progress)
        print(result.model)
        made = {"task": self.task, "seed": self.seed, "rounds": result.metrics}
        write_json(self.json, {**made, "model": str(result.model)})
        return 0


DistillCommand.__doc__ = append_environment_attributes_help(
    append_progress_and_metrics_help(
        DistillCommand.__doc__, "return", "validation", "undone", "failed"
    )
)


@dataclass(frozen=True)
class TrainCommand(EvolveOptions):
    """Search for a policy with a high return by CMA-ES or PGPE.

    The same command continues a stopped run.
    """

    task: tyro.conf.Positional[str]
    out: OutputFolder
    parts: PartOptions = field(default_factory=PolicyParts)
    json: OutputFile | None = None
    """Also write the result here as JSON."""

    def run(self) -> int:
        """Search for a policy, print its evaluation and model file, and return the exit status."""
        require_packages("train", "gymnasium", "cma", "numba")
        with RunAtTerminal(ProgressLine(format_command(self, "train"))) as terminal:

            def show_progress_or_evaluation(progress: RunProgress) -> bool:
                """Show the progress or a finished evaluation; return False to stop the run."""
                if progress.unit != "evaluation":
                    return terminal.report_progress(progress)
                row = progress.figures
                share = row.get("success_share")
                more = "" if share is None else f"  success share {share}"
                more += f"  {row['failed']} episodes failed" if "failed" in row else ""
                print(f"{row['protocol']}: {row['mean']}, standard deviation {row['sd']}{more}")
                return True

            result = evolve(self, show_progress_or_evaluation)
        print(result.model)
        made = {"task": self.task, "seed": self.seed, "model": str(result.model)}
        figures = {"evaluations": result.evaluations, "metrics": result.metrics}
        write_json(self.json, {**made, **figures})
        return 0


TrainCommand.__doc__ = append_environment_attributes_help(
    append_progress_and_metrics_help(
        TrainCommand.__doc__, "best", "mean", "validation", "failed", "validation_failed", "note"
    )
)


@dataclass(frozen=True)
class TrainTeacherCommand(TeacherOptions):
    """Train a teacher by reinforcement learning (PPO, SAC, TD3 or TQC).

    A teacher is an MLP policy, which needs its channels in order; `an-control distill` then trains
    a permutation-invariant student that imitates it. If the task already has a teacher (ant), PPO
    starts from that one. The same command continues a stopped run, also with other limits (minutes,
    steps, score). A run also ends early if two things hold: its validation has not improved
    in the second half of the run so far, and not for a third of the limit.
    """

    task: tyro.conf.Positional[str]
    out: OutputFolder
    json: OutputFile | None = None
    """Also write the result here as JSON."""

    def run(self) -> int:
        """Train the teacher, print its evaluation and model file, and return the exit status."""
        require_packages("train", "torch", "gymnasium", "stable_baselines3", "sb3_contrib")
        with RunAtTerminal(ProgressLine(format_command(self, "train-teacher"))) as terminal:
            result = train_teacher(self, terminal.report_progress)
        print(f"ended: {result.end}")
        for row in result.evaluations:
            score = f"{row['mean']:.1f} +- {row['standard_error']:.1f}"
            print(f"{row['protocol']}: {score}, {row['episodes']} episodes")
        print(result.model)
        made = {"task": self.task, "seed": self.seed, "model": str(result.model)}
        evaluations = {"evaluations": result.evaluations, "iterations": result.metrics}
        write_json(self.json, {**made, **evaluations})
        return 0


TrainTeacherCommand.__doc__ = append_environment_attributes_help(
    append_progress_and_metrics_help(TrainTeacherCommand.__doc__, "return", "validation", "failed")
)


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


@dataclass(frozen=True)
class LearnCommand(LearnOptions):
    """Train a policy for any gymnasium environment in all steps, from the teacher to the scores.

    A teacher is trained by its return; a permutation-invariant student learns to imitate it; a
    monitor learns to detect rewired sensors; a table of scores and a model card are written. Each
    step is also a verb: train-teacher, distill, train-monitor, evaluate --table. The same command
    continues a run that was stopped or killed.
    """

    task: tyro.conf.Positional[str]
    out: OutputFolder
    json: OutputFile | None = None
    """Also write the table here as JSON."""

    def run(self) -> int:
        """Run all steps, print the table and the model file, and return the exit status."""
        require_packages("train", "torch", "gymnasium")
        try:
            with PartBars(PARTS) as bars, RunAtTerminal(bars) as terminal:
                result = learn(self, terminal.report_progress)
        except BrokenEnvironmentError as failure:
            raise BrokenEnvironmentError(f"{failure}{self._existing_models_text}") from failure
        except (InputError, WorkError) as error:
            raise InputError(f"{error}{self._existing_models_text}") from error
        except (KeyboardInterrupt, RunStoppedError):
            with suppress(OSError):  # only an empty folder is removed
                self.out.rmdir()
            print(f"stopped; to continue: {format_command(self, 'learn')}")
            return INTERRUPTED
        print("\n".join([result.table, *result.notes, str(result.model)]))
        about = {"task": self.task, "seed": self.seed, "model": str(result.model)}
        write_json(self.json, {**about, "rows": result.rows, "notes": result.notes})
        return 0

    @property
    def _existing_models_text(self) -> str:
        """The end of an error text: the model files that exist already; "" if none does."""
        steps = [self.out / name / "model.safetensors" for name in ("teacher", "student")]
        made = [str(path) for path in (*steps, self.out / "model.safetensors") if path.exists()]
        return f"; kept: {', '.join(made)}" if made else ""


LearnCommand.__doc__ = append_environment_attributes_help(
    append_progress_and_metrics_help(
        LearnCommand.__doc__, "return", "validation", "undone", "learns", "failed"
    )
)


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
