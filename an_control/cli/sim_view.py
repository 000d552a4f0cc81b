"""What a person sees of a simulation while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

USUAL_STEPS = 1000
"""Of an episode, until the first one has ended."""


@contextmanager
def progress(episodes: int) -> Iterator[Callable[[Any], None]]:
    """A progress line; gives the callback that `simulate` calls with its `Progress`."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("step {task.fields[steps]}"),
        TextColumn("return {task.fields[total_reward]:.0f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as line:
        bar = line.add_task("starting", total=episodes, steps=0, total_reward=0.0)
        usual = USUAL_STEPS

        def report(state: Any) -> None:
            nonlocal usual
            part = min(state.steps / usual, 1.0)
            if state.finished is not None:
                one, part = state.finished, 1.0
                usual = max(1, one.steps)
                distance = "" if one.distance_m is None else f", {one.distance_m:.1f} m"
                line.console.print(
                    f"episode {state.episode + 1}: return {one.return_:.0f} in {one.steps} steps"
                    f"{distance}, channels shuffled {one.shuffles}x"
                )
            line.update(
                bar,
                completed=state.episode + part,
                steps=state.steps,
                total_reward=state.return_,
                description=f"episode {state.episode + 1}/{episodes}",
            )

        yield report
