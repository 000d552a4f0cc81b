"""The verb ``an-control export MODEL --onnx F.onnx``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from an_control.cli.common import InputError, OutputFile, require_packages
from an_control.policy import read_model
from an_control.policy.onnx_export import export_onnx
from an_control.policy.onnx_file import SUFFIX, is_onnx
from an_control.system.files import WriteError, write_file


@dataclass(frozen=True)
class ExportCommand:
    """Write a policy as an ONNX file, for programs that run these.

    The file reads the task's channels in their order and, where the policy has them, the previous
    action and its states, which go in and out. It loses what an ONNX file cannot hold: any order of
    the channels to the last bit, channels that come and go, attention to look at, the recovery, and
    the monitor.
    """

    model: tyro.conf.Positional[Path]
    """A .safetensors model file."""
    onnx: OutputFile
    """The file to write (.onnx)."""

    def run(self) -> int:
        """Write the file and return the exit status."""
        require_packages("onnx", "onnx")
        if not is_onnx(self.onnx):
            raise InputError(f"--onnx {self.onnx}: must end in {SUFFIX}")
        model = read_model(self.model)
        try:
            write_file(self.onnx, export_onnx(model))
        except WriteError as error:
            raise InputError(f"--onnx {error}") from error
        except ValueError as error:
            raise InputError(f"{self.model}: {error}") from error
        lost = "" if model.forward is None else "; its monitor stays behind"
        channels = len(model.task.channels)
        print(f"{self.onnx}: {channels} channels, {model.sizes.actions} actions{lost}")
        return 0
