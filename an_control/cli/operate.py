"""The verbs that operate a running policy node without the ros2 command line.

`status` shows it; `estop` and `reset` latch and clear its e-stop; `shadow on|off` decides whether
it only proposes commands; `activate` and `deactivate` change its lifecycle state; `rewire` connects
its channels to other topics or fields.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import tyro
from rich.box import SIMPLE
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from an_control.cli.common import InputError, OutputFile, WorkError, require_packages, write_json

if TYPE_CHECKING:
    from an_control.ros.operator import NodeStatus, Operator

FIGURES = {
    "policy": ("tick p50 [us]", "tick p99 [us]", "missed deadlines", "recoveries"),
    "gate": ("authority",),
    "watchdog": ("trips",),
    "monitor": ("rewires detected", "readings late [ticks]"),
    "source": ("rate [Hz]", "age [s]", "publishers"),
}
"""Diagnostic figures that `status` shows, by the first word of the part's name."""
COLOURS = {"warning": "yellow", "error": "bold red", "stale": "dim"}
WIDE = 160
"""Width of the table in columns if the output is not a terminal."""


@dataclass(frozen=True)
class StatusCommand:
    """Show a policy node's lifecycle state and its diagnostics, until Ctrl-C.

    The table has a row for each part of the node, such as policy, watchdog and every topic that it
    reads. It is updated once a second; without a terminal it is printed once. Exit status 0: no
    part reports an error; 1: a part does, or there is no such node.
    """

    node: tyro.conf.Positional[str] = ""
    """The node's full name, such as /ant/policy; not needed if only one policy node runs."""
    once: bool = False
    """Print one table and end."""
    timeout_s: float = 10.0
    """Seconds to wait for the node and its diagnostics."""
    json: OutputFile | None = None
    """Also write the last status here as JSON."""

    def run(self) -> int:
        """Show the status and return the exit status."""
        return _call_for_each_node_and_get_exit_status(
            "status", self.node, self.timeout_s, self._show_status_and_get_exit_status
        )

    def _show_status_and_get_exit_status(self, operator: Operator, node: str) -> int:
        console, status = Console(), None
        statuses = operator.iterate_statuses(node)
        if not sys.stdout.isatty():  # rich counts a pipe as a terminal if FORCE_COLOR is set
            console.width = WIDE
        if self.once or not sys.stdout.isatty():
            status = next(statuses)
            console.print(_make_status_table(status))
        else:
            with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
                for status in statuses:
                    live.update(_make_status_table(status), refresh=True)
        if status is None:
            return 0
        write_json(self.json, asdict(status))
        return 1 if status.has_errors else 0


@dataclass(frozen=True)
class EstopCommand:
    """Latch the e-stop: the node sends the safe command at once, and then every control period.

    Without a name, the command calls every policy node as soon as it finds it and looks for more
    for three seconds. Only `an-control reset` clears the e-stop. Exit status 0: all that were found
    have answered; 1: one has not.
    """

    node: tyro.conf.Positional[str] = ""
    """The node's full name; without it every policy node on the network is stopped."""
    timeout_s: float = 5.0
    """Seconds to wait for the node's answer."""

    def run(self) -> int:
        """Latch the e-stop of one or all policy nodes and return the exit status."""
        return _request_and_get_exit_status(
            self,
            "estop",
            lambda operator, node: operator.latch_estop(node),
            "e-stop latched",
            all_nodes=True,
        )


@dataclass(frozen=True)
class ResetCommand:
    """Clear the e-stop of a policy node, which then acts again; or clear its memory (--memory)."""

    node: tyro.conf.Positional[str] = ""
    """The node's full name; not needed if only one policy node runs."""
    memory: bool = False
    """Clear the policy's whole memory instead, as at the start of an episode."""
    timeout_s: float = 5.0
    """Seconds to wait for the node's answer."""

    def run(self) -> int:
        """Clear the e-stop, or the policy's memory, and return the exit status."""
        service = "reset_state" if self.memory else "reset_estop"
        done = "memory cleared" if self.memory else "e-stop cleared"
        return _request_and_get_exit_status(
            self, "reset", lambda operator, node: operator.call_trigger_service(node, service), done
        )


@dataclass(frozen=True)
class ShadowCommand:
    """Switch a policy node's shadow mode, in which it only proposes commands to the robot.

    on: the node publishes what it would command on ~/proposed; off: it commands the robot. Takes
    effect at the next tick. If the robot shall first be brought to its start pose, deactivate the
    node, switch shadow off, and activate the node again.
    """

    switch: tyro.conf.Positional[Literal["on", "off"]]
    """Whether the node only proposes commands."""
    node: tyro.conf.Positional[str] = ""
    """The node's full name; not needed if only one policy node runs."""
    timeout_s: float = 5.0
    """Seconds to wait for the node's answer."""

    def run(self) -> int:
        """Switch the node's shadow mode on or off, and return the exit status."""
        on = self.switch == "on"
        done = (
            "proposes commands, and sends none" if on else "commands the robot while it is active"
        )
        return _request_and_get_exit_status(
            self, "shadow", lambda operator, node: operator.set_shadow(node, on), done
        )


@dataclass(frozen=True)
class ActivateCommand:
    """Activate a policy node, so that it commands the robot; configure it first if it is not."""

    node: tyro.conf.Positional[str] = ""
    """The node's full name; not needed if only one policy node runs."""
    timeout_s: float = 60.0
    """Seconds to wait for each change of its state: loading a model and compiling take a while."""

    def run(self) -> int:
        """Activate the node and return the exit status."""
        return _request_and_get_exit_status(
            self, "activate", lambda operator, node: operator.change_state(node, "active"), "active"
        )


@dataclass(frozen=True)
class DeactivateCommand:
    """Deactivate a policy node; the last command that it sends to the robot is the safe one."""

    node: tyro.conf.Positional[str] = ""
    """The node's full name; not needed if only one policy node runs."""
    timeout_s: float = 10.0
    """Seconds to wait for the change of its state."""

    def run(self) -> int:
        """Deactivate the node and return the exit status."""
        return _request_and_get_exit_status(
            self,
            "deactivate",
            lambda operator, node: operator.change_state(node, "inactive"),
            "inactive",
        )


@dataclass(frozen=True)
class RewireCommand:
    """Connect the channels of a running policy node to other topics or message fields.

    A source is a topic that the wiring file names. SOURCE=TOPIC lets a source read another topic,
    such as joints=/spare/joint_states. CHANNEL.field=FIELD lets a channel read another field, and
    CHANNEL.source=SOURCE another source. All changes are made at once; if one is refused, none is
    made. The policy keeps the state of each channel.
    """

    node: tyro.conf.Positional[str]
    """The node's full name, such as /ant/policy."""
    changes: tyro.conf.Positional[tuple[str, ...]] = ()
    """SOURCE=TOPIC, CHANNEL.field=FIELD or CHANNEL.source=SOURCE."""
    reload: bool = False
    """Instead of making changes, read the wiring file again."""
    timeout_s: float = 5.0
    """Seconds to wait for the node."""

    def run(self) -> int:
        """Rewire the node, print the result and return the exit status."""
        parsed = [_convert_rewiring_to_node_parameter(change) for change in self.changes]
        changes = dict(parsed)
        if bool(changes) == self.reload:
            raise InputError("give either changes, such as SOURCE=TOPIC, or --reload")
        if len(changes) < len(parsed):
            keys = [key for key, _ in parsed]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise InputError(f"{twice}: is given twice, must be given once")
        done = [" now reads ".join(change.split("=", 1)) for change in self.changes]

        def request(operator: Operator, node: str) -> str:
            """Rewire the node, and return why it refuses, or ""."""
            if self.reload:
                return operator.call_trigger_service(node, "reload_wiring")
            return operator.rewire(node, changes)

        return _request_and_get_exit_status(
            self, "rewire", request, f"\n{self.node}: ".join(done or ["wiring read again"])
        )


def _convert_rewiring_to_node_parameter(change: str) -> tuple[str, str]:
    """Convert a change, such as SOURCE=TOPIC, to the name and the value of a parameter."""
    key, separator, value = change.partition("=")
    if not (separator and key and value):
        raise InputError(f"{change!r} is not SOURCE=TOPIC, CHANNEL.field=F or CHANNEL.source=S")
    if key.endswith((".field", ".source")):
        return f"channels.{key}", value
    return f"sources.{key}.topic", value


def _request_and_get_exit_status(
    command: EstopCommand
    | ResetCommand
    | ShadowCommand
    | ActivateCommand
    | DeactivateCommand
    | RewireCommand,
    verb: str,
    request: Callable[[Operator, str], str],
    success_text: str,
    *,
    all_nodes: bool = False,
) -> int:
    """Make a verb's request to one or several nodes, print the results, return the exit status.

    `request` gets the operator and a node's name, and returns why the node refuses, or "".
    """

    def request_and_print_result(operator: Operator, name: str) -> int:
        if refusal := request(operator, name):
            print(f"an-control {verb}: {name}: {refusal}", file=sys.stderr)
            return 1
        print(f"{name}: {success_text}")
        return 0

    return _call_for_each_node_and_get_exit_status(
        verb, command.node, command.timeout_s, request_and_print_result, all_nodes=all_nodes
    )


def _call_for_each_node_and_get_exit_status(
    verb: str,
    node: str,
    timeout_s: float,
    work: Callable[[Operator, str], int],
    *,
    all_nodes: bool = False,
) -> int:
    """Call a function for one or several policy nodes, and return the highest exit status."""
    if not 0.0 < timeout_s <= 3600.0:
        raise InputError(f"--timeout-s {timeout_s:g}: must be more than 0, at most 3600")
    require_packages("ros", "rclpy")
    from rclpy.exceptions import NameValidationException
    from rclpy.validate_full_topic_name import validate_full_topic_name

    from an_control.ros.operator import ESTOP_SETTLE_S, create_operator
    from an_control.ros.temporary_node import describe_discovery_range

    if node:
        try:
            validate_full_topic_name(node)
        except NameValidationException as error:
            raise InputError(
                f"{node!r} is not the full name of a node, such as /ant/policy"
            ) from error
    with create_operator(timeout_s) as one:
        names: Iterable[str] = [node]
        if not node:
            names = (
                one.iterate_policy_nodes(ESTOP_SETTLE_S) if all_nodes else one.find_policy_nodes()
            )
        if isinstance(names, list) and len(names) > 1:
            raise InputError(f"give a node's name; {', '.join(names)} run")
        statuses: list[int] = []
        done: list[str] = []
        for name in names:
            try:
                statuses.append(work(one, name))
            except TimeoutError:
                said = f"{name} did not answer within {timeout_s:g} s; {describe_discovery_range()}"
                print(f"an-control {verb}: {said}", file=sys.stderr)
                statuses.append(1)
            done.append(name)
        if not statuses:
            raise WorkError(f"no policy node within {timeout_s:g} s; {describe_discovery_range()}")
        one.wait_until_estops_have_arrived()
        for name in done:
            if (count := one.count_nodes_of_name(name)) > 1:
                said = f"{count} nodes have the name {name}, of which one has answered"
                print(f"an-control {verb}: warning: {said}", file=sys.stderr)
        return max(statuses)


def _make_status_table(status: NodeStatus) -> Any:
    """Return a node's status as a table that can be printed."""
    table = Table(box=SIMPLE)
    for column in ("part", "state", "says", "figures"):
        table.add_column(column, overflow="fold")
    for one in status.parts:
        shown = FIGURES.get(one.part.partition(" ")[0], ())
        figures = ", ".join(f"{key} {one.values[key]}" for key in shown if key in one.values)
        colour = COLOURS.get(one.level, "")
        level = f"[{colour}]{one.level}[/]" if colour else one.level
        table.add_row(escape(one.part), level, escape(one.text), escape(figures))
    head = f"{status.node}: {status.state}"
    if status.parts:
        return Group(escape(head), table)
    why = "activate it" if status.state == "unconfigured" else "none came in time"
    return Group(escape(f"{head}; no diagnostics: {why}"))
