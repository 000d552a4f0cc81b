"""Tables of protocols: what they compare, and rows that are kept until a table is whole."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="needs the sim extra")

from an_control.cli import main
from an_control.learning.evaluation.comparison import (
    KeptResults,
    compare_protocols,
    write_markdown_tables,
)
from an_control.learning.evaluation.evaluate import ProtocolPlayer
from an_control.learning.evaluation.plots import plot_returns_by_missing_share
from an_control.learning.rollout.episode import PlayedEpisode
from an_control.policy import MlpSizes, write_model
from an_control.policy.random_model import make_random_model
from an_control.policy.task import Task
from an_control.system.interrupts import INTERRUPTED
from an_control.system.share import find_share_path

CARTPOLE = find_share_path("models/cartpole.safetensors")


def rewarded(reward: float, rewired: tuple[int, ...] = ()) -> list[PlayedEpisode]:
    rewards = np.full(1000, reward)
    return [PlayedEpisode(rewards.sum(), 1000, len(rewired), False, None, 0.1, rewards, rewired)]


def test_episodes_are_back_where_they_earn_again_what_episodes_without_moves_do():
    runs = {"none": rewarded(1.0), "100": rewarded(0.96, (100,)), "50": rewarded(0.9, (50,))}
    until = dict.fromkeys(runs, 300)
    assert [row["back"] for row in compare_protocols(runs, last_permutation_steps=until)] == [
        None,
        1.0,
        0.0,
    ]


def test_negative_rewards_are_back_too_where_they_are_as_good_as_without_moves():
    runs = {
        "none": rewarded(-1.0),
        "100": rewarded(-1.0, (100,)),
        "50": rewarded(-1.04, (50,)),
        "25": rewarded(-1.2, (25,)),
    }
    until = dict.fromkeys(runs, 300)
    back = [row["back"] for row in compare_protocols(runs, last_permutation_steps=until)]
    assert back == [None, 1.0, 1.0, 0.0]


def test_a_picture_shows_negative_returns():
    runs = {"none": rewarded(-0.2), "none,missing=0.25": rewarded(-0.6)}
    figure = plot_returns_by_missing_share(runs, {"none": 0.0, "none,missing=0.25": 0.25})
    low, high = figure.axes[0].get_ylim()
    assert low <= -600.0 and high > low


def test_nothing_is_back_beside_a_first_row_whose_signals_move():
    runs = {"100": rewarded(0.5, (100,)), "50": rewarded(0.9, (50,))}
    until = dict.fromkeys(runs, 300)
    assert [row["back"] for row in compare_protocols(runs, last_permutation_steps=until)] == [
        None,
        None,
    ]


def test_one_protocol_is_not_compared_with_itself(tmp_path, capsys):
    written = tmp_path / "one.json"
    arguments = ["--episodes", "2", "--monitor", "off", "--shuffle", "100", "--until", "300"]
    assert main(["evaluate", str(CARTPOLE), *arguments, "--json", str(written)]) == 0
    assert "usual reward" not in capsys.readouterr().out
    assert json.loads(written.read_text())["back"] is None


def test_the_page_compares_two_models_by_the_episodes_that_both_play(tmp_path, monkeypatch, capsys):
    page = Path(__file__).parents[2] / "docs/how-to/disturb.md"
    code, *_ = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.S | re.M)
    monkeypatch.chdir(tmp_path)
    for delay, name in (("0", "a.json"), ("1", "b.json")):
        options = ["--episodes", "4", "--shuffle", "none", "--delay", delay, "--json", name]
        assert main(["evaluate", str(CARTPOLE), "--monitor", "off", *options]) == 0
    capsys.readouterr()
    exec(code, {})
    apart, error = map(float, capsys.readouterr().out.split("+-"))
    table = ["--episodes", "4", "--table", "none", "delay=1", "--json", "table.json"]
    assert main(["evaluate", str(CARTPOLE), "--monitor", "off", *table]) == 0
    row = json.loads(Path("table.json").read_text())["protocols"][1]["difference"]
    assert (apart, error) == pytest.approx((row["mean"], row["sd"] / 3**0.5))


def test_the_first_row_has_the_rewards_that_a_row_with_a_last_move_is_compared_with(tmp_path):
    written = tmp_path / "table.json"
    arguments = ["--episodes", "1", "--monitor", "off", "--table", "none", "100,until=300"]
    assert main(["evaluate", str(CARTPOLE), *arguments, "--json", str(written)]) == 0
    none, stopped = json.loads(written.read_text())["protocols"]
    assert none["back"] is None and stopped["back"] is not None


def test_kept_rows_without_rewards_are_played_again_for_pictures(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="needs the train extra")
    play, played = ProtocolPlayer.play, []
    state, plots = ["--state", str(tmp_path / "rows")], ["--plots", str(tmp_path / "plots")]
    arguments = ["--episodes", "1", "--monitor", "off", "--table", "200", "none"]
    monkeypatch.setattr(ProtocolPlayer, "play", interrupted_after(play, 1, played))
    assert main(["evaluate", str(CARTPOLE), *arguments, *state]) == INTERRUPTED
    monkeypatch.setattr(ProtocolPlayer, "play", play)
    assert main(["evaluate", str(CARTPOLE), *arguments, *state, *plots]) == 0
    assert (tmp_path / "plots/recovery.png").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--missing", "0.6"], "--missing 0.6: --table takes it among a protocol's words"),
        (["--delay", "3"], "as in reset,delay=3"),
        (["--shuffle", "none"], "--shuffle none: "),
        (["--announce"], "--announce: "),
        (["--memory", "zeroed"], "--memory zeroed: "),
        (["--until", "5"], "--until 5: "),
    ],
)
def test_what_protocols_say_for_themselves_is_refused_beside_a_table(small, capsys, more, said):
    assert table_of(small, *more) == (2, [])
    assert said in capsys.readouterr().err


def test_a_tables_json_says_which_options_count_for_all_protocols(small):
    assert table_of(small, "--monitor", "off", "--recovery", "0.1")[0] == 0
    written = json.loads(small.with_suffix(".json").read_text())
    names = "monitor", "recovery", "normalise"
    assert [written[name] for name in names] == ["off", 0.1, False]


@pytest.fixture
def small(tmp_path):
    """A policy whose episodes are short."""
    path = tmp_path / "small.safetensors"
    task = Task.from_header(
        {"name": "CartPole-v1", "channels": [f"observation.{i}" for i in range(4)]}
    )
    write_model(path, make_random_model(MlpSizes(4, 2, [3]), task=task))
    return path


def table_of(model, *more):
    """The exit status of a table of three rows, and those that it has written, without times."""
    written = model.with_suffix(".json")
    written.unlink(missing_ok=True)
    table = ["--table", "none", "reset", "reset+5", "--episodes", "3", "--json", str(written)]
    status = main(["evaluate", str(model), *table, *more])
    rows = json.loads(written.read_text())["protocols"] if written.exists() else []
    return status, [[row[name] for name in ("protocol", "difference", "episodes")] for row in rows]


def interrupted_after(play, rows, played):
    """`Stage.play` until that many rows have been noted in `played`."""

    def counted(stage, protocol, *rest):
        if len(played) == rows:
            raise KeyboardInterrupt
        played.append(str(protocol))
        return play(stage, protocol, *rest)

    return counted


def test_a_table_that_was_stopped_plays_only_the_rows_that_it_lacks(tmp_path, small, monkeypatch):
    state, played, play = tmp_path / "rows", [], ProtocolPlayer.play
    whole = table_of(small)
    assert whole[0] == 0 and len(whole[1]) == 3
    monkeypatch.setattr(ProtocolPlayer, "play", interrupted_after(play, 2, played))
    assert table_of(small, "--state", str(state)) == (INTERRUPTED, [])
    assert played == ["none", "reset"]
    monkeypatch.setattr(ProtocolPlayer, "play", interrupted_after(play, 9, played))
    assert table_of(small, "--state", str(state)) == whole
    assert played == ["none", "reset", "reset+5"]
    assert not state.exists()


def test_kept_rows_that_somebody_else_deleted_cost_no_table(tmp_path):
    kept = KeptResults(tmp_path / "rows", {"seed": 1})
    kept.add_results("none", rewarded(1.0))
    (tmp_path / "rows").unlink()
    kept.delete_file()


def test_a_table_whose_end_is_not_marked_takes_no_text_up_to_the_end_of_the_next(tmp_path):
    page = tmp_path / "page.md"
    text = "<!-- table a -->\n\nWords.\n\n<!-- table b -->\nold\n<!-- end of table -->\n"
    page.write_text(text)
    with pytest.raises(ValueError, match=r"has no <!-- table a --> \.\.\. <!-- end of table -->"):
        write_markdown_tables(page, {"a": "new"})
    assert page.read_text() == text
    write_markdown_tables(page, {"b": "new"})
    assert page.read_text() == text.replace("old", "new")


def test_rows_of_another_table_are_refused(tmp_path, small, capsys, monkeypatch):
    state = tmp_path / "rows"
    monkeypatch.setattr(ProtocolPlayer, "play", interrupted_after(ProtocolPlayer.play, 1, []))
    assert table_of(small, "--state", str(state))[0] == INTERRUPTED
    capsys.readouterr()
    assert table_of(small, "--state", str(state), "--seed", "2") == (2, [])
    assert f"{state}: was made with seed 1, not 2" in capsys.readouterr().err
    state.write_text("notes of mine")
    assert table_of(small, "--state", str(state)) == (2, [])
    assert f"{state}: is not a state file of a table" in capsys.readouterr().err
    assert state.read_text() == "notes of mine"
    assert main(["evaluate", str(small), "--state", str(state)]) == 2
    assert f"--state {state}: only with --table" in capsys.readouterr().err
