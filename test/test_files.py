"""Files: what is no file is refused at once, and a full disk leaves nothing half written."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from an_control.policy import AttentionSizes, ModelError, read_model, write_model
from an_control.policy.random_model import make_random_model
from an_control.system.files import WriteError, replace_file_atomically, write_file
from an_control.wiring import WiringError, load_wiring

ROOM = 20_000
BIG = bytes(range(256)) * 200


@contextmanager
def little_room() -> Iterator[None]:
    """No file can grow beyond ROOM bytes here, as on a disk that fills."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def no_files(folder: Path) -> dict[str, Path]:
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(folder / "socket"))
    (folder / "link").symlink_to(folder / "pipe")
    names = ("pipe", "folder", "socket", "link")
    return {name: folder / name for name in names} | {"device": Path("/dev/zero")}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["pipe", "folder", "socket", "link", "device"])
def test_what_is_no_file_is_refused_at_once_and_named(tmp_path, kind):
    path = no_files(tmp_path)[kind]
    with pytest.raises(WiringError, match=str(path)):
        load_wiring(path)
    with pytest.raises(ModelError, match=str(path)):
        read_model(path)


@pytest.mark.timeout(120)
def test_a_run_folder_and_the_authors_weights_do_not_wait_for_a_pipe_either(tmp_path):
    from an_control.learning.import_authors import import_policy_of_authors
    from an_control.learning.runs.run_folder import RunError, RunFolder

    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(RunError, match=r"config\.json: not a regular file"):
        RunFolder(tmp_path, {})
    with pytest.raises(ModelError, match=r"config\.json: not a regular file"):
        import_policy_of_authors(tmp_path / "config.json", "ant_pi")


def write_big_model(path: Path) -> None:
    sizes = AttentionSizes(actions=2, neuron=64, queries=64, key=64, inputs=["value"], head=[64])
    write_model(path, make_random_model(sizes, seed=1))


def write_plot(path: Path) -> None:
    plots = pytest.importorskip(
        "an_control.learning.evaluation.plots", reason="needs the extra train"
    )
    figure = plots.Figure(figsize=(12, 9))
    figure.subplots().imshow(np.random.default_rng(0).random((300, 300)))
    plots.save_figures({path.stem: figure}, path.parent)


def write_markdown(path: Path) -> None:
    from an_control.learning.evaluation.comparison import write_markdown_tables

    write_markdown_tables(path, {"big": BIG.hex()})


def write_json(path: Path) -> None:
    from an_control.cli.common import write_json

    write_json(path, {"values": list(range(ROOM))})


WRITERS: dict[str, Callable[[Path], None]] = {
    "whole.txt": lambda path: write_file(path, BIG),
    "model.safetensors": write_big_model,
    "plot.png": write_plot,
    "table.md": write_markdown,
    "result.json": write_json,
}


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_is_named_and_leaves_what_was_there(tmp_path, name, there):
    path = tmp_path / name
    if there:
        path.write_text("<!-- table big -->\n<!-- end of table -->\n")
    before = path.read_bytes() if there else None
    with little_room(), pytest.raises((OSError, ValueError), match=f"{path}: File too large"):
        WRITERS[name](path)
    assert [one.name for one in tmp_path.iterdir()] == ([name] if there else [])
    assert before is None or path.read_bytes() == before


def test_a_device_is_written_to_and_not_replaced():
    with pytest.raises(WriteError, match="/dev/full: No space left on device"):
        write_file("/dev/full", "x")
    write_file("/dev/null", "x")
    assert not Path("/dev/null").is_file()


def test_a_link_stays_one_and_its_file_is_replaced(tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    write_file(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == "new"


def test_what_the_block_raises_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), replace_file_atomically(path) as beside:
        beside.write_text("new")
        raise KeyboardInterrupt
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_the_command_line_names_the_file_that_a_full_disk_refused(tmp_path):
    code = (
        "import sys\n"
        "from an_control.cli import main, models\n"
        "from an_control.system.files import write_file\n"
        "models.InfoCommand.run = lambda self: write_file('/dev/full', 'x')\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "info", "ant"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = "an-control info: /dev/full: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)


LONG = [1] * 100_000


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "x" * 100_000},
        {"kind": "attention_neuron", "sizes": {"head": LONG}},
        {"kind": "attention_neuron", "sizes": {"x" * 100_000: 1}},
        {"task": LONG},
        {"task": {"name": LONG}},
        {"forward": LONG},
    ],
)
def test_a_model_file_with_a_long_value_is_refused_in_a_short_message(tmp_path, change):
    import json

    import safetensors.numpy

    write_big_model(tmp_path / "good")
    content = (tmp_path / "good").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["an_control"])
    change = {
        **change,
        **({"sizes": header["sizes"] | change["sizes"]} if "sizes" in change else {}),
    }
    arrays = safetensors.numpy.load(content)
    metadata = {"an_control": json.dumps(header | change)}
    (tmp_path / "bad").write_bytes(safetensors.numpy.save(arrays, metadata=metadata))
    with pytest.raises(ModelError) as refused:
        read_model(tmp_path / "bad")
    assert len(str(refused.value)) < 600


def test_a_wiring_with_a_long_name_is_refused_in_a_short_message(tmp_path):
    path = tmp_path / "wiring.yaml"
    path.write_text(f"{'x' * 100_000}: 1\n")
    with pytest.raises(WiringError) as refused:
        load_wiring(path)
    assert len(str(refused.value)) < 600


@pytest.mark.parametrize("kind", ["pipe", "terminal"])
def test_a_line_to_a_pipe_that_nobody_reads_or_a_stopped_terminal_does_not_block(kind, tmp_path):
    program = (
        "import os, sys\n"
        "from an_control.system.files import make_standard_streams_non_blocking\n"
        "make_standard_streams_non_blocking()\n"
        "for _ in range(10_000):\n"
        "    try: os.write(2, b'x' * 100)\n"
        "    except BlockingIOError: open(sys.argv[1], 'w').write('lost'); break\n"
    )
    read, write = os.pipe() if kind == "pipe" else os.openpty()
    try:
        if kind == "terminal":
            termios.tcflow(write, termios.TCOOFF)
        command = [sys.executable, "-c", program, str(tmp_path / "said")]
        subprocess.run(command, stderr=write, check=True, timeout=120)
        assert os.get_blocking(write), "others that share the stream keep their mode"
    finally:
        os.close(read)
        os.close(write)
    assert (tmp_path / "said").read_text() == "lost"
