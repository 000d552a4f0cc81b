"""The node's parameters, and rewiring by them. `ros.operator` sets them from outside the node.

To rewire is to change which topic or field feeds a channel of the policy. Most parameters, such as
the path of the wiring, can be set until the node is configured, and `executor` only when the node
is started. Setting `model` replaces the policy at any time. Setting `shadow` switches between
proposing and sending commands at any time. While a wiring is loaded, the parameters
`sources.NAME.topic`, `channels.ID.source` and `channels.ID.field` (`Wiring.rewirable_settings`)
rewire the node.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from reprlib import repr as short
from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.exceptions import NameValidationException, ParameterException
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.validate_full_topic_name import validate_full_topic_name

from an_control.ros.outputs import list_shadow_mode_topics
from an_control.ros.parameter_table import ALL_PARAMETERS, PARAMETERS, Settings
from an_control.wiring import Wiring, WiringError
from an_control.wiring.checked_yaml import shorten_error
from an_control.wiring.config import check_no_topic_loops


def declare_parameters(node: Node) -> None:
    """Declare the parameters of `Settings` with their descriptions, choices and ranges.

    Values that were set at the node's start are first converted by `correct_types_of_yaml_values`.

    Raises:
        ValueError: A parameter was set to another type or out of its range. The text names it.
    """
    overrides = node._parameter_overrides
    overrides.update({one.name: one for one in correct_types_of_yaml_values([*overrides.values()])})
    for one in PARAMETERS.values():
        descriptor = ParameterDescriptor(description=one.description)
        if isinstance(one.default, tuple):
            descriptor.additional_constraints = f"a list of any of {', '.join(one.choices)}"
            descriptor.dynamic_typing = True  # an empty list has no type of its own in ROS
        elif one.choices:
            descriptor.additional_constraints = f"one of {', '.join(one.choices)}"
        if one.bounds is not None:
            low, high = one.bounds
            if isinstance(one.default, int):
                descriptor.integer_range = [IntegerRange(from_value=low, to_value=high)]
            else:
                bounds = FloatingPointRange(from_value=low, to_value=high)
                descriptor.floating_point_range = [bounds]
        default = list(one.default) if isinstance(one.default, tuple) else one.default
        _declare_parameter(node, one.name, default, descriptor)


def correct_types_of_yaml_values(changes: Sequence[Parameter]) -> list[Parameter]:
    """Return changes of the policy node's parameters, with values of the parameters' types.

    See `correct_type_of_yaml_value`.
    """
    return [
        correct_type_of_yaml_value(one, PARAMETERS[one.name].default, PARAMETERS[one.name].choices)
        if one.name in PARAMETERS
        else one
        for one in changes
    ]


def correct_type_of_yaml_value(
    change: Parameter, default: Any, choices: Collection[str] = ()
) -> Parameter:
    """Return a change of a parameter with its value converted to the parameter's type.

    ROS reads values as YAML, in which `off` is the boolean False and `1` an integer. If "off" is
    one of `choices`, False becomes "off". If `default` is a float, an integer becomes a float.

    Args:
        change: The change.
        default: A value of the parameter, which has the right type.
        choices: The allowed texts, if the parameter is a choice.
    """
    if change.type_ == Parameter.Type.BOOL and not change.value and "off" in choices:
        return Parameter(change.name, value="off")
    if change.type_ == Parameter.Type.INTEGER and isinstance(default, float):
        return Parameter(change.name, value=float(change.value))
    return change


def read_settings(node: Node) -> Settings:
    """Return the current values of the node's parameters.

    Raises:
        ValueError: A value is not allowed. The text names the parameter.
    """
    values = {name: node.get_parameter(name).value for name in PARAMETERS}
    for name, value in values.items():
        if reason := _explain_wrong_choice(name, value):
            raise ValueError(reason)
    for name in ("wiring", "model", "record", "black_box"):
        if "\0" in values[name]:
            raise ValueError(f"parameter {name}: {short(values[name])} is not a path")
    for name, one in PARAMETERS.items():
        if isinstance(one.default, tuple):
            values[name] = read_list_parameter(values[name])
    return Settings(**values)


def list_unknown_parameters(node: Node) -> list[str]:
    """Return the names of parameters that were set at the node's start, but that it does not have.

    Call this when all parameters are declared, those of the wiring too.
    """
    return sorted(
        name
        for name in node._parameter_overrides
        if not node.has_parameter(name) and not name.startswith("qos_overrides.")
    )


def explain_parameter_refusal(change: Parameter, *, configured: bool) -> str:
    """Return the reason why a parameter cannot get a new value now, or "" if it can.

    Args:
        change: The parameter with its new value.
        configured: Whether the node is configured; some parameters cannot be changed then.
    """
    if reason := _explain_wrong_choice(change.name, change.value):
        return reason
    if change.name in PARAMETERS and change.type_ == Parameter.Type.NOT_SET:
        return f"parameter {change.name}: cannot be deleted"
    about = ALL_PARAMETERS.get(change.name)
    when = "always" if about is None else about.when
    if when == "start":
        return f"parameter {change.name}: can be set only when the node is started"
    if configured and when == "unconfigured":
        return f"parameter {change.name}: can be set only while the node is unconfigured"
    return ""


def _declare_parameter(node: Node, name: str, default: Any, descriptor: ParameterDescriptor) -> Any:
    """Declare a parameter and return its value, which a launch file may have set.

    Raises:
        ValueError: The launch file sets a value that is not allowed.
    """
    try:
        return node.declare_parameter(name, default, descriptor).value
    except ParameterException as error:
        reason = shorten_error(error).removesuffix(f": {name}")
        raise ValueError(f"parameter {name}: {reason}") from None


def read_list_parameter(value: Any) -> tuple[Any, ...]:
    """Return the entries of a parameter that is a list; a single value counts as one entry."""
    return (value,) if isinstance(value, str | bool | int | float) else tuple(value or ())


def _explain_wrong_choice(name: str, value: Any) -> str:
    """Return the reason why a value is not one of a parameter's allowed choices, or ""."""
    choices = PARAMETERS[name].choices if name in PARAMETERS else ()
    if name in PARAMETERS and isinstance(PARAMETERS[name].default, tuple):
        wrong = [one for one in read_list_parameter(value) if one not in choices]
        if not wrong:
            return ""
        return f"parameter {name}: {short(wrong[0])} is not one of {', '.join(choices)}"
    if choices and value not in choices:
        return f"parameter {name}: {short(value)} is not one of {', '.join(choices)}"
    return ""


OUTPUTS = ("~/attention", "~/keys", "~/channels", "~/attended", "/diagnostics")
"""Topics that the node publishes besides commands. A wiring may use none of them for sensors or
commands."""
PREFIXES = ("sources", "channels")


class WiringParameters:
    """The node's parameters for the part of the wiring that can change while the node runs.

    The wiring is the YAML file that says which topics and fields feed the policy's channels.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._declaring = False

    def declare_and_get_wiring(
        self, wiring: Wiring, *, with_launch_overrides: bool = True
    ) -> Wiring:
        """Declare the parameters of a wiring, in place of those of an earlier wiring.

        Parameters whose value stays are left as they are, because each declaration takes 0.1 ms
        and no tick can run meanwhile.

        Args:
            wiring: The wiring as it is in its file.
            with_launch_overrides: Whether values from a launch file replace those in the wiring
                file.

        Returns:
            The wiring with the values that the parameters now have.

        Raises:
            ValueError: A value from the launch file is not allowed. The text names it. Some of the
                parameters may then be declared and others not.
        """
        overrides = self._node._parameter_overrides if with_launch_overrides else {}
        wanted = {
            key: overrides[key].value if key in overrides else value
            for key, value in wiring.rewirable_settings.items()
        }
        kept = []
        for declared in self._list_declared():
            if declared.name in wanted and declared.value == wanted[declared.name]:
                kept.append(declared)
            else:
                self._node.undeclare_parameter(declared.name)
        unchanged = {one.name for one in kept}
        self._declaring = True
        try:
            changed = self._node.declare_parameters(
                "",
                [
                    (
                        key,
                        value,
                        ParameterDescriptor(
                            description=f"{_describe_wiring_parameter(key)}; set it to rewire"
                        ),
                    )
                    for key, value in wanted.items()
                    if key not in unchanged
                ],
                ignore_override=not with_launch_overrides,
            )
        except ParameterException as error:
            raise ValueError(f"a parameter of the wiring: {shorten_error(error)}") from None
        finally:
            self._declaring = False
        return self.make_changed_wiring(wiring, [*kept, *changed]) or wiring

    def undeclare(self) -> None:
        """Remove all declared parameters that rewire the node; there may be none."""
        for one in self._list_declared():
            self._node.undeclare_parameter(one.name)

    def _list_declared(self) -> list[Parameter]:
        """Return the declared parameters that rewire the node."""
        return [
            one
            for prefix in PREFIXES
            for one in self._node.get_parameters_by_prefix(prefix).values()
        ]

    def make_changed_wiring(self, wiring: Wiring, changes: Sequence[Parameter]) -> Wiring | None:
        """Return the wiring after changes of parameters; None if no change concerns the wiring.

        Args:
            wiring: The wiring before the changes.
            changes: Parameters of the node with their new values.

        Raises:
            ValueError: A value is not allowed. The text names the parameter.
        """
        own = {one.name: one.value for one in changes if one.name.startswith(_STARTS)}
        if self._declaring or not own:
            return None
        changed = wiring.with_changes(own)
        self._check_no_topic_is_read_and_published(changed)
        return changed

    def _check_no_topic_is_read_and_published(self, wiring: Wiring) -> None:
        """Check that the node publishes on no topic that it reads, after ROS remapping.

        Raises:
            WiringError: The node would read and publish the same topic. The text names the key in
                the wiring.
        """
        commands: dict[str, str] = {}
        for topic, key in wiring.command.topic_keys.items():
            resolved = self._resolve_topic(wiring, key, topic)
            if resolved in commands:
                raise WiringError(
                    wiring.file, key, resolved, f"a topic other than {commands[resolved]}"
                )
            commands[resolved] = key
        sources = [
            replace(one, topic=self._resolve_topic(wiring, f"sources.{one.name}.topic", one.topic))
            for one in wiring.sources
        ]
        own = (*list_shadow_mode_topics(wiring.command), *OUTPUTS)
        outputs = {self._node.resolve_topic_name(topic): topic for topic in own}
        for topic, key in commands.items():
            if topic in outputs:
                allowed = f"a topic other than {outputs[topic]}, which this node publishes itself"
                raise WiringError(wiring.file, key, topic, allowed)
        check_no_topic_loops(wiring.file, sources, {**outputs, **commands})

    def _resolve_topic(self, wiring: Wiring, key: str, topic: str) -> str:
        """Return a topic's full name after ROS remapping.

        Args:
            wiring: The wiring, for error texts.
            key: The key of the topic in the wiring, for error texts.
            topic: The topic.

        Raises:
            WiringError: The topic is not a valid topic name.
        """
        try:
            resolved = self._node.resolve_topic_name(topic)
            validate_full_topic_name(resolved)
        except (ValueError, RuntimeError, NameValidationException) as error:
            reason = " ".join(str(error).split())
            raise WiringError(wiring.file, key, topic, f"a topic name ({reason})") from None
        return resolved


_STARTS = tuple(f"{prefix}." for prefix in PREFIXES)


def _describe_wiring_parameter(key: str) -> str:
    """Describe a parameter such as `sources.imu.topic` in words: "topic of the source imu"."""
    kind, _, rest = key.partition(".")
    name, _, part = rest.rpartition(".")
    return f"{part} of the {kind.removesuffix('s')} {name}"
