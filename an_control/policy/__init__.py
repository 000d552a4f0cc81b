"""The policy core: model files, policies and the engines that compute them.

A `Policy` turns readings by channel id into an action. `an_control.load_policy` makes one from a
file; `read_model` and `write_model` convert between a model file and a `Model` in memory. The
package needs numpy, uses numba if it is installed, and does not import ROS. The plain equations are
in `an_control.policy.reference_engine`.

Example:
    >>> from an_control.policy import make_paper_sizes, read_model, write_model
    >>> from an_control.policy.random_model import make_random_model
    >>> sizes = make_paper_sizes(actions=2, queries=4, hidden_layers=1)
    >>> write_model("small.safetensors", make_random_model(sizes))
    >>> model = read_model("small.safetensors")
    >>> model.kind, len(model.arrays)
    ('attention_neuron', 11)
    >>> model.arrays["attention.queries"].shape
    (4, 32)
"""

from an_control.policy.attention_neuron import AttentionNeuron
from an_control.policy.interface import ChannelState, MonitorReport, Policy
from an_control.policy.mlp import MlpPolicy
from an_control.policy.model_file import (
    Model,
    ModelError,
    read_header,
    read_model,
    write_model,
)
from an_control.policy.sizes import (
    AttentionSizes,
    ForeignSizes,
    MlpSizes,
    Monitor,
    OrderedSizes,
    RecurrenceSizes,
    Sizes,
    VisionSizes,
    make_paper_sizes,
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
    "RecurrenceSizes",
    "Sizes",
    "VisionNeuron",
    "VisionSizes",
    "make_paper_sizes",
    "read_header",
    "read_model",
    "write_model",
]
