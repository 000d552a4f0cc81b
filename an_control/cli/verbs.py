"""The verbs of `an-control`, each imported only when it is asked for."""

from __future__ import annotations

from typing import Any

import tyro

from an_control.cli.help import VERBS, described


def verb_class(verb: str) -> type[Any]:
    """Return the dataclass of a verb; its module is imported only now."""
    match verb:
        case "sim":
            from an_control.cli.sim import Verb as Sim

            return Sim
        case "run":
            from an_control.cli.run import Verb as Run

            return Run
        case "new":
            from an_control.cli.new import Verb as New

            return New
        case "check":
            from an_control.cli.check import Verb as Check

            return Check
        case "view":
            from an_control.cli.view import Verb as View

            return View
        case "rewire":
            from an_control.cli.rewire import Verb as Rewire

            return Rewire
        case "evaluate":
            from an_control.cli.evaluate import Verb as Evaluate

            return Evaluate
        case "info":
            from an_control.cli.info import Verb as Info

            return Info
        case "export":
            from an_control.cli.export import Verb as Export

            return Export
        case "bench":
            from an_control.cli.bench import Verb as Bench

            return Bench
        case "learn":
            from an_control.cli.learn import Verb as Learn

            return Learn
        case "train":
            from an_control.cli.train import Verb as Train

            return Train
        case "train-teacher":
            from an_control.cli.train_teacher import Verb as TrainTeacher

            return TrainTeacher
        case "distill":
            from an_control.cli.distill import Verb as Distill

            return Distill
        case "train-monitor":
            from an_control.cli.train_monitor import Verb as TrainMonitor

            return TrainMonitor
        case "new-model":
            from an_control.cli.new_model import Verb as NewModel

            return NewModel
        case "import":
            from an_control.cli.import_policy import Verb as Import

            return Import
        case "import-authors":
            from an_control.cli.import_authors import Verb as ImportAuthors

            return ImportAuthors
        case _:
            raise KeyError(verb)


def completion(shell: str) -> None:
    """Print the script by which `shell` completes the verbs and their options."""
    tyro.extras.subcommand_cli_from_dict(
        {verb: described(verb_class(verb)) for verb in VERBS},
        prog="an-control",
        args=["--tyro-print-completion", shell],
    )
