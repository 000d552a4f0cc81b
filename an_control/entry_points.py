"""Entry points of all commands; a signal during their start ends the process without a traceback.

The imports of ROS 2, numpy and the simulators take a second. During them Python answers Ctrl-C with
a traceback, or not at all if a library swallows the KeyboardInterrupt. No command has anything to
clean up before it sets its own signal handlers, so until then the process simply ends. This module
therefore imports nothing else before the handlers are set.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable

from an_control.system.interrupts import INTERRUPTED, exit_on_signal

STOPS = (signal.SIGINT, signal.SIGTERM)


def an_control() -> int:
    """Run the command `an-control` and return its exit status.

    Ctrl-C while Python still imports the command ends the process at once, with status 130.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        exit_on_signal(INTERRUPTED)
    _prepare_standard_streams()
    from an_control.cli import main

    status = main()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return status


def policy_node() -> int:
    """Run the executable `policy_node` and return its exit status."""

    def run() -> int:
        """Import and run the policy node; return its exit status."""
        from an_control.ros.node import main

        return main()

    return _run_node(run)


def simulator() -> int:
    """Run the executable `simulator` and return its exit status."""

    def run() -> int:
        """Import and run the simulator's node; return its exit status."""
        from an_control_sim.bridge.simulator_node import main

        return main()

    return _run_node(run)


def scrambler() -> int:
    """Run the executable `scrambler` and return its exit status."""

    def run() -> int:
        """Import and run the scrambler's node; return its exit status."""
        from an_control_sim.scrambler.scrambler import main

        return main()

    return _run_node(run)


def _run_node(run: Callable[[], int]) -> int:
    """Run the main function of a node and return the exit status of the process.

    A signal during the imports ends the process with status 0. If ROS 2 is not usable, print why
    and return 2.

    Args:
        run: Imports and runs the node, and returns its exit status.
    """
    exit_on_signal(0, *STOPS)
    _prepare_standard_streams()
    from an_control.system.ros_source import describe_ros_problem

    if problem := describe_ros_problem():
        print(problem, file=sys.stderr)
        return 2
    status = run()
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)
    return status


def _prepare_standard_streams() -> None:
    """Open standard streams that are closed on /dev/null, and let every character be printed.

    Otherwise a file that is opened later would get the number of the closed stream. A character
    that the encoding of standard output lacks is printed as an escape sequence.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode)  # noqa: SIM115  stays open
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
