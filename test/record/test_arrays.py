"""Recorded readings and commands as arrays and as tables."""

import csv
from array import array
from pathlib import Path

import numpy as np
import pytest
from sensor_msgs.msg import JointState
from stand import IDS, Stand, readings_of

from an_control.cli import main
from an_control.record.arrays import read_arrays
from an_control.record.reader import Bag


@pytest.fixture
def walked(stand: Stand, tmp_path: Path) -> Path:
    """The recording of two episodes, one message of which is lost."""
    stand.start(record=str(tmp_path / "bags"), lockstep_wait_s=0.05)
    for step in range(20):
        stand.step(step)
    stand.reset()
    stand.send_tilt(*(2_000_000_000_000, 1.0, 2.0))
    heard = len(stand.commands)
    stand.until(lambda: len(stand.commands) > heard, "a command on a part of the readings")
    stand.node.trigger_shutdown()
    (found,) = (tmp_path / "bags").iterdir()
    return found


def test_arrays_hold_what_was_read_wanted_and_sent(stand: Stand, walked: Path) -> None:
    arrays = read_arrays(Bag(walked))
    assert arrays.ids == IDS
    assert arrays.actuators == ("left", "right")
    assert arrays.episode.tolist() == [0] * 20 + [1]
    expected = np.array([readings_of(step) for step in range(20)], np.float32)
    assert arrays.readings[:20].tobytes() == expected.tobytes()
    assert np.isnan(arrays.readings[20]).tolist() == [True, True, False, False]
    sent = np.array([one.effort for one in stand.commands[:21]])
    assert arrays.commands.tobytes() == sent.tobytes()
    assert np.clip(arrays.wanted, -8.0, 8.0).tobytes() == sent.tobytes()


def test_ticks_of_an_inactive_node_belong_to_no_episode(
    stand: Stand, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = stand.start(activate=False, record=str(tmp_path / "bags"))
    node.trigger_configure()
    stand.until(lambda: stand.joints.get_subscription_count() == 1, "joint_states matched")
    stand.until(lambda: stand.tilt.get_subscription_count() == 1, "tilt matched")
    for step in range(3):
        stand.watch(step)
    node.trigger_activate()
    stand.connect()
    for step in range(3, 10):
        stand.step(step)
        if step == 6:
            stand.reset()
    node.trigger_deactivate()
    for step in range(10, 12):
        stand.watch(step)
    node.trigger_shutdown()
    (found,) = (tmp_path / "bags").iterdir()
    assert read_arrays(Bag(found)).episode.tolist() == [-1] * 3 + [0] * 4 + [1] * 3 + [-2] * 2
    assert main(["export", str(found), "--csv", str(tmp_path / "ticks.csv")]) == 0
    assert "12 ticks of 2 episodes" in (said := capsys.readouterr().out)
    assert "5 ticks while the node was inactive" in said
    with (tmp_path / "ticks.csv").open(newline="") as file:
        episodes = [row["episode"] for row in csv.DictReader(file)]
    assert episodes == [""] * 3 + ["0"] * 4 + ["1"] * 3 + [""] * 2
    parquet = pytest.importorskip("pyarrow.parquet")
    assert main(["export", str(found), "--parquet", str(tmp_path / "ticks.parquet")]) == 0
    column = parquet.read_table(tmp_path / "ticks.parquet").column("episode")
    assert column.to_pylist() == [None] * 3 + [0] * 4 + [1] * 3 + [None] * 2


@pytest.mark.parametrize("activate", [True, False])
def test_what_a_person_commands_beside_a_shadow_node_follows_the_readings_that_it_answers(
    stand: Stand, tmp_path: Path, activate: bool
) -> None:
    node = stand.start(activate=False, shadow=True, record=str(tmp_path / "bags"))
    node.trigger_configure()
    if activate:
        node.trigger_activate()
    person = stand.peer.create_publisher(JointState, "commands", 10)
    stand.until(lambda: stand.joints.get_subscription_count() == 1, "joint_states matched")
    stand.until(lambda: stand.tilt.get_subscription_count() == 1, "tilt matched")
    stand.until(lambda: person.get_subscription_count() >= 2, "commands matched")
    last, sent = node._loop.controller.gate.last, []
    for step in range(6):
        stand.watch(step)
        count = last.count
        sent.append([1.0 + step, -1.0 - step])
        person.publish(JointState(name=["left", "right"], effort=array("d", sent[-1])))
        stand.until(lambda count=count: last.count > count, "the person's command heard")
    node.trigger_shutdown()
    (found,) = (tmp_path / "bags").iterdir()
    assert read_arrays(Bag(found)).commands.tolist() == sent


def test_tables_keep_every_bit(walked: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    paths = tmp_path / "ticks.csv", tmp_path / "ticks.parquet"
    assert main(["export", str(walked), "--csv", str(paths[0]), "--parquet", str(paths[1])]) == 0
    arrays = read_arrays(Bag(walked))
    with paths[0].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["command.left"]) for row in rows] == arrays.commands[:, 0].tolist()
    assert rows[20]["reading.left.position"] == ""
    table = parquet.read_table(paths[1])
    assert table.column("reading.tilt.y").to_pylist() == arrays.readings[:, 3].tolist()
    assert table.column("reading.left.position").null_count == 1
    assert table.column("time_ns").to_pylist() == arrays.time_ns.tolist()


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bag.mcap").write_bytes(b"nothing")
    assert main(["export", str(tmp_path / "bag.mcap"), "--csv", str(tmp_path / "a.csv")]) == 2
    assert main(["export", str(tmp_path / "bag.mcap")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert "is not an MCAP file" in lines[0]
    assert "--csv FILE" in lines[1]
