"""Converts gymnasium's spaces: observations to numbers with ids, numbers in [-1, 1] to actions.

Readings: a Box gives its numbers, a Discrete or MultiDiscrete one number per choice (1 for the
chosen one, 0 for the others), a MultiBinary its bits. Dict and Tuple give the readings of their
parts, and their keys become part of the ids. Actions: a Box is scaled to [-1, 1], in a Discrete the
choice with the largest number is taken, and a bit is set if its number is above 0.

Actions are always inside the environment's space: -1 is exactly the lower bound, 1 the upper one.
If a bound is missing, numbers are not scaled. They are only shifted, as far as the bound that
exists requires.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

F32 = np.float32
Space = gymnasium.Space[Any]
IdAndScalable = tuple[str, bool]
"""The id of a number, and whether the number may be scaled."""
READINGS, ACTIONS = "observation", "action"
ALLOWED = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of these"
MAX_READINGS = 4096
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_./-]")
SNAP = 8.0
"""A number that differs from a bound by at most this many rounding errors counts as that bound.
Scaling alone makes one or two rounding errors."""


@dataclass(frozen=True)
class ReadingConversion:
    """A conversion of an environment's observations to N numbers.

    Attributes:
        ids: A distinct id for each number (N,).
        scalable: Whether each number may be scaled (N,); False for choices and bits, which are 0 or
            1.
        flatten: Converts an observation to its numbers (N,) of any type; the result may be the
            environment's own array. Raises ValueError, KeyError or TypeError for an observation
            outside its space.
    """

    ids: tuple[str, ...]
    scalable: np.ndarray
    flatten: Callable[[Any], np.ndarray]


@dataclass(frozen=True)
class ActionConversion:
    """A conversion of A numbers in [-1, 1], such as a policy's output, to an environment's action.

    Attributes:
        names: A distinct name for each number (A,).
        choices: For each choice of the action, how many of the A numbers it has. A choice among k
            options has k numbers, of which the largest wins; a bit has one number. The tuple is
            empty if any part of the action is a Box.
        to_action: Converts numbers (A,) in [-1, 1] to a new action of the space.
        to_numbers: Converts an action of the space back to numbers (A,), the inverse of
            `to_action`.
        from_own_units: Converts numbers (A,) in the space's own units to an action of the space.
    """

    names: tuple[str, ...]
    choices: tuple[int, ...]
    to_action: Callable[[np.ndarray], Any]
    to_numbers: Callable[[Any], np.ndarray]
    from_own_units: Callable[[np.ndarray], Any]


def make_reading_conversion(space: Space) -> ReadingConversion:
    """Make the conversion from an environment's observations to arrays of numbers.

    Args:
        space: The observation space.

    Raises:
        ValueError: The space is not supported, or has too many numbers.
    """
    named, flatten = _make_ids_and_flattener(
        space, "" if isinstance(space, spaces.Dict) else READINGS
    )
    ids = tuple(name for name, _ in named)
    _check_names_exist_and_differ("its observation space", space, ids)
    if len(ids) > MAX_READINGS:
        raise ValueError(
            f"its observation has {len(ids)} readings (allowed: up to {MAX_READINGS}); leave out"
            " pictures, by a gymnasium.ObservationWrapper"
        )
    return ReadingConversion(ids, np.array([scalable for _, scalable in named]), flatten)


def make_action_conversion(space: Space) -> ActionConversion:
    """Make the conversion from arrays of numbers in [-1, 1] to an environment's actions.

    Args:
        space: The action space.

    Raises:
        ValueError: The space is not supported.
    """
    actions = _make_conversion_of_space(space, ACTIONS)
    _check_names_exist_and_differ("its action space", space, actions.names)
    return actions


def _check_names_exist_and_differ(space_title: str, space: Space, names: Sequence[str]) -> None:
    """Check that a space gives at least one name and no name twice.

    Args:
        space_title: The space in words, such as "its action space", for error texts.
        space: The space.
        names: The names that it gives.

    Raises:
        ValueError: The space gives no name, or one name twice.
    """
    if not names:
        raise ValueError(
            f"{space_title} {describe_space(space)} holds no number (allowed: one or more)"
        )
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{space_title} gives the id {twice!r} twice; rename a key")


def describe_space(space: Space) -> str:
    """Format a space as a short text for an error message."""
    text = " ".join(str(space).split())
    return text if len(text) <= 120 else f"{text[:116]} ..."


def _join_space_id(name: str, *parts: object) -> str:
    """Return the id of a part of a space, such as "observation.3".

    Args:
        name: The name of the whole space, such as "observation"; "" to leave it out.
        *parts: The keys that lead to the part, such as 3.
    """
    words = [_NOT_IN_IDS.sub("_", str(part)) for part in parts]
    return ".".join([name, *words] if name else words)


def _make_unsupported_error(space: Space, name: str) -> ValueError:
    """Return the error for a space of a kind that is not supported.

    Args:
        space: The space, which may be a part of another one.
        name: The name of the space: "observation", "action", or the id of the part.
    """
    where = f"its {name} space is" if name in (READINGS, ACTIONS) else f"the space of {name} is"
    return ValueError(f"{where} {describe_space(space)} (allowed: {ALLOWED})")


def _make_ids_and_flattener(
    space: Space, name: str
) -> tuple[list[IdAndScalable], Callable[[Any], np.ndarray]]:
    """Return the ids of the numbers of a space, and a function that converts values to them.

    Args:
        space: The space, which may be a part of another one.
        name: The name of the space, with which the ids begin.

    Returns:
        First a list with a pair for each number: its id, and whether it may be scaled. Then the
        function, which converts a value of the space to the array of these numbers.
    """
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        size = int(np.prod(space.shape))
        ids = [(_join_space_id(name, i), isinstance(space, spaces.Box)) for i in range(size)]
        return ids, lambda value: _flatten_array(value, size, name)
    if isinstance(space, spaces.Discrete):
        first, count = int(space.start), int(space.n)
        ids = [(_join_space_id(name, first + i), False) for i in range(count)]
        return ids, lambda value: _encode_chosen_options_one_hot(
            [int(value) - first], [count], name
        )
    if isinstance(space, spaces.MultiDiscrete):
        counts, starts = space.nvec.ravel().tolist(), space.start.ravel()
        ids = [
            (_join_space_id(name, place, first + i), False)
            for place, (first, count) in enumerate(zip(starts.tolist(), counts, strict=True))
            for i in range(count)
        ]
        size = len(counts)
        return ids, lambda value: _encode_chosen_options_one_hot(
            _flatten_array(value, size, name) - starts, counts, name
        )
    return _make_ids_and_flattener_of_parts(
        _get_subspaces_with_names(space, name), isinstance(space, spaces.Dict)
    )


def _get_subspaces_with_names(space: Space, name: str) -> dict[Any, tuple[Space, str]]:
    """Return each part of a Dict or Tuple space with its name, by the key of the part.

    Args:
        space: The Dict or Tuple.
        name: The name of the space, with which the names of the parts begin.

    Raises:
        ValueError: The space is of another kind.
    """
    if isinstance(space, spaces.Dict):
        return {key: (part, _join_space_id(name, key)) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return {i: (part, _join_space_id(name, i)) for i, part in enumerate(space.spaces)}
    raise _make_unsupported_error(space, name)


def _make_ids_and_flattener_of_parts(
    parts: Mapping[Any, tuple[Space, str]], is_dict: bool
) -> tuple[list[IdAndScalable], Callable[[Any], np.ndarray]]:
    """Return the ids of a Dict's or Tuple's numbers, and a function that converts values to them.

    Args:
        parts: The space and the name of each part, by the key of the part.
        is_dict: Whether the space is a Dict (True) or a Tuple (False).

    Returns:
        First a list with a pair for each number: its id, and whether it may be scaled. Then the
        function, which converts a value of the space to the array of these numbers.
    """
    read = {key: _make_ids_and_flattener(part, name) for key, (part, name) in parts.items()}
    ids = [one for named, _ in read.values() for one in named]

    def flatten(value: Any) -> np.ndarray:
        """Convert each part of a value to numbers, and join these to one array."""
        if is_dict and not isinstance(value, Mapping):
            raise ValueError(
                f"the observation is of type {type(value).__name__}, but its space is a Dict"
            )
        return np.concatenate([function(value[key]) for key, (_, function) in read.items()])

    return ids, flatten if read else lambda value: np.zeros(0)


def _flatten_array(value: Any, size: int, name: str) -> np.ndarray:
    """Flatten an array to one dimension.

    Args:
        value: The array.
        size: The number of elements that it must have.
        name: The name of the space that the array belongs to, for error texts.

    Raises:
        ValueError: The array has another number of elements.
    """
    array = np.asarray(value)
    if array.size != size:
        raise ValueError(f"{name or READINGS} has {array.size} numbers, but its space has {size}")
    return array.ravel()


def _encode_chosen_options_one_hot(
    chosen: Sequence[int] | np.ndarray, option_counts: Sequence[int], name: str
) -> np.ndarray:
    """Encode choices as numbers: 1 for the chosen option of each choice, 0 for all other options.

    Args:
        chosen: The index of the chosen option of each choice.
        option_counts: The number of options of each choice.
        name: The name of the space, for error texts.

    Raises:
        ValueError: An index is out of range.
    """
    hot, first = np.zeros(sum(option_counts), np.float32), 0
    for place, count in zip(chosen, option_counts, strict=True):
        if not 0 <= place < count:
            raise ValueError(f"{name or READINGS} is choice {place}, but there are {count} choices")
        hot[first + int(place)] = 1.0
        first += count
    return hot


def encode_choices_as_numbers(option_counts: Sequence[int], action: Any) -> np.ndarray:
    """Encode an action of choices and bits as numbers (A,), the inverse of `decode_choices`.

    A choice gets a number for each of its options: 1 for the chosen one, 0 for all others. A bit
    gets one number, 1 or -1.

    Args:
        option_counts: The number of options of each choice; 1 for a bit.
        action: The index of the chosen option of each choice; 0 or 1 for a bit.
    """
    chosen, first = np.zeros(sum(option_counts), np.float32), 0
    for place, count in zip(np.ravel(action).tolist(), option_counts, strict=True):
        if count == 1:
            chosen[first] = 1.0 if place else -1.0
        else:
            chosen[first + int(place)] = 1.0
        first += count
    return chosen


def decode_choices(option_counts: Sequence[int], numbers: np.ndarray) -> list[int]:
    """Decode numbers (A,) to an action: for each choice, the index of the option that wins.

    The option with the largest number wins. A bit, which has one number, gives 1 if that is
    positive, else 0.

    Args:
        option_counts: The number of options of each choice; 1 for a bit.
        numbers: The numbers (A,): those of the options of the first choice, then of the second, and
            so on.
    """
    found, first = [], 0
    for count in option_counts:
        part = numbers[first : first + count]
        found.append(int(part[0] > 0.0) if count == 1 else int(np.argmax(part)))
        first += count
    return found


def _make_conversion_of_space(space: Space, name: str) -> ActionConversion:
    """Return the conversion of numbers in [-1, 1] to actions of a space of any kind.

    Args:
        space: The space, which may be a part of another one.
        name: The name of the space, with which the names of the actuators begin.
    """
    if isinstance(space, spaces.Box):
        return _make_box_conversion(space, name)
    if isinstance(space, spaces.Discrete):
        return _make_discrete_conversion(space, name)
    if isinstance(space, spaces.MultiDiscrete):
        return _make_multi_discrete_conversion(space, name)
    if isinstance(space, spaces.MultiBinary):
        return _make_bits_conversion(space, name)
    return _make_conversion_of_parts(
        _get_subspaces_with_names(space, name), isinstance(space, spaces.Dict)
    )


def _make_discrete_conversion(space: spaces.Discrete, name: str) -> ActionConversion:
    """Return the conversion of numbers to an action of a Discrete space.

    Args:
        space: The space.
        name: The name of the space, with which the names of the actuators begin.
    """
    first, count = int(space.start), int(space.n)

    def make_action(numbers: np.ndarray) -> int:
        """Return the option (an element of the space) whose number is largest."""
        return first + int(np.argmax(numbers))

    names = tuple(_join_space_id(name, i) for i in range(count))
    return ActionConversion(
        names,
        (count,),
        make_action,
        lambda action: encode_choices_as_numbers((count,), int(action) - first),
        make_action,
    )


def _make_multi_discrete_conversion(space: spaces.MultiDiscrete, name: str) -> ActionConversion:
    """Return the conversion of numbers to an action of a MultiDiscrete space.

    Args:
        space: The space.
        name: The name of the space, with which the names of the actuators begin.
    """
    choices, start = tuple(space.nvec.ravel().tolist()), space.start.ravel()
    # A group with a single choice is not a bit: that choice is made for every number.
    groups = tuple(count if count > 1 else 1 for count in choices)

    def make_action(numbers: np.ndarray) -> np.ndarray:
        """Return for each choice the option whose number is largest, as an action of the space."""
        places = [
            p if c > 1 else 0 for p, c in zip(decode_choices(groups, numbers), choices, strict=True)
        ]
        return (start + np.array(places)).astype(space.dtype).reshape(space.shape)

    def make_numbers(action: Any) -> np.ndarray:
        """Return numbers (A,) from which `make_action` makes this action."""
        return encode_choices_as_numbers(groups, np.ravel(action) - start)

    names = tuple(
        _join_space_id(name, place, i) for place, count in enumerate(choices) for i in range(count)
    )
    return ActionConversion(
        names, choices if min(choices) > 1 else (), make_action, make_numbers, make_action
    )


def _make_bits_conversion(space: spaces.MultiBinary, name: str) -> ActionConversion:
    """Return the conversion of numbers to an action of a MultiBinary space.

    Args:
        space: The space.
        name: The name of the space, with which the names of the actuators begin.
    """
    count = int(np.prod(space.shape))

    def make_action(numbers: np.ndarray) -> np.ndarray:
        """Return the action of the space that has 1 for each positive number, else 0."""
        return (np.asarray(numbers) > 0.0).astype(space.dtype).reshape(space.shape)

    def make_numbers(action: Any) -> np.ndarray:
        """Return numbers (A,) from which `make_action` makes this action: 1 or -1 for each bit."""
        return encode_choices_as_numbers((1,) * count, action)

    names = tuple(_join_space_id(name, i) for i in range(count))
    return ActionConversion(names, (1,) * count, make_action, make_numbers, make_action)


def _make_conversion_of_parts(
    parts: Mapping[Any, tuple[Space, str]], is_dict: bool
) -> ActionConversion:
    """Return the conversion of numbers to actions of a Dict or Tuple space.

    Args:
        parts: The space and the name of each part, by the key of the part.
        is_dict: Whether the space is a Dict (True) or a Tuple (False).
    """
    each = {key: _make_conversion_of_space(part, name) for key, (part, name) in parts.items()}
    names = tuple(name for one in each.values() for name in one.names)
    all_choices = all(one.choices for one in each.values())
    choices = tuple(size for one in each.values() for size in one.choices) if all_choices else ()
    ends = np.cumsum([len(one.names) for one in each.values()])[:-1]

    def join_actions(functions: Sequence[Callable[[np.ndarray], Any]], numbers: np.ndarray) -> Any:
        """Convert numbers (A,) to an action: split them among the parts, convert each, and join."""
        split = np.split(np.asarray(numbers), ends)
        values = [function(own) for function, own in zip(functions, split, strict=True)]
        return dict(zip(each, values, strict=True)) if is_dict else tuple(values)

    def make_numbers(action: Any) -> np.ndarray:
        """Convert each part of an action to numbers, and join these to one array (A,)."""
        return np.concatenate([one.to_numbers(action[key]) for key, one in each.items()])

    if len({size == 1 for size in choices}) > 1:
        choices = ()  # no library learns bits beside choices
    return ActionConversion(
        names,
        choices,
        partial(join_actions, [one.to_action for one in each.values()]),
        make_numbers,
        partial(join_actions, [one.from_own_units for one in each.values()]),
    )


def _make_box_conversion(space: spaces.Box, name: str) -> ActionConversion:
    """Return the conversion of numbers in [-1, 1] to an action of a Box space.

    Args:
        space: The space.
        name: The name of the space, with which the names of the actuators begin.
    """
    low, high = compute_finite_bounds(space)
    # Halved first: the range of a Box may be larger than the largest float.
    middle, reach = low / 2.0 + high / 2.0, high / 2.0 - low / 2.0

    def make_action(numbers: np.ndarray) -> np.ndarray:
        """Scale numbers (A,) from [-1, 1] to the bounds of the Box, and clip them."""
        numbers = np.asarray(numbers, np.float64)
        action = clip_to_box(space, middle + reach * numbers)
        ends = numbers.reshape(space.shape)  # where both bounds are nearly one number
        action = np.where((ends <= -1.0) & space.bounded_below, space.low, action)
        return np.where((ends >= 1.0) & space.bounded_above, space.high, action)

    def make_numbers(action: Any) -> np.ndarray:
        """Return the numbers (A,) from which `make_action` makes this action of the Box."""
        away = np.ravel(action).astype(np.float64) - middle
        return np.divide(away, reach, out=np.zeros_like(away), where=reach > 0.0)

    def clip_to_unit(numbers: np.ndarray) -> np.ndarray:
        """Clip numbers (A,) to [-1, 1]: a faster `make_action` for a Box with these bounds."""
        return np.minimum(np.maximum(numbers, F32(-1.0)), F32(1.0)).astype(np.float32)

    def make_action_for_finite_float_bounds(numbers: np.ndarray) -> np.ndarray:
        """Do what `make_action` does, but faster, for a Box of floats with finite bounds."""
        action = (middle + reach * numbers).astype(space.dtype)
        action = np.minimum(np.maximum(action, own_low), own_high)
        if np.abs(numbers).max() >= 1.0:
            action = np.where(numbers <= -1.0, own_low, action)
            action = np.where(numbers >= 1.0, own_high, action)
        return action.reshape(space.shape)

    own_low, own_high = space.low.ravel(), space.high.ravel()
    unit = bool((space.low == -1.0).all() and (space.high == 1.0).all())
    if unit and space.dtype == np.float32 and space.shape == low.shape:
        make_action = clip_to_unit
    elif space.dtype in (np.float32, np.float64) and space.is_bounded():
        make_action = (
            make_action_for_finite_float_bounds
            if (low == own_low).all() and (high == own_high).all()
            else make_action
        )
    names = tuple(_join_space_id(name, i) for i in range(len(low)))
    return ActionConversion(
        names, (), make_action, make_numbers, lambda numbers: clip_to_box(space, numbers)
    )


def compute_finite_bounds(space: spaces.Box) -> tuple[np.ndarray, np.ndarray]:
    """Return finite bounds of a Box, to which a policy's numbers from -1 to 1 are scaled.

    A number without bounds gets -1 and 1. A number with a single bound gets two that are 2 apart,
    as near to -1 and 1 as the bound allows: 5 and 7 for a minimum of 5.

    Returns:
        The lower bounds (A,) and the upper bounds (A,), float64.
    """
    low, high = space.low.astype(np.float64).ravel(), space.high.astype(np.float64).ravel()
    below, above = space.bounded_below.ravel(), space.bounded_above.ravel()
    if np.issubdtype(space.dtype, np.floating):  # what older environments write for "none"
        kind: Any = space.dtype
        largest = float(np.finfo(kind).max)
        below, above = below & (low > -largest), above & (high < largest)
    one_sided = below != above
    first = np.where(below, np.maximum(low, -1.0), -1.0)
    first = np.where(above & one_sided, np.minimum(first, high - 2.0), first)
    last = np.where(above, np.minimum(high, first + 2.0), first + 2.0)
    both = below & above
    return np.where(both, low, first), np.where(both, high, last)


def clip_to_box(space: spaces.Box, numbers: np.ndarray) -> np.ndarray:
    """Clip numbers in a Box's own units to its bounds, and convert them to its type and shape.

    A number that differs from a bound only by rounding errors becomes that bound.

    Args:
        space: The Box.
        numbers: The numbers (A,).

    Returns:
        An action of the Box.
    """
    low, high = space.low.ravel(), space.high.ravel()
    least, most = low.astype(np.float64), high.astype(np.float64)
    numbers = np.asarray(numbers, np.float64).ravel()
    finite = np.where(np.isfinite(least), least, 0.0), np.where(np.isfinite(most), most, 0.0)
    near = 2.0 * SNAP * np.spacing(np.maximum(*np.abs(finite)) / 2.0)  # not over the largest float
    at_low, at_high = numbers <= least + near, numbers >= most - near
    if not np.issubdtype(space.dtype, np.floating):
        numbers = np.rint(numbers)
        at_low, at_high = at_low | (numbers <= least), at_high | (numbers >= most)
    between = np.where(at_low | at_high, 0.0, numbers).astype(space.dtype)
    action: np.ndarray = np.where(at_low, low, np.where(at_high, high, between))
    return action.astype(space.dtype).reshape(space.shape)
