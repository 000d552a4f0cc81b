"""Model files of format 1, which had other names, go on loading to the same bits."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from an_control.load import make_policy
from an_control.policy import (
    AttentionSizes,
    MlpSizes,
    ModelError,
    read_header,
    read_model,
    write_model,
)
from an_control.policy.random_model import random_model
from an_control.policy.sizes import ForwardSizes

FOLDER = Path(__file__).parent / "format_1"
ATTENTION_NEURON, ORDERED = (
    FOLDER / f"{kind}.safetensors" for kind in ("attention_neuron", "ordered")
)
TASK = {"channels": ["a", "b", "c"]}


def attention_neuron():
    """What was written into the file of this name: every array and switch that has another name."""
    sizes = AttentionSizes(
        2,
        4,
        5,
        3,
        ["value", "change"],
        [4],
        True,
        "softmax",
        "relu",
        "clip",
        memory=3,
        outlier_weighting=True,
        reset_on_jump=True,
        prediction_attention=True,
    )
    model = random_model(sizes, seed=3, task=TASK | {"step_s": 0.02})
    forward, rng = ForwardSizes([3], 2, ["c"], "match", 2), np.random.default_rng(4)
    arrays = {
        name: rng.uniform(0.1, 1.0, shape).astype(np.float32)
        for name, shape in forward.shapes(3, 2).items()
    }
    return replace(model, arrays=model.arrays | arrays, forward=forward)


MODELS = [
    (ATTENTION_NEURON, attention_neuron),
    (ORDERED, lambda: random_model(MlpSizes(3, 2, [4]), seed=3, task=TASK)),
]


@pytest.mark.parametrize(("path", "made"), MODELS)
def test_a_file_of_format_1_is_read_to_the_same_bits(path, made):
    model, expected = read_model(path), made()
    assert (model.kind, model.sizes, model.forward) == (
        expected.kind,
        expected.sizes,
        expected.forward,
    )
    assert model.arrays.keys() == expected.arrays.keys()
    for name, array in expected.arrays.items():
        assert model.arrays[name].tobytes() == array.tobytes(), name
    assert read_header(path, 2**16).sizes == expected.sizes
    policies = [make_policy(one, engine="numpy") for one in (model, expected)]
    for reading in (0.5, -1.0, 2.0):
        one, other = (policy.step({"a": reading, "c": 1.0}) for policy in policies)
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize(("path", "made"), MODELS)
def test_what_is_written_is_of_format_2(path, made, tmp_path):
    write_model(tmp_path / "new.safetensors", read_model(path))
    with safetensors.safe_open(tmp_path / "new.safetensors", "numpy") as file:
        assert json.loads(file.metadata()["an_control"])["an_control"] == 2
        assert set(file.keys()) == made().arrays.keys()
    assert read_model(tmp_path / "new.safetensors").sizes == made().sizes


def changed(path, tmp_path, change):
    """The file with its header and arrays changed."""
    with safetensors.safe_open(path, "numpy") as file:
        header = json.loads(file.metadata()["an_control"])
        arrays = {name: file.get_tensor(name) for name in list(file.keys())}
    change(header, arrays)
    new = tmp_path / "changed.safetensors"
    safetensors.numpy.save_file(arrays, new, {"an_control": json.dumps(header)})
    return new


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda header, arrays: header["sizes"].update(reset_on_jump=True), "sizes: 'startle' and"),
        (lambda header, arrays: header["forward"].update(identity=2), "forward: 'looks' and"),
        (
            lambda header, arrays: arrays.update({"identity.units": arrays["looks.units"]}),
            "arrays: 'looks.units' and 'identity.units' are the same",
        ),
        (lambda header, arrays: header["sizes"].update(doubt=1), "sizes.outlier_weighting: 1"),
        (lambda header, arrays: arrays.pop("fill.typical"), "'imputation.typical' is missing"),
        (lambda header, arrays: header.update(kind=["ordered"]), "kind must be a string"),
        (lambda header, arrays: header.update(an_control=2), "forward: .*'looks'"),
    ],
)
def test_an_unsound_file_of_format_1_is_refused_by_name(change, reason, tmp_path):
    with pytest.raises(ModelError, match=reason) as error:
        read_model(changed(ATTENTION_NEURON, tmp_path, change))
    assert "changed.safetensors: " in str(error.value)
