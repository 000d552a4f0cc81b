"""The bridge in real time: steps by the clock, whatever commands come."""

from __future__ import annotations

import time

import numpy as np
import pytest

pytest.importorskip("rclpy")
from sensor_msgs.msg import JointState
from std_srvs.srv import Trigger
from tiny_robot import TinyEnv, begin, command

from an_control_sim.bridge.bridge import Bridge
from an_control_sim.bridge.episodes import run_episodes
from an_control_sim.bridge.run_control import StopRequestedError

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


def test_physics_slower_than_real_time_still_get_commands_and_can_be_stopped(
    serve, responder, monkeypatch
):
    step = TinyEnv.step

    def step_slowly(env, action):
        time.sleep(0.015)
        return step(env, action)

    monkeypatch.setattr(TinyEnv, "step", step_slowly)
    bridge = serve(realtime=True, command_timeout_s=60.0)
    responder.answer = push
    begin(bridge)
    step_until(bridge, HELD)
    bridge.run.stop()
    with pytest.raises(StopRequestedError):
        for _ in range(2):
            bridge.step()


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


def test_in_real_time_a_policy_that_only_proposes_is_enough_and_the_safe_command_counts(
    serve, responder
):
    responder.destroy_publisher(responder.publisher)
    responder.create_subscription(JointState, "commands", lambda message: None, 10)
    responder.answer = lambda joints: None
    bridge = serve(realtime=True, start_timeout_s=5.0)
    result = run_episodes(bridge, episodes=1, seed=0)[0]
    assert result.timeouts == 20 == result.steps


@pytest.mark.parametrize("asked", ["stop", "reset"])
def test_a_stop_or_a_reset_in_the_last_look_at_the_diagnostics_loses_nothing(
    serve, responder, asked
):
    bridge = serve(realtime=True)
    assert len(run_episodes(bridge, episodes=1, seed=0)) == 1
    if asked == "stop":
        bridge.run.stop()
    else:
        responder.reset.call_async(Trigger.Request())
    assert bridge.read_diagnostics() is None


def test_in_real_time_stamps_keep_up_with_the_clock_whatever_time_is_lost(
    serve, responder, monkeypatch
):
    """A policy without use_sim_time takes stamps of the past for a clock that is wrong."""
    bridge = serve(realtime=True)
    responder.answer = push
    begin(bridge)
    step_until(bridge, HELD)
    now_ns = time.time_ns
    for lost_s in (0.0, 5.0, 8.0):
        monkeypatch.setattr(time, "time_ns", lambda lost_s=lost_s: now_ns() + int(lost_s * 1e9))
        for _ in range(1000):
            bridge.step()
            if responder.stamps[-1] > time.time_ns() - 500_000_000:
                break
        else:
            pytest.fail(f"after {lost_s:g} s the stamps never came near the clock again")
        assert responder.stamps[-1] < time.time_ns() + 50_000_000
    assert (np.diff(responder.stamps) > 0).all()
