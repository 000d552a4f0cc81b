"""The verb ``an-control info MODEL``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import tyro

from an_control.cli.common import OutputFile, write_json
from an_control.policy import read_model


@dataclass(frozen=True)
class InfoCommand:
    """Show what a model file holds: its kind, sizes, task, training and arrays."""

    model: tyro.conf.Positional[Path]
    """A .safetensors model file."""
    json: OutputFile | None = None
    """Also write it here as JSON."""

    def run(self) -> int:
        """Print the contents of the model file and return the exit status."""
        model = read_model(self.model)
        shown = {
            "model": str(self.model),
            "kind": model.kind,
            "parameters": model.parameters,
            "sizes": asdict(model.sizes),
            "task": model.task.to_header(),
            "trained": model.trained,
            "forward": None if model.forward is None else asdict(model.forward),
            "arrays": {name: list(array.shape) for name, array in model.arrays.items()},
        }
        for title, value in shown.items():
            if isinstance(value, dict):
                print(f"{title}:")
                for key, entry in value.items():
                    print(f"  {key}: {entry}")
            else:
                print(f"{title}: {value}")
        write_json(self.json, shown)
        return 0
