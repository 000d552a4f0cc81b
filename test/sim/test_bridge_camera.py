"""CarRacing and Pong over ROS 2: frames out, commands in, the bits of the game in one process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")
pytest.importorskip("Box2D")
pytest.importorskip("pygame")
pytest.importorskip("ale_py")

import gymnasium
from rclpy.node import Node

import an_control
from an_control.disturbance import (
    DisturbanceSettings,
    Disturber,
    ScheduledChange,
    Shuffle,
    derive_episode_seed,
)
from an_control.policy import write_model
from an_control.policy.random_model import make_random_model
from an_control.policy.sizes import CAR_RACING_SIZES, PONG_SIZES
from an_control.system.share import find_share_path
from an_control.wiring import ChannelTable, load_wiring
from an_control.wiring.image import cut_patches
from an_control_sim.bridge.simulator_node import SimulatorSettings, simulate
from an_control_sim.envs.car_racing import CarRacingEnv
from an_control_sim.envs.puzzle_pong import PuzzlePongEnv
from an_control_sim.envs.tasks import CAR_RACING_TASK, PONG_TASK
from an_control_sim.process import initialise_ros
from an_control_sim.scrambler.messages import make_scrambled_message
from an_control_sim.scrambler.wiring import derive_scrambled_wiring, write_wiring

STEPS = 60
TASKS = {
    "car_racing": (CarRacingEnv, CAR_RACING_SIZES, CAR_RACING_TASK),
    "pong": (PuzzlePongEnv, replace(PONG_SIZES, memory=16), PONG_TASK),
}
Bits = list[tuple[bytes, bytes, float]]


@pytest.fixture(params=list(TASKS))
def task(request) -> str:
    return str(request.param)


@pytest.fixture
def model(task: str, tmp_path: Path) -> Path:
    _, sizes, described = TASKS[task]
    path = tmp_path / "model.safetensors"
    write_model(path, make_random_model(sizes, seed=4, gain=3.0, task=described))
    return path


@pytest.fixture
def bits(task: str, monkeypatch: pytest.MonkeyPatch) -> Bits:
    """Action, patches and reward of every step that the game makes from now on."""
    cls, seen = TASKS[task][0], []
    step = cls.step

    def recorded(self: Any, action: Any) -> Any:
        result = step(self, action)
        seen.append((np.asarray(action, np.float32).tobytes(), result[0].tobytes(), result[1]))
        return result

    monkeypatch.setattr(cls, "step", recorded)
    return seen


def in_process(task: str, model: Path) -> None:
    """Episode 0 of seed 1, cut short, without ROS."""
    game = gymnasium.make(TASKS[task][2].environment, max_episode_steps=STEPS)
    policy = an_control.load_policy(model)
    patches, _ = game.reset(seed=derive_episode_seed(1, 0))
    over = False
    while not over:
        action = policy.step_array(patches, policy.nominal_ids)
        patches, _, ended, late, _ = game.step(action)
        over = ended or late
    game.close()


@contextmanager
def policy_node(task: str, wiring: Path, model: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "an_control.ros.node", "--ros-args", "-r", f"__ns:=/{task}"]
    values = {"wiring": wiring, "model": model, "mode": "lockstep", "autostart": "true"}
    values |= {"lockstep_wait_s": 5.0}
    for name, value in values.items():
        command += ["-p", f"{name}:={value}"]
    process = subprocess.Popen(command)
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(20) == 0


def over_ros(task: str, folder: Path, scramble: DisturbanceSettings) -> None:
    text = find_share_path(f"config/{task}_sim.yaml").read_text()
    short = folder / "short_sim.yaml"
    short.write_text(f"{text}\noptions: {{max_episode_steps: {STEPS}}}\n")
    settings = SimulatorSettings(
        simulation=str(short),
        wiring=str(find_share_path(f"config/{task}.yaml")),
        seed=1,
        disturbance=scramble,
        command_timeout_s=10.0,
    )
    with initialise_ros(["--ros-args", "-r", f"__ns:=/{task}"]):
        node = Node("simulator")
        try:
            summary = simulate(node, settings)
        finally:
            node.destroy_node()
    assert summary.timeout_count == 0 and summary.episodes[0].steps == STEPS


@pytest.mark.parametrize("scramble", [DisturbanceSettings(), DisturbanceSettings(Shuffle(True))])
def test_over_ros_the_game_goes_as_in_process_to_the_last_bit_shuffled_or_not(
    task, model, bits, tmp_path, scramble
):
    """Whatever order the patches have from the reset on, the policy sees the same."""
    in_process(task, model)
    expected, bits[:] = list(bits), []
    wiring = find_share_path(f"config/{task}.yaml")
    if scramble.is_active:
        write_wiring(derive_scrambled_wiring(load_wiring(wiring)), tmp_path / "scrambled.yaml")
        wiring = tmp_path / "scrambled.yaml"
    with policy_node(task, wiring, model):
        over_ros(task, tmp_path, scramble)
    assert len(bits) == len(expected) == STEPS
    assert bits == expected


WIRING = """
an_control_wiring: 1
robot: seer
rate_hz: 50
min_present_share: 0.1
sources:
  eye: {topic: image, type: sensor_msgs/msg/Image, max_age_s: 0.1}
channels:
  eye.*: {source: eye, image: {size: [13, 20], patch: 4, stack: 4, black: [[0, 0, 1, 20]]}}
command:
  topic: drive
  type: sensor_msgs/msg/JointState
  field: effort
  actuators: {a: {limits: [-1, 1], safe: 0.0}}
"""


@pytest.fixture
def seer(tmp_path: Path):
    path = tmp_path / "seer.yaml"
    path.write_text(WIRING)
    return load_wiring(path)


def frame(seed: int) -> Any:
    from sensor_msgs.msg import Image

    from an_control_sim.bridge.publishers import fill_image

    message = Image()
    pixels = np.random.default_rng(seed).integers(20, 256, (13, 20)).astype(np.uint8)
    fill_image(message, pixels)
    message.header.stamp.nanosec = 20_000_000 * (seed + 1)
    pixels[:1] = 0
    return message, cut_patches(pixels[None], 4)[:, 0]


def test_the_scrambled_image_shows_each_patch_where_the_scramble_has_it(seer, tmp_path):
    settings = DisturbanceSettings(Shuffle(True, 2), missing=0.4)
    write_wiring(derive_scrambled_wiring(seer), tmp_path / "scrambled.yaml")
    before = ChannelTable(seer)
    behind = ChannelTable(load_wiring(tmp_path / "scrambled.yaml"))
    scramble = Disturber([f"eye.{i}.{j}" for i in range(3) for j in range(5)], settings, 7)
    out = make_scrambled_message(seer)
    for tick in range(5):
        message, patches = frame(tick)
        stamp_ns = message.header.stamp.nanosec
        before.store_message("eye", message, stamp_ns, 0)
        out.fill_message(before.read(0, stamp_ns), scramble, stamp_ns)
        behind.store_message("scrambled", out.message, stamp_ns, 0)
        seen = behind.read(0, stamp_ns)
        assert len(seen.ids) == 9 and seen.expected == 15
        content = dict(zip(scramble.ids, scramble.signal_ids_by_slot, strict=True))
        for name, patch in zip(seen.ids, seen.values[:, -1], strict=True):
            row, column = map(int, content[name].split(".")[1:])
            np.testing.assert_array_equal(patch, patches[5 * row + column])
    assert scramble.shuffle_count == 3


@pytest.mark.parametrize("shuffle", ["none", "reset", "reset+1", "2", "reset+5"])
@pytest.mark.parametrize(
    "words", ["none", "missing=0.4", "delay=2", "lose=0.3", "missing=0.4,repeat=0.3,delay=1"]
)
def test_evaluation_does_to_patches_what_the_scrambler_does_to_the_image(
    seer, tmp_path, shuffle, words
):
    """To every frame of every stack: also of a patch that was hidden until now."""
    from an_control.disturbance.patches import PatchDisturber

    write_wiring(derive_scrambled_wiring(seer), tmp_path / "scrambled.yaml")
    before = ChannelTable(seer)
    behind = ChannelTable(load_wiring(tmp_path / "scrambled.yaml"))
    out, settings = (
        make_scrambled_message(seer),
        replace(DisturbanceSettings.parse(words), shuffle=Shuffle.parse(shuffle)),
    )
    channels = [f"eye.{i}.{j}" for i in range(3) for j in range(5)]
    over_ros, alone = (Disturber(channels, settings, 7) for _ in range(2))
    patches = PatchDisturber(alone)
    for tick in range(20):
        message, _ = frame(tick)
        stamp_ns = message.header.stamp.nanosec
        before.store_message("eye", message, stamp_ns, 0)
        readings = before.read(0, stamp_ns)
        out.fill_message(readings, over_ros, stamp_ns)
        values, ids = patches.disturb(readings.values, tuple(channels))
        assert over_ros.has_message_arrived == alone.has_message_arrived
        if over_ros.has_message_arrived:
            behind.store_message("scrambled", out.message, stamp_ns, 0)
            seen = behind.read(0, stamp_ns)
        found = dict(zip(seen.ids, seen.values, strict=True))
        assert found.keys() == set(ids)
        for name, value in zip(ids, values, strict=True):
            np.testing.assert_array_equal(found[name], value)


def test_what_cannot_be_done_to_an_image_is_refused_by_name(seer):
    out = make_scrambled_message(seer)
    out.check_settings(
        DisturbanceSettings(Shuffle(True), missing=0.5), [ScheduledChange(3, {"missing": 0.1})]
    )
    out.check_settings(DisturbanceSettings(delay=3, lose=0.1, repeat=0.1))
    for bad in ({"noise_channels": 2}, {"announce": True}, {"freeze": 0.1}, {"nan": 0.1}):
        with pytest.raises(ValueError, match=f"{next(iter(bad))}: .*shuffle, swap, missing"):
            out.check_settings(DisturbanceSettings(**bad))
    with pytest.raises(ValueError, match=r"nan: 0\.5"):
        out.check_settings(DisturbanceSettings(), [ScheduledChange(5, {"nan": 0.5})])
