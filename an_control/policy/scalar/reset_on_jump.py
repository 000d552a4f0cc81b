"""Reset on jump: where most readings jump at once, channels were rewired, and all neurons reset.

A neuron that keeps what it knew of another channel takes its new one for the old one, or for none,
for a long time. One that is reset knows nothing, but says so. A single neuron cannot tell a jump of
its reading from a foot that touches the ground; all of them together can. With each channel's
change d since the last tick (at most 1), and u, what is usual for it:

    reset      if the mean over channels of max(d - 2 u, 0) is over `JUMP_LIMIT`
    u          = 0.9 u + 0.1 d

The usual change keeps a channel that always jumps, such as noise, out of it. On the Ant, no tick of
a walk or a stumble with up to 10 channels of noise beside the 28 comes near the limit (after the
first 20), and every reshuffle of all channels is over it. The neurons' state and last readings are
reset, the head's memory stays.
"""

from __future__ import annotations

import numpy as np

from an_control.policy.exact_sums import ROUND_MASS

JUMP_LIMIT = 0.18
USUAL = np.float32(0.1)
"""The share of a tick's change in what is usual."""
MAX_JUMP, NO_JUMP = np.array(1.0, np.float32), np.array(0.0, np.float32)
TO_MASS = np.array(ROUND_MASS)


def jumped(change: np.ndarray, usual: np.ndarray) -> bool:
    """Whether most of these changes (N,) are jumps; updates `usual` (N,), which is twice u."""
    jump = np.abs(change)
    np.minimum(jump, MAX_JUMP, out=jump)
    excess = jump - usual
    terms = np.maximum(excess, NO_JUMP, out=np.empty(len(change)))
    terms += TO_MASS
    terms -= TO_MASS
    jump += jump
    jump -= usual
    jump *= USUAL
    usual += jump
    return bool(np.add.reduce(terms) > JUMP_LIMIT * len(change))
