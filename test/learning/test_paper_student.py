# ruff: noqa: E402
"""DAgger into the paper's form: the policy acts as its student, and options fit the form."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("numba", reason="needs the sim extra")

from an_control.cli import main
from an_control.learning.dagger.learner import Dagger
from an_control.learning.dagger.paper_student import PaperStudent
from an_control.learning.dagger.settings import StudentSizes, make_smoke_test_settings, read_recipe
from an_control.learning.dagger.streams import (
    DaggerStreams,
    NoisyTeacher,
    StreamSettings,
    record_episode,
)
from an_control.learning.runs.run_folder import RunFolder
from an_control.learning.runs.run_loop import RunLoop
from an_control.learning.teacher.teachers import Teacher
from an_control.learning.training_disturbances import TrainingDisturbance
from an_control.load import make_policy
from an_control.policy import MlpSizes, read_model, write_model
from an_control.policy.random_model import make_random_model
from an_control.policy.sizes import RecurrenceSizes
from an_control_sim.envs.tasks import CARTPOLE_TASK
from an_control_sim.gym.environments import TASK_ENVIRONMENTS

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"
SOFTMAX = str(EXPERIMENTS / "cartpole_softmax/recipe.yaml")
TEACHER = Teacher(lambda observation: np.tanh(observation[2:3] + observation[4:]))
PLAIN = StreamSettings({}, reshuffled=0.0, action_noise=0.0)
DISTURBED = replace(PLAIN, disturb={TrainingDisturbance("missing=0.2,copies=0..2,noise=0..2"): 1.0})


@pytest.fixture
def teacher(tmp_path):
    """The file of an MLP policy."""
    path = tmp_path / "teacher.safetensors"
    write_model(path, make_random_model(MlpSizes(5, 1, [8]), seed=2, task=CARTPOLE_TASK))
    return path


FORMS = {
    "plain": {},
    "stacked": {"stack": 3},
    "normalised": {"normalise": True},
    "stacked, normalised": {"stack": 3, "normalise": True},
    "learned queries": {"learned_queries": 7},
    "isab": {"encoder": "isab", "inducing": 3},
    "sab, learned queries, normalised": {
        "encoder": "sab",
        "heads": 4,
        "learned_queries": 5,
        "normalise": True,
    },
    "pma": {"pma": 3, "heads": 2},
    "isab, pma, lstm": {
        "encoder": "isab",
        "inducing": 3,
        "pma": 2,
        "recurrence": RecurrenceSizes("lstm", 6),
    },
    **{
        kind: {"recurrence": RecurrenceSizes(kind, units=8, layers=2, heads=2, window=6)}
        for kind in ("trxl", "trxl-i", "gtrxl")
    },
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("streams", [PLAIN, DISTURBED])
def test_the_policy_acts_as_the_student_that_it_was(cartpole, form, streams):
    torch.manual_seed(1)
    student = PaperStudent(5, 1, StudentSizes(neuron=8, paper=True, **form))
    policy = make_policy(student.make_model(CARTPOLE_TASK, {}))
    rng = np.random.default_rng(0)
    episode = record_episode(cartpole, TEACHER, NoisyTeacher(rng, 0.1), rng)
    batch = DaggerStreams([episode], 1, 50, streams, 1, rng).make_next_batch()
    with torch.no_grad():
        slots = batch.values.shape[2]
        expected = torch.tanh(student(batch, student.make_initial_state(1, slots))[0])[:, 0].numpy()
    there = batch.present[0, 0].numpy() > 0
    ids = [str(slot) for slot in np.flatnonzero(there)]
    for step in range(int(batch.counts.sum())):
        policy.previous_action = batch.previous[step, 0].numpy()
        action = policy.step_array(batch.values[step, 0].numpy()[there], ids)
        np.testing.assert_allclose(action, expected[step], atol=1e-5)


def test_a_run_that_was_stopped_continues_to_the_same_bits(tmp_path):
    settings = replace(make_smoke_test_settings(read_recipe("cartpole")), kept=4)

    def run(name, stop_after=None):
        learner = Dagger(
            tmp_path / name, "cartpole", TASK_ENVIRONMENTS["cartpole"], TEACHER, settings, 1
        )
        loop = RunLoop(RunFolder(tmp_path / name, learner.config), learner)
        loop.run(stop_after=stop_after)
        learner.close()
        return learner.make_model().arrays

    whole = run("whole")
    run("part", 1)
    part = run("part")
    assert all(array.tobytes() == part[name].tobytes() for name, array in whole.items())


def test_a_student_starts_as_a_model_of_its_form(people):
    student = PaperStudent(5, 1, StudentSizes(neuron=8))
    student.load_all_weights(people[0])
    arrays = student.make_model(CARTPOLE_TASK, {}).arrays
    product = "attention.queries", "attention.key"
    for name, array in people[0].arrays.items():
        if name not in product:
            np.testing.assert_allclose(arrays[name], array, atol=1e-6, err_msg=name)
    ours, theirs = (a[product[0]] @ a[product[1]] for a in (arrays, people[0].arrays))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def distill(teacher, out, *words):
    what = ["distill", "cartpole", "--teacher", str(teacher), "--out", str(out), "--smoke"]
    return main([*what, *words])


def test_distill_teaches_cartpole_the_papers_form(tmp_path, teacher):
    assert distill(teacher, tmp_path / "run") == 0
    sizes = read_model(tmp_path / "run/model.safetensors").sizes
    assert (sizes.queries, sizes.attention, sizes.neuron) == (16, "tanh", 8)


@pytest.mark.parametrize("recipe", ["cartpole", SOFTMAX], ids=["cartpole", "softmax"])
def test_distill_teaches_stacked_readings_normalised_and_disturbed(tmp_path, teacher, recipe):
    words = ["--recipe", recipe, "--stack", "3", "--neuron", "16", "--normalise"]
    disturbed = ["--disturb", "missing=0..0.25", "copies=0..2", "garbage=0.2,noise=1"]
    assert distill(teacher, tmp_path / "run", *words, *disturbed) == 0
    model = read_model(tmp_path / "run/model.safetensors")
    assert (model.sizes.stack, model.sizes.neuron, model.sizes.normalise) == (3, 16, 5)
    assert "neuron.hidden" not in model.arrays


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--reshuffled-chance", "1.5"], "--reshuffled-chance 1.5: must be from 0 to 1"),
        (
            ["--disturb", "gain=0.5"],
            "--disturb: 'gain=0.5' is not a disturbance for training (allowed: n",
        ),
        (["--disturb", "copies=1", "--disturb-share", "1.5"], "--disturb-share 1.5: must be from"),
        (["--products"], "--products"),
        (["--recipe", "x"], "--recipe 'x': must be one of ant, "),
    ],
)
def test_distill_names_the_option_that_does_not_fit(tmp_path, teacher, capsys, words, named):
    assert distill(teacher, tmp_path / "run", *words) == 2
    assert named in capsys.readouterr().err
    assert distill(teacher, tmp_path / "run") == 0, "a refused start left nothing behind"


def test_distill_without_a_teacher_says_how_to_get_one(tmp_path, capsys):
    assert main(["distill", "cartpole", "--out", str(tmp_path)]) == 2
    assert "an-control train-teacher cartpole --out RUN" in capsys.readouterr().err
