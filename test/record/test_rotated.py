"""A long recording whose oldest files have been deleted is used like any other."""

from pathlib import Path

import pytest
from rclpy.serialization import deserialize_message
from stand import WIRING, Stand

from an_control.commissioning.bag import survey_bag_topics
from an_control.record.arrays import read_arrays
from an_control.record.reader import Bag
from an_control.record.replay import SessionReplay


@pytest.fixture
def rotated(stand: Stand, tmp_path: Path) -> Bag:
    """The later files of a recording."""
    node = stand.start(record=str(tmp_path / "bags"), record_split_mb=0.01)
    for step in range(60):
        stand.step(step)
    writer = node._recorder._writer
    node.trigger_shutdown()
    writer._thread.join()
    (folder,) = (tmp_path / "bags").iterdir()
    first, *later = Bag(folder).files
    assert len(later) > 1
    first.unlink()
    (folder / "metadata.yaml").unlink()
    return Bag(folder)


def test_the_later_files_of_a_recording_replay_as_one_session(rotated: Bag) -> None:
    with SessionReplay(rotated, deserialize_message) as replay:
        ticks = [one.tick for one in replay.replay_commands()]
    assert ticks == sorted(ticks) and ticks[-1] == 60
    notes = replay.summary.notes
    assert any(note.startswith("begins in the middle of a session") for note in notes)
    assert "several sessions, one after the other" not in notes


def test_the_later_files_of_a_recording_hold_its_wiring(rotated: Bag) -> None:
    assert read_arrays(rotated).wiring == WIRING
    (command,) = survey_bag_topics(rotated, "", deserialize_message).command_messages
    assert command.topic == "commands"
