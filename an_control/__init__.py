"""Control a robot with an AttentionNeuron policy: its sensors may come in any order.

Every sensor channel goes to an identical small sensory neuron. Attention with fixed queries turns
any number of channels, in any order, into one message, from which a small network computes the
action (Tang & Ha 2021, "The Sensory Neuron as a Transformer: Permutation-Invariant Neural Networks
for Reinforcement Learning", arXiv 2109.02869). Channels can be rewired, lost or added while the
robot runs.

`load_policy` loads a model file and returns a `Policy`::

    policy.reset()                              # start an episode
    action = policy.step({channel_id: value})   # float32 (A,), in [-1, 1]
    action = policy.step_array(values, ids)     # the same for arrays (N,)
    policy.previous_action = action             # set it if another action was sent to the robot
    policy.attention                            # (M, N) of the last step, or None

Example:
    >>> import an_control
    >>> from an_control.system.share import find_share_path
    >>> policy = an_control.load_policy(find_share_path("models/cartpole.safetensors"))
    >>> policy.nominal_ids
    ('cart.position', 'cart.velocity', 'pole.cos', 'pole.sin', 'pole.velocity')
    >>> action = policy.step({"pole.sin": 0.1, "pole.cos": 0.99, "cart.position": 0.0})
    >>> action.shape, action.dtype
    ((1,), dtype('float32'))
    >>> policy.attention.shape  # queries, channels
    (16, 3)

The subpackages are `an_control.policy` (model files and policies), `an_control.monitor` (detection
of unannounced rewiring), `an_control.wiring` (a robot's YAML file), `an_control.disturbance`
(simulated faults and rewiring that test a policy) and `an_control.learning` (training). Importing
this package alone does not import numpy.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing is not imported: until `start` has run a signal is Python's
if TYPE_CHECKING:
    from typing import Any

    from an_control.load import load_policy
    from an_control.policy import ModelError, Policy

__all__ = ["ModelError", "Policy", "__version__", "load_policy"]
__version__ = "1.0.0"


def __getattr__(name: str) -> Any:
    """Import and return a public name on first use, so that `import an_control` imports no numpy.

    Args:
        name: The attribute that was asked for, such as "load_policy".

    Raises:
        AttributeError: The package has no such name.
    """
    if name in ("ModelError", "Policy", "load_policy"):
        from an_control import load

        return getattr(load, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the sorted names of this module, including those imported only on first use."""
    return sorted({*globals(), *__all__})
