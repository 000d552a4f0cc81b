"""Episodes that fail cost a search neither its best model nor its end."""

import json
import pickle
from typing import NamedTuple

import numpy as np
import pytest

pytest.importorskip("cma", reason="needs the train extra")
pytest.importorskip("gymnasium", reason="needs the sim extra")

from an_control.cli import main
from an_control.disturbance import TRAINING_SEEDS
from an_control.learning.es.parametrisation import WholeModelForm
from an_control.learning.es.search import Search, SearchSettings
from an_control.learning.rollout import episode
from an_control.learning.rollout.engine import NO_DISTURBANCE, EpisodeSeeds, Outcomes
from an_control.learning.runs.card import average_returns_of_candidates, summarise_returns
from an_control.learning.runs.run_folder import EpisodeRecordings, RunError, RunFolder
from an_control.learning.runs.run_loop import RunLoop
from an_control.policy import MlpSizes, read_model
from an_control.policy.random_model import make_random_model
from an_control_sim.envs.tasks import CARTPOLE_TASK
from an_control_sim.gym.environments import find_environment_id


class Recorded(NamedTuple):
    """An episode that is recorded."""

    readings: np.ndarray
    number: int


class Failing:
    """An engine that returns 1, 2, 3 and so on, but NaN for some episodes of every policy."""

    def __init__(self, training=(), validation=()) -> None:
        self._training, self._validation = list(training), list(validation)

    def play(self, models, starts, disturbance=NO_DISTURBANCE) -> Outcomes:
        returns = np.tile(1.0 + np.arange(len(starts)), (len(models), 1))
        returns += np.arange(len(models))[:, None]
        training = starts[0].environment >= TRAINING_SEEDS[0]
        returns[:, self._training if training else self._validation] = np.nan
        return Outcomes(returns, np.ones(returns.shape, np.int64), "the motor is on fire")

    def close(self) -> None: ...


def search(folder, engine, **settings) -> RunLoop:
    numbers = {"generations": 6, "population": 4, "validate_every": 2, "validation_episodes": 4}
    learner = Search(
        CARTPOLE_TASK,
        WholeModelForm(MlpSizes(5, 1, [4])),
        engine,
        SearchSettings(**{**numbers, **settings}),
        seed=1,
    )
    return RunLoop(RunFolder(folder, learner.config), learner)


def test_small_returns_are_not_rounded_away():
    small = summarise_returns(np.array([0.5124, 0.5136]), None)
    assert (small["mean"], small["sd"]) == (0.513, 0.001)
    assert summarise_returns(np.array([-20.04, 0.0]), None)["mean"] == -10.0


def test_the_figures_of_episodes_of_which_some_failed_are_those_of_the_others():
    returns = np.random.default_rng(0).normal(5.0, 2.0, 500)
    some = np.insert(returns, [3, 70], np.nan)
    whole, found = summarise_returns(returns, 6.0), summarise_returns(some, 6.0)
    assert "failed" not in whole and found["failed"] == 2 and found["episodes"] == 502
    assert all(found[name] == whole[name] for name in ("mean", "sd", "deciles"))
    assert found["success_share"] == pytest.approx((returns > 6.0).sum() / 502, abs=1e-3)
    nothing = summarise_returns(np.full(3, np.nan), None)
    assert nothing == {"episodes": 3, "mean": None, "sd": None, "deciles": [], "failed": 3}


def test_a_validation_episode_that_always_fails_costs_no_model_and_no_end(tmp_path):
    """Every validation was NaN: none was the best, and no score was reached."""
    run = search(tmp_path, Failing(validation=[1]), score=2.6)
    run.run()
    assert run.done == 2 and run.is_finished
    assert run.metrics[-1]["validation"] == np.mean([1.0, 3.0, 4.0])
    assert run.metrics[-1]["validation_failed"] == 1
    assert read_model(run.model_path).trained["generations"] == 2


def test_a_validation_whose_episodes_all_failed_is_the_worst(tmp_path):
    how = {"score": -1e9, "starts": 2}
    run = search(tmp_path, Failing(validation=range(4)), **how)
    run.run()
    assert run.done == 6 and all("validation" not in line for line in run.metrics)
    assert run.metrics[-1]["validation_failed"] == 4
    assert read_model(run.model_path).trained["generations"] == 6, "the newest"
    longer = search(tmp_path, Failing(), generations=8, **how)
    longer.run()
    assert longer.metrics[-1]["validation"] == 2.5


def test_an_episode_that_fails_for_every_candidate_counts_for_none(tmp_path):
    run = search(tmp_path, Failing(training=[0]), rollouts=3)
    run.run()
    first = run.metrics[0]
    assert first["failed"] == 4 and (first["best"], first["mean"]) == (5.5, 4.0)


def test_a_run_some_of_whose_episodes_fail_ends_with_a_card_that_counts_them(
    tmp_path, broken, capsys
):
    """NaN is no JSON: the run could not be ended, however often it was asked for."""
    out, result = tmp_path / "run", tmp_path / "result.json"
    words = ["--generations", "2", "--popsize", "4", "--rollouts", "8", "--episodes", "4"]
    words += ["--form", "mlp", "--workers", "1", "--json", str(result)]
    assert main(["train", broken("Sometimes"), "--out", str(out), *words]) == 0
    (row,) = json.loads(result.read_text())["evaluations"]
    assert row["episodes"] == 20 and 0 < row["failed"] < 20 and np.isfinite(row["mean"])
    assert f"| 20, {row['failed']} failed |" in (out / "model.md").read_text()
    printed = capsys.readouterr().out
    assert f"{row['failed']} episodes failed" in printed and "validation failed" in printed
    assert read_model(out / "model.safetensors").trained["evaluations"] == [row]


def test_a_candidate_is_compared_in_the_episodes_that_it_has_played():
    returns = np.array([[1.0, 2.0, 9.0], [2.0, 3.0, np.nan], [np.nan, np.nan, np.nan]])
    means = average_returns_of_candidates(returns)
    assert means[1] > means[0] and np.isnan(means[2])
    whole = returns[:1]
    assert average_returns_of_candidates(whole).tolist() == whole.mean(axis=1).tolist()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut"])
def test_a_file_of_episodes_that_is_cut_is_named(tmp_path, content):
    recordings = EpisodeRecordings(tmp_path, Recorded)
    recordings.write_episodes(0, [Recorded(np.zeros((50, 3)), 1)])
    (tmp_path / "episodes_000.npz").write_bytes(content)
    with pytest.raises(RunError, match=r"episodes_000\.npz: "):
        recordings.read_episodes(0)


def test_an_environment_that_fails_is_closed(monkeypatch):
    opened, closed = [], []

    class Env:
        def __init__(self) -> None:
            opened.append(self)

        def close(self) -> None:
            closed.append(self)

    def fail(*how: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(episode, "make_environment", lambda *how: Env())
    monkeypatch.setattr(episode, "play_episode", fail)
    model = make_random_model(MlpSizes(5, 1, [4]), task=CARTPOLE_TASK)
    channels, starts = CARTPOLE_TASK.channels, [EpisodeSeeds(n, n, 0) for n in range(3)]
    episode.play_pickled_model("any", channels, pickle.dumps(model), starts, NO_DISTURBANCE)
    assert len(opened) == len(closed) >= 3


def test_an_episode_that_succeeds_at_its_second_try_is_not_said_to_be_left_out(monkeypatch):
    play, fails = episode.play_episode, iter([True])

    def fail_once(*how: object) -> episode.PlayedEpisode:
        if next(fails, False):
            raise RuntimeError("hiccup")
        return play(*how)

    monkeypatch.setattr(episode, "play_episode", fail_once)
    model = make_random_model(MlpSizes(5, 1, [4]), task=CARTPOLE_TASK)
    name, channels, starts = CARTPOLE_TASK.name, CARTPOLE_TASK.channels, [EpisodeSeeds(1, 1, 0)]
    played = episode.play_pickled_model(
        find_environment_id(name), channels, pickle.dumps(model), starts, NO_DISTURBANCE
    )
    assert np.isfinite(played.returns).all() and played.failure is None
