"""The sizes in a model file's header: which kind has which, and what is allowed.

The sizes of the forward model that a model file may carry, and what its monitor does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from reprlib import repr as short
from typing import Any, Literal, get_args

from an_control.policy.sizes.scalar import (
    MAX_LAYERS,
    MAX_SIZE,
    AttentionSizes,
    MlpSizes,
    RecurrenceSizes,
    Shapes,
    layer_shapes,
)
from an_control.policy.sizes.vision import ConvolutionSizes, TopPatchesSizes, VisionSizes

MAY_BE_ZERO = {
    f"sizes.{name}" for name in ("first_action", "memory", "stack", "normalise", "inducing")
}
CHOICES: dict[str, tuple[Any, ...]] = {
    "attention": ("tanh", "softmax", "pma"),
    "encoder": ("none", "isab", "sab"),
    "activation": ("tanh", "relu"),
    "output": ("tanh", "clip"),
    "inputs": (["value"], ["value", "change"]),
    "products": (False, True),
    "outlier_weighting": (False, True),
    "reset_on_jump": (False, True),
    "prediction_attention": (False, True),
    "norm_weights": (False, True),
    "choice": (False, True),
}

Sizes = AttentionSizes | MlpSizes | TopPatchesSizes | ConvolutionSizes
KINDS: dict[str, type[Sizes]] = {
    "attention_neuron": AttentionSizes,
    "mlp": MlpSizes,
    "vision_top_patches": TopPatchesSizes,
    "vision_convolution": ConvolutionSizes,
}


def kind_of(sizes: Sizes) -> str:
    """The kind of model that has sizes of this class."""
    return next(kind for kind, cls in KINDS.items() if cls is type(sizes))


def sizes_from(kind: str, header: Mapping[str, Any]) -> Sizes:
    """The sizes in a header; ValueError names key, value and what was allowed."""
    if kind not in KINDS:
        raise ValueError(f"kind: {short(kind)} is not one of {', '.join(KINDS)}")
    cls = KINDS[kind]
    known = {field.name for field in fields(cls)}
    for key in header:
        if key not in known:
            raise ValueError(f"sizes.{key[:80]}: unknown, allowed are {', '.join(sorted(known))}")
    recurrence = {}
    if header.get("recurrence") is not None:
        recurrence["recurrence"] = RecurrenceSizes.read(header["recurrence"])
    try:
        sizes = cls(**{**header, **recurrence})
    except TypeError as error:
        raise ValueError(f"sizes: {error}") from None
    for key, value in asdict(sizes).items():
        if key != "recurrence":
            choices = CHOICES.get(key)
            if key == "attention" and isinstance(sizes, VisionSizes):
                choices = ("softmax", "pma")
            _check(f"sizes.{key}", value, choices)
    if not isinstance(sizes, MlpSizes):
        sizes.check()
    return sizes


def _check(key: str, value: Any, choices: tuple[Any, ...] | None) -> None:
    shown = short(value)
    if choices is not None:
        if not any(value == choice and type(value) is type(choice) for choice in choices):
            raise ValueError(f"{key}: {shown} is not one of {', '.join(map(repr, choices))}")
    elif key == "sizes.head":
        if not isinstance(value, list) or len(value) > MAX_LAYERS:
            raise ValueError(f"{key}: {shown} is not a list of at most {MAX_LAYERS} widths")
        for layer, width in enumerate(value):
            _check(f"{key}[{layer}]", width, None)
    else:
        min_value = 0 if key in MAY_BE_ZERO else 1
        if type(value) is not int or not min_value <= value <= MAX_SIZE:
            raise ValueError(f"{key}: {shown} is not a whole number from {min_value} to {MAX_SIZE}")


Monitor = Literal["off", "reset", "match"]
WINDOW = 12
"""Ticks of a slot that the identity classifier sees, at most."""
MAX_NUMBER = 1e6
"""Of each number that a validation stores."""
MIN_FOUND = 0.5
"""Share of the signals that moved in the validation that a monitor must find."""
OPTIONAL: Mapping[str, Any] = {"imputation": 0, "validation": None}
"""What older files lack, and what it is in them."""


@dataclass(frozen=True)
class MonitorValidation:
    """What a monitor was measured to do in episodes that it had not seen, and what is usual there.

    max_excess        nats a tick above the usual up to which readings count as explained
    min_gain          nats by which another assignment must explain the readings better
    slow              channels that repeat their readings as those of slow sensors do
    ticks             so many were played on robots whose signals stayed where they are wired
    false_moves_hour  moves an hour that the monitor invented in these
    found             share of the signals that moved in further ticks that the monitor found
    """

    max_excess: float
    min_gain: float
    slow: int
    ticks: int
    false_moves_hour: float
    found: float

    @property
    def passed(self) -> bool:
        """Whether the monitor invents no move and finds enough of the real ones."""
        return not self.false_moves_hour and self.found >= MIN_FOUND

    def __str__(self) -> str:
        return (
            f"in {self.ticks} ticks on robots whose signals stayed where they are wired it invented"
            f" {self.false_moves_hour:.3g} moves an hour (allowed: 0), and it found"
            f" {self.found:.0%} of the signals that did move (at least {MIN_FOUND:.0%})"
        )

    @classmethod
    def read(cls, header: Any) -> MonitorValidation:
        """Return that of a model file's header; ValueError names key, value and what is allowed."""
        known = [field.name for field in fields(cls)]
        if not isinstance(header, Mapping) or sorted(header) != sorted(known):
            raise ValueError(
                f"forward.validation: {short(header)} is not an object of {', '.join(known)}"
            )
        for key, value in header.items():
            whole = key in ("slow", "ticks")
            number = type(value) is int or (type(value) is float and not whole)
            if not number or not 0 <= value <= (1 if key == "found" else MAX_NUMBER):
                kind, most = ("a whole number" if whole else "a number"), MAX_NUMBER
                allowed = f"{kind} from 0 to {1 if key == 'found' else most:g}"
                raise ValueError(f"forward.validation.{key}: {short(value)} is not {allowed}")
        return cls(**header)


@dataclass(frozen=True)
class ForwardSizes:
    """The networks' sizes, and what the monitor does where nobody asks for something else.

    hidden      layers of the network that predicts
    identity    units in the two layers of the identity classifier
    binary      ids of the channels that read 0 or 1
    monitor     the default of a monitor that passed its validation
    imputation  units in the two layers of the network that imputes missing channels; 0: none does
    validation  what the monitor was measured to do; None where it was not measured
    """

    hidden: list[int]
    identity: int
    binary: list[str]
    monitor: Monitor = "match"
    imputation: int = 0
    validation: MonitorValidation | None = None

    @property
    def default(self) -> Monitor:
        """What the monitor does where nobody asks for something else: nothing if it failed."""
        return "off" if self.why_off else self.monitor

    @property
    def why_off(self) -> str:
        """Why a monitor that should watch starts as "off", and what to do, or "" if it does not."""
        validation = self.validation
        if self.monitor == "off" or validation is None or validation.passed:
            return ""
        return (
            f"the monitor is off: {validation}; train it for longer (an-control train-monitor), or"
            f" take it as it is with monitor {self.monitor!r}"
        )

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
        if not isinstance(header, Mapping) or sorted({**OPTIONAL, **header}) != sorted(known):
            raise ValueError(f"forward: {short(header)} is not an object of {', '.join(known)}")
        hidden, identity, binary, monitor, imputation, validation = (
            {**OPTIONAL, **header}[name] for name in known
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
        if validation is not None:
            validation = MonitorValidation.read(validation)
        return cls(hidden, identity, binary, monitor, imputation, validation)
