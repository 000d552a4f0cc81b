"""The command line ``an-control VERB``: one module a verb, imported only when it is called.

The module of a verb defines a dataclass, such as ``SimCommand``, which `an_control.cli.verbs`
finds: its fields are the arguments (tyro), its docstring is the help text, and its ``run()`` does
the work and returns the exit status: 0 done, 1 failed, 2 bad input.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import an_control.system.threads  # noqa: F401
from an_control import __version__
from an_control.cli.common import InputError, WorkError, check_outputs
from an_control.cli.help import SHELLS, VERBS, parse, unknown_verb, usage
from an_control.cli.verbs import completion, verb_class
from an_control.learning.runs.progress import RunStoppedError
from an_control.policy.model_file import ModelError
from an_control.system.compilation import report_compilation
from an_control.system.environment_output import OUTPUT, BrokenEnvironmentError
from an_control.system.files import WriteError
from an_control.system.interrupts import INTERRUPTED, interruptible
from an_control.wiring import WiringError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit status.

    Args:
        arguments: The verb and its arguments; None: those of the command line.
    """
    first, *rest = (sys.argv[1:] if arguments is None else list(arguments)) or [""]
    if first in VERBS:
        return run_verb(lambda: verb_class(first), f"an-control {first}", rest)
    return _run_reporting_errors("an-control", lambda: _answer_without_verb(first, rest))


def run_verb(verb: Callable[[], type[Any]], prog: str, arguments: Sequence[str]) -> int:
    """Run a verb and return the exit status.

    Args:
        verb: Returns the verb's dataclass.
        prog: The name of the program in messages, such as ``an-control sim``.
        arguments: The arguments of the verb.
    """

    def say(text: str) -> None:
        print(f"{prog}: {text}", file=sys.stderr)

    def run() -> int:
        work = parse(verb(), prog, arguments)
        check_outputs(work)
        with interruptible(), report_compilation(say):
            status: int = work.run()
            sys.stdout.flush()
        return status

    return _run_reporting_errors(prog, run)


def _answer_without_verb(first: str, rest: Sequence[str]) -> int:
    """Answer a call of `an-control` without a verb; return the exit status."""
    if first in ("-h", "--help"):
        print(usage())
    elif first == "--version":
        print(f"an_control {__version__}")
    elif first == "--completion":
        if not rest or rest[0] not in SHELLS:
            raise InputError(f"--completion {' '.join(rest)}: must be {', '.join(SHELLS)}")
        completion(rest[0])
    else:
        print(f"an-control: {unknown_verb(first)}" if first else usage(), file=sys.stderr)
        return 2
    return 0


def _run_reporting_errors(prog: str, work: Callable[[], int]) -> int:
    """Run `work` and return its exit status; print the error that ends it in one line."""
    try:
        with OUTPUT.reported():
            try:
                return work()
            finally:
                sys.stdout.flush()
    except (InputError, ModelError, WiringError) as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 2
    except (WorkError, WriteError, BrokenEnvironmentError) as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 1
    except RunStoppedError:
        return INTERRUPTED
    except KeyboardInterrupt:
        print(f"{prog}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        if not _close_unread_output():
            raise
        return 128 + signal.SIGPIPE


def _close_unread_output() -> bool:
    """Return whether standard output is a pipe whose reader has gone, and close it if so.

    The reader may be a program such as `head` that has ended.
    """
    try:
        output = sys.stdout.fileno()
    except (OSError, ValueError):
        return False
    pipe = select.poll()
    pipe.register(output, 0)
    gone = any(event & select.POLLERR for _, event in pipe.poll(0))
    if gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return gone
