"""What happens on purpose to readings, commands and the robot; live and offline.

`DisturbanceSettings` say what. A `Disturber` does it to readings tick by tick, and draws the rest.
Everything random follows from (seed, episode, step).
"""

from an_control.disturbance.disturber import (
    Disturber,
    Late,
    Permutation,
    Plan,
    Replay,
    draw_present,
)
from an_control.disturbance.seeds import TRAINING_SEEDS, episode_seed
from an_control.disturbance.settings import (
    SETTINGS,
    Change,
    DisturbanceSettings,
    Observation,
    Range,
    Setting,
    Shuffle,
    Stop,
    after_stops,
    load_schedule,
    motor_output,
    stages,
)

__all__ = [
    "SETTINGS",
    "TRAINING_SEEDS",
    "Change",
    "DisturbanceSettings",
    "Disturber",
    "Late",
    "Observation",
    "Permutation",
    "Plan",
    "Range",
    "Replay",
    "Setting",
    "Shuffle",
    "Stop",
    "after_stops",
    "draw_present",
    "episode_seed",
    "load_schedule",
    "motor_output",
    "stages",
]
