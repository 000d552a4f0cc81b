"""The compiled engine beside the plain one: equal results, compiled before the first tick."""

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest

import an_control
from an_control.load import make_policy
from an_control.policy import ModelError, write_model
from an_control.policy.random_model import make_random_model
from an_control_sim.envs.tasks import ANT_SIZES

AGREEMENT = 2e-6


@pytest.fixture
def model_file(tmp_path):
    path = tmp_path / "ant.safetensors"
    write_model(path, make_random_model(ANT_SIZES))
    return path


def test_the_engines_agree(model):
    """Over 100 ticks with channels coming and going, both fed with the same previous action."""
    pytest.importorskip("numba", reason="the compiled engine needs numba")
    policies = [make_policy(model, engine=engine, keep_ticks=4) for engine in ("numpy", "numba")]
    rng = np.random.default_rng(11)
    for _ in range(100):
        there = rng.permutation(20)[: rng.integers(12, 21)]
        values = rng.standard_normal(len(there))
        ids = tuple(f"channel_{i}" for i in there)
        plain, compiled = (policy.step_array(values, ids) for policy in policies)
        np.testing.assert_allclose(plain, compiled, rtol=0, atol=AGREEMENT)
        assert policies[0].channel_order == policies[1].channel_order
        for query in ("attention", "attention_message", "keys"):
            one, other = (getattr(policy, query) for policy in policies)
            np.testing.assert_allclose(one, other, rtol=5e-6, atol=5e-6)
        policies[0].previous_action = compiled


def test_the_compiled_engine_is_taken_where_numba_is_installed(model_file):
    expected = "numba" if importlib.util.find_spec("numba") else "numpy"
    assert an_control.load_policy(model_file).engine == expected
    assert an_control.load_policy(model_file, engine="numpy").engine == "numpy"


def test_where_numba_fails_policies_run_uncompiled_with_a_warning(model_file, tmp_path):
    """As after an upgrade of numpy that the installed numba does not know."""
    (tmp_path / "numba").mkdir()
    (tmp_path / "numba/__init__.py").write_text("raise ImportError('needs NumPy 2.3 or less')")
    program = (
        "import sys, an_control\n"
        f"print(an_control.load_policy({str(model_file)!r}, recovery=0.01).engine)\n"
        f"an_control.load_policy({str(model_file)!r}, engine='numba')\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", program],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        check=False,
    )
    assert done.stdout == "numpy\n"
    assert "policies are not compiled, numba fails: needs NumPy 2.3 or less" in done.stderr
    assert "ModelError" in done.stderr.splitlines()[-1]
    assert "engine: 'numba' cannot be imported" in done.stderr.splitlines()[-1]


def test_nothing_is_compiled_after_loading(model_file):
    """Whatever arrays a tick gets: also read-only and strided ones once had their own version."""
    pytest.importorskip("numba", reason="the compiled engine needs numba")
    from an_control.policy.numba_engine import _compute_tick_and_get_action, compute_action

    policy = an_control.load_policy(model_file, engine="numba")
    compiled = len(_compute_tick_and_get_action.signatures), len(compute_action.signatures)
    assert compiled[0] > 0
    read_only = np.ones(3, np.float32)
    read_only.flags.writeable = False
    for values in (
        np.ones(3),
        np.ones(3, np.float32),
        read_only,
        np.ones(6, np.float32)[::2],
        np.ones(3, np.int64),
        np.array([1, np.nan, 1e30]),
    ):
        for ids in (("a", "b", "c"), ["c", "a", "b"], ("a", "b", "d")):
            policy.step_array(values, ids)
    policy.step({"b": 1.0, "e": 2})
    policy.step({})
    policy.previous_action = np.zeros(8)
    policy.step_array(read_only, ("a", "b", "c"))
    policy.reset()
    policy.step_array(read_only, ("a", "b", "c"))
    assert (
        len(_compute_tick_and_get_action.signatures),
        len(compute_action.signatures),
    ) == compiled


def test_asking_for_numba_without_numba_says_how_to_get_it(model_file, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "numba" else found(name)
    )
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(ModelError, match=r"ant\.safetensors: engine: .*pip install numba"):
        an_control.load_policy(model_file, engine="numba")
    assert an_control.load_policy(model_file).engine == "numpy"


def test_an_engine_that_does_not_exist_is_refused(model_file):
    with pytest.raises(ModelError, match="engine: 'cuda' is not one of numpy, numba"):
        an_control.load_policy(model_file, engine="cuda")


@pytest.mark.parametrize("monitor", ["match", "reset", "always"])
def test_a_monitor_that_the_model_cannot_serve_is_refused(model_file, monitor):
    with pytest.raises(ModelError, match=rf"ant\.safetensors: monitor: '{monitor}'.*'off'"):
        an_control.load_policy(model_file, monitor=monitor, engine="numpy")
    assert an_control.load_policy(model_file, monitor="off", engine="numpy").engine == "numpy"


@pytest.mark.parametrize("width", [1, 8, 37])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_leaving_out_the_rows_of_units_that_are_zero_changes_no_bit(width, share):
    pytest.importorskip("numba", reason="the compiled engine needs numba")
    from an_control.policy.numba_engine import (
        add_sparse_vector_matrix_product,
        add_vector_matrix_product,
    )

    rng = np.random.default_rng(width)
    for count in (1, 7, 8, 64, 91):
        x = rng.standard_normal(count).astype(np.float32)
        x[rng.random(count) >= share] = 0.0
        rows = rng.standard_normal((count, width)).astype(np.float32)
        plain = rng.standard_normal(width).astype(np.float32)
        sparse = plain.copy()
        add_vector_matrix_product(plain, rows, x)
        add_sparse_vector_matrix_product(sparse, rows, x)
        assert plain.tobytes() == sparse.tobytes()


def test_a_unit_that_is_not_a_number_still_counts():
    pytest.importorskip("numba", reason="the compiled engine needs numba")
    from an_control.policy.numba_engine import add_sparse_vector_matrix_product

    out = np.zeros(2, np.float32)
    add_sparse_vector_matrix_product(
        out, np.ones((3, 2), np.float32), np.array([0, np.nan, 1], np.float32)
    )
    assert np.isnan(out).all()
