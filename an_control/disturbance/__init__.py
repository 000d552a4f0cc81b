"""What happens to readings on purpose: rewiring, missing channels, faults, noise; live and offline.

`DisturbanceSettings` say what, a `Disturber` does it tick by tick. Everything random follows from
(seed, episode, step).
"""

from an_control.disturbance.disturber import Disturber, Plan
from an_control.disturbance.schedule import Change, load_schedule, stages
from an_control.disturbance.seeds import episode_seed
from an_control.disturbance.settings import SETTINGS, DisturbanceSettings, Observation, Setting
from an_control.disturbance.shuffle import Shuffle

__all__ = [
    "SETTINGS",
    "Change",
    "DisturbanceSettings",
    "Disturber",
    "Observation",
    "Plan",
    "Setting",
    "Shuffle",
    "episode_seed",
    "load_schedule",
    "stages",
]
