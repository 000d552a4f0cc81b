"""Find the dataclass of each verb of `an-control`, and import it only when it is used."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import tyro

from an_control.cli.help import VERBS, add_help_texts


def load_verb_class(verb: str) -> type[Any]:
    """Import a verb's module and return the verb's dataclass.

    Args:
        verb: Name of the verb, such as "sim".

    Raises:
        KeyError: There is no such verb.
    """
    match verb:
        case "sim":
            from an_control.cli.sim import SimCommand

            return SimCommand
        case "run":
            from an_control.cli.run import RunCommand

            return RunCommand
        case "new":
            from an_control.cli.new import NewCommand

            return NewCommand
        case "check":
            from an_control.cli.check import CheckCommand

            return CheckCommand
        case "view":
            from an_control.cli.view import ViewCommand

            return ViewCommand
        case "replay":
            from an_control.cli.replay import ReplayCommand

            return ReplayCommand
        case "status" | "estop" | "reset" | "shadow" | "activate" | "deactivate" | "rewire":
            from an_control.cli import operate

            return _get_verb_class(operate, verb)
        case "evaluate":
            from an_control.cli.evaluate import EvaluateCommand

            return EvaluateCommand
        case "bench":
            from an_control.cli.bench import BenchCommand

            return BenchCommand
        case "info" | "export" | "new-model" | "import" | "import-authors":
            from an_control.cli import models

            return _get_verb_class(models, verb)
        case (
            "learn" | "train" | "train-teacher" | "distill" | "train-monitor" | "record-excitation"
        ):
            from an_control.cli import train

            return _get_verb_class(train, verb)
        case _:
            raise KeyError(verb)


def _get_verb_class(module: ModuleType, verb: str) -> type[Any]:
    """Return a verb's dataclass from a module of several verbs, such as `TrainTeacherCommand`."""
    found: type[Any] = getattr(module, f"{verb.title().replace('-', '')}Command")
    return found


def print_shell_completion(shell: str) -> None:
    """Print the script with which a shell completes the verbs and their options.

    Args:
        shell: One of `SHELLS`: bash, zsh or fish.
    """
    tyro.extras.subcommand_cli_from_dict(
        {verb: add_help_texts(load_verb_class(verb)) for verb in VERBS},
        prog="an-control",
        args=["--tyro-print-completion", shell],
    )
