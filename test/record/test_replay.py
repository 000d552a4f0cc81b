"""A recording replays to the last bit, whatever happened while it was made."""

import hashlib
import random
import shutil
import time
import zipfile
from array import array
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from rclpy.parameter import Parameter
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import JointState
from stand import JOINTS, Stand, readings_of, stamp_of
from std_msgs.msg import Int16MultiArray
from std_srvs.srv import Trigger

from an_control.cli import main
from an_control.policy import AttentionSizes, write_model
from an_control.policy.random_model import make_random_model
from an_control.policy.task import Task
from an_control.record.arrays import read_arrays
from an_control.record.comparison import Comparison
from an_control.record.layout import ATTACHMENT, BagEntry, BagError, CommandKind, FileHead
from an_control.record.reader import Bag
from an_control.record.replay import SessionReplay
from an_control.record.replayed_session import ReplayedCommand, ReplayFiles, ReplaySummary
from an_control.record.writer import BagFolder
from an_control.ros.outputs import set_stamp


def replayed(folder: Path, **options) -> tuple[ReplaySummary, list[ReplayedCommand]]:
    with SessionReplay(Bag(folder), deserialize_message, **options) as replay:
        commands = list(replay.replay_commands())
        return replay.summary, commands


def recording(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


def other_model(path: Path) -> Path:
    sizes = AttentionSizes(actions=2, neuron=4, queries=6, key=3, inputs=["value"], head=[5])
    write_model(path, make_random_model(sizes, seed=2, gain=4.0, task=Task(step_s=0.01)))
    return path


class Troubled:
    """A robot whose sensors are rewired, lose messages, and whose node is treated badly."""

    def __init__(self, stand: Stand, seed: int, other: Path) -> None:
        self._stand, self._node, self._rng = stand, stand.node, random.Random(seed)
        self._models = str(stand.model), str(other)
        self._second = stand.peer.create_publisher(JointState, "joint_states_2", 10)
        self._moved = False

    def step(self, step: int) -> None:
        self._trouble()
        rng, stamp_ns, readings = self._rng, stamp_of(step), readings_of(step)
        if rng.random() > 0.03:
            message = JointState(name=list(JOINTS), position=array("d", readings[:2].tolist()))
            set_stamp(message.header.stamp, stamp_ns)
            (self._second if self._moved else self._stand.joints).publish(message)
        if rng.random() > 0.03:
            self._stand.send_tilt(stamp_ns, *readings[2:])

    def _set(self, **values) -> None:
        changes = [Parameter(name.replace("__", "."), value=one) for name, one in values.items()]
        self._node.set_parameters_atomically(changes)

    def _trouble(self) -> None:
        rng, chance = self._rng, self._rng.random()
        if chance < 0.01:
            self._moved = not self._moved
            self._set(sources__joints__topic="joint_states_2" if self._moved else "joint_states")
        elif chance < 0.02:
            self._node._set_estop("by service")
        elif chance < 0.04:
            self._node._on_reset_estop(None, Trigger.Response())
        elif chance < 0.05:
            self._set(model=rng.choice(self._models))
        elif chance < 0.055:
            self._set(shadow=rng.random() < 0.3)
        elif chance < 0.06:
            self._node._on_reset_state(None, Trigger.Response())
        elif chance < 0.065:
            self._node._on_reload_wiring(None, Trigger.Response())
            self._moved = False
        elif chance < 0.075:
            change = {"channels.tilt.x.field": rng.choice(["vector.x", "vector.z"])}
            change["channels.left.position.field"] = rng.choice(
                ["position[left]", "position[right]"]
            )
            self._node.set_parameters_atomically([Parameter(n, value=v) for n, v in change.items()])
        elif chance < 0.08:
            self._node.trigger_deactivate()
            self._node.trigger_activate()


@pytest.mark.parametrize("mode", ["lockstep", "rate"])
def test_every_command_of_a_troubled_session_is_replayed_to_the_last_bit(
    stand: Stand, tmp_path: Path, mode: str
) -> None:
    text = stand.wiring.read_text()
    text = text.replace("max_rate: 0, safe: 0.5", "max_rate: 300, safe: 0.5")
    stand.wiring.write_text(text.replace("min_present_share: 0.5", "min_present_share: 0.6"))
    parameters = {"mode": mode, "lockstep_wait_s": 0.03, "ramp_s": 0.2, "record_split_s": 1.0}
    parameters["watchdog_s"] = 0.03 if mode == "rate" else 0.0
    stand.start(record=str(tmp_path / "bags"), **parameters)
    robot = Troubled(stand, 1, other_model(tmp_path / "other.safetensors"))
    for step in range(300):
        robot.step(step)
        until_s = time.monotonic() + 0.01
        while (left_s := until_s - time.monotonic()) > 0.0:
            stand.executor.spin_once(timeout_sec=left_s)
    stand.node.trigger_shutdown()
    folder = recording(tmp_path / "bags")
    assert len(list(folder.glob("*.mcap"))) > 1  # it was split on the way
    summary, commands = replayed(folder)
    assert summary.notes == []
    assert summary.ticks > 100
    assert {"rewire", "estop", "model", "activate", "wiring"} <= summary.events.keys()
    assert [one for one in commands if not one.is_equal_to_recorded_command] == []
    kinds = {one.kind for one in commands}
    assert {CommandKind.POLICY, CommandKind.STOP, CommandKind.HALT} <= kinds


@pytest.fixture
def walked(stand: Stand, tmp_path: Path) -> Path:
    """The recording of a short, quiet session."""
    stand.start(record=str(tmp_path / "bags"))
    for step in range(30):
        stand.step(step)
    stand.node.trigger_shutdown()
    return recording(tmp_path / "bags")


def test_a_recording_holds_the_commands_that_were_sent(stand: Stand, walked: Path) -> None:
    _, commands = replayed(walked)
    stand.until(lambda: len(stand.commands) == 31, "the safe command at the end")
    sent = [list(one.effort) for one in stand.commands]
    assert [one.recorded.tolist() for one in commands] == sent


def test_a_recording_replays_where_neither_model_nor_wiring_are_any_more(
    stand: Stand, walked: Path
) -> None:
    stand.model.unlink()
    stand.wiring.unlink()
    summary, _ = replayed(walked)
    assert (summary.ticks, summary.different, summary.notes) == (30, 0, [])


def test_an_onnx_policy_replays_where_none_of_its_files_are_any_more(
    stand: Stand, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    from foreign.networks import linear, save
    from onnx import external_data_helper

    folder = tmp_path / "policy"
    (folder / "inner").mkdir(parents=True)
    for seed in (1, 2):  # the node switches from one to the other
        network = linear(5, 2, {"joint_names": "left,right", "step_s": "0.01"}, seed)
        weight = network.graph.initializer[0]
        external_data_helper.set_external_data(weight, f"inner/{seed}.data")
        content, weight.raw_data = weight.raw_data, b""
        (folder / f"inner/{seed}.data").write_bytes(content)
        terms = "[{channels: [left.position, right.position, tilt.x, tilt.y, speed]}]"
        save(folder, network, f"observation: {terms}\n", f"{seed}.onnx")
    text = stand.wiring.read_text()
    stand.wiring.write_text(
        text.replace("  tilt.x:", '  speed: {source: joints, field: "position[left]"}\n  tilt.x:')
    )
    stand.model = folder / "1.onnx"
    stand.start(record=str(tmp_path / "bags"))
    for step in range(10):
        stand.step(step)
    stand.node.set_parameters([Parameter("model", value=str(folder / "2.onnx"))])
    given = stand.node._loop.controller.acting._given
    stand.until(lambda: given, "the other model is built")
    for step in range(10, 30):
        stand.step(step)
    stand.node.trigger_shutdown()
    shutil.rmtree(folder)
    summary, _ = replayed(recording(tmp_path / "bags"))
    assert (summary.ticks, summary.different, summary.notes) == (30, 0, [])
    assert summary.events["model"] == 1


@pytest.mark.parametrize("name", ["../outside", "policy.onnx"])
def test_a_recorded_onnx_policy_writes_only_its_own_files(tmp_path: Path, name: str) -> None:
    content = BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        kind = zipfile.ZIP_STORED if name.startswith("..") else zipfile.ZIP_DEFLATED
        archive.writestr(zipfile.ZipInfo(name), bytes(1000), kind)
    digest = hashlib.sha256(content.getvalue()).hexdigest()
    (tmp_path / "inner").mkdir()
    files = ReplayFiles(tmp_path / "bag", tmp_path / "inner", None, None)
    files.save_model_file(BagEntry(f"model:{digest}", ATTACHMENT, 0, 0, 0, content.getvalue()))
    with pytest.raises(BagError, match="does not hold all files of the ONNX policy"):
        files.find_recorded_model_file({"path": "/home/robot/policy.onnx", "sha256": digest})
    assert not list(tmp_path.rglob("outside*"))
    assert not list(tmp_path.rglob("policy.onnx"))


def test_another_model_shows_where_the_commands_part(
    stand: Stand, walked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = other_model(tmp_path / "other.safetensors")
    summary, commands = replayed(walked, model=other)
    assert summary.different == 30
    differences = [np.abs(one.replayed - one.recorded) for one in commands]
    assert (np.fmax.reduce(differences) > 0.01).all()
    assert main(["replay", str(walked), "--model", str(other)]) == 0
    printed = capsys.readouterr().out
    assert "30 of 31 commands differ, first at tick 1" in printed
    assert "right" in printed


def test_another_wiring_reads_the_same_messages(stand: Stand, walked: Path, tmp_path: Path) -> None:
    wiring = tmp_path / "turned.yaml"
    wiring.write_text(stand.wiring.read_text().replace("vector.y}", "vector.y, scale: -1.0}"))
    summary, commands = replayed(walked, wiring=wiring)
    assert 0 < summary.different <= 30
    values = dict(zip(commands[0].readings.ids, commands[0].readings.values, strict=True))
    assert values["tilt.y"] == np.float32(-readings_of(0)[3])
    same, _ = replayed(walked, wiring=stand.wiring)
    assert same.different == 0


def test_a_command_that_was_changed_in_the_file_is_found(
    stand: Stand, tmp_path: Path, walked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from an_control.record.writer import BagFolder, FileHead

    entries = list(Bag(walked).iterate_entries())
    place = [n for n, one in enumerate(entries) if one.topic == "/policy/record/command"][10]
    data = bytearray(entries[place].data)
    data[-16] ^= 1  # the last bit of the last number
    entries[place] = entries[place]._replace(data=bytes(data))
    bag = BagFolder(tmp_path / "changed", lambda: FileHead((), {}))
    bag.write(entries)
    bag.close()
    summary, _ = replayed(tmp_path / "changed")
    assert summary.different == 1
    assert summary.first.tick == 11
    assert main(["replay", str(tmp_path / "changed")]) == 1
    assert "1 of 31 commands differ, first at tick 11" in capsys.readouterr().out


def test_the_verb_says_that_all_is_equal(walked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(walked)]) == 0
    assert "every command is equal to the recorded one to the last bit" in capsys.readouterr().out


def test_a_picture_of_a_kind_that_cannot_be_drawn_is_refused_before_the_replay(
    walked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(walked), "--plot", str(tmp_path / "p.txt")]) == 2
    assert "p.txt: must end in .png, .pdf or .svg" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["replay", "export"])
def test_a_recording_that_ends_before_its_first_tick_says_where_it_ends(
    walked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    (file,) = walked.glob("*.mcap")
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(file.read_bytes()[:200])
    options = ["--csv", str(tmp_path / "t.csv")] if verb == "export" else []
    assert main([verb, str(cut), *options]) == 2
    assert f"({cut}: was not finished; read up to byte " in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["replay", "export"])
def test_merged_recordings_of_two_nodes_are_refused(
    walked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    bag = BagFolder(tmp_path / "both", lambda: FileHead((), {}))
    for one in Bag(walked).iterate_entries():
        bag.write([one, one._replace(topic=f"/other{one.topic}")])
    bag.close()
    options = ["--csv", str(tmp_path / "t.csv")] if verb == "export" else []
    assert main([verb, str(tmp_path / "both"), *options]) == 2
    assert "recordings of two nodes, /policy and /other/policy" in capsys.readouterr().err


def test_a_bag_of_others_is_no_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = BagFolder(tmp_path / "other", lambda: FileHead((), {}))
    bag.write([BagEntry("/a", "std_msgs/msg/String", 1, 1, 0, b"\0\1\0\0\1\0\0\0\0")])
    bag.close()
    assert main(["replay", str(tmp_path / "other")]) == 2
    assert "is not a recording of a policy node" in capsys.readouterr().err


def test_a_damaged_recording_gets_one_line(walked: Path, tmp_path: Path) -> None:
    from an_control.policy.model_file import ModelError
    from an_control.record.layout import BagError
    from an_control.record.writer import BagFolder, FileHead
    from an_control.wiring import WiringError

    entries, rng = list(Bag(walked).iterate_entries()), random.Random(0)
    own = [n for n, one in enumerate(entries) if one.type and len(one.data) > 8]
    texts = [n for n in own if entries[n].topic.endswith("events")]
    outcomes = set()
    for number in range(60):
        changed = list(entries)
        for place in rng.sample(texts if number % 2 else own, rng.randint(1, 3)):
            data = bytearray(changed[place].data)
            for _ in range(rng.randint(1, 4)):
                data[rng.randrange(4, len(data))] = rng.choice([0, 34, 44, 57, 65, 255])
            changed[place] = changed[place]._replace(data=bytes(data))
        if rng.random() < 0.3:
            changed.pop(rng.randrange(len(changed)))
        bag = BagFolder(tmp_path / f"changed{number}", lambda: FileHead((), {}))
        bag.write(changed)
        bag.close()
        try:
            replayed(tmp_path / f"changed{number}")
            outcomes.add("replayed")
        except (BagError, WiringError, ModelError) as error:
            assert "\n" not in str(error)
            outcomes.add(type(error).__name__)
    assert {"replayed", "BagError"} <= outcomes


def test_a_recording_holds_the_whole_numbers_that_went_out_and_replays_them(
    stand: Stand, tmp_path: Path
) -> None:
    text = stand.wiring.read_text()
    stand.wiring.write_text(
        text.partition("command:")[0]
        + "command:\n  topic: gears\n  type: std_msgs/msg/Int16MultiArray\n  field: data\n"
        "  actuators:\n    left: {scale: 10.0, limits: [-8, 8], max_rate: 30, safe: 0}\n"
        "    right: {scale: 10.0, limits: [-8, 8], max_rate: 300, safe: 0}\n"
    )
    heard: list[list[int]] = []
    stand.peer.create_subscription(
        Int16MultiArray, "gears", lambda message: heard.append(list(message.data)), 100
    )
    node = stand.start(activate=False, record=str(tmp_path / "bags"), lockstep_wait_s=0.05)
    node.trigger_configure()
    node.trigger_activate()
    stand.until(lambda: stand.joints.get_subscription_count() == 1, "joint_states matched")
    stand.until(lambda: stand.tilt.get_subscription_count() == 1, "tilt matched")
    stand.until(lambda: stand.peer.count_publishers("gears") == 1, "gears matched")
    for step in range(30):
        stand.watch(step)
    stand.until(lambda: len(heard) >= 30, "all commands")
    node.trigger_shutdown()
    (found,) = (tmp_path / "bags").iterdir()
    assert read_arrays(Bag(found)).commands.tolist() == heard[:30]
    with SessionReplay(Bag(found), deserialize_message) as replay:
        list(replay.replay_commands())
    assert replay.summary.different == 0 and replay.summary.commands >= 30


def test_commands_that_were_not_sent_do_not_differ() -> None:
    differences = Comparison()
    unsent = np.array([np.nan, 1.0])
    command = ReplayedCommand(1, 0, CommandKind.POLICY, unsent, unsent.copy(), None)
    differences.add_command(command)
    rows = differences.summarise_differences_by_actuator(("a", "b"))
    assert [(row["different"], row["mean"], row["largest"]) for row in rows] == [(0, 0.0, 0.0)] * 2
