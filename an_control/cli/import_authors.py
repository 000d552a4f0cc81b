"""The verb ``an-control import-authors NPZ --kind K --out M``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from an_control.cli.common import InputError, OutputFile
from an_control.learning.import_authors import import_policy_of_authors
from an_control.policy import write_model
from an_control.system.files import WriteError


@dataclass(frozen=True)
class ImportAuthorsCommand:
    """Convert the weights of the AttentionNeuron authors to a model file."""

    npz: tyro.conf.Positional[Path]
    """The authors' file of flat parameters, an .npz with one array "params"."""
    kind: Literal["cartpole_pi", "ant_pi", "ant_mlp", "carracing_pi", "puzzle_pong"]
    """Which of the authors' policies the file holds."""
    out: OutputFile
    """The model file to write (.safetensors)."""

    def run(self) -> int:
        """Convert the weights and return the exit status."""
        model = import_policy_of_authors(self.npz, self.kind)
        try:
            write_model(self.out, model)
        except WriteError as error:
            raise InputError(f"--out {error}") from error
        print(f"{self.out}: {self.kind}, {model.trained['parameters']} parameters")
        return 0
