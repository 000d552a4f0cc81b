"""The verb ``an-control export BAG``: writes a recording's readings and commands as a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from an_control.cli.common import InputError, OutputFile, WorkError, require_packages
from an_control.record.layout import BagError


@dataclass(frozen=True)
class ExportCommand:
    """Write a recording's readings and commands as a table, a row for each tick.

    The columns are time_ns, episode, reading.CHANNEL, wanted.ACTUATOR (what the policy asked for)
    and command.ACTUATOR (what went out last by then). What is missing is empty. Needs no ROS.
    """

    bag: tyro.conf.Positional[Path]
    """A folder that `record` has made, or one .mcap file of it."""
    csv: OutputFile | None = None
    """Write it here as CSV."""
    parquet: OutputFile | None = None
    """Write it here as Parquet."""

    def run(self) -> int:
        """Write the files, print what they hold and return the exit status."""
        if self.csv is None and self.parquet is None:
            raise InputError("give --csv FILE, --parquet FILE or both")
        require_packages("record", "mcap")
        if self.parquet is not None:
            require_packages("export", "pyarrow")
        from an_control.record.arrays import read_arrays, write_csv, write_parquet
        from an_control.record.reader import Bag

        try:
            bag = Bag(self.bag)
            arrays = read_arrays(bag)
        except BagError as error:
            raise InputError(str(error)) from error
        for note in bag.notes:
            print(f"note: {note}")
        episodes = int(arrays.episode[-1]) + 1
        print(
            f"{len(arrays.time_ns)} ticks of {episodes} episodes: {len(arrays.ids)} channels,"
            f" {len(arrays.actuators)} actuators"
        )
        for path, write in ((self.csv, write_csv), (self.parquet, write_parquet)):
            if path is not None:
                try:
                    write(path, arrays)
                except OSError as error:
                    raise WorkError(f"{path}: {error.strerror or error}") from error
                print(f"wrote {path}")
        return 0
