"""Small motions show which channel is which; then the policy acts."""

import json

import gymnasium
import numpy as np
import pytest
import safetensors.numpy

pytest.importorskip("onnxruntime")

from foreign.networks import linear, save
from foreign.test_onnx_monitor import ANT, teacher

from an_control import load_policy
from an_control.cli import main
from an_control.monitor.excitation import (
    KEY,
    ChannelOrderFinder,
    Excitation,
    ExcitationError,
    make_exciting_actions,
    read_excitation,
    write_excitation,
)
from an_control.monitor.exciting_policy import ExcitingPolicy
from an_control.policy import ModelError, read_model

STEP_S = 0.0165
MOTION = make_exciting_actions(8, STEP_S, 0.5, 1.5)
TICKS = len(MOTION)


class Robot:
    """28 readings that follow the actions, each in a way of its own."""

    def __init__(self, seed, noise=0.002):
        self.rng, self.noise = np.random.default_rng(seed), noise
        ways = np.random.default_rng(0)
        self.mix, self.rest = ways.normal(size=(28, 8)), ways.normal(size=28)
        self.slow = ways.uniform(0.5, 0.95, 28)
        self.state = 0.1 * self.rng.normal(size=28)

    def read(self):
        noisy = self.rest + self.state + self.noise * self.rng.normal(size=28)
        return noisy.astype(np.float32)

    def act(self, action):
        self.state = self.slow * self.state + 0.2 * self.mix @ action


def run(seed, motion=MOTION):
    robot = Robot(seed)
    readings = [robot.read()]
    for action in motion:
        robot.act(action)
        readings.append(robot.read())
    return np.array(readings)


def recorded(channels, actuators=(), **changed):
    runs = np.array([run(seed) for seed in range(20)])
    parts = {"step_s": STEP_S, "motion": MOTION, "runs": runs, **changed}
    return Excitation(tuple(channels), tuple(actuators), **parts)


@pytest.fixture
def path(tmp_path):
    """The Ant's teacher with a monitor and an excitation."""
    path = teacher(tmp_path)
    assert main(["train-monitor", str(path), "--take", str(ANT)]) == 0
    excitation = tmp_path / "policy.excitation.safetensors"
    write_excitation(excitation, recorded(read_model(path).task.channels))
    beside = f"an_control_policy: 1\nexcitation: {excitation.name}\n"
    (tmp_path / "policy.policy.yaml").write_text(beside)
    return path


def drive(policy, robot, order, ticks, held=frozenset()):
    """Let the policy act on the robot; return its actions. In the ticks `held`, 0 is sent."""
    actions = []
    for tick in range(ticks):
        actions.append(policy.step_array(robot.read()[order], policy.nominal_ids))
        if tick in held:
            policy.previous_action = np.zeros(8)
        robot.act(np.zeros(8) if tick in held else actions[-1])
    return np.array(actions)


@pytest.mark.parametrize("seed", range(3))
def test_the_policy_acts_in_the_right_order_once_the_motions_are_over(path, seed):
    policy, alone = load_policy(path), load_policy(path, "off")
    assert isinstance(policy, ExcitingPolicy)
    order = np.random.default_rng(seed).permutation(28)
    robot = Robot(100 + seed)
    actions = drive(policy, robot, order, TICKS)
    np.testing.assert_array_equal(actions, MOTION)
    assert policy.monitor_report.lost
    assert "to find the order" in policy.monitor_report.waiting
    readings = robot.read()
    action = policy.step_array(readings[order], policy.nominal_ids)
    assert policy.order_known and not policy.monitor_report.waiting
    np.testing.assert_array_equal(action, alone.step_array(readings, alone.nominal_ids))


def test_a_reset_keeps_the_order_unless_the_monitor_has_lost_it(path):
    policy, order = load_policy(path), np.random.default_rng(4).permutation(28)
    drive(policy, Robot(5), order, TICKS + 1)
    policy.reset()
    assert policy.order_known
    alone, readings = load_policy(path, "off"), Robot(6).read()
    action = policy.step_array(readings[order], policy.nominal_ids)
    np.testing.assert_array_equal(action, alone.step_array(readings, alone.nominal_ids))
    drive(policy, Robot(7), order, 110)  # no Ant: its model explains nothing
    assert policy.monitor_report.lost
    policy.reset()
    assert not policy.order_known
    np.testing.assert_array_equal(drive(policy, Robot(8), order, TICKS), MOTION)


def test_while_a_motion_plays_nothing_is_prepared_for_a_tick_of_the_policy(path, monkeypatch):
    policy, order, prepared = load_policy(path), np.arange(28), []
    monkeypatch.setattr(policy.policy, "prepare_next_tick", lambda: prepared.append(1))
    robot = Robot(9)
    drive(policy, robot, order, 3)
    policy.prepare_next_tick()
    assert not prepared
    drive(policy, robot, order, TICKS - 2)
    assert policy.order_known
    policy.prepare_next_tick()
    assert prepared == [1]


def test_a_motion_that_was_not_sent_as_it_is_starts_again(path):
    policy, order = load_policy(path), np.random.default_rng(4).permutation(28)
    robot = Robot(9)
    actions = drive(policy, robot, order, 40 + TICKS, held={39})
    np.testing.assert_array_equal(actions[:40], MOTION[:40])
    np.testing.assert_array_equal(actions[40:], MOTION)
    drive(policy, robot, order, 1)
    assert policy.order_known


def test_a_gate_that_never_lets_a_motion_pass_is_reported(path):
    policy, order = load_policy(path), np.arange(28)
    drive(policy, Robot(1), order, 4 * TICKS, held=set(range(4 * TICKS)))
    assert not policy.order_known
    assert "limits or max_rate" in policy.monitor_report.waiting


def test_the_policy_never_acts_on_a_robot_that_does_not_answer(path):
    policy = load_policy(path)
    readings, tries = Robot(1).read(), 5
    for tick in range(tries * TICKS + 20):
        action = policy.step_array(readings, policy.nominal_ids)
        assert np.abs(action).max() <= 0.5
        if tick == TICKS + 1:
            assert "is played again" in policy.monitor_report.waiting
    assert not policy.order_known and not action.any()
    assert "not found by 5 excitations" in policy.monitor_report.waiting
    policy.reset()
    np.testing.assert_array_equal(drive(policy, Robot(2), np.arange(28), TICKS), MOTION)


def test_the_order_is_found_although_some_channels_are_missing():
    matcher = ChannelOrderFinder(recorded(map(str, range(28))))
    order, readings = np.random.default_rng(1).permutation(28), run(77)
    readings[:, [3, 9]] = np.nan
    readings[10:14, 5] = np.nan
    found = matcher.find_channel_order(readings[:, order])
    assert not found.problem
    there = [channel for channel in range(28) if channel not in (3, 9)]
    assert [order[found.slots[channel]] for channel in there] == there
    readings[:, :9] = np.nan
    assert matcher.find_channel_order(readings[:, order]).problem == "10 of 28 channels are missing"


def test_channels_with_the_same_answers_are_named():
    runs = np.array([run(seed) for seed in range(20)])
    runs[:, :, [4, 11]] = 1.0
    excitation = recorded((f"c{i}" for i in range(28)), runs=runs)
    matcher = ChannelOrderFinder(excitation)
    assert matcher.list_indistinguishable_channel_groups() == [("c4", "c11")]
    assert not matcher.find_channel_order(runs[0]).problem


def test_an_order_that_may_be_another_is_not_certain():
    runs = np.array([run(seed) for seed in range(20)])
    matcher = ChannelOrderFinder(recorded((f"c{i}" for i in range(28)), runs=runs))
    readings = run(50)
    readings[:, 6] = readings[:, 8] = 0.5 * (readings[:, 6] + readings[:, 8])
    assert matcher.find_channel_order(readings).problem.endswith("may be exchanged")


def test_motions_are_small_smooth_and_end_where_they_began():
    for actuators, step_s in ((1, 0.02), (8, STEP_S), (23, 0.002), (2, 0.5)):
        motion = make_exciting_actions(actuators, step_s, 0.3, 5.0)
        assert motion.shape == (round(5.0 / step_s), actuators)
        assert 0.15 < np.abs(motion).max() <= 0.3
        assert not motion[0].any() and not motion[-1].any()
        fastest = 2.0 * np.pi * 4.0 + 1.0 / 0.25
        assert np.abs(np.diff(motion, axis=0)).max() < 0.3 * fastest * step_s


def test_what_is_written_is_read_again(tmp_path):
    excitation = recorded("abcdefghijklmnopqrstuvwxyz12", "ABCDEFGH")
    write_excitation(tmp_path / "e.safetensors", excitation)
    again = read_excitation(tmp_path / "e.safetensors")
    assert (again.channels, again.actuators, again.step_s) == (
        excitation.channels, excitation.actuators, STEP_S,
    )  # fmt: skip
    np.testing.assert_array_equal(again.runs, excitation.runs)
    np.testing.assert_array_equal(again.motion, excitation.motion)


def written(path, arrays, **header):
    header = {"format": 1, "channels": ["a", "b"], "actuators": [], "step_s": 0.02, **header}
    path.write_bytes(safetensors.numpy.save(arrays, metadata={KEY: json.dumps(header)}))


GOOD = {"motion": np.zeros((20, 2), np.float32), "runs": np.ones((3, 21, 2), np.float32)}


@pytest.mark.parametrize(
    ("arrays", "header", "reason"),
    [
        (GOOD, {"format": 2}, "its format is not 1"),
        (GOOD, {"channels": ["a", "a"]}, "a name occurs twice"),
        (GOOD, {"channels": [1, 2]}, "not a list of names"),
        (GOOD, {"channels": ["a", "b", "c"]}, "runs: of shape"),
        (GOOD, {"step_s": 0}, "step_s: 0 is not from"),
        ({"motion": GOOD["motion"]}, {}, "arrays motion, not motion and runs"),
        ({**GOOD, "motion": 2 + GOOD["motion"]}, {}, "must be float32 from -1 to 1"),
        ({**GOOD, "runs": GOOD["runs"] * np.float32(np.nan)}, {}, "must be float32 from -1e"),
        ({**GOOD, "runs": GOOD["runs"].astype(np.float64)}, {}, "must be float32"),
    ],
)
def test_a_bad_excitation_is_refused_in_one_line(tmp_path, arrays, header, reason):
    path = tmp_path / "e.safetensors"
    written(path, arrays, **header)
    with pytest.raises(ExcitationError) as caught:
        read_excitation(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: not an excitation: ") and reason in text and "\n" not in text


@pytest.mark.parametrize("content", [b"", b"\x00", b"garbage" * 9, bytes(8) + b"{}", b"\xff" * 64])
def test_garbage_is_no_excitation(tmp_path, content):
    (tmp_path / "e.safetensors").write_bytes(content)
    with pytest.raises(ExcitationError, match="not an excitation"):
        read_excitation(tmp_path / "e.safetensors")


def test_what_does_not_fit_the_policy_is_refused(path):
    excitation = path.with_name("policy.excitation.safetensors")
    task = read_model(path).task
    for changed, reason in (
        (recorded(task.channels[::-1]), "excitation: its channels are not those of the policy"),
        (recorded(task.channels, task.actuators[::-1]), "excitation: its actuators are not"),
        (recorded(task.channels, step_s=0.02), "recorded at 0.02 s a tick, but the policy has"),
    ):
        write_excitation(excitation, changed)
        with pytest.raises(ModelError, match=reason):
            load_policy(path)
    write_excitation(excitation, recorded(task.channels, task.actuators))
    assert isinstance(load_policy(path), ExcitingPolicy)
    excitation.unlink()
    with pytest.raises(ModelError, match=r"excitation\.safetensors: No such file"):
        load_policy(path)


def test_without_a_monitor_an_unknown_order_is_refused_unless_that_is_asked_for(path):
    path.with_name("policy.monitor.safetensors").unlink()
    with pytest.raises(ModelError, match="excitation: needs a monitor that is on"):
        load_policy(path)
    load_policy(path, "off")


def test_student_and_excitation_exclude_each_other(path):
    beside = path.with_name("policy.policy.yaml")
    beside.write_text(beside.read_text() + "hand_over: student.safetensors\n")
    with pytest.raises(ModelError, match="only one of excitation and hand_over"):
        load_policy(path)


class Pushed(gymnasium.Env):
    """Six readings that two actions push; it falls if they push too hard."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (6,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    step_s = 0.02
    mix = np.random.default_rng(3).normal(size=(6, 2))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 0.1 * self.np_random.normal(size=6)
        return self.state.astype(np.float32), {}

    def step(self, action):
        slow = np.linspace(0.6, 0.95, 6)
        self.state = slow * self.state + 0.2 * self.mix @ action
        seen = self.state + 0.001 * self.np_random.normal(size=6)
        return seen.astype(np.float32), 0.0, bool(np.abs(action).max() > 0.5), False, {}


gymnasium.register("test/Pushed-v0", Pushed, max_episode_steps=400)


@pytest.fixture
def small(tmp_path):
    from an_control_sim.gym.environments import describe_task, make_environment

    task = describe_task(make_environment("test/Pushed-v0"), "test/Pushed-v0", "test/Pushed-v0")
    return save(tmp_path, linear(6, 2, {
        "observation_names": ",".join(task.channels), "joint_names": ",".join(task.actuators),
        "step_s": "0.02", "task": "test/Pushed-v0",
    }))  # fmt: skip


def test_the_verb_records_an_excitation_by_which_the_order_is_found(small, capsys):
    asked = ["--amplitude", "0.4", "--seconds", "2", "--runs", "12"]
    assert main(["record-excitation", str(small), *asked]) == 0
    out = small.with_name("policy.excitation.safetensors")
    assert f"policy.policy.yaml: excitation: {out.name}" in capsys.readouterr().out
    excitation = read_excitation(out)
    assert excitation.runs.shape == (12, 101, 6) and 0.2 < excitation.amplitude <= 0.4
    env, order = Pushed(), np.array([4, 2, 0, 5, 1, 3])
    seen = [env.reset(seed=99)[0]] + [env.step(action)[0] for action in excitation.motion]
    found = ChannelOrderFinder(excitation).find_channel_order(np.array(seen)[:, order])
    assert not found.problem
    np.testing.assert_array_equal(order[found.slots], np.arange(6))


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (["--amplitude", "0.9"], "the robot must stand or lie safely during the motions"),
        (["--amplitude", "2"], "--amplitude 2: must be from 0.01 to 1"),
        (["--amplitude", "0.3", "--runs", "2"], "--runs 2: must be from 10 to 1000"),
        (["--amplitude", "0.3", "--seconds", "9"], "the episode ended after 400 of 450 ticks"),
        (["--amplitude", "0.3", "--task", "CartPole-v1"], "its channels differ from those of task"),
        (["--amplitude", "0.3", "--task", "Nothing-v0"], "--task: "),
        (["--amplitude", "0.3", "--disturb", "start=rest"], "--disturb: "),
        (["--amplitude", "0.3", "--disturb", "swap=2"], "--disturb: "),
        (["--amplitude", "0.3", "--out", "e.npz"], "must end in .safetensors"),
    ],
)
def test_the_verb_refuses_what_cannot_be_in_one_line(small, capsys, asked, reason):
    assert main(["record-excitation", str(small), *asked]) == 2
    error = capsys.readouterr().err.strip()
    assert reason in error and "\n" not in error
    assert not small.with_name("policy.excitation.safetensors").exists()


def test_only_an_onnx_file_can_have_an_excitation(capsys):
    assert main(["record-excitation", str(ANT), "--amplitude", "0.3"]) == 2
    assert "must end in .onnx" in capsys.readouterr().err


def test_an_ant_on_the_ground_finds_its_order(tmp_path):
    pytest.importorskip("pybullet")
    path = teacher(tmp_path)
    asked = ["--amplitude", "0.5", "--disturb", "start=rest", "--runs", "12", "--seconds", "4"]
    assert main(["record-excitation", str(path), *asked]) == 0
    from an_control_sim.gym.environments import open_environment

    excitation = read_excitation(tmp_path / "policy.excitation.safetensors")
    env = open_environment("an_control_sim:an_control/Ant-v0")
    seen = [env.reset(seed=9, options={"start": "rest"})[0]]
    seen += [env.step(action)[0] for action in excitation.motion]
    env.close()
    order, matcher = np.random.default_rng(2).permutation(28), ChannelOrderFinder(excitation)
    found = matcher.find_channel_order(np.array(seen)[:, order])
    assert not found.problem
    assert all(matcher.alike[order[slot], channel] for channel, slot in enumerate(found.slots))
    feet = tuple(excitation.channels[-4:])
    assert matcher.list_indistinguishable_channel_groups() == [feet]
