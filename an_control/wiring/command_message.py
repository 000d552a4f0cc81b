"""Write the actuators' values into the fields of one command message, and read them back.

The message object is made once and filled at every tick (control step). Every value is converted to
exactly the type of its field, because rclpy does not check types, and a value of a wrong type is
corrupted when the message is sent.
"""

from __future__ import annotations

import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from an_control.wiring.checked_yaml import MissingItem, WiringError
from an_control.wiring.command import Actuator, CommandConfig, Constant, MessageFields
from an_control.wiring.compile import find_field_with_element_names, resolve_field_path
from an_control.wiring.config import ChannelConfig
from an_control.wiring.messages import (
    ALL,
    ARRAY_CODES,
    CASTS,
    DURATION,
    TIME,
    FieldPath,
    FieldType,
    Resolver,
    get_stamp_field,
    import_message_class,
    list_field_types,
    parse_field_path,
)
from an_control.wiring.readers import FieldAccess

Values = NDArray[np.float64]
STARTS_NOW = ("trajectory_msgs/msg/JointTrajectory",)
"""Message types whose time stamp says when to start. It is left zero, which means "now".

joint_trajectory_controller refuses a trajectory that ends in the past."""
_UNIT = {"boolean": (0.0, 1.0), "float": (-3.4028234e38, 3.4028234e38)}
_WHOLE = {code: np.iinfo(code) for name, code in ARRAY_CODES.items() if "int" in name}
_RANGES = _UNIT | {
    name: (float(_WHOLE[code].min), float(_WHOLE[code].max))
    for name, code in ARRAY_CODES.items()
    if code in _WHOLE
}
"""Lowest and highest value of each field type whose range is smaller than that of float64."""
LARGEST = float(np.finfo(np.float64).max)
MAX_DURATION_S = 2**31 - 1


@dataclass
class _ElementArray:
    """An array in a command message, whose elements are the values of actuators.

    Attributes:
        accesses: The fields and elements that lead, one inside the other, from the message to the
            array.
        parent: Part of the message that has the array as a field.
        kind: Type of the field.
        elements: Mapping from the index of an element to the index of its actuator.
        names: Names of the elements, which the message lists beside the array; empty if the message
            has no names.
        order: For each element, the index of its actuator; None if elements and actuators are in
            the same order.
        known: Names of the elements in the newest message that another node sent on this topic.
        places: For each of our elements, its index in that node's array, which may be in another
            order; None if no such message was read yet.
    """

    accesses: tuple[FieldAccess, ...]
    parent: Any
    kind: FieldType
    elements: dict[int, int]
    names: tuple[str, ...] = ()
    order: NDArray[np.intp] | None = None
    known: Sequence[str] = ()
    places: NDArray[np.intp] | None = None


class CommandMessage:
    """Message object into which the actuators' values (A,) are written.

    It also reads such values from messages of other senders. If one actuator is missing in such a
    message or one number is not finite, the whole message is refused.

    Args:
        config: Topic and type of the message, and a field for each actuator.
        cls: Class of the message.
        resolve: Function that returns the class of a message type, given its name. It is used for
            messages that are parts of this one.
        file: Path of the wiring file, for errors.
        key: Dotted key of `config` in the file, for errors.

    Raises:
        WiringError: A field does not exist, cannot hold a number, or is commanded by two actuators,
            or only some elements of an array are commanded.
    """

    def __init__(
        self, config: MessageFields, cls: Any, resolve: Resolver, file: str, key: str
    ) -> None:
        self.topic, self.type = config.topic, config.type
        self.message = cls()
        self._resolve, self._file, self._key = resolve, file, key
        self._count = len(config.actuators)
        self._scalars: list[tuple[Any, str, Callable[[Any], Any], tuple[FieldAccess, ...]]] = []
        self._places: list[int] = []
        self._arrays: dict[tuple[int, str], _ElementArray] = {}
        for number, actuator in enumerate(config.actuators):
            self._add_actuator(number, actuator, config)
        for one in self._arrays.values():
            self._check_every_element_commanded(one)
        for path, value in config.constants.items():
            self._write_constant(path, value)
        self._stamp = None if config.type in STARTS_NOW else get_stamp_field(self.message)

    def fill(self, values: Values, stamp_ns: int | None) -> None:
        """Write the actuators' values and a time stamp into the message.

        Args:
            values: Finite values (A,) of the actuators, in physical units.
            stamp_ns: Time stamp in ns, which is ignored if the message type has none; None leaves
                the previous stamp.
        """
        for one in self._arrays.values():
            ordered = values if one.order is None else values[one.order]
            setattr(one.parent, one.accesses[-1].name, _to_field_array(ordered, one.kind))
        if self._scalars:
            numbers = values.tolist()
            for place, (parent, name, cast, _) in zip(self._places, self._scalars, strict=True):
                setattr(parent, name, cast(numbers[place]))
        if stamp_ns is not None and self._stamp is not None:
            self._stamp.sec, self._stamp.nanosec = divmod(stamp_ns, 1_000_000_000)

    def read_values(self, message: Any) -> Values:
        """Return the values (A,) in a message of the type `self.type`, in the actuators' order.

        The message may come from any sender, list its names in another order, and have further
        actuators.

        Raises:
            ValueError: An actuator is missing or a value is not finite; the text names it.
        """
        values = np.empty(self._count)
        for place, (_, name, _, accesses) in zip(self._places, self._scalars, strict=True):
            values[place] = getattr(_find_part_and_names(message, accesses)[0], name)
        for one in self._arrays.values():
            parent, names = _find_part_and_names(message, one.accesses)
            data = np.asarray(getattr(parent, one.accesses[-1].name), np.float64)
            order = slice(None) if one.order is None else one.order
            values[order] = data[self._find_element_indices(one, names, len(data))]
        if not np.isfinite(values).all():
            raise ValueError("a value that is not finite")
        return values

    @property
    def is_stamped(self) -> bool:
        """Whether `fill` writes a time stamp, from which a simulator knows the command's step."""
        return self._stamp is not None

    @property
    def has_only_float64_fields(self) -> bool:
        """Whether the fields of all actuators are float64, so that no value is rounded."""
        return all(kind.base == "double" for _, kind in self._list_actuator_field_types())

    def compute_sendable_limits(self, command: CommandConfig) -> tuple[Values, Values]:
        """Return the lower and upper limits (A,), moved inwards to values that the fields can hold.

        Otherwise a field could round a command at a limit to a value beyond it. For example, a
        limit of 0.1 would be sent as the next float32 above, and a limit of 1.6 as the integer 2.

        Args:
            command: The wiring's command, which has the limits.

        Raises:
            WiringError: Limits are beyond what a field can hold, or contain no value of the field's
                type.
        """
        (message,) = [one for one in command.messages if one.topic == self.topic]
        low, high = np.array([actuator.limits for actuator in message.actuators]).T
        for number, kind in self._list_actuator_field_types():
            least, greatest = _RANGES.get(kind.base, (-np.inf, np.inf))
            actuator = message.actuators[number]
            within = least <= actuator.limits[0] and actuator.limits[1] <= greatest
            if within:
                low[number], high[number] = _round_limits_inwards(actuator.limits, kind.base)
            if not within or low[number] > high[number]:
                key = f"{self._key}.actuators.{actuator.name}.limits"
                allowed = f"limits with a value that its field, a {kind.base}, can hold"
                if not within:
                    allowed = f"{least:g} to {greatest:g}, which its field, a {kind.base}, can hold"
                raise WiringError(self._file, key, list(actuator.limits), allowed)
        return low, high

    def compute_field_steps(self) -> Values:
        """Return for each actuator (A,) the distance between values that its field can hold.

        It is 1 for whole numbers and booleans, and 0 for floating-point numbers.
        """
        steps = np.zeros(self._count)
        for number, kind in self._list_actuator_field_types():
            steps[number] = float(kind.base not in ("double", "float"))
        return steps

    def _list_actuator_field_types(self) -> list[tuple[int, FieldType]]:
        """Return a pair for each actuator: its index, and the type of the field for its value."""
        kinds = [(n, one.kind) for one in self._arrays.values() for n in one.elements.values()]
        for place, (parent, name, _, _) in zip(self._places, self._scalars, strict=True):
            kinds.append((place, list_field_types(type(parent))[name]))
        return kinds

    def _add_actuator(self, index: int, actuator: Actuator, config: MessageFields) -> None:
        """Find the message field for an actuator's value, and store its place for `fill`.

        List elements and names that lead to the field are created if they do not exist.

        Args:
            index: Index of the actuator in the message.
            actuator: Settings of the actuator.
            config: Settings of the message.

        Raises:
            WiringError: The field does not exist, cannot hold a number, or belongs to another
                actuator.
        """
        own = actuator.field is not None
        key = f"{self._key}.actuators.{actuator.name}.field" if own else f"{self._key}.field"
        text = actuator.field or config.field or ""
        path = (
            parse_field_path(text) if own else self._make_actuator_path(text, index, actuator.name)
        )
        try:
            channel = ChannelConfig(actuator.name, "", text)
            (number_field,) = resolve_field_path(
                channel, type(self.message), self._resolve, self._file, path
            )
        except WiringError as error:
            raise WiringError(self._file, key, text, error.allowed) from None
        try:
            parent, names = self._get_or_create_part_and_names(number_field.accesses)
        except IndexError as error:
            raise WiringError(self._file, key, text, str(error)) from None
        last = number_field.accesses[-1]
        kind = list_field_types(type(parent))[last.name]
        if kind.base not in CASTS or (kind.array and kind.base not in (*ARRAY_CODES, "boolean")):
            raise WiringError(self._file, key, text, f"a field of numbers, not of {kind.base}")
        if _is_time(parent):
            raise WiringError(self._file, key, text, "a number that is no part of a time")
        twice = WiringError(self._file, key, text, "a field that no other actuator writes")
        if last.key is None:
            if any(one is parent and name == last.name for one, name, _, _ in self._scalars):
                raise twice
            self._scalars.append(
                (parent, last.name, _make_number_converter(kind.base), number_field.accesses)
            )
            self._places.append(index)
            return
        one = self._arrays.setdefault(
            (id(parent), last.name), _ElementArray(number_field.accesses, parent, kind, {})
        )
        place = (
            last.key if isinstance(last.key, int) else _find_index_of_actuator_name(names, last.key)
        )
        if place in one.elements:
            raise twice
        one.elements[place] = index
        if isinstance(last.key, str):
            one.names = names

    def _make_actuator_path(self, shared_path: str, index: int, name: str) -> FieldPath:
        """Return one actuator's field path, made from the path that all actuators share.

        Args:
            shared_path: Path of an array with an element for each actuator, or a path with a `*`
                for the actuator's name.
            index: Index of the actuator in the message.
            name: Name of the actuator.
        """
        field = parse_field_path(shared_path)
        steps = tuple(replace(s, key=name) if s.key == ALL else s for s in field.steps)
        cls, named = type(self.message), False
        for step in steps[:-1]:
            types = list_field_types(cls)
            named |= find_field_with_element_names(types) is not None
            kind = types.get(step.name)
            if kind is None or not kind.message_type:
                return FieldPath(steps)
            cls = self._resolve(kind.message_type)
        types, last = list_field_types(cls), steps[-1]
        if last.key is None and last.name in types and types[last.name].array:
            named |= find_field_with_element_names(types) is not None
            steps = (*steps[:-1], replace(last, key=name if named else index))
        return FieldPath(steps)

    def _get_or_create_part_and_names(self, accesses: tuple[FieldAccess, ...]) -> tuple[Any, Any]:
        """Return the message part that has an actuator's field, and the names of its elements.

        A part is a message within the message. If list elements on the way to the field do not
        exist, they and their names are appended.

        Args:
            accesses: The fields and elements that lead, one inside the other, from the message to
                the value.

        Returns:
            A pair: the part, and the list of names of the elements in it, or None if there is no
            list.

        Raises:
            IndexError: An element is neither in its list nor the next one to append. The text names
                the allowed elements.
        """
        names: Any = None
        node = self.message
        for access in accesses:
            names = getattr(node, access.names) if access.names else names
            if isinstance(access.key, str) and access.key not in names:
                names.append(access.key)
            if access is accesses[-1]:
                break
            inner = getattr(node, access.name)
            if access.key is not None:
                place = (
                    access.key
                    if isinstance(access.key, int)
                    else _find_index_of_actuator_name(names, access.key)
                )
                kind = list_field_types(type(node))[access.name]
                if place > len(inner):
                    raise IndexError(f"{access.name}[0] to {access.name}[{len(inner)}]")
                if place == len(inner):
                    inner.append(self._resolve(kind.message_type or "")())
                inner = inner[place]
            node = inner
        return node, names

    def _check_every_element_commanded(self, element_array: _ElementArray) -> None:
        """Check that every element of an array has an actuator, and store the actuators' order.

        In an array of fixed size, elements after the last one with an actuator may have none; they
        stay 0.

        Raises:
            WiringError: An element that must have an actuator has none.
        """
        count = len(element_array.names) or 1 + max(element_array.elements)
        missing = next(
            (place for place in range(count) if place not in element_array.elements), None
        )
        if missing is not None:
            element = element_array.names[missing] if element_array.names else missing
            what = MissingItem(f"the actuator for {element_array.accesses[-1].name}[{element}]")
            allowed = (
                "an actuator for each element of the array; other actuators need another topic"
            )
            raise WiringError(self._file, f"{self._key}.actuators", what, allowed)
        order = np.array([element_array.elements[place] for place in range(count)], np.intp)
        if not np.array_equal(order, np.arange(self._count)):
            element_array.order = order
        element_array.names = tuple(element_array.names)

    def _write_constant(self, path: str, value: Constant) -> None:
        """Write a constant value into a field that no actuator commands.

        Args:
            path: Path of the field.
            value: The value; a duration is given in seconds.

        Raises:
            WiringError: The field does not exist or cannot hold the value.
        """
        key = f"{self._key}.constants.{path}"

        def raise_constant_error(allowed_text: str) -> NoReturn:
            """Raise the WiringError for this constant."""
            raise WiringError(self._file, key, value, allowed_text)

        try:
            steps = parse_field_path(path).steps
        except ValueError:
            raise_constant_error("a path of one field, such as header.frame_id")
        node, kind = self.message, FieldType("")
        for step in steps:
            types = (
                list_field_types(type(node)) if hasattr(node, "get_fields_and_field_types") else {}
            )
            if step.name not in types:
                raise_constant_error(f"the fields here are {', '.join(types) or '(none)'}")
            parent, kind, node = node, types[step.name], getattr(node, step.name)
            if kind.array and not (isinstance(step.key, int) and 0 <= step.key < len(node)):
                raise_constant_error(f"a single value; {step.name} has {len(node)} elements")
            if kind.array and step is not steps[-1]:
                assert isinstance(step.key, int)
                node = node[step.key]
        if any(one is parent and name == step.name for one, name, _, _ in self._scalars):
            raise_constant_error("a field that no actuator commands")
        if parent is get_stamp_field(self.message):
            raise_constant_error("another field, because the node writes the stamp")
        number = None if isinstance(value, bool | str) else value
        if kind.base == DURATION and number is not None:
            if not 0.0 <= number <= MAX_DURATION_S:
                raise_constant_error(f"seconds from 0 to {MAX_DURATION_S}")
            node.sec, node.nanosec = divmod(round(float(number) * 1e9), 1_000_000_000)
        elif kind.array or kind.base in (TIME, DURATION) or kind.base not in CASTS:
            raise_constant_error("a single number or text, or a duration in seconds")
        elif kind.base == "boolean" and not isinstance(value, bool):
            raise_constant_error("true or false")
        elif (kind.base == "string") != isinstance(value, str) or (
            kind.base != "boolean" and isinstance(value, bool)
        ):
            raise_constant_error(f"a {kind.base}")
        elif number is not None and (
            problem := _describe_unrepresentable_number(number, kind.base)
        ):
            raise_constant_error(problem)
        else:
            setattr(parent, step.name, CASTS[kind.base](value))

    def _find_element_indices(self, element_array: _ElementArray, names: Any, count: int) -> Any:
        """Return at which indices another sender's message has the elements of an array.

        Args:
            element_array: The array in this object's own message.
            names: Names of the elements in the other sender's message; None if it has none.
            count: Number of elements of the array in the other sender's message.

        Returns:
            The indices as an array or a slice, in the order of this object's own elements.

        Raises:
            ValueError: An actuator's element is missing, or the numbers of elements and names
                differ.
        """
        if not element_array.names:
            if count != len(element_array.elements) and not element_array.kind.fixed:
                raise ValueError(f"{count} values for {len(element_array.elements)} actuators")
            return slice(len(element_array.elements))
        if element_array.places is None or names != element_array.known:
            listed = list(names)
            missing = [name for name in element_array.names if name not in listed]
            if missing:
                raise ValueError(f"actuator {missing[0]} is not among the names {listed}")
            element_array.known = listed
            element_array.places = np.array(
                [listed.index(name) for name in element_array.names], np.intp
            )
        if count != len(names):
            raise ValueError(f"{count} values for the names {list(names)}")
        return element_array.places


def make_command_messages(
    command: CommandConfig, file: str, resolve: Resolver = import_message_class
) -> tuple[CommandMessage, ...]:
    """Create the objects that write a command into messages, in the order of their sending.

    Args:
        command: The wiring's command.
        file: Path of the wiring file, for errors.
        resolve: Function that returns the class of a message type, given its name.

    Raises:
        WiringError: A type is not installed, or a field does not exist or cannot hold its value.
    """
    messages = []
    for number, config in enumerate(command.messages):
        key = command.format_message_key(number)
        try:
            cls = resolve(config.type)
        except LookupError as error:
            raise WiringError(
                file, f"{key}.type", config.type, f"an installed type ({error})"
            ) from None
        message = CommandMessage(config, cls, resolve, file, key)
        message.compute_sendable_limits(command)
        messages.append(message)
    return tuple(messages)


def compute_sendable_limits(
    command: CommandConfig, messages: Sequence[CommandMessage]
) -> tuple[Values, Values]:
    """Return each actuator's limits, moved inwards to values that its message field can hold.

    A field of another type than float64 rounds its value. So a command at a limit such as 0.1 could
    otherwise be sent as a value just beyond the limit.

    Args:
        command: The wiring's command, which has the limits.
        messages: The message objects of the command, whose field types round.

    Returns:
        The lower limits (A,) and the upper limits (A,).

    Raises:
        WiringError: No allowed value of an actuator can be sent.
    """
    low, high = zip(
        *(message.compute_sendable_limits(command) for message in messages), strict=True
    )
    return np.concatenate(low), np.concatenate(high)


def compute_field_steps(messages: Sequence[CommandMessage]) -> Values:
    """Return for each actuator (A,) the distance between values that its message field can hold.

    It is 1 for whole numbers and booleans, and 0 for floating-point numbers.

    Args:
        messages: The message objects of the command.
    """
    return np.concatenate([message.compute_field_steps() for message in messages])


def _round_limits_inwards(limits: tuple[float, float], type_name: str) -> tuple[float, float]:
    """Return a lower and an upper limit, rounded inwards to values that a field can hold.

    Args:
        limits: The lower and the upper limit.
        type_name: Type of the field without array bounds, such as "float".
    """
    low, high = limits
    if type_name == "double":
        return low, high
    if type_name != "float":
        return float(np.ceil(low)), float(np.floor(high))
    lowest, highest = np.float32(low), np.float32(high)
    if float(lowest) < low:
        lowest = np.nextafter(lowest, np.float32(np.inf))
    if float(highest) > high:
        highest = np.nextafter(highest, np.float32(-np.inf))
    return float(lowest), float(highest)


def _describe_unrepresentable_number(number: float, type_name: str) -> str:
    """Return text on which numbers a field can hold, if it cannot hold a given number; else "".

    Args:
        number: The number.
        type_name: Type of the field, such as "uint8".
    """
    whole = _WHOLE.get(ARRAY_CODES[type_name])
    low, high = (whole.min, whole.max) if whole else _RANGES.get(type_name, (-LARGEST, LARGEST))
    if not low <= number <= high:  # also where it is NaN
        return f"{low:g} to {high:g}, which a {type_name} can hold"
    return "a whole number" if whole and number != int(number) else ""


def _to_field_array(values: Values, field_type: FieldType) -> Any:
    """Return values (n,) as the array type that rclpy accepts for a field.

    Args:
        values: The values.
        field_type: Type of the field.
    """
    if field_type.base == "double" and not field_type.fixed:
        return array.array("d", np.ascontiguousarray(values).tobytes())
    if field_type.base == "boolean":
        return [
            *(values >= 0.5).tolist(),
            *[False] * _count_unused_elements(len(values), field_type),
        ]
    code = ARRAY_CODES[field_type.base]
    cast = (values if code in "df" else np.rint(values)).astype(code)
    if not field_type.fixed:
        return array.array(code, cast.tobytes())
    return np.concatenate([cast, np.zeros(_count_unused_elements(len(cast), field_type), code)])


def _is_time(part: Any) -> bool:
    """Return whether a part of a message is a time stamp or a duration."""
    return set(list_field_types(type(part))) == {"sec", "nanosec"}


def _count_unused_elements(actuator_count: int, field_type: FieldType) -> int:
    """Return how many elements of an array have no actuator: 0 if the array has no fixed size.

    Args:
        actuator_count: Number of elements that have an actuator.
        field_type: Type of the array field.
    """
    return (field_type.size or actuator_count) - actuator_count if field_type.fixed else 0


def _make_number_converter(type_name: str) -> Callable[[float], Any]:
    """Return a function that converts a float to the Python type and precision of a field.

    Args:
        type_name: Type of the field, which holds a single number, such as "float".
    """
    if type_name == "boolean":
        return lambda value: value >= 0.5
    if type_name == "float":
        return lambda value: float(np.float32(value))
    return float if type_name == "double" else round


def _find_index_of_actuator_name(names: Any, name: str) -> int:
    """Return the index of an actuator's name in the list of names that a message has.

    Args:
        names: The list of names in the message, one for each element of its arrays.
        name: Name of the actuator.

    Raises:
        ValueError: The name is not in the list.
    """
    listed = list(names)
    if name not in listed:
        raise ValueError(f"no actuator {name} for the names {listed}")
    return listed.index(name)


def _find_part_and_names(message: Any, accesses: tuple[FieldAccess, ...]) -> tuple[Any, Any]:
    """Return the part of a message that has a path's final field, and the names of its elements.

    A part is a message within the message.

    Args:
        message: The message.
        accesses: The fields and elements that lead, one inside the other, from the message to the
            value.

    Returns:
        A pair: the part, and the list of names of the elements in it, or None if there is no list.

    Raises:
        ValueError: An element that leads to the value does not exist.
    """
    node, names = message, None
    for access in accesses[:-1]:
        names = getattr(node, access.names) if access.names else names
        inner = getattr(node, access.name)
        if access.key is not None:
            place = (
                access.key
                if isinstance(access.key, int)
                else _find_index_of_actuator_name(names, access.key)
            )
            if place >= len(inner):
                raise ValueError(f"no {access.name}[{access.key}]")
            inner = inner[place]
        node = inner
    last = accesses[-1].names
    return node, getattr(node, last) if last else names
