"""The shapes of the Set Transformer's parts (Lee et al. 2019), of one width d throughout."""

from __future__ import annotations

from typing import Literal

from an_control.policy.sizes.shapes import Shapes

Encoder = Literal["none", "isab", "sab"]


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
