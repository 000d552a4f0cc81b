"""The verb ``an-control evaluate MODEL``, which measures returns under disturbances."""

from __future__ import annotations

import sys
from dataclasses import Field, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import tyro

from an_control.cli.common import (
    InputError,
    ModelFile,
    OutputFile,
    OutputFolder,
    format_flag,
    require_packages,
    write_json,
)
from an_control.cli.disturbance import Options, make_disturbance_options
from an_control.cli.run import make_option_for_node_parameter
from an_control.learning.api.evaluation import (
    SHARED_OPTIONS,
    EvaluateOptions,
    EvaluateResult,
    check_markdown_table_marks,
    evaluate,
)
from an_control.policy import Monitor
from an_control.system.files import WriteError

if TYPE_CHECKING:
    from an_control.learning.rollout.episode import PlayedEpisode
    from an_control.learning.rollout.evaluation_protocol import EvaluationProtocol
    from an_control.learning.runs.progress import RunProgress
RESHUFFLE_STEPS = 200
"""Default number of steps between two shuffles of the channels, for ``--identification``."""
USUAL = make_disturbance_options(shuffle="reset")
"""Disturbance options that apply if the user gives none."""


@dataclass(frozen=True)
class EvaluateCommand:
    """Play episodes without ROS, and measure a model's return while its readings are disturbed.

    The options describe one protocol: a set of disturbances. --table compares several protocols,
    each given as words with commas between them, such as 100,announced,delay=1. The words are:
    - reset, K, reset+K or none, as the first word: shuffle at the reset, every K steps, both, never
    - announced: the policy is informed of each shuffle
    - reset or zeroed, as a later word: what shuffles do to the neurons' state, as with --memory
    - until=STEP: no shuffle after this step
    - monitor=off, monitor=reset or monitor=match: what to do about unannounced rewiring
    - without=attention, without=queries or without=action: remove this part of the policy
    - background=NAME: the background of the image (CarRacing)
    - noise=N: add N channels of noise, as with --noise-channels
    - other disturbance options without dashes: missing=0.1, delay=0..2 (drawn for each episode)

    The same seed gives the same starts and shuffles under every protocol.
    """

    model: tyro.conf.Positional[ModelFile]
    """A .safetensors model file, an .onnx file of another tool, or the name of a shipped model."""
    task: str | None = None
    """A task known by name, or a gymnasium id, also as module:id; by default the model's."""
    episodes: int = 100
    """Number of episodes."""
    seed: int = 1
    """Seed of starts and disturbances; not one that training used."""
    disturbance: Options = USUAL
    """The disturbances. By default the readings are shuffled at each reset, also for a model that
    needs them in order; for such a model a note says so."""
    memory: Literal["kept", "reset", "zeroed"] = "kept"
    """What happens to the neurons' state: kept (in its input slot when signals are shuffled, or
    with its channel if --announce tells the policy), reset (at each shuffle during an episode),
    zeroed (at every step)."""
    until: int | None = None
    """The step after which signals are not shuffled any more."""
    normalise: bool = False
    """Divide the attention's sums by the number of channels that are present, relative to the
    task's number, whatever the model file says; added channels then do not make these sums larger.
    """
    monitor: Monitor | None = make_option_for_node_parameter("monitor")
    recovery: float | None = make_option_for_node_parameter("recovery")
    success: float | None = None
    """A return above this is a success; by default the task's own."""
    table: tuple[str, ...] = ()
    """Protocols to compare, the others with the first; options that describe one protocol are then
    refused."""
    identification: bool = False
    """Measure, instead of a protocol, how many steps the neurons need to identify their channels
    after each reshuffle (--shuffle reset+K, reset+200 by default), and the return with each channel
    frozen in turn. The monitor is off; the model must have softmax attention. --markdown writes the
    tables `identification` and `frozen`, --plots the picture identification.png."""
    markdown: OutputFile | None = None
    """Write the table here: between `<!-- table TITLE -->` and `<!-- end of table -->`, or into a
    new file."""
    title: str = "results"
    """The table's TITLE."""
    plots: OutputFolder | None = None
    """Write recovery curves, attention maps and keys into this folder."""
    json: OutputFile | None = None
    """Also write the result here as JSON."""
    state: OutputFile | None = None
    """Keep each finished row of --table here until the table is complete: the same command then
    plays only the rows that a stopped one lacks."""

    def run(self) -> int:
        """Evaluate the model, print the results and return the exit status."""
        require_packages("sim", "gymnasium")
        if self.plots is not None:
            require_packages("train", "matplotlib")
        if self.state is not None and not self.table:
            raise InputError(f"--state {self.state}: only with --table")
        try:
            if self.identification:
                return self._measure_identification_and_get_exit_status()
            result = evaluate(self._make_options(), self._print_progress)
        except (ValueError, WriteError) as error:
            raise InputError(str(error)) from error
        self._print_result(result)
        for path in result.pictures:
            print(f"wrote {path}")
        return 0

    def _make_options(self) -> EvaluateOptions:
        """Convert this command line to the options of the function `evaluate`."""
        names = ("task", "episodes", "seed", "success", "state", "markdown", "title", "plots")
        if self.table:
            self._refuse_protocol_options_beside_table()
        protocols = self.table or (self._make_protocol(),)
        given = {name: getattr(self, name) for name in (*names, *SHARED_OPTIONS)}
        return EvaluateOptions(self.model, protocols, **given)

    def _refuse_protocol_options_beside_table(self) -> None:
        """Check that with ``--table`` no option is given that belongs into its protocols."""
        given = {n: v for n, v in vars(self.disturbance).items() if v != getattr(USUAL, n)}
        others = [one for one in fields(self) if one.name in ("memory", "until")]
        given |= {
            one.name: getattr(self, one.name) for one in others if self._is_option_changed(one)
        }
        if given:
            name, value = next(iter(given.items()))
            typed = format_flag(name) if value is True else f"{format_flag(name)} {value}"
            words = self._make_protocol()
            raise InputError(f"{typed}: --table takes it among a protocol's words, as in {words}")

    def _make_protocol(self) -> EvaluationProtocol:
        """Return the evaluation protocol that the command line's options describe."""
        from an_control.learning.rollout.evaluation_protocol import EvaluationProtocol

        return EvaluationProtocol(
            self.disturbance.to_settings(), self.memory, self.until, self.monitor
        )

    def _is_option_changed(self, option: Field[Any]) -> bool:
        """Return whether an option has a value other than its default."""
        return bool(getattr(self, option.name) != option.default)

    def _print_progress(self, progress: RunProgress) -> None:
        """Print the news in a progress report: a finished episode or table row, or a note."""
        figures = progress.figures
        if progress.event == "note":
            print(progress.note, file=sys.stderr)
        elif progress.unit == "row" and self.table:
            print(_format_results_of_protocol(figures["protocol"], figures["results"]), flush=True)
        elif progress.unit == "episode" and not self.table:
            print(f"return {figures['return']:8.1f}  steps {figures['steps']}", flush=True)

    def _print_result(self, result: EvaluateResult) -> None:
        """Print the result of an evaluation, and write it as JSON if ``--json`` is given."""
        from an_control.learning.evaluation.comparison import format_row_for_terminal

        about = {"task": result.task, "model": str(self.model), "seed": self.seed}
        about |= {name: getattr(self, name) for name in SHARED_OPTIONS}
        if self.table:
            print(f"\n{result.table}")
            write_json(self.json, {**about, "protocols": result.rows})
            return
        (row,) = result.rows
        print("\n".join(format_row_for_terminal(row, result.success, result.walk_m)))
        described = {
            **self.disturbance.to_json_values(),
            "memory": self.memory,
            "until": self.until,
        }
        alone = {name: of for name, of in row.items() if name not in ("protocol", "difference")}
        write_json(self.json, {**about, **described, **alone})

    def _measure_identification_and_get_exit_status(self) -> int:
        """Measure how many steps the neurons need to identify their channels, and print it."""
        require_packages("train", "matplotlib")
        from an_control.learning.evaluation.comparison import write_markdown_tables
        from an_control.learning.evaluation.identification import (
            TABLES,
            measure_channel_identification,
        )

        if self.markdown is not None:
            check_markdown_table_marks(self.markdown, TABLES)
        disturbance = self.disturbance.to_settings()
        given = [one.name for one in disturbance.non_default_settings if one.name != "shuffle"]
        others = {"memory", "until", "monitor", "recovery"}
        others |= {"table", "normalise", "success", "title"}
        given += [
            one.name for one in fields(self) if one.name in others and self._is_option_changed(one)
        ]
        if given:
            raise InputError(f"{format_flag(given[0])}: not for --identification")
        shuffle = disturbance.shuffle
        if not shuffle.at_reset:
            raise InputError(f"--shuffle {shuffle}: --identification needs reset+K")
        every, plots = shuffle.every or RESHUFFLE_STEPS, self.plots
        self._make_options().check_options()
        try:
            found = measure_channel_identification(
                self.model, self.task, self.episodes, self.seed, every, plots
            )
        except OSError as error:
            raise InputError(f"--plots {plots}: {error.strerror or error}") from error
        print("\n\n".join(found.tables.values()))
        if self.markdown is not None:
            write_markdown_tables(self.markdown, found.tables)
        if found.pictures:
            print(*found.pictures)
        write_json(self.json, found.figures)
        return 0


def _format_results_of_protocol(name: str, results: list[PlayedEpisode]) -> str:
    """Format the results under one protocol as a line: the mean return, and the detected moves.

    A move is a change of the input slots at which signals arrive; the monitor detects it or not.
    """
    mean, ticks = (
        sum(one.total for one in results) / len(results),
        sum(one.steps for one in results),
    )
    moved, found = (sum(getattr(one, n) for one in results) for n in ("shuffles", "detected"))
    detected = f", {found} moves detected of {moved} in {ticks} ticks" if found or not moved else ""
    return f"{name}: {mean:.1f}{detected}"
