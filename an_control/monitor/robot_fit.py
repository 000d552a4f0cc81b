"""The fit of the forward model to the robot; the monitor reacts to rewiring only if it fits.

A model of another robot, or one that has learned too little, explains the readings badly under
every assignment of slots to channels, and some wrong assignment always explains them less badly
than the right one. So readings count as explained only if they cost about as much as in the model's
own validation (`FitLimits`), and a move counts only if it explains the readings of the moved
channels.

If the model does not fit, the readings pass unchanged; it may fit later.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from an_control.monitor.evidence import CandidateAssignment
from an_control.monitor.forward_model import FitLimits
from an_control.monitor.settings import MONITOR


class RobotFitEstimator:
    """An estimator of whether the forward model describes the connected robot.

    Args:
        limits: Bounds from the model's validation; None: every robot counts as fitting, and the
            monitor uses every assignment that explains the readings better by
            `FitSettings.min_gain` nats.
        slot_count: The number of input slots.
        resting_values: Values at which a reading may rest, such as those of contacts and constants.
    """

    def __init__(
        self,
        limits: FitLimits | None,
        slot_count: int,
        resting_values: np.ndarray,
    ) -> None:
        self.limits = limits
        self._count = slot_count
        self._still = resting_values
        self._settings = MONITOR.fit
        self.reset()

    def reset(self) -> None:
        """Start an episode, in which it is not yet known whether the model describes the robot."""
        self.excess = 0.0
        """The costs of the readings above the usual ones in nats a tick, as a running mean."""
        self.slow = np.zeros(0, np.int64)
        """The slots whose sensors seem to be slower than the control rate; empty unless there are
        too many such slots."""
        self._seen = self._bad = False
        self._changes, self._repeats = np.zeros((2, self._count))
        self._before = np.zeros(self._count, bool)
        self._previous = np.full(self._count, np.nan, np.float32)
        self._left = self._settings.ticks
        self._lately: deque[float] = deque(maxlen=self._settings.ticks)
        """The value of `excess` in the last ticks. The lowest of these values stands for the time
        before signals moved."""
        self.restart_mean_excess_costs()

    def restart_mean_excess_costs(self) -> None:
        """Restart the running mean of prediction errors, by which the fit to the robot is judged.

        Call it if the monitor has changed its estimate of which slot feeds which channel.
        """
        self._ticks, self._over = 0, 0.0

    @property
    def model_fits_robot(self) -> bool | None:
        """Whether the forward model describes the connected robot; None while that is unknown."""
        return False if self._bad or len(self.slow) else self._seen or None

    @property
    def min_correction_gain(self) -> float:
        """The minimum gain in log-likelihood (nats) for a correction to be considered.

        A correction replaces the present assignment of slots to channels by one under which the
        readings are likelier, although no rewiring was detected.
        """
        return self._settings.min_gain

    @property
    def min_gain_while_lost(self) -> float:
        """The minimum gain in log-likelihood (nats) for another assignment to be tried.

        It applies only while no assignment of input slots to channels is known to be right.
        """
        return self._settings.min_gain if self.limits is None else self.limits.min_gain

    @property
    def min_replacement_gain(self) -> float:
        """The minimum gain in log-likelihood (nats) for replacing the present assignment.

        An assignment says which input slot feeds which channel. The required gain is larger until
        it is known that the model fits the robot.
        """
        if self.limits is None:
            return self._settings.min_gain
        return self.limits.min_gain * (1.0 if self._seen else self._settings.caution)

    def update_fit_from_excess_nll(self, excess_nll: float, *, assignment_known: bool) -> None:
        """Update the estimate of whether the model fits the robot by one tick's prediction errors.

        Args:
            excess_nll: How far the negative log-likelihood of the tick's readings is above its
                usual value, in nats.
            assignment_known: True if the assignment of signals to channels is known to be right,
                False if it is only the best so far.
        """
        if self.limits is None:
            return
        settings, largest = self._settings, self.limits.max_excess
        bounded = min(excess_nll, 2.0 * largest)
        self._ticks += 1
        self.excess += (bounded - self.excess) / min(self._ticks, self._settings.ticks)
        self._lately.append(self.excess)
        self._over = max(0.0, self._over + bounded - largest)
        long = self._ticks >= self._settings.seen_ticks
        if self._bad:
            self._bad = not (long and self.excess < self._settings.hysteresis * largest)
            self._seen = False
        elif self._over > largest * (
            settings.bad_ticks if assignment_known else settings.lost_ticks
        ):
            self._bad = True
            self.restart_mean_excess_costs()
        elif assignment_known and long and self.excess <= largest:
            self._seen = True

    def update_slow_sensors(
        self, unchanged: np.ndarray, readings: np.ndarray, corrected: np.ndarray
    ) -> None:
        """Update the list `slow` of input slots whose sensors are slower than the control rate.

        Such a sensor repeats each reading for some ticks. Each call counts the repeated readings,
        and from time to time renews the list. Changes by rounding, as of a robot that stands still,
        are ignored.

        Args:
            unchanged: (N,) True for slots that read the same as at the last tick.
            readings: (N,) the readings by input slot.
            corrected: (N,) the readings without the sensors' offsets; `readings` itself if none is
                subtracted.
        """
        if self.limits is None:
            return
        changed = ~(np.abs(readings - self._previous) <= self._settings.rounding)
        self._changes += changed
        self._repeats += changed & self._before
        self._before, self._previous = unchanged, readings
        self._left -= 1
        if self._left:
            return
        settings = self._settings
        changes = np.maximum(self._changes, settings.min_changes)
        found = self._repeats >= settings.repeated_share * changes
        distance = np.abs(corrected[:, None] - self._still).min(1, initial=np.inf)
        rests = distance <= (0.0 if corrected is readings else settings.resting)
        slow = np.flatnonzero(found & ~rests)
        self.slow = slow if len(slow) > self.limits.slow else slow[:0]
        if len(self.slow):
            self._seen = False
        self._changes *= self._settings.fade
        self._repeats *= self._settings.fade
        self._left = self._settings.ticks

    def does_move_explain_readings(
        self, current: CandidateAssignment, alternative: CandidateAssignment
    ) -> bool:
        """Return whether an assumed rewiring explains the readings well enough to be accepted.

        With the rewiring, the readings of the rewired channels must fit the forward model much
        better than without it. The other channels may undo only a small part of this gain.
        `FitSettings` has the limits.

        Args:
            current: The assignment without the rewiring, with its costs.
            alternative: The assignment with the rewiring, with its costs.
        """
        if self.limits is None:
            return True
        settings, moved = self._settings, current.slots != alternative.slots
        count = int(np.count_nonzero(moved))
        before, after = float(current.excess[moved].sum()), float(alternative.excess[moved].sum())
        usual = min(self._lately, default=0.0) / self.limits.max_excess
        strange = min(max(usual, 0.0), 1.0)
        gain = max(self.limits.min_gain, settings.channel_gain * min(count, settings.gain_channels))
        if strange >= settings.strange:
            gain *= 1.0 + settings.distrust * strange
        left = settings.unexplained * before + settings.unexplained_nats * count
        if after > min(left, before - gain):
            return False
        before_all, after_all = float(current.excess.sum()), float(alternative.excess.sum())
        if before_all - after_all < settings.others * (before - after):
            return False
        if strange >= settings.strange and after_all > settings.strange_remaining * before_all:
            return False
        slack = (1.0 - strange) ** 2
        little = (
            after <= (settings.start_nats + settings.tick_nats * slack * alternative.ticks) * count
        )
        return little or after_all <= settings.remaining * before_all
