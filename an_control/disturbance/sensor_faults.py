"""What broken sensors do to signals: they freeze, come late, jitter, spike or are NaN."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from an_control.disturbance.delivery import Late
from an_control.disturbance.seeds import Streams
from an_control.disturbance.settings import DisturbanceSettings


class Faults:
    """The faults of N signals in one episode."""

    def __init__(self, count: int, streams: Streams, settings: DisturbanceSettings) -> None:
        self._count, self._rng, self._jitter_rng = count, streams.faults, streams.jitter
        self._late: Late[NDArray[np.float32]] = Late()
        self.draw_frozen(settings.freeze)
        self.adopt(settings)

    def draw_frozen(self, share: float) -> None:
        """Draw which signals freeze; each keeps the first value that comes from now on."""
        drawn = self._rng.permutation(self._count)[: round(share * self._count)]
        self._frozen = np.sort(drawn)
        self._held = np.full(self._count, np.nan, dtype=np.float32)

    def adopt(self, settings: DisturbanceSettings) -> None:
        """These settings from the next tick on; what is late already stays so."""
        self._settings = settings
        self.active = any(
            (settings.freeze, settings.delay, settings.spike, settings.nan, settings.jitter)
        )
        if not self.active:
            self._late.forget()

    def apply(self, signals: NDArray[np.float32]) -> NDArray[np.float32]:
        """One tick's signals (N,), faulty."""
        settings, rng = self._settings, self._rng
        faulty = self._late(signals.copy(), settings.delay.count).copy()
        if len(self._frozen):
            held = self._held[self._frozen]
            held = np.where(np.isnan(held), faulty[self._frozen], held)
            self._held[self._frozen] = faulty[self._frozen] = held
        if settings.jitter:
            faulty += _normal(self._jitter_rng, settings.jitter.value, len(faulty))
        if settings.spike:
            struck = rng.random(len(faulty)) < settings.spike
            faulty += struck * _normal(rng, settings.spike_sd, len(faulty))
        if settings.nan:
            faulty[rng.random(len(faulty)) < settings.nan] = np.nan
        return faulty


def _normal(rng: np.random.Generator, sd: float, count: int) -> NDArray[np.float32]:
    return rng.normal(0.0, sd, count).astype(np.float32)
