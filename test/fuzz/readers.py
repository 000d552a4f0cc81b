"""Coverage-guided fuzzing of the readers of untrusted files, with atheris: make fuzz.

    python test/fuzz/readers.py wiring|model [-max_total_time=60] [CORPUS ...]

Whatever the bytes are, a reader refuses them with its own error or returns something sound.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["an_control"]):
    from an_control.policy import ModelError, read_model
    from an_control.wiring import WiringError, load_wiring

PATH = Path(tempfile.mkdtemp()) / "fuzzed"


def wiring(data: bytes) -> None:
    PATH.write_bytes(data)
    with contextlib.suppress(WiringError):
        load_wiring(PATH)


def model(data: bytes) -> None:
    PATH.write_bytes(data)
    with contextlib.suppress(ModelError):
        read_model(PATH).check_arrays()


if __name__ == "__main__":
    target = {"wiring": wiring, "model": model}[sys.argv.pop(1)]
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()
