"""The shapes of the Set Transformer's parts (Lee et al. 2019), of one width d throughout."""

from __future__ import annotations

from typing import Literal, Protocol

from an_control.policy.sizes.shapes import Shapes

Encoder = Literal["none", "isab", "sab"]


class PartSizes(Protocol):
    """What a policy's sizes say of these parts."""

    @property
    def attention(self) -> str: ...
    @property
    def encoder(self) -> Encoder: ...
    @property
    def inducing(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def compares(self) -> bool: ...


def check_parts(sizes: PartSizes, width: int, divided: str) -> None:
    """ValueError where the numbers do not fit each other or the blocks' `width`, which is what
    `divided` says in words."""
    if (sizes.inducing > 0) != (sizes.encoder == "isab"):
        raise ValueError(
            f"sizes.inducing: {sizes.inducing}, encoder {sizes.encoder} "
            + ("needs at least 1" if sizes.encoder == "isab" else "allows 0")
        )
    if sizes.heads > 1 and not sizes.compares:
        raise ValueError(
            f"sizes.heads: {sizes.heads}, {sizes.attention} attention without an encoder allows 1"
        )
    if width % sizes.heads:
        raise ValueError(f"sizes.heads: {sizes.heads} does not divide the {divided.format(width)}")


def block_shapes(name: str, width: int) -> Shapes:
    """Of a multihead attention block, MAB: its attention, its row-wise layer, a norm after each."""
    square, row = (width, width), (width,)
    return {
        f"{name}.query": square,
        f"{name}.key": square,
        f"{name}.value": square,
        f"{name}.output": square,
        f"{name}.attention_norm.weight": row,
        f"{name}.attention_norm.bias": row,
        f"{name}.feed_forward.weight": square,
        f"{name}.feed_forward.bias": row,
        f"{name}.norm.weight": row,
        f"{name}.norm.bias": row,
    }


def encoder_shapes(kind: Encoder, width: int, inducing: int) -> Shapes:
    """Of the encoder between the channels: one block for SAB, two and the points for ISAB."""
    if kind == "sab":
        return block_shapes("encoder", width)
    if kind == "isab":
        return {
            "encoder.inducing": (inducing, width),
            **block_shapes("encoder.gather", width),
            **block_shapes("encoder.spread", width),
        }
    return {}


def pooling_shapes(seeds: int, width: int) -> Shapes:
    """Of the pooling by multihead attention, PMA, with its row-wise layer before."""
    return {
        "pooling.seeds": (seeds, width),
        "pooling.input.weight": (width, width),
        "pooling.input.bias": (width,),
        **block_shapes("pooling", width),
    }
