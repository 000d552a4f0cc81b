"""Recovery, which uses random actions to free a robot that stands still but should move.

On the ground or in an odd posture the readings do not show which channel is which, so a
permutation-invariant policy may stay there. Random torques that change at every tick average out.
If each is held for some ticks, they free the robot, its channels move, and the neurons identify
them again. While the robot moves, the actions are those of the policy, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from an_control.monitor.settings import RECOVERY
from an_control.policy.interface import Policy, WrappingPolicy
from an_control.policy.model_file import Model
from an_control.policy.sizes import VisionSizes
from an_control.policy.task import MAX_RECOVERY


def resolve_stillness_threshold(model: Model, requested_threshold: float | None) -> float:
    """Return the threshold below which a robot counts as standing still.

    It is a mean change of the readings, see `RecoveringPolicy`. A robot that stands still gets
    random actions, which make it move again. A threshold of 0 switches them off.

    Args:
        model: The model, whose file has a default threshold.
        requested_threshold: The threshold that the user asked for; None for the model's.

    Raises:
        ValueError: The value is out of range, or it is not 0 and the policy is for image patches.
    """
    stillness_threshold = (
        model.task.recovery if requested_threshold is None else requested_threshold
    )
    if not 0.0 <= stillness_threshold <= MAX_RECOVERY:
        raise ValueError(f"recovery: {stillness_threshold:g} is not between 0 and {MAX_RECOVERY:g}")
    if stillness_threshold and isinstance(model.sizes, VisionSizes):
        raise ValueError("recovery: not for a policy of image patches; allowed is 0")
    return stillness_threshold


class RecoveringPolicy(WrappingPolicy):
    """A policy that sends random actions to free the robot if it stands still.

    The robot counts as standing still if the mean change of its readings is below a threshold. A
    change is the magnitude of a reading's difference from the tick before, in the reading's unit.
    The mean is over the channels and over about the last twelve ticks.

    Args:
        policy: The inner policy for scalar channels, which acts while the robot moves.
        stillness_threshold: The mean change of the readings below which the robot counts as
            standing still.
    """

    _change: float
    _left: int
    _pause: int
    _pushes: int
    """The number of random actions in the most recent recovery since the start or the last stop of
    the robot; 0 if there was none."""

    def __init__(self, policy: Policy, stillness_threshold: float) -> None:
        # Imported here, as importing numba takes a second.
        from an_control.monitor.kernels import compute_mean_change_and_store_readings

        super().__init__(policy)
        self._least = stillness_threshold
        self._compute_mean_change_and_store = compute_mean_change_and_store_readings
        self.reset()

    def reset(self) -> None:
        """Start an episode; the sequence of random actions is the same in each."""
        self.policy.reset()
        self._rng = np.random.default_rng(0)
        self._restart_motion_estimate()
        self._given: np.ndarray | None = None
        self._sent = np.zeros(0)
        """(A,) each: the action of this tick, and the action that was sent at the tick before."""
        self._ids: tuple[str, ...] = ()
        """The ids of the last tick."""
        self._last = np.zeros(0)
        """(N,) the last tick's readings."""
        self._recoveries = 0

    def step_array(self, values: np.ndarray, ids: Sequence[str]) -> np.ndarray:
        """Compute one tick, with a random action if the robot stands still.

        Args:
            values: (N,) the readings.
            ids: (N,) the channel id of each reading.

        Returns:
            (A,) float32 the action, in [-1, 1].

        Raises:
            ValueError: The readings are not valid, as in `Policy.step_array`.
        """
        self._sent = self.policy.previous_action
        action = self.policy.step_array(values, ids)
        self._update_motion_estimate(
            np.asarray(values, np.float64), ids if type(ids) is tuple else tuple(ids)
        )
        self._pause -= 1
        if not self._left and self._pause <= 0 and self._change < self._least:
            self._pushes = min(self._pushes + 1, RECOVERY.max_pushes)
            self._left = RECOVERY.held_ticks * self._pushes
            self._recoveries += 1
        self._given = action
        if not self._left:
            return action
        if self._left % RECOVERY.held_ticks == 0:
            self._push = self._rng.choice([-1.0, 1.0], len(action)).astype(np.float32)
        self._left -= 1
        if not self._left:
            self._pause = RECOVERY.pause_ticks
        self.policy.previous_action = self._given = self._push
        return self._push.copy()

    def _restart_motion_estimate(self) -> None:
        """Restart the running mean of the readings' changes, and end a recovery.

        The mean restarts above the threshold, so that no recovery starts at once.
        """
        self._change = RECOVERY.first_change * self._least
        self._left, self._pause = 0, RECOVERY.pause_ticks
        self._pushes = 0

    def _update_motion_estimate(self, values: np.ndarray, ids: tuple[str, ...]) -> None:
        """Update the running mean of the readings' changes by this tick.

        Args:
            values: (N,) the readings.
            ids: (N,) the channel id of each reading.
        """
        if ids is not self._ids and ids != self._ids:
            last = dict(zip(self._ids, self._last.tolist(), strict=True))
            self._ids, self._last = ids, np.array([last.get(one, np.nan) for one in ids])
        change = self._compute_mean_change_and_store(values, self._last, RECOVERY.max_change)
        if change == change:
            self._change += RECOVERY.rate * (change - self._change)

    @property
    def recovery_count(self) -> int:
        """The number of recoveries since the last reset.

        A recovery is a short series of random actions, which frees a robot that stands still.
        """
        return self._recoveries

    def _set_previous_action(self, action: np.ndarray) -> None:
        """Take another action (A,) as the previous one, because the robot got it.

        If it differs much from the policy's, the estimate of whether the robot stands still starts
        again.
        """
        self.policy.previous_action = action
        given, sent = self._given, self._sent
        if given is None or action @ given >= RECOVERY.in_command * (given @ given):
            return
        if (action - sent) @ given <= 0.0:
            self._restart_motion_estimate()
