"""Fixtures of the command line's tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from program import Program

from an_control.policy.task import Task


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.fixture
def ant_model(tmp_path: Path) -> Path:
    """A tiny random policy under which the Ant soon falls."""
    from an_control.policy import AttentionSizes, write_model
    from an_control.policy.random_model import make_random_model
    from an_control_sim.envs.ant import ANT_ACTUATORS, ANT_CHANNELS, AntEnv

    sizes = AttentionSizes(actions=8, neuron=2, queries=4, key=2, inputs=["value"], head=[])
    task = Task(
        name="ant",
        environment="an_control/Ant-v0",
        channels=ANT_CHANNELS,
        actuators=ANT_ACTUATORS,
        step_s=AntEnv.step_s,
    )
    path = tmp_path / "ant.safetensors"
    write_model(path, make_random_model(sizes, seed=1, gain=3.0, task=task))
    return path
