"""The node plays an excitation through its gate, and then lets the policy act."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("rclpy")

from diagnostic_msgs.msg import DiagnosticArray
from foreign.networks import linear, save
from stand import IDS, SCALE, Stand

from an_control import load_policy
from an_control.monitor.excitation import Excitation, make_exciting_actions, write_excitation
from an_control.policy import read_model, write_model
from an_control.policy.sizes import ForwardSizes
from an_control.ros import control_loop

NAMED = {"observation_names": ",".join(IDS), "joint_names": "left,right", "step_s": "0.01"}
MOTION = make_exciting_actions(2, 0.01, 0.5, 0.8)
ORDER = [2, 0, 3, 1]


class Robot:
    """Four readings that the two actions push, each in a way of its own."""

    mix = np.array([[1.0, 0.2], [-0.5, 0.9], [0.1, -1.0], [0.8, 0.7]])

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.state = 0.05 * self.rng.normal(size=4)

    def read(self):
        return (self.state + 0.001 * self.rng.normal(size=4)).astype(np.float32)

    def act(self, action):
        self.state = 0.8 * self.state + 0.2 * self.mix @ action


def run(seed):
    robot = Robot(seed)
    readings = [robot.read()]
    for action in MOTION:
        robot.act(action)
        readings.append(robot.read())
    return readings


@pytest.fixture
def stand(tmp_path, monkeypatch):
    monkeypatch.setattr(control_loop, "DIAGNOSTICS_S", 0.2)
    one = Stand(tmp_path)
    one.model = save(tmp_path, linear(4, 2, NAMED))
    model, forward = read_model(one.model), ForwardSizes([2], 2, [])
    arrays = {n: np.zeros(s, np.float32) for n, s in forward.list_array_shapes(4, 2).items()}
    arrays["forward.step"] += 1.0
    arrays["identity.units"] += 1.0
    write_model(one.model, replace(model, forward=forward, arrays=arrays))
    runs = np.array([run(seed) for seed in range(12)])
    excitation = Excitation(IDS, ("left", "right"), 0.01, MOTION, runs)
    write_excitation(tmp_path / "e.safetensors", excitation)
    beside = "an_control_policy: 1\nexcitation: e.safetensors\n"
    (tmp_path / "policy.policy.yaml").write_text(beside)
    yield one
    one.close()


def test_the_node_plays_the_motions_and_then_commands_what_the_policy_says(stand):
    stand.start()
    robot, heard = Robot(99), []
    stand.peer.create_subscription(DiagnosticArray, "/diagnostics", heard.append, 10)
    for step, action in enumerate(MOTION, start=1):
        effort = np.array(stand.step(step, robot.read()[ORDER]).effort)
        np.testing.assert_allclose(effort, SCALE * action, atol=1e-6)
        robot.act(effort / SCALE)
        if step == len(MOTION) // 2:
            stand.until(lambda: len(heard) >= 2, "diagnostics")
    monitor = next(one for one in heard[-1].status if one.name.endswith(": monitor"))
    assert monitor.message == "the excitation is played, to find the order of the channels"
    alone, readings = load_policy(stand.model, "off"), robot.read()
    effort = stand.step(len(MOTION) + 1, readings[ORDER]).effort
    expected = SCALE * alone.step_array(readings, IDS).astype(np.float64)
    np.testing.assert_allclose(effort, expected, atol=1e-6)
