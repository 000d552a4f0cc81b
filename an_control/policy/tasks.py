"""The paper's control tasks as model files describe them: channels and actuators in order."""

from __future__ import annotations

from typing import Any

CARTPOLE_CHANNELS = ["cart.position", "cart.velocity", "pole.cos", "pole.sin", "pole.velocity"]
JOINTS = [f"{joint}_{leg}" for leg in (1, 2, 3, 4) for joint in ("hip", "ankle")]
ANT_CHANNELS = [
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
]
ANT_TASK: dict[str, Any] = {
    "name": "ant",
    "environment": "an_control/Ant-v0",
    "channels": ANT_CHANNELS,
    "actuators": JOINTS,
    "step_s": 0.0165,
}
CARTPOLE_TASK: dict[str, Any] = {
    "name": "cartpole",
    "environment": "an_control/CartPoleSwingUpHarder-v0",
    "channels": CARTPOLE_CHANNELS,
    "actuators": ["cart"],
    "step_s": 0.01,
}
SUCCESS = {"ant": 2000.0, "cartpole": 400.0}
"""The return that counts as a success, by task."""
