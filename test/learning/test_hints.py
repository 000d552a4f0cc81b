"""Hints tell neurons their channel in training, ever fewer of them, and leave nothing behind."""

import json

import numpy as np
import pytest

pytest.importorskip("cma", reason="needs the train extra")
pytest.importorskip("gymnasium", reason="needs the sim extra")

from an_control.cli import main
from an_control.disturbance import DisturbanceSettings, Shuffle
from an_control.learning.es.parametrisation import PaperForm
from an_control.learning.es.search import (
    HintedForm,
    Search,
    SearchSettings,
    compute_identity_hint_probability,
)
from an_control.learning.rollout.engine import NO_DISTURBANCE, draw_training_seeds
from an_control.learning.runs.run_folder import RunFolder
from an_control.learning.runs.run_loop import RunLoop
from an_control.policy import read_model
from an_control_sim.envs.tasks import CARTPOLE_TASK

FEW = ["--popsize", "4", "--rollouts", "2", "--episodes", "4", "--generations", "30"]


@pytest.fixture(params=[8, 12], ids=["the paper's width", "another width"])
def form(request):
    return HintedForm(PaperForm(neuron=request.param), 5)


@pytest.fixture
def starts():
    return draw_training_seeds(np.random.default_rng(3), 70)


def played(fused, form, starts, vectors, share, disturbance=NO_DISTURBANCE):
    """The returns with hints in this share of the episodes; None: without any."""
    models, rng = form.make_models(vectors, CARTPOLE_TASK, {}), np.random.default_rng(1)
    hints = None if share is None else form.draw_identity_hints(vectors, share, len(starts), rng)
    return fused.play(models, starts, disturbance, hints).returns


def random_policies(form, codes):
    vectors = form.typical_element_magnitudes * np.random.default_rng(2).standard_normal(
        (3, form.vector_size)
    )
    vectors[:, form.own.vector_size :] *= codes
    return vectors


def test_who_is_told_nothing_or_zeros_acts_as_without_hints(fused, form, starts):
    told, zeros = random_policies(form, codes=1.0), random_policies(form, codes=0.0)
    plain = played(fused, form, starts, told, share=None).tobytes()
    assert played(fused, form, starts, told, share=0.0).tobytes() == plain
    assert played(fused, form, starts, zeros, share=1.0).tobytes() == plain
    assert played(fused, form, starts, told, share=1.0).tobytes() != plain


def test_a_hint_goes_with_its_signal_when_signals_move(fused, form, starts):
    vectors = random_policies(form, codes=1.0)
    still = played(fused, form, starts, vectors, share=0.5)
    at_reset = DisturbanceSettings(shuffle=Shuffle(True))
    moved = played(fused, form, starts, vectors, 0.5, at_reset)
    assert moved.tobytes() == still.tobytes()


def test_a_code_for_all_channels_is_a_bias(fused, form, starts):
    """Compiled code has the gates in another order, and those with a sigmoid halved."""
    vectors = random_policies(form, codes=0.0)
    code = np.random.default_rng(4).standard_normal(form.free_parameter_shapes["codes"][1])
    biased, told = vectors.copy(), vectors.copy()
    told[:, form.own.vector_size :] = np.tile(code, 5)
    ends = np.cumsum([np.prod(shape) for shape in form.free_parameter_shapes.values()]).astype(int)
    bias = list(form.free_parameter_shapes).index("neuron.bias")
    first, output, new = np.split(code, [len(code) // 2, 3 * len(code) // 4])
    biased[:, ends[bias - 1] : ends[bias]] += np.concatenate([2 * first, new, 2 * output])
    one = played(fused, form, starts, told, share=1.0)
    other = played(fused, form, starts, biased, share=None)
    plain = played(fused, form, starts, vectors, share=None)
    apart = np.abs(one - other), np.abs(one - plain)
    assert np.median(apart[0]) < 1e-3 < np.median(apart[1])


def test_ever_fewer_are_told():
    shares = [compute_identity_hint_probability(progress) for progress in np.linspace(0.0, 1.0, 11)]
    assert shares[:3] == [1.0] * 3 and shares[6:] == [0.0] * 5
    assert sorted(shares, reverse=True) == shares and 0.4 < shares[4] < 0.6


def search(folder, engine):
    settings = SearchSettings(
        optimiser="pgpe",
        generations=20,
        population=8,
        rollouts=4,
        starts=2,
        validate_every=2,
        validation_episodes=4,
    )
    learner = Search(CARTPOLE_TASK, HintedForm(PaperForm(), 5), engine, settings, seed=1)
    return RunLoop(RunFolder(folder, learner.config), learner)


def test_a_search_with_hints_resumes_to_the_same_bits(tmp_path, fused):
    whole = search(tmp_path / "whole", fused)
    whole.run()
    for stop in (3, 8, 15, None):
        part = search(tmp_path / "part", fused)
        part.run(stop_after=stop)
    assert part.learner.distribution_mean.tobytes() == whole.learner.distribution_mean.tobytes()
    shares = [line["hints"] for line in whole.metrics]
    assert shares[0] == 1.0 and shares[-1] == 0.0
    hinted = [line for line in whole.metrics if "hinted" in line]
    assert hinted and all(line["hints"] > 0.0 for line in hinted)


def test_the_model_has_no_hints(tmp_path):
    out = tmp_path / "run"
    assert main(["train", "cartpole", "--out", str(out), "--hints", *FEW]) == 0
    assert read_model(out / "model.safetensors").sizes == PaperForm().sizes
    first = json.loads((out / "metrics.jsonl").read_text().splitlines()[0])
    assert first["hints"] == 1.0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--engine", "processes"], "--hints: needs compiled rollouts"),
        (["--form", "mlp"], "--hints: only for policies in the paper's attention form"),
        (["--stack", "3"], "--hints: needs neurons with an LSTM"),
    ],
)
def test_hints_that_cannot_be_given_are_refused(tmp_path, capsys, options, said):
    out = tmp_path / "run"
    assert main(["train", "cartpole", "--out", str(out), "--hints", *FEW, *options]) == 2
    assert said in capsys.readouterr().err and not out.exists()
