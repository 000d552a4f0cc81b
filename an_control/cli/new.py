"""The verb ``an-control new NAME``, which drafts YAML files for another robot."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from an_control.cli.common import (
    InputError,
    ModelFile,
    OutputFile,
    OutputFolder,
    require_packages,
    write_json,
)
from an_control.policy import read_model
from an_control.system.files import write_file
from an_control.wiring import ChannelTable, WiringError, load_wiring

if TYPE_CHECKING:
    from an_control.commissioning.survey import Survey

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)


@dataclass(frozen=True)
class NewCommand:
    """Draft the YAML files for a robot of your own, with comments, for you to complete.

    With --env, writes the wiring, which connects topics to channels, and the simulation file; run
    both by `an-control sim --simulation F --wiring F --model M`. With --live (a running robot) or
    --bag (a recording), writes the wiring only.
    """

    name: tyro.conf.Positional[str]
    """The robot's name: a letter, then letters, digits or _; the files are NAME.yaml and
    NAME_sim.yaml."""
    env: str | None = None
    """A gymnasium id, MODULE:ID if importing the module registers it, or a task such as ant."""
    live: bool = False
    """Instead listen to the robot that runs now: its topics, types, names, rates and ranges."""
    bag: Path | None = None
    """Instead read a recording of the robot: a bag of ROS 2, MCAP or sqlite3."""
    model: ModelFile | None = None
    """With --live or --bag, a model: its channels' ids are filled in with the fields that were
    heard; what is not certain is marked SET THIS."""
    namespace: str = ""
    """With --live or --bag, the robot's namespace: only its topics; by default all."""
    seconds: float = 10.0
    """With --live, for how long to listen, from the first message on."""
    out: OutputFolder = Path()
    """The folder of the files."""
    force: bool = False
    """Overwrite existing files."""
    json: OutputFile | None = None
    """Also write the channels and actuators here as JSON."""

    def run(self) -> int:
        """Draft the files, write them and return the exit status."""
        if not NAME.fullmatch(self.name):
            raise InputError(f"{self.name}: must be a name (a letter, then letters, digits or _)")
        if sum((self.env is not None, self.live, self.bag is not None)) != 1:
            raise InputError("give either --env ID, --live or --bag BAG")
        if not 0.0 < self.seconds <= 3600.0:
            raise InputError(f"--seconds {self.seconds:g}: must be more than 0, at most 3600")
        if self.model is not None and self.env is not None:
            raise InputError("--model: only with --live or --bag")
        require_packages("ros", "rclpy")
        if self.bag is not None:
            require_packages("record", "mcap")
        paths = [self.out / f"{self.name}.yaml"]
        if self.env is not None:
            paths.append(self.out / f"{self.name}_sim.yaml")
        for path in paths:
            if path.exists() and not self.force:
                raise InputError(f"{path}: is there already (--force overwrites it)")
        return (
            self._draft_wiring_from_robot_and_get_exit_status(*paths)
            if self.env is None
            else self._draft_files_from_environment_and_get_exit_status(*paths)
        )

    def _draft_files_from_environment_and_get_exit_status(
        self, wiring: Path, simulation: Path
    ) -> int:
        """Draft and write both YAML files from a gymnasium environment; return the exit status."""
        require_packages("sim", "gymnasium")
        from an_control_sim.bridge.draft import draft_wiring_and_simulation_files
        from an_control_sim.bridge.robot import SimulatedRobot
        from an_control_sim.bridge.simulation_file import load_simulation
        from an_control_sim.gym.environments import find_environment_id

        assert self.env is not None
        try:
            draft = draft_wiring_and_simulation_files(self.name, find_environment_id(self.env))
        except ValueError as error:
            raise InputError(f"--env {error}") from error
        texts = {wiring: draft.wiring, simulation: draft.simulation}
        with _write_drafts_to_check(texts) as (first, second):
            ChannelTable(load_wiring(first))
            SimulatedRobot(load_simulation(second)).close()
        self._write_files(texts)
        _print_names(draft.channels, draft.actuators)
        print(f"\nan-control sim --simulation {simulation} --wiring {wiring} --model MODEL")
        self._write_draft_json(texts, draft.channels, draft.actuators, {"step_s": draft.step_s})
        return 0

    def _draft_wiring_from_robot_and_get_exit_status(self, path: Path) -> int:
        """Draft a wiring from a running robot or a bag, write it and return the exit status."""
        from an_control.commissioning.draft import UNCHANGED, UNUSED, draft_wiring_of_robot
        from an_control.ros.temporary_node import describe_discovery_range

        model = None if self.model is None else read_model(self.model)
        if model is not None and not model.task.channels:
            raise InputError(f"--model {self.model}: names no channels")
        heard_any = True
        try:
            survey = self._survey_robot_topics()
            heard_any = bool(survey.topics)
            draft = draft_wiring_of_robot(self.name, survey, self.namespace, model)
        except ValueError as error:
            hint = "" if heard_any or not self.live else f"; {describe_discovery_range()}"
            raise InputError(f"{'--live:' if self.live else '--bag'} {error}{hint}") from error
        texts = {path: draft.format_yaml()}
        with _write_drafts_to_check(texts) as drafts:
            ChannelTable(load_wiring(*drafts))
        self._write_files(texts)
        for source, about in draft.sources:
            print(f"{source.name}: {source.topic} ({source.type}), {about}")
        channels = [one.id for one, _ in draft.channels]
        messages = [draft.actuators, *(some for _, some in draft.more_commands)]
        actuators = [one.name for some in messages for one, _ in some]
        _print_names(channels, actuators)
        reasons = {UNCHANGED: "did not change", UNUSED: "resemble no channel of the model"}
        for heading, reason in reasons.items():
            if heading in draft.aside:
                count = len(draft.aside) - draft.aside.index(heading) - 1
                print(f"{count} fields that {reason} are commented out in {path}")
        if model is not None:
            filled = len(set(channels) & set(model.task.channels))
            print(
                f"{filled} of {len(model.task.channels)} channels of {self.model} are filled in;"
                f" {texts[path].count('SET THIS')} lines say SET THIS"
            )
        live = "--live" if self.bag is None else f"--bag {self.bag}"
        live += f" --namespace {self.namespace}" if self.namespace else ""
        print(f"\nset the limits and safe values, then: an-control check {path} {live}")
        self._write_draft_json(texts, channels, actuators, {"rate_hz": draft.rate_hz})
        return 0

    def _survey_robot_topics(self) -> Survey:
        """Return the topics of the running robot, or those of the bag if ``--bag`` is given."""
        if self.bag is None:
            from an_control.commissioning.survey import survey_topics

            print(
                f"listening for {self.seconds:g} s: drive the robot meanwhile, or move its joints"
                " by hand; what does not change becomes no channel",
                flush=True,
            )
            return survey_topics(self.namespace, self.seconds)
        from rclpy.serialization import deserialize_message

        from an_control.commissioning.bag import survey_bag_topics
        from an_control.record.reader import Bag

        return survey_bag_topics(Bag(self.bag), self.namespace, deserialize_message)

    def _write_files(self, texts: Mapping[Path, str]) -> None:
        """Write texts to files in the output folder, and print the files' paths."""
        self.out.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            write_file(path, text)
            print(f"wrote {path}")

    def _write_draft_json(
        self,
        files: Mapping[Path, str],
        channels: Sequence[str],
        actuators: Sequence[str],
        more: Mapping[str, Any],
    ) -> None:
        """Write a description of the draft as JSON, if ``--json`` is given."""
        shown = {"files": list(map(str, files)), "channels": list(channels)}
        write_json(self.json, {**shown, "actuators": list(actuators), **more})


@contextmanager
def _write_drafts_to_check(texts: Mapping[Path, str]) -> Iterator[list[Path]]:
    """Write drafts to temporary files, and yield their paths in the same order.

    The files have the names of the given paths.

    Raises:
        InputError: The block, which checks the files, has raised a WiringError. The text names the
            files without their temporary folder.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / path.name for path in texts]
        for path, text in zip(paths, texts.values(), strict=True):
            path.write_text(text, encoding="utf-8")
        try:
            yield paths
        except WiringError as error:
            shown = str(error).replace(f"{folder}/", "")
            raise InputError(f"the draft would not be valid: {shown}") from error


def _print_names(channels: Sequence[str], actuators: Sequence[str]) -> None:
    """Print the number and the names of channels and actuators."""
    for title, names in (("channels", channels), ("actuators", actuators)):
        print(f"{len(names)} {title}: {', '.join(names)}")
