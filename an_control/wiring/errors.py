"""What the wiring says when a file is not what it should be."""

from __future__ import annotations

from pathlib import Path

_SHOWN = 80
"""Characters of an offending value that an error repeats."""


class WiringError(ValueError):
    """A wiring that cannot be used.

    file     the file it came from
    key      where in the file, dotted (`channels.height.scale`); empty for the whole file
    value    what stood there, shortened
    allowed  what may stand there
    """

    def __init__(self, file: str | Path, key: str, value: object, allowed: str) -> None:
        self.file, self.key, self.allowed = str(file), key, allowed
        self.value = shown(value)
        place = f"{self.file}: {_short(key)}" if key else self.file
        problem = f"{self.value} is not allowed; allowed"
        if isinstance(value, Missing):
            problem = f"{self.value} is missing; needed"
        super().__init__(f"{place}: {problem}: {allowed}")


def shown(value: object) -> str:
    """A value as an error repeats it: on one line, and short."""
    return _short(value if isinstance(value, Shown) else repr(value))


def without_middle(error: Exception) -> str:
    """What an error of a library says; of one that repeats a long value whole, its two ends."""
    text = str(error)
    return text if len(text) <= 4 * _SHOWN else f"{text[: 2 * _SHOWN]} ... {text[-2 * _SHOWN :]}"


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


class Shown(str):
    """Words that describe a value, as against the value itself."""

    __slots__ = ()


class Missing(Shown):
    """The name of a key, or words for something, that should be there and is not."""

    __slots__ = ()
