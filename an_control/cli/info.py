"""The verb ``an-control info MODEL``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import tyro

from an_control.cli.common import ModelFile, OutputFile, write_json
from an_control.load import find_model_path
from an_control.policy import OrderedSizes, read_model
from an_control.policy.onnx_file import ForeignNetwork

NO_ATTENTION = "none: this policy needs its channels in order; a monitor in front can find them"


def _describe_onnx_network(network: ForeignNetwork) -> dict[str, Any]:
    """Return facts about an ONNX network that another tool wrote, by name, for printing."""
    layout = network.layout
    return {
        "sha256": network.sha256,
        "opset": network.opset,
        "observation": [network.observation.name, *network.observation.shape],
        "action": [network.action.name, *network.action.shape],
        "states": [before.name for before, _ in network.states],
        "terms": [f"{term.kind} {', '.join(term.channels)}".strip() for term in layout.terms],
        "history": asdict(layout.history),
        "limit": layout.limit,
    }


@dataclass(frozen=True)
class InfoCommand:
    """Show the content of a model file: its kind, sizes, task, training and arrays."""

    model: tyro.conf.Positional[ModelFile]
    """A .safetensors model file, an .onnx file of another tool, or the name of a shipped model."""
    json: OutputFile | None = None
    """Also write the content here as JSON."""

    def run(self) -> int:
        """Print the contents of the model file and return the exit status."""
        model = read_model(find_model_path(self.model))
        shown = {
            "model": str(self.model),
            "kind": model.kind,
            "parameters": model.parameter_count,
            "sizes": asdict(model.sizes),
            "task": model.task.to_header(),
            "trained": model.trained,
            "forward": None if model.forward is None else asdict(model.forward),
            "arrays": {name: list(array.shape) for name, array in model.arrays.items()},
        }
        if model.network is not None:
            shown["network"] = _describe_onnx_network(model.network)
        if isinstance(model.sizes, OrderedSizes):
            shown["attention"] = NO_ATTENTION
        for title, value in shown.items():
            if isinstance(value, dict):
                print(f"{title}:")
                for key, entry in value.items():
                    print(f"  {key}: {entry}")
            else:
                print(f"{title}: {value}")
        write_json(self.json, shown)
        return 0
