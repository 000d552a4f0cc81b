"""`an-control train-monitor` trains a model's monitor, and the model stays what it is."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("gymnasium", reason="needs the sim extra")

from an_control import load_policy
from an_control.cli import main
from an_control.learning.forward_model.episodes import EpisodeTrace, MiswiredDriver
from an_control.learning.forward_model.learner import ForwardModelLearner
from an_control.learning.forward_model.networks import ForwardModelSettings
from an_control.learning.runs.run_folder import EpisodeRecordings, RunFolder
from an_control.learning.runs.run_loop import RunLoop
from an_control.monitor.monitored_policy import MonitoredPolicy
from an_control.policy import read_model, write_model
from an_control.policy.random_model import make_random_model
from an_control.policy.sizes import MonitorValidation
from an_control.system.share import find_share_path
from an_control_sim.envs.tasks import ANT_SIZES, ANT_TASK
from an_control_sim.gym.environments import find_environment_id, make_environment

SHORT = ("--steps", "300", "--updates", "20", "--imputation-updates", "3")


@pytest.mark.parametrize("more", [[], ["--bag", "recording"], ["--validate"]])
def test_a_model_that_reads_image_patches_is_refused(capsys, more):
    model = find_share_path("models/car_racing.safetensors")
    assert main(["train-monitor", str(model), *more]) == 2
    assert f"{model}: reads image patches; a monitor reads channels" in capsys.readouterr().err
    with pytest.raises(ValueError, match="which this model does not have; allowed is 'off'"):
        load_policy(model, "match")


def test_a_model_can_be_watched_after_it_and_acts_as_before(tmp_path, capsys):
    model, course = tmp_path / "cartpole.safetensors", tmp_path / "course.json"
    write_model(model, read_model(find_share_path("models/cartpole.safetensors")))
    before = read_model(model)
    out = tmp_path / "watched.safetensors"
    arguments = ["train-monitor", str(model), "--out", str(out), "--json", str(course), *SHORT]
    assert main(arguments) == 0
    assert "learns impute" in capsys.readouterr().out
    assert [line["learns"] for line in json.loads(course.read_text())["course"]] == [
        "predict", "identity", "impute", "impute",
    ]  # fmt: skip
    after = read_model(out)
    assert after.forward.monitor == "match" and after.forward.binary == []
    assert after.task == before.task and after.trained["forward"] == {
        "steps": 300, "updates": 20, "imputation_updates": 3,
    }  # fmt: skip
    ours = ("forward.", "identity.", "imputation.")
    for name, array in before.arrays.items():
        assert name.startswith(ours) or array.tobytes() == after.arrays[name].tobytes()
    assert isinstance(load_policy(out, "match"), MonitoredPolicy)
    figures = json.loads(course.read_text())["validation"]
    assert figures == asdict(after.forward.validation) and figures["ticks"] >= 120
    taken = tmp_path / "taken.safetensors"
    assert main(["train-monitor", str(model), "--out", str(taken), "--take", str(out)]) == 0
    assert taken.read_bytes() == out.read_bytes()
    again = tmp_path / "again.safetensors"
    assert main(["train-monitor", str(model), "--out", str(again), *SHORT]) == 0
    same = read_model(again).arrays
    assert all(np.array_equal(array, same[name]) for name, array in after.arrays.items())


def test_a_monitor_that_is_there_can_be_validated_and_its_arrays_stay(tmp_path, capsys):
    model, out = find_share_path("models/cartpole.safetensors"), tmp_path / "validated.safetensors"
    arguments = ["train-monitor", str(model), "--validate", "--steps", "1000", "--out", str(out)]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    before, after = read_model(model), read_model(out)
    assert after.forward == replace(before.forward, validation=after.forward.validation)
    assert after.forward.validation.ticks >= 400 and str(after.forward.validation) in said
    assert all(array.tobytes() == after.arrays[n].tobytes() for n, array in before.arrays.items())
    again = tmp_path / "again.safetensors"
    assert main([*arguments[:-1], str(again)]) == 0
    assert again.read_bytes() == out.read_bytes()


def test_a_model_without_a_monitor_cannot_be_validated(tmp_path, capsys):
    path = tmp_path / "ant.safetensors"
    write_model(path, make_random_model(ANT_SIZES, task=ANT_TASK))
    assert main(["train-monitor", str(path), "--validate"]) == 2
    assert "--validate: has no forward model" in capsys.readouterr().err


def test_an_evaluation_says_why_the_monitor_is_off(tmp_path, capsys):
    path = tmp_path / "cartpole.safetensors"
    model = read_model(find_share_path("models/cartpole.safetensors"))
    failed = MonitorValidation(9.0, 24.0, slow=0, ticks=400, false_moves_hour=3.5, found=0.9)
    write_model(path, replace(model, forward=replace(model.forward, validation=failed)))
    evaluate = ["evaluate", str(path), "--episodes", "1", "--table", "none"]
    assert main(evaluate) == 0
    assert capsys.readouterr().err.count("the monitor is off: ") == 1
    assert main([*evaluate, "--monitor", "match"]) == 0
    assert "the monitor is off" not in capsys.readouterr().err


def test_a_run_that_was_stopped_anywhere_continues_to_the_same_bits(tmp_path):
    settings = ForwardModelSettings(
        hidden=(8,), steps=300, updates=1500, identity=8, identity_updates=10,
        imputation=8, imputation_updates=3, imputation_batch=4,
    )  # fmt: skip
    model = read_model(find_share_path("models/cartpole.safetensors"))

    def run(name, stop_after=None):
        env = make_environment(find_environment_id("cartpole"))
        learner = ForwardModelLearner(tmp_path / name, env, model, settings, seed=1)
        loop = RunLoop(RunFolder(tmp_path / name, learner.config), learner)
        loop.run(stop_after=stop_after)
        learner.close()
        return loop.make_model().arrays

    whole = run("whole")
    parts = [run("parts", stop) for stop in range(1, 6)][-1]
    assert all(array.tobytes() == parts[name].tobytes() for name, array in whole.items())


def test_it_learns_on_one_thread_whatever_was_set_before(tmp_path):
    """On a busy machine two threads of so small networks take ten times the processor time."""
    import torch

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        env = make_environment(find_environment_id("cartpole"))
        model = read_model(find_share_path("models/cartpole.safetensors"))
        settings = ForwardModelSettings(hidden=(8,), updates=1)
        ForwardModelLearner(tmp_path, env, model, settings, seed=1).close()
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_it_learns_from_episodes_under_the_faults_that_are_named(tmp_path):
    """A robot that stops gets the safe command; this, not the policy's, is what it learns from."""
    model = tmp_path / "ant.safetensors"
    write_model(model, make_random_model(ANT_SIZES, task=ANT_TASK))
    faults = ["--disturb", "stop=20", "--disturb-share", "1"]
    arguments = ["train-monitor", str(model), "--folder", str(tmp_path / "run"), *faults, *SHORT]
    assert main(arguments) == 0
    traces = EpisodeRecordings(tmp_path / "run", EpisodeTrace).read_episodes(0)
    still = [(trace.actions == 0.0).all(1) for trace in traces]
    assert all(ticks.any() and not ticks.all() for ticks in still)


def test_it_learns_from_robots_whose_wiring_is_wrong(tmp_path):
    """The policy is undisturbed in none of them, and what reached the motors is learned from."""
    policy = make_random_model(ANT_SIZES, task=ANT_TASK)
    write_model(tmp_path / "ant.safetensors", policy)
    traces = {}
    for share in ("0", "1"):
        arguments = ["--folder", str(tmp_path / share), "--miswired-share", share, *SHORT]
        assert main(["train-monitor", str(tmp_path / "ant.safetensors"), *arguments]) == 0
        write_model(tmp_path / "ant.safetensors", policy)
        traces[share] = EpisodeRecordings(tmp_path / share, EpisodeTrace).read_episodes(0)
    assert not all(trace.disturbed for trace in traces["0"])
    assert all(trace.disturbed for trace in traces["1"])
    driver = MiswiredDriver(policy, np.random.default_rng(1))
    readings = np.linspace(-1.0, 1.0, 28, dtype=np.float32)
    actions = []
    for _ in range(40):
        driver.start_episode(())
        actions.append(driver.act(readings))
    assert np.abs(actions).max() <= 1.0
    assert len({one.tobytes() for one in actions}) > 20, "other mistakes in each episode"


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (("--miswired-share", "2"), "--miswired-share 2"),
        (("--miswired-share", "0.1", "--validate"), "--miswired-share: not with --take"),
        (("--take", "ant", "--validate"), "--take: not with --validate"),
        (("--task", "cartpole"), "channels differ from those of task 'cartpole'"),
        (("--task", "nowhere"), "--task"),
        (("--disturb", "wind=2"), "--disturb: "),
        (("--disturb", "delay=1", "--disturb-share", "1.5"), "--disturb-share 1.5"),
        (("--steps", "0"), "--steps 0"),
        (("--imputation-updates", "-1"), "--imputation-updates -1"),
        (("--take", str(find_share_path("models/cartpole.safetensors"))), "--take"),
    ],
)
def test_what_cannot_be_learned_ends_with_exit_2(more, named, tmp_path, capsys):
    path = tmp_path / "ant.safetensors"
    write_model(path, make_random_model(ANT_SIZES))
    assert main(["train-monitor", str(path), *SHORT, *more]) == 2
    assert named in capsys.readouterr().err
