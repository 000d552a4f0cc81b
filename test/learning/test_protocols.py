"""Protocols are words, the same seed pairs them, and what is written says what was measured."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="needs the sim extra")
pytest.importorskip("pybullet", reason="needs the sim extra")

from an_control.cli import evaluate as evaluate_verb
from an_control.cli import main
from an_control.cli.disturbance import make_disturbance_options
from an_control.disturbance import DisturbanceSettings, Shuffle
from an_control.learning.evaluation.comparison import (
    compare_protocols,
    format_comparison_table,
    write_markdown_tables,
)
from an_control.learning.evaluation.evaluate import PlayedEpisode, play_episodes
from an_control.learning.rollout.evaluation_protocol import EvaluationProtocol
from an_control.load import load_policy, make_policy
from an_control.policy import write_model
from an_control.policy.random_model import make_random_model
from an_control_sim.envs.tasks import ANT_SIZES, ANT_TASK
from an_control_sim.gym.environments import find_environment_id, make_environment


@pytest.fixture(scope="module")
def ant():
    env = make_environment(find_environment_id("ant"), max_episode_steps=40)
    yield env
    env.close()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "ant.safetensors"
    write_model(path, make_random_model(ANT_SIZES, seed=3, gain=2.0, task=ANT_TASK))
    return path


def test_a_protocol_is_read_from_its_words():
    assert EvaluationProtocol.parse("none") == EvaluationProtocol(DisturbanceSettings())
    assert EvaluationProtocol.parse(
        "reset+50, zeroed, noise=5, noise-sd=0.1, copies=3, missing=0.25"
    ) == EvaluationProtocol(
        DisturbanceSettings(Shuffle(True, 50), noise_channels=5, missing=0.25, copies=3), "zeroed"
    )
    assert EvaluationProtocol.parse("100,announced").disturbance.announce
    late = EvaluationProtocol.parse("25,swap=2,jitter=0.02,until=500,monitor=match")
    assert late.disturbance == DisturbanceSettings(Shuffle(False, 25), swap=2, jitter=0.02)
    assert (
        str(EvaluationProtocol.parse("25,until=0,without=queries")) == "25,until=0,without=queries"
    )
    assert late.monitor == "match" and late.schedule == ((500, {"shuffle": Shuffle()}),)


def test_the_word_none_may_be_left_out_before_every_other_word():
    for words in ("zeroed", "kept", "zeroed,delay=1", "delay=1,zeroed", "monitor=off", "announced"):
        assert EvaluationProtocol.parse(words) == EvaluationProtocol.parse(f"none,{words}")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("often", "often"),
        ("", "''"),
        ("none,noise=x", "noise=x"),
        ("none,loud", "loud"),
        ("none,missing=2", "missing"),
        ("none,copies=-1", "copies"),
        ("none,", "''"),
        ("25,swap=1", "swap"),
        ("25,jitter=-1", "jitter"),
        ("25,until=late", "until=late"),
        ("25,monitor=always", "monitor=always"),
        ("25,without=head", "without=head"),
    ],
)
def test_words_that_are_none_are_named(text, named):
    with pytest.raises(ValueError, match=named):
        EvaluationProtocol.parse(text)


def test_steps_and_rewards_tell_when_it_was_rewired(ant):
    policy = make_policy(make_random_model(ANT_SIZES, seed=3))
    (one,) = play_episodes(
        policy, ant, ANT_TASK.channels, 1, 1, EvaluationProtocol.parse("reset+10")
    )
    assert one.rewired == tuple(range(10, one.steps, 10)) and one.steps > 10
    assert len(one.rewards) == one.steps and sum(one.rewards.tolist()) == one.total


def test_memory_is_kept_reset_or_zeroed_as_the_protocol_says(ant):
    policy = make_policy(make_random_model(ANT_SIZES, seed=3, gain=2.0))

    def keys(text):
        seen = []
        protocol = EvaluationProtocol.parse(text)
        play_episodes(
            policy,
            ant,
            ANT_TASK.channels,
            1,
            1,
            protocol,
            watch=lambda p, s: seen.append(p.keys),
        )
        return seen

    kept, reset, zeroed = keys("10"), keys("10,reset"), keys("10,zeroed")
    for step in range(10):
        assert (kept[step] == reset[step]).all()
    assert (kept[10] != reset[10]).any()
    assert (zeroed[0] == kept[0]).all() and (zeroed[1] != kept[1]).any()


def test_copies_repeat_contents_and_change_no_other_draw(ant):
    policy = make_policy(make_random_model(ANT_SIZES, seed=3))
    seen = []

    def look(policy, disturber):
        seen.append((policy.channel_order, disturber.signal_ids_by_slot))

    play_episodes(
        policy, ant, ANT_TASK.channels, 1, 1, EvaluationProtocol.parse("reset+5"), watch=look
    )
    plain, seen = [order for _, order in seen], []
    play_episodes(
        policy,
        ant,
        ANT_TASK.channels,
        1,
        1,
        EvaluationProtocol.parse("reset+5,copies=30"),
        watch=look,
    )
    assert len(seen[0][0]) == 58
    assert [order for _, order in seen][:6] == plain[:6]


def results(*totals):
    return [PlayedEpisode(total, 10, 0, False, None, 0.1) for total in totals]


def test_differences_are_of_the_same_episodes():
    rows = compare_protocols(
        {"none": results(100, 500), "100": results(100, 300)}, success_threshold=200.0
    )
    assert rows[1]["difference"] == {"mean": -100.0, "sd": 100.0, "same": 1}
    text = format_comparison_table(rows)
    assert "| `100` | 200 +- 100 | 100 | 200 | 300 | 50% | -100 +- 100 | 1 of 2 |" in text


def test_a_table_shows_standard_errors_of_its_means():
    rows = compare_protocols({"none": results(100, 200, 300), "100": results(1, 1, 1)})
    text = format_comparison_table(
        rows
    )  # sample standard deviation 100 over three episodes: 100 / sqrt(3)
    assert "| `none` | 200 +- 58 | 100 | 200 | 300 |" in text
    assert "| -199 +- 58 | 0 of 3 |" in text
    assert "| `none` | 500 +- ? |" in format_comparison_table(
        compare_protocols({"none": results(500.0)})
    )


def test_small_returns_keep_three_digits():
    text = format_comparison_table(
        compare_protocols({"none": results(0.51, 0.52, 0.53), "reset": results(0.4, 0.4, 0.4)})
    )
    assert "| `none` | 0.520 +- 0.006 | 0.510 | 0.520 | 0.530 |" in text
    assert "| `reset` | 0.400 +- 0.000 |" in text and "| -0.120 +- 0.006 |" in text
    assert "| `none` | -4.25 +- 0.25 |" in format_comparison_table(
        compare_protocols({"none": results(-4.0, -4.5)})
    )


def test_a_table_takes_its_place_in_a_page_and_no_other(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- table x -->\nold\n<!-- end of table -->\nb\n")
    write_markdown_tables(page, {"x": "new"})
    assert page.read_text() == "a\n<!-- table x -->\nnew\n<!-- end of table -->\nb\n"
    with pytest.raises(ValueError, match="table y"):
        write_markdown_tables(page, {"y": "new"})
    write_markdown_tables(tmp_path / "own.md", {"y": "new"})
    write_markdown_tables(tmp_path / "own.md", {"y": "newer"})
    assert "newer" in (tmp_path / "own.md").read_text()


def test_several_tables_make_a_page_that_takes_them_again_and_no_half_of_them(tmp_path):
    page = tmp_path / "page.md"
    write_markdown_tables(page, {"x": "one", "y": "two"})
    write_markdown_tables(page, {"y": "three"})
    assert "one" in page.read_text() and "three" in page.read_text()
    with pytest.raises(ValueError, match="no <!-- table z -->"):
        write_markdown_tables(page, {"x": "four", "z": "five"})
    assert "four" not in page.read_text()


def test_the_command_writes_table_json_and_pictures(model, tmp_path, capsys, monkeypatch):
    plots = pytest.importorskip("an_control.learning.evaluation.plots")
    monkeypatch.setattr(plots, "CLUSTER_POINTS", 200)
    written = tmp_path / "table.json"
    arguments = ["--episodes", "1", "--table", "none", "20", "20,announced"]
    arguments += ["--json", str(written), "--plots", str(tmp_path / "plots")]
    assert main(["evaluate", str(model), *arguments, "--markdown", str(tmp_path / "t.md")]) == 0
    rows = json.loads(written.read_text())["protocols"]
    assert [row["protocol"] for row in rows] == ["none", "20", "20,announced"]
    assert rows[2]["difference"]["same"] == 1
    assert "| `20,announced` |" in (tmp_path / "t.md").read_text()
    names = {path.name for path in (tmp_path / "plots").iterdir()}
    assert {"recovery.png", "attention_20.png", "keys_20_announced.png", "clusters_20.png"} <= names
    assert "same to the last bit" in capsys.readouterr().out


def test_what_is_lost_makes_a_curve_and_no_other_pictures(model, tmp_path):
    pytest.importorskip("matplotlib")
    arguments = [
        "--episodes",
        "1",
        "--table",
        "none",
        "none,missing=0.25",
        "--plots",
        str(tmp_path),
    ]
    assert main(["evaluate", str(model), *arguments]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["loss.png"]


def loss_of(returns, lost):
    """The legend and the points of each curve, of returns and shares by protocol."""
    from an_control.learning.evaluation.plots import plot_returns_by_missing_share

    runs = {name: results(one) for name, one in returns.items()}
    figure = plot_returns_by_missing_share(runs, dict(zip(runs, lost, strict=True)))
    assert figure is not None
    (axes,) = figure.axes
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    return {
        label: [tuple(point) for point in curve.lines[0].get_xydata().tolist()]
        for label, curve in zip(labels, axes.containers, strict=True)
    }


def test_a_curve_of_losses_without_a_whole_row_begins_with_the_first_one():
    pytest.importorskip("matplotlib")
    returns = {"none": 90.0, "none,missing=0.5": 60.0, "none,missing=0.5,monitor=off": 30.0}
    assert loss_of(returns, (0.0, 0.5, 0.5)) == {
        "channels in their usual order": [(0.0, 90.0), (50.0, 60.0)],
        "channels in their usual order, monitor off": [(0.0, 90.0), (50.0, 30.0)],
    }
    from an_control.learning.evaluation.plots import plot_returns_by_missing_share

    assert plot_returns_by_missing_share({"none": results(17.0)}, {"none": 0.0}) is None


def test_a_curve_of_losses_with_a_whole_row_begins_with_that():
    pytest.importorskip("matplotlib")
    returns = {"none": 90.0, "reset": 80.0, "none,missing=0.1": 60.0, "reset,missing=0.1": 50.0}
    assert loss_of(returns, (0.0, 0.0, 0.1, 0.1)) == {
        "channels in their usual order": [(0.0, 90.0), (10.0, 60.0)],
        "order unknown from the start": [(0.0, 80.0), (10.0, 50.0)],
    }


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        ("none,delay=1", "channels in their usual order, delay=1"),
        ("100", "channels moved every 100 steps"),
        ("reset+25,swap=2", "order unknown from the start, channels moved every 25 steps, swap=2"),
    ],
)
def test_a_legend_says_a_protocol_to_people_who_do_not_know_its_words(protocol, said):
    plots = pytest.importorskip("an_control.learning.evaluation.plots")
    assert plots.make_protocol_plot_label(protocol) == said


def test_a_page_without_the_tables_marks_is_bad_input(model, tmp_path, capsys):
    (tmp_path / "page.md").write_text("no marks\n")
    arguments = ["--episodes", "1", "--table", "none", "--markdown", str(tmp_path / "page.md")]
    assert main(["evaluate", str(model), *arguments]) == 2
    assert "<!-- table results -->" in capsys.readouterr().err


def test_a_recovery_curve_is_the_mean_reward_around_permutations():
    pytest.importorskip("matplotlib")
    from an_control.learning.evaluation.plots import (
        average_rewards_around_permutations,
        project_on_principal_axes,
    )

    rewards = np.array([1.0] * 10 + [0.0] * 3 + [1.0] * 7)
    one = PlayedEpisode(17.0, 20, 1, False, None, 0.1, rewards, (10,))
    offsets, means, count = average_rewards_around_permutations([one, one])
    assert count == 2 and offsets.tolist() == list(range(-10, 10))
    assert means.tolist() == rewards.tolist()
    keys = np.random.default_rng(0).normal(size=(5, 4, 3)) * [9.0, 1.0, 0.01]
    planar = project_on_principal_axes(keys)
    assert planar.shape == (5, 4, 2) and planar[..., 0].std() > planar[..., 1].std()


def test_the_task_is_the_models_own_where_none_is_given(model, tmp_path):
    assert load_policy(model).model.task.name == "ant"
    assert main(["evaluate", str(model), "--episodes", "1", "--memory", "zeroed", "--copies", "2",
                 "--json", str(tmp_path / "one.json")]) == 0  # fmt: skip
    one = json.loads((tmp_path / "one.json").read_text())
    assert (one["task"], one["memory"], one["copies"]) == ("ant", "zeroed", 2)
    assert {"mean", "sd", "success_share", "steps_per_s", "episodes"} <= set(one)


@pytest.mark.parametrize(
    "text", ["none", "reset+100", "25,announced,noise=3,noise-sd=0.1", "reset,copies=5,missing=0.2"]
)
def test_settings_say_the_words_that_make_them(text):
    settings = DisturbanceSettings.parse(text)
    assert str(settings) == text
    assert DisturbanceSettings.parse(str(settings)) == settings


def test_noise_has_the_same_deviation_everywhere_and_says_it():
    asked, meant = "reset,noise=5", DisturbanceSettings(Shuffle(True), noise_channels=5)
    assert EvaluationProtocol.parse(asked).disturbance == DisturbanceSettings.parse(asked) == meant
    options = evaluate_verb.EvaluateCommand(
        Path("m"), disturbance=make_disturbance_options(shuffle="reset", noise_channels=5)
    )
    (one,) = options._make_options().protocols
    assert one.disturbance == meant and str(one) == "reset,noise=5,noise-sd=0.1" == str(meant)


@pytest.mark.parametrize("text", ["100,until=500,monitor=off,zeroed", "none,background=marble"])
def test_a_protocol_says_the_words_that_make_it(text):
    assert str(EvaluationProtocol.parse(text)) == text


@pytest.mark.parametrize("text", ["reset,zeroed", "100,until=500", "reset,monitor=off"])
def test_training_takes_what_is_done_to_readings_alone(text):
    with pytest.raises(ValueError, match=f"'{text.split(',')[1]}' .allowed: announced"):
        DisturbanceSettings.parse(text)


@pytest.mark.parametrize("keys", [np.zeros((5, 3, 4)), np.arange(15.0).reshape(5, 3, 1)])
def test_keys_that_are_too_few_or_one_number_give_no_clusters(keys):
    plots = pytest.importorskip("an_control.learning.evaluation.plots")
    trace = plots.AttentionTrace(("a", "b", "c"))
    trace.keys = list(keys)
    assert plots.plot_key_clusters(trace) is None
