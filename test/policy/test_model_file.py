"""A file is a valid model or is refused with a ModelError that names it; nothing else happens."""

import json
import os
import resource
import stat
import tracemalloc
from dataclasses import asdict, replace

import numpy as np
import pytest
import safetensors.numpy

from an_control.load import load_policy
from an_control.policy import (
    AttentionSizes,
    MlpSizes,
    Model,
    ModelError,
    model_file,
    read_header,
    read_model,
    write_model,
)
from an_control.policy.random_model import make_random_model
from an_control.policy.task import Task
from an_control.wiring.image import MAX_PATCHES

SIZES = AttentionSizes(actions=2, neuron=3, queries=4, key=2, inputs=["value"], head=[5])
TASK = Task("toy", "toy-v0", channels=("a", "b"), actuators=("x", "y"), step_s=0.02)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "toy.safetensors"


def toy(**changes):
    return replace(make_random_model(SIZES, task=TASK), **changes)


def header(**changes):
    return {
        "an_control": 2,
        "kind": "attention_neuron",
        "sizes": asdict(SIZES),
        "task": TASK.to_header(),
        "trained": {},
    } | changes


def save(path, header, arrays=None, metadata=None):
    """A safetensors file with any header and arrays, sound or not."""
    metadata = {"an_control": json.dumps(header)} if metadata is None else metadata
    safetensors.numpy.save_file(toy().arrays if arrays is None else arrays, path, metadata)
    return path


def refused(path, reason):
    with pytest.raises(ModelError, match=reason) as error:
        read_model(path)
    assert str(error.value).startswith(f"{path}: ")


def framed(head: bytes, length=None, tail=b""):
    return (len(head) if length is None else length).to_bytes(8, "little") + head + tail


def test_what_is_written_is_read_again(model, path):
    write_model(path, replace(model, task=TASK, trained={"generations": 3}))
    again = read_model(path)
    assert (again.kind, again.sizes) == (model.kind, model.sizes)
    assert (again.task, again.trained) == (TASK, {"generations": 3})
    assert again.arrays.keys() == model.arrays.keys()
    for name, array in model.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array)
    assert again.parameter_count == model.parameter_count
    assert load_policy(path, engine="numpy").nominal_ids == ("a", "b")


def test_an_mlp_is_read_again(path):
    sizes = MlpSizes(channels=2, actions=2, head=[])
    write_model(path, make_random_model(sizes, task=TASK))
    assert read_model(path).sizes == sizes


def test_a_file_cut_short_anywhere_is_refused(path):
    write_model(path, toy())
    whole = path.read_bytes()
    for length in [*range(0, 12), *range(12, len(whole), 37), len(whole) - 4, len(whole) - 1]:
        path.write_bytes(whole[:length])
        refused(path, ".")
    path.write_bytes(whole + b"\0" * 4)
    refused(path, ".")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a model",
        framed(b""),
        framed(b"{", length=2**63),
        framed(b"{", length=2**20 + 1, tail=b" " * 2**20),
        framed(b"[]"),
        framed(b"3"),
        framed(b"null"),
        framed(b"\xff\xfe{}"),
        framed(b'{"__metadata__": {"an_control": 1}}'),
        framed(b'{"__metadata__": []}'),
        framed(b"[" * 100_000),
        framed(json.dumps({"__metadata__": {"an_control": "[" * 100_000}}).encode()),
        framed(json.dumps({"__metadata__": {"an_control": "9" * 10_000}}).encode()),
        framed(json.dumps({"__metadata__": {"an_control": '{"an_control": 1'}}).encode()),
    ],
)
def test_bytes_that_are_no_model_are_refused(path, content):
    path.write_bytes(content)
    refused(path, ".")


def test_a_file_larger_than_any_model_is_refused_before_it_is_parsed(path, monkeypatch):
    write_model(path, toy())
    monkeypatch.setattr(model_file, "MAX_FILE_BYTES", 100)
    refused(path, "larger than 100 bytes")


def test_a_path_that_is_no_file_is_refused(tmp_path):
    """A pipe once was read until somebody wrote to it."""
    refused(tmp_path, "not a regular file")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "not a regular file")
    refused(tmp_path / "missing.safetensors", "No such file")


def test_a_safetensors_file_without_our_header_is_refused(path):
    refused(save(path, None, metadata={"format": "pt"}), "without an an_control header")
    refused(save(path, None, metadata={"an_control": "{"}), ".")
    refused(save(path, ["an_control"]), "not of format 2")
    refused(save(path, header(an_control=3)), "not of format 2")


@pytest.mark.parametrize("key", ["kind", "sizes", "task", "trained"])
@pytest.mark.parametrize("value", ["absent", 5, None, [], "x"])
def test_each_part_of_the_header_must_be_there_and_of_its_type(path, key, value):
    changed = header(**{key: value})
    if value == "absent":
        del changed[key]
    refused(save(path, changed), key)


WRONG_SIZES = [
    ("actions", 0),
    ("actions", -1),
    ("actions", True),
    ("actions", 2.0),
    ("actions", "2"),
    ("actions", None),
    ("actions", [2]),
    ("queries", [4]),
    ("neuron", []),
    ("neuron", 65_537),
    ("key", 10**30),
    ("inputs", []),
    ("inputs", ["change"]),
    ("inputs", "value"),
    ("products", 1),
    ("products", None),
    ("attention", "sigmoid"),
    ("activation", ["tanh"]),
    ("output", 1.0),
    ("head", 5),
    ("head", [5.0]),
    ("head", [0]),
    ("head", [[5]]),
    ("head", [1] * 17),
    ("head", {"0": 5}),
    ("stack", -1),
    ("stack", True),
    ("colour", "blue"),
]


@pytest.mark.parametrize(("key", "value"), WRONG_SIZES)
def test_a_wrong_size_is_refused_by_key_and_value(path, key, value):
    refused(save(path, header(sizes=asdict(SIZES) | {key: value})), f"sizes.{key}")


def test_an_unknown_size_is_refused_with_those_that_a_file_may_have(path):
    sizes = asdict(MlpSizes(2, 1, [])) | {"can_be_compiled_in_rollouts": True}
    names = "actions, head, activation, output"
    refused(
        save(path, header(kind="mlp", sizes=sizes)),
        rf"can_be_compiled_in_rollouts: unknown, allowed are channels, {names}$",
    )


def test_a_missing_size_and_a_lone_softmax_query_are_refused(path):
    sizes = asdict(SIZES)
    del sizes["neuron"]
    refused(save(path, header(sizes=sizes)), "neuron")
    lone = asdict(SIZES) | {"attention": "softmax", "queries": 1}
    refused(save(path, header(sizes=lone)), "softmax attention needs at least 2")


def test_a_stack_of_readings_and_their_changes_is_refused(path):
    both = asdict(SIZES) | {"stack": 4, "inputs": ["value", "change"]}
    refused(save(path, header(sizes=both)), "sizes.inputs: .*, a stack allows")


def test_a_file_from_before_there_were_stacks_is_read(path):
    old = {key: value for key, value in asdict(SIZES).items() if key != "stack"}
    assert read_model(save(path, header(sizes=old))).sizes == SIZES


def test_an_unknown_kind_is_refused_with_the_known_ones(path):
    refused(save(path, header(kind="transformer")), "'transformer' is not one of attention_neuron")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ramp_s", -0.1),
        ("ramp_s", True),
        ("ramp_s", float("nan")),
        ("repeats", 1),
        ("recovery", -0.1),
        ("recovery", 1.1),
        ("recovery", True),
        ("recovery", float("nan")),
        ("step_s", 0),
        ("step_s", -0.1),
        ("step_s", 5e-324),
        ("step_s", float("nan")),
        ("step_s", float("inf")),
        ("step_s", True),
        ("step_s", "0.02"),
        ("channels", ["a", "a"]),
        ("channels", ["a", 1]),
        ("channels", [["a"]]),
        ("channels", "ab"),
        ("actuators", [None]),
        ("name", 3),
        ("environment", []),
        ("url", "x"),
    ],
)
def test_a_wrong_task_is_refused_by_key(path, key, value):
    refused(save(path, header(task=TASK.to_header() | {key: value})), f"task.{key}")


def test_arrays_must_be_those_of_the_sizes(path):
    arrays = toy().arrays
    missing = {name: array for name, array in arrays.items() if name != "neuron.bias"}
    refused(save(path, header(), missing), "'neuron.bias' is missing")
    refused(save(path, header(), arrays | {"extra": np.zeros(1, np.float32)}), "'extra' is unknown")
    for wrong in (np.zeros((12,), np.float16), np.zeros((12,)), np.zeros(12, np.int32)):
        refused(save(path, header(), arrays | {"neuron.bias": wrong}), "'neuron.bias' is .*not F32")
    for shape in ((11,), (12, 1), ()):
        wrong = np.zeros(shape, np.float32)
        refused(save(path, header(), arrays | {"neuron.bias": wrong}), "'neuron.bias' has shape")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e7])
def test_weights_that_are_not_finite_or_absurd_are_refused(path, value):
    arrays = {name: array.copy() for name, array in toy().arrays.items()}
    arrays["head.0.weight"][1, 2] = value
    refused(save(path, header(), arrays), r"'head\.0\.weight' holds a value that is not finite")


def test_two_thousand_mutated_files_are_refused_or_are_models(path):
    """Bytes flipped, cut out, doubled and inserted; numbers in the header made huge."""
    write_model(path, toy(trained={"note": "x" * 40}))
    whole = path.read_bytes()
    end_of_header = 8 + int.from_bytes(whole[:8], "little")
    rng = np.random.default_rng(0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    models = 0
    for _ in range(2000):
        content = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            limit = end_of_header if rng.random() < 0.8 else len(content)
            at = int(rng.integers(0, min(limit, len(content))))
            match rng.integers(0, 4):
                case 0:
                    content[at] = rng.integers(0, 256)
                case 1:
                    del content[at : at + int(rng.integers(1, 9))]
                case 2:
                    content[at:at] = content[at : at + int(rng.integers(1, 30))]
                case 3:
                    content[at : at + 1] = rng.choice([b"9", b"99999999", b"-1", b"[", b"null"])
        path.write_bytes(content)
        try:
            models += read_model(path).parameter_count > 0
        except ModelError as error:
            assert str(error).startswith(str(path))
    assert models < 2000
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 50 * 1024


def test_mutated_sizes_are_refused_before_memory_is_taken(path):
    """Sizes that claim 65,536 of everything; the arrays in the file are small."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    huge = {name: 65_536 for name in ("actions", "neuron", "queries", "key")}
    refused(save(path, header(sizes=asdict(SIZES) | huge | {"head": [65_536]})), "has shape")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 * 1024


def test_a_model_is_read_with_no_more_memory_than_its_arrays(path):
    write_model(path, make_random_model(MlpSizes(channels=500, actions=2, head=[2000, 1000])))
    tracemalloc.start()
    model = read_model(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * model.parameter_count + 2**18


@pytest.mark.parametrize("offsets", [[0, 8], [4, 20], [16, 0], [-16, 0], [0, 2**70], [0], 5, None])
def test_arrays_that_do_not_lie_where_they_should_are_refused(path, offsets):
    write_model(path, toy())
    whole = path.read_bytes()
    end = 8 + int.from_bytes(whole[:8], "little")
    head = json.loads(whole[8:end])
    head["attention.key"]["data_offsets"] = offsets
    path.write_bytes(framed(json.dumps(head).encode(), tail=whole[end:]))
    refused(path, ".")


def test_what_the_header_says_is_known_without_the_arrays(path):
    write_model(path, toy())
    model = read_header(path, 2**16)
    assert model is not None and not model.arrays
    assert (model.sizes, model.task) == (SIZES, TASK)
    assert read_header(path, 100) is None, "too long to be parsed at once"
    os.truncate(path, path.stat().st_size - 4)
    with pytest.raises(ModelError, match="truncated"):
        read_header(path, 2**16)


def test_an_unsound_model_is_not_written(path):
    for wrong, reason in (
        (toy(arrays={}), "is missing"),
        (toy(task=Task(step_s=-1.0)), "task.step_s"),
        (toy(trained={"loss": float("nan")}), "."),
        (toy(trained={"array": np.zeros(1)}), "."),
        (toy(arrays=toy().arrays | {"neuron.bias": np.zeros(12)}), "not float32"),
    ):
        with pytest.raises(ModelError, match=reason):
            write_model(path, wrong)
    assert list(path.parent.iterdir()) == []


def test_what_could_not_be_read_is_not_written_over_a_good_file(path):
    write_model(path, toy())
    before = path.read_bytes()
    for wrong, reason in (
        (toy(trained={"note": "x" * 2**20}), "allowed are 524288"),
        (toy().copy_with_normalised_channel_sums(-1), "sizes.normalise"),
        (toy().copy_with_normalised_channel_sums(70_000), "sizes.normalise"),
        (replace(toy(), sizes=replace(SIZES, heads=3)), "heads"),
        (toy(kind="transformer"), "'transformer' is not one of"),
    ):
        with pytest.raises(ModelError, match=reason):
            write_model(path, wrong)
        assert path.read_bytes() == before


def test_a_model_of_as_many_patches_as_a_wiring_may_have_is_read_again(path):
    ids = tuple(f"patch_{number:05d}" for number in range(MAX_PATCHES))
    write_model(path, toy(task=replace(TASK, channels=ids)))
    assert read_model(path).task.channels == ids


def test_writing_is_atomic(path, monkeypatch):
    """A write that fails leaves the old file whole and nothing beside it."""
    write_model(path, toy(trained={"version": 1}))

    def fail(*_):
        raise OSError("disk full")

    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", fail)
        with pytest.raises(OSError, match="disk full"):
            write_model(path, toy(trained={"version": 2}))
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert read_model(path).trained == {"version": 1}
    write_model(path, toy(trained={"version": 2}))
    assert read_model(path).trained == {"version": 2}
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_arrays_in_any_memory_order_are_written_as_they_read(path):
    """Arrays in another memory order, or views, are written as they read."""
    arrays = {name: np.asfortranarray(array) for name, array in toy().arrays.items()}
    write_model(path, toy(arrays=arrays))
    for name, array in read_model(path).arrays.items():
        np.testing.assert_array_equal(array, arrays[name])
    assert isinstance(read_model(path), Model)
