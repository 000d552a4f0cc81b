"""The verb ``an-control replay BAG``, which computes the commands of a recording again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from an_control.cli.common import InputError, ModelFile, OutputFile, require_packages, write_json
from an_control.record.layout import BagError
from an_control.view.process import PACKAGES

if TYPE_CHECKING:
    from an_control.record.comparison import Comparison
    from an_control.record.replay import SessionReplay
    from an_control.record.replayed_session import ReplaySummary
    from an_control.view.server import PageServer

WIDE = 120


@dataclass(frozen=True)
class ReplayCommand:
    """Compute the commands in a recording of a policy node again, and compare old and new ones.

    The node's own code gets the recorded messages at the recorded times, faster than real time.
    With the recorded model and wiring, on the same machine and with the same libraries, every
    command is equal to the last bit. With another model or wiring (--model, --wiring), a table
    shows where the commands differ. A policy that reads its previous command always reads the
    recorded one. Exit status 0: all commands are equal, or another model or wiring was given; 1:
    some differ; 2: bad input.
    """

    bag: tyro.conf.Positional[Path]
    """A folder that `record` has made, or one .mcap file of it."""
    model: ModelFile | None = None
    """A .safetensors model file to act instead of the recorded one."""
    wiring: Path | None = None
    """A wiring YAML instead of the recorded one."""
    plot: OutputFile | None = None
    """Draw the differences here, as .png, .pdf or .svg."""
    json: OutputFile | None = None
    """Also write the result here as JSON."""
    page: bool = False
    """Show the recording in the browser, on the page of `an-control view`, where it can be played
    and searched; prints the page's address. Ctrl-C stops it."""
    page_port: int = 8765
    """The page's port; 0 takes any that is free."""

    def run(self) -> int:
        """Replay the recording, print which commands differ and return the exit status."""
        require_packages("ros", "rclpy")
        require_packages("record", "mcap")
        if self.page:
            require_packages("view", *PACKAGES)
        if not 0 <= self.page_port <= 65535:
            raise InputError(f"--page-port {self.page_port}: must be from 0 to 65535")
        if self.plot is not None:
            if self.plot.suffix not in (".png", ".pdf", ".svg"):
                raise InputError(f"--plot {self.plot}: must end in .png, .pdf or .svg")
            require_packages("train", "matplotlib")
        from rclpy.serialization import deserialize_message

        from an_control.record.comparison import Comparison
        from an_control.record.reader import Bag
        from an_control.record.replay import SessionReplay

        comparison, begin_s = Comparison(), time.monotonic()
        try:
            bag = Bag(self.bag)
            with SessionReplay(
                bag, deserialize_message, model=self.model, wiring=self.wiring
            ) as replay:
                if self.page:
                    statuses: list[int] = []

                    def print_final_result() -> None:
                        """Print the result once the whole recording has been replayed."""
                        took_s = time.monotonic() - begin_s
                        statuses.append(
                            self._print_result_and_get_exit_status(
                                replay.summary, comparison, took_s
                            )
                        )

                    self._replay_on_page(replay, comparison, print_final_result)
                    return statuses[0] if statuses else 0
                for command in replay.replay_commands():
                    comparison.add_command(command)
        except BagError as error:
            raise InputError(str(error)) from error
        return self._print_result_and_get_exit_status(
            replay.summary, comparison, time.monotonic() - begin_s
        )

    def _replay_on_page(
        self, replay: SessionReplay, comparison: Comparison, report_end: Callable[[], None]
    ) -> None:
        """Replay the recording on the live page until the user stops it."""
        from an_control.view.main import serve_recording
        from an_control.view.recorded import RecordedFrames

        def print_page_address(server: PageServer) -> None:
            """Print the address of the page."""
            print(server.address, flush=True)

        frames = RecordedFrames(replay, comparison.add_command)
        try:
            asyncio.run(serve_recording(frames, self.page_port, print_page_address, report_end))
        except OSError as error:
            raise InputError(
                f"--page-port {self.page_port}: cannot listen there ({error.strerror or error})"
            ) from error

    def _print_result_and_get_exit_status(
        self, summary: ReplaySummary, comparison: Comparison, duration_s: float
    ) -> int:
        """Print the result of the replay and write the files that options ask for."""
        speed = summary.recorded_duration_s / duration_s if duration_s else 0.0
        print(
            f"{summary.ticks} ticks and {summary.commands} commands of"
            f" {summary.recorded_duration_s:.1f} s, replayed in"
            f" {duration_s:.1f} s: {speed:.1f} times real time"
        )
        changes = ", ".join(f"{count} {kind}" for kind, count in sorted(summary.events.items()))
        print(f"changes of state: {changes or 'none'}")
        for note in summary.notes:
            print(f"note: {note}")
        rows = comparison.summarise_differences_by_actuator(summary.actuators)
        first = summary.first
        if first is None:
            print("every command is equal to the recorded one to the last bit")
        else:
            count = f"{summary.different} of {summary.commands}"
            print(f"{count} commands differ, first at tick {first.tick}")
            _print_differences(rows)
        if self.plot is not None:
            comparison.plot_differences(self.plot, summary.actuators)
            print(f"wrote {self.plot}")
        write_json(
            self.json,
            {
                "bag": str(self.bag),
                "model": None if self.model is None else str(self.model),
                "wiring": None if self.wiring is None else str(self.wiring),
                "ticks": summary.ticks,
                "commands": summary.commands,
                "different": summary.different,
                "first_tick": None if first is None else first.tick,
                "recorded_s": summary.recorded_duration_s,
                "replay_s": duration_s,
                "events": dict(summary.events),
                "notes": summary.notes,
                "actuators": rows,
            },
        )
        other = self.model is not None or self.wiring is not None
        return 1 if first is not None and not other else 0


def _print_differences(rows: list[dict[str, Any]]) -> None:
    """Print a table of the differences between replayed and recorded commands."""
    table = Table(box=SIMPLE, title="recorded and replayed commands", title_justify="left")
    for name in ("actuator", "differ", "first at tick", "mean difference", "largest"):
        table.add_column(name, justify="left" if name == "actuator" else "right")
    for row in rows:
        first = "never" if row["first_tick"] < 0 else str(row["first_tick"])
        table.add_row(
            row["actuator"],
            f"{row['share']:.1%}",
            first,
            f"{row['mean']:.3g}",
            f"{row['largest']:.3g}",
        )
    console = Console()
    if not console.is_terminal:
        console.width = WIDE
    console.print(table)
