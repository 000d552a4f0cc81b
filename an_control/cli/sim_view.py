"""What a person sees of a simulation while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

STEPS = 1000


@contextmanager
def progress(episodes: int) -> Iterator[Callable[[Any], None]]:
    """A progress line; gives the callback that `simulate` calls with its `Progress`."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("return {task.fields[total_reward]:.0f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as line:
        bar = line.add_task("starting", total=episodes * STEPS, total_reward=0.0)

        def report(state: Any) -> None:
            done = state.episode * STEPS + min(state.steps, STEPS)
            if state.finished is not None:
                done = (state.episode + 1) * STEPS
                one = state.finished
                distance = "" if one.distance_m is None else f", {one.distance_m:.1f} m"
                line.console.print(
                    f"episode {state.episode + 1}: return {one.return_:.0f} in {one.steps} steps"
                    f"{distance}, channels shuffled {one.shuffles}x"
                )
            line.update(
                bar,
                completed=done,
                total_reward=state.return_,
                description=f"episode {state.episode + 1}/{episodes}",
            )

        yield report
