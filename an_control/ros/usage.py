"""What an executable answers to --help: its parameters as it declares them. ROS does not start."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from rcl_interfaces.msg import ParameterDescriptor

WIDTH = 100
ROS_ARGUMENTS = """\
ROS arguments, after --ros-args:
  -p NAME:=VALUE      set a parameter
  --params-file FILE  set parameters from a YAML file
  -r FROM:=TO         rename a topic or service; also __ns:=/ROBOT, __node:=NAME
  --log-level LEVEL   debug, info, warn, error or fatal
  --enclave NAME      the node's SROS2 enclave"""


class Declarations:
    """Takes a node's place while it declares its parameters, and keeps them."""

    def __init__(self) -> None:
        self.declared: dict[str, tuple[Any, ParameterDescriptor]] = {}

    def declare_parameter(self, name: str, value: Any, descriptor: ParameterDescriptor) -> Any:
        """As of a node, where nothing else was set."""
        self.declared[name] = value, descriptor
        return self.get_parameter(name)

    def get_parameter(self, name: str) -> Any:
        """As of a node."""
        return SimpleNamespace(name=name, value=self.declared[name][0])

    def lines(self) -> list[str]:
        """Each parameter with its default, what is allowed, and what it means."""
        lines = []
        for name, (value, descriptor) in self.declared.items():
            ranges = [*descriptor.floating_point_range, *descriptor.integer_range]
            allowed = [f"from {one.from_value:.12g} to {one.to_value:.12g}" for one in ranges]
            shown = repr(value) if isinstance(value, str) else str(value).lower()
            parts = [f"{name}:={shown}", descriptor.additional_constraints, *allowed]
            lines.append(f"  {', '.join(filter(None, parts))}")
            lines += textwrap.wrap(
                descriptor.description, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6
            )
        return lines


def answers_help(
    program: str,
    about: str,
    declare: Callable[[Any], object],
    arguments: Sequence[str] | None = None,
) -> bool:
    """Print the usage of an executable and return True, where its arguments ask for it.

    program     its name
    about       what it is
    declare     declares the parameters of its node, which is given
    arguments   of the executable; those of this process by default
    """
    if not {"-h", "--help"} & set(sys.argv[1:] if arguments is None else arguments):
        return False
    node = Declarations()
    declare(node)
    parts = [
        f"usage: {program} [--ros-args -p NAME:=VALUE ... -r __ns:=/ROBOT ...]",
        textwrap.fill(about, WIDTH),
        "\n".join(["parameters, with their defaults:", *node.lines()]),
        ROS_ARGUMENTS,
    ]
    try:
        print("\n\n".join(parts), flush=True)
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True
