"""The verbs that show or write a policy: info, export, new-model, import, import-authors."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from an_control.cli.common import (
    InputError,
    ModelFile,
    OutputFile,
    WorkError,
    require_packages,
    write_json,
)
from an_control.control.model_wiring_check import describe_assumed_action_limit
from an_control.learning.import_authors import import_policy_of_authors
from an_control.learning.import_policy import PolicyNames, import_policy
from an_control.load import find_model_path
from an_control.policy import MlpSizes, OrderedSizes, Sizes, read_model, write_model
from an_control.policy.onnx_file import SUFFIX, ForeignNetwork, has_onnx_suffix
from an_control.policy.random_model import make_random_model
from an_control.policy.sizes import make_paper_sizes
from an_control.policy.task import Task
from an_control.system.files import WriteError, write_file
from an_control.wiring import load_wiring

NO_ATTENTION = "none: this policy needs its channels in order; a monitor in front can find them"


def _describe_onnx_network(network: ForeignNetwork) -> dict[str, Any]:
    """Return facts about an ONNX network that another tool wrote, by name, for printing."""
    layout = network.layout
    return {
        "sha256": network.sha256,
        "opset": network.opset,
        "observation": [network.observation.name, *network.observation.shape],
        "action": [network.action.name, *network.action.shape],
        "states": [before.name for before, _ in network.states],
        "terms": [f"{term.kind} {', '.join(term.channels)}".strip() for term in layout.terms],
        "history": asdict(layout.history),
        "limit": layout.limit,
    }


@dataclass(frozen=True)
class InfoCommand:
    """Show the content of a model file: its kind, sizes, task, training and arrays."""

    model: tyro.conf.Positional[ModelFile]
    """A .safetensors model file, an .onnx file of another tool, or the name of a shipped model."""
    json: OutputFile | None = None
    """Also write the content here as JSON."""

    def run(self) -> int:
        """Print the contents of the model file and return the exit status."""
        model = read_model(find_model_path(self.model))
        shown = {
            "model": str(self.model),
            "kind": model.kind,
            "parameters": model.parameter_count,
            "sizes": asdict(model.sizes),
            "task": model.task.to_header(),
            "trained": model.trained,
            "forward": None if model.forward is None else asdict(model.forward),
            "arrays": {name: list(array.shape) for name, array in model.arrays.items()},
        }
        if model.network is not None:
            shown["network"] = _describe_onnx_network(model.network)
        if isinstance(model.sizes, OrderedSizes):
            shown["attention"] = NO_ATTENTION
        for title, value in shown.items():
            if isinstance(value, dict):
                print(f"{title}:")
                for key, entry in value.items():
                    print(f"  {key}: {entry}")
            else:
                print(f"{title}: {value}")
        write_json(self.json, shown)
        return 0


@dataclass(frozen=True)
class ExportCommand:
    """Write a policy as an ONNX file, or a recording as a table.

    With --onnx, SOURCE is a model. The inputs of the ONNX network are the task's channels in their
    order and, if the policy has them, its previous action and its states; the outputs are the
    action and the new states. The file lacks attention, recovery and monitor, and channels can be
    neither added nor left out. Another order of the channels may change the action's last bits.

    With --csv or --parquet, SOURCE is a recording, and the table has a row for each tick (control
    step). Its columns are time_ns, episode (a number from 0; empty for ticks in which the policy
    node was inactive), reading.CHANNEL, wanted.ACTUATOR (the policy's command before limits) and
    command.ACTUATOR (the newest command that was sent). Missing values are empty. If the node was
    never active, its ticks get episode numbers too.
    """

    source: tyro.conf.Positional[Path]
    """A .safetensors model file; or a folder that `record` has made, or one .mcap file of it."""
    onnx: OutputFile | None = None
    """Write the model here as ONNX (.onnx)."""
    csv: OutputFile | None = None
    """Write the recording here as CSV."""
    parquet: OutputFile | None = None
    """Write the recording here as Parquet."""

    def run(self) -> int:
        """Write the files, print a summary of each and return the exit status."""
        tables = self.csv is not None or self.parquet is not None
        if (self.onnx is not None) == tables:
            raise InputError("give --onnx FILE for a model, or --csv FILE, --parquet FILE or both")
        if self.onnx is not None:
            self._export_model(self.onnx)
        else:
            self._export_recording()
        return 0

    def _export_model(self, path: Path) -> None:
        """Write the model as an ONNX file and print what the file holds."""
        require_packages("onnx", "onnx")
        from an_control.policy.onnx_export import convert_model_to_onnx_bytes
        from an_control.policy.onnx_file import SUFFIX, has_onnx_suffix

        if not has_onnx_suffix(path):
            raise InputError(f"--onnx {path}: must end in {SUFFIX}")
        model = read_model(self.source)
        try:
            write_file(path, convert_model_to_onnx_bytes(model))
        except WriteError as error:
            raise InputError(f"--onnx {error}") from error
        except ValueError as error:
            raise InputError(f"{self.source}: {error}") from error
        lost = "" if model.forward is None else "; its monitor stays behind"
        channels = len(model.task.channels)
        print(f"{path}: {channels} channels, {model.sizes.actions} actions{lost}")

    def _export_recording(self) -> None:
        """Write the recording as CSV, Parquet or both, and print what the files hold."""
        require_packages("record", "mcap")
        if self.parquet is not None:
            require_packages("export", "pyarrow")
        from an_control.record.arrays import read_arrays, write_csv, write_parquet
        from an_control.record.layout import BagError
        from an_control.record.reader import Bag

        try:
            bag = Bag(self.source)
            arrays = read_arrays(bag)
        except BagError as error:
            raise InputError(str(error)) from error
        for note in bag.notes:
            print(f"note: {note}")
        episodes, inactive = int(arrays.episode.max()) + 1, int((arrays.episode < 0).sum())
        print(
            f"{len(arrays.time_ns)} ticks of {episodes} episodes: {len(arrays.ids)} channels,"
            f" {len(arrays.actuators)} actuators"
            + (f"; {inactive} ticks while the node was inactive" if inactive else "")
        )
        for path, write in ((self.csv, write_csv), (self.parquet, write_parquet)):
            if path is not None:
                try:
                    write(path, arrays)
                except OSError as error:
                    raise WorkError(f"{path}: {error.strerror or error}") from error
                print(f"wrote {path}")


@dataclass(frozen=True)
class NewModelCommand:
    """Write a small random policy for a robot, to test the robot before anything is learned.

    The policy has the robot's channels and actuators, in their order.
    """

    robot: tyro.conf.Positional[str]
    """A wiring YAML, a gymnasium id (also as module:id), or a task known by name."""
    out: OutputFile
    """The model file to write (.safetensors)."""
    weight_scale: float = 0.3
    """The scale of the random weights; 1: as PyTorch initialises a layer, 0: every action is 0."""
    ordered: bool = False
    """Write an MLP that needs its channels in order, instead of an attention policy."""
    seed: int = 1
    """Seed of the weights."""

    def run(self) -> int:
        """Write the model file and return the exit status."""
        if not 0.0 <= self.weight_scale < float("inf"):
            raise InputError(f"--weight-scale {self.weight_scale}: must be 0 or more")
        if self.seed < 0:
            raise InputError(f"--seed {self.seed}: must be 0 or more")
        if self.out.suffix != ".safetensors":
            raise InputError(f"--out {self.out}: must end in .safetensors")
        task = (
            self._make_task_from_wiring()
            if self.robot.endswith((".yaml", ".yml"))
            else self._make_task_from_environment()
        )
        channels, actions = len(task.channels), len(task.actuators)
        arrays = [id_ for id_ in task.channels if "*" in id_]
        if self.ordered and arrays:
            raise InputError(
                f"{self.robot}: channels.{arrays[0]}: --ordered needs one entry for each channel,"
                " as the number of channels of an entry with a * is not known"
            )
        sizes: Sizes = make_paper_sizes(actions, queries=16, hidden_layers=1)
        if self.ordered:
            sizes = MlpSizes(channels, actions, [16])
        model = make_random_model(sizes, self.seed, self.weight_scale, task)
        try:
            write_model(self.out, model)
        except WriteError as error:
            raise InputError(f"--out {error}") from error
        print(
            f"{self.out}: {channels} channels, {actions} actions,"
            f" {model.parameter_count} parameters"
        )
        return 0

    def _make_task_from_wiring(self) -> Task:
        """Describe the channels and actuators of a robot's wiring as the task in a model file."""
        wiring = load_wiring(Path(self.robot))
        if wiring.images:
            raise InputError(f"{self.robot}: has a camera, and this makes models of numbers only")
        return Task(
            name=wiring.robot,
            channels=tuple(channel.id for channel in wiring.channels),
            actuators=tuple(actuator.name for actuator in wiring.command.actuators),
            step_s=1.0 / wiring.rate_hz,
        )

    def _make_task_from_environment(self) -> Task:
        """Describe the readings and actuators of an environment as the task in a model file."""
        require_packages("sim", "gymnasium")
        from an_control_sim.gym.environments import (
            describe_task,
            find_environment_id,
            has_patch_observations,
            make_environment,
        )
        from an_control_sim.gym.probe import measure_units

        environment = find_environment_id(self.robot)
        try:
            units = measure_units(environment)
            with closing(make_environment(environment, units)) as env:
                if has_patch_observations(env):
                    raise ValueError(f"{self.robot}: has a camera; this makes models of numbers")
                return describe_task(env, self.robot, environment)
        except ValueError as error:
            raise InputError(str(error)) from error


@dataclass(frozen=True)
class ImportCommand:
    """Convert a policy of Stable-Baselines3 or TorchScript to an ONNX file.

    The robot then needs no torch and reads no pickle. A policy that is an ONNX file already needs
    no conversion: give it as --model.
    """

    policy: tyro.conf.Positional[Path]
    """A .zip of Stable-Baselines3 (PPO, A2C, SAC, TQC, TD3 or DDPG with an MLP), or a TorchScript
    file."""
    out: OutputFile
    """The file to write (.onnx)."""
    task: str | None = None
    """The task that the policy learned, known by name, or a gymnasium id, also as module:id; from
    it come the names of channels and actuators, and the period. By default channels and actuators
    are numbered."""
    normalise: Path | None = None
    """The file of the VecNormalize with which a policy of Stable-Baselines3 was trained."""

    def run(self) -> int:
        """Convert the policy, write the ONNX file and return the exit status."""
        require_packages("train", "torch", "onnx", "onnxruntime")
        if not has_onnx_suffix(self.out):
            raise InputError(f"--out {self.out}: must end in {SUFFIX}")
        if has_onnx_suffix(self.policy):
            raise InputError(f"{self.policy}: is an ONNX file already; give it as --model")
        content = import_policy(
            self.policy, self._choose_channel_and_actuator_names(), self.normalise
        )
        try:
            write_file(self.out, content)
        except WriteError as error:
            raise InputError(f"--out {error}") from error
        model = read_model(self.out, monitor=False)
        channels, actions = len(model.task.channels), model.sizes.actions
        print(
            f"{self.out}: {channels} channels, {actions} actions,"
            f" {model.parameter_count} parameters"
        )
        if assumed := describe_assumed_action_limit(str(self.out), model):
            print(assumed)
        return 0

    def _choose_channel_and_actuator_names(self) -> PolicyNames:
        """Return the names of channels and actuators of ``--task``; without it, numbered ones."""
        if self.task is None:
            return PolicyNames()
        require_packages("sim", "gymnasium")
        from an_control_sim.gym.environments import (
            describe_task,
            find_environment_id,
            make_environment,
        )

        try:
            environment = find_environment_id(self.task)
            with closing(make_environment(environment)) as env:
                task = describe_task(env, self.task, environment)
        except ValueError as error:
            raise InputError(f"--task: {error}") from error
        return PolicyNames(task.channels, task.actuators, task.step_s or None, self.task)


@dataclass(frozen=True)
class ImportAuthorsCommand:
    """Convert the weights of the AttentionNeuron authors to a model file."""

    npz: tyro.conf.Positional[Path]
    """The authors' file of flat parameters, an .npz with one array "params"."""
    kind: Literal["cartpole_pi", "ant_pi", "ant_mlp", "carracing_pi", "puzzle_pong"]
    """Which of the authors' policies the file holds."""
    out: OutputFile
    """The model file to write (.safetensors)."""

    def run(self) -> int:
        """Convert the authors' weights to a model file, and return the exit status."""
        model = import_policy_of_authors(self.npz, self.kind)
        try:
            write_model(self.out, model)
        except WriteError as error:
            raise InputError(f"--out {error}") from error
        print(f"{self.out}: {self.kind}, {model.trained['parameters']} parameters")
        return 0
