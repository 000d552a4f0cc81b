"""Record a policy node that controls the Ant during random troubles; replay each recording.

The node is that of the endurance test `Soak`. It runs in lockstep and gets its messages by direct
calls of its subscription callbacks, so that it makes control steps as fast as it can. Each piece is
one recording of a new node. It is replayed by `an-control replay`, the result is kept in a file,
and the recording is deleted. A run that was stopped continues with the first piece that has no
result. Speed is computed from CPU time, including the start of the process, because other processes
may work on the machine.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from an_control.system.files import write_file
from an_control.system.share import find_share_path

STEP_S = 0.0165
TROUBLE_EVERY = 40
"""Mean number of ticks (control steps) between two troubles."""
WAIT_S = 0.01
"""Seconds that the node waits in lockstep for a message that does not come."""
MODELS = ("ant", "ant_ppo", "ant_quick")
SOURCES = {
    "joints": "joint_states",
    "imu": "imu",
    "odometry": "odometry",
    "goal": "goal",
    "feet": "foot_contacts",
}
"""The topic of each of the Ant's sources, by the name of the source in the wiring."""
JOINTS = tuple(f"{part}_{leg}" for leg in range(1, 5) for part in ("hip", "ankle"))


def record_node_under_random_faults(folder: Path, ticks: int, seed: int) -> dict[str, Any]:
    """Record a policy node on a simulated Ant, while troubles like lost messages happen at random.

    Returns:
        The recorder's status, the duration in seconds, and the counts of troubles.
    """
    from rclpy.parameter import Parameter
    from rclpy.serialization import deserialize_message, serialize_message
    from std_msgs.msg import Bool

    from an_control.ros.node import PolicyNode
    from an_control_sim.process import initialise_ros
    from campaign.soak import SPIN_EVERY, STEP_NS, Soak

    class TroubledAnt(Soak):
        """A simulated Ant with random troubles, such as lost messages and changes of its wiring.

        It extends the simulated Ant of the endurance test.
        """

        def __init__(self, node: PolicyNode) -> None:
            super().__init__(node, seed)
            self.troubles: Counter[str] = Counter()
            self._ticked = 0
            self._topics = {topic: topic for topic in SOURCES.values()}
            """The topic on which each topic of the wiring arrives now."""
            self._late: dict[str, Any] = {}
            self._models = [str(find_share_path(f"models/{one}.safetensors")) for one in MODELS]

        def run_ticks(self, count: int) -> None:
            """Run `count` ticks (control steps) of robot and node."""
            self._durations_s: list[float] = []
            while self._ticked < count:
                self._tick()

        def _tick(self) -> None:
            self._ticked += 1
            if not self._ticked % SPIN_EVERY:
                self._executor.spin_once(timeout_sec=0.0)
            self._stamp_ns += STEP_NS
            self._robot.fill_sensor_messages(self._stamp_ns)
            # The recorder keeps messages for some ticks, and the robot fills the same ones again.
            messages = {
                topic: deserialize_message(serialize_message(one), type(one))
                for topic, one in self._messages.items()
            }
            late, self._late = self._late, {}
            waits = False
            if not self._random.randrange(TROUBLE_EVERY):
                waits = self._cause_trouble_and_tell_if_wait_needed(messages)
            callbacks = {one.topic_name: one.callback for one in self._node.subscriptions}
            for topic, message in [*messages.items(), *late.items()]:
                name = f"{self._node.get_namespace()}/{self._topics[topic]}"
                if name in callbacks:
                    callbacks[name](message)
            if waits:
                time.sleep(1.2 * WAIT_S)
                for _ in range(4):
                    self._executor.spin_once(timeout_sec=0.0)
            self._walk()

        def _set_node_parameters(self, **values: Any) -> None:
            changes = [Parameter(name, value=one) for name, one in values.items()]
            self._node.set_parameters_atomically(changes)

        def _cause_trouble_and_tell_if_wait_needed(self, messages: dict[str, Any]) -> bool:
            """Cause one random trouble, such as a lost message, and return whether to wait."""
            rng = self._random
            kind = rng.choices(*zip(*TROUBLES, strict=True))[0]
            self.troubles[kind] += 1
            topic = rng.choice(list(messages))
            match kind:
                case "lost":
                    del messages[topic]
                case "lost, and waited for":
                    del messages[topic]
                    return True
                case "late":
                    self._late[topic] = messages.pop(topic)
                case "twice":
                    self._late[topic] = messages[topic]
                case "not finite":
                    messages["joint_states"].position[rng.randrange(8)] = rng.choice(
                        [float("nan"), float("inf"), 1e308]
                    )
                case "other names":
                    messages["joint_states"].name[rng.randrange(8)] = "unknown"
                case "rewired topic":
                    source, before = rng.choice(list(SOURCES.items()))
                    now = f"{before}_2" if self._topics[before] == before else before
                    self._topics[before] = now
                    self._set_node_parameters(**{f"sources.{source}.topic": now})
                case "rewired channel":
                    joint = rng.choice(JOINTS)
                    field = f"position[{rng.choice(JOINTS)}]"
                    self._set_node_parameters(**{f"channels.{joint}.position.field": field})
                case "wiring read again":
                    self._topics = {topic: topic for topic in SOURCES.values()}
                    self._serve("/reload_wiring")
                case "e-stop":
                    estop: Any = next(
                        s for s in self._node.subscriptions if s.topic_name.endswith("/estop")
                    )
                    estop.callback(Bool(data=True))
                case "e-stop reset":
                    self._serve("/reset_estop")
                case "model":
                    self._set_node_parameters(model=rng.choice(self._models))
                case "shadow":
                    self._set_node_parameters(shadow=rng.random() < 0.3)
                case "reset":
                    self._serve("/reset_state")
                case _:
                    self._node.trigger_deactivate()
                    self._node.trigger_activate()
            return False

    begin_s = time.monotonic()
    with initialise_ros(["--ros-args", "--log-level", "fatal"]):
        node = PolicyNode(namespace="/ant")
        values: dict[str, Any] = {"record": str(folder), "lockstep_wait_s": WAIT_S}
        values |= {"record_max_mb": 0.0, "record_split_mb": 64.0}
        node.set_parameters([Parameter(name, value=value) for name, value in values.items()])
        ant = TroubledAnt(node)
        try:
            ant.run_ticks(ticks)
            assert node._recorder is not None
            status = node._recorder.get_recording_diagnostics()[0]
        finally:
            ant.close()
            node.destroy_node()
    return {
        "status": status,
        "record_s": time.monotonic() - begin_s,
        "troubles": dict(ant.troubles),
    }


TROUBLES = (
    ("lost", 20),
    ("lost, and waited for", 4),
    ("late", 20),
    ("twice", 5),
    ("not finite", 5),
    ("other names", 5),
    ("rewired topic", 8),
    ("rewired channel", 8),
    ("wiring read again", 3),
    ("e-stop", 5),
    ("e-stop reset", 10),
    ("model", 2),
    ("shadow", 3),
    ("reset", 3),
    ("deactivated and activated", 3),
)
"""Kinds of trouble, each with the weight by which it is drawn at random."""


def replay_recording_and_count_differences(bag: Path, result: Path) -> dict[str, Any]:
    """Replay a recording by `an-control replay`; return counts, such as of commands that differ.

    `bag` is the folder of the recording, `result` the JSON file that the command writes.
    """
    command = [sys.executable, "-m", "an_control", "replay", str(bag), "--json", str(result)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if not result.exists():
        raise RuntimeError(f"{bag}: not replayed: {done.stdout[-500:]}")
    found = json.loads(result.read_text())
    ticks = found["ticks"]
    return {
        "ticks": ticks,
        "commands": found["commands"],
        "different": found["different"],
        "events": found["events"],
        "notes": found["notes"],
        "replay_s": found["replay_s"],
        "replay_cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    }


def check_replay_under_random_faults(
    folder: Path, pieces: int, ticks: int, json_path: Path, seed: int
) -> int:
    """Test that a replay repeats each command of a recorded policy node; return the exit status.

    The test makes recordings of `ticks` control steps and replays them, until `json_path` has the
    results of `pieces` recordings. If a replay differs from its recording, the recording is kept in
    `folder` and the test ends with exit status 1.
    """
    rows: list[dict[str, Any]] = json.loads(json_path.read_text()) if json_path.exists() else []
    for number in range(len(rows), pieces):
        shutil.rmtree(folder, ignore_errors=True)
        row = {
            "seed": seed + number,
            **record_node_under_random_faults(folder, ticks, seed + number),
        }
        (bag,) = folder.iterdir()
        row["mib"] = round(sum(one.stat().st_size for one in bag.iterdir()) / 2**20, 1)
        row |= replay_recording_and_count_differences(bag, folder / "replay.json")
        rows.append(row)
        write_file(json_path, json.dumps(rows, indent=1) + "\n")
        print(_format_piece(number, row), flush=True)
        if row["different"]:
            print(f"the recording is kept: {bag}")
            return 1
        shutil.rmtree(folder)
    print(_format_all_pieces(rows))
    return int(any(row["different"] for row in rows))


def _format_piece(number: int, row: dict[str, Any]) -> str:
    return (
        f"piece {number}: {row['ticks']} ticks, {row['commands']} commands,"
        f" {row['different']} differ; recorded in {row['record_s']:.0f} s ({row['mib']} MiB),"
        f" replayed in {row['replay_s']:.0f} s, {row['replay_cpu_s']:.0f} s of CPU time"
        f" ({row['ticks'] * STEP_S / row['replay_cpu_s']:.1f} times real time)"
    )


def _format_all_pieces(rows: list[dict[str, Any]]) -> str:
    ticks, cpu_s = sum(row["ticks"] for row in rows), sum(row["replay_cpu_s"] for row in rows)
    troubles: Counter[str] = Counter()
    for row in rows:
        troubles.update(row["troubles"])
    return (
        f"{ticks} ticks, {sum(row['commands'] for row in rows)} commands,"
        f" {sum(row['different'] for row in rows)} differ; replayed in {cpu_s:.0f} s of CPU time,"
        f" {ticks * STEP_S / cpu_s:.1f} times as fast as real time\n"
        + ", ".join(f"{count} {kind}" for kind, count in troubles.most_common())
    )
