"""The JSON Schemas that editors take allow the keys that the program allows."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from an_control.wiring import WiringError, load_wiring

jsonschema = pytest.importorskip("jsonschema", reason="needs the test extra")
simulation_file = pytest.importorskip("an_control_sim.bridge.simulation_file")

ROOT = Path(__file__).resolve().parents[2]
FILES = [*sorted(ROOT.glob("config/*.yaml")), *sorted(ROOT.glob("examples/*.yaml"))]
LOADERS: dict[str, Callable[[Path], Any]] = {
    "wiring": load_wiring,
    "simulation": simulation_file.load_simulation,
}
FULL = {
    "wiring": """
an_control_wiring: 1
robot: full
rate_hz: 50
min_present_share: 0.5
sources:
  laser: {topic: scan, type: sensor_msgs/msg/LaserScan, max_age_s: 0.1}
  joints: {topic: joint_states, type: sensor_msgs/msg/JointState, max_age_s: 0.1}
channels:
  scan.*: {source: laser, field: "ranges[*]", pool: {size: 6, by: min}}
command:
  topic: commands
  type: std_msgs/msg/Float64MultiArray
  field: data
  measured: {source: joints, field: "position[*]"}
  bring_up: {max_rate: 0.5, tolerance: 0.05, timeout_s: 20}
  actuators:
    hip: {limits: [-1, 1], safe: hold, start: 0.3}
""",
    "camera": """
an_control_wiring: 1
robot: seeing
rate_hz: 50
min_present_share: 0.5
sources:
  camera: {topic: image, type: sensor_msgs/msg/Image, max_age_s: 0.1}
channels:
  camera.*: {source: camera, image: {size: [96, 96], patch: 6, stack: 4}}
command:
  topic: commands
  type: std_msgs/msg/Float64
  field: data
  actuators: {hip: {limits: [-1, 1], safe: 0}}
""",
    "simulation": """
an_control_simulation: 1
environment: Hopper-v5
step_s: 0.008
publish:
  joint_states: {type: sensor_msgs/msg/JointState, fields: {position: "observation[0:3]"}}
command:
  topic: commands
  type: std_msgs/msg/Float64MultiArray
  field: data
  actuators:
    hip: {scale: 1, safe: 0}
camera: {topic: image, frame_id: camera}
""",
}
FREE = {"sources", "channels", "actuators", "constants", "options", "publish", "fields"}
"""Mappings whose keys the user chooses."""


def kind(document: dict[str, Any]) -> str:
    return next((name for name in LOADERS if f"an_control_{name}" in document), "")


def schema(name: str) -> Any:
    text = (ROOT / f"config/schemas/{name}.schema.json").read_text(encoding="utf-8")
    return jsonschema.Draft202012Validator(json.loads(text))


def mappings(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all mappings whose keys the format names."""
    if isinstance(value, dict):
        if not place or place[-1] not in FREE:
            yield place
        for key, one in value.items():
            yield from mappings(one, (*place, key))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_that_ships_is_valid_by_its_schema(path):
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    if name := kind(document):
        schema(name).validate(document)


@pytest.mark.parametrize("text", FULL.values(), ids=FULL)
def test_the_schema_and_the_program_allow_the_same_keys_everywhere(text, tmp_path):
    """The program names what it allows when it refuses a key; each of these the schema has."""
    whole = yaml.safe_load(text)
    name, path = kind(whole), tmp_path / "file.yaml"
    path.write_text(yaml.safe_dump(whole))
    LOADERS[name](path)
    schema(name).validate(whole)
    for place in mappings(whole):
        document = deepcopy(whole)
        at = document
        for key in place:
            at = at[key]
        at["zzzz"] = 1
        path.write_text(yaml.safe_dump(document))
        with pytest.raises(WiringError) as refused:
            LOADERS[name](path)
        allowed = set(refused.value.allowed.split(" (")[0].split(", "))
        assert keys(schema(name).schema, place, document) == allowed, place
        assert not schema(name).is_valid(document), place


def keys(whole: dict[str, Any], place: tuple[Any, ...], document: Any) -> set[str]:
    """The keys that the schema names at a place; of two forms those of the one that is there."""
    entry = resolved(whole, whole, document)
    for key in place:
        document = document[key]
        below = entry.get("properties", {}).get(key, entry.get("additionalProperties"))
        entry = resolved(below, whole, document)
    return set(entry["properties"])


def resolved(entry: dict[str, Any], whole: dict[str, Any], value: Any) -> dict[str, Any]:
    """An entry of the schema without `$ref`, and of several forms the one that `value` has."""
    if "$ref" in entry:
        entry = whole["$defs"][entry["$ref"].rpartition("/")[2]]
    for one in (resolved(form, whole, value) for form in entry.get("oneOf", ())):
        if set(value) - {"zzzz"} <= set(one.get("properties", ())):
            return one
    return entry
