"""`an-control check --bag`: the doctor finds in a recording which line of the wiring is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rclpy")

from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import JointState
from std_msgs.msg import String

from an_control.cli import main
from an_control.commissioning.doctor.bag import make_recorder_from_bag
from an_control.control.controller import Controller
from an_control.policy import read_model
from an_control.record.layout import COMMAND, BagEntry, FileHead
from an_control.record.reader import Bag
from an_control.record.writer import BagFolder
from an_control.system.share import find_share_path
from an_control.wiring import load_wiring
from an_control_sim.bridge.robot import SimulatedRobot
from an_control_sim.bridge.simulation_file import load_simulation

SIMULATION = find_share_path("config/mobile_base_sim.yaml")
MODEL = find_share_path("models/mobile_base.safetensors")
RIGHT = Path(find_share_path("config/mobile_base.yaml"))
TICKS = 200


def entry(topic: str, message: object, at_ns: int) -> BagEntry:
    type_ = f"{type(message).__module__.partition('.')[0]}/msg/{type(message).__name__}"
    return BagEntry(topic, type_, at_ns, at_ns, 0, serialize_message(message))


@pytest.fixture(scope="module")
def recordings(tmp_path_factory) -> tuple[Path, Path, Path, Path]:
    """A wiring with a reversed gyro, and bags of a drive with it.

    One bag holds the command topic, one what a policy node records instead, and neither more. The
    last one holds both, and what a policy node of another robot recorded.
    """
    folder = tmp_path_factory.mktemp("bags")
    wiring = folder / "w.yaml"
    old, new = "field: angular_velocity.z}", "field: angular_velocity.z, scale: -1.0}"
    text = RIGHT.read_text(encoding="utf-8")
    assert old in text
    wiring.write_text(text.replace(old, new))
    controller = Controller(str(wiring), str(MODEL), None)
    robot = SimulatedRobot(load_simulation(SIMULATION))
    (message,), command = controller.messages, controller.wiring.command
    bags = [
        BagFolder(folder / name, lambda: FileHead((), {})) for name in ("robot", "node", "both")
    ]
    now_ns, episode = 10**9, 0
    for tick in range(TICKS):
        if not tick or robot.over:
            robot.reset(episode)
            controller.reset()
            controller.start()
            episode += 1
            now_ns += 10**9
        now_ns += robot.simulation.step_ns
        robot.fill_sensor_messages(now_ns)
        for sensor_topic in robot.sensor_topics:
            for bag in bags:
                bag.write([entry(f"/bot/{sensor_topic.topic}", sensor_topic.message, now_ns)])
            for source in controller.wiring.sources:
                if source.topic == sensor_topic.topic:
                    controller.table.store_message(
                        source.name, sensor_topic.message, now_ns, now_ns
                    )
        controller.decide(now_ns, now_ns)
        values = controller.compute_command(None)
        message.fill(values, now_ns)
        topic = f"/bot/{command.messages[0].topic}"
        sent = entry(topic, message.message, now_ns + 2000)
        state = JointState(name=list(command.names), position=values.tolist())
        recorded = entry(f"/bot/policy/{COMMAND}", state, now_ns + 1000)
        bags[0].write([sent])
        bags[1].write([recorded])
        bags[2].write([recorded, sent, entry(f"/other/policy/{COMMAND}", state, now_ns + 3000)])
        robot.commands.store_commands(message.message, 0.0)
        robot.step(robot.commands.newest_command)
    robot.close()
    for bag in bags:
        bag.close()
    return wiring, *(folder / name for name in ("robot", "node", "both"))


@pytest.mark.parametrize("number", [1, 2], ids=["of a robot", "of a policy node"])
def test_a_reversed_gyro_is_found_in_a_bag_and_corrected(recordings, number, tmp_path, capsys):
    words = "--bag", str(recordings[number]), "--namespace", "/bot", "--model", str(MODEL)
    more = "--fix", str(tmp_path / "fixed.yaml"), "--json", str(tmp_path / "found.json")
    assert main(["check", str(recordings[0]), *words, *more]) == 1
    found = json.loads((tmp_path / "found.json").read_text())
    assert [row["what"] for row in found["doctor"]] == ["gyro"], found["notes"]
    assert "signs, offsets and swapped wires" in found["looked_at"]
    assert "scale: -1" not in (tmp_path / "fixed.yaml").read_text().partition("gyro")[2][:80]


@pytest.mark.parametrize("number", [1, 2, 3], ids=["topic", "record", "both"])
def test_a_command_is_one_tick_also_if_the_bag_holds_its_topic_and_the_nodes_record(
    recordings, number
):
    driven = make_recorder_from_bag(
        load_wiring(recordings[0]),
        str(MODEL),
        read_model(MODEL),
        Bag(recordings[number]),
        "/bot",
        deserialize_message,
    )
    first = int(number == 3)  # the node's record of a command comes before the first on the topic
    assert driven.commands == len(driven.recorder) == TICKS + first
    starts = driven.recorder.make_recording().starts
    assert starts[0] and (not first or starts[1])


def test_messages_of_another_type_on_a_topic_are_not_read_as_those_of_the_wiring(
    recordings, tmp_path
):
    bag = BagFolder(tmp_path / "bag", lambda: FileHead((), {}))
    for one in Bag(recordings[1]).iterate_entries():
        other = String(data="of another type")
        bag.write([entry(one.topic, other, one.log_ns), one, entry(one.topic, other, one.log_ns)])
    bag.close()
    words = load_wiring(recordings[0]), str(MODEL), read_model(MODEL)
    driven = make_recorder_from_bag(
        *words, Bag(tmp_path / "bag"), "/bot", deserialize_message
    ).recorder.make_recording()
    alone = make_recorder_from_bag(
        *words, Bag(recordings[1]), "/bot", deserialize_message
    ).recorder.make_recording()
    np.testing.assert_array_equal(driven.raw, alone.raw)
    np.testing.assert_array_equal(driven.actions, alone.actions)


def test_a_bag_without_commands_says_that_nothing_was_examined(recordings, tmp_path, capsys):
    empty = recordings[0].parent / "empty"
    bag = BagFolder(empty, lambda: FileHead((), {}))
    bag.write([entry("/bot/elsewhere", JointState(), 10**9)])
    bag.close()
    main(["check", str(recordings[0]), "--bag", str(empty), "--model", str(MODEL)])
    assert "nobody commanded the robot in the bag" in capsys.readouterr().out
