"""The forward model in the file: its header, its arrays, its identity classifier."""

import json
from dataclasses import replace

import numpy as np
import pytest
from waves import CHANNELS, FORWARD, monitored_model, waves

import an_control
from an_control.monitor.forward_model import ForwardModel
from an_control.monitor.kernels import COMPILES
from an_control.monitor.monitored_policy import MonitoredPolicy
from an_control.policy import ModelError, read_model, write_model
from an_control.policy.sizes import ForwardSizes


@pytest.fixture
def path(tmp_path):
    return tmp_path / "waves.safetensors"


def test_the_file_carries_the_forward_model_and_its_default(path):
    write_model(path, monitored_model(monitor="reset"))
    model = read_model(path)
    assert model.forward == replace(FORWARD, monitor="reset")
    policy = an_control.load_policy(path)
    assert isinstance(policy, MonitoredPolicy) and policy.setting == "reset"
    assert an_control.load_policy(path, monitor="match").setting == "match"
    assert not isinstance(an_control.load_policy(path, monitor="off"), MonitoredPolicy)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hidden": [0]}, r"forward.hidden\[0\]: 0"),
        ({"hidden": []}, "forward.hidden"),
        ({"identity": "many"}, "forward.identity: 'many'"),
        ({"binary": ["no such"]}, "forward.binary"),
        ({"imputation": -1}, "forward.imputation: -1"),
        ({"monitor": "always"}, "forward.monitor: 'always' is not one of 'off', 'reset', 'match'"),
        ({"more": 1}, "forward"),
    ],
)
def test_a_bad_description_is_refused_by_name(path, change, named):
    write_model(path, monitored_model())
    change_description(path, lambda forward: forward.update(change))
    with pytest.raises(ModelError, match=named):
        read_model(path)


@pytest.mark.parametrize("key", ["hidden", "identity", "binary", "monitor"])
def test_a_description_that_lacks_a_key_is_refused_by_its_name(path, key):
    write_model(path, monitored_model())
    change_description(path, lambda forward: forward.pop(key))
    with pytest.raises(ModelError, match=f"forward: .*'{key}'"):
        read_model(path)


def change_description(path, change):
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    tensors = json.loads(content[8 : 8 + length])
    header = json.loads(tensors["__metadata__"]["an_control"])
    change(header["forward"])
    tensors["__metadata__"]["an_control"] = json.dumps(header)
    begin = json.dumps(tensors).encode()
    path.write_bytes(len(begin).to_bytes(8, "little") + begin + content[8 + length :])


def test_arrays_that_are_missing_or_wrong_are_refused(path):
    model = monitored_model()
    lacking = {name: array for name, array in model.arrays.items() if name != "identity.units"}
    with pytest.raises(ModelError, match=r"identity\.units"):
        write_model(path, replace(model, arrays=lacking))
    with pytest.raises(ModelError, match=r"forward"):
        write_model(path, replace(model, forward=None))
    broken = model.arrays | {"forward.step": np.full(5, np.nan, np.float32)}
    with pytest.raises(ModelError, match=r"forward\.step.*not finite"):
        write_model(path, replace(model, arrays=broken))


def test_a_header_that_does_not_name_imputation_has_none():
    header = {"hidden": [8], "identity": 4, "binary": [], "monitor": "match"}
    assert ForwardSizes.from_header(header, CHANNELS) == FORWARD


def test_the_identity_classifier_gives_probabilities():
    forward = ForwardModel(monitored_model())
    reads = np.stack([waves(tick) for tick in range(7)])
    change = np.diff(reads, axis=0, prepend=reads[:1])
    costs = forward.compute_identity_classifier_costs(reads, change, np.zeros((7, 2), np.float32))
    np.testing.assert_allclose(np.exp(-costs).sum(1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("ticks", [1, 3])
def test_its_predictions_are_the_same_compiled(ticks):
    plain, compiled = ForwardModel(monitored_model()), ForwardModel(monitored_model())
    assert not COMPILES or compiled._predict_tick is not None
    plain._predict_tick = None
    rng = np.random.default_rng(0)
    for _ in range(20):
        readings = rng.normal(size=(ticks, len(CHANNELS))).astype(np.float32) * 3.0
        action = rng.uniform(-1.0, 1.0, (ticks, plain.actions)).astype(np.float32)
        both = plain.predict_changes(readings, action), compiled.predict_changes(readings, action)
        for one, other in zip(*both, strict=True):
            assert one.shape == other.shape and other.dtype == np.float32
            np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)
