# ruff: noqa: E402
"""Evaluation without ROS is repeatable and reports a distribution."""

import json

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium", reason="needs the sim extra")
pytest.importorskip("pybullet", reason="needs the sim extra")

from an_control.cli import main
from an_control.disturbance import DisturbanceSettings, Shuffle
from an_control.learning.api import EvaluateOptions, RunStoppedError, evaluate
from an_control.learning.evaluation.evaluate import (
    PlayedEpisode,
    play_episodes,
    summarise_episode_results,
)
from an_control.load import load_policy
from an_control.policy import MlpSizes, Model, write_model
from an_control.policy.random_model import make_random_model
from an_control.policy.task import Task
from an_control.system.share import find_share_path
from an_control_sim.gym.environments import describe_task, make_environment

ANT = "an_control_sim:an_control/Ant-v0"


@pytest.fixture
def still(tmp_path):
    """A policy that stands still on the ant, whatever it reads."""
    sizes = MlpSizes(channels=28, actions=8, head=[], output="clip")
    arrays = {
        name: np.zeros(shape, np.float32) for name, shape in sizes.list_array_shapes().items()
    }
    env = make_environment(ANT)
    path = tmp_path / "still.safetensors"
    write_model(path, Model("mlp", sizes, arrays, describe_task(env, "ant", ANT)))
    env.close()
    return path


class Double(gymnasium.Env):
    """Observes float64, as MuJoCo's environments do."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.full(3, 0.1), {}

    def step(self, action):
        return np.full(3, 0.2), 0.0, False, False, {}


def test_an_evaluation_is_stopped_after_an_episode_if_it_is_asked_to(tmp_path):
    path, reports = tmp_path / "m.safetensors", []
    task = Task("CartPole-v1", "CartPole-v1")
    write_model(path, make_random_model(MlpSizes(4, 2, [2]), task=task))

    def stop(progress):
        reports.append((progress.unit, progress.done))
        return False

    with pytest.raises(RunStoppedError):
        evaluate(EvaluateOptions(path, ("none",), episodes=3), stop)
    assert reports == [("episode", 1)]


@pytest.mark.parametrize("unit", ["episode", "row"])
def test_a_request_to_stop_after_the_last_episode_or_row_loses_no_result(unit, tmp_path):
    path = tmp_path / "m.safetensors"
    task = Task("CartPole-v1", "CartPole-v1")
    write_model(path, make_random_model(MlpSizes(4, 2, [2]), task=task))

    def stop(progress):
        return not (progress.unit == unit and progress.finished)

    result = evaluate(EvaluateOptions(path, ("none",), episodes=2), stop)
    assert [row["protocol"] for row in result.rows] == ["none"]
    with pytest.raises(RunStoppedError):
        evaluate(
            EvaluateOptions(path, ("none", "delay=1"), episodes=2), lambda one: unit != one.unit
        )


def test_observations_of_double_precision_come_as_policies_read_them():
    gymnasium.register("Double-v0", Double)
    env = make_environment("Double-v0")
    assert env.reset()[0].dtype == env.step(np.zeros(1))[0].dtype == np.float32
    assert env.observation_space.dtype == np.float32
    env.close()


def test_the_task_names_the_environments_channels():
    env = make_environment(ANT)
    task = describe_task(env, "ant", ANT)
    assert task.environment == "an_control/Ant-v0" and task.step_s == 0.0165
    assert task.channels[8] == "hip_1.position" and len(task.actuators) == 8
    env.close()


def test_an_environment_that_does_not_describe_itself_gets_numbers():
    env = make_environment("Pendulum-v1")
    task = describe_task(env, "mine", "Pendulum-v1")
    assert task.channels == ("observation.0", "observation.1", "observation.2")
    assert task.step_s == 0.05  # its dt; render_fps says 30
    env.close()


@pytest.mark.parametrize("environment", ["Nowhere-v0", "no_such_module:X-v0"])
def test_an_environment_that_cannot_be_learned_is_named(environment):
    with pytest.raises(ValueError, match=environment):
        make_environment(environment)


def test_the_same_seed_gives_the_same_returns(still):
    env = make_environment(ANT, max_episode_steps=30)
    how = DisturbanceSettings(shuffle=Shuffle.parse("reset+10"), noise_channels=2, missing=0.1)
    policy = load_policy(still)
    runs = []
    for _ in range(2):
        results = play_episodes(policy, env, policy.nominal_ids, 2, 7, how)
        runs.append([result.as_dict() for result in results])
    assert runs[0] == runs[1]
    assert runs[0][0]["return"] != runs[0][1]["return"]
    assert runs[0][0]["fell"] or runs[0][0]["shuffles"] == 3
    env.close()


def test_the_summary_is_a_distribution():
    results = [PlayedEpisode(total, 10, 1, total < 0, 2.0, 0.5) for total in (-1.0, 1.0, 3.0)]
    figures = summarise_episode_results(results, success_threshold=0.0)
    assert figures["mean"] == 1.0 and figures["min"] == -1.0 and figures["median"] == 1.0
    assert figures["success_share"] == pytest.approx(2 / 3) and figures["falls"] == 1
    assert figures["distance_m"] == 2.0 and figures["steps_per_s"] == pytest.approx(20)


def test_the_command_writes_what_it_printed(still, tmp_path, capsys):
    out = tmp_path / "result.json"
    assert main(["evaluate", str(still), "--episodes", "2", "--json", str(out)]) == 0
    written = json.loads(out.read_text())
    assert written["task"] == "ant" and len(written["episodes"]) == 2
    said = capsys.readouterr().out
    assert f"return    {written['mean']:.4g} +- " in said and "over 2 episodes" in said
    assert (
        f"ended     {written['falls']} of 2 episodes before their last step" in said
        and "None" not in said
    )


def test_of_one_protocol_the_command_says_what_became_of_the_robots_after_a_stop(capsys):
    model = str(find_share_path("models/ant.safetensors"))
    assert main(["evaluate", model, "--episodes", "1", "--stop", "0.1", "--seed", "1"]) == 0
    assert "stops     1 of 1 still up when the stop ended came 12 m or more" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize(("shuffle", "said"), [([], True), (["--shuffle", "none"], False)])
def test_it_is_said_that_a_model_which_needs_its_order_is_shuffled(tmp_path, capsys, shuffle, said):
    path = tmp_path / "ordered.safetensors"
    task = Task.from_header(
        {"name": "CartPole-v1", "channels": [f"observation.{i}" for i in range(4)]}
    )
    write_model(path, make_random_model(MlpSizes(4, 2, [3]), task=task))
    assert main(["evaluate", str(path), "--episodes", "1", *shuffle]) == 0
    assert ("needs its channels in order" in capsys.readouterr().err) == said


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--shuffle", "often"], "often"),
        (["--missing", "2"], "missing"),
        (["--swap", "99"], "swap: 99 (allowed: 0 to 28, the number of channels)"),
        (["--table", "25,swap=29"], "swap: 29 (allowed: 0 to 28"),
        (["--table", "none", "swap=2"], "none,swap=2: swap does nothing without shuffle"),
        (["--noise-sd", "3"], "reset,noise-sd=3: noise-sd does nothing without noise_channels"),
        (["--episodes", "0"], "episodes"),
        (["--task", "Nowhere-v0"], "Nowhere-v0"),
        (["--seed", "-1"], "seed"),
        (["--task", "Pendulum-v1"], "8 actions"),
    ],
)
def test_bad_input_ends_with_2_and_names_it(still, arguments, named, capsys):
    assert main(["evaluate", str(still), *arguments]) == 2
    assert named in capsys.readouterr().err


def test_a_robot_that_stands_still_is_pushed_where_that_is_asked_for(still, tmp_path):
    figures = tmp_path / "figures.json"
    arguments = ["evaluate", str(still), "--episodes", "2", "--json", str(figures)]
    means = []
    for recovery in ("0", "0.03"):
        assert main([*arguments, "--recovery", recovery, "--table", "none,start=rest"]) == 0
        (row,) = json.loads(figures.read_text())["protocols"]
        means.append(row["mean"])
    assert means[0] < -900.0 < means[1] - 20.0, "on the ground each of 1,000 steps costs 1"


def test_a_recovery_that_cannot_be_is_refused(still, capsys):
    assert main(["evaluate", str(still), "--recovery", "2"]) == 2
    assert "recovery: 2 is not between 0 and 1" in capsys.readouterr().err
