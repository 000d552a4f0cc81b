"""A bag of any robot is examined, and a wiring drafted from it."""

import math
from array import array
from pathlib import Path

import pytest
from geometry_msgs.msg import Twist, Vector3Stamped
from lifecycle_msgs.msg import TransitionEvent
from mcap.writer import Writer as McapWriter
from rclpy.serialization import serialize_message
from sensor_msgs.msg import Imu, JointState
from stand import WIRING, Stand

from an_control.cli import main
from an_control.record.layout import EVENTS, BagEntry, FileHead, decode_event, encode_event
from an_control.record.reader import Bag
from an_control.record.writer import BagFolder
from an_control.ros.outputs import set_stamp
from an_control.wiring import load_wiring

STEP_NS = 10_000_000


def entry(topic: str, message: object, at_ns: int) -> BagEntry:
    type_ = f"{type(message).__module__.partition('.')[0]}/msg/{type(message).__name__}"
    return BagEntry(topic, type_, at_ns, at_ns, 0, serialize_message(message))


def joints(step: int, names: tuple[str, ...] = ("left", "right")) -> JointState:
    values = {"left": 0.01 * step, "right": -0.01 * step}
    message = JointState(name=list(names), position=array("d", [values[one] for one in names]))
    set_stamp(message.header.stamp, 10**9 + step * STEP_NS)
    return message


def tilt(step: int) -> Vector3Stamped:
    message = Vector3Stamped()
    message.vector.x, message.vector.y = 0.5, float(step % 7)
    set_stamp(message.header.stamp, 10**9 + step * STEP_NS)
    return message


def recorded(folder: Path, steps: int = 200, prefix: str = "/robot", **change) -> Path:
    """A bag of a robot; `change` gives by step what comes in place of its joints."""
    bag = BagFolder(folder, lambda: FileHead((), {}))
    for step in range(steps):
        at_ns = 10**9 + step * STEP_NS
        message = change.get(f"s{step}", joints(step))
        if message is not None:
            bag.write([entry(f"{prefix}/joint_states", message, at_ns)])
        bag.write([entry(f"{prefix}/tilt", tilt(step), at_ns + 1000)])
    bag.close()
    return folder


@pytest.fixture
def wiring(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(WIRING)
    return path


def test_a_bag_that_fits_has_no_problem(
    wiring: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = recorded(tmp_path / "bag")
    assert main(["check", str(wiring), "--bag", str(bag)]) == 0
    printed = capsys.readouterr().out
    assert "/robot/joint_states" in printed
    assert "0 .. 1.99" in printed
    assert "nothing is wrong" in printed


def test_gaps_orders_and_stamps_that_jump_are_said(
    wiring: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change = {f"s{step}": None for step in range(50, 70)}
    change |= {"s90": joints(90, ("right", "left")), "s100": joints(700), "s120": joints(10)}
    bag = recorded(tmp_path / "bag", **change)
    assert main(["check", str(wiring), "--bag", str(bag)]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "up to 0.21 s without a message, but max_age_s is 0.05" in printed
    assert "its stamps jump 4 times" in printed
    assert "source joints: its names come in 2 orders; each is read by name" in printed


def test_a_velocity_of_the_wrong_sign_in_a_bag_is_said(
    wiring: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    velocity = '  left.velocity: {source: joints, field: "velocity[left]"}\n'
    wiring.write_text(WIRING.replace("  tilt.x:", f"{velocity}  tilt.x:"))
    change = {}
    for step in range(200):
        wave, rate = math.sin(0.05 * step), 5.0 * math.cos(0.05 * step)
        message = change[f"s{step}"] = joints(step)
        message.position, message.velocity = array("d", [wave, 0.0]), array("d", [-rate, 0.0])
    bag = recorded(tmp_path / "bag", **change)
    assert main(["check", str(wiring), "--bag", str(bag)]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "channel left.velocity: has the opposite sign of the change of left.position" in printed


def test_a_bag_of_two_robots_is_not_taken_for_one(
    wiring: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = BagFolder(tmp_path / "bag", lambda: FileHead((), {}))
    for step in range(200):
        at_ns = 10**9 + step * STEP_NS
        for robot in ("one", "two"):
            bag.write([entry(f"/{robot}/joint_states", joints(step), at_ns)])
            bag.write([entry(f"/{robot}/tilt", tilt(step), at_ns + 1000)])
    bag.close()
    check = ["check", str(wiring), "--bag", str(tmp_path / "bag")]
    assert main(check) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "/one/joint_states, /two/joint_states: choose one of them by --namespace" in printed
    assert main([*check, "--namespace", "/two"]) == 0


def test_a_pause_of_the_recording_is_no_gap_or_rate_of_a_source(
    wiring: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = BagFolder(tmp_path / "bag", lambda: FileHead((), {}))
    for step in [*range(100), *range(6100, 6200)]:  # of simulated time, which begins at 0
        at_ns = step * STEP_NS
        bag.write([entry("/robot/joint_states", joints(step), at_ns)])
        bag.write([entry("/robot/tilt", tilt(step), at_ns + 1000)])
    bag.close()
    assert main(["check", str(wiring), "--bag", str(tmp_path / "bag")]) == 0
    printed = capsys.readouterr().out
    assert "the recording pauses 1 times, for up to 60 s" in printed
    assert "simulation" not in printed
    assert main(["new", "drafted", "--bag", str(tmp_path / "bag"), "--out", str(tmp_path)]) == 0
    drafted = load_wiring(tmp_path / "drafted.yaml")
    assert drafted.rate_hz == pytest.approx(100.0, rel=0.02)
    assert [one.max_age_s for one in drafted.sources] == [0.05, 0.05]


@pytest.mark.parametrize("pace", [0.3, 7.0])
def test_a_simulation_at_another_pace_than_the_clock_is_not_called_wrong(
    wiring: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], pace: float
) -> None:
    text = WIRING.replace(
        "  tilt.x:", '  left.velocity: {source: joints, field: "velocity[left]"}\n  tilt.x:'
    )
    wiring.write_text(text.replace("max_age_s: 0.05", "max_age_s: 1.0"))
    bag = BagFolder(tmp_path / "bag", lambda: FileHead((), {}))
    for step in range(200):
        message = joints(step)
        message.position = array("d", [math.sin(0.05 * step), 0.0])
        message.velocity = array("d", [5.0 * math.cos(0.05 * step), 0.0])
        at_ns = 10**18 + int(step * STEP_NS / pace)
        bag.write([entry("/robot/joint_states", message, at_ns)])
        bag.write([entry("/robot/tilt", tilt(step), at_ns)])
    bag.close()
    assert main(["check", str(wiring), "--bag", str(tmp_path / "bag")]) == 0
    said = f"the stamps of joints, tilt pass {pace:g} times as fast as the time of the recording"
    assert said in " ".join(capsys.readouterr().out.split())


def test_messages_that_are_not_in_the_order_of_their_times_are_noted(
    wiring: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = BagFolder(tmp_path / "bag", lambda: FileHead((), {}))
    steps = range(200)
    bag.write([entry("/robot/joint_states", joints(one), 10**9 + one * STEP_NS) for one in steps])
    bag.write([entry("/robot/tilt", tilt(one), 10**9 + one * STEP_NS) for one in steps])
    bag.close()
    main(["check", str(wiring), "--bag", str(tmp_path / "bag")])
    printed = " ".join(capsys.readouterr().out.split())
    assert "messages are up to 1.99 s behind earlier ones" in printed
    assert "(mcap sort)" in printed


def test_what_is_not_in_the_bag_is_said(
    wiring: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wiring.write_text(WIRING.replace("topic: tilt,", "topic: lean,"))
    bag = recorded(tmp_path / "bag")
    assert main(["check", str(wiring), "--bag", str(bag)]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "source tilt (lean): is not in the bag; of its type there: /robot/tilt" in printed
    wrong = WIRING.replace("topic: joint_states,", "topic: tilt,")
    wiring.write_text(wrong.replace("topic: tilt, type: geo", "topic: lean, type: geo"))
    assert main(["check", str(wiring), "--bag", str(bag)]) == 1
    assert "where the wiring says sensor_msgs/msg/JointState" in capsys.readouterr().out


def test_a_broken_message_is_one_line(
    wiring: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = BagFolder(tmp_path / "bag", lambda: FileHead((), {}))
    bag.write([BagEntry("/joint_states", "sensor_msgs/msg/JointState", 5, 5, 0, b"\0\1\0\0" * 3)])
    bag.close()
    assert main(["check", str(wiring), "--bag", str(tmp_path / "bag")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "no message of type sensor_msgs/msg/JointState" in lines[0]


@pytest.mark.parametrize("verb", ["check", "new"])
def test_a_bag_of_another_encoding_is_named_and_not_called_empty(
    wiring: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    path = tmp_path / "one.mcap"
    with path.open("wb") as file:
        writer = McapWriter(file)
        writer.start()
        schema = writer.register_schema("acme.Joints", "protobuf", b"")
        channel = writer.register_channel("/joint_states", "protobuf", schema)
        writer.add_message(channel, 5, b"\0", 5)
        writer.finish()
    name = str(wiring) if verb == "check" else "another"
    assert main([verb, name, "--bag", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no message of ROS 2" in line
    assert "left out: /joint_states (acme.Joints, protobuf)" in line


def test_a_wiring_drafted_from_a_bag_reads_that_bag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = recorded(tmp_path / "bag")
    commands = BagFolder(tmp_path / "more", lambda: FileHead((), {}))
    for step in range(20):
        message = Imu()
        message.angular_velocity.x = float(step)
        message.orientation.w = 1.0
        commands.write([entry("/robot/imu", message, step * STEP_NS)])
        commands.write([entry("/robot/cmd_vel", Twist(), step * STEP_NS)])
    commands.close()
    assert main(["new", "tiny", "--bag", str(bag), "--out", str(tmp_path)]) == 0
    assert load_wiring(tmp_path / "tiny.yaml").rate_hz == pytest.approx(100.0)
    assert f"an-control check {tmp_path}/tiny.yaml --bag {bag}" in capsys.readouterr().out
    main(["check", str(tmp_path / "tiny.yaml"), "--bag", str(bag)])
    assert "not in the bag" not in capsys.readouterr().out
    out = ["--out", str(tmp_path), "--namespace", "robot"]
    assert main(["new", "base", "--bag", str(tmp_path / "more"), *out]) == 0
    base = load_wiring(tmp_path / "base.yaml")
    assert [one.topic for one in base.sources] == ["imu"]
    assert list(base.command.topic_keys) == ["cmd_vel"]


def record_twenty_ticks(stand: Stand, folder: Path) -> Path:
    """Let the node record twenty ticks below a folder, and return the recording's folder."""
    stand.start(record=str(folder / "bags"))
    for step in range(20):
        stand.step(step)
    stand.node.trigger_shutdown()
    (bag,) = (folder / "bags").iterdir()
    return bag


def test_a_draft_reads_one_type_of_a_topic_that_has_two(tmp_path: Path) -> None:
    bag = BagFolder(tmp_path / "bag", lambda: FileHead((), {}))
    for step in range(20):
        at_ns = 10**9 + step * STEP_NS
        bag.write([entry("/tilt", tilt(step), at_ns), entry("/tilt", tilt(step).vector, at_ns)])
        bag.write([entry("/joint_states", joints(step), at_ns)])
    bag.close()
    assert main(["new", "tiny", "--bag", str(tmp_path / "bag"), "--out", str(tmp_path)]) == 0
    (found,) = (one for one in load_wiring(tmp_path / "tiny.yaml").sources if one.topic == "/tilt")
    assert found.type == "geometry_msgs/msg/Vector3Stamped"


def test_a_recording_of_a_policy_node_gives_the_draft_the_commands_of_its_wiring(
    stand: Stand, tmp_path: Path
) -> None:
    bag = record_twenty_ticks(stand, tmp_path)
    assert main(["new", "tiny", "--bag", str(bag), "--out", str(tmp_path)]) == 0
    drafted, recorded = load_wiring(tmp_path / "tiny.yaml"), load_wiring(stand.wiring)
    assert drafted.command == recorded.command
    assert [one.topic for one in drafted.sources] == ["/joint_states", "/tilt"]
    other = ["--out", str(tmp_path), "--namespace", "other"]
    assert main(["new", "other", "--bag", str(bag), *other]) == 2


def test_a_recording_with_a_reloaded_wiring_gives_the_draft_only_the_newest_commands(
    stand: Stand, tmp_path: Path
) -> None:
    folder = record_twenty_ticks(stand, tmp_path)
    entries = list(Bag(folder).iterate_entries())
    text = stand.wiring.read_text().replace("topic: commands", "topic: motors")
    for one in tuple(entries):
        if one.topic.endswith(EVENTS) and decode_event(one.data)["event"] == "wiring":
            event = {**decode_event(one.data), "text": text}
            entries.append(one._replace(data=encode_event("wiring", event)))
    bag = BagFolder(tmp_path / "bag", lambda: FileHead((), {}))
    bag.write(entries)
    bag.close()
    assert main(["new", "tiny", "--bag", str(tmp_path / "bag"), "--out", str(tmp_path)]) == 0
    drafted = load_wiring(tmp_path / "tiny.yaml").command
    assert list(drafted.topic_keys) == ["motors"]
    assert drafted.names == load_wiring(stand.wiring).command.names


def test_what_a_policy_node_publishes_about_itself_becomes_no_channel_or_actuator(
    tmp_path: Path,
) -> None:
    bag = BagFolder(tmp_path / "bag", lambda: FileHead((), {}))
    about = JointState(name=["left.position", "tilt.x"], position=array("d", [0.0, 1.0]))
    for step in range(20):
        at_ns = 10**9 + step * STEP_NS
        bag.write([entry("/robot/joint_states", joints(step), at_ns)])
        bag.write([entry("/robot/policy/channels", about, at_ns)])
        for proposed in ("arm", "arm_commands"):  # of a command with several messages
            bag.write([entry(f"/robot/policy/proposed/{proposed}", joints(step), at_ns)])
    bag.write([entry("/robot/policy/transition_event", TransitionEvent(), at_ns)])
    bag.close()
    assert main(["new", "tiny", "--bag", str(tmp_path / "bag"), "--out", str(tmp_path)]) == 0
    drafted = load_wiring(tmp_path / "tiny.yaml")
    assert [one.topic for one in drafted.sources] == ["/robot/joint_states"]
    assert drafted.command.names == ("left", "right")
    assert list(drafted.command.topic_keys) == ["joint_commands"]


def test_bags_that_rosbags_wrote_are_checked(
    wiring: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rosbag2 = pytest.importorskip("rosbags.rosbag2")
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_HUMBLE)
    for storage in ("SQLITE3", "MCAP"):
        folder = tmp_path / storage
        plugin = getattr(rosbag2.StoragePlugin, storage)
        with rosbag2.Writer(folder, version=8, storage_plugin=plugin) as writer:
            connections = {
                name: writer.add_connection(name, type_, typestore=store)
                for name, type_ in (
                    ("/joint_states", "sensor_msgs/msg/JointState"),
                    ("/tilt", "geometry_msgs/msg/Vector3Stamped"),
                )
            }
            for step in range(50):
                for name, message in (("/joint_states", joints(step)), ("/tilt", tilt(step))):
                    at_ns = 10**9 + step * STEP_NS
                    writer.write(connections[name], at_ns, serialize_message(message))
        assert main(["check", str(wiring), "--bag", str(folder)]) == 0, capsys.readouterr().out
