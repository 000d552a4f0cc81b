"""What happens on purpose to readings, commands and the robot; live and offline.

`DisturbanceSettings` say what. A `Disturber` does it to readings tick by tick, and draws the rest.
Everything random follows from (seed, episode, step).
"""

from an_control.disturbance.delivery import Late
from an_control.disturbance.disturber import Disturber, Plan
from an_control.disturbance.range import Range
from an_control.disturbance.schedule import Change, load_schedule, stages
from an_control.disturbance.seeds import TRAINING_SEEDS, episode_seed
from an_control.disturbance.settings import SETTINGS, DisturbanceSettings, Observation, Setting
from an_control.disturbance.shuffle import Shuffle
from an_control.disturbance.stop import Stop, after_stops

__all__ = [
    "SETTINGS",
    "TRAINING_SEEDS",
    "Change",
    "DisturbanceSettings",
    "Disturber",
    "Late",
    "Observation",
    "Plan",
    "Range",
    "Setting",
    "Shuffle",
    "Stop",
    "after_stops",
    "episode_seed",
    "load_schedule",
    "stages",
]
