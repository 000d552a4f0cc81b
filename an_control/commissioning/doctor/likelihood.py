"""Compute how well a forward model explains a recording under a candidate wiring.

The forward model predicts each channel's next reading and the scale of its error. The cost of a
reading is its negative log-likelihood in nats (natural-logarithm units; lower is better). Errors
may be larger than predicted by one factor for each channel and block of ticks, as on a heavier
robot or with noisy sensors; so a mistake must explain more than an imprecise model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from an_control.commissioning.doctor.hypotheses import CandidateWiring, Recording
from an_control.monitor.forward_model import ForwardModel
from an_control.monitor.settings import FREEDOM, MONITOR
from an_control.system.blas import one_blas_thread

F32 = np.float32
ERROR_FACTORS = np.array([1.0, 1.5, 2.5, 4.0, 7.0, 15.0, 40.0, 120.0, 1000.0], F32)
"""Factors by which a channel's errors may be larger than predicted."""
BLOCK = 16
"""Number of compared ticks that share one error factor."""
OWN_CHANNELS = 2
"""Number of channels by which a motor's effect is measured, such as its joint's angle and speed."""
LEAST_OWN = 0.003
"""Minimum expected effect of a motor on its first channel, in scales of the prediction error."""
HELD = 0.033
"""Distance from a joint's most frequent position, as a share of its range, up to which the joint
counts as held by an end stop."""
LEAST_FREE = 40
"""Minimum number of ticks with a free joint from which its motor's effect is estimated."""
PRIOR = 0.02
"""Weight of the assumption that a motor acts as expected, in root mean squares."""
ROWS = 1024
"""Maximum number of predictions that are computed at once."""
MAX_SQUARE = 1e12
"""Limit of a squared error, in squared scales, that keeps the arithmetic finite."""
LEAST_STEP = 1e-3
"""Minimum scale of the changes of a channel that is assumed to be noise; a stuck one has no own
scale.
"""


class Likelihood:
    """Calculator of how well candidate wirings explain one recording.

    The cost of a reading is its negative log-likelihood in nats under the forward model, which
    predicts the next reading of each channel. A lower cost means a better explanation.

    Args:
        forward: Forward model of the recording's N channels and A actuators.
        recording: The recorded readings and actions.
        lag: Number of ticks by which all readings are late.
    """

    def __init__(self, forward: ForwardModel, recording: Recording, lag: int = 0) -> None:
        self.forward, self.recording, self.lag = forward, recording, lag
        costs = MONITOR.costs
        self._floor = np.where(forward.constant, costs.constant_floor, costs.floor).astype(F32)
        self._binary, self._width = forward.binary, F32(costs.binary_scale)
        self._costs = costs
        begins = recording.starts.copy()
        begins[:1] = True
        self._episode = np.cumsum(begins)
        follows = ~begins[1:]
        for before in range(1, lag + 1):
            follows &= np.concatenate([np.zeros(before, bool), ~begins[1:-before]])[: len(follows)]
        self.ticks = np.flatnonzero(follows)
        """(K,) indices of the ticks whose next tick is predicted."""
        self.imputed: np.ndarray | None = None
        """(T, N) estimates of each channel from the others, see `impute_channels`."""
        self._low, self._high = recording.clip.T.astype(F32)
        self._clips = bool(np.isfinite(recording.clip).any())
        self._as_configured = np.log(np.abs(recording.scale))
        self._noise_costs = self._compute_noise_costs()

    def select_evenly_spread_ticks(self, max_ticks: int) -> np.ndarray:
        """Return the indices of at most `max_ticks` evenly spread ticks of the recording.

        They are selected from the ticks whose next tick can be predicted.
        """
        if len(self.ticks) <= max_ticks:
            return self.ticks
        return self.ticks[np.linspace(0, len(self.ticks) - 1, max_ticks).astype(int)]

    def compute_candidate_readings(
        self, candidates: Sequence[CandidateWiring], ticks: np.ndarray | None = None
    ) -> np.ndarray:
        """Convert the recorded raw numbers to readings, by each of H candidate wirings.

        Args:
            candidates: The H candidates.
            ticks: (K,) indices of the ticks; None for all ticks of the recording.

        Returns:
            (H, K, N) float32 readings, scaled and clipped; NaN where missing.
        """
        recording = self.recording
        rows = np.arange(len(recording.raw)) if ticks is None else ticks
        slots = np.stack([one.slots for one in candidates])
        raw = recording.raw[rows[None, :, None], slots[:, None]]
        for number, one in enumerate(candidates):
            for channel in np.flatnonzero(one.delay):
                late = rows + int(one.delay[channel])
                known = late < len(recording.raw)
                late = np.where(known, late, 0)
                known &= self._episode[late] == self._episode[rows]
                values = recording.raw[late, one.slots[channel]]
                raw[number, :, channel] = np.where(known, values, np.nan)
        raw *= np.stack([one.scale for one in candidates])[:, None]
        raw += np.stack([one.offset for one in candidates])[:, None]
        if self._clips:
            np.clip(raw, *recording.clip.T, out=raw)
        unusable = np.stack([one.unusable for one in candidates])
        if unusable.any():
            raw[np.broadcast_to(unusable[:, None], raw.shape)] = np.nan
        found: np.ndarray = raw.astype(F32)
        return found

    def compute_candidate_actions(
        self, candidates: Sequence[CandidateWiring], ticks: np.ndarray
    ) -> np.ndarray:
        """Compute the actions that the motors carried out if each of H candidate wirings is right.

        They differ from the recorded ones if a candidate exchanges motors or changes their gain.

        Args:
            candidates: The H candidates.
            ticks: (K,) indices of the ticks. The action of a tick moves the robot from the readings
                of this tick to those of the next one.

        Returns:
            (H, K, A) float32 actions in [-1, 1].
        """
        sent = self.recording.actions[ticks - self.lag]
        motors = np.stack([one.motors for one in candidates])
        gain = np.stack([one.gain for one in candidates])
        moved = sent[np.arange(len(ticks))[None, :, None], motors[:, None]] * gain[:, None]
        found: np.ndarray = np.clip(moved, -1.0, 1.0).astype(F32)
        return found

    def compute_nll_per_candidate(
        self, candidates: Sequence[CandidateWiring], ticks: np.ndarray
    ) -> np.ndarray:
        """Return the summed cost of all readings under each of H candidate wirings.

        Args:
            candidates: The H candidates.
            ticks: (K,) indices of ticks. The costs are those of the readings one tick later, which
                are predicted from the readings of these ticks.

        Returns:
            (H,) costs in nats: the candidate with the lowest cost explains the readings best.
        """
        found, step = [], max(1, ROWS // max(1, len(ticks)))
        for first in range(0, len(candidates), step):
            found.append(
                self.compute_nll_per_reading(candidates[first : first + step], ticks).sum((1, 2))
            )
        return np.concatenate(found) if found else np.zeros(0)

    @one_blas_thread
    def compute_nll_per_reading(
        self, candidates: Sequence[CandidateWiring], ticks: np.ndarray
    ) -> np.ndarray:
        """Return the cost (negative log-likelihood) of each reading under H candidate wirings.

        Args:
            candidates: The H candidates.
            ticks: (K,) indices of ticks. The costs are those of the readings one tick later, which
                are predicted from the readings of these ticks.

        Returns:
            (H, K, N) costs in nats; 0 for a missing reading.
        """
        forward, next_ = self.forward, ticks + 1
        before = self.compute_candidate_readings(candidates, ticks)
        after = self.compute_candidate_readings(candidates, next_)
        actions = self.compute_candidate_actions(candidates, ticks)
        missing = np.isnan(before)
        given = before
        if missing.any():
            stand_in = F32(0.0) if self.imputed is None else self.imputed[ticks]
            given = np.where(missing, stand_in, before)
        prediction = forward.predict_changes(given, actions)
        scale = np.sqrt(prediction.scale**2 + self._floor)
        ratio = (after - before - prediction.change) / scale
        square = np.minimum(ratio * ratio, F32(MAX_SQUARE)) / F32(FREEDOM)
        known = ~np.isnan(square)
        square = np.where(known, square, F32(0.0))
        wide = self._fit_error_factors(square)
        costs = 2.0 * np.log1p(square / wide**2) + np.log(wide) + np.log(scale)
        if self._binary.any():
            costs[..., self._binary] = self._compute_binary_costs(
                after[..., self._binary], prediction.probability[..., self._binary]
            )
        inside = (after > self._low) & (after < self._high)
        factors = np.stack([np.log(np.abs(candidate.scale)) for candidate in candidates])
        density = np.where(inside, factors[:, None], self._as_configured)
        costs = np.where(known, costs - density, F32(0.0))
        unusable = np.stack([candidate.unusable for candidate in candidates])
        if unusable.any():
            own = self._noise_costs[next_]
            for number, candidate in enumerate(candidates):
                lost = np.flatnonzero(candidate.unusable)
                costs[number][:, lost] = own[:, candidate.slots[lost]]
        return costs

    @staticmethod
    def _fit_error_factors(squared_errors: np.ndarray) -> np.ndarray:
        """Return (H, K, N) by which factors errors of readings are larger than the model predicts.

        Each channel has one factor for each block of `BLOCK` ticks: the likeliest one of
        `ERROR_FACTORS`. It may change from block to block, because the model explains a robot that
        falls badly only from its fall on. The errors (H, K, N) are squared, in units of their
        predicted scales, and divided by the degrees of freedom of their Student distribution.
        """
        ticks = squared_errors.shape[1]
        firsts = np.arange(0, ticks, BLOCK)
        lengths = np.diff(np.append(firsts, ticks))
        least = 2.0 * np.add.reduceat(np.log1p(squared_errors), firsts, axis=1)
        best = np.ones_like(least)
        for factor in ERROR_FACTORS[1:]:
            wider = 2.0 * np.add.reduceat(np.log1p(squared_errors / factor**2), firsts, axis=1)
            wider += lengths[:, None] * np.log(factor)
            better = wider < least
            least = np.where(better, wider, least)
            best = np.where(better, factor, best)
        widening = np.repeat(best, lengths, axis=1)
        return widening

    def compute_excess_nll_per_channel(
        self, candidate: CandidateWiring, ticks: np.ndarray
    ) -> np.ndarray:
        """Return by how much the mean cost of each channel exceeds its usual mean cost.

        A cost is the negative log-likelihood of a reading under the forward model. The usual cost
        is that in the model's validation. A channel with a large excess is probably wired wrong.

        Args:
            candidate: The supposed wiring of the robot.
            ticks: (K,) indices of ticks. The costs are those of the readings one tick later.

        Returns:
            (N,) mean excess of each of the N channels in nats a tick; 0 for unusable channels.
        """
        costs = self.compute_nll_per_reading([candidate], ticks)[0]
        found: np.ndarray = self.subtract_validation_nll(costs, candidate).mean(0)
        return found

    def subtract_validation_nll(self, costs: np.ndarray, candidate: CandidateWiring) -> np.ndarray:
        """Subtract from each reading's cost the mean cost of its channel in the model's validation.

        A cost is a negative log-likelihood. The mean costs are stored in the model file.

        Args:
            costs: (K, N) costs of N channels in K ticks, in nats.
            candidate: The candidate wiring under which the costs were computed.

        Returns:
            (K, N) the differences in nats; 0 for unusable channels.
        """
        above = costs + np.log(np.abs(candidate.scale)) - self.forward.usual_costs
        found: np.ndarray = np.where(candidate.unusable, 0.0, above)
        return found

    @one_blas_thread
    def impute_channels(self, candidate: CandidateWiring) -> None:
        """Estimate each channel's readings from the other channels; store them in `imputed`.

        If the forward model cannot impute, the last valid reading of each channel is stored.

        Args:
            candidate: The wiring from which the readings of the other channels are computed.
        """
        forward = self.forward
        (signals,) = self.compute_candidate_readings([candidate])
        if not forward.imputes:
            held = np.zeros(signals.shape[1], F32)
            self.imputed = np.empty_like(signals)
            for tick, now in enumerate(signals):
                held = np.where(np.isnan(now), held, now)
                self.imputed[tick] = held
            return
        count = signals.shape[1]
        alone = np.eye(count, dtype=bool)
        (actions,) = self.compute_candidate_actions(
            [candidate], np.maximum(np.arange(len(signals)), self.lag)
        )
        before = np.tile(forward.typical, (count, 1)).astype(F32)
        imputed = np.empty_like(signals)
        for tick, now in enumerate(signals):
            missing = alone | np.isnan(now)
            action = np.broadcast_to(actions[max(0, tick - 1)], (count, actions.shape[1]))
            now = np.broadcast_to(np.where(np.isnan(now), F32(0.0), now), (count, count))
            before = forward.impute_missing_readings(before, action, now, missing).astype(F32)
            imputed[tick] = before.diagonal()
        self.imputed = imputed

    @one_blas_thread
    def estimate_motor_effects(self, candidate: CandidateWiring, ticks: np.ndarray) -> np.ndarray:
        """Estimate how strongly each motor acts, relative to what the forward model expects.

        The result is the factor by which the changes that a motor is expected to cause must be
        multiplied to fit the measured changes. This works even if the robot has fallen.

        Args:
            candidate: The wiring under which the readings are explained.
            ticks: (K,) indices of ticks. The changes are those from each of them to the next tick.

        Returns:
            (A,) factors: 1 if a motor acts as expected, 0 if it does nothing, -1 if it acts in the
            opposite direction. NaN if the two channels that the motor should move most are both
            unusable (stuck or noise only). 1 if the expected movement is too small to measure: less
            than `LEAST_OWN`, in scales of the prediction error.
        """
        forward, motors = self.forward, range(len(candidate.motors))
        (signals,) = self.compute_candidate_readings([candidate])
        given = signals[ticks]
        missing = np.isnan(given)
        if missing.any():
            stand_in = F32(0.0) if self.imputed is None else self.imputed[ticks]
            given = np.where(missing, stand_in, given)
        (actions,) = self.compute_candidate_actions([candidate], ticks)
        full = forward.predict_changes(given, actions)
        effects = []
        for motor in motors:
            without = actions.copy()
            without[:, motor] = 0.0
            effects.append(full.change - forward.predict_changes(given, without).change)
        effect = np.stack(effects, -1).astype(float)
        scale = np.sqrt(full.scale**2 + self._floor)
        error = signals[ticks + 1] - signals[ticks] - full.change + effect.sum(-1)
        count = len(ticks) // BLOCK * BLOCK
        moved = ~self._binary & ~forward.constant
        use = moved & ~candidate.unusable & ~np.isnan(error).any(0)
        if not count:
            return np.ones(len(candidate.motors))
        effect = _subtract_block_means(effect[:count])
        scale = scale[:count]
        size = np.median(np.abs(effect) / scale[..., None], 0)
        own = np.where(moved[:, None], size**2 / np.maximum(size.sum(1, keepdims=True), 1e-9), 0.0)
        found = np.ones(len(candidate.motors))
        if use.any():
            error = _subtract_block_means(error[:count][:, use])
            effect, scale = effect[:, use], scale[:, use]
            for motor in motors:
                found[motor] = self._fit_motor_effect(motor, error, effect, scale, own[use, motor])
        best = np.argsort(-own, axis=0)[:OWN_CHANNELS]
        return np.where(candidate.unusable[best].all(0), np.nan, found)

    @one_blas_thread
    def estimate_motor_effect_away_from_stop(
        self, candidate: CandidateWiring, motor: int
    ) -> float | None:
        """Estimate how strongly one motor acts while its joint is not held by an end stop.

        Ticks near the joint's most frequent position are left out, because an end stop may hold the
        joint there. It is assumed that the two channels that the motor moves most are the joint's
        position and velocity, and that the smoother one is the position.

        Args:
            candidate: The wiring under which the readings are explained.
            motor: Index of the motor.

        Returns:
            1 if the motor acts as strongly as the model expects, 0 if it does nothing, -1 if it
            acts in the opposite direction. 0 if the position never changes. None if fewer than
            `LEAST_FREE` ticks are left, or if the model expects no movement in half of them.
        """
        forward, ticks = self.forward, self.ticks
        (now,) = self.compute_candidate_readings([candidate], ticks)
        (after,) = self.compute_candidate_readings([candidate], ticks + 1)
        if self.imputed is not None:
            now = np.where(np.isnan(now), self.imputed[ticks], now)
        (actions,) = self.compute_candidate_actions([candidate], ticks)
        without = actions.copy()
        without[:, motor] = 0.0
        passive = forward.predict_changes(now, without)
        effect = forward.predict_changes(now, actions).change - passive.change
        scale = np.sqrt(passive.scale**2 + self._floor)
        use = ~self._binary & ~forward.constant & ~candidate.unusable & ~np.isnan(after).any(0)
        size = np.where(use, np.median(np.abs(effect) / scale, 0), 0.0)
        own = np.argsort(-size)[:OWN_CHANNELS]
        steps = [np.abs(np.diff(now[:, k])).mean() / max(now[:, k].std(), 1e-9) for k in own]
        position, rate = own[int(np.argmin(steps))], own[int(np.argmax(steps))]
        values = now[:, position]
        if np.ptp(values) == 0.0:
            return 0.0  # not reversed: a reversed motor would have moved its joint to an end stop
        width = HELD * float(np.ptp(values))
        ordered = np.sort(values)
        near = np.searchsorted(ordered, ordered + 2 * width) - np.arange(len(ordered))
        held = ordered[int(near.argmax())] + width
        free = np.abs(values - held) > width
        expected = effect[free, rate]
        if np.count_nonzero(free) < LEAST_FREE or not (np.median(np.abs(expected)) > 0.0):
            return None
        error = (after - now - passive.change)[free, rate]
        return float((expected * error).sum() / (expected**2).sum())

    @staticmethod
    def _fit_motor_effect(
        motor: int, error: np.ndarray, effect: np.ndarray, scale: np.ndarray, relevance: np.ndarray
    ) -> float:
        """Return the effect of one motor, relative to the effect that the model expects.

        The effect is fitted to the channels with the highest relevance.

        Args:
            motor: Index of the motor.
            error: (K, N) measured changes of the readings, minus those that the model expects
                without any motor.
            effect: (K, N, A) changes of the readings that the model expects of each motor.
            scale: (K, N) predicted scales of the model's errors.
            relevance: (N,) how strongly this motor moves each channel, and the other motors do not.
        """
        channels = np.argsort(-relevance)[:OWN_CHANNELS]
        if relevance[channels[0]] < LEAST_OWN:
            return 1.0
        error, effect, scale = error[:, channels], effect[:, channels], scale[:, channels]
        weight, found = 1.0 / scale, np.ones(effect.shape[-1])
        for _ in range(6):
            x = (effect * weight[..., None]).reshape(-1, len(found))
            prior = PRIOR * np.sqrt(len(x))
            x = np.vstack([x, prior * np.eye(len(found))])
            y = np.append((error * weight).ravel(), np.full(len(found), prior))
            found = np.linalg.lstsq(x, y, rcond=None)[0]
            left = np.abs(error - effect @ found) / scale
            typical = np.median(left.reshape(-1, BLOCK, left.shape[1]), 1) + 0.5
            typical = np.repeat(typical, BLOCK, axis=0)
            weight = 1.0 / (scale * typical * np.sqrt(1.0 + (left / typical) ** 2 / FREEDOM))
        return float(found[motor])

    def _compute_noise_costs(self) -> np.ndarray:
        """Return (T, N) costs in nats of the recorded changes of channels if they were mere noise.

        They are for the raw numbers of the message fields.
        """
        raw = self.recording.raw
        change = np.full_like(raw, np.nan)
        change[1:] = np.diff(raw, axis=0)
        change[self.recording.starts] = np.nan
        size = np.abs(change)
        known = ~np.isnan(size).all(0)
        typical = np.zeros(raw.shape[1])
        typical[known] = np.nanmedian(size[:, known], 0)
        least = np.where(self._binary, self._width, F32(LEAST_STEP))
        scale = np.maximum(typical, least / np.abs(self.recording.scale))
        costs = 2.0 * np.log1p((change / scale) ** 2 / FREEDOM) + np.log(scale)
        return np.nan_to_num(costs)

    def _compute_binary_costs(self, readings: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
        """Return (..., B) costs in nats of readings (..., B) of channels that read 0 or 1.

        `probabilities` (..., B) are those predicted for reading 1.
        """
        least = F32(self._costs.min_probability)
        likely = np.clip(probabilities, least, 1.0 - least)
        one, zero = (
            1.0 / (1.0 + ((readings - level) / self._width) ** 2 / FREEDOM) ** 2
            for level in (F32(1.0), F32(0.0))
        )
        mixed = likely * one + (1.0 - likely) * zero + F32(self._costs.min_likelihood)
        found: np.ndarray = np.log(self._width) - np.log(mixed)
        return found


def _subtract_block_means(values: np.ndarray) -> np.ndarray:
    """Return values (T, ...) without their means over each block of `BLOCK` ticks.

    T must be a multiple of `BLOCK`.
    """
    blocks = values.reshape(-1, BLOCK, *values.shape[1:])
    found: np.ndarray = (blocks - blocks.mean(1, keepdims=True)).reshape(values.shape)
    return found
