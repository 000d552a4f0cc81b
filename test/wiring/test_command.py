"""From an action to command values."""

from __future__ import annotations

import numpy as np
import pytest

from an_control.wiring import ActuatorConfig, CommandConfig, MessageConfig

ARM = CommandConfig(
    (
        MessageConfig(
            "commands",
            "sensor_msgs/msg/JointState",
            "effort",
            (
                ActuatorConfig("hip", 250.0, 0.0, (-250.0, 250.0), 0.0, 0.0),
                ActuatorConfig("grip", 0.5, 0.5, (0.0, 1.0), 2.0, 1.0),
            ),
        ),
    )
)


def test_a_command_is_the_action_scaled_and_offset_in_float64() -> None:
    action = np.array([0.1, -0.7], np.float32)
    values = ARM.convert_to_command(action)
    assert values.dtype == np.float64
    assert values.tolist() == [float(action[0]) * 250.0, float(action[1]) * 0.5 + 0.5]
    assert ARM.names == ("hip", "grip")


def test_values_and_actions_stand_for_each_other_also_beyond_what_an_action_can_be() -> None:
    for action in ([0.25, -0.5], [3.0, -2.0]):
        np.testing.assert_allclose(ARM.convert_to_action(ARM.convert_to_command(action)), action)


def test_the_safe_command_is_what_the_wiring_says_and_nobody_can_change_it() -> None:
    ARM.make_safe_command()[:] = 9.0
    assert ARM.make_safe_command().tolist() == [0.0, 1.0]


@pytest.mark.parametrize("action", [[], [1.0], [1.0, 2.0, 3.0], [[1.0, 2.0]], 1.0])
def test_an_action_of_another_length_is_refused(action: object) -> None:
    with pytest.raises(ValueError, match="for 2 actuators"):
        ARM.convert_to_command(action)  # type: ignore[arg-type]
