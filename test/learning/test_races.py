"""Random starts race, the episodes follow the noise, and what has stalled starts over."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("cma", reason="needs the train extra")

from an_control.learning.es.optimisers import Pgpe
from an_control.learning.es.parametrisation import PaperForm, WholeModelForm
from an_control.learning.es.search import EpisodeCount, Race, Search, SearchSettings, StallDetector
from an_control.learning.rollout.engine import Outcomes
from an_control.learning.runs.run_folder import RunFolder
from an_control.learning.runs.run_loop import RunLoop
from an_control.policy import MlpSizes
from an_control.policy.task import Task
from an_control_sim.envs.tasks import CARTPOLE_TASK


@given(count=st.integers(2, 40), generations=st.integers(200, 2000))
def test_the_best_of_a_race_is_left_when_its_share_of_the_run_is_over(count, generations):
    race, turns = Race(count, 0.0, 0.2), np.zeros(count, int)
    left = list(range(count))
    for generation in range(generations):
        if race.is_over:
            break
        turns[left[race.turn]] += 1
        if race.pass_turn_and_check_elimination_due((generation + 1) / generations):
            left = [left[place] for place in race.keep_better_half([float(one) for one in left])]
    assert left == [count - 1]
    assert generation <= 0.2 * generations + count * np.log2(count) + count
    assert turns[-1] == turns.max() and turns[0] == turns.min() > 0


def test_noise_asks_for_more_episodes_and_clear_ranks_for_fewer():
    rng, count = np.random.default_rng(0), EpisodeCount(4, 32)
    skill, seen = rng.normal(size=(64, 1)), set()
    for _ in range(40):
        count.adapt_count_to_return_noise(skill + rng.normal(0.0, 4.0, (64, count.current)))
        seen.add(count.current)
    assert count.current in (16, 32) and seen <= {4, 8, 16, 32}, "noise of 4 needs 16 for a half"
    for _ in range(60):
        count.adapt_count_to_return_noise(skill + rng.normal(0.0, 0.1, (64, count.current)))
    assert count.current == 4


def test_how_hard_an_episode_is_for_all_is_no_noise():
    rng, count = np.random.default_rng(0), EpisodeCount(4, 32)
    skill = rng.normal(size=(64, 1))
    for _ in range(40):
        count.adapt_count_to_return_noise(skill + 100.0 * rng.normal(size=(1, count.current)))
    assert count.current == 4


def test_candidates_that_failed_or_are_equal_change_no_episode_count():
    count = EpisodeCount(4, 8)
    for _ in range(20):
        count.adapt_count_to_return_noise(np.full((8, 4), np.nan))
        count.adapt_count_to_return_noise(np.ones((8, 4)))
    assert count.current == 4


@pytest.mark.parametrize(
    ("sigma", "validations", "returns", "said"),
    [
        (1e-5, [1.0], [1.0, 2.0], "sigma 1e-05 is below 0.0001"),
        (0.1, [1.0], [3.0, 3.0], "all candidates return the same"),
        (0.1, [1.0] * 21, [1.0, 2.0], "no better validation in 20"),
        (0.1, list(range(60)), [1.0, 2.0], None),
    ],
)
def test_a_search_has_stalled_by_sigma_by_equal_returns_or_by_validation(
    sigma, validations, returns, said
):
    stall, found = StallDetector(0.1), None
    for count, validation in enumerate(validations):
        for _ in range(10):
            stall.count_generation_if_returns_equal(np.array(returns)[:, None] + np.zeros(3))
        found = stall.record_validation_and_explain_stall(
            sigma, validation, 0.1, count / len(validations)
        )
    assert found is None if said is None else found.startswith(said)


def test_a_generation_in_which_no_candidate_finished_every_episode_is_not_one_of_equal_returns():
    stall, nan = StallDetector(0.1), np.nan
    for _ in range(30):
        stall.count_generation_if_returns_equal(np.array([[1.0, nan], [nan, 1.0]]))
    assert stall.record_validation_and_explain_stall(0.1, 1.0, 0.0, 0.1) is None


def test_a_search_has_a_fifth_of_the_run_to_find_a_better_validation():
    stall = StallDetector(0.1)
    found = [
        stall.record_validation_and_explain_stall(0.1, 1.0, 0.1, progress=0.005 * count)
        for count in range(100)
    ]
    first = next(count for count, why in enumerate(found) if why is not None)
    assert 0.2 <= 0.005 * first < 0.22


def test_a_contender_whose_validation_failed_is_the_last():
    assert Race(4, 0.0, 0.2).keep_better_half([np.nan, 1.0, 5.0, 3.0]) == [2, 3]
    assert Race(4, 0.0, 0.2).keep_better_half([1.0, 5.0, np.nan, 3.0]) == [1, 3]
    stall = StallDetector(0.1)
    for at in range(100):
        found = stall.record_validation_and_explain_stall(0.1, np.nan if at else 1.0, 0.0, at / 100)
    assert found is not None and "no better validation" in found


class Hills:
    """Returns are high where a policy's numbers are near 2 or, less high, near -2."""

    def play(self, models, starts, disturbance):
        x = np.array([model.arrays["head.0.weight"].ravel()[0] for model in models])
        height = np.maximum(10.0 - (x - 2.0) ** 2, 5.0 - (x + 2.0) ** 2)
        returns = height[:, None] + np.zeros(len(starts))
        return Outcomes(returns, np.ones(returns.shape, np.int64))

    def close(self):
        pass


def search(folder, **settings):
    form = WholeModelForm(MlpSizes(1, 1, [1]))
    settings = {
        "optimiser": "cma", "generations": 400, "population": 8, "rollouts": 2, "sigma": 0.05,
        "validation_episodes": 2, **settings,
    }  # fmt: skip
    learner = Search(CARTPOLE_TASK, form, Hills(), SearchSettings(**settings), seed=1)
    return RunLoop(RunFolder(folder, learner.config), learner)


def test_of_starts_that_race_the_one_that_gets_furthest_continues(tmp_path):
    run = search(tmp_path, starts=8, race=0.5)
    run.run()
    racing = [line["starts"] for line in run.metrics]
    assert racing[0] == 8 and sorted(set(racing), reverse=True) == [8, 4, 2, 1]
    assert max(line.get("validation", 0.0) for line in run.metrics) > 9.99


def test_a_search_that_has_stalled_says_so_and_races_against_new_starts(tmp_path):
    run = search(tmp_path, starts=2, race=0.1, generations=900)
    run.run()
    (first, *_) = [line for line in run.metrics if "note" in line]
    assert first["note"].startswith("stalled ") and "new starts" in first["note"]
    later = [line["starts"] for line in run.metrics if line["generation"] > first["generation"]]
    assert later[0] == 2
    validations = [line["validation"] for line in run.metrics if "validation" in line]
    assert max(validations) > 9.99, "the best one stays in the race, or a new one is better"


def test_a_search_ends_where_its_score_is_reached(tmp_path):
    run = search(tmp_path, score=9.0, validate_every=1)
    run.run()
    *before, last = [line["validation"] for line in run.metrics if "validation" in line]
    assert last >= 9.0 > max(before) and run.is_finished and run.done < 400


@pytest.mark.parametrize("stop", [3, 30, 120])
def test_a_race_that_was_stopped_continues_to_the_same_bits(tmp_path, stop):
    whole = search(tmp_path / "whole", starts=4, generations=150)
    whole.run()
    search(tmp_path / "part", starts=4, generations=150).run(stop_after=stop)
    part = search(tmp_path / "part", starts=4, generations=150)
    part.run()
    assert part.learner.distribution_mean.tobytes() == whole.learner.distribution_mean.tobytes()


@pytest.mark.parametrize("first", [1, 5, 13])
def test_a_run_that_ended_during_its_race_continues(tmp_path, first):
    search(tmp_path, starts=8, generations=first).run()
    longer = search(tmp_path, starts=8, generations=400)
    longer.run()
    assert longer.done == 400 and longer.learner._race.is_over


def test_a_longer_run_never_learns_at_a_higher_rate(tmp_path, monkeypatch):
    told, tell = [], Pgpe.tell

    def watched(self, fitness, progress):
        told.append(progress)
        tell(self, fitness, progress)

    monkeypatch.setattr(Pgpe, "tell", watched)
    how = {"optimiser": "pgpe", "starts": 2, "race": 0.1, "sigma": 1e-9}
    search(tmp_path, generations=300, **how).run()
    before = search(tmp_path, generations=300, **how)
    assert before.learner._begun > 0.1, "it has stalled, and begun anew"
    search(tmp_path, generations=3000, **how).run(stop_after=400)
    assert min(told) >= 0.0 and max(told) <= 1.0


def test_a_run_of_so_many_minutes_ends_when_they_are_over(tmp_path, monkeypatch):
    now = iter(range(10**6))
    monkeypatch.setattr("time.perf_counter", lambda: float(next(now)))
    run = search(tmp_path, minutes=5.0)
    run.run()
    assert run.learner.progress == 1.0 and 10 < run.done < 300
    assert "validation" in run.metrics[-1]


def test_a_random_start_is_as_large_as_is_usual_for_each_layer():
    form = PaperForm()
    scales = form.typical_element_magnitudes
    assert scales.shape == (form.vector_size,)
    model = form.make_model(scales, Task(), {})
    assert np.allclose(model.arrays["neuron.hidden"], 8**-0.5)
    assert np.allclose(model.arrays["neuron.bias"], 0.1)
