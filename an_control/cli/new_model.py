"""The verb ``an-control new-model ROBOT --out M``."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import tyro

from an_control.cli.common import InputError, OutputFile, require_packages
from an_control.policy import MlpSizes, Sizes, write_model
from an_control.policy.random_model import make_random_model
from an_control.policy.sizes import make_paper_sizes
from an_control.policy.task import Task
from an_control.system.files import WriteError
from an_control.wiring import load_wiring


@dataclass(frozen=True)
class NewModelCommand:
    """Write a small random policy for a robot, to test the robot before anything is learned.

    The policy has the robot's channels and actuators, in their order.
    """

    robot: tyro.conf.Positional[str]
    """A wiring YAML, a gymnasium id (also as module:id), or a task known by name."""
    out: OutputFile
    """The model file to write (.safetensors)."""
    weight_scale: float = 0.3
    """The scale of the random weights; 1: as PyTorch initialises a layer, 0: every action is 0."""
    ordered: bool = False
    """Write an MLP that needs its channels in order, instead of an attention policy."""
    seed: int = 1
    """Seed of the weights."""

    def run(self) -> int:
        """Write the model file and return the exit status."""
        if not 0.0 <= self.weight_scale < float("inf"):
            raise InputError(f"--weight-scale {self.weight_scale}: must be 0 or more")
        if self.seed < 0:
            raise InputError(f"--seed {self.seed}: must be 0 or more")
        task = (
            self._make_task_from_wiring()
            if self.robot.endswith((".yaml", ".yml"))
            else self._make_task_from_environment()
        )
        channels, actions = len(task.channels), len(task.actuators)
        sizes: Sizes = make_paper_sizes(actions, queries=16, hidden_layers=1)
        if self.ordered:
            sizes = MlpSizes(channels, actions, [16])
        model = make_random_model(sizes, self.seed, self.weight_scale, task)
        try:
            write_model(self.out, model)
        except WriteError as error:
            raise InputError(f"--out {error}") from error
        print(
            f"{self.out}: {channels} channels, {actions} actions,"
            f" {model.parameter_count} parameters"
        )
        return 0

    def _make_task_from_wiring(self) -> Task:
        """Describe the channels and actuators of a robot's wiring as the task in a model file."""
        wiring = load_wiring(Path(self.robot))
        if wiring.images:
            raise InputError(f"{self.robot}: has a camera, and this makes models of numbers only")
        return Task(
            name=wiring.robot,
            channels=tuple(channel.id for channel in wiring.channels),
            actuators=tuple(actuator.name for actuator in wiring.command.actuators),
            step_s=1.0 / wiring.rate_hz,
        )

    def _make_task_from_environment(self) -> Task:
        """Describe the readings and actuators of an environment as the task in a model file."""
        require_packages("sim", "gymnasium")
        from an_control_sim.gym.environments import (
            describe_task,
            find_environment_id,
            has_patch_observations,
            make_environment,
        )
        from an_control_sim.gym.probe import measure_units

        environment = find_environment_id(self.robot)
        try:
            units = measure_units(environment)
            with closing(make_environment(environment, units)) as env:
                if has_patch_observations(env):
                    raise ValueError(f"{self.robot}: has a camera; this makes models of numbers")
                return describe_task(env, self.robot, environment)
        except ValueError as error:
            raise InputError(str(error)) from error
