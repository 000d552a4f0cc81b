"""Find the dataclass of each verb of `an-control`, and import it only when it is used."""

from __future__ import annotations

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
        case "export":
            from an_control.cli.export import ExportCommand

            return ExportCommand
        case "rewire":
            from an_control.cli.rewire import RewireCommand

            return RewireCommand
        case "status":
            from an_control.cli.operate import StatusCommand

            return StatusCommand
        case "estop":
            from an_control.cli.operate import EstopCommand

            return EstopCommand
        case "reset":
            from an_control.cli.operate import ResetCommand

            return ResetCommand
        case "shadow":
            from an_control.cli.operate import ShadowCommand

            return ShadowCommand
        case "activate":
            from an_control.cli.operate import ActivateCommand

            return ActivateCommand
        case "deactivate":
            from an_control.cli.operate import DeactivateCommand

            return DeactivateCommand
        case "evaluate":
            from an_control.cli.evaluate import EvaluateCommand

            return EvaluateCommand
        case "info":
            from an_control.cli.info import InfoCommand

            return InfoCommand
        case "bench":
            from an_control.cli.bench import BenchCommand

            return BenchCommand
        case "learn":
            from an_control.cli.learn import LearnCommand

            return LearnCommand
        case "train":
            from an_control.cli.train import TrainCommand

            return TrainCommand
        case "train-teacher":
            from an_control.cli.train_teacher import TrainTeacherCommand

            return TrainTeacherCommand
        case "distill":
            from an_control.cli.distill import DistillCommand

            return DistillCommand
        case "train-monitor":
            from an_control.cli.train_monitor import TrainMonitorCommand

            return TrainMonitorCommand
        case "record-excitation":
            from an_control.cli.record_excitation import RecordExcitationCommand

            return RecordExcitationCommand
        case "new-model":
            from an_control.cli.new_model import NewModelCommand

            return NewModelCommand
        case "import":
            from an_control.cli.import_policy import ImportCommand

            return ImportCommand
        case "import-authors":
            from an_control.cli.import_authors import ImportAuthorsCommand

            return ImportAuthorsCommand
        case _:
            raise KeyError(verb)


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
