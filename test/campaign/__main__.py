"""``python -m campaign faults|soak``, with this package's folder on PYTHONPATH (see Makefile)."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from an_control.cli import run_verb
from campaign import faults_command, soak_command

COMMANDS = {"faults": faults_command.FaultsCommand, "soak": soak_command.SoakCommand}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the commands; returns the exit status."""
    command, *rest = (sys.argv[1:] if arguments is None else list(arguments)) or [""]
    if command not in COMMANDS:
        print(f"usage: python -m campaign {'|'.join(COMMANDS)} [--help]", file=sys.stderr)
        return 2
    return run_verb(lambda: COMMANDS[command], f"python -m campaign {command}", rest)


if __name__ == "__main__":
    sys.exit(main())
