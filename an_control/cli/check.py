"""The verb ``an-control check WIRING``: compares a wiring with a model and a running robot."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from an_control.cli.common import InputError, OutputFile, require_packages, write_json
from an_control.control.acting import ActionOrder
from an_control.control.controller import Controller
from an_control.control.wiring_fit import (
    actuator_names,
    command_differences,
    compare_channels,
    describe_differences,
    join_names,
    unread_sources,
)
from an_control.load import monitor_warning, resolve_monitor
from an_control.monitor.forward_model import trained_ranges
from an_control.policy import Model, OrderedSizes, read_model
from an_control.system.files import read_regular, write_file
from an_control.wiring import (
    ChannelTable,
    Wiring,
    WiringError,
    command_messages,
    load_wiring,
)
from an_control.wiring.draft import find_undecided

if TYPE_CHECKING:
    from an_control.commissioning.doctor import Recording
    from an_control.commissioning.doctor.driven import DrivenRecorder
    from an_control.commissioning.doctor.live import LiveRecorder
    from an_control.commissioning.listen import ListenResult

LISTEN_S, DOCTOR_S = 5.0, 10.0
"""Seconds for which to listen, without and with the doctor."""
FACTOR = 3.0
"""A channel that reads more than this many times as much as in training may have another unit."""
UNITS = {57.3: "degrees instead of radians", 1000.0: "millimetres instead of metres"}
NEAR = 2.0
"""A unit is suggested if the ratio of the readings is within this factor of the unit's."""
WHERE = ("source", "topic", "type", "publishers", "qos")
ARRIVED = ("source", "messages", "rate_hz", "longest_gap_s", "max_age_s", "stamp_to_arrival_s")
"""The columns of the second table of the sources; one table of all would be too wide for a
window."""
RANGES = {"reads": ("low", "high"), "in_training": ("trained_low", "trained_high")}
"""By column the keys of the two ends that its cells show."""
WIDE = 200
"""The width of the tables in columns if the output is no terminal."""


@dataclass
class Findings:
    """The findings of a check; any problem makes the exit status 1."""

    channels: list[dict[str, Any]] = field(default_factory=list)
    actuators: list[dict[str, Any]] = field(default_factory=list)
    sources: list[dict[str, Any]] = field(default_factory=list)
    doctor: list[dict[str, Any]] = field(default_factory=list)
    diff: str = ""
    """The change from the wiring to the corrected one."""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    looked_at: list[str] = field(default_factory=list)
    """What was checked, in words."""
    not_looked_at: list[str] = field(default_factory=list)
    """What was not checked, in words, each with a reason or an option."""


@dataclass(frozen=True)
class CheckCommand:
    """Compare a wiring with a model, and with a running robot.

    Prints tables of the channels, the actuators and, with --live or --bag, the sources. While a
    live robot is driven, by the policy or somebody else, a model with a monitor also finds which
    channels and motors are wired wrong, and how; the corrected lines are printed. The open
    decisions of a draft (comments that begin with SET) count as problems until they are deleted.
    Exit status 0: no problem; 1: a problem; 2: bad input.
    """

    wiring: tyro.conf.Positional[Path]
    """The robot's wiring YAML."""
    model: Path | None = None
    """A .safetensors model file, or an .onnx file of another tool."""
    live: bool = False
    """Listen to the running robot; nothing is sent."""
    sim: Path | None = None
    """A simulation YAML: drive that robot by the wiring and the model, here and without topics."""
    fix: OutputFile | None = None
    """Write the corrected wiring here, if something in it is found to be wrong."""
    bag: Path | None = None
    """Instead read a recording of the robot: a bag of ROS 2, MCAP or sqlite3."""
    namespace: str = ""
    """With --live or --bag, the robot's namespace."""
    seconds: float | None = None
    """For how long to listen, by default 5, with a model 10; with --sim in simulated time."""
    json: OutputFile | None = None
    """Also write the findings here as JSON."""

    def run(self) -> int:
        """Check, print the findings and return the exit status."""
        if self.seconds is not None and not 0.0 < self.seconds <= 3600.0:
            raise InputError(f"--seconds {self.seconds:g}: must be more than 0, at most 3600")
        if self.sim is not None and (self.live or self.bag or self.model is None):
            raise InputError("--sim: with --model, and not with --live or --bag")
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
        table = ChannelTable(wiring)
        model = None if self.model is None else read_model(self.model)
        found = Findings()
        found.problems += [
            f"{self.wiring}:{line}: {words!r}: decide, then delete the comment"
            for line, words in find_undecided(read_regular(self.wiring).decode())
        ]
        found.notes += unread_sources(wiring).values()
        if model is None:
            found.problems += self._command_problems(wiring)
        else:
            self._check_model(wiring, table, model, found)
        live = self._recorder(wiring, model, found) if self.live else None
        heard = self._listen(wiring, live) if self.live else None
        recorder: DrivenRecorder | None = live
        if self.bag is not None:
            heard, said = self._read_bag(wiring, self.bag)
            found.notes += said
            recorder = self._record_bag(wiring, model, found)
        _list_channels(wiring, table, model, heard, found)
        _list_actuators(wiring, str(self.model), model, found)
        if heard is not None:
            _list_sources(heard, found)
        examined = False
        if recorder is not None and model is not None:
            if recorder.commands:
                examined = self._examine(wiring, model, recorder.recorder.make_recording(), found)
            else:
                where = "in the bag" if self.bag else "while it listened"
                found.notes.append(
                    f"doctor: nobody commanded the robot {where}, so nothing was examined"
                )
        elif self.sim is not None and model is not None and not found.problems:
            examined = self._examine(wiring, model, self._simulate(), found)
        self._list_checked(model, heard, examined, found)
        _show(found)
        asked = {"wiring": str(self.wiring), "model": None if model is None else str(self.model)}
        write_json(self.json, {**asked, **vars(found)})
        return 1 if found.problems else 0

    def _list_checked(
        self, model: Model | None, heard: ListenResult | None, examined: bool, found: Findings
    ) -> None:
        """Add what was looked at and what was not, and which channels did not change."""
        ranged = model is not None and bool(trained_ranges(model))
        parts = [
            ("names and rate of the model", model is not None, "--model"),
            ("types, rates and ages of the messages", heard is not None, "--live or --bag"),
            ("units", heard is not None and ranged,
             "they need --live or --bag, and a model with the ranges of its training"),
            ("signs, offsets and swapped wires", examined,
             "they need a model with a monitor, and a driven robot: --live, --bag or --sim"),
        ]  # fmt: skip
        found.looked_at = [what for what, done, _ in parts if done]
        found.not_looked_at = [f"{what} ({need})" for what, done, need in parts if not done]
        if heard is not None and model is not None and not ranged:
            found.notes.append(
                f"units are not checked: {self.model} holds no ranges of its training"
                " (an-control train-monitor adds them)"
            )
        still = [] if heard is None else [
            id_ for id_, one in heard.ranges.items() if one.count > 1 and one.low == one.high
        ]  # fmt: skip
        if still:
            found.notes.append(
                f"did not change, and so could not be checked: {join_names(still)}:"
                " move the robot meanwhile"
            )

    def _command_problems(self, wiring: Wiring) -> list[str]:
        """Return why the node would refuse the command's messages, whatever the model."""
        try:
            command_messages(wiring.command, str(self.wiring))
        except WiringError as error:
            return [str(error)]
        return []

    def _check_model(
        self, wiring: Wiring, table: ChannelTable, model: Model, found: Findings
    ) -> None:
        """Add why the node would refuse wiring and model, and its notes on their names."""
        try:
            controller = Controller(str(self.wiring), str(self.model), "numpy")
        except WiringError as error:
            found.problems.append(str(error))
        else:
            if refusal := controller.rate_refusal():
                found.problems.append(refusal)
        found.problems += command_differences(wiring, str(self.model), model)
        if isinstance(model.sizes, OrderedSizes):
            return  # refused where they differ
        if warning := monitor_warning(model, None):
            found.notes.append(warning)
        names = compare_channels(wiring, table.ids, model)
        watched = resolve_monitor(model, None) != "off"
        found.problems += describe_differences(names, str(self.model), watched=watched)

    def _read_bag(self, wiring: Wiring, path: Path) -> tuple[ListenResult, list[str]]:
        """Return what the bag holds of the wiring's sources, and notes on it."""
        from rclpy.serialization import deserialize_message

        from an_control.commissioning.bag import listen_to_bag
        from an_control.record.layout import BagError
        from an_control.record.reader import Bag

        try:
            return listen_to_bag(wiring, Bag(path), self.namespace, deserialize_message)
        except BagError as error:
            raise InputError(f"--bag {error}") from error

    def _listen(self, wiring: Wiring, recorder: LiveRecorder | None) -> ListenResult:
        from an_control.commissioning.listen import listen

        seconds = self.seconds or (LISTEN_S if recorder is None else DOCTOR_S)
        try:
            return listen(wiring, self.namespace, seconds, recorder)
        except WiringError:
            raise
        except ValueError as error:
            raise InputError(f"--namespace {self.namespace}: {error}") from error

    def _recorder(
        self, wiring: Wiring, model: Model | None, found: Findings
    ) -> LiveRecorder | None:
        """Return what records the robot for the doctor, None if no model can examine it."""
        if model is None or not self._can_examine(wiring, model, found):
            return None
        from an_control.commissioning.doctor.live import LiveRecorder

        try:
            return LiveRecorder(wiring, str(self.model), model)
        except WiringError:  # is a problem already
            return None

    def _record_bag(
        self, wiring: Wiring, model: Model | None, found: Findings
    ) -> DrivenRecorder | None:
        """Return what the bag holds for the doctor, None if no model can examine it."""
        if model is None or not self._can_examine(wiring, model, found):
            return None
        from rclpy.serialization import deserialize_message

        from an_control.commissioning.doctor.bag import record_bag
        from an_control.record.layout import BagError
        from an_control.record.reader import Bag

        assert self.bag is not None
        path, bag = str(self.model), Bag(self.bag)
        try:
            return record_bag(wiring, path, model, bag, self.namespace, deserialize_message)
        except WiringError:  # is a problem already
            return None
        except BagError as error:
            raise InputError(f"--bag {error}") from error

    def _can_examine(self, wiring: Wiring, model: Model, found: Findings) -> bool:
        """Return whether the doctor can use the model; add a note if it has no monitor."""
        if wiring.images:
            return False
        if model.forward is None:
            found.notes.append(
                f"doctor: {self.model} has no monitor (an-control train-monitor makes one), so"
                " signs, scales and swapped wires are not checked"
            )
        return model.forward is not None

    def _simulate(self) -> Recording:
        """Return a recording of the simulated robot, driven by the wiring and the model."""
        require_packages("sim", "gymnasium", "numba")
        from an_control_sim.bridge.doctor_run import record_simulation

        assert self.sim is not None
        controller = Controller(str(self.wiring), str(self.model), None)
        recording, _ = record_simulation(controller, self.sim, self.seconds or DOCTOR_S)
        return recording

    def _examine(self, wiring: Wiring, model: Model, recording: Recording, found: Findings) -> bool:
        """Add the doctor's findings in a recording; return whether it was long enough."""
        from an_control.commissioning.doctor import DOCTOR, diagnose, report
        from an_control.commissioning.doctor.repair import Repair
        from an_control.monitor.forward_model import ForwardModel

        if model.forward is None:
            raise InputError(f"--sim: {self.model} has no monitor (an-control train-monitor)")
        diagnosis = diagnose(recording, ForwardModel(model))
        order = ActionOrder(wiring, str(self.model), model)
        places = None if order.places is None else order.places.tolist()
        text = read_regular(self.wiring).decode()
        repair = Repair(text, wiring, recording, places)
        if not diagnosis.alternatives:
            repair.write(diagnosis.corrected)
        found.doctor = report.make_rows(diagnosis)
        found.diff = repair.diff
        found.problems += report.list_problems(diagnosis)
        found.notes += report.list_notes(diagnosis, repair)
        if self.fix is not None and repair.diff:
            write_file(self.fix, repair.text)
            found.notes.append(f"doctor: the corrected wiring is {self.fix}")
        return diagnosis.ticks >= DOCTOR.min_ticks


def _list_channels(
    wiring: Wiring,
    table: ChannelTable,
    model: Model | None,
    heard: ListenResult | None,
    found: Findings,
) -> None:
    """Add a row for each channel of wiring and model, with its readings if the robot was heard."""
    trained = () if model is None else model.task.channels
    ranges = {} if model is None else trained_ranges(model)
    seen = {} if heard is None else heard.ranges
    configs = {one.id: one for one in wiring.channels}
    ids = dict.fromkeys([*configs, *(() if wiring.images else table.ids), *seen])
    wildcards = [id_ for id_ in configs if "*" in id_]
    lacking = () if model is None else compare_channels(wiring, table.ids, model).missing
    for id_ in [*ids, *lacking]:
        config = configs.get(id_)
        row: dict[str, Any] = {
            "channel": id_,
            "from": "" if config is None else f"{config.source}: {config.field or 'image'}",
            "model": "",
        }
        if trained and id_ not in wildcards:
            row["model"] = "known" if id_ in trained else "unknown"
        if id_ in lacking:
            row["model"] = "not wired"
        if heard is not None:
            row |= _channel_row(id_, heard, ranges, found)
        found.channels.append(row)
    if heard is not None:
        for reason, missing in heard.missing.items():
            found.problems.append(f"missing at the end: {join_names(missing)}: {reason}")


def _channel_row(
    id_: str, heard: ListenResult, ranges: dict[str, tuple[float, float]], found: Findings
) -> dict[str, Any]:
    """Return the readings of a channel and its range in training; add problems with them."""
    one = heard.ranges.get(id_)
    if one is None:
        return {"present": 0.0, "low": None, "high": None}
    row = {"present": one.count / max(1, heard.reads), "low": one.low, "high": one.high}
    if one.turns:
        found.notes.append(f"channel {id_}: {one.turns}")
    if one.clipped > one.count / 2:
        found.problems.append(
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
            found.problems.append(
                f"channel {id_}: reads {one.low:.3g} .. {one.high:.3g}, in training"
                f" {low:.3g} .. {high:.3g}: {factor:.0f} times as much{''.join(units)}"
            )
    return row


def _list_actuators(wiring: Wiring, model_path: str, model: Model | None, found: Findings) -> None:
    """Add a row for each actuator of the wiring, with the action that it gets."""
    places: list[int] | None = list(range(len(wiring.command.names)))
    trained = () if model is None else actuator_names(model)
    if model is not None:
        try:
            order = ActionOrder(wiring, model_path, model)
        except WiringError:  # said already
            places = None
        else:
            if order.places is not None:
                places = order.places.tolist()
                found.notes.append(
                    "the model has its actuators in another order; each gets its own action"
                )
    for number, one in enumerate(wiring.command.actuators):
        row = {"actuator": one.name, "scale": one.scale, "limits": list(one.limits)}
        row["safe"] = one.safe
        if trained:
            row["action"] = "none" if places is None else trained[places[number]]
        found.actuators.append(row)


def _list_sources(heard: ListenResult, found: Findings) -> None:
    for one in heard.sources:
        problem = one.describe_problem(heard.seconds, heard.control_hz)
        found.sources.append(
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
            found.problems.append(f"source {one.config.name} ({one.topic}): {problem}")
    found.notes += heard.commands
    found.problems += heard.wrong_commands
    found.problems += heard.disagreements


def _show(found: Findings) -> None:
    console = Console()
    if not console.is_terminal:
        console.width = WIDE
    for title, rows in (
        ("sources", [{key: row[key] for key in WHERE} for row in found.sources]),
        ("messages", [{key: row[key] for key in ARRIVED} for row in found.sources]),
        ("channels", [_with_ranges(row) for row in found.channels]),
        ("actuators", found.actuators),
        ("doctor", found.doctor),
    ):
        if rows:
            console.print(_table(title, rows))
    if found.diff:
        print(found.diff)
    for note in found.notes:
        print(f"note: {note}")
    for problem in found.problems:
        print(f"problem: {problem}")
    if not found.problems:
        looked = ", ".join(found.looked_at) or "the file alone"
        print("nothing is wrong")
        print(f"looked at: {looked}")
        if found.not_looked_at:
            print(f"not looked at: {'; '.join(found.not_looked_at)}")


def _with_ranges(channel: dict[str, Any]) -> dict[str, Any]:
    """Return a row with both ends of a range in one cell."""
    ends = [end for pair in RANGES.values() for end in pair]
    row = {key: value for key, value in channel.items() if key not in ends}
    for name, (low, high) in RANGES.items():
        if channel.get(low) is not None:
            row[name] = f"{channel[low]:.3g} .. {channel[high]:.3g}"
    return row


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    """Return a table; in a narrow window long names are folded, and nothing is cut."""
    table = Table(title=title, title_justify="left", box=SIMPLE)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    for column in columns:
        numbers = column in RANGES or any(isinstance(row.get(column), float) for row in rows)
        least = max(len(_cell_text(row.get(column))) for row in rows) if numbers else None
        table.add_column(column.replace("_", " "), overflow="fold", min_width=least)
    for row in rows:
        table.add_row(*(_cell_text(row.get(column)) for column in columns))
    return table


def _cell_text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else escape(str(value))
