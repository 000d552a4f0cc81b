"""How well a forward model explains a recording under a set of wires, in nats.

Each channel's prediction errors may all be larger by one factor, as on a robot that is heavier or
whose sensors are noisy: so a fault must explain more than that the model is imprecise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from an_control.commissioning.doctor.wires import Recording, Wires
from an_control.monitor.forward_model import ForwardModel
from an_control.monitor.settings import FREEDOM, MONITOR
from an_control.system.blas import one_blas_thread

F32 = np.float32
WIDENINGS = np.array([1.0, 1.5, 2.5, 4.0, 7.0, 15.0, 40.0, 120.0, 1000.0], F32)
"""Factors by which a channel's errors may be larger than the model says."""
BLOCK = 16
"""Compared ticks that are widened by one factor."""
OWN_CHANNELS = 2
"""Channels by which a motor's effect is measured: those of its joint."""
LEAST_OWN = 0.003
"""How much the first of them must say of it, in scales of the prediction's error."""
PRIOR = 0.02
"""Weight of the assumption that a motor does what it should, in root mean squares."""
ROWS = 4096
"""Ticks that are predicted at once."""
MAX_SQUARE = 1e12
LEAST_STEP = 1e-3
"""Scale of the changes of a channel of noise at least; a stuck one has no other."""


class Likelihood:
    """Costs of a recording under wires.

    Args:
        forward: a model of the recording's channels.
        recording: what was read and commanded.
        lag: ticks by which all readings are late.
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
        """(K,) the ticks whose next one is predicted."""
        self.imputed: np.ndarray | None = None
        """(T, N) estimates of each channel from the others, see `impute`."""
        self._low, self._high = recording.clip.T.astype(F32)
        self._as_configured = np.log(np.abs(recording.scale))
        self._own = self._own_costs()

    def sample(self, most: int) -> np.ndarray:
        """Return `most` of the ticks, evenly spread, or all where there are fewer."""
        if len(self.ticks) <= most:
            return self.ticks
        return self.ticks[np.linspace(0, len(self.ticks) - 1, most).astype(int)]

    def signals(self, wires: Wires) -> np.ndarray:
        """Return what would be read (T, N) float32 through these wires; NaN where missing."""
        recording = self.recording
        raw = recording.raw[:, wires.slots]
        for channel in np.flatnonzero(wires.delay):
            late = int(wires.delay[channel])
            raw[:-late, channel] = raw[late:, channel]
            same = self._episode[late:] == self._episode[:-late]
            raw[:-late, channel][~same] = np.nan
            raw[-late:, channel] = np.nan
        signals = raw * wires.scale + wires.offset
        signals = np.clip(signals, *recording.clip.T)
        signals[:, wires.unusable] = np.nan
        found: np.ndarray = signals.astype(F32)
        return found

    def actions(self, wires: Wires, ticks: np.ndarray) -> np.ndarray:
        """Return the actions (K, A) float32 that moved the robot after these ticks (K,)."""
        sent = self.recording.actions[ticks - self.lag]
        found: np.ndarray = np.clip(sent[:, wires.motors] * wires.gain, -1.0, 1.0).astype(F32)
        return found

    def totals(self, several: Sequence[Wires], ticks: np.ndarray) -> np.ndarray:
        """Return what the readings of these ticks (K,) cost (H,) under each of H sets of wires."""
        found, step = [], max(1, ROWS // max(1, len(ticks)))
        for first in range(0, len(several), step):
            found.append(self.costs(several[first : first + step], ticks).sum((1, 2)))
        return np.concatenate(found) if found else np.zeros(0)

    @one_blas_thread
    def costs(self, several: Sequence[Wires], ticks: np.ndarray) -> np.ndarray:
        """Return the costs (H, K, N) of each tick and channel under each of H sets of wires."""
        forward, next_ = self.forward, ticks + 1
        signals = [self.signals(wires) for wires in several]
        before = np.stack([one[ticks] for one in signals])
        after = np.stack([one[next_] for one in signals])
        actions = np.stack([self.actions(wires, ticks) for wires in several])
        missing = np.isnan(before)
        given = before
        if missing.any():
            stand_in = F32(0.0) if self.imputed is None else self.imputed[ticks]
            given = np.where(missing, stand_in, before)
        prediction = forward.predict(given, actions)
        scale = np.sqrt(prediction.scale**2 + self._floor)
        ratio = (after - before - prediction.change) / scale
        square = np.minimum(ratio * ratio, F32(MAX_SQUARE)) / F32(FREEDOM)
        known = ~np.isnan(square)
        square = np.where(known, square, F32(0.0))
        wide = self._widening(square)
        costs = 2.0 * np.log1p(square / wide**2) + np.log(wide) + np.log(scale)
        if self._binary.any():
            costs[..., self._binary] = self._binary_costs(
                after[..., self._binary], prediction.probability[..., self._binary]
            )
        inside = (after > self._low) & (after < self._high)
        factors = np.stack([np.log(np.abs(wires.scale)) for wires in several])
        density = np.where(inside, factors[:, None], self._as_configured)
        costs = np.where(known, costs - density, F32(0.0))
        unusable = np.stack([wires.unusable for wires in several])
        if unusable.any():
            own = self._own[next_]
            for number, wires in enumerate(several):
                lost = np.flatnonzero(wires.unusable)
                costs[number][:, lost] = own[:, wires.slots[lost]]
        return costs

    @staticmethod
    def _widening(square: np.ndarray) -> np.ndarray:
        """Return the factor (H, K, N) by which the errors of these squares are best widened.

        It is one for each channel and each `BLOCK` ticks: a robot that has fallen is explained
        badly from then on, not before.
        """
        ticks = square.shape[1]
        firsts = np.arange(0, ticks, BLOCK)
        lengths = np.diff(np.append(firsts, ticks))
        least = 2.0 * np.add.reduceat(np.log1p(square), firsts, axis=1)
        best = np.ones_like(least)
        for factor in WIDENINGS[1:]:
            wider = 2.0 * np.add.reduceat(np.log1p(square / factor**2), firsts, axis=1)
            wider += lengths[:, None] * np.log(factor)
            better = wider < least
            least = np.where(better, wider, least)
            best = np.where(better, factor, best)
        widening = np.repeat(best, lengths, axis=1)
        return widening

    def excess(self, wires: Wires, ticks: np.ndarray) -> np.ndarray:
        """Return by how much each channel costs (N,) more in a tick than where nothing is wrong."""
        usable = ~wires.unusable
        costs = self.costs([wires], ticks)[0].mean(0) + np.log(np.abs(wires.scale))
        found: np.ndarray = np.where(usable, costs - self.forward.usual_costs, 0.0)
        return found

    @one_blas_thread
    def impute(self, wires: Wires) -> None:
        """Estimate each channel from all others, and what is missing, under these wires."""
        forward = self.forward
        signals = self.signals(wires)
        if not forward.imputes:
            held = np.zeros(signals.shape[1], F32)
            self.imputed = np.empty_like(signals)
            for tick, now in enumerate(signals):
                held = np.where(np.isnan(now), held, now)
                self.imputed[tick] = held
            return
        count = signals.shape[1]
        alone = np.eye(count, dtype=bool)
        actions = self.actions(wires, np.maximum(np.arange(len(signals)), self.lag))
        before = np.tile(forward.typical, (count, 1)).astype(F32)
        imputed = np.empty_like(signals)
        for tick, now in enumerate(signals):
            missing = alone | np.isnan(now)
            action = np.broadcast_to(actions[max(0, tick - 1)], (count, actions.shape[1]))
            now = np.broadcast_to(np.where(np.isnan(now), F32(0.0), now), (count, count))
            before = forward.impute(before, action, now, missing).astype(F32)
            imputed[tick] = before.diagonal()
        self.imputed = imputed

    @one_blas_thread
    def motor_effects(self, wires: Wires, ticks: np.ndarray) -> np.ndarray:
        """Return of each motor (A,) how much it does of what the model expects of it.

        1 is as expected, 0 nothing, -1 the opposite; 1 too where no channel tells. A regression of
        the changes that were read on those that the model expects of each motor alone, both without
        their means over `BLOCK` ticks: so it holds where the model is wrong in what the motors do
        not change, as on a robot that lies on the ground.
        """
        forward, motors = self.forward, range(len(wires.motors))
        signals = self.signals(wires)
        given = signals[ticks]
        missing = np.isnan(given)
        if missing.any():
            stand_in = F32(0.0) if self.imputed is None else self.imputed[ticks]
            given = np.where(missing, stand_in, given)
        actions = self.actions(wires, ticks)
        full = forward.predict(given, actions)
        effects = []
        for motor in motors:
            without = actions.copy()
            without[:, motor] = 0.0
            effects.append(full.change - forward.predict(given, without).change)
        effect = np.stack(effects, -1).astype(float)
        scale = np.sqrt(full.scale**2 + self._floor)
        error = signals[ticks + 1] - signals[ticks] - full.change + effect.sum(-1)
        count = len(ticks) // BLOCK * BLOCK
        use = ~self._binary & ~forward.constant & ~wires.unusable
        use &= ~np.isnan(error).any(0)
        if not count or not use.any():
            return np.ones(len(wires.motors))
        error = _without_means(error[:count][:, use])
        effect = _without_means(effect[:count][:, use])
        scale = scale[:count][:, use]
        size = np.median(np.abs(effect) / scale[..., None], 0)
        share = size / np.maximum(size.sum(1, keepdims=True), 1e-9)
        return np.array([
            self._own_effect(motor, error, effect, scale, size[:, motor] * share[:, motor])
            for motor in motors
        ])  # fmt: skip

    @staticmethod
    def _own_effect(
        motor: int, error: np.ndarray, effect: np.ndarray, scale: np.ndarray, own: np.ndarray
    ) -> float:
        """Return what one motor does, by the channels that it moves most, and others least.

        Args:
            motor: number of the motor.
            error: (K, N) changes beside those that no motor makes.
            scale: (K, N) of the prediction's error.
            effect: (K, N, A) expected of each motor.
            own: (N,) how much a channel says of this motor.
        """
        channels = np.argsort(-own)[:OWN_CHANNELS]
        if own[channels[0]] < LEAST_OWN:
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

    def _own_costs(self) -> np.ndarray:
        """Return what each slot's changes cost (T, N) were they noise of no meaning."""
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

    def _binary_costs(self, reads: np.ndarray, chance: np.ndarray) -> np.ndarray:
        """Return the costs of channels that read 0 or 1, by the chance that they read 1."""
        least = F32(self._costs.min_probability)
        likely = np.clip(chance, least, 1.0 - least)
        one, zero = (
            1.0 / (1.0 + ((reads - level) / self._width) ** 2 / FREEDOM) ** 2
            for level in (F32(1.0), F32(0.0))
        )
        mixed = likely * one + (1.0 - likely) * zero + F32(self._costs.min_likelihood)
        found: np.ndarray = np.log(self._width) - np.log(mixed)
        return found


def _without_means(values: np.ndarray) -> np.ndarray:
    """Return values (T, ...) without their means over each `BLOCK` ticks."""
    blocks = values.reshape(-1, BLOCK, *values.shape[1:])
    found: np.ndarray = (blocks - blocks.mean(1, keepdims=True)).reshape(values.shape)
    return found
