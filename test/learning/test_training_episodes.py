"""A teacher plays whole episodes, cut off by bursts and stops, and hears what a robot would."""

import gymnasium
import numpy as np

from an_control.learning.teacher.training_episodes import TrainingEpisodes
from an_control.learning.training_disturbances import Fault


class Counting(gymnasium.Env):
    """Shows how many steps the episode has had; ends after 30."""

    observation_space = gymnasium.spaces.Box(-1.0, np.inf, (1,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))

    def reset(self, *, seed=None, options=None):
        self.steps, self.actions = 0, []
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        self.actions.append(action)
        return np.full(1, self.steps, np.float32), 1.0, self.steps == 30, False, {}


def test_a_burst_cuts_the_episode_and_the_next_starts_where_it_ends():
    env = Counting()
    episodes = TrainingEpisodes(env, 0.2, seed=3)
    lengths, still, ends = [], 0, 0
    (observation, _), own = episodes.reset(), np.full(2, 0.25, np.float32)
    for _ in range(500):
        before = observation
        observation, reward, fell, cut, _ = episodes.step(own)
        assert observation == before + 1 and reward == 1.0
        assert (env.actions[-1] == own).all() and not (fell and cut)
        if fell or cut:
            at = env.steps
            ends += fell
            observation, _ = episodes.reset()
            assert observation == env.steps
            if observation > 0:
                assert cut
                burst = np.array(env.actions[at:])
                lengths.append(len(burst))
                still += (burst == 0).all()
                assert (burst == 0).all() or (burst.std() > 0.2 and np.abs(burst).max() <= 1.0)
    assert ends and len(lengths) > 20 and set(lengths) <= set(range(3, 20))
    assert 0 < still < len(lengths)


def test_without_bursts_an_episode_is_the_environments():
    episodes = TrainingEpisodes(Counting(), 0.0, seed=3)
    episodes.reset()
    for step in range(1, 31):
        assert episodes.step(np.zeros(2, np.float32))[2:4] == (step == 30, False)
    assert episodes.returns == [30.0]
    assert episodes.reset()[0] == 0


def played(faults, answers=60):
    """What the learner observes, is paid and does in so many steps of `Counting`."""
    env = Counting()
    episodes = TrainingEpisodes(env, 0.0, 3, faults)
    seen = [episodes.reset()[0].item()]
    rewards, cuts = [], []
    for answer in range(answers):
        observation, reward, fell, cut, _ = episodes.step(np.full(2, answer / 100, np.float32))
        rewards.append(reward)
        cuts.append(cut)
        seen.append((episodes.reset()[0] if fell or cut else observation).item())
    return env, seen, rewards, cuts


def test_a_late_reading_is_what_the_teacher_learns_from():
    _, seen, _, _ = played({Fault("delay=2"): 1.0}, answers=20)
    assert seen == [0.0, 0.0, *range(19)]


def test_while_messages_are_lost_the_last_action_is_sent_again_and_all_of_it_is_paid():
    env, seen, rewards, cuts = played({Fault("lose=0.5"): 1.0}, answers=8)
    assert not any(cuts) and max(rewards) > 1.0 and sum(rewards) == env.steps
    assert np.diff(seen).tolist() == rewards
    sent = [action[0] for action in env.actions]
    expected = np.repeat(np.arange(8) / 100, np.array(rewards, int)).astype(np.float32)
    assert sent == expected.tolist()


def test_an_episode_is_cut_where_a_stop_begins_and_continues_where_it_ends():
    env = Counting()
    env.step_s = 1.0
    episodes = TrainingEpisodes(env, 0.0, 3, {Fault("stop=5"): 1.0})
    episodes.reset()
    own = np.full(2, 0.25, np.float32)
    steps = 0
    while not episodes.step(own)[3]:
        steps += 1
        assert steps < 10
    observation, _ = episodes.reset()
    assert observation == env.steps
    still = [bool((action == 0).all()) for action in env.actions]
    assert still.count(True) == 5 and not still[0] and still[-5:] == [True] * 5
    assert not episodes.step(own)[3] and env.actions[-1][0] == own[0]


def test_an_episode_has_a_fault_as_often_as_its_chance_says():
    episodes = TrainingEpisodes(Counting(), 0.0, 3, {Fault("delay=1"): 0.3})
    late = 0
    for _ in range(200):
        episodes.reset()
        late += episodes.step(np.zeros(2, np.float32))[0].item() == 0.0
        while not episodes.step(np.zeros(2, np.float32))[2]:
            pass
    assert 40 < late < 80
