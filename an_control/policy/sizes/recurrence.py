"""The sizes of the memory behind a policy's message, and the arrays that they imply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from reprlib import repr as short
from typing import Any, Literal, get_args

from an_control.policy.sizes.shapes import MAX_LAYERS, MAX_SIZE, Shapes, layer_shapes

Kind = Literal["lstm", "gru", "trxl", "trxl-i", "gtrxl"]
MAX_WINDOW = 4_096
"""Ticks; what is kept of them takes memory that no array of the file stands for."""
MOST = {"layers": MAX_LAYERS, "window": MAX_WINDOW}
GATES = {"lstm": 4, "gru": 3}
"""Rows of the arrays for each unit; the gates are i, f, g, o and reset, update, new."""


@dataclass(frozen=True)
class RecurrenceSizes:
    """A memory from (inputs,) to (units,) at every tick.

    kind    ``lstm`` (Hochreiter & Schmidhuber 1997), ``gru`` (Cho et al. 2014), or a transformer
            of Parisotto et al. 2019: ``trxl``, ``trxl-i`` (norms moved to the submodules' inputs),
            ``gtrxl`` (and GRU gates in place of sums)
    layers  of a transformer
    heads   of its attention
    window  ticks that a layer sees, the present one included
    """

    kind: Kind
    units: int
    layers: int = 1
    heads: int = 1
    window: int = 1

    def shapes(self, inputs: int) -> Shapes:
        """The arrays' shapes; weights are (out, in)."""
        units = self.units
        if self.kind in GATES:
            rows = GATES[self.kind] * units
            shapes: Shapes = {
                "recurrence.input": (rows, inputs),
                "recurrence.hidden": (rows, units),
                "recurrence.bias": (rows,),
            }
            return shapes | ({"recurrence.hidden_bias": (units,)} if self.kind == "gru" else {})
        shapes = {"recurrence.input.weight": (units, inputs), "recurrence.input.bias": (units,)}
        for layer in range(self.layers):
            shapes |= self._layer_shapes(f"recurrence.layers.{layer}")
        return shapes

    def _layer_shapes(self, name: str) -> Shapes:
        units, square = self.units, (self.units, self.units)
        shapes: Shapes = {
            f"{name}.{part}": square for part in ("query", "key", "value", "relative", "output")
        }
        for part in ("content_bias", "position_bias"):
            shapes[f"{name}.{part}"] = (self.heads, units // self.heads)
        shapes |= layer_shapes(f"{name}.network", [units, 4 * units, units])
        for part in ("attention", "network"):
            shapes[f"{name}.{part}_norm.weight"] = shapes[f"{name}.{part}_norm.bias"] = (units,)
            if self.kind == "gtrxl":  # rows in the order reset, update, new
                shapes[f"{name}.{part}_gate.input"] = (3 * units, units)
                shapes[f"{name}.{part}_gate.hidden"] = (3 * units, units)
                shapes[f"{name}.{part}_gate.bias"] = (units,)
        return shapes

    def check(self) -> None:
        """ValueError where the numbers do not fit each other."""
        if self.kind in GATES:
            for key in ("layers", "heads", "window"):
                value = getattr(self, key)
                if value != 1:
                    raise ValueError(f"sizes.recurrence.{key}: {value}, {self.kind} allows 1")
        elif self.units % 2:
            raise ValueError(f"sizes.recurrence.units: {self.units}, {self.kind} needs an even one")
        elif self.units % self.heads:
            raise ValueError(
                f"sizes.recurrence.heads: {self.heads}, must divide units {self.units}"
            )

    @classmethod
    def read(cls, header: Any) -> RecurrenceSizes:
        """From a model file's header; ValueError names key, value and what is allowed."""
        if not isinstance(header, Mapping):
            raise ValueError(f"sizes.recurrence: {short(header)} is not an object")
        known = [field.name for field in fields(cls)]
        for key in header:
            if key not in known:
                raise ValueError(
                    f"sizes.recurrence.{str(key)[:80]}: unknown, allowed are {', '.join(known)}"
                )
        try:
            sizes = cls(**header)
        except TypeError as error:
            raise ValueError(f"sizes.recurrence: {error}") from None
        if sizes.kind not in get_args(Kind):
            allowed = ", ".join(get_args(Kind))
            raise ValueError(f"sizes.recurrence.kind: {short(sizes.kind)} is not one of {allowed}")
        for key in known[1:]:
            value, most = getattr(sizes, key), MOST.get(key, MAX_SIZE)
            if type(value) is not int or not 1 <= value <= most:
                raise ValueError(
                    f"sizes.recurrence.{key}: {short(value)} is not a whole number from 1 to {most}"
                )
        sizes.check()
        return sizes
