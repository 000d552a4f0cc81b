"""Prepare a case for the doctor: what the channels of a recording show, and their lag."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from an_control.commissioning.doctor.hypotheses import MAX_DELAY, CandidateWiring, Recording
from an_control.commissioning.doctor.likelihood import Likelihood
from an_control.commissioning.doctor.settings import DOCTOR
from an_control.monitor.forward_model import ForwardModel


@dataclass(frozen=True)
class Case:
    """A case for the doctor: a recording, and what is computed from it only once.

    Args:
        recording: The recording of N channels.
        forward: Forward model of these channels and their actuators.
        configured: The wiring file with which the recording was made.
        stuck: The same wiring without the channels that were never read or never change.
        heard: (N,) whether each recorded channel was ever read.
        moving: (N,) share of the ticks in which each recorded channel changes.
        likelihood: How well a wiring explains the recording, with the lag that fits best.
        ticks: (K,) indices of the ticks on which hypotheses are compared.
    """

    recording: Recording
    forward: ForwardModel
    configured: CandidateWiring
    stuck: CandidateWiring
    heard: np.ndarray
    moving: np.ndarray
    likelihood: Likelihood
    ticks: np.ndarray

    @classmethod
    def from_recording(cls, recording: Recording, forward: ForwardModel) -> Case:
        """Make the case of a recording of channels and actuators that a forward model has."""
        configured, raw = CandidateWiring.from_recording(recording), recording.raw
        heard = ~np.isnan(raw).all(0)
        changes = np.diff(raw, axis=0)[~recording.starts[1:]]
        moving = (np.nan_to_num(changes) != 0.0).mean(0) if len(changes) else np.zeros(len(heard))
        still = (moving == 0.0) & ~forward.binary & ~forward.constant
        if np.count_nonzero(still) > 0.5 * len(still):
            still = np.zeros_like(still)  # the robot stands
        stuck = replace(configured, unusable=~heard | still)
        likelihood = _make_likelihood_with_best_lag(recording, forward, stuck)
        ticks = likelihood.select_evenly_spread_ticks(DOCTOR.refined)
        return cls(recording, forward, configured, stuck, heard, moving, likelihood, ticks)

    def compute_range(self, slot: int) -> float:
        """Return the difference between the largest and the smallest number of a channel."""
        return float(np.ptp(np.nan_to_num(self.recording.raw[:, slot])))

    def compute_standard_deviation(self, candidate: CandidateWiring, channel: int) -> float:
        """Return the standard deviation of a channel's readings, or 0.1 if they never change."""
        raw = self.recording.raw[:, candidate.slots[channel]]
        return float(np.nanstd(raw * candidate.scale[channel])) or 0.1

    def can_detect_wrong_scale(self, candidate: CandidateWiring, channel: int) -> bool:
        """Return whether the recorded readings of a channel could show that its scale is wrong.

        They could not if the channel never changes, or if it is binary and reads only 0 and 1.
        """
        slot = candidate.slots[channel]
        if not self.forward.binary[channel]:
            return bool(self.compute_range(slot))
        values = self.recording.raw[:, slot] * candidate.scale[channel]
        values = values[~np.isnan(values)] + candidate.offset[channel]
        return not np.isin(values.round(6), (0.0, 1.0)).all()

    def looks_like_noise(self, slot: int) -> bool:
        """Return whether successive readings of a recorded channel are unrelated, as in noise."""
        raw, follows = self.recording.raw[:, slot], ~self.recording.starts[1:]
        before, after = raw[:-1][follows], raw[1:][follows]
        known = ~np.isnan(before) & ~np.isnan(after)
        if np.count_nonzero(known) < DOCTOR.min_ticks or not self.compute_range(slot):
            return False
        relation = np.corrcoef(before[known], after[known])[0, 1]
        return bool(abs(relation) < DOCTOR.white)

    def is_behaviour_unexpected(self, mean_excess: float) -> bool:
        """Return whether the robot does something that the model never learned.

        This is so for a robot that has fallen, for example. `mean_excess` is in nats a tick.
        """
        return mean_excess > DOCTOR.misfit * len(self.recording.ids)


def _make_likelihood_with_best_lag(
    recording: Recording, forward: ForwardModel, candidate: CandidateWiring
) -> Likelihood:
    """Return a `Likelihood` of the recording whose lag of all readings fits best.

    Lags from 0 to `MAX_DELAY` ticks are compared by the cost of the readings. A lag of 0 is
    preferred if the costs are nearly equal.
    """
    best, least, imputed = None, np.inf, None
    for lag in range(MAX_DELAY + 1):
        likelihood = Likelihood(forward, recording, lag)
        if not lag and (np.isnan(recording.raw).any() or candidate.unusable.any()):
            likelihood.impute_channels(candidate)
            imputed = likelihood.imputed
        likelihood.imputed = imputed
        ticks = likelihood.select_evenly_spread_ticks(DOCTOR.screened)
        if len(ticks) < DOCTOR.min_ticks:
            break
        cost = float(likelihood.compute_nll_per_candidate([candidate], ticks)[0]) / len(
            ticks
        ) + 2.0 * (lag > 0)
        if cost < least:
            best, least = likelihood, cost
    return best or Likelihood(forward, recording)
