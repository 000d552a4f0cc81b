"""The verb ``an-control rewire NODE SOURCE=TOPIC CHANNEL.field=FIELD ...``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import tyro

from an_control.cli.common import InputError
from an_control.cli.operate import request_and_get_exit_status

if TYPE_CHECKING:
    from an_control.ros.operator import Operator


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

        return request_and_get_exit_status(
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
