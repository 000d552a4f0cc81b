"""The verb ``an-control check WIRING``, which compares a wiring with a model and a robot."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from an_control.cli.common import InputError, ModelFile, OutputFile, require_packages, write_json
from an_control.control.controller import Controller
from an_control.control.model_wiring_check import (
    ActionCommandConverter,
    compare_wired_with_trained_channels,
    describe_action_scale_differences,
    describe_all_zero_weights,
    describe_assumed_action_limit,
    describe_channel_differences,
    describe_sources_without_channel,
    get_actuator_names,
    join_names_shortened,
)
from an_control.load import resolve_monitor_setting
from an_control.monitor.forward_model import get_channel_ranges_in_training
from an_control.policy import Model, OrderedSizes, VisionSizes, read_model
from an_control.system.files import read_regular_file, write_file
from an_control.wiring import (
    ChannelTable,
    Wiring,
    WiringError,
    load_wiring,
    make_command_messages,
)
from an_control.wiring.draft import find_undecided_lines

if TYPE_CHECKING:
    from an_control.commissioning.doctor import Recording
    from an_control.commissioning.doctor.recorder import DrivenRecorder
    from an_control.commissioning.doctor.repair import Repair
    from an_control.commissioning.listen import ListenResult
    from an_control.commissioning.motion.plan import MotionPlan
    from an_control.commissioning.motion.run import MotionRun

LISTEN_S, DOCTOR_S = 5.0, 10.0
"""Seconds for which to listen to a robot: the first number without a diagnosis of wrong wiring (the
"doctor"), the second with one."""
FACTOR = 3.0
"""If the largest reading of a channel is more than this many times the largest one in training, the
reading may have another unit than in training."""
UNITS = {57.3: "degrees instead of radians", 1000.0: "millimetres instead of metres"}
SELDOM = 0.5
"""A channel of the wiring that has a reading for a smaller share of the time is a problem."""
NEAR = 2.0
"""The check suggests a unit if converting to that unit explains the difference from the readings in
training up to this factor."""
WHERE = ("source", "topic", "type", "publishers", "qos")
ARRIVED = ("source", "messages", "rate_hz", "longest_gap_s", "max_age_s", "stamp_to_arrival_s")
"""Columns of the second table about sources. There are two tables, because a single one would be
too wide for a window."""
RANGES = {"reads": ("low", "high"), "in_training": ("trained_low", "trained_high")}
"""A mapping from each column that shows a range to the keys of the lower and the upper end of the
range."""
WIDE = 200
"""Width of the tables in characters if the output is not a terminal."""


@dataclass
class Findings:
    """Tables, problems and notes that a check collects; any problem makes the exit status 1.

    Attributes:
        channels: Rows of the table of channels; each is a dict of cells by column.
        actuators: Rows of the table of actuators.
        sources: Rows of the table of sources (topic subscriptions).
        motion: Rows of the table of actuators and the sensors that they move.
        doctor: Rows of the table of wrongly wired channels and motors.
        diff: Difference between the text of the wiring file and the corrected text; "" if nothing
            is corrected.
        problems: Sentences that describe problems.
        notes: Sentences about facts that need no action.
        looked_at: What was checked, in words.
        not_looked_at: What was not checked, in words, each with the reason or the option for it.
    """

    channels: list[dict[str, Any]] = field(default_factory=list)
    actuators: list[dict[str, Any]] = field(default_factory=list)
    sources: list[dict[str, Any]] = field(default_factory=list)
    motion: list[dict[str, Any]] = field(default_factory=list)
    doctor: list[dict[str, Any]] = field(default_factory=list)
    diff: str = ""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    looked_at: list[str] = field(default_factory=list)
    not_looked_at: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class CheckCommand:
    """Check a wiring (the YAML file that connects ROS topics to a policy) for mistakes.

    Compares it with a model, and with a running robot (--live), a recording (--bag) or a
    simulation (--sim). Prints tables of the channels, the actuators and, with --live or --bag, the
    topics. If the model has an identity monitor and the robot is driven meanwhile, wrongly wired
    channels and motors are found, and the corrected lines are printed.

    With --move, no model is needed: one actuator after another moves a little around the safe
    command, within the limits of the wiring, which shows the sensors that each moves. Commands of
    another node, `an-control estop` or Ctrl-C stop this motion; the last command is the safe one.

    Values that `an-control new` left undecided (with a comment that begins with SET) are problems
    until their comments are deleted. Exit status 0: no problem; 1: a problem; 2: bad input.
    """

    wiring: tyro.conf.Positional[Path]
    """The robot's wiring YAML."""
    model: ModelFile | None = None
    """A .safetensors model file, an .onnx file of another tool, or the name of a shipped model."""
    live: bool = False
    """Listen to the running robot; nothing is sent, except with --move."""
    sim: Path | None = None
    """A simulation YAML: check the wiring on this simulated robot, inside this command and without
    topics. The model drives it, or --move."""
    move: bool = False
    """With --live or --sim: move each actuator by a small sine, and find which sensors it moves.
    Hang the robot up or lay it on its back first."""
    yes: bool = False
    """With --move: do not ask before a live robot moves."""
    amplitude: float | None = None
    """With --move: how far each actuator moves, as a share of the distance from its safe command to
    its nearer limit, by default 0.1."""
    fix: OutputFile | None = None
    """Write the corrected wiring here, if something in the wiring is found to be wrong."""
    bag: Path | None = None
    """Instead read a recording of the robot: a bag of ROS 2, MCAP or sqlite3."""
    namespace: str = ""
    """With --live or --bag, the robot's namespace."""
    seconds: float | None = None
    """For how long to listen, by default 5, with a model 10; with --sim in simulated time."""
    json: OutputFile | None = None
    """Also write the findings here as JSON."""

    def run(self) -> int:
        """Check the wiring, print the findings and return the exit status."""
        if self.seconds is not None and not 0.0 < self.seconds <= 3600.0:
            raise InputError(f"--seconds {self.seconds:g}: must be more than 0, at most 3600")
        if self.sim is not None and (
            self.live or self.bag or (self.model is None and not self.move)
        ):
            raise InputError("--sim: with --model or --move, and not with --live or --bag")
        self._check_motion_options()
        if self.fix is not None and not (self.live or self.sim or self.bag):
            raise InputError("--fix: only with --live, --bag or --sim")
        if self.namespace and not (self.live or self.bag):
            raise InputError("--namespace: only with --live or --bag")
        if self.live and self.bag:
            raise InputError("give either --live or --bag")
        require_packages("ros", "rclpy")
        if self.bag:
            require_packages("record", "mcap")
        wiring = load_wiring(self.wiring)
        if self.live:
            wiring = wiring.with_private_topics_below("policy")  # the usual name of the policy node
        table = ChannelTable(wiring)
        model = None if self.model is None else read_model(self.model)
        findings = Findings()
        findings.problems += [
            f"{self.wiring}:{line}: {words!r}: decide, then delete the comment"
            for line, words in find_undecided_lines(read_regular_file(self.wiring).decode())
        ]
        findings.notes += describe_sources_without_channel(wiring).values()
        if model is None:
            try:
                make_command_messages(wiring.command, str(self.wiring))
            except WiringError as error:  # the node refuses it, whichever model it runs
                findings.problems.append(str(error))
        else:
            self._add_differences_of_wiring_and_model(wiring, table, model, findings)
        heard: ListenResult | None = None
        recorder: DrivenRecorder | None = None
        if self.live:
            heard, recorder = self._listen_to_robot(wiring, model, findings)
        if self.bag is not None:
            heard, recorder = self._read_bag(self.bag, wiring, model, findings)
        _add_channel_rows(wiring, table, model, heard, findings)
        _add_actuator_rows(wiring, str(self.model), model, findings)
        if heard is not None:
            _add_source_rows(heard, findings)
        examined = moved = False
        if self.move:
            moved = self._try_to_move_robot(wiring, findings)
        elif recorder is not None and model is not None:
            if recorder.commands:
                recording = recorder.recorder.make_recording()
                examined = self._try_to_diagnose_recording(wiring, model, recording, findings)
            else:
                where = "in the bag" if self.bag else "while it listened"
                findings.notes.append(
                    f"doctor: nobody commanded the robot {where}, so nothing was examined"
                )
        elif self.sim is not None and model is not None and not findings.problems:
            simulated = self._record_simulation()
            examined = self._try_to_diagnose_recording(wiring, model, simulated, findings)
        self._add_check_summary(model, heard, examined, moved, findings)
        _print_findings(findings)
        asked = {"wiring": str(self.wiring), "model": None if model is None else str(self.model)}
        write_json(self.json, {**asked, **vars(findings)})
        return 1 if findings.problems else 0

    def _add_check_summary(
        self,
        model: Model | None,
        listened: ListenResult | None,
        examined: bool,
        moved: bool,
        findings: Findings,
    ) -> None:
        """Add lists of what was checked and what was not, and notes on what could not be."""
        ranged = model is not None and bool(get_channel_ranges_in_training(model))
        parts = [
            ("names and rate of the model", model is not None, "--model"),
            ("types, rates and ages of the messages", listened is not None, "--live or --bag"),
            ("units", listened is not None and ranged,
             "they need --live or --bag, and a model with the ranges of its training"),
            ("signs, offsets and swapped wires", examined,
             "they need a model with a monitor, and a driven robot: --live, --bag or --sim"),
            ("which sensors each motor moves, and their signs", moved, "--move"),
        ]  # fmt: skip
        findings.looked_at = [what for what, done, _ in parts if done]
        findings.not_looked_at = [f"{what} ({need})" for what, done, need in parts if not done]
        images = model is not None and isinstance(model.sizes, VisionSizes)
        if listened is not None and model is not None and not (ranged or images):
            findings.notes.append(
                f"units are not checked: {self.model} holds no ranges of its training"
                " (an-control train-monitor adds them)"
            )
        still = [] if listened is None or self.move else [
            id_ for id_, one in listened.ranges.items() if one.count > 1 and one.low == one.high
        ]  # fmt: skip
        if still:
            findings.notes.append(
                f"did not change, and so could not be checked: {join_names_shortened(still)}:"
                " move the robot meanwhile"
            )

    def _check_motion_options(self) -> None:
        """Refuse wrong combinations of the options for a motion of the robot (``--move``)."""
        if not self.move:
            if self.yes or self.amplitude is not None:
                raise InputError("--yes, --amplitude: only with --move")
            return
        if not (self.live or self.sim):
            raise InputError("--move: only with --live or --sim")
        if self.seconds is not None and self.sim:
            raise InputError("--seconds: not with --sim --move, which takes as long as it needs")
        if self.amplitude is not None and not 0.0 < self.amplitude <= 1.0:
            raise InputError(f"--amplitude {self.amplitude:g}: must be more than 0, at most 1")
        if self.live and not self.yes and not sys.stdin.isatty():
            raise InputError(
                "--move: the robot would move, and there is no terminal to ask: add --yes"
            )

    def _try_to_move_robot(self, wiring: Wiring, findings: Findings) -> bool:
        """Move the actuators one at a time, and add what that shows to `findings`.

        With ``--fix`` the corrected wiring is written. Return whether the whole motion was made; if
        not, a problem says why.
        """
        from an_control.commissioning.motion import report
        from an_control.commissioning.motion.compare import diagnose_wiring_by_motion
        from an_control.commissioning.motion.plan import MotionSettings
        from an_control.commissioning.motion.run import MotionRun

        if wiring.images:
            raise InputError(f"--move: {self.wiring}: its channels are patches of a camera")
        settings = MotionSettings()
        if self.amplitude is not None:
            settings = replace(settings, amplitude=self.amplitude)
        run = MotionRun(wiring, settings)
        if self.sim is not None:
            require_packages("sim", "gymnasium")
            from an_control_sim.bridge.direct_robot import play_and_time_test_motion

            seconds = play_and_time_test_motion(run, self.sim)
            findings.notes.append(f"motion: {seconds:.1f} s of simulated time")
        else:
            self._move_live_robot(run)
        if run.stopped:
            findings.problems.append(f"motion: {run.stopped}")
            return False
        if run.repeats:
            findings.notes.append(
                f"motion: readings were missing {run.repeats} times, and the actuator that moved"
                " began again"
            )
        recording = run.make_recording()
        diagnosis = diagnose_wiring_by_motion(recording, wiring.command)
        findings.motion = report.make_actuator_sensor_rows(recording, diagnosis)
        findings.doctor = report.make_finding_rows(diagnosis)
        findings.problems += report.list_found_mistakes(diagnosis)
        findings.notes += diagnosis.notes
        text = read_regular_file(self.wiring).decode()
        repair = report.correct_wiring(text, wiring, diagnosis)
        self._add_repair("motion", repair, findings)
        return True

    def _add_repair(self, who: str, repair: Repair, findings: Findings) -> None:
        """Add the corrections of the wiring to `findings`, and write the file of ``--fix``."""
        findings.diff = repair.diff
        findings.notes += [f"{who}: not in the corrected file: {one}" for one in repair.left]
        if self.fix is not None and repair.diff:
            write_file(self.fix, repair.text)
            findings.notes.append(f"{who}: the corrected wiring is {self.fix}")

    def _move_live_robot(self, run: MotionRun) -> None:
        """Move the actuators of a running robot one at a time.

        If the robot must not be moved, `run.stopped` says why.
        """
        from an_control.commissioning.motion.live import MotionRefusedError, move_live_robot
        from an_control.commissioning.motion.report import describe_plan

        def confirm(plan: MotionPlan) -> bool:
            """Print how the robot will move, and return whether the user agrees."""
            print(describe_plan(run.wiring, plan), flush=True)
            if self.yes:
                return True
            try:
                return input("type yes to move it: ").strip() == "yes"
            except EOFError:  # Ctrl-D
                return False

        try:
            move_live_robot(run, self.namespace, confirm)
        except WiringError:
            raise
        except MotionRefusedError as error:
            run.stop_early(str(error))
        except ValueError as error:
            raise InputError(f"--namespace {self.namespace}: {error}") from error

    def _add_differences_of_wiring_and_model(
        self, wiring: Wiring, table: ChannelTable, model: Model, findings: Findings
    ) -> None:
        """Add to `findings` why the policy node would refuse to run this model with this wiring."""
        try:
            controller = Controller(str(self.wiring), str(self.model), "numpy")
        except WiringError as error:
            findings.problems.append(str(error))
        else:
            if refusal := controller.explain_control_rate_mismatch():
                findings.problems.append(refusal)
        findings.problems += describe_action_scale_differences(wiring, str(self.model), model)
        findings.problems += filter(None, [describe_all_zero_weights(str(self.model), model)])
        if assumed := describe_assumed_action_limit(str(self.model), model):
            findings.notes.append(assumed)
        if isinstance(model.sizes, OrderedSizes):
            return  # for such a policy, channels that differ have been reported as problems
        if warning := model.monitor_default_off_reason:
            findings.notes.append(warning)
        names = compare_wired_with_trained_channels(wiring, table.ids, model)
        watched = resolve_monitor_setting(model, None) != "off"
        findings.problems += describe_channel_differences(
            names, str(self.model), monitor_is_on=watched
        )

    def _read_bag(
        self, path: Path, wiring: Wiring, model: Model | None, findings: Findings
    ) -> tuple[ListenResult, DrivenRecorder | None]:
        """Collect from a bag what the wiring's sources (topics) sent, and add notes about the bag.

        The recorder has the content for the diagnosis; None if wiring and model allow none.
        """
        from rclpy.serialization import deserialize_message

        from an_control.commissioning.bag import listen_to_bag_and_list_notes
        from an_control.commissioning.doctor.bag import make_recorder_from_bag
        from an_control.record.layout import BagError
        from an_control.record.reader import Bag

        recorder, robot = None, (self.namespace, deserialize_message)
        try:
            bag = Bag(path)
            heard, notes = listen_to_bag_and_list_notes(wiring, bag, *robot)
            findings.notes += notes
            if model is not None and self._can_diagnose(wiring, model, findings):
                with suppress(WiringError):  # `findings` has it as a problem already
                    recorder = make_recorder_from_bag(wiring, str(self.model), model, bag, *robot)
        except BagError as error:
            raise InputError(f"--bag {error}") from error
        return heard, recorder

    def _listen_to_robot(
        self, wiring: Wiring, model: Model | None, findings: Findings
    ) -> tuple[ListenResult, DrivenRecorder | None]:
        """Listen to the running robot and return what its sources (topics of the wiring) sent.

        The recorder is for the diagnosis; None if wiring and model allow none, and with ``--move``.
        """
        from an_control.commissioning.listen import LiveRecorder, listen_to_sources

        recorder = None
        if not self.move and model is not None and self._can_diagnose(wiring, model, findings):
            with suppress(WiringError):  # `findings` has it as a problem already
                recorder = LiveRecorder(wiring, str(self.model), model)
        seconds = self.seconds or (LISTEN_S if recorder is None else DOCTOR_S)
        try:
            return listen_to_sources(wiring, self.namespace, seconds, recorder), recorder
        except WiringError:
            raise
        except ValueError as error:
            raise InputError(f"--namespace {self.namespace}: {error}") from error

    def _can_diagnose(self, wiring: Wiring, model: Model, findings: Findings) -> bool:
        """Return whether wrong wiring can be found in recordings with this wiring and model.

        If the model has no monitor, a note says so; a wiring with a camera cannot be diagnosed.
        """
        if wiring.images:
            return False
        if model.forward is None:
            findings.notes.append(
                f"doctor: {self.model} has no monitor (an-control train-monitor makes one), so"
                " signs, scales and swapped wires are not checked"
            )
        return model.forward is not None

    def _record_simulation(self) -> Recording:
        """Run the simulated robot under this wiring and model, and return a recording of it."""
        require_packages("sim", "gymnasium", "numba")
        from an_control_sim.bridge.direct_robot import run_and_record_simulated_robot

        assert self.sim is not None
        controller = Controller(str(self.wiring), str(self.model), None)
        recording, _ = run_and_record_simulated_robot(
            controller, self.sim, self.seconds or DOCTOR_S
        )
        return recording

    def _try_to_diagnose_recording(
        self, wiring: Wiring, model: Model, recording: Recording, findings: Findings
    ) -> bool:
        """Find the mistakes in the wiring that a recording shows, and add them to `findings`.

        With ``--fix`` the corrected wiring is written. Return whether the recording was long enough
        for a diagnosis.
        """
        from an_control.commissioning.doctor import DOCTOR, diagnose, report
        from an_control.commissioning.doctor.repair import Repair
        from an_control.monitor.forward_model import ForwardModel

        if model.forward is None:
            raise InputError(f"--sim: {self.model} has no monitor (an-control train-monitor)")
        diagnosis = diagnose(recording, ForwardModel(model))
        order = ActionCommandConverter(wiring, str(self.model), model)
        places = None if order.places is None else order.places.tolist()
        text = read_regular_file(self.wiring).decode()
        repair = Repair(text, wiring, recording, places)
        if not diagnosis.alternatives:
            repair.write_corrections(diagnosis.corrected)
        findings.doctor = report.make_finding_rows(diagnosis)
        findings.problems += report.list_found_mistakes(diagnosis)
        findings.notes += report.list_diagnosis_notes(diagnosis)
        self._add_repair("doctor", repair, findings)
        return diagnosis.ticks >= DOCTOR.min_ticks


def _add_channel_rows(
    wiring: Wiring,
    table: ChannelTable,
    model: Model | None,
    heard: ListenResult | None,
    findings: Findings,
) -> None:
    """Add a row to the table of channels in `findings` for each channel of wiring and model."""
    trained = () if model is None else model.task.channels
    ranges = {} if model is None else get_channel_ranges_in_training(model)
    seen = {} if heard is None else heard.ranges
    configs = {one.id: one for one in wiring.channels}
    ids = dict.fromkeys([*configs, *(() if wiring.images else table.ids), *seen])
    wildcards = [id_ for id_ in configs if "*" in id_]
    lacking: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    if model is not None:
        present = dict.fromkeys([*table.ids, *seen])
        unknown, lacking, _ = compare_wired_with_trained_channels(wiring, tuple(present), model)
    for id_ in [*ids, *lacking]:
        config = configs.get(id_)
        row: dict[str, Any] = {
            "channel": id_,
            "from": "" if config is None else f"{config.source}: {config.field or 'image'}",
            "model": "",
        }
        if trained and id_ not in wildcards:
            row["model"] = "unknown" if id_ in unknown else "known"
        if id_ in lacking:
            row["model"] = "not wired"
        if heard is not None:
            row |= _make_channel_row(id_, heard, ranges, findings)
        findings.channels.append(row)
    if heard is not None:
        for reason, missing in heard.missing.items():
            findings.problems.append(
                f"missing at the end: {join_names_shortened(missing)}: {reason}"
            )
        said = {id_ for missing in heard.missing.values() for id_ in missing}
        for row in findings.channels:
            id_ = row["channel"]
            if id_ in configs and id_ not in said and 0.0 < row["present"] < SELDOM:
                findings.problems.append(
                    f"channel {id_}: has a reading only {row['present']:.0%} of the time: its"
                    " messages come too seldom for its max_age_s, or many are invalid"
                )


def _make_channel_row(
    id_: str, heard: ListenResult, ranges: dict[str, tuple[float, float]], findings: Findings
) -> dict[str, Any]:
    """Return the cells of a channel's table row that describe its readings."""
    one = heard.ranges.get(id_)
    if one is None:
        return {"present": 0.0, "low": None, "high": None}
    row = {"present": one.count / max(1, heard.reads), "low": one.low, "high": one.high}
    if one.turns:
        findings.notes.append(f"channel {id_}: {one.turns}")
    if one.clipped > one.count / 2:
        findings.problems.append(
            f"channel {id_}: its readings are at a limit of its clip most of the time"
        )
    if id_ in ranges:
        low, high = ranges[id_]
        row |= {"trained_low": low, "trained_high": high}
        most = max(abs(low), abs(high))
        factor = max(abs(one.low), abs(one.high)) / most if most else 0.0
        if factor > FACTOR:
            units = [
                f"; {text} would be {unit:g}"
                for unit, text in UNITS.items()
                if unit / NEAR < factor < unit * NEAR
            ]
            findings.problems.append(
                f"channel {id_}: reads {one.low:.3g} .. {one.high:.3g}, in training"
                f" {low:.3g} .. {high:.3g}: {factor:.0f} times as much{''.join(units)}"
            )
    return row


def _add_actuator_rows(
    wiring: Wiring, model_path: str, model: Model | None, findings: Findings
) -> None:
    """Add a row to the table of actuators in `findings` for each actuator of the wiring.

    The row says which action of the model the actuator receives.
    """
    places: list[int] | None = list(range(len(wiring.command.names)))
    trained = () if model is None else get_actuator_names(model)
    if model is not None:
        try:
            order = ActionCommandConverter(wiring, model_path, model)
        except WiringError:  # `findings` has it as a problem already
            places = None
        else:
            if order.places is not None:
                places = order.places.tolist()
                findings.notes.append(
                    "the model has its actuators in another order; each gets its own action"
                )
    for number, one in enumerate(wiring.command.actuators):
        row = {"actuator": one.name, "scale": one.scale, "limits": list(one.limits)}
        row["safe"] = one.safe
        if trained:
            row["action"] = "none" if places is None else trained[places[number]]
        findings.actuators.append(row)


def _add_source_rows(heard: ListenResult, findings: Findings) -> None:
    """Add a row to the table of sources in `findings` for each source, and the problems with it."""
    for one in heard.sources:
        problem = one.describe_source_problem(heard.seconds, heard.control_hz)
        findings.sources.append(
            {
                "source": one.config.name,
                "topic": one.topic,
                "type": one.config.type,
                "publishers": ", ".join(one.publishers),
                "qos": one.quality,
                "messages": len(one.times_s),
                "rate_hz": one.rate_hz,
                "longest_gap_s": one.longest_gap_s,
                "max_age_s": one.config.max_age_s,
                "stamp_to_arrival_s": one.delay_s,
            }
        )
        if problem:
            findings.problems.append(f"source {one.config.name} ({one.topic}): {problem}")
    findings.notes += heard.commands
    findings.problems += heard.wrong_commands
    findings.problems += heard.disagreements


def _print_findings(findings: Findings) -> None:
    """Print all tables, the corrections of the wiring, the notes and the problems."""
    console = Console()
    if not console.is_terminal:
        console.width = WIDE
    for title, rows in (
        ("sources", [{key: row[key] for key in WHERE} for row in findings.sources]),
        ("messages", [{key: row[key] for key in ARRIVED} for row in findings.sources]),
        ("channels", [_join_range_ends(row) for row in findings.channels]),
        ("actuators", findings.actuators),
        ("motion", findings.motion),
        ("doctor", findings.doctor),
    ):
        if rows:
            console.print(_make_table(title, rows))
    if findings.diff:
        print(findings.diff)
    for note in findings.notes:
        print(f"note: {note}")
    for problem in findings.problems:
        print(f"problem: {problem}")
    if not findings.problems:
        print("nothing is wrong")
        print(f"looked at: {', '.join(findings.looked_at) or 'the file alone'}")
        if findings.not_looked_at:
            print(f"not looked at: {'; '.join(findings.not_looked_at)}")


def _join_range_ends(channel: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a table row in which low and high of each range are joined to one text."""
    ends = [end for pair in RANGES.values() for end in pair]
    row = {key: value for key, value in channel.items() if key not in ends}
    for name, (low, high) in RANGES.items():
        if channel.get(low) is not None:
            row[name] = f"{channel[low]:.3g} .. {channel[high]:.3g}"
    return row


def _make_table(title: str, rows: list[dict[str, Any]]) -> Table:
    """Return a table that can be printed, made from these rows.

    In a narrow window long texts are folded into several lines; nothing is cut off.
    """
    table = Table(title=title, title_justify="left", box=SIMPLE)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    for column in columns:
        numbers = column in RANGES or any(isinstance(row.get(column), float) for row in rows)
        least = max(len(_format_cell(row.get(column))) for row in rows) if numbers else None
        table.add_column(escape(column.replace("_", " ")), overflow="fold", min_width=least)
    for row in rows:
        table.add_row(*(_format_cell(row.get(column)) for column in columns))
    return table


def _format_cell(value: Any) -> str:
    """Return a value as the text of a table's cell; "" for None."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else escape(str(value))
