"""The sizes of the forward model that a model file may carry, and what its monitor does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from reprlib import repr as short
from typing import Any, Literal, get_args

from an_control.policy.sizes.shapes import MAX_LAYERS, MAX_SIZE, Shapes, layer_shapes

Monitor = Literal["off", "reset", "match"]
WINDOW = 12
"""Ticks of a slot that the identity classifier sees, at most."""


@dataclass(frozen=True)
class ForwardSizes:
    """The networks' sizes, and what the monitor does where nobody asks for something else.

    hidden      layers of the network that predicts
    identity    units in the two layers of the identity classifier
    binary      ids of the channels that read 0 or 1
    monitor     the default
    imputation  units in the two layers of the network that imputes missing channels; 0: none does
    """

    hidden: list[int]
    identity: int
    binary: list[str]
    monitor: Monitor = "match"
    imputation: int = 0

    def shapes(self, channels: int, actions: int) -> Shapes:
        """The arrays' shapes; a usual step and cost a channel, two units."""
        common = WINDOW * (actions + 1)
        imputation: Shapes = {}
        if self.imputation:
            widths = [3 * channels + actions, self.imputation, self.imputation, channels]
            imputation = {
                "imputation.typical": (3, channels),
                "imputation.max_roughness": (1,),
                **layer_shapes("imputation", widths),
            }
        return {
            **imputation,
            **layer_shapes("forward", [channels + actions, *self.hidden, 2 * channels]),
            "forward.step": (channels,),
            "forward.usual": (channels,),
            "identity.units": (2,),
            "identity.common": (self.identity, common),
            **layer_shapes("identity", [2 * WINDOW, self.identity, self.identity, channels]),
        }

    @classmethod
    def read(cls, header: Any, channels: list[str]) -> ForwardSizes:
        """From a model file's header; ValueError names key, value and what is allowed."""
        known = [field.name for field in fields(cls)]
        if not isinstance(header, Mapping) or sorted({"imputation": 0, **header}) != sorted(known):
            raise ValueError(f"forward: {short(header)} is not an object of {', '.join(known)}")
        hidden, identity, binary, monitor, imputation = (
            {"imputation": 0, **header}[name] for name in known
        )
        if not channels:
            raise ValueError("forward: needs task.channels, the ids that it is about")
        if not isinstance(hidden, list) or not 1 <= len(hidden) <= MAX_LAYERS:
            raise ValueError(f"forward.hidden: {short(hidden)} is not a list of 1 to {MAX_LAYERS}")
        for key, width in [*(("hidden", width) for width in hidden), ("identity", identity)]:
            if type(width) is not int or not 1 <= width <= MAX_SIZE:
                raise ValueError(f"forward.{key}: {short(width)} is not from 1 to {MAX_SIZE}")
        if type(imputation) is not int or not 0 <= imputation <= MAX_SIZE:
            raise ValueError(f"forward.imputation: {short(imputation)} is not from 0 to {MAX_SIZE}")
        if not isinstance(binary, list) or any(name not in channels for name in binary):
            raise ValueError(f"forward.binary: {short(binary)} is not a list out of task.channels")
        if monitor not in get_args(Monitor):
            allowed = ", ".join(get_args(Monitor))
            raise ValueError(f"forward.monitor: {short(monitor)} is not one of {allowed}")
        return cls(hidden, identity, binary, monitor, imputation)
