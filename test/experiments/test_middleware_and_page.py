"""The stress of the middleware and the costs of the live page: they run, and refuse nonsense."""

import pytest

pytest.importorskip("rclpy")

from experiments.join_and_leave import run as join_and_leave
from experiments.live_page import run as live_page


def test_nodes_join_and_leave_and_are_counted(capsys):
    assert join_and_leave.main(["--minutes", "0.15", "--processes", "1"]) == 0
    nodes, still = capsys.readouterr().out.split(" nodes, ")
    assert int(nodes) > 0 and still.startswith("0 of 2 processes hung")


def test_the_live_page_asks_what_to_do(capsys):
    assert live_page.main([]) == 2
    assert "python -m experiments live_page measure" in capsys.readouterr().err


def test_only_whole_episodes_count_for_the_return_beside_a_page():
    returns = live_page.EpisodeReturns()
    for episode, last in ((3, 10.0), (4, 20.0), (5, 30.0), (6, 50.0)):
        returns.add_finished_return({"episode": episode, "last_return": last})
    assert returns.summarise_returns() == {"episodes": 2, "return": 40.0, "standard error": 10.0}
