"""A long recording whose oldest files have been deleted is used like any other."""

from pathlib import Path

import pytest
from rclpy.serialization import deserialize_message
from stand import WIRING, Stand

from an_control.commissioning.bag import survey_bag_topics
from an_control.record.arrays import read_arrays
from an_control.record.layout import EVENTS, decode_event
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


def test_a_file_begins_with_the_state_at_its_first_message_whatever_waits_to_be_written(
    stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = stand.start(record=str(tmp_path / "bags"), record_split_mb=0.01)
    recorder, waiting = node._recorder, []
    writer, enqueue = recorder._writer, recorder._writer.enqueue
    monkeypatch.setattr(writer, "enqueue", lambda *batch: waiting.append(batch))
    for step in range(60):
        stand.step(step)
    node._set_estop("by topic")
    recorder.flush(even_if_few=True)
    monkeypatch.undo()
    for batch in waiting:
        enqueue(*batch)
    node.trigger_shutdown()
    writer._thread.join()
    (folder,) = (tmp_path / "bags").iterdir()
    first, *later, _ = Bag(folder).files
    assert later
    for file in (first, *later):
        entries = [one for one in Bag(file).iterate_entries() if one.topic.endswith(EVENTS)]
        repeated = [decode_event(one.data)["event"] for one in entries if one.sequence]
        assert "estop" not in repeated, f"{file} begins before the e-stop"
