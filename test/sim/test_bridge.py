"""The bridge over real rclpy and real messages, with a responder on the bridge's own thread."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest

pytest.importorskip("rclpy")
import rclpy
from rclpy.context import Context
from rclpy.node import Node
from rclpy.qos import ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import Float64MultiArray
from std_srvs.srv import SetBool, Trigger

from an_control.disturbance import episode_seed
from an_control.ros.graph import owner
from an_control_sim.bridge.bridge import Bridge, Restarted
from an_control_sim.bridge.episodes import Progress, run_episodes
from an_control_sim.bridge.policy_link import BridgeError
from an_control_sim.bridge.robot import Robot
from an_control_sim.bridge.simulation import load_simulation

YAML = """
an_control_simulation: 1
environment: test/Tiny-v0
step_s: 0.01
publish:
  joints:
    type: sensor_msgs/msg/JointState
    fields: {name: [left, right], position: "observation[0:2]", velocity: sensors.speed}
  feet:
    type: std_msgs/msg/Float64MultiArray
    fields: {data: "observation[2:3]"}
command:
  topic: commands
  type: sensor_msgs/msg/JointState
  field: effort
  actuators: {left: {scale: 10.0, safe: 0.0}, right: {scale: 10.0, safe: 5.0}}
camera: {topic: camera, frame_id: eye}
"""


class TinyEnv(gymnasium.Env):
    """Two numbers that the two actions push; 20 steps; remembers what it was given."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"]}
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    actions: ClassVar[list[np.ndarray]] = []
    pictures = 0

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.place = self.np_random.normal(size=2)
        TinyEnv.actions.clear()
        return self._observe(), {"distance_m": 0.0}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        TinyEnv.actions.append(action)
        self.place = 0.9 * self.place + 0.1 * action + 0.01 * self.np_random.normal(size=2)
        over = len(TinyEnv.actions) >= 20
        return self._observe(), float(self.place.sum()), False, over, {"distance_m": 1.5}

    def sensors(self) -> dict[str, Any]:
        return {"speed": self.place * 2.0}

    def render(self) -> np.ndarray:
        TinyEnv.pictures += 1
        return np.full((4, 5, 3), TinyEnv.pictures, np.uint8)

    def _observe(self) -> np.ndarray:
        return np.array([*self.place, len(TinyEnv.actions)], np.float32)


gymnasium.register("test/Tiny-v0", TinyEnv)


class Responder(Node):
    """The policy's part: `answer` turns the messages of a step into what is sent, or nothing."""

    def __init__(self) -> None:
        super().__init__("policy")
        self.answer: Callable[[JointState], JointState | None] = self.push_back
        self.seen: dict[str, Any] = {}
        self.stamps: list[int] = []
        self.active, self.resets = True, 0
        for topic, kind in (("joints", JointState), ("feet", Float64MultiArray), ("/clock", Clock)):
            self.create_subscription(kind, topic, self._listen(topic), 10)
        self.publisher = self.create_publisher(JointState, "commands", 10)
        self.create_service(Trigger, "~/reset_state", self._reset)
        self.pause = self.create_client(SetBool, "simulator/pause")
        self.step = self.create_client(Trigger, "simulator/step")
        self.reset = self.create_client(Trigger, "simulator/reset")

    def push_back(self, joints: JointState) -> JointState:
        """Half of each joint's place, against it; the joints in the other order than the YAML's."""
        efforts = [-5.0 * value for value in reversed(joints.position)]
        return command(joints, ["right", "left"], efforts)

    def _listen(self, topic: str) -> Callable[[Any], None]:
        def listen(message: Any) -> None:
            self.seen[topic] = message
            if {"joints", "feet"} <= set(self.seen):
                joints = self.seen.pop("joints")
                self.seen.pop("feet")
                self.stamps.append(nanoseconds(joints.header.stamp))
                reply = self.answer(joints)
                if reply is not None:
                    self.publisher.publish(reply)

        return listen

    def _reset(self, request: Any, response: Any) -> Any:
        self.resets += 1
        self.seen.clear()
        response.success, response.message = self.active, "" if self.active else "not active"
        return response


def command(joints: JointState, names: list[str], efforts: list[float]) -> JointState:
    message = JointState(name=names, effort=array("d", efforts))
    message.header.stamp = joints.header.stamp
    return message


def nanoseconds(stamp: Any) -> int:
    return stamp.sec * 1_000_000_000 + stamp.nanosec


@pytest.fixture
def simulation(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(YAML)
    return path


@pytest.fixture
def responder() -> Iterator[Responder]:
    rclpy.init()
    node = Responder()
    yield node
    node.destroy_node()
    rclpy.shutdown()


@pytest.fixture
def serve(simulation: Path, responder: Responder) -> Iterator[Callable[..., Bridge]]:
    """Makes a bridge with the responder on its executor, not started."""
    bridges = []

    def make(camera_hz: float = 0.0, **options: Any) -> Bridge:
        robot = Robot(load_simulation(simulation), camera=camera_hz > 0)
        bridge = Bridge(Node("simulator"), robot, camera_hz=camera_hz, **options)
        bridge.executor.add_node(responder)
        bridges.append(bridge)
        return bridge

    yield make
    for bridge in bridges:
        bridge.executor.remove_node(responder)
        bridge.close()
        bridge.node.destroy_node()


def finish(bridge: Bridge, future: Any) -> Any:
    """Run the executor until a service call has its reply."""
    until_s = time.monotonic() + 10.0
    while not future.done():
        assert time.monotonic() < until_s, "no reply from a service"
        bridge.executor.spin_once(timeout_sec=0.1)
    return future.result()


def begin(bridge: Bridge) -> None:
    bridge.start()
    bridge.reset(0, 0)


def test_the_same_seed_twice_gives_the_same_returns_to_the_last_bit(serve):
    bridge = serve()
    first, second, other = (run_episodes(bridge, episodes=2, seed=s) for s in (1, 1, 2))
    assert [one.return_ for one in first] == [one.return_ for one in second]
    assert first[0].return_ != first[1].return_ != other[0].return_
    assert [one.steps for one in first] == [20, 20]
    assert first[0].distance_m == 1.5 and first[0].timeouts == 0
    assert len(first[0].latency_s) == 20


def test_over_ros_an_episode_equals_the_one_in_process_to_the_last_bit(serve):
    over_ros = run_episodes(serve(), episodes=1, seed=5)[0]
    environment = gymnasium.make("test/Tiny-v0", disable_env_checker=True)
    observation, _ = environment.reset(seed=episode_seed(5, 0))
    total, over = 0.0, False
    while not over:
        push = np.float64(-5.0) * observation[:2].astype(np.float64) / 10.0
        action = np.clip(push, -1.0, 1.0).astype(np.float32)
        observation, reward, _, over, _ = environment.step(action)
        total += reward
    assert over_ros.return_ == total


def test_all_messages_of_a_step_carry_its_stamp_and_stamps_only_rise(serve, responder):
    bridge = serve()
    clocks: list[int] = []
    responder.create_subscription(
        Clock, "/clock", lambda message: clocks.append(nanoseconds(message.clock)), 10
    )
    run_episodes(bridge, episodes=2, seed=0)
    assert len(responder.stamps) == 40
    assert set(np.diff(responder.stamps)) == {10_000_000}
    assert responder.stamps[0] > 0
    assert set(clocks) <= set(responder.stamps) and len(clocks) >= 39


def test_commands_are_taken_by_name_and_scaled(serve, responder):
    bridge = serve()
    responder.answer = lambda joints: command(joints, ["right", "x", "left"], [2.5, 9.0, -50.0])
    begin(bridge)
    bridge.step()
    assert TinyEnv.actions[-1].tolist() == [-1.0, 0.25]
    assert TinyEnv.actions[-1].dtype == np.float32


def test_a_lost_command_leads_to_the_safe_action_and_is_counted(serve, responder):
    bridge = serve(command_timeout_s=0.15)
    lost = [3, 4]
    responder.answer = lambda joints: (
        None if len(TinyEnv.actions) in lost else responder.push_back(joints)
    )
    result = run_episodes(bridge, episodes=1, seed=0)[0]
    assert result.timeouts == 2 and result.steps == 20
    assert [TinyEnv.actions[i].tolist() for i in lost] == [[0.0, 0.5], [0.0, 0.5]]
    assert all(action.tolist() != [0.0, 0.5] for action in TinyEnv.actions[5:])


def test_a_late_command_gets_the_same_step_again(serve, responder):
    bridge = serve(command_timeout_s=0.6)
    responder.answer = lambda joints: (
        responder.push_back(joints) if responder.stamps.count(responder.stamps[-1]) > 1 else None
    )
    begin(bridge)
    bridge.step()
    assert bridge.timeouts == 0 and len(TinyEnv.actions) == 1
    assert len(responder.stamps) == 2 and len(set(responder.stamps)) == 1


@pytest.mark.parametrize(
    ("names", "efforts"),
    [
        (["left"], [1.0]),
        (["left", "right"], [1.0, float("nan")]),
        (["left", "right"], [1.0, float("inf")]),
        (["left", "right"], [1.0]),
        ([], []),
    ],
)
def test_a_command_not_whole_and_finite_counts_as_not_come(serve, responder, names, efforts):
    bridge = serve(command_timeout_s=0.1)
    responder.answer = lambda joints: command(joints, names, efforts)
    begin(bridge)
    bridge.step()
    assert TinyEnv.actions[-1].tolist() == [0.0, 0.5]
    assert bridge.timeouts == 1


def test_a_command_for_another_step_is_not_taken(serve, responder):
    bridge = serve(command_timeout_s=0.1)

    def stale(joints: JointState) -> JointState:
        joints.header.stamp.sec -= 1
        return responder.push_back(joints)

    responder.answer = stale
    begin(bridge)
    bridge.step()
    assert bridge.timeouts == 1


def test_while_paused_only_the_step_service_steps(serve, responder):
    bridge = serve()
    begin(bridge)
    refused = finish(bridge, responder.step.call_async(Trigger.Request()))
    assert not refused.success and "pause" in refused.message
    finish(bridge, responder.pause.call_async(SetBool.Request(data=True)))
    asked = responder.step.call_async(Trigger.Request())
    bridge.step()
    assert finish(bridge, asked).success
    assert len(TinyEnv.actions) == 1 == len(responder.stamps)
    finish(bridge, responder.pause.call_async(SetBool.Request(data=False)))
    bridge.step()
    assert len(TinyEnv.actions) == 2


def test_the_reset_service_begins_the_running_episode_anew(serve, responder):
    bridge = serve()
    asked = []

    def ask_once(progress: Progress) -> None:
        if progress.steps == 0 and not asked:
            asked.append(responder.reset.call_async(Trigger.Request()))

    undisturbed = run_episodes(bridge, episodes=1, seed=3)[0]
    resets = responder.resets
    disturbed = run_episodes(bridge, episodes=1, seed=3, progress=ask_once)
    assert [one.return_ for one in disturbed] == [undisturbed.return_]
    assert responder.resets == resets + 3, "one at the start, one an episode, one for the service"
    assert finish(bridge, asked[0]).success


def test_a_reset_in_the_middle_leaves_the_step_undone(serve, responder):
    bridge = serve()
    begin(bridge)
    bridge.step()
    asked = responder.reset.call_async(Trigger.Request())
    with pytest.raises(Restarted):
        while True:
            bridge.step()
    bridge.reset(0, 0)
    assert TinyEnv.actions == []
    assert finish(bridge, asked).success


HELD = [np.float32(0.3), np.float32(0.3)]


def push(joints: JointState) -> JointState:
    return command(joints, ["left", "right"], [3.0, 3.0])


def step_until(bridge: Bridge, action: list[float]) -> None:
    """Step until the environment gets that action, soon."""
    for _ in range(1000):
        bridge.step()
        if TinyEnv.actions[-1].tolist() == action:
            return
    pytest.fail(f"the action never was {action}")


def test_real_time_is_paced_and_holds_the_newest_command(serve, responder):
    bridge = serve(realtime=True, command_timeout_s=60.0)
    responder.answer = push
    begin(bridge)
    step_until(bridge, HELD)
    responder.answer = lambda joints: None
    begin_s = time.monotonic()
    for _ in range(10):
        bridge.step()
        assert TinyEnv.actions[-1].tolist() == HELD
    assert time.monotonic() - begin_s >= 0.09, "10 steps of 0.01 s, the first may be late"


def test_in_real_time_an_old_command_gives_way_to_the_safe_one(serve, responder):
    bridge = serve(realtime=True, command_timeout_s=0.05)
    responder.answer = push
    begin(bridge)
    step_until(bridge, HELD)
    responder.answer = lambda joints: None
    timeouts = bridge.timeouts
    step_until(bridge, [0.0, 0.5])
    assert bridge.timeouts > timeouts


def test_in_real_time_the_robot_runs_without_anybody_in_command(serve, responder):
    bridge = serve(realtime=True, policy="")
    responder.answer = lambda joints: None
    result = run_episodes(bridge, episodes=1, seed=0)[0]
    assert result.timeouts == 20 == result.steps
    assert responder.resets == 0


def test_stop_ends_the_run_with_what_has_finished(serve):
    bridge = serve()

    def stop(progress: Progress) -> None:
        if progress.episode == 1:
            bridge.stop()

    results = run_episodes(bridge, episodes=0, seed=0, progress=stop)
    assert len(results) == 1


def test_progress_tells_of_every_episode_and_its_result(serve):
    told: list[Progress] = []
    results = run_episodes(serve(), episodes=2, seed=0, progress=told.append)
    assert [one.finished for one in told if one.finished] == results
    assert {one.episodes for one in told} == {2}


def test_without_a_policy_the_error_says_what_was_waited_for(serve):
    bridge = serve(policy="nobody", start_timeout_s=0.2)
    with pytest.raises(BridgeError, match=r"0\.2 s.*/nobody/reset_state: there is no such service"):
        run_episodes(bridge, episodes=1, seed=0)


def test_a_policy_that_is_not_active_is_waited_for(serve, responder):
    bridge = serve(start_timeout_s=0.4)
    responder.active = False
    with pytest.raises(BridgeError, match="it says 'not active'"):
        bridge.start()
    responder.active = True
    bridge.start()


def test_a_policy_gone_silent_for_good_ends_the_run(serve, responder):
    bridge = serve(command_timeout_s=0.05, start_timeout_s=1.0)
    responder.answer = lambda joints: None
    with pytest.raises(BridgeError, match="no command on /commands for 1 s: is /policy still"):
        run_episodes(bridge, episodes=0, seed=0)


def test_all_topics_are_reliable(serve):
    bridge = serve(camera_hz=10.0)
    begin(bridge)
    for topic in ("/joints", "/feet", "/clock", "/camera"):
        infos = bridge.node.get_publishers_info_by_topic(topic)
        assert [one.qos_profile.reliability for one in infos] == [ReliabilityPolicy.RELIABLE]


def test_pictures_are_made_only_while_somebody_looks(serve, responder):
    TinyEnv.pictures = 0
    bridge = serve(camera_hz=50.0)
    run_episodes(bridge, episodes=1, seed=0)
    assert TinyEnv.pictures == 0
    pictures: list[Image] = []
    responder.create_subscription(Image, "camera", pictures.append, 10)
    while not pictures:
        run_episodes(bridge, episodes=1, seed=0)
    TinyEnv.pictures = 0
    run_episodes(bridge, episodes=1, seed=0)
    assert TinyEnv.pictures == 10, "50 a second in 20 steps of 0.01 s"
    assert (pictures[0].height, pictures[0].width, pictures[0].encoding) == (4, 5, "rgb8")
    assert pictures[0].step == 15 and bytes(pictures[0].data) == bytes([1] * 60)
    assert pictures[0].header.frame_id == "eye"


@pytest.fixture
def rival() -> Iterator[Node]:
    """Another simulator of the same name, behind a participant of its own."""
    context = Context()
    rclpy.init(args=[], context=context, signal_handler_options=SignalHandlerOptions.NO)
    node = Node("simulator", context=context)
    yield node
    node.destroy_node()
    rclpy.shutdown(context=context)


def known(bridge: Bridge, topic: str, publishers: int) -> None:
    """Wait until the graph has so many, and the names of their nodes."""
    until_s = time.monotonic() + 10.0
    look = bridge.node.get_publishers_info_by_topic
    while [owner(one) for one in look(topic)] != ["/simulator"] * publishers:
        assert time.monotonic() < until_s, f"{publishers} publishers on {topic}"
        bridge.executor.spin_once(timeout_sec=0.05)


@pytest.mark.parametrize("realtime", [False, True])
@pytest.mark.parametrize(("topic", "type_"), [("/clock", Clock), ("/joints", JointState)])
def test_beside_another_simulator_it_does_not_start_and_says_why(
    serve, responder, rival, topic, type_, realtime
):
    rival.create_publisher(type_, topic, 10)
    bridge = serve(realtime=realtime, policy="" if realtime else "policy", start_timeout_s=0.2)
    known(bridge, topic, 2)
    with pytest.raises(BridgeError, match=rf"/simulator on {topic}; .* ROS_DOMAIN_ID"):
        run_episodes(bridge, episodes=1, seed=0)
    assert responder.resets == 0, "the policy may be the other's"


def test_it_starts_once_the_other_simulator_has_ended(serve, rival):
    publisher = rival.create_publisher(Clock, "/clock", 10)
    bridge = serve()
    known(bridge, "/clock", 2)
    ending = bridge.node.create_timer(0.1, lambda: rival.destroy_publisher(publisher))
    assert run_episodes(bridge, episodes=1, seed=0)[0].steps == 20
    bridge.node.destroy_timer(ending)


def test_another_simulator_that_comes_later_is_an_error_in_the_log_once(serve, rival, capfd):
    bridge = serve(policy="", realtime=True)
    bridge.start()
    rival.create_publisher(Clock, "/clock", 10)
    known(bridge, "/clock", 2)
    for _ in range(3):
        bridge._look_for_rivals()
    assert capfd.readouterr().err.count("/simulator on /clock") == 1
