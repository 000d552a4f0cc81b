# ruff: noqa: E402
"""A teacher learns in any environment, and what is saved of it acts as what learned."""

import json
from contextlib import closing
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("stable_baselines3", reason="needs the train extra")
pytest.importorskip("sb3_contrib", reason="needs the train extra")

from an_control.learning.runs.run_folder import RunError, RunFolder
from an_control.learning.runs.run_loop import RunLoop
from an_control.learning.teacher.learner import TeacherLearner, TeacherLimits
from an_control.learning.teacher.sb3_algorithm import CLIP, REPLAY
from an_control.learning.teacher.settings import (
    choose_teacher_settings,
    make_settings_of_competing_learners,
    make_smoke_test_settings,
)
from an_control.learning.teacher.teachers import make_network_teacher
from an_control.learning.training_disturbances import Fault
from an_control.load import make_policy
from an_control.policy import MlpSizes, read_model
from an_control.policy.mlp import get_head_layers
from an_control.policy.random_model import make_random_model
from an_control_sim.gym.environments import make_environment
from an_control_sim.gym.units import Units

RACING = 0.8
"""Share of the run, so that it is stopped while both kinds of noise race, and after it."""
FAULTS = {Fault("delay=0..2,jitter=0..0.1"): 0.5, Fault("lose=0.3"): 0.5}
KINDS = [
    ("CartPole-v1", "ppo"),
    ("Pendulum-v1", "ppo"),
    ("Pendulum-v1", "sac"),
    ("Pendulum-v1", "td3"),
    ("Pendulum-v1", "tqc"),
]


class Follow(gymnasium.Env):
    """Rewards an action near a number that is shown far from zero; ten steps an episode."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gymnasium.spaces.Box(-3.0, 3.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.wanted = self.np_random.uniform(-1, 1)
        return self._shown(), {}

    def step(self, action):
        reward = 1.0 - abs(float(action[0]) / 3.0 - self.wanted)
        self.wanted = self.np_random.uniform(-1, 1)
        return self._shown(), reward, False, False, {}

    def _shown(self):
        return np.array([5000.0 + 100.0 * self.wanted, 7.0], np.float32)


gymnasium.register("Follow-v0", Follow, max_episode_steps=10)


class Steps(gymnasium.Env):
    """Shows each of two numbers for four steps, and keeps the actions."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    actions: list[float] = []  # noqa: RUF012

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.actions.clear()
        return self._shown(), {}

    def step(self, action):
        self.actions.append(float(action[0]))
        return self._shown(), 0.0, False, False, {}

    def _shown(self):
        return np.full(2, 1.0 if len(self.actions) // 4 % 2 else -1.0, np.float32)


gymnasium.register("Steps-v0", Steps, max_episode_steps=1000)


def settings_of(environment, algorithm, start, **changed):
    with closing(make_environment(environment)) as env:
        return replace(
            make_smoke_test_settings(choose_teacher_settings(env, algorithm, start)),
            **{"burst": 0.05} | changed,
        )


def learner_in(
    folder,
    environment,
    algorithm,
    limits=TeacherLimits(steps=192),  # noqa: B008
    start=None,
    **changed,
):
    settings = settings_of(environment, algorithm, start, **changed)
    return TeacherLearner(folder, environment, environment, settings, limits, 1, start)


def run(folder, environment, algorithm, stop_after=None, **others):
    with closing(learner_in(folder, environment, algorithm, **others)) as learner:
        loop = RunLoop(RunFolder(folder, learner.config), learner)
        loop.run(stop_after=stop_after)
        return loop


@pytest.mark.parametrize("faults", [{}, FAULTS], ids=["undisturbed", "disturbed"])
@pytest.mark.parametrize(("environment", "algorithm"), KINDS)
def test_a_stopped_run_continues_to_the_same_bits(tmp_path, environment, algorithm, faults):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    limits = TeacherLimits(steps=256)
    race = RACING if (environment, algorithm) == ("Pendulum-v1", "ppo") else 0.0
    run(whole, environment, algorithm, limits=limits, race=race, faults=faults)
    for stop in (1, 2, 3, None):
        loop = run(parts, environment, algorithm, stop, limits=limits, race=race, faults=faults)
        if algorithm != "ppo":
            with (parts / REPLAY).open("ab") as file:
                file.write(b"what a killed run had written beyond its checkpoint")
    assert loop.done == 4
    states = [
        RunFolder(folder, loop.learner.config).load_checkpoint()["learner"]["contenders"]
        for folder in (whole, parts)
    ]
    assert str(states[0]) == str(states[1])
    models = [read_model(folder / "model.safetensors") for folder in (whole, parts)]
    for name, array in models[0].arrays.items():
        assert array.tobytes() == models[1].arrays[name].tobytes()


@pytest.mark.parametrize(
    ("algorithm", "output"), [("ppo", "clip"), ("ppo", "tanh"), ("td3", "tanh")]
)
def test_a_network_to_start_from_changes_once_the_critic_knows_it(tmp_path, algorithm, output):
    arrays = make_random_model(MlpSizes(3, 1, [8, 4], "relu", output), seed=3).arrays
    start = make_network_teacher(get_head_layers(arrays, 3), output)
    given = [array for layer in start.layers for array in layer]

    def learned(name, stop_after=None):
        loop = run(tmp_path / name, "Pendulum-v1", "ppo", stop_after, start=start)
        model = loop.learner.make_model()
        assert model.sizes.output == output
        return [array for layer in get_head_layers(model.arrays, 3) for array in layer]

    assert all((a == b).all() for a, b in zip(learned("parts", 1), given, strict=True))
    parts, whole = learned("parts"), learned("whole")
    assert all((a == b).all() for a, b in zip(parts, whole, strict=True))
    assert not any((a == b).all() for a, b in zip(parts, given, strict=True))


def test_another_network_to_start_from_is_refused_in_the_same_folder(tmp_path):
    one, other = (
        make_network_teacher(
            get_head_layers(make_random_model(MlpSizes(3, 1, [8]), seed=seed).arrays, 2)
        )
        for seed in (1, 2)
    )
    run(tmp_path, "Pendulum-v1", "ppo", 1, start=one)
    said = f'start_hash is "{one.digest}", not "{other.digest}"'
    with pytest.raises(RunError, match=said):
        run(tmp_path, "Pendulum-v1", "ppo", 2, start=other)
    file = tmp_path / "config.json"
    begun = json.loads(file.read_text())
    del begun["start_hash"]  # as before there were hashes
    file.write_text(json.dumps(begun))
    assert run(tmp_path, "Pendulum-v1", "ppo", 2, start=one).done == 2


def test_a_network_that_the_algorithm_cannot_continue_is_refused():
    start = make_network_teacher(
        get_head_layers(make_random_model(MlpSizes(3, 1, [8])).arrays, 2), "tanh"
    )
    with pytest.raises(ValueError, match="--algorithm td3: only ppo can continue a network"):
        settings_of("Pendulum-v1", "td3", start)


@pytest.mark.parametrize(("environment", "algorithm"), KINDS)
def test_the_saved_policy_acts_as_the_librarys(tmp_path, environment, algorithm):
    """Observation normalisation included, up to the clip of its inputs."""
    with closing(learner_in(tmp_path, environment, algorithm)) as learner:
        learner.step()
        policy = make_policy(learner.make_model())
        library = learner._newest.library._algorithm
        mean, sd = learner._newest.library.compute_observation_mean_and_sd()
        for scaled in np.random.default_rng(0).uniform(-0.9 * CLIP, 0.9 * CLIP, (50, len(sd))):
            observation = (mean + sd * scaled).astype(np.float32)
            entering = library.env.normalize_obs(observation)
            expected, _ = library.predict(entering, deterministic=True)
            action = policy.step_array(observation, policy.nominal_ids)
            if environment == "CartPole-v1":
                assert np.argmax(action) == expected
            else:
                np.testing.assert_allclose(action, expected, atol=1e-5)


def test_logits_that_are_far_apart_still_choose_the_largest(tmp_path):
    with closing(learner_in(tmp_path, "CartPole-v1", "ppo")) as learner:
        learner.step()
        with torch.no_grad():
            learner._newest.library._algorithm.policy.action_net.bias.copy_(
                torch.tensor([50.0, 51.0])
            )
        policy = make_policy(learner.make_model())
        action = policy.step_array(np.zeros(4, np.float32), policy.nominal_ids)
        assert action[1] > action[0]


def test_ppo_learns_what_is_shown_far_from_zero_and_stops_at_the_score(tmp_path):
    loop = run(
        tmp_path,
        "Follow-v0",
        "ppo",
        limits=TeacherLimits(steps=60_000, score=8.5),
        iteration=512,
        rate=1e-3,
        hidden=(32, 32),
        validation_episodes=4,
    )
    first, last = loop.metrics[0], loop.metrics[-1]
    assert first["validation"] < 8.0 and last["validation"] >= 8.5
    assert loop.is_finished and last["steps"] < 60_000
    assert loop.learner.end_reason == "reached the score 8.5"
    policy = make_policy(model := read_model(loop.model_path))
    units = Units.from_task(model.task)
    for wanted in (-0.5, 0.5):
        seen = units.to_readings(np.array([5000.0 + 100.0 * wanted, 7.0]))
        action = policy.step_array(seen, ("observation.0", "observation.1"))
        assert abs(action[0] - wanted) < 0.3


def test_a_best_validation_is_confirmed_in_further_episodes(tmp_path, monkeypatch):
    """A teacher that fell in 2 of 100 episodes had counted as perfect after 8, and stopped."""
    settings = {"validation_episodes": 2, "confirmation_episodes": 3, "race": 0.0}
    with closing(learner_in(tmp_path, "Pendulum-v1", "ppo", **settings)) as learner:
        returns: list[float] = []
        monkeypatch.setattr(learner, "_measure_return_in_episode", lambda *_: returns.pop(0))
        validated = []
        for of_the_step in ([10, 10, 9, 9, 9], [10, 8], [10, 10, 9, 9, 0], [10, 10, 10, 10, 10]):
            returns += of_the_step
            validated.append(learner.step()["validation"])
            assert not returns
        assert validated == [9.4, 9.0, 7.6, 10.0]
        assert learner._newest.best == 10.0


def test_a_channel_that_never_varied_does_not_count(tmp_path):
    with closing(learner_in(tmp_path, "Follow-v0", "ppo", iteration=512)) as learner:
        learner.step()
        policy = make_policy(learner.make_model())
    ids = policy.nominal_ids
    exact, noisy = (policy.step_array(np.array([5050.0, x], np.float32), ids) for x in (7.0, 7.5))
    np.testing.assert_array_equal(exact, noisy)


def test_what_is_explored_stays_for_four_steps(tmp_path):
    settings = {"environments": 1, "validate_every": 100, "burst": 0.0}
    with closing(learner_in(tmp_path, "Steps-v0", "ppo", **settings)) as learner:
        learner.step()
    blocks = np.array(Steps.actions[32:]).reshape(-1, 4)  # the normalisation has settled
    assert len(blocks) == 8 and blocks.mean(1).std() > 10.0 * blocks.std(1).max()


def test_limits_end_a_run_and_may_be_raised(tmp_path):
    assert run(tmp_path, "Pendulum-v1", "ppo", limits=TeacherLimits(steps=65)).done == 2
    loop = run(tmp_path, "Pendulum-v1", "ppo", limits=TeacherLimits(steps=200))
    assert (loop.done, loop.learner.end_reason) == (4, "reached 200 steps")
    loop = run(tmp_path, "Pendulum-v1", "ppo", limits=TeacherLimits(minutes=1e-6))
    assert (loop.done, loop.learner.total_step_calls, loop.learner.progress) == (4, 4, 1.0)
    assert "minutes" in loop.learner.end_reason
    with pytest.raises(RunError, match="other settings"):
        run(tmp_path, "Pendulum-v1", "sac")


def test_a_run_ends_when_validation_does_not_improve_for_half_of_it(tmp_path):
    how = {"patience": 100, "race": 0.0}
    with closing(learner_in(tmp_path, "Pendulum-v1", "ppo", TeacherLimits(), **how)) as learner:
        learner._measure_validation_return = lambda: 1.0
        learner.step()
        assert not learner.end_reason and 0 < learner.total_step_calls > 1
        learner.step()
        learner.step()
        assert learner.end_reason == "no better validation since step 64"


def test_a_run_goes_on_for_a_third_of_its_limits_without_a_better_validation(tmp_path):
    how = {"patience": 100, "race": 0.0}
    limits = TeacherLimits(steps=30 * 64)
    with closing(learner_in(tmp_path, "Pendulum-v1", "ppo", limits, **how)) as learner:
        learner._measure_validation_return = lambda: 1.0
        for _ in range(10):
            learner.step()
            assert not learner.end_reason
        learner.step()
        assert learner.end_reason == "no better validation since step 64"


def test_a_run_whose_limit_was_raised_has_the_patience_of_one_begun_with_it(tmp_path):
    how = {"patience": 100, "race": 0.0}
    ends = []
    for first in (12, 30):
        folder = tmp_path / str(first)
        limits = TeacherLimits(steps=first * 64)
        with closing(learner_in(folder, "Pendulum-v1", "ppo", limits, **how)) as learner:
            learner._measure_validation_return = lambda: 1.0
            for _ in range(6):
                learner.step()
            state = learner.make_checkpoint()
        limits = TeacherLimits(steps=30 * 64)
        with closing(learner_in(folder, "Pendulum-v1", "ppo", limits, **how)) as learner:
            learner._measure_validation_return = lambda: 1.0
            learner.restore(state)
            while not learner.end_reason:
                learner.step()
            ends.append((learner._done, learner.end_reason))
    assert ends[0] == ends[1] and ends[0][1].startswith("no better validation")


@pytest.mark.parametrize("better", ["smooth", "independent"])
def test_the_noise_with_the_better_validation_continues_alone(tmp_path, better):
    limits = TeacherLimits(steps=10 * 64)
    with closing(learner_in(tmp_path, "Pendulum-v1", "ppo", limits, race=0.5)) as learner:
        learner._measure_validation_return = lambda: float(
            learner._newest.exploration_noise_kind == better
        )
        noises = []
        while not learner.end_reason:
            noises.append(learner.step()["noise"])
    other = {"smooth": "independent", "independent": "smooth"}[better]
    assert noises[:4] == ["smooth", "independent"] * 2 and other not in noises[5:]
    assert len(noises) == 10


def test_choices_have_no_noise_that_could_race():
    settings = settings_of("CartPole-v1", "ppo", None)
    assert make_settings_of_competing_learners(settings) == [settings]


def test_a_run_whose_replay_file_is_gone_says_so(tmp_path):
    run(tmp_path, "Pendulum-v1", "sac", 1)
    (tmp_path / REPLAY).write_bytes(b"")
    with pytest.raises(RunError, match=REPLAY):
        run(tmp_path, "Pendulum-v1", "sac")


@pytest.mark.parametrize(
    ("environment", "algorithm", "named"),
    [
        ("CartPole-v1", "sac", "discrete actions need ppo"),
        ("an_control_sim:an_control/CarRacing-v0", "ppo", "image patches"),
    ],
)
def test_what_cannot_be_learned_is_refused(tmp_path, environment, algorithm, named):
    with pytest.raises(ValueError, match=named):
        learner_in(tmp_path, environment, algorithm)
