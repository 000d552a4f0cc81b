"""Where the actuators are, as last measured; for the safe command and bring-up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from an_control.wiring.command import CommandConfig
from an_control.wiring.compile import compile_source, follow
from an_control.wiring.config import ChannelConfig
from an_control.wiring.errors import WiringError
from an_control.wiring.fields import element
from an_control.wiring.listings import Names
from an_control.wiring.messages import Resolver
from an_control.wiring.readers import Reader


class Measured:
    """Reads the actuators' positions from messages of the sources that the command names.

    Only of those that hold their position or are moved to a start pose. `values` (A,) float64 in
    the units of the commands: the last finite position of each, NaN before the first and of all
    others. WiringError where a field leads to no number.
    """

    def __init__(
        self, command: CommandConfig, classes: Mapping[str, Any], resolve: Resolver, file: str
    ) -> None:
        self.values: NDArray[np.float64] = np.full(len(command.actuators), np.nan)
        self.needed = np.array([a.safe == "hold" or a.start is not None for a in command.actuators])
        """(A,) of which actuators the position is needed."""
        self._readers: dict[str, list[_Positions]] = {}
        for number, (message, span) in enumerate(
            zip(command.messages, command.slices, strict=True)
        ):
            measured = message.measured
            if measured is None:
                continue
            places = {command.names[i]: i for i in range(span.start, span.stop) if self.needed[i]}
            channels = [
                ChannelConfig(name, measured.source, _named(measured.field, name))
                for name in places
            ]
            cls = classes[measured.source]
            try:
                leaves = [leaf for one in channels for leaf in follow(one, cls, resolve, file)]
            except WiringError as error:
                key = f"{command.key(number)}.measured.field"
                raise WiringError(file, key, measured.field, error.allowed) from None
            positions = _Positions(*compile_source(leaves, set()), places)
            self._readers.setdefault(measured.source, []).append(positions)

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources that measure positions."""
        return tuple(self._readers)

    @property
    def known(self) -> bool:
        """Whether every position that is needed has been measured."""
        return bool(np.isfinite(self.values[self.needed]).all())

    def read(self, source: str, message: Any) -> None:
        """Take what this message of a source says; what it does not say, or not finitely, stays."""
        for positions in self._readers[source]:
            self.values = positions.read(message, self.values)


def _named(field: str, name: str) -> str:
    """Return a field path with the actuator's name for the `*`, in quotes where it needs them."""
    before, starred, after = field.partition("[*]")
    return element(before, name) + after if starred else field.replace("*", name)


class _Positions:
    """The positions that one message of a source holds; `places` by name in the command."""

    def __init__(
        self, readers: list[Reader], names: list[Names], places: Mapping[str, int]
    ) -> None:
        self._readers, self._names = readers, names
        found = [name for reader in readers for name in reader.ids]
        self._places = np.array([places[name] for name in found], np.intp)
        self._row = np.full(len(found), np.nan)

    def read(self, message: Any, before: NDArray[np.float64]) -> NDArray[np.float64]:
        """A new array with what this message says."""
        start = 0
        try:
            for names in self._names:
                names.update(message)
            for reader in self._readers:
                reader.read(message, self._row[start : start + len(reader.ids)])
                start += len(reader.ids)
        except Exception:  # the table says what is wrong with a message that cannot be read
            return before
        values, finite = before.copy(), np.isfinite(self._row)
        values[self._places[finite]] = self._row[finite]
        return values
