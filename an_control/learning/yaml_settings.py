"""Read a dataclass of settings from a YAML file, in which every key must be one of its fields.

The type of a field decides which values are allowed. A number must be 0 or more, unless its type is
`Annotated` with other `SettingLimits`. For a tuple the file has a list of as many numbers, and for
a dataclass or a dict it has a mapping. The keys of a dict are parsed by the class method `parse` of
their type.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from an_control.learning.limits import SettingLimits
from an_control.wiring.checked_yaml import Description, Entry, Problem, WiringError

T = TypeVar("T")
_PROBLEM = re.compile(r"(?P<key>\w+): (?P<value>.*) \(allowed: (?P<allowed>.*)\)")
"""Pattern of the error message with which a dataclass refuses fields that contradict each other."""


RENAMED_KEYS = {
    "collection.missing": "collection: {disturb: {missing=MIN..MAX: PROBABILITY}}",
    "collection.noise": "collection: {disturb: {noise=MIN..MAX: PROBABILITY}}",
    "collection.copies": "collection: {disturb: {copies=MIN..MAX: PROBABILITY}}",
    "streams.missing": "streams: {disturb: {missing=MIN..MAX: PROBABILITY}}",
    "streams.max_missing": "MAX in streams: {disturb: {missing=MIN..MAX: PROBABILITY}}",
    "streams.noise": "streams: {disturb: {noise=MIN..MAX: PROBABILITY}}",
    "streams.frozen": "streams: {disturb: {freeze=MIN..MAX: PROBABILITY}}",
    "streams.copies": "streams: {disturb: {copies=MIN..MAX: PROBABILITY}}",
    "streams.added": "MAX in streams: {disturb: {copies=MIN..MAX,noise=MIN..MAX: PROBABILITY}}",
    "missing": "for image patches, disturb: {missing=MIN..MAX: PROBABILITY}",
}
"""A mapping from an earlier key of a recipe to what it is called now."""


def parse_settings(settings_class: type[T], entry: Entry, other_keys: tuple[str, ...] = ()) -> T:
    """Make an instance of a settings dataclass from a mapping in a YAML file.

    Args:
        settings_class: The dataclass; its fields without a default are required keys.
        entry: The mapping, with its position in the file.
        other_keys: Further keys that the mapping may have; their values are not read.

    Raises:
        WiringError: A key or value is not valid; the message names file, key, value and what is
            allowed.
    """
    hints = get_type_hints(settings_class, include_extras=True)
    every = {one.name: one for one in fields(settings_class) if one.init}  # type: ignore[arg-type]
    needed = {
        name
        for name, one in every.items()
        if one.default is MISSING and one.default_factory is MISSING
    }
    optional = tuple(name for name in every if name not in needed)
    required = (*other_keys, *(name for name in every if name in needed))
    found = entry.read_fields(required, optional, RENAMED_KEYS)
    values = {name: _parse_value(hints[name], found[name]) for name in found if name in every}
    try:
        return settings_class(**values)
    except ValueError as error:
        if (parts := _PROBLEM.fullmatch(str(error))) is None:
            raise WiringError(entry.file, entry.key, Problem(error)) from error
        key = f"{entry.key}.{parts['key']}" if entry.key else parts["key"]
        raise WiringError(entry.file, key, Description(parts["value"]), parts["allowed"]) from error


def _parse_value(value_type: Any, entry: Entry) -> Any:
    """Return a value of a YAML file, checked against a type."""
    limits, none = SettingLimits(), False
    if get_origin(value_type) in (Union, UnionType):
        none = True
        (value_type,) = (one for one in get_args(value_type) if one is not type(None))
        if entry.value is None:
            return None
    if get_origin(value_type) is Annotated:
        value_type, limits = get_args(value_type)
    if get_origin(value_type) is dict:
        words, each = get_args(value_type)
        if entry.value == {}:
            return {}
        return dict(
            _parse_dict_entry(words, each, *one) for one in entry.iterate_items("a mapping")
        )
    if is_dataclass(value_type):
        assert isinstance(value_type, type)
        return parse_settings(value_type, entry)
    if get_origin(value_type) is tuple:
        return _parse_numbers(get_args(value_type), entry)
    if get_origin(value_type) is Literal:
        if entry.value not in get_args(value_type):
            raise entry.make_error(" or ".join(get_args(value_type)))
        return entry.value
    if value_type is bool:
        if not isinstance(entry.value, bool):
            raise entry.make_error("true or false")
        return entry.value
    return _parse_number(value_type, limits, entry, none)


def _parse_dict_entry(key_type: Any, value_type: Any, key: str, entry: Entry) -> tuple[Any, Any]:
    """Return the key and the value of one entry of a dict, each checked against its type."""
    try:
        return key_type.parse(key), _parse_value(value_type, entry)
    except WiringError:
        raise
    except ValueError as error:
        raise WiringError(entry.file, entry.key, Problem(error)) from None


def _parse_number(
    number_type: type[Any], limits: SettingLimits, entry: Entry, allows_null: bool = False
) -> Any:
    """Return a number of a YAML file, checked against its type and bounds."""
    what = "a whole number" if number_type is int else "a number"
    what = ", ".join(filter(None, (what, str(limits)))) + (", or null" if allows_null else "")
    number = entry.read_number(what, limits.low, limits.high)
    if limits.over and number == limits.low:
        raise entry.make_error(what)
    if number_type is int:
        if not number.is_integer():
            raise entry.make_error(what)
        return int(number)
    return number


def _parse_numbers(number_types: tuple[Any, ...], entry: Entry) -> tuple[Any, ...]:
    """Return a list of numbers of a YAML file as a tuple, each checked against its type."""
    endless = number_types[-1] is Ellipsis
    what = "a list of numbers" if endless else f"a list of {len(number_types)} numbers"
    if not isinstance(entry.value, list) or not (endless or len(entry.value) == len(number_types)):
        raise entry.make_error(what)
    each = [number_types[0]] * len(entry.value) if endless else number_types
    return tuple(
        _parse_number(kind, SettingLimits(), Entry(entry.file, f"{entry.key}[{place}]", value))
        for place, (kind, value) in enumerate(zip(each, entry.value, strict=True))
    )
