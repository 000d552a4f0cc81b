"""Experiments that are a list of command lines, run one after the other.

A step is skipped if its command, the models and recipes that it reads, and the file that it makes
are unchanged since it last succeeded; `runs/NAME/done.json` records this. A command that was
stopped is run again, and resumes where it can.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from an_control.system.files import write_file

READ = (".safetensors", ".yaml")
"""Suffixes of the files on which the result of a command depends."""


@dataclass(frozen=True)
class ExperimentStep:
    """A step of an experiment: a command line, and the file or folder that it makes.

    Attributes:
        makes: The file or folder that exists once the command has succeeded.
        command: The command line as in a shell; `an-control` and `python` stand for the command and
            the interpreter of this environment.
    """

    makes: str
    command: str

    @property
    def command_words(self) -> list[str]:
        """The words of the command line."""
        return shlex.split(self.command)

    @property
    def input_files(self) -> list[str]:
        """The paths of the models and YAML files in the command: the inputs of the step."""
        return [word for word in self.command_words if word.endswith(READ) and word != self.makes]

    def run(self) -> int:
        """Run the command and return its exit status; at Ctrl-C, wait for the command to end."""
        Path(self.makes).parent.mkdir(parents=True, exist_ok=True)
        program, *rest = self.command_words
        programs = {"an-control": ["-m", "an_control"], "python": []}
        with subprocess.Popen([sys.executable, *programs[program], *rest]) as process:
            try:
                return process.wait()
            except KeyboardInterrupt:
                return process.wait()

    def hash_inputs(self) -> dict[str, Any]:
        """Return the command and the hashes of its input files.

        They are stored when the step is done; if they have changed since then, it is run again.
        """
        return {
            "command": self.command,
            "reads": {path: _hash_file(path) for path in self.input_files},
        }


class DoneSteps:
    """The file that lists which steps of an experiment have succeeded.

    Args:
        path: The file; it need not exist.

    Raises:
        ValueError: The file exists, but is not a list of done steps.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._records: dict[str, Any] = {}
        if path.exists():
            try:
                self._records = dict(json.loads(path.read_text()))
            except (TypeError, ValueError) as error:
                raise ValueError(f"{path}: not a record of steps; delete it") from error

    def __contains__(self, step: ExperimentStep) -> bool:
        return Path(step.makes).exists() and self._records.get(step.command) == step.hash_inputs()

    def add(self, step: ExperimentStep) -> None:
        """Record in the file that a step has succeeded."""
        self._records[step.command] = step.hash_inputs()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_file(self._path, json.dumps(self._records, indent=1) + "\n")

    def remove(self, steps: Sequence[ExperimentStep]) -> None:
        """Remove these steps from the file, so that they are run again."""
        for step in steps:
            self._records.pop(step.command, None)
        if self._path.exists():
            write_file(self._path, json.dumps(self._records, indent=1) + "\n")


def _hash_file(path: str) -> str | None:
    """Return the SHA-256 of a file, or None if it does not exist."""
    file = Path(path)
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None


def make_step_parser(description: str | None) -> argparse.ArgumentParser:
    """Create the command-line parser of an experiment that consists of steps (command lines)."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    add_step_options(parser)
    return parser


def add_step_options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options that `run_steps` needs: `--list` and `--again`.

    `--list` only shows the steps (command lines) of the experiment. `--again` also runs the steps
    that are already done.
    """
    parser.add_argument("--list", action="store_true", help="only show the command lines")
    parser.add_argument("--again", action="store_true", help="run the steps that are done again")


def add_smoke_option(parser: argparse.ArgumentParser) -> None:
    """Add the option `--smoke` for a short test run to a command-line parser."""
    parser.add_argument(
        "--smoke", action="store_true", help="only test a few short steps, in runs/smoke"
    )


def run_steps(folder: Path, steps: Sequence[ExperimentStep], options: argparse.Namespace) -> int:
    """Run the steps of an experiment that are not done, up to the first failure.

    The file done.json in the folder lists the steps that are done. `options` has the values of the
    options that `add_step_options` adds.

    Returns:
        The exit status: 0, or that of the command that failed.
    """
    done = DoneSteps(folder / "done.json")
    if options.again and not options.list:
        done.remove(steps)
    for number, step in enumerate(steps, start=1):
        there = step in done
        state = "  (done)" if there else ""
        print(f"{number}/{len(steps)}  {step.command}{state}", flush=True)
        if there or options.list:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        if status := step.run():
            print(f"step {number} ended with status {status}; the same command continues there")
            return status
        done.add(step)
    return 0
