"""The command line: ``an-control VERB``, one module a verb, imported only when it is called.

A verb's module defines a dataclass ``Verb``: its fields are the arguments (tyro), its docstring
the help, its ``run()`` the work, returning the exit status: 0 done, 1 failed, 2 bad input.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import tyro

import an_control.threads  # noqa: F401
from an_control.files import WriteError, write_whole
from an_control.policy.model_file import ModelError
from an_control.start import INTERRUPTED, interruptible
from an_control.wiring import WiringError

VERBS = {
    "sim": "a simulator and the policy node as ROS 2 nodes, in lockstep",
    "run": "the policy node alone, for a robot",
    "rewire": "tell a running policy node where its channels come from now",
    "evaluate": "a model's returns without ROS, by the paper's protocols",
    "train": "search for a policy by its return: CMA-ES or PGPE, any gymnasium environment",
    "teach": "improve a task's ordered teacher by its return: PPO",
    "distill": "teach a permutation-invariant policy what a teacher does",
    "foresee": "teach a model's monitor what its channels will read next",
    "examine": "how soon a policy knows its channels, and how it does without each",
    "inspect": "what a model file holds",
    "import-authors": "a model file from the AttentionNeuron authors' weights",
    "campaign": "break what feeds and surrounds the policy node, and measure the wire",
    "soak": "many ticks under random faults: does anything grow or slow down?",
    "bench": "measure inference or ROS latency and speed here",
}


class InputError(ValueError):
    """Bad input to a verb: ends it with exit status 2 and this one line."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0 if arguments else 2
    verb, *rest = arguments
    if verb not in VERBS:
        print(f"an-control: unknown verb {verb!r}\n\n{usage()}", file=sys.stderr)
        return 2
    try:
        module = importlib.import_module(f"an_control.cli.{verb.replace('-', '_')}")
        work = tyro.cli(module.Verb, prog=f"an-control {verb}", args=rest)
        with interruptible():
            status: int = work.run()
            sys.stdout.flush()
        return status
    except (InputError, ModelError, WiringError) as error:
        print(f"an-control {verb}: {error}", file=sys.stderr)
        return 2
    except WriteError as error:
        print(f"an-control {verb}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"an-control {verb}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        if not _nobody_reads():
            raise
        return 128 + signal.SIGPIPE


def _nobody_reads() -> bool:
    """Whether standard output is a pipe whose reader has gone, as `| head` does; then close it."""
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


def usage() -> str:
    """The list of verbs."""
    width = max(map(len, VERBS))
    lines = [f"  {verb:<{width}}  {what}" for verb, what in VERBS.items()]
    return "usage: an-control VERB ...   (an-control VERB --help)\n\n" + "\n".join(lines)


def command(verb: Any, name: str) -> str:
    """The command line of these arguments, where they differ from the verb's defaults."""
    first, *others = fields(verb)
    words = ["an-control", name, str(getattr(verb, first.name))]
    for field in others:
        value, option = getattr(verb, field.name), field.name.replace("_", "-")
        if field.name in ("resume", "json") or value == field.default:
            continue
        if isinstance(field.default, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        else:
            words += [f"--{option}", *map(str, value if isinstance(value, tuple) else [value])]
    return shlex.join(words)


def write_json(path: Path | None, result: dict[str, Any]) -> None:
    """Write a verb's result where ``--json`` asked for it; InputError where that cannot be."""
    if path is None:
        return
    try:
        write_whole(path, json.dumps(result, indent=2) + "\n")
    except WriteError as error:
        raise InputError(f"--json {error}") from error
