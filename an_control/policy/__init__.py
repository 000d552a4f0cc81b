"""The policy core: what the agent computes, its model file, its engines. numpy, no ROS."""

from an_control.policy.attention_neuron import AttentionNeuron
from an_control.policy.mlp import MlpPolicy
from an_control.policy.model_file import (
    Model,
    ModelError,
    read_header,
    read_model,
    write_model,
)
from an_control.policy.protocol import ChannelState, MonitorReport, Policy
from an_control.policy.sizes import (
    AttentionSizes,
    ForeignSizes,
    MlpSizes,
    Monitor,
    OrderedSizes,
    Sizes,
    VisionSizes,
)
from an_control.policy.vision.vision_neuron import VisionNeuron

__all__ = [
    "AttentionNeuron",
    "AttentionSizes",
    "ChannelState",
    "ForeignSizes",
    "MlpPolicy",
    "MlpSizes",
    "Model",
    "ModelError",
    "Monitor",
    "MonitorReport",
    "OrderedSizes",
    "Policy",
    "Sizes",
    "VisionNeuron",
    "VisionSizes",
    "read_header",
    "read_model",
    "write_model",
]
