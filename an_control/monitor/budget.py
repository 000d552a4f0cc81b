"""The budget: how much the assignment search may compute in a tick.

Readings that no assignment explains (a robot on a stand, carried, on its side) are searched at
every tick for as long as they last. What the search computes is counted and not timed: by a clock,
the actions would depend on what else the machine does. What is left over is done at later ticks.
"""

from __future__ import annotations

from an_control.monitor.forward_model import ForwardModel

SHARE = 0.08
"""Share of a tick's period that its search may take, as counted. With cold caches, what a tick does
in any case and what it finishes after its budget is spent, the Ant's takes a tenth."""
UNFIT_SHARE = 0.03
"""The same where the model is known not to fit the robot: then nothing waits for the search."""
CALL_S = 7e-5
"""Time of an ordinary core for the calls that compare one assignment, compare one round of swaps,
or ask the classifier once, whatever their sizes. Measured with numba, for the Ant's 28 channels."""
PRODUCT_S, PAIR_S = 2.6e-11, 6e-9
"""The same for one tick's readings under one assignment: for each weight of the forward model, and
for each pair of a slot and a channel. The Ant's 54,528 and 784 take 6 us."""


class Budget:
    """The work that a tick's search has left, in seconds of an ordinary core.

    Args:
        forward: predicts the N channels of a task with a period.
    """

    def __init__(self, forward: ForwardModel) -> None:
        pairs = len(forward.channels) ** 2
        self._row_s = forward.products * PRODUCT_S + pairs * PAIR_S
        self._step_s = forward.step_s
        self.next_tick(fits=True)

    def next_tick(self, *, fits: bool) -> None:
        """Start a tick, with nothing spent, on a robot that the model `fits` as far as is known."""
        self._tick_s = (SHARE if fits else UNFIT_SHARE) * self._step_s
        self.spent_s = 0.0
        """What this tick has taken until now."""

    def affordable(self, rows: float) -> int:
        """Return how many pieces of so many rows this tick's next call may compute, see `spend`."""
        left_s = self._tick_s - self.spent_s - CALL_S
        return max(0, int(left_s / (rows * self._row_s)))

    def spend(self, rows: float) -> None:
        """Count a call about so many rows, each a tick's readings under one assignment."""
        self.spent_s += CALL_S + rows * self._row_s
