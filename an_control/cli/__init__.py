"""The command line ``an-control VERB``, with a module for each verb, or for several like ones.

A module is imported only when its verb is called. It defines a dataclass, such as ``SimCommand``,
which `an_control.cli.verbs` finds. The package tyro makes the arguments of the verb from the fields
of the dataclass, and the help text from its docstring. The method ``run()`` does the work and
returns the exit status, which is 0 for success, 1 for failure and 2 for bad input.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import an_control.system.threads  # noqa: F401
from an_control import __version__
from an_control.cli.common import (
    InputError,
    WorkError,
    check_writable_outputs,
    replace_model_names_by_paths,
)
from an_control.cli.help import SHELLS, VERBS, describe_unknown_verb, format_usage, parse_arguments
from an_control.cli.verbs import load_verb_class, print_shell_completion
from an_control.learning.runs.progress import RunStoppedError
from an_control.policy.model_file import ModelError
from an_control.system.compilation import report_compilations_in_block
from an_control.system.environment_output import OUTPUT, BrokenEnvironmentError
from an_control.system.files import WriteError
from an_control.system.interrupts import INTERRUPTED, allow_interrupts
from an_control.wiring import WiringError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `an-control` and return its exit status.

    Args:
        arguments: The verb (subcommand) and its arguments, such as ["sim", "ant"]; None for those
            in `sys.argv`.

    Returns:
        0 if the work is done, 1 if it failed, 2 for bad input, or 128 plus a signal's number.
    """
    first, *rest = (sys.argv[1:] if arguments is None else list(arguments)) or [""]
    if first in VERBS:
        return run_verb(lambda: load_verb_class(first), f"an-control {first}", rest)
    return _run_and_report_errors("an-control", lambda: _handle_call_without_verb(first, rest))


def run_verb(load_verb: Callable[[], type[Any]], prog: str, arguments: Sequence[str]) -> int:
    """Run one verb (subcommand) of `an-control` with its arguments and return the exit status.

    Args:
        load_verb: Function that imports and returns the verb's dataclass, such as `SimCommand`. An
            import error that it raises is reported like other errors.
        prog: Name of the program in messages, such as ``an-control sim``.
        arguments: Arguments of the verb, without its name.
    """

    def print_message(text: str) -> None:
        """Print a text on standard error, preceded by the name of the program."""
        with OUTPUT.suspend_capture():  # an environment that is imported may be compiled
            print(f"{prog}: {text}", file=sys.stderr)

    def run() -> int:
        """Parse the arguments, check the output paths, run the verb and return its exit status."""
        work = replace_model_names_by_paths(parse_arguments(load_verb(), prog, arguments))
        check_writable_outputs(work)
        with allow_interrupts(), report_compilations_in_block(print_message):
            status: int = work.run()
            sys.stdout.flush()
        return status

    return _run_and_report_errors(prog, run)


def _handle_call_without_verb(first: str, rest: Sequence[str]) -> int:
    """Handle a call of `an-control` whose first argument is no verb; return the exit status."""
    if first in ("-h", "--help"):
        print(format_usage())
    elif first == "--version":
        print(f"an_control {__version__}")
    elif first == "--completion":
        if not rest or rest[0] not in SHELLS:
            raise InputError(f"--completion {' '.join(rest)}: must be {', '.join(SHELLS)}")
        print_shell_completion(rest[0])
    else:
        print(
            f"an-control: {describe_unknown_verb(first)}" if first else format_usage(),
            file=sys.stderr,
        )
        return 2
    return 0


def _run_and_report_errors(prog: str, work: Callable[[], int]) -> int:
    """Call a function and return its exit status, or the status for the error that it raises.

    An expected error, such as bad input, is printed on standard error in one line, without a
    traceback.
    """
    try:
        with OUTPUT.print_remaining_notes_at_end():
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
        if not _try_discard_unread_output():
            raise
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _discard_output()
        print(f"{prog}: {error.strerror}", file=sys.stderr)
        return 1


def _try_discard_unread_output() -> bool:
    """Redirect standard output to /dev/null if nobody reads it any more; return whether it did.

    That is the case if standard output is a pipe whose reader has ended, such as `head` once it has
    enough lines.
    """
    try:
        output = sys.stdout.fileno()
    except (OSError, ValueError):
        return False
    pipe = select.poll()
    pipe.register(output, 0)
    gone = any(event & select.POLLERR for _, event in pipe.poll(0))
    if gone:
        _discard_output()
    return gone


def _discard_output() -> None:
    """Redirect standard output to /dev/null, so that Python does not try to write it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
