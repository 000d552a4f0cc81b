"""Readers of files that nobody vouches for: their own error, or something sound."""

from __future__ import annotations

import contextlib
import json
import struct
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from an_control.load import load_policy
from an_control.policy import ModelError, read_model
from an_control.system.share import find_share_path
from an_control.wiring import WiringError, load_wiring

WIRING = yaml.safe_load(find_share_path("config/ant.yaml").read_text())
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    | st.sampled_from(["joints", "position[*]", "*", "sensor_msgs/msg/Imu", "roll(x)", "0x10"])
)  # fmt: skip
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "file"


def paths_of(tree: object, at: tuple = ()) -> list[tuple]:
    inner = tree.items() if isinstance(tree, dict) else ()
    return [at, *(one for key, value in inner for one in paths_of(value, (*at, key)))]


@given(place=st.sampled_from(paths_of(WIRING)[1:]), tree=TREES)
def test_a_wiring_with_any_one_entry_replaced_by_anything_is_refused_by_name_or_read(
    path, place, tree
):
    changed = json.loads(json.dumps(WIRING))
    spot = changed
    for key in place[:-1]:
        spot = spot[key]
    spot[place[-1]] = tree
    path.write_text(yaml.safe_dump(changed, sort_keys=False))
    try:
        load_wiring(path)
    except WiringError as error:
        assert str(path) in str(error)


@given(st.binary(max_size=300))
def test_bytes_are_no_wiring_and_no_model(path, content):
    path.write_bytes(content)
    with pytest.raises(WiringError):
        load_wiring(path)
    with pytest.raises(ModelError):
        read_model(path)


@given(tree=TREES, body=st.binary(max_size=100), length=st.none() | st.integers(0, 2**64 - 1))
def test_a_model_with_any_header_is_refused(path, tree, body, length):
    header = json.dumps({"__metadata__": {"an_control": json.dumps(tree)}, "a": tree}).encode()
    size = len(header) if length is None else length
    path.write_bytes(struct.pack("<Q", size) + header + body)
    with pytest.raises(ModelError):
        read_model(path)


@given(at=st.floats(0, 1, exclude_max=True), new=st.binary(max_size=8), cut=st.integers(0, 64))
def test_a_model_with_some_bytes_replaced_is_refused_or_acts_within_bounds(path, at, new, cut):
    content = bytearray(find_share_path("models/ant.safetensors").read_bytes())
    start = int(at * len(content))
    content[start : start + cut] = new
    path.write_bytes(content)
    with contextlib.suppress(ModelError):
        policy = load_policy(path, engine="numpy")
        action = policy.step_array([0.5] * 3, policy.nominal_ids[:3] or ("a", "b", "c"))
        assert (abs(action) <= 1.0).all()
