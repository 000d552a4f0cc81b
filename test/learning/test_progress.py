"""What a run shows: one line that fits the terminal, what is left, and how to continue."""

import os
import pty
import signal
import subprocess
import sys
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the train extra")

from an_control.cli import main
from an_control.cli.terminal import (
    FIGURES,
    PartBars,
    ProgressLine,
    RemainingTimeEstimate,
    RunAtTerminal,
    format_duration,
    is_output_terminal,
)
from an_control.cli.verbs import load_verb_class
from an_control.learning.api import pipeline
from an_control.learning.rollout.processes import _block_interrupts
from an_control.learning.runs.progress import RunProgress

BEGIN = RunProgress("begin", "round", 0, 4, minutes_left=8.0)
"""Of a run of 4 rounds, with 8 minutes at most."""


def step(done, **figures):
    return replace(BEGIN, event="step", done=done, figures={"round": done, **figures})


class Terminal:
    """Stands for standard output; `written` is what came."""

    def __init__(self) -> None:
        self.written = ""

    def write(self, text):
        self.written += text

    def flush(self): ...

    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


def test_before_the_first_round_is_over_the_line_says_how_many_there_are_and_how_long(capsys):
    ProgressLine(None).show_progress(BEGIN)
    assert capsys.readouterr().out == "round 1 of about 4, 8 min left\n"


def test_the_time_that_is_left_follows_the_pace_of_the_run(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("an_control.cli.terminal.time.monotonic", lambda: now[0])
    clock, later = RemainingTimeEstimate(BEGIN), replace(BEGIN, share=0.25)
    now[0] = 160.0
    assert clock.estimate_remaining_s(later) == 180.0
    assert clock.format_step_and_time_left(later) == "round 1 of about 4, 3 min left"


def test_a_line_is_as_wide_as_the_terminal_at_most_and_covers_the_last_one(terminal):
    shows = ProgressLine(None)
    with redirect_stdout(terminal):
        shows.show_progress(BEGIN)
        shows.show_progress(step(2, validation=1.0, note="x" * 100, **{"return": 1.0}))
        shows.show_progress(step(3, **{"return": 1.0}))
    first, second = terminal.written.split("\r")[2:]
    assert len(first) == len(second) == 59 and "\n" not in terminal.written


def test_a_note_stands_above_the_line(terminal):
    shows = ProgressLine(None)
    with redirect_stdout(terminal):
        shows.show_progress(BEGIN)
        shows.print_note("an episode failed")
    assert terminal.written.endswith("\nan episode failed\n")


def test_only_figures_that_are_explained_are_shown(capsys):
    shows = ProgressLine(None)
    shows.show_progress(BEGIN)
    shows.show_progress(step(1, identified=0.2057, validation=3.0, failed=0))
    assert capsys.readouterr().out.endswith("left  validation 3\n")


@pytest.mark.parametrize("verb", ["learn", "distill", "train", "train-teacher", "train-monitor"])
def test_help_explains_the_figures(verb):

    text = load_verb_class(verb).__doc__
    assert sum(about in text for about in FIGURES.values()) >= 1 and "remaining time" in text


@pytest.mark.parametrize(
    ("seconds", "text"), [(3.2, "3 s"), (99, "99 s"), (100, "2 min"), (7500, "2 h 05 min")]
)
def test_a_duration_is_said_in_words(seconds, text):
    assert format_duration(seconds) == text


def test_a_dumb_terminal_gets_lines(monkeypatch):
    """It got nothing until the end."""
    monkeypatch.setenv("TERM", "dumb")
    main_end, other_end = pty.openpty()
    monkeypatch.setattr(sys, "stdout", os.fdopen(other_end, "w"))
    assert not is_output_terminal()
    with PartBars(("student",)) as bars:
        bars.show_progress(RunProgress("begin", "part", part="student"))
        bars.show_progress(replace(BEGIN, part="student"))
    sys.stdout.flush()
    assert b"student 0%  round 1 of about 4, 8 min left" in os.read(main_end, 1000)
    sys.stdout.close()
    os.close(main_end)


def test_ctrl_c_early_in_learn_leaves_no_folder_and_the_command(tmp_path, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "train_teacher", interrupted)
    out = tmp_path / "run"
    assert main(["learn", "Pendulum-v1", "--out", str(out), "--smoke"]) == 130
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("stopped; to continue: an-control learn Pendulum-v1")
    assert not out.exists()


def test_a_worker_that_starts_does_not_answer_ctrl_c():
    """Each of them printed a traceback while it imported."""
    blocked = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))"
    told = []
    for context in (_block_interrupts(), nullcontext()):
        with context:
            told.append(subprocess.check_output([sys.executable, "-c", blocked], text=True).strip())
    assert told == ["True", "False"]


def test_a_signal_stops_a_run_after_its_step_and_interrupts_between_the_parts_of_learn(capsys):
    before = signal.getsignal(signal.SIGTERM)
    with RunAtTerminal(ProgressLine(None)) as terminal:
        assert terminal.report_progress(RunProgress("begin", "part", part="student"))
        assert signal.getsignal(signal.SIGTERM) == before
        assert terminal.report_progress(replace(BEGIN, folder=Path("run")))
        signal.raise_signal(signal.SIGTERM)
        assert not terminal.report_progress(step(1))
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        terminal.report_progress(replace(BEGIN, event="end", done=1))
        assert signal.getsignal(signal.SIGTERM) == before
    said = capsys.readouterr().out
    assert "stops after this round (Ctrl-C again: at once)" in said
    assert said.endswith("stopped after round 1 of 4; it is lost\n")
