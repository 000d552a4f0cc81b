"""From a command message to an environment's action, by actuator name where there are names.

A command is taken or refused as one: one actuator missing or one number that is not finite,
and the message counts as not come.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from an_control.wiring.errors import WiringError
from an_control.wiring.messages import FieldType, field_types, stamp_reader
from an_control_sim.bridge.simulation_file import CommandConfig


class Commands:
    """Reads the command messages of one environment.

    `safe` (A,) float64 are the actuators' safe values in the unit of the action.
    """

    def __init__(
        self, config: CommandConfig, message_class: Any, space: gymnasium.Space[Any], file: str
    ) -> None:
        self._field = config.field
        self._names = [actuator.name for actuator in config.actuators]
        self._scales = np.array([actuator.scale for actuator in config.actuators])
        self._offsets = np.array([actuator.offset for actuator in config.actuators])
        safe = np.array([actuator.safe for actuator in config.actuators])
        self.safe = (safe - self._offsets) / self._scales
        self._space = space
        self.stamp_ns = stamp_reader(message_class)
        """The stamp of the readings that a command answers; None where it has none."""
        types = field_types(message_class)
        floats = [name for name, kind in types.items() if kind.base in ("double", "float")]
        if self._field not in floats:
            allowed = f"a field of floats: {', '.join(floats) or '(none)'}"
            raise WiringError(file, "command.field", self._field, allowed)
        self._several = types[self._field].array
        self._named = types.get("name") == FieldType("string", True)
        self._known_names: list[str] = []
        self._places: list[int] = []
        self._check(len(self._names), file)

    def read(self, message: Any) -> NDArray[np.float64]:
        """(A,) commands in the unit of the action. ValueError says why one cannot be taken."""
        data = getattr(message, self._field)
        commands = np.array(data if self._several else [data], dtype=np.float64)
        if self._named:
            commands = commands[self._order(message.name, len(commands))]
        elif len(commands) != len(self._names):
            raise ValueError(f"{len(commands)} values for {len(self._names)} actuators")
        if not np.isfinite(commands).all():
            raise ValueError("a value that is not finite")
        return (commands - self._offsets) / self._scales

    def action(self, commands: NDArray[np.float64]) -> Any:
        """The environment's action: within a Box; for Discrete the index, or the largest of n."""
        if isinstance(self._space, gymnasium.spaces.Box):
            low, high = self._space.low.ravel(), self._space.high.ravel()
            bounded = np.minimum(np.maximum(commands, low), high)
            return bounded.reshape(self._space.shape).astype(self._space.dtype)
        assert isinstance(self._space, gymnasium.spaces.Discrete)
        if len(commands) > 1:
            return int(self._space.start + np.argmax(commands))
        return int(min(max(round(commands[0]), 0), self._space.n - 1) + self._space.start)

    def _order(self, names: Sequence[str], count: int) -> list[int]:
        """Where each actuator is in a message with these names; kept while they do not change."""
        if names != self._known_names or count != len(self._known_names):
            missing = [name for name in self._names if name not in names]
            if missing or count != len(names):
                why = f"no actuator {missing[0]}" if missing else f"{count} values"
                raise ValueError(f"{why} for the names {list(names)}")
            self._places = [list(names).index(name) for name in self._names]
            self._known_names = list(names)
        return self._places

    def _check(self, count: int, file: str) -> None:
        if isinstance(self._space, gymnasium.spaces.Box):
            wanted = [int(np.prod(self._space.shape))]
        elif isinstance(self._space, gymnasium.spaces.Discrete):
            wanted = sorted({1, int(self._space.n)})
        else:
            kind = type(self._space).__name__
            raise WiringError(file, "environment", kind, "an action space Box or Discrete")
        if count not in wanted:
            allowed = f"{' or '.join(map(str, wanted))} actuators, as the environment's action has"
            raise WiringError(file, "command.actuators", count, allowed)
