"""Read and write a run's folder: its settings, metrics, checkpoints and recorded episodes.

    config.json             settings, seed, task, versions
    metrics.jsonl           one line per step
    checkpoint.safetensors  the whole state after the last saved step
    model.safetensors       the policy; model.md is its card, curve.png the learning curve
    tensorboard/            the metrics, if tensorboard is installed
    environment.log         output of the environment, and the tracebacks of its errors
    episodes_NNN.npz        episodes that a step recorded

Every file is written whole or not at all, so that a run that is killed at any moment keeps its last
checkpoint. The same command continues the run. Settings that only limit the length of the run
(`LIMIT_SETTINGS`) may then differ. A folder that holds a run with other settings is refused, except
if that run has no checkpoint yet.

A checkpoint is a safetensors file. Its arrays have numbers as names. Its header holds everything
else as JSON, in which `{"array": number}` stands for the array of that number. Reading a checkpoint
runs no code from the file.
"""

from __future__ import annotations

import io
import json
import platform
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, Generic, TypeVar
from zipfile import BadZipFile

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

import an_control
from an_control.policy.task import Task
from an_control.system.environment_output import OUTPUT
from an_control.system.files import describe_read_error, lock_folder, read_regular_file, write_file
from an_control_sim.gym.probe import measure_units
from an_control_sim.gym.units import UNSCALED, Units

HEADER = "state"
ARRAY = "array"


class CheckpointError(ValueError):
    """Error that some bytes are not a checkpoint; the message says why."""


def pack_checkpoint(state: dict[str, Any]) -> bytes:
    """Convert the state of a training run to the bytes of a checkpoint file.

    Args:
        state: Arrays, tensors, numbers and text, nested in dicts and lists.

    Raises:
        TypeError: The state holds another object.
    """
    arrays: dict[str, np.ndarray] = {}

    def replace_arrays_by_references(value: Any) -> Any:
        """Return a copy of a nested value in which references replace arrays.

        The arrays are added to the dict `arrays`; a reference contains the array's key.
        """
        if hasattr(value, "detach"):
            value = value.detach().cpu().numpy()
        if isinstance(value, np.ndarray):
            name = str(len(arrays))
            arrays[name] = np.array(value, order="C")
            return {ARRAY: name}
        if isinstance(value, dict):
            return {
                "items": [
                    [replace_arrays_by_references(key), replace_arrays_by_references(entry)]
                    for key, entry in value.items()
                ]
            }
        if isinstance(value, list | tuple):
            return [replace_arrays_by_references(entry) for entry in value]
        return value.item() if isinstance(value, np.generic) else value

    header = json.dumps(replace_arrays_by_references(state))
    return save(arrays, {HEADER: header})


def unpack_checkpoint(content: bytes) -> dict[str, Any]:
    """Convert the bytes of a checkpoint file back to the state of a training run.

    Tensors become arrays, and tuples become lists.

    Raises:
        CheckpointError: The bytes are not a checkpoint.
    """
    try:
        arrays = load(content)
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])["__metadata__"][HEADER]
        state: dict[str, Any] = _replace_references_by_arrays(json.loads(header), arrays)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"not a checkpoint: {error}") from error
    return state


def _replace_references_by_arrays(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Return a copy of a nested value in which arrays replace the references to them."""
    if isinstance(value, list):
        return [_replace_references_by_arrays(entry, arrays) for entry in value]
    if not isinstance(value, dict):
        return value
    if ARRAY in value:
        return arrays[value[ARRAY]]
    return {
        _replace_references_by_arrays(key, arrays): _replace_references_by_arrays(entry, arrays)
        for key, entry in value["items"]
    }


def convert_arrays_to_tensors(value: Any) -> Any:
    """Return a copy of a nested state in which torch tensors replace arrays.

    The method `load_state_dict` of torch takes such a state.
    """
    import torch

    if isinstance(value, np.ndarray):
        return torch.tensor(value)
    if isinstance(value, dict):
        return {key: convert_arrays_to_tensors(entry) for key, entry in value.items()}
    return (
        [convert_arrays_to_tensors(entry) for entry in value] if isinstance(value, list) else value
    )


CHECKPOINT = "checkpoint.safetensors"
LIMIT_SETTINGS = ("generations", "rounds", "minutes", "teacher_minutes")
"""Settings that only limit the length of a run. The command that continues a run may change them.
"""
NONE, MOST_DIFFERENCES, LONGEST_VALUE = "none", 3, 60
PACKAGES = ("numpy", "numba", "torch", "cma", "gymnasium")


class RunError(RuntimeError):
    """Error that a run cannot start or continue; the message names folder and reason."""


def read_or_measure_observation_units(folder: Path, environment: str) -> Units:
    """Return the offsets and scales by which a run normalises readings.

    For a new run they are measured in episodes of the environment. For a run that is continued they
    are read from its folder.

    Args:
        folder: The run's folder.
        environment: The gymnasium id.

    Raises:
        ValueError: The environment cannot be made.
        BrokenEnvironmentError: No episode can be played.
    """
    if (folder / CHECKPOINT).exists():
        try:
            config = json.loads(read_regular_file(folder / "config.json"))
            return Units.from_task(Task.from_header(config["task"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):  # `RunFolder` reports it
            return UNSCALED
    return measure_units(environment)


class RunFolder:
    """Folder with the files of one training run.

    The constructor writes nothing.

    Args:
        path: The folder.
        config: The run's settings, for `config.json`.
        resume: Whether only a run that exists may be continued; it is then an error if the folder
            holds none.
        get_setting_name_for_user: Function that returns the user's name of a setting, such as
            "--popsize" for "settings.population".

    Raises:
        RunError: The folder holds a run with other settings, or none although `resume` is set.
    """

    def __init__(
        self,
        path: Path,
        config: Mapping[str, Any],
        resume: bool = False,
        get_setting_name_for_user: Callable[[str], str] = str,
    ) -> None:
        self.path = path
        self._name_setting = get_setting_name_for_user
        self._config = json.loads(json.dumps(config))
        self._known = self._read_config()
        saved = (path / CHECKPOINT).exists()
        if resume and (self._known is None or not saved):
            raise RunError(f"{path}: there is no run to resume")
        if self._known is None or drop_settings_changeable_on_resume(
            self._known
        ) == drop_settings_changeable_on_resume(self._config):
            return
        if saved or "versions" not in self._known:
            raise RunError(
                f"{path}: holds a run with other settings ({self._describe_changed_settings()});"
                " use another folder"
            )
        self._known = None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder against other processes while the block of the `with` statement runs.

        The folder is created if needed. While it is locked, text that environments print is written
        to a file in the folder.

        Raises:
            RunError: Another process works in the folder, or it cannot be created.
        """
        with ExitStack() as stack:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                stack.enter_context(lock_folder(self.path))
            except BlockingIOError:
                what = "another process is working in this folder"
                raise RunError(f"{self.path}: {what}") from None
            except OSError as error:
                raise RunError(f"{self.path}: {error.strerror}") from error
            stack.enter_context(OUTPUT.save_to_folder(self.path))
            yield

    def write_settings_and_metrics(self, metrics: Sequence[Mapping[str, Any]]) -> None:
        """Write the files `config.json`, with the run's settings, and `metrics.jsonl`.

        Args:
            metrics: The metrics of each step so far, by name; each step becomes a line.
        """
        known = (self._known or {}).get("versions") or find_package_versions()
        self.write_file(
            "config.json", json.dumps({**self._config, "versions": known}, indent=2) + "\n"
        )
        self.write_file("metrics.jsonl", "".join(json.dumps(line) + "\n" for line in metrics))

    def write_file(self, name: str, content: str | bytes) -> None:
        """Write a file of the folder. If that fails, the file keeps its old content.

        Args:
            name: Name of the file.
            content: The new content.

        Raises:
            RunError: The file cannot be written.
        """
        path = self.path / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, content)
        except OSError as error:
            raise RunError(f"{path}: {error.strerror}") from error

    def read_file(self, name: str) -> bytes:
        """Return the content of a file of the folder.

        Raises:
            RunError: The file cannot be read.
        """
        path = self.path / name
        try:
            return read_regular_file(path)
        except (OSError, ValueError) as error:
            raise RunError(f"{path}: {describe_read_error(error)}") from error

    def save_checkpoint(self, state: Mapping[str, Any]) -> None:
        """Write a state as the run's checkpoint; see `pack_checkpoint` for the allowed content."""
        self.write_file(CHECKPOINT, pack_checkpoint(dict(state)))

    def load_checkpoint(self) -> dict[str, Any] | None:
        """Return the state in the run's checkpoint, or None if there is no checkpoint."""
        if not (self.path / CHECKPOINT).exists():
            return None
        try:
            return unpack_checkpoint(self.read_file(CHECKPOINT))
        except CheckpointError as error:
            raise RunError(f"{self.path / CHECKPOINT}: {error}") from error

    def read_metrics_of_first_steps(self, steps: int) -> list[dict[str, Any]]:
        """Return the metrics of the first `steps` steps of the run, from `metrics.jsonl`.

        The file may also hold metrics of later steps, which were made after the checkpoint was
        saved. A resumed run makes these steps again.

        Args:
            steps: Number of steps whose metrics are returned.

        Raises:
            RunError: The file cannot be read, or is damaged.
        """
        if not steps:
            return []
        try:
            kept = self.read_file("metrics.jsonl").decode().splitlines()[:steps]
            return [json.loads(line) for line in kept]
        except ValueError as error:
            raise RunError(f"{self.path / 'metrics.jsonl'}: {error}") from error

    def append_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Append the metrics of one step to `metrics.jsonl`."""
        path = self.path / "metrics.jsonl"
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(metrics) + "\n")
        except OSError as error:
            raise RunError(f"{path}: {error.strerror}") from error

    def _describe_changed_settings(self) -> str:
        """Return a text that says how the given settings differ from those in `config.json`."""
        there, asked = (
            dict(_flatten_settings(drop_settings_changeable_on_resume(one)))
            for one in (self._known or {}, self._config)
        )
        changed: dict[str, str] = {}  # by the user's name, which several settings may share
        for key in there | asked:
            values = there.get(key, NONE), asked.get(key, NONE)
            if values[0] != values[1]:
                changed.setdefault(self._name_setting(key), _describe_setting_values(*values))
        said = [f"{name} {values}" for name, values in changed.items()][:MOST_DIFFERENCES]
        more = len(changed) - len(said)
        return "; ".join(said) + (f"; and {more} more" if more else "")

    def _read_config(self) -> dict[str, Any] | None:
        """Return the settings in the folder's `config.json`, or None if there is no such file."""
        if not (self.path / "config.json").exists():
            return None
        try:
            config: dict[str, Any] = json.loads(self.read_file("config.json"))
        except ValueError as error:
            raise RunError(f"{self.path / 'config.json'}: {error}") from error
        return config


def drop_settings_changeable_on_resume(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's settings without those that may be changed when the run is continued.

    These are the limits of its length, such as "rounds" and "minutes", and the package versions.

    Args:
        config: Content of `config.json`.
    """
    decisive = {name: value for name, value in config.items() if name != "versions"}
    if isinstance(settings := decisive.get("settings"), dict):
        decisive["settings"] = {k: v for k, v in settings.items() if k not in LIMIT_SETTINGS}
    return decisive


def _flatten_settings(part: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield a pair for each setting in nested dicts: its name, and its value as JSON.

    A name contains the keys of all nested dicts, such as "settings.streams.noise".
    """
    if not isinstance(part, Mapping):
        yield name, json.dumps(part)
        return
    for key, value in part.items():
        yield from _flatten_settings(value, f"{name}.{key}" if name else key)


def _describe_setting_values(there: str, asked: str) -> str:
    """Return how a setting's value in a folder, as JSON, differs from the one that was asked for.

    Two values that are too long to show are not shown.
    """
    if min(len(there), len(asked)) > LONGEST_VALUE:
        return "is another"
    return f"is {_shorten_setting_value(there)}, not {_shorten_setting_value(asked)}"


def _shorten_setting_value(text: str) -> str:
    """Return a setting's text for a message, shortened in the middle if it is too long."""
    half = LONGEST_VALUE // 2
    return text if len(text) <= LONGEST_VALUE else f"{text[:half]} ... {text[-half:]}"


def find_package_versions() -> dict[str, str]:
    """Return the versions of Python, this package, and packages that affect a run's results."""
    found = {"an_control": an_control.__version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


E = TypeVar("E", bound=Any)


class EpisodeRecordings(Generic[E]):
    """Reader and writer of recorded episodes in a run's folder, with one npz file per recording.

    Args:
        folder: The run's folder.
        kind: NamedTuple type of an episode; its fields are arrays (T, ...) or numbers.

    Raises:
        RunError: A file cannot be written or read, or has other fields. The methods
            `write_episodes` and `read_episodes` raise this, not the constructor.
    """

    def __init__(self, folder: Path, kind: type[E]) -> None:
        self._folder, self._kind = folder, kind

    def write_episodes(self, recording_number: int, episodes: Sequence[E]) -> None:
        """Write the episodes of one recording.

        Args:
            recording_number: Number of the recording, by which its file is found.
            episodes: The episodes.
        """
        arrays: dict[str, np.ndarray] = {}
        for name, column in zip(self._kind._fields, zip(*episodes, strict=True), strict=True):
            if isinstance(column[0], np.ndarray):
                arrays[f"{name}.lengths"] = np.array([len(part) for part in column])
                arrays[name] = np.concatenate(column)
            else:
                arrays[name] = np.array(column)
        content = io.BytesIO()
        np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
        path = self._make_path(recording_number)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, content.getvalue())
        except OSError as error:
            raise RunError(f"{path}: {error.strerror}") from error

    def read_episodes(self, recording_number: int) -> list[E]:
        """Return the episodes of the recording with this number."""
        path = self._make_path(recording_number)
        try:
            with np.load(io.BytesIO(read_regular_file(path))) as stored:
                columns = [
                    self._read_field_of_episodes(stored, name) for name in self._kind._fields
                ]
        except (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error) as error:
            raise RunError(f"{path}: {describe_read_error(error)}") from error
        return [self._kind(*parts) for parts in zip(*columns, strict=True)]

    def _make_path(self, recording_number: int) -> Path:
        """Return the path of the file of the recording with this number."""
        return self._folder / f"episodes_{recording_number:03}.npz"

    @staticmethod
    def _read_field_of_episodes(stored: Any, name: str) -> list[Any]:
        """Return the values of one field, one for each episode in a file."""
        if f"{name}.lengths" not in stored:
            numbers: list[Any] = stored[name].tolist()
            return numbers
        return np.split(stored[name], np.cumsum(stored[f"{name}.lengths"])[:-1])
