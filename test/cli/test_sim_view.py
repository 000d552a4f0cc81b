"""What a person sees of a simulation while it runs."""

from types import SimpleNamespace

from an_control.cli.sim import show_progress_line


def test_the_progress_line_counts_an_episodes_own_steps(capsys):
    """It said 1000/1000 at the end of every episode, whatever its length."""
    with show_progress_line(2) as report:
        for episode in range(2):
            report(SimpleNamespace(episode=episode, steps=150, return_=-3.0, finished=None))
            ended = SimpleNamespace(return_=-4.0, steps=200, distance_m=None, shuffles=0)
            report(SimpleNamespace(episode=episode, steps=200, return_=-4.0, finished=ended))
    shown = capsys.readouterr().out
    assert shown.count("in 200 steps") == 2 and "episode 2/2" in shown
    assert "step 200 return -4" in " ".join(shown.split()) and "1000" not in shown
