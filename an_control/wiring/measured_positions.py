"""Where the actuators are, as last measured; for the safe command and bring-up."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from an_control.wiring.command import CommandConfig
from an_control.wiring.compile import compile_source, follow
from an_control.wiring.config import ChannelConfig
from an_control.wiring.errors import WiringError
from an_control.wiring.messages import Resolver


class Measured:
    """Reads the actuators' positions from messages of one source.

    `values` (A,) float64 in the units of the commands: the last finite position of each actuator,
    NaN before the first. WiringError where the field leads to no number.
    """

    def __init__(self, command: CommandConfig, cls: Any, resolve: Resolver, file: str) -> None:
        assert command.measured is not None
        self.source, field = command.measured.source, command.measured.field
        channels = [
            ChannelConfig(name, self.source, field.replace("*", name)) for name in command.names
        ]
        try:
            leaves = [leaf for one in channels for leaf in follow(one, cls, resolve, file)]
        except WiringError as error:
            raise WiringError(file, "command.measured.field", field, error.allowed) from None
        self._readers, self._names = compile_source(leaves, set())
        found = [name for reader in self._readers for name in reader.ids]
        self._places = np.array([found.index(name) for name in command.names], np.int64)
        self._row = np.full(len(found), np.nan)
        self.values: NDArray[np.float64] = np.full(len(found), np.nan)

    def read(self, message: Any) -> None:
        """Take what this message says; what it does not say, or not finitely, stays."""
        start = 0
        try:
            for names in self._names:
                names.update(message)
            for reader in self._readers:
                reader.read(message, self._row[start : start + len(reader.ids)])
                start += len(reader.ids)
        except Exception:  # the table says what is wrong with a message that cannot be read
            return
        new = self._row[self._places]
        self.values = np.where(np.isfinite(new), new, self.values)
