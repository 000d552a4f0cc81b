"""The black box: what happened before the robot stopped unasked."""

import os
import time
from pathlib import Path

import pytest
from rclpy.parameter import Parameter
from rclpy.serialization import deserialize_message, serialize_message
from stand import WIRING, Stand, tiny_model

from an_control.control.controller import Controller
from an_control.record import black_box, notes, recorder
from an_control.record.layout import COMMAND, GATE_TOPIC, Limits
from an_control.record.reader import Bag
from an_control.record.replay import SessionReplay


class Lines(list[str]):
    """What was logged to the console."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        super().__init__()
        self._capfd = capfd

    def naming(self, word: str) -> list[str]:
        self.extend(self._capfd.readouterr().err.splitlines())
        return [one for one in self if word in one]


def boxes(folder: Path) -> list[Path]:
    return sorted(folder.glob("black_box_policy_*")) if folder.exists() else []


def test_an_e_stop_writes_the_black_box_and_names_it(
    stand: Stand, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "boxes"
    stand.start(black_box=str(folder))
    for step in range(20):
        stand.step(step)
    stand.node._set_estop("by service")
    (line,) = Lines(capfd).naming("e-stop by service")
    stand.node.trigger_shutdown()
    (box,) = boxes(folder)
    assert line.endswith(f"; the last 30 s are in {box}")
    with SessionReplay(Bag(box), deserialize_message) as replay:
        commands = list(replay.replay_commands())
    assert replay.summary.ticks == 20
    assert replay.summary.different == 0
    assert replay.summary.events["estop"] == 1
    assert replay.summary.notes == []
    assert len(commands) >= 22  # the watchdog asserts the safe one meanwhile


def test_a_failed_tick_writes_the_black_box(
    stand: Stand, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    node = stand.start(black_box=str(tmp_path / "boxes"))
    stand.step(0)
    monkeypatch.setattr(
        node._loop.controller.acting, "set_previous_action_and_swap_if_ready", lambda *_: 1 / 0
    )
    stand.send(1)
    stand.until(lambda: not node._loop.active, "deactivated")
    node.trigger_shutdown()
    (box,) = boxes(tmp_path / "boxes")
    assert str(box) in Lines(capfd).naming("tick failed")[0]
    events = [one for one in Bag(box).iterate_entries() if one.topic.endswith("record/events")]
    assert any(b"ZeroDivisionError" in one.data for one in events)


def test_a_watchdog_that_trips_writes_the_black_box(stand: Stand, tmp_path: Path) -> None:
    node = stand.start(black_box=str(tmp_path / "boxes"), mode="rate", watchdog_s=0.05)
    stand.until(lambda: node._loop._guard.watchdog.begun or not stand.send(0), "a command")
    trips = node._loop._guard.watchdog.trips
    while node._loop._guard.watchdog.trips == trips:
        time.sleep(0.02)  # nobody spins
    node.trigger_shutdown()
    assert len(boxes(tmp_path / "boxes")) == 1


def test_the_black_box_forgets_what_is_old_but_not_what_it_amounts_to(
    stand: Stand, tmp_path: Path
) -> None:
    node = stand.start(black_box=str(tmp_path / "boxes"), black_box_s=0.3)
    step = 0
    until_s = time.monotonic() + 0.7
    while time.monotonic() < until_s or step < 40:
        stand.step(step)
        step += 1
    node._recorder.flush(even_if_few=True)
    assert sum(len(batch.notes) for batch in node._recorder._black_box._batches) < 9 * step
    node._set_estop("by service")
    node.trigger_shutdown()
    (box,) = boxes(tmp_path / "boxes")
    with SessionReplay(Bag(box), deserialize_message) as replay:
        list(replay.replay_commands())
    assert 0 < replay.summary.ticks < step
    assert "begins in the middle of a session" in replay.summary.notes[0]


@pytest.mark.parametrize("topic", [GATE_TOPIC, COMMAND])
def test_a_black_box_that_begins_in_the_middle_of_a_tick_is_replayed_from_the_next_one(
    stand: Stand, tmp_path: Path, topic: str
) -> None:
    node = stand.start(black_box=str(tmp_path / "boxes"), black_box_s=0.3)
    for step in range(40):
        stand.step(step)
        time.sleep(0.01)
    stand.step(40)
    node._recorder.flush(even_if_few=True)
    box = node._recorder._black_box._batches
    kinds = notes.NUMBERS, notes.STATE
    for number, batch in enumerate(box):
        begin = [n for n, one in enumerate(batch.notes) if one[0] in kinds and one[1] == topic]
        if begin:
            box[number] = batch._replace(notes=batch.notes[begin[0] :])
            break
        box[number] = batch._replace(notes=())
    node._set_estop("by service")
    node.trigger_shutdown()
    (path,) = boxes(tmp_path / "boxes")
    with SessionReplay(Bag(path), deserialize_message) as replay:
        list(replay.replay_commands())
    assert 0 < replay.summary.ticks < 41
    assert "begins in the middle of a session" in replay.summary.notes[0]


def test_the_black_box_stays_within_its_bounds(
    stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(black_box, "MAX_BYTES", 20_000)
    node = stand.start(black_box=str(tmp_path / "boxes"))
    for step in range(40):
        stand.step(step)
        assert node._recorder._black_box._bytes <= 20_000


def test_the_black_box_forgets_in_simulated_time_too(stand: Stand, tmp_path: Path) -> None:
    node = stand.start()
    options = recorder.RecordOptions(None, Limits(), tmp_path, black_box_s=1.0)
    simulated = recorder.NodeRecorder(
        options, "/robot", node._loop.controller, {}, serialize_message, lambda: 0, 0, log=print
    )
    for tick in range(100):  # ten seconds after the simulator's start
        simulated.record_tick(tick * 100_000_000, None, sends_command=False)
        simulated.flush(even_if_few=True)
    assert len(simulated._black_box._batches) == 11
    simulated.close()


def test_what_happens_while_notes_enter_the_black_box_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = recorder.RecordOptions(None, Limits(), tmp_path, black_box_s=1.0)
    (tmp_path / "wiring.yaml").write_text(WIRING)
    model = tiny_model(tmp_path / "model.safetensors")
    controller = Controller(str(tmp_path / "wiring.yaml"), str(model), "numpy")
    one = recorder.NodeRecorder(
        options, "/robot", controller, {}, serialize_message, lambda: 1, 0, log=print
    )
    box = one._black_box
    move = box.move_queued_notes_into_box

    def move_and_note(queue) -> None:
        move(queue)
        one.record_event("estop", reason="of another thread")

    with monkeypatch.context() as patch:
        patch.setattr(box, "move_queued_notes_into_box", move_and_note)
        one.flush(even_if_few=True)
    one.close()
    assert box._batches[-1].notes[-1][1] == "estop"


def test_a_second_stop_soon_after_a_box_was_written_gets_a_box_of_its_own(
    stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(black_box, "AFTER_S", 0.0)
    monkeypatch.setattr(black_box, "QUIET_S", 0.5)
    node = stand.start(black_box=str(tmp_path / "boxes"))
    stand.step(0)
    first = node._recorder.request_black_box_and_describe_place("watchdog")
    stand.until(lambda: not node._recorder._black_box._waits, "the first box is taken")
    second = node._recorder.request_black_box_and_describe_place("e-stop")
    assert first != second == node._recorder.request_black_box_and_describe_place("and a third")
    stand.until(lambda: not node._recorder._black_box._waits, "the second box is taken")
    node.trigger_shutdown()
    reasons = []
    for box in boxes(tmp_path / "boxes"):
        with SessionReplay(Bag(box), deserialize_message) as replay:
            list(replay.replay_commands())
            reasons.append(replay.summary.events["stopped"])
    assert reasons == [1, 3]


def test_notes_do_not_grow_while_ros_time_stands_still(stand: Stand, tmp_path: Path) -> None:
    node = stand.start(black_box=str(tmp_path / "boxes"), black_box_s=5.0)
    stand.step(0)
    for _ in range(3):
        node._recorder.record_event("parameter", name="any", value=1)
    stand.until(lambda: not node._recorder._notes, "the diagnostics' timer passes the notes on")


def test_only_the_newest_black_boxes_stay(tmp_path: Path) -> None:
    for number in range(14):
        one = tmp_path / f"black_box_policy_{number:02}"
        one.mkdir()
        os.utime(one, (number, number))
    (tmp_path / "mine").mkdir()
    black_box._delete_oldest_black_boxes(tmp_path)
    left = sorted(one.name for one in tmp_path.iterdir())
    assert left == [f"black_box_policy_{number:02}" for number in range(5, 14)] + ["mine"]


def test_without_mcap_a_node_acts_and_cannot_record(
    stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "an_control.ros.recording.get_recording_install_command", lambda: "pip install it"
    )
    node = stand.start()
    stand.step(0)
    assert node._recorder is None
    node.trigger_deactivate()
    node.trigger_cleanup()
    node.set_parameters([Parameter("record", value=str(tmp_path))])
    assert node.trigger_configure().to_label() == "transition_failure"
