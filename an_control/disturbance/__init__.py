"""Disturbances of readings, commands and the robot, for running robots and for simulations.

A `DisturbanceSettings` object says what is disturbed and how much. A `Disturber` applies these
settings to readings tick by tick. All random numbers follow from (seed, episode, step), so the same
seed gives the same disturbances to the scrambler (the node that disturbs a running robot's
readings), to evaluation and to training.

Example:
    >>> import numpy as np
    >>> from an_control.disturbance import DisturbanceSettings, Disturber
    >>> settings = DisturbanceSettings.parse("reset,missing=0.5")
    >>> disturber = Disturber(("a", "b", "c", "d"), settings, seed=1)
    >>> values, ids = disturber.disturb(np.array([0.1, 0.2, 0.3, 0.4]), ("a", "b", "c", "d"))
    >>> len(values), len(ids)  # half of the channels are missing
    (2, 2)
    >>> sorted(disturber.signal_ids_by_slot)  # the channel whose signal each slot carries
    ['a', 'b', 'c', 'd']
"""

from an_control.disturbance.disturber import (
    DelayLine,
    DisturbancePlan,
    DisturbedEpisode,
    Disturber,
    Permutation,
    draw_present_mask,
)
from an_control.disturbance.patches import PatchDisturber
from an_control.disturbance.seeds import TRAINING_SEEDS, derive_episode_seed
from an_control.disturbance.settings import (
    SETTINGS,
    DisturbanceSettings,
    Observation,
    Range,
    RobotStop,
    ScheduledChange,
    Setting,
    Shuffle,
    compute_worn_motor_output,
    describe_distances_walked_after_stop,
    iterate_scheduled_settings,
    load_schedule,
)
from an_control.disturbance.signal_routing import SignalRouting

__all__ = [
    "SETTINGS",
    "TRAINING_SEEDS",
    "DelayLine",
    "DisturbancePlan",
    "DisturbanceSettings",
    "DisturbedEpisode",
    "Disturber",
    "Observation",
    "PatchDisturber",
    "Permutation",
    "Range",
    "RobotStop",
    "ScheduledChange",
    "Setting",
    "Shuffle",
    "SignalRouting",
    "compute_worn_motor_output",
    "derive_episode_seed",
    "describe_distances_walked_after_stop",
    "draw_present_mask",
    "iterate_scheduled_settings",
    "load_schedule",
]
