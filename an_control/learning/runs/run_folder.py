"""A run's folder: what it was asked to do, what it did, and how to continue it.

    config.json             settings, seed, task, versions
    metrics.jsonl           one line a step
    checkpoint.safetensors  the whole state after the newest saved step
    model.safetensors       the policy, model.md its card, curve.png the learning curve
    tensorboard/            the metrics, where tensorboard is installed
    environment.log         what the environment printed, and the tracebacks of its errors

Every file is written whole or not at all, so that a run that is stopped at any moment leaves its
last checkpoint whole. The same command continues the run of its folder, also with another limit
(`LIMITS`); a folder that holds a run with other settings is refused. What never reached a
checkpoint is no run.

A checkpoint's file format: arrays, numbers and text, nested in dicts and lists.

The file is a safetensors file. Its arrays are numbered; the header holds the rest as JSON, with
`{"array": number}` in an array's place. Reading one runs no code.

What the steps of a run recorded: `episodes_NNN.npz` in its folder, one file a step.
"""

from __future__ import annotations

import io
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

import an_control
from an_control.system.environment_output import OUTPUT
from an_control.system.files import lock_folder, read_regular, write_file
from an_control_sim.gym.probe import measured_units
from an_control_sim.gym.units import AS_THEY_ARE, Units

HEADER = "state"
ARRAY = "array"


class CheckpointError(ValueError):
    """Bytes that hold no checkpoint; the message says why."""


def pack(state: dict[str, Any]) -> bytes:
    """The bytes of a state; torch's tensors are stored as arrays. TypeError for other objects."""
    arrays: dict[str, np.ndarray] = {}

    def plain(value: Any) -> Any:
        if hasattr(value, "detach"):
            value = value.detach().cpu().numpy()
        if isinstance(value, np.ndarray):
            name = str(len(arrays))
            arrays[name] = np.array(value, order="C")
            return {ARRAY: name}
        if isinstance(value, dict):
            return {"items": [[plain(key), plain(entry)] for key, entry in value.items()]}
        if isinstance(value, list | tuple):
            return [plain(entry) for entry in value]
        return value.item() if isinstance(value, np.generic) else value

    header = json.dumps(plain(state))
    return save(arrays, {HEADER: header})


def unpack(content: bytes) -> dict[str, Any]:
    """The state that `pack` was given: arrays are numpy's, tuples lists. CheckpointError."""
    try:
        arrays = load(content)
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])["__metadata__"][HEADER]
        state: dict[str, Any] = _nested(json.loads(header), arrays)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"not a checkpoint: {error}") from error
    return state


def _nested(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_nested(entry, arrays) for entry in value]
    if not isinstance(value, dict):
        return value
    if ARRAY in value:
        return arrays[value[ARRAY]]
    return {_nested(key, arrays): _nested(entry, arrays) for key, entry in value["items"]}


def as_tensors(value: Any) -> Any:
    """The same state with torch's tensors in place of arrays, as `load_state_dict` takes them."""
    import torch

    if isinstance(value, np.ndarray):
        return torch.tensor(value)
    if isinstance(value, dict):
        return {key: as_tensors(entry) for key, entry in value.items()}
    return [as_tensors(entry) for entry in value] if isinstance(value, list) else value


CHECKPOINT = "checkpoint.safetensors"
LIMITS = ("generations", "rounds", "minutes", "teacher_minutes")
"""Settings that say how long a run takes, which the command that continues it may change."""
NONE, MOST_DIFFERENCES, LONGEST_VALUE = "none", 3, 60
PACKAGES = ("numpy", "numba", "torch", "cma", "gymnasium")


class RunError(RuntimeError):
    """A run that cannot begin or continue; the message names the folder and the reason."""


def units_of_run(folder: Path, environment: str) -> Units:
    """Return the units of the run in this folder, or of one that is to begin there.

    ValueError as of `make_environment`, BrokenEnvironmentError where no episode can be played.
    """
    if (folder / CHECKPOINT).exists():
        try:
            return Units.of_task(json.loads(read_regular(folder / "config.json"))["task"])
        except (OSError, ValueError, KeyError, TypeError):  # which `RunFolder` reports
            return AS_THEY_ARE
    return measured_units(environment)


class RunFolder:
    """One run's files; nothing is written before `begin`.

    RunError where the folder holds another run, or where it holds none and `resume` asks for one.
    What never reached a checkpoint is no run.
    """

    def __init__(self, path: Path, config: Mapping[str, Any], resume: bool = False) -> None:
        self.path = path
        self._config = json.loads(json.dumps(config))
        self._known = self._read_config()
        saved = (path / CHECKPOINT).exists()
        if resume and (self._known is None or not saved):
            raise RunError(f"{path}: there is no run to resume")
        if self._known is None or without_limits(self._known) == without_limits(self._config):
            return
        if saved or "versions" not in self._known:
            raise RunError(
                f"{path}: holds a run with other settings ({self._differences()});"
                " take another folder"
            )
        self._known = None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes out; RunError where one works in this folder.

        The folder is made where it is missing. What environments print meanwhile is kept in it.
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
            stack.enter_context(OUTPUT.saved_to(self.path))
            yield

    def begin(self, metrics: Sequence[Mapping[str, Any]]) -> None:
        """Write the settings, and the metrics lines that are kept of the run so far."""
        known = (self._known or {}).get("versions") or versions()
        self.write("config.json", json.dumps({**self._config, "versions": known}, indent=2) + "\n")
        self.write("metrics.jsonl", "".join(json.dumps(line) + "\n" for line in metrics))

    def write(self, name: str, content: str | bytes) -> None:
        """Put a file into its place, whole; RunError where the disk refuses."""
        path = self.path / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, content)
        except OSError as error:
            raise RunError(f"{path}: {error.strerror}") from error

    def read(self, name: str) -> bytes:
        """What a file holds; RunError where it cannot be read."""
        path = self.path / name
        try:
            return read_regular(path)
        except (OSError, ValueError) as error:
            raise RunError(f"{path}: {error}") from error

    def checkpoint(self, state: Mapping[str, Any]) -> None:
        """Save the state: arrays, tensors, numbers and text in dicts and lists."""
        self.write(CHECKPOINT, pack(dict(state)))

    def last_checkpoint(self) -> dict[str, Any] | None:
        """The state that was saved last, None where there is none yet."""
        if not (self.path / CHECKPOINT).exists():
            return None
        try:
            return unpack(self.read(CHECKPOINT))
        except CheckpointError as error:
            raise RunError(f"{self.path / CHECKPOINT}: {error}") from error

    def metrics(self, lines: int) -> list[dict[str, Any]]:
        """The first `lines` of the metrics; a resumed run makes the others again."""
        if not lines:
            return []
        kept = self.read("metrics.jsonl").decode().splitlines()[:lines]
        return [json.loads(line) for line in kept]

    def add_metrics(self, line: Mapping[str, Any]) -> None:
        """Append one line."""
        path = self.path / "metrics.jsonl"
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise RunError(f"{path}: {error.strerror}") from error

    def _differences(self) -> str:
        """The settings in which the folder's run differs from the one that is asked for."""
        there, asked = (
            dict(_leaves(without_limits(one))) for one in (self._known or {}, self._config)
        )
        names = [name for name in there | asked if there.get(name, NONE) != asked.get(name, NONE)]
        said = [
            f"{name} is {_short(there.get(name, NONE))}, not {_short(asked.get(name, NONE))}"
            for name in names[:MOST_DIFFERENCES]
        ]
        more = len(names) - len(said)
        return "; ".join(said) + (f"; and {more} more" if more else "")

    def _read_config(self) -> dict[str, Any] | None:
        if not (self.path / "config.json").exists():
            return None
        try:
            config: dict[str, Any] = json.loads(self.read("config.json"))
        except ValueError as error:
            raise RunError(f"{self.path / 'config.json'}: {error}") from error
        return config


def without_limits(config: Mapping[str, Any]) -> dict[str, Any]:
    """What of a run's settings must be the same when it is continued."""
    decisive = {name: value for name, value in config.items() if name != "versions"}
    if isinstance(settings := decisive.get("settings"), dict):
        decisive["settings"] = {k: v for k, v in settings.items() if k not in LIMITS}
    return decisive


def _leaves(part: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Each value that is no mapping, as JSON, by its name: settings.streams.noise."""
    if not isinstance(part, Mapping):
        yield name, json.dumps(part)
        return
    for key, value in part.items():
        yield from _leaves(value, f"{name}.{key}" if name else key)


def _short(text: str) -> str:
    """The beginning and the end of a text that is longer than a message can show."""
    half = LONGEST_VALUE // 2
    return text if len(text) <= LONGEST_VALUE else f"{text[:half]} ... {text[-half:]}"


def versions() -> dict[str, str]:
    """Of this code, of Python, and of the packages that decide a run's bits."""
    found = {"an_control": an_control.__version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


E = TypeVar("E", bound=Any)


class Recordings(Generic[E]):
    """Episodes of one NamedTuple `kind`, whose fields are arrays (T, ...) or numbers.

    RunError where the disk refuses, or a file does not hold such episodes.
    """

    def __init__(self, folder: Path, kind: type[E]) -> None:
        self._folder, self._kind = folder, kind

    def write(self, number: int, episodes: Sequence[E]) -> None:
        """Put the episodes of step `number` into its file, whole."""
        arrays: dict[str, np.ndarray] = {}
        for name, column in zip(self._kind._fields, zip(*episodes, strict=True), strict=True):
            if isinstance(column[0], np.ndarray):
                arrays[f"{name}.lengths"] = np.array([len(part) for part in column])
                arrays[name] = np.concatenate(column)
            else:
                arrays[name] = np.array(column)
        content = io.BytesIO()
        np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
        path = self._path(number)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, content.getvalue())
        except OSError as error:
            raise RunError(f"{path}: {error.strerror}") from error

    def read(self, number: int) -> list[E]:
        """The episodes of step `number`."""
        path = self._path(number)
        try:
            with np.load(io.BytesIO(read_regular(path))) as stored:
                columns = [self._column(stored, name) for name in self._kind._fields]
        except (OSError, ValueError, KeyError) as error:
            raise RunError(f"{path}: {error}") from error
        return [self._kind(*parts) for parts in zip(*columns, strict=True)]

    def _path(self, number: int) -> Path:
        return self._folder / f"episodes_{number:03}.npz"

    @staticmethod
    def _column(stored: Any, name: str) -> list[Any]:
        if f"{name}.lengths" not in stored:
            numbers: list[Any] = stored[name].tolist()
            return numbers
        return np.split(stored[name], np.cumsum(stored[f"{name}.lengths"])[:-1])
