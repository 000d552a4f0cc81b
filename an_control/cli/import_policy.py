"""The verb ``an-control import POLICY --out F.onnx``."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import tyro

from an_control.cli.common import InputError, OutputFile, require_packages
from an_control.control.model_wiring_check import describe_assumed_action_limit
from an_control.learning.import_policy import PolicyNames, import_policy
from an_control.policy import read_model
from an_control.policy.onnx_file import SUFFIX, has_onnx_suffix
from an_control.system.files import WriteError, write_file


@dataclass(frozen=True)
class ImportCommand:
    """Convert a policy of Stable-Baselines3 or TorchScript to an ONNX file.

    The robot then needs no torch and reads no pickle. A policy that is an ONNX file already needs
    no conversion: give it as --model.
    """

    policy: tyro.conf.Positional[Path]
    """A .zip of Stable-Baselines3 (PPO, A2C, SAC, TQC, TD3 or DDPG with an MLP), or a TorchScript
    file."""
    out: OutputFile
    """The file to write (.onnx)."""
    task: str | None = None
    """The task that the policy learned, known by name, or a gymnasium id, also as module:id; from
    it come the names of channels and actuators, and the period. By default channels and actuators
    are numbered."""
    normalise: Path | None = None
    """The file of the VecNormalize with which a policy of Stable-Baselines3 was trained."""

    def run(self) -> int:
        """Convert the policy, write the ONNX file and return the exit status."""
        require_packages("train", "torch", "onnx", "onnxruntime")
        if not has_onnx_suffix(self.out):
            raise InputError(f"--out {self.out}: must end in {SUFFIX}")
        if has_onnx_suffix(self.policy):
            raise InputError(f"{self.policy}: is an ONNX file already; give it as --model")
        content = import_policy(
            self.policy, self._choose_channel_and_actuator_names(), self.normalise
        )
        try:
            write_file(self.out, content)
        except WriteError as error:
            raise InputError(f"--out {error}") from error
        model = read_model(self.out, monitor=False)
        channels, actions = len(model.task.channels), model.sizes.actions
        print(
            f"{self.out}: {channels} channels, {actions} actions,"
            f" {model.parameter_count} parameters"
        )
        if assumed := describe_assumed_action_limit(str(self.out), model):
            print(assumed)
        return 0

    def _choose_channel_and_actuator_names(self) -> PolicyNames:
        """Return the names of channels and actuators of ``--task``; without it, numbered ones."""
        if self.task is None:
            return PolicyNames()
        require_packages("sim", "gymnasium")
        from an_control_sim.gym.environments import (
            describe_task,
            find_environment_id,
            make_environment,
        )

        try:
            environment = find_environment_id(self.task)
            with closing(make_environment(environment)) as env:
                task = describe_task(env, self.task, environment)
        except ValueError as error:
            raise InputError(f"--task: {error}") from error
        return PolicyNames(task.channels, task.actuators, task.step_s or None, self.task)
