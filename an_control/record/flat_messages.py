"""Keep the content of ROS messages in memory, at a fraction of the time that serializing takes.

The content of a message becomes a few tuples of numbers and bytes, which are not a burden for the
garbage collector. The message can be made again of them. Nothing here imports rclpy.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from operator import attrgetter, methodcaller
from typing import Any

import numpy as np

BYTES_A_MESSAGE, BYTES_A_VALUE = 400, 32
"""Approximate memory of a message's tuples, and of a number or an empty text or array."""
_copy_bytes = methodcaller("tobytes")
_join = "\0".join
"""ROS texts cannot contain the character that separates joined ones."""


FlatMessage = tuple[
    tuple[Any, ...], tuple[str, ...], tuple[bytes, ...], tuple[str, ...], tuple[int, ...], int
]
"""The content of a message: its numbers; its texts; its arrays of numbers, as bytes; its lists of
texts, each joined to one; the number of texts of each list; and its approximate memory in bytes.

It is a plain tuple, as the garbage collector soon leaves only plain ones alone."""


class Flattener:
    """Converter of ROS messages of one class to plain tuples, and back.

    A tuple (`FlatMessage`) holds the content of a message. It needs little memory, and making it
    takes less time than serialising the message.

    Args:
        cls: The Python class of the messages.

    Raises:
        ValueError: A field, also of a message inside, is no number, text, array of numbers or list
            of texts.
    """

    def __init__(self, cls: Any) -> None:
        self._cls = cls
        self._paths: dict[str, list[str]] = {kind: [] for kind in _KINDS}
        self._add_field_paths(cls(), "")
        self._numbers, self._texts, self._arrays, self._lists = (
            _make_attribute_getter(self._paths[kind]) for kind in _KINDS
        )
        self._size = BYTES_A_MESSAGE + BYTES_A_VALUE * sum(map(len, self._paths.values()))

    def _add_field_paths(self, message: Any, path_prefix: str) -> None:
        """Add the attribute path of each value in a message to `_paths`, by kind of value."""
        for name, type_ in message.get_fields_and_field_types().items():
            path, value = f"{path_prefix}_{name}", getattr(message, f"_{name}")
            if hasattr(value, "get_fields_and_field_types"):
                self._add_field_paths(value, f"{path}.")
                continue
            self._paths[_classify_field_value(value, type_)].append(path)

    def flatten(self, message: Any) -> FlatMessage:
        """Return a message's content as a tuple; later changes of the message do not affect it."""
        texts, lists = self._texts(message), self._lists(message)
        arrays = tuple(map(_copy_bytes, self._arrays(message)))
        joined = tuple(map(_join, lists))
        size = self._size + sum(map(len, texts)) + sum(map(len, arrays)) + sum(map(len, joined))
        counts = tuple(map(len, lists))
        return self._numbers(message), texts, arrays, joined, counts, size

    def restore(self, flat: FlatMessage) -> Any:
        """Return a new message with the content of a tuple that `flatten` has returned."""
        message = self._cls()
        numbers, texts, arrays, lists, counts, _ = flat
        for path, number in zip(self._paths["number"], numbers, strict=True):
            _set_attribute(message, path, number)
        for path, text in zip(self._paths["text"], texts, strict=True):
            _set_attribute(message, path, text)
        for path, data in zip(self._paths["array"], arrays, strict=True):
            usual = attrgetter(path)(message)
            if isinstance(usual, array):
                _set_attribute(message, path, array(usual.typecode, data))
            else:
                _set_attribute(message, path, np.frombuffer(data, usual.dtype).copy())
        for path, joined, count in zip(self._paths["list"], lists, counts, strict=True):
            _set_attribute(message, path, joined.split("\0") if count else [])
        return message


_KINDS = ("number", "text", "array", "list")


def _classify_field_value(value: Any, type_: str) -> str:
    """Return which of `_KINDS` a message's field holds; raise ValueError if it is another."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool | int | float | bytes):
        return "number"
    if isinstance(value, array | np.ndarray):
        return "array"
    if isinstance(value, list) and type_.startswith(("sequence<string", "string")):
        return "list"
    raise ValueError(f"field of type {type_}")


def _make_attribute_getter(paths: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns the attributes at these dotted paths of a message, as a tuple.

    A path is one such as "_header._frame_id".
    """
    if not paths:
        return lambda message: ()
    get = attrgetter(*paths)
    return get if len(paths) > 1 else lambda message: (get(message),)


def _set_attribute(message: Any, path: str, value: Any) -> None:
    """Set the attribute at a dotted path of a message, such as "_header._frame_id"."""
    *above, name = path.split(".")
    for one in above:
        message = getattr(message, one)
    setattr(message, name, value)
