"""The paper's control tasks as model files describe them: channels and actuators in order."""

from __future__ import annotations

from an_control.policy.sizes import make_paper_sizes
from an_control.policy.task import Task

PATCH = 6
"""Edge length of an image patch in pixels."""


def make_patch_ids(height: int, width: int, patch: int = PATCH) -> tuple[str, ...]:
    """Return the ids ``camera.ROW.COLUMN`` of the patches of a frame, row by row.

    Patches that do not fit wholly into the frame are left out.

    >>> make_patch_ids(12, 6)
    ('camera.0.0', 'camera.1.0')

    Args:
        height: The height of the frame in pixels.
        width: The width of the frame in pixels.
        patch: The edge length of a patch in pixels.
    """
    return tuple(f"camera.{i}.{j}" for i in range(height // patch) for j in range(width // patch))


CARTPOLE_CHANNELS = ("cart.position", "cart.velocity", "pole.cos", "pole.sin", "pole.velocity")
JOINTS = tuple(f"{joint}_{leg}" for leg in (1, 2, 3, 4) for joint in ("hip", "ankle"))
ANT_CHANNELS = (
    "height",
    "goal.sin",
    "goal.cos",
    "velocity.x",
    "velocity.y",
    "velocity.z",
    "roll",
    "pitch",
    *(f"{joint}.{quantity}" for joint in JOINTS for quantity in ("position", "velocity")),
    *(f"foot_{leg}.contact" for leg in (1, 2, 3, 4)),
)
ANT_TASK = Task(
    name="ant",
    environment="an_control/Ant-v0",
    channels=ANT_CHANNELS,
    actuators=JOINTS,
    step_s=0.0165,
)
ANT_SIZES = make_paper_sizes(actions=8, queries=32, hidden_layers=1)
"""Sizes of the AttentionNeuron authors' Ant policy."""
CARTPOLE_TASK = Task(
    name="cartpole",
    environment="an_control/CartPoleSwingUpHarder-v0",
    channels=CARTPOLE_CHANNELS,
    actuators=("cart",),
    step_s=0.01,
)
CAR_RACING_TASK = Task(
    name="car_racing",
    environment="an_control/CarRacing-v0",
    channels=make_patch_ids(96, 96),
    actuators=("steer", "gas", "brake"),
    step_s=0.02,
)
PONG_TASK = Task(
    name="pong",
    environment="an_control/PuzzlePong-v0",
    channels=make_patch_ids(84, 84),
    actuators=("noop", "fire", "right", "left", "right_fire", "left_fire"),
    step_s=4 / 60,
)
SUCCESS = {"ant": 2000.0, "cartpole": 400.0, "car_racing": 800.0, "pong": 0.0}
"""By task, the return above which an episode counts as a success."""
WALK_M = {"ant": 12.0}
"""By task, the distance in metres within 8 s after a stop that counts as walking again; an Ant that
was not stopped covers 19 m."""
