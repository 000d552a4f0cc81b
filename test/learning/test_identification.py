"""An identification says how soon a policy knows its channels and how it does without each."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pybullet", reason="needs the sim extra")
pytest.importorskip("matplotlib", reason="needs the train extra")

from an_control.cli import main
from an_control.learning.evaluation.identification import (
    FrozenChannel,
    IdentifiedShares,
    format_frozen_channel_table,
    format_identification_table,
    measure_identified_channel_shares,
)
from an_control.learning.rollout.episode import PlayedEpisode
from an_control.load import load_policy, make_policy
from an_control.policy import AttentionSizes, write_model
from an_control.policy.random_model import make_random_model
from an_control.policy.task import Task
from an_control_sim.envs.tasks import ANT_SIZES
from an_control_sim.gym.environments import TASK_ENVIRONMENTS, make_environment

ANT = Path(__file__).parents[2] / "models" / "ant.safetensors"


@pytest.fixture(scope="module")
def env():
    env = make_environment(TASK_ENVIRONMENTS["ant"])
    yield env
    env.close()


def test_the_shipped_ant_knows_its_channels_soon_after_the_reset(env):
    policy = load_policy(ANT, monitor="off")
    found = measure_identified_channel_shares(policy, env, policy.nominal_ids, 2, 1, 500)
    assert found.first[0].mean() < 0.3 and found.first[100:].mean() > 0.95
    assert found.confusion.sum() > 0


def test_a_policy_without_softmax_attention_is_refused(env):
    policy = make_policy(make_random_model(ANT_SIZES))
    with pytest.raises(ValueError, match="softmax"):
        measure_identified_channel_shares(policy, env, policy.nominal_ids, 1, 1, 50)


def test_a_policy_behind_a_monitor_is_refused(env):
    policy = load_policy(ANT, monitor="match")
    with pytest.raises(ValueError, match="monitor"):
        measure_identified_channel_shares(policy, env, policy.nominal_ids, 1, 1, 50)


def test_a_held_channel_keeps_its_first_reading_and_the_others_move(env):
    held = FrozenChannel(env, 8)
    first, _ = held.reset(seed=1)
    later = [held.step(np.full(8, 0.5, np.float32))[0] for _ in range(20)]
    assert all(observation[8] == first[8] for observation in later)
    assert any(observation[9] != first[9] for observation in later)


def test_it_writes_its_picture_and_figures(tmp_path, monkeypatch):
    from an_control.learning.evaluation import identification

    monkeypatch.setattr(identification, "play_with_each_channel_frozen", lambda *_: {})
    figures = tmp_path / "figures.json"
    page = tmp_path / "page.md"
    arguments = ["--episodes", "1", "--plots", str(tmp_path), "--json", str(figures)]
    arguments += ["--markdown", str(page)]
    monkeypatch.setattr(identification, "format_frozen_channel_table", lambda _: "| frozen |")
    assert main(["evaluate", str(ANT), "--identification", *arguments]) == 0
    assert "<!-- table identification -->" in page.read_text()
    assert "<!-- table frozen -->\n| frozen |" in page.read_text()
    assert (tmp_path / "identification.png").stat().st_size > 1000
    assert len(json.loads(figures.read_text())["first"]) == 200


@pytest.mark.parametrize(("queries", "status"), [(5, 0), (40, 2)])
def test_a_model_that_names_no_channels_needs_a_query_for_each_of_the_environment(
    queries, status, tmp_path, capsys
):
    sizes = AttentionSizes(
        2, neuron=4, queries=queries, key=4, inputs=["value"], head=[5], attention="softmax"
    )
    model = tmp_path / "model.safetensors"
    write_model(model, make_random_model(sizes, task=Task()))
    arguments = ["--task", "CartPole-v1", "--episodes", "1"]
    assert main(["evaluate", str(model), "--identification", *arguments]) == status
    said = capsys.readouterr()
    assert ("one query per nominal channel" in said.err) == bool(status)
    assert ("| `observation.3` |" in said.out) == (not status)


def test_a_reshuffle_that_never_came_has_no_shares(tmp_path, monkeypatch, capsys):
    from an_control.learning.evaluation import identification

    monkeypatch.setattr(identification, "play_with_each_channel_frozen", lambda *_: {})
    figures = tmp_path / "figures.json"
    arguments = ["--episodes", "1", "--shuffle", "reset+1000", "--json", str(figures)]
    plots = ["--plots", str(tmp_path)]
    assert main(["evaluate", str(ANT), "--identification", *arguments, *plots]) == 0
    assert "| a reshuffle on the way | - | - |" in capsys.readouterr().out
    written = json.loads(figures.read_text())
    assert written["later"] == [None] * 1000 and all(0 <= one <= 1 for one in written["first"])


def test_steps_that_no_episode_reached_have_no_shares():
    share = np.array([[0.5, 1.0], [0.0, 0.0], [np.nan, np.nan]])
    found = IdentifiedShares(share, share, np.zeros((2, 3), np.int64))
    assert format_identification_table(found).splitlines()[2:] == [
        "| the reset | 75% | - |",
        "| a reshuffle on the way | 75% | - |",
    ]


def test_what_no_environment_measures_is_left_out_of_the_frozen_table():
    def row(*walked):
        results = [PlayedEpisode(10.0, 5, 0, False, one, 0.1) for one in walked]
        return format_frozen_channel_table({"x": results}).splitlines()[2]

    assert row(None, None) == "| `x` | 10 +- 0 | 10 |  |"
    assert row(1.0, 4.0) == "| `x` | 10 +- 0 | 10 | 2.5 |"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--noise-channels", "2"], "--noise-channels: not for --identification"),
        (["--table", "none"], "--table: not for --identification"),
        (["--recovery", "0.03"], "--recovery: not for --identification"),
        (["--shuffle", "100"], "--shuffle 100: --identification needs reset+K"),
        (
            ["--task", "Pendulum-v1"],
            "ant.safetensors: has 8 actions, but Pendulum-v1 has 1 actuato",
        ),
    ],
)
def test_an_option_that_it_cannot_take_ends_it_with_2(more, said, capsys):
    assert main(["evaluate", str(ANT), "--identification", *more]) == 2
    assert said in capsys.readouterr().err
