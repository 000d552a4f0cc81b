"""The shipped camera policies drive and play, their patches shuffled."""

from dataclasses import replace

import numpy as np
import pytest

for module in ("Box2D", "pygame", "ale_py", "cv2"):
    pytest.importorskip(module, reason="needs the sim extra")

from an_control.disturbance import DisturbanceSettings, Shuffle  # noqa: E402
from an_control.learning.evaluation.evaluate import play_episodes  # noqa: E402
from an_control.load import load_policy  # noqa: E402
from an_control.system.share import find_share_path  # noqa: E402
from an_control_sim.gym.environments import describe_task, find_environment_id, make_environment  # noqa: E402


def test_the_shipped_car_racing_policy_drives_with_its_patches_shuffled():
    policy = load_policy(find_share_path("models/car_racing.safetensors"))
    environment = find_environment_id("car_racing")
    env = make_environment(environment, max_episode_steps=300)
    assert policy.model.task == describe_task(env, "car_racing", environment)
    shuffled = DisturbanceSettings(shuffle=Shuffle(True))
    results = play_episodes(policy, env, policy.nominal_ids, 3, 1, shuffled)
    env.close()
    assert np.mean([result.total for result in results]) > 200  # who stands still gets -30


@pytest.mark.parametrize("hidden", [0.0, 0.3])
def test_the_shipped_pong_policy_makes_the_first_points_from_every_start(hidden):
    policy = load_policy(find_share_path("models/pong.safetensors"))
    environment = find_environment_id("pong")
    env = make_environment(environment, max_episode_steps=400)
    assert policy.model.task == replace(describe_task(env, "pong", environment), repeats=True)
    shuffled = DisturbanceSettings(shuffle=Shuffle(True), missing=hidden)
    results = play_episodes(policy, env, policy.nominal_ids, 8, 1, shuffled)
    env.close()
    assert np.min([result.total for result in results]) > 0.0  # who stands still gets -10
