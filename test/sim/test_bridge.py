"""The bridge over real rclpy and real messages, with a responder on the bridge's own thread."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

pytest.importorskip("rclpy")
from rclpy.qos import ReliabilityPolicy
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Image, JointState
from std_srvs.srv import SetBool, Trigger
from tiny_robot import TinyEnv, begin, command, finish, nanoseconds

from an_control.disturbance import DisturbanceSettings, derive_episode_seed
from an_control_sim.bridge.episodes import EpisodeProgress, RunSummary, run_episodes
from an_control_sim.bridge.policy_link import BridgeError
from an_control_sim.bridge.run_control import RestartRequestedError


def test_the_same_seed_twice_gives_the_same_returns_to_the_last_bit(serve):
    bridge = serve()
    first, second, other = (run_episodes(bridge, episodes=2, seed=s) for s in (1, 1, 2))
    assert [one.return_ for one in first] == [one.return_ for one in second]
    assert first[0].return_ != first[1].return_ != other[0].return_
    assert [one.steps for one in first] == [20, 20]
    assert first[0].distance_m == 1.5 and first[0].timeouts == 0
    assert len(first[0].latency_s) == 20


def summary_line(episodes):
    return RunSummary(tuple(episodes)).format_lines()[0]


def test_a_run_gives_its_mean_return_with_the_standard_error(serve):
    episodes = run_episodes(serve(), episodes=3, seed=1)
    returns = [one.return_ for one in episodes]
    error = np.std(returns, ddof=1) / np.sqrt(3)
    shown = re.search(r" \+- (\S+) \(standard error\) over 3 episodes", summary_line(episodes))
    assert float(shown[1]) == pytest.approx(error, rel=0.05, abs=0.05)
    assert "+-" not in summary_line(episodes[:1])


def test_over_ros_an_episode_equals_the_one_in_process_to_the_last_bit(serve):
    over_ros = run_episodes(serve(), episodes=1, seed=5)[0]
    environment = gymnasium.make("test/Tiny-v0", disable_env_checker=True)
    observation, _ = environment.reset(seed=derive_episode_seed(5, 0))
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
    bridge = serve(command_timeout_s=4.0)
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


def test_a_pause_that_is_asked_for_within_a_step_is_answered_when_the_step_is_over(
    serve, responder
):
    bridge, asked, replied = serve(command_timeout_s=4.0), [], []

    def ask(joints: JointState) -> JointState | None:
        """No command to the first message, so that the step's second one comes."""
        if not asked:
            asked.append(responder.pause.call_async(SetBool.Request(data=True)))
            return None
        replied.append(asked[0].done())
        return responder.push_back(joints)

    responder.answer = ask
    begin(bridge)
    finish(bridge, responder.pause.call_async(SetBool.Request(data=False)))
    bridge.step()
    assert replied == [False] and len(TinyEnv.actions) == 1
    assert finish(bridge, asked[0]).success


def test_the_progress_of_an_episode_goes_out_while_somebody_listens(serve, responder):
    bridge, heard = serve(), []
    responder.create_subscription(JointState, "simulator/progress", heard.append, 10)

    def wait(ready: Callable[[], object]) -> None:
        until_s = time.monotonic() + 100.0
        while not ready():
            assert time.monotonic() < until_s
            bridge.run.executor.spin_once(timeout_sec=0.02)

    begin(bridge)
    wait(bridge._progress._publisher.get_subscription_count)
    rewards = []
    for count in (1, 2):
        bridge.step()
        rewards.append(bridge.robot.reward)
        wait(lambda count=count: len(heard) == count)
    figures = dict(zip(heard[-1].name, heard[-1].position, strict=True))
    assert (figures["episode"], figures["step"]) == (0.0, 2.0)
    assert figures["reward"] == rewards[1] and figures["return"] == sum(rewards)
    assert np.isnan(figures["last_return"])


def test_the_reset_service_begins_the_running_episode_anew(serve, responder):
    bridge = serve()
    asked = []

    def ask_once(progress: EpisodeProgress) -> None:
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
    with pytest.raises(RestartRequestedError):
        while True:
            bridge.step()
    bridge.start_episode(0, 0)
    assert TinyEnv.actions == []
    assert finish(bridge, asked).success


def test_stop_ends_the_run_with_what_has_finished(serve):
    bridge = serve()

    def stop(progress: EpisodeProgress) -> None:
        if progress.episode == 1:
            bridge.run.stop()

    results = run_episodes(bridge, episodes=0, seed=0, progress=stop)
    assert len(results) == 1


def stoppable(responder) -> list[str]:
    """What the responder's e-stop is asked for."""
    asked = []

    def answer(name: str, response: Any) -> Any:
        asked.append(name)
        response.success = True
        return response

    for name in ("estop", "reset_estop"):
        responder.create_service(Trigger, f"~/{name}", lambda _, r, name=name: answer(name, r))
    return asked


def test_an_episode_begins_without_the_stop_in_which_the_one_before_was_ended(serve, responder):
    bridge, asked = serve(), stoppable(responder)
    begin(bridge)
    bridge.wait_for_estop()
    bridge.set_estop(True)
    bridge.start_episode(0, 0)
    assert asked == ["estop", "reset_estop"]
    bridge.start_episode(0, 1)
    assert len(asked) == 2


def test_a_simulator_that_ends_during_a_stop_leaves_no_policy_stopped(
    serve, responder, monkeypatch
):
    bridge, asked = serve(), stoppable(responder)
    begin(bridge)
    bridge.wait_for_estop()
    bridge.set_estop(True)
    bridge.run.stop()
    bridge.close()
    assert asked == ["estop", "reset_estop"]
    monkeypatch.setattr(bridge, "close", lambda: None)


def test_a_stop_shorter_than_a_step_stops_nothing(serve, responder, monkeypatch):
    monkeypatch.setattr("an_control.disturbance.settings.BEGIN_S", (0.05, 0.05))
    asked = stoppable(responder)
    run_episodes(serve(), episodes=1, seed=0, disturbance=DisturbanceSettings(stop=0.001))
    assert "estop" not in asked, "nothing would clear it before the next episode"


def test_an_environment_that_fails_leaves_the_episodes_that_had_finished(serve, monkeypatch):
    whole = TinyEnv.step

    def fail(self, action):
        if told and len(TinyEnv.actions) == 3:
            raise ZeroDivisionError("a joint broke")
        return whole(self, action)

    told: list[bool] = []

    def note(progress: EpisodeProgress) -> None:
        if progress.finished:
            told.append(True)

    monkeypatch.setattr(TinyEnv, "step", fail)
    said = r"'test/Tiny-v0': step 4: ZeroDivisionError: a joint broke \(test_bridge.py, line \d+\)"
    with pytest.raises(BridgeError, match=said) as raised:
        run_episodes(serve(), episodes=3, seed=0, progress=note)
    assert [one.steps for one in raised.value.finished] == [20]


def test_an_environment_that_fails_while_it_closes_does_not_take_the_results_along(
    serve, monkeypatch, capfd
):
    monkeypatch.setattr(TinyEnv, "close", lambda self: 1 / 0)
    serve().robot.close()
    assert "'test/Tiny-v0': closing it: ZeroDivisionError" in capfd.readouterr().err


def test_progress_tells_of_every_episode_and_its_result(serve):
    told: list[EpisodeProgress] = []
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
    with pytest.raises(BridgeError, match="it replied 'not active'"):
        bridge.wait_for_policy()
    responder.active = True
    bridge.wait_for_policy()


def test_a_policy_gone_silent_for_good_ends_the_run(serve, responder):
    bridge = serve(command_timeout_s=0.05, start_timeout_s=1.0)
    responder.answer = lambda joints: None
    with pytest.raises(BridgeError, match="no command on /commands for 1 s: is /policy still"):
        run_episodes(bridge, episodes=0, seed=0)


def test_a_policy_gone_silent_leaves_the_episodes_that_had_finished(serve, responder):
    bridge = serve(command_timeout_s=0.05, start_timeout_s=1.0)

    def fall_silent(progress: EpisodeProgress) -> None:
        if progress.finished:
            responder.answer = lambda joints: None

    with pytest.raises(BridgeError) as raised:
        run_episodes(bridge, episodes=3, seed=0, progress=fall_silent)
    assert [one.steps for one in raised.value.finished] == [20]


class Tap:
    """Publishes nothing by itself, on a topic of the node that the bridge is made with."""

    topic, shuffle_count = "/scrambled", 0

    def __getattr__(self, name):
        return lambda *arguments: None


@pytest.mark.parametrize(
    ("policy", "said"), [("policy", "/policy does not read"), ("", "nobody reads")]
)
@pytest.mark.parametrize("realtime", [True, False])
def test_a_disturbance_that_the_policy_would_not_read_is_refused(serve, policy, said, realtime):
    bridge = serve(tap=Tap(), policy=policy, realtime=realtime, start_timeout_s=2.0)
    with pytest.raises(BridgeError, match=f"{said} /scrambled, so nothing would be disturbed"):
        bridge.wait_for_policy()


@pytest.mark.parametrize("policy", ["policy", ""])
def test_a_disturbance_that_the_policy_reads_is_taken(serve, responder, policy):
    bridge = serve(tap=Tap(), policy=policy)
    responder.create_subscription(JointState, "scrambled", lambda message: None, 10)
    bridge.node.create_publisher(JointState, "scrambled", 10)
    bridge.wait_for_policy()


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
