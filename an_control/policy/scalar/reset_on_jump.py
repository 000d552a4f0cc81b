"""Startle: where most readings jump at once, their contents have moved, and all neurons begin anew.

A neuron that goes on with what it knew of another channel takes its new one for the old one, or for
none, for a long time. One that begins anew knows nothing, but says so. A single neuron cannot tell
a jump of its reading from a foot that touches the ground; all of them together can. With each
channel's change d since the last tick (at most 1), and u, what is usual for it:

    startled   if the mean over channels of max(d - 2 u, 0) is beyond `STARTLING`
    u          = 0.9 u + 0.1 d

What is usual keeps a channel that always jumps, such as noise, out of it. On the Ant, no tick of a
walk or a stumble with up to 10 channels of noise beside the 28 comes near it (behind the first 20),
and every move of all contents is beyond it. The neurons' state and last readings go, the head's
memory stays.
"""

from __future__ import annotations

import numpy as np

from an_control.policy.exact import ROUND_MASS

STARTLING = 0.18
USUAL = np.float32(0.1)
"""The share of a tick's change in what is usual."""
MOST, NONE = np.array(1.0, np.float32), np.array(0.0, np.float32)
TO_MASS = np.array(ROUND_MASS)


def startled(change: np.ndarray, usual: np.ndarray) -> bool:
    """Whether these changes (N,) startle; `usual` (N,), which is twice u, follows them."""
    jump = np.abs(change)
    np.minimum(jump, MOST, out=jump)
    excess = jump - usual
    terms = np.maximum(excess, NONE, out=np.empty(len(change)))
    terms += TO_MASS
    terms -= TO_MASS
    jump += jump
    jump -= usual
    jump *= USUAL
    usual += jump
    return bool(np.add.reduce(terms) > STARTLING * len(change))
