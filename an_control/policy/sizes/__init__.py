"""What a policy is made of: the sizes in a model file's header and the arrays they imply.

Sizes come from untrusted files, so every number is bounded before a shape is built from it.
"""

from an_control.policy.sizes.header import (
    KINDS,
    WINDOW,
    ForwardSizes,
    Monitor,
    MonitorValidation,
    Sizes,
    kind_of,
    sizes_from,
)
from an_control.policy.sizes.scalar import (
    MAX_SIZE,
    AttentionSizes,
    Encoder,
    MlpSizes,
    RecurrenceSizes,
    Shapes,
    paper_sizes,
)
from an_control.policy.sizes.vision import (
    CAR_RACING_SIZES,
    PONG_SIZES,
    ConvolutionSizes,
    TopPatchesSizes,
    VisionSizes,
)

__all__ = [
    "CAR_RACING_SIZES",
    "KINDS",
    "MAX_SIZE",
    "PONG_SIZES",
    "WINDOW",
    "AttentionSizes",
    "ConvolutionSizes",
    "Encoder",
    "ForwardSizes",
    "MlpSizes",
    "Monitor",
    "MonitorValidation",
    "RecurrenceSizes",
    "Shapes",
    "Sizes",
    "TopPatchesSizes",
    "VisionSizes",
    "kind_of",
    "paper_sizes",
    "sizes_from",
]
