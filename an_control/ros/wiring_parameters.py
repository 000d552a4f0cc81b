"""What can be rewired while the node runs, as parameters: `Wiring.rewirable`, by the same keys.

`sources.NAME.topic`, `channels.ID.source` and `channels.ID.field` exist while a wiring is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rcl_interfaces.msg import ParameterDescriptor
from rclpy.exceptions import NameValidationException, ParameterException
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.validate_full_topic_name import validate_full_topic_name

from an_control.ros.outputs import proposed_topics
from an_control.wiring import Wiring, WiringError
from an_control.wiring.config import check_loops
from an_control.wiring.errors import without_middle

OUTPUTS = ("~/attention", "~/keys", "~/channels", "~/attended", "/diagnostics")
"""What the node publishes beside commands; to read it, or to command there, closes a loop."""
PREFIXES = ("sources", "channels")


class WiringParameters:
    """Declares them on `node` and reads changes to them."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._declaring = False

    def declare(self, wiring: Wiring, *, overridden: bool = True) -> Wiring:
        """Declare this wiring's instead of what was; the wiring as a launch may override it.

        Raises ValueError naming an override that cannot be; what is declared is then undefined.
        """
        self.undeclare()
        self._declaring = True
        try:
            declared = self._node.declare_parameters(
                "",
                [
                    (key, value, ParameterDescriptor(description=f"{_what(key)}; set it to rewire"))
                    for key, value in wiring.rewirable.items()
                ],
                ignore_override=not overridden,
            )
        except ParameterException as error:
            raise ValueError(f"a parameter of the wiring: {without_middle(error)}") from None
        finally:
            self._declaring = False
        return self.changed(wiring, declared) or wiring

    def undeclare(self) -> None:
        """Undo `declare`, also a half-done one."""
        for prefix in PREFIXES:
            for name in self._node.get_parameters_by_prefix(prefix):
                self._node.undeclare_parameter(f"{prefix}.{name}")

    def changed(self, wiring: Wiring, changes: Sequence[Parameter]) -> Wiring | None:
        """The wiring with these parameters, None where none of them is the wiring's.

        Raises ValueError naming the one that cannot be.
        """
        own = {one.name: one.value for one in changes if one.name.startswith(_STARTS)}
        if self._declaring or not own:
            return None
        changed = wiring.rewired(own)
        self._check_topics(changed)
        return changed

    def _check_topics(self, wiring: Wiring) -> None:
        """Every source's and the command's, as they are called after expansion and remapping."""
        commands: dict[str, str] = {}
        for topic, key in wiring.command.topics.items():
            resolved = self._resolved(wiring, key, topic)
            if resolved in commands:
                raise WiringError(
                    wiring.file, key, resolved, f"a topic other than {commands[resolved]}"
                )
            commands[resolved] = key
        sources = [
            replace(one, topic=self._resolved(wiring, f"sources.{one.name}.topic", one.topic))
            for one in wiring.sources
        ]
        own = (*proposed_topics(wiring.command), *OUTPUTS)
        outputs = {self._node.resolve_topic_name(topic): topic for topic in own}
        for topic, key in commands.items():
            if topic in outputs:
                allowed = f"a topic other than {outputs[topic]}, which this node publishes itself"
                raise WiringError(wiring.file, key, topic, allowed)
        check_loops(wiring.file, sources, {**outputs, **commands})

    def _resolved(self, wiring: Wiring, key: str, topic: str) -> str:
        try:
            resolved = self._node.resolve_topic_name(topic)
            validate_full_topic_name(resolved)
        except (ValueError, RuntimeError, NameValidationException) as error:
            reason = " ".join(str(error).split())
            raise WiringError(wiring.file, key, topic, f"a topic name ({reason})") from None
        return resolved


_STARTS = tuple(f"{prefix}." for prefix in PREFIXES)


def _what(key: str) -> str:
    kind, _, rest = key.partition(".")
    name, _, part = rest.rpartition(".")
    return f"{part} of the {kind.removesuffix('s')} {name}"
