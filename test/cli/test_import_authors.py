"""`an-control import-authors` makes a sound model of the authors' weights, or says why not."""

import subprocess
import sys
import zipfile

import numpy as np
import pytest

from an_control.cli import main
from an_control.learning.import_authors import AUTHORS_KINDS, import_policy_of_authors
from an_control.load import load_policy
from an_control.policy import ModelError, read_model

PARAMETERS = {
    "cartpole_pi": 913,
    "ant_pi": 2504,
    "ant_mlp": 2248,
    "carracing_pi": 7212,
    "puzzle_pong": 1_687_726,
}
CHANNELS = {"cartpole_pi": 5, "ant_pi": 28, "ant_mlp": 28, "carracing_pi": 256, "puzzle_pong": 196}


@pytest.fixture
def npz(tmp_path):
    """A file of random parameters, as many as given."""

    def save(count, **arrays):
        path = tmp_path / "weights.npz"
        params = np.random.default_rng(0).standard_normal(count).astype(np.float32)
        np.savez(path, **(arrays or {"params": params}))
        return path

    return save


def imported(path, kind, out):
    return main(["import-authors", str(path), "--kind", kind, "--out", str(out)])


@pytest.mark.parametrize("kind", AUTHORS_KINDS)
def test_each_kind_is_imported(npz, tmp_path, capsys, kind):
    out = tmp_path / "model.safetensors"
    assert imported(npz(PARAMETERS[kind]), kind, out) == 0
    assert f"{out}: {kind}, {PARAMETERS[kind]} parameters" in capsys.readouterr().out
    policy = load_policy(out, engine="numpy")
    assert len(policy.nominal_ids) == CHANNELS[kind]
    patch = (4, 6, 6) if CHANNELS[kind] > 100 else ()
    readings = np.zeros((CHANNELS[kind], *patch), np.uint8 if patch else np.float64)
    action = policy.step_array(readings, policy.nominal_ids)
    assert action.shape == (len(policy.model.task.actuators),)


@pytest.mark.parametrize("kind", [kind for kind in AUTHORS_KINDS if kind != "puzzle_pong"])
def test_the_authors_own_weights_are_imported_by_a_process_of_its_own(shared, tmp_path, kind):
    out = tmp_path / "model.safetensors"
    weights = shared / "reference" / "official" / f"{kind}.npz"
    script = "import sys; from an_control.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", script, "import-authors", str(weights)]
    done = subprocess.run(
        [*command, "--kind", kind, "--out", str(out)], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert read_model(out).trained["parameters"] == PARAMETERS[kind]


@pytest.mark.parametrize("kind", AUTHORS_KINDS)
@pytest.mark.parametrize("difference", [-1, 1, -900])
def test_too_few_or_too_many_parameters_end_with_exit_2(npz, tmp_path, capsys, kind, difference):
    """So does a kind that is not the file's, since each has its own number."""
    out = tmp_path / "model.safetensors"
    path = npz(PARAMETERS[kind] + difference)
    assert imported(path, kind, out) == 2
    error = capsys.readouterr().err
    assert str(path) in error and "numbers" in error
    assert not out.exists()


def test_a_damaged_file_ends_with_exit_2(npz, tmp_path, capsys):
    """A damaged archive once ended in the zip reader's own error."""
    whole = npz(913).read_bytes()
    path = tmp_path / "damaged.npz"
    for length in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert imported(path, "cartpole_pi", tmp_path / "model.safetensors") == 2
        assert str(path) in capsys.readouterr().err
    rng = np.random.default_rng(0)
    for _ in range(300):
        content = bytearray(whole)
        for at in rng.integers(0, len(content), 3):
            content[at] = rng.integers(0, 256)
        path.write_bytes(content)
        try:
            import_policy_of_authors(path, "cartpole_pi")
        except ModelError as error:
            assert str(error).startswith(str(path))


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"weights": np.zeros(913, np.float32)}, "no array 'params'"),
        ({"params": np.zeros((913, 1), np.float32)}, "not a float vector"),
        ({"params": np.zeros(913, np.int64)}, "not a float vector"),
        ({"params": np.full(913, np.nan, np.float32)}, "not finite"),
        ({"params": np.array([{}] * 913, object)}, "pickle"),
    ],
)
def test_params_that_are_no_finite_vector_end_with_exit_2(npz, tmp_path, capsys, arrays, reason):
    path = npz(0, **arrays)
    assert imported(path, "cartpole_pi", tmp_path / "model.safetensors") == 2
    error = capsys.readouterr().err
    assert str(path) in error and reason in error


def test_an_archive_that_unpacks_to_too_much_is_refused_unread(tmp_path):
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("params.npy", bytes(90_000_000))
    with pytest.raises(ModelError, match="more than 10000000 numbers"):
        import_policy_of_authors(path, "ant_pi")


def test_missing_files_and_folders_end_with_exit_2(npz, tmp_path, capsys):
    assert imported(tmp_path / "none.npz", "ant_pi", tmp_path / "out.safetensors") == 2
    assert "none.npz" in capsys.readouterr().err
    out = tmp_path / "no" / "such" / "folder.safetensors"
    assert imported(npz(2504), "ant_pi", out) == 2
    assert f"--out {out}: there is no folder {out.parent}" in capsys.readouterr().err


def test_an_unknown_kind_ends_with_exit_2(npz, tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        imported(npz(913), "pong", tmp_path / "model.safetensors")
    assert end.value.code == 2
    assert "cartpole_pi" in capsys.readouterr().err
    with pytest.raises(ModelError, match="kind 'pong' is not one of cartpole_pi"):
        import_policy_of_authors(npz(913), "pong")
