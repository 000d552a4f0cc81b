# ruff: noqa: E402
"""Whatever acts in an environment can teach a student: our MLP policies, SB3's, functions."""

import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("gymnasium", reason="needs the sim extra")

from an_control.cli import main
from an_control.learning.dagger.learner import Dagger
from an_control.learning.dagger.settings import DaggerSettings, make_smoke_test_settings
from an_control.learning.runs.run_folder import RunFolder
from an_control.learning.runs.run_loop import RunLoop
from an_control.learning.teacher.teachers import Teacher, read_teacher
from an_control.load import make_policy
from an_control.policy import MlpSizes, read_model, write_model
from an_control.policy.random_model import make_random_model
from an_control_sim.gym.environments import make_environment

PENDULUM = "Pendulum-v1"


@pytest.fixture
def pendulum():
    env = make_environment(PENDULUM)
    yield env
    env.close()


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A policy of stable-baselines3, hardly trained, and its file."""
    sb3 = pytest.importorskip("stable_baselines3", reason="needs the train extra")
    learner = sb3.PPO("MlpPolicy", PENDULUM, n_steps=16, batch_size=16, n_epochs=1, device="cpu")
    learner.learn(16)
    path = tmp_path_factory.mktemp("sb3") / "ppo.zip"
    learner.save(path)
    return learner, path


@pytest.mark.parametrize(("activation", "output"), [("tanh", "tanh"), ("relu", "clip")])
def test_an_ordered_policys_file_teaches_what_the_policy_does(
    tmp_path, pendulum, activation, output
):
    sizes = MlpSizes(3, 1, [6], activation, output)
    model = make_random_model(sizes, seed=3, gain=2.0)
    path = tmp_path / "teacher.safetensors"
    write_model(path, model)
    teacher, policy = read_teacher(str(path), pendulum), make_policy(model)
    assert (teacher.layers is not None) == (output == "clip")
    for observation in np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32):
        expected = policy.step_array(observation, tuple("abc"))
        np.testing.assert_allclose(teacher(observation), expected, atol=1e-6)


def test_a_policy_of_stable_baselines_teaches_in_our_bounds(learned, pendulum):
    """The pendulum's torque goes to 2; policies here act within 1."""
    learner, path = learned
    teacher = read_teacher(f"ppo:{path}", pendulum)
    for observation in np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32):
        action, _ = learner.predict(observation, deterministic=True)
        np.testing.assert_allclose(teacher(observation), action / 2.0, atol=1e-6)


def test_distill_takes_a_policy_of_stable_baselines(learned, tmp_path):
    out = tmp_path / "run"
    arguments = ["distill", PENDULUM, "--teacher", f"ppo:{learned[1]}", "--smoke"]
    assert main([*arguments, "--out", str(out)]) == 0
    model = read_model(out / "model.safetensors")
    assert model.task.environment == PENDULUM and model.kind == "attention_neuron"


def test_a_function_teaches(tmp_path):
    teacher = Teacher(lambda observation: 3.0 * observation[:1])
    assert teacher(np.array([-1.0, 0.0, 0.0], np.float32)) == -1.0
    learner = Dagger(
        tmp_path, PENDULUM, PENDULUM, teacher, make_smoke_test_settings(DaggerSettings()), 1
    )
    losses = [learner.step()["action_loss"] for _ in range(learner.total_step_calls)]
    learner.close()
    assert np.isfinite(losses).all()


def scripted(observation):
    """A teacher for the pendulum."""
    return -observation[2:]


def wide(observation):
    return np.zeros(4)


def hasty(observation):
    return np.zeros(1) / (1 // 0)


def test_a_function_is_named_by_its_module(pendulum):
    teacher = read_teacher(f"python:{__name__}:scripted", pendulum)
    observation = np.array([1.0, 0.0, 0.25], np.float32)
    assert teacher(observation).tolist() == [-0.25]


def test_a_function_of_a_module_in_the_current_directory_teaches(tmp_path, monkeypatch, pendulum):
    """`an-control` is a script elsewhere, so the module was not found."""
    (tmp_path / "teacher_of_mine.py").write_text("def act(seen):\n    return -seen[2:]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    teacher = read_teacher("python:teacher_of_mine:act", pendulum)
    assert teacher(np.array([1.0, 0.0, 0.25], np.float32)).tolist() == [-0.25]


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("no_such_module:act", "No module named 'no_such_module'"),
        (f"{__name__}:nothing", "has no attribute 'nothing'"),
        (f"{__name__}:wide", r"an action of shape \(4,\), but the environment takes \(1,\)"),
        (f"{__name__}:hasty", "ZeroDivisionError: "),
        ("", "Empty module name"),
    ],
)
def test_a_function_that_cannot_teach_this_is_named(pendulum, place, said):
    with pytest.raises(ValueError, match=f"teacher python:{place}.*{said}"):
        read_teacher(f"python:{place}", pendulum)


def test_a_teacher_is_known_by_its_numbers_not_by_its_file(tmp_path, learned, pendulum):
    """Except for a function, whose numbers nobody knows."""
    learner, path = learned
    copy = tmp_path / "copy.zip"
    learner.save(copy)
    copied, known = (read_teacher(f"ppo:{one}", pendulum).digest for one in (copy, path))
    assert copied == known
    digests = {known, read_teacher(f"python:{__name__}:scripted", pendulum).digest}
    for activation, output, seed in (
        ("relu", "clip", 1),
        ("relu", "clip", 2),
        ("relu", "tanh", 1),
        ("tanh", "clip", 1),
        ("tanh", "tanh", 1),
    ):
        file = tmp_path / "teacher.safetensors"
        write_model(file, make_random_model(MlpSizes(3, 1, [6], activation, output), seed=seed))
        digests.add(read_teacher(str(file), pendulum).digest)
    assert len(digests) == 7 and None in digests


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_student_learns_on_cuda_and_goes_on_there(tmp_path):
    teacher = Teacher(lambda observation: observation[:1])
    what = (
        tmp_path,
        PENDULUM,
        PENDULUM,
        teacher,
        make_smoke_test_settings(DaggerSettings()),
        1,
        "cuda",
    )
    for stop in (1, 2):
        learner = Dagger(*what)
        loop = RunLoop(RunFolder(tmp_path, learner.config), learner)
        loop.run(stop_after=stop)
        learner.close()
    assert read_model(loop.model_path).kind == "attention_neuron"


@pytest.mark.parametrize(
    ("teacher", "named"),
    [
        ("dqn:x.zip", "dqn"),
        ("teacher.pt", "teacher.pt"),
        ("ppo:nowhere.zip", "nowhere"),
        ("wide.safetensors", "5 readings"),
        ("student.safetensors", "an MLP policy"),
    ],
)
def test_a_teacher_that_cannot_teach_this_is_named(
    tmp_path, monkeypatch, capsys, teacher, named, people
):
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "wide.safetensors", make_random_model(MlpSizes(5, 1, [4]), seed=0))
    write_model(tmp_path / "student.safetensors", people[0])
    if teacher.startswith("ppo"):
        pytest.importorskip("stable_baselines3", reason="needs the train extra")
    assert main(["distill", PENDULUM, "--out", "run", "--teacher", teacher]) == 2
    assert named in capsys.readouterr().err


def test_a_task_without_a_teacher_of_its_own_says_so(tmp_path, capsys):
    assert main(["distill", PENDULUM, "--out", str(tmp_path / "run")]) == 2
    assert "--teacher" in capsys.readouterr().err
