"""Startle: where most readings jump at once, their contents have moved, and all neurons begin anew.

A neuron that goes on with what it knew of another channel takes its new one for the old one, or for
none, for a long time. One that begins anew knows nothing, but says so. A single neuron cannot tell
a jump of its reading from a foot that touches the ground; all of them together can. With each
channel's change d since the last tick (at most 1), and u, what is usual for it:

    startled   if the mean over channels of max(d - 2 u, 0) is beyond `STARTLING`
    u          = 0.9 u + 0.1 d, where not startled

What is usual keeps a channel that always jumps, such as noise, out of it. On the Ant, the mean
stays below 0.14 while it walks, stumbles, or has 5 channels of noise, and is beyond 0.2 where all
contents move. The neurons' state and last readings go, the head's memory stays.
"""

from __future__ import annotations

import numpy as np

from an_control.policy.exact import ROUND_MASS

STARTLING = 0.16
USUAL = np.float32(0.1)
"""The share of a tick's change in what is usual."""
F32 = np.float32


def startled(change: np.ndarray, usual: np.ndarray) -> bool:
    """Whether these changes (N,) startle; `usual` (N,), which is twice u, follows them if not."""
    jump = np.minimum(np.abs(change), F32(1.0))
    excess = np.maximum(jump - usual, F32(0.0)).astype(np.float64)
    excess += ROUND_MASS
    excess -= ROUND_MASS
    if excess.sum() > STARTLING * len(change):
        return True
    jump += jump
    jump -= usual
    jump *= USUAL
    usual += jump
    return False
