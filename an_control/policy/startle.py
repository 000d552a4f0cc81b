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
F32 = np.float32


def startled(change: np.ndarray, usual: np.ndarray) -> bool:
    """Whether these changes (N,) startle; `usual` (N,), which is twice u, follows them."""
    jump = np.minimum(np.abs(change), F32(1.0))
    excess = np.maximum(jump - usual, F32(0.0)).astype(np.float64)
    excess += ROUND_MASS
    excess -= ROUND_MASS
    jump += jump
    jump -= usual
    jump *= USUAL
    usual += jump
    return bool(excess.sum() > STARTLING * len(change))
