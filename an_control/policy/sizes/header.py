"""The sizes in a model file's header: which kind has which, and what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from reprlib import repr as short
from typing import Any

from an_control.policy.sizes.recurrence import RecurrenceSizes
from an_control.policy.sizes.scalar import AttentionSizes, MlpSizes
from an_control.policy.sizes.shapes import MAX_LAYERS, MAX_SIZE
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
