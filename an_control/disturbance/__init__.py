"""What happens to readings on purpose: rewiring, missing channels, faults, noise; live and offline.

`DisturbanceSettings` say what, a `Disturber` does it tick by tick. Everything random follows from
(seed, episode, step).
"""

from an_control.disturbance.disturber import (
    Change,
    DisturbanceSettings,
    Disturber,
    Plan,
    Shuffle,
    episode_seed,
)
from an_control.disturbance.schedule import load_schedule

__all__ = [
    "Change",
    "DisturbanceSettings",
    "Disturber",
    "Plan",
    "Shuffle",
    "episode_seed",
    "load_schedule",
]
