"""The verb ``an-control export``, which writes a policy as ONNX, or a recording as a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from an_control.cli.common import InputError, OutputFile, WorkError, require_packages
from an_control.policy import read_model
from an_control.system.files import WriteError, write_file


@dataclass(frozen=True)
class ExportCommand:
    """Write a policy as an ONNX file, or a recording as a table.

    With --onnx, SOURCE is a model. The inputs of the ONNX network are the task's channels in their
    order and, if the policy has them, its previous action and its states; the outputs are the
    action and the new states. The file lacks attention, recovery and monitor, and channels can be
    neither added nor left out. Another order of the channels may change the action's last bits.

    With --csv or --parquet, SOURCE is a recording, and the table has a row for each tick (control
    step). Its columns are time_ns, episode (a number from 0; empty for ticks in which the policy
    node was inactive), reading.CHANNEL, wanted.ACTUATOR (the policy's command before limits) and
    command.ACTUATOR (the newest command that was sent). Missing values are empty. If the node was
    never active, its ticks get episode numbers too.
    """

    source: tyro.conf.Positional[Path]
    """A .safetensors model file; or a folder that `record` has made, or one .mcap file of it."""
    onnx: OutputFile | None = None
    """Write the model here as ONNX (.onnx)."""
    csv: OutputFile | None = None
    """Write the recording here as CSV."""
    parquet: OutputFile | None = None
    """Write the recording here as Parquet."""

    def run(self) -> int:
        """Write the files, print a summary of each and return the exit status."""
        tables = self.csv is not None or self.parquet is not None
        if (self.onnx is not None) == tables:
            raise InputError("give --onnx FILE for a model, or --csv FILE, --parquet FILE or both")
        if self.onnx is not None:
            self._export_model(self.onnx)
        else:
            self._export_recording()
        return 0

    def _export_model(self, path: Path) -> None:
        """Write the model as an ONNX file and print what the file holds."""
        require_packages("onnx", "onnx")
        from an_control.policy.onnx_export import convert_model_to_onnx_bytes
        from an_control.policy.onnx_file import SUFFIX, has_onnx_suffix

        if not has_onnx_suffix(path):
            raise InputError(f"--onnx {path}: must end in {SUFFIX}")
        model = read_model(self.source)
        try:
            write_file(path, convert_model_to_onnx_bytes(model))
        except WriteError as error:
            raise InputError(f"--onnx {error}") from error
        except ValueError as error:
            raise InputError(f"{self.source}: {error}") from error
        lost = "" if model.forward is None else "; its monitor stays behind"
        channels = len(model.task.channels)
        print(f"{path}: {channels} channels, {model.sizes.actions} actions{lost}")

    def _export_recording(self) -> None:
        """Write the recording as CSV, Parquet or both, and print what the files hold."""
        require_packages("record", "mcap")
        if self.parquet is not None:
            require_packages("export", "pyarrow")
        from an_control.record.arrays import read_arrays, write_csv, write_parquet
        from an_control.record.layout import BagError
        from an_control.record.reader import Bag

        try:
            bag = Bag(self.source)
            arrays = read_arrays(bag)
        except BagError as error:
            raise InputError(str(error)) from error
        for note in bag.notes:
            print(f"note: {note}")
        episodes, inactive = int(arrays.episode.max()) + 1, int((arrays.episode < 0).sum())
        print(
            f"{len(arrays.time_ns)} ticks of {episodes} episodes: {len(arrays.ids)} channels,"
            f" {len(arrays.actuators)} actuators"
            + (f"; {inactive} ticks while the node was inactive" if inactive else "")
        )
        for path, write in ((self.csv, write_csv), (self.parquet, write_parquet)):
            if path is not None:
                try:
                    write(path, arrays)
                except OSError as error:
                    raise WorkError(f"{path}: {error.strerror or error}") from error
                print(f"wrote {path}")
