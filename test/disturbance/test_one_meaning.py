"""A setting means the same to everyone: evaluation, scrambler, compiled rollouts and all training.

Each user plays many episodes of a robot whose reading of channel c at step t is 100 (c + 1) + t,
and what it received is measured. The figures of all users of a setting have the distribution that
they have in an evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

torch = pytest.importorskip("torch", reason="needs the train extra")

from an_control.disturbance import SETTINGS, DisturbanceSettings, Disturber, Range  # noqa: E402
from an_control.learning.dagger.image_patches.batches import PatchBatches  # noqa: E402
from an_control.learning.dagger.image_patches.episodes import (  # noqa: E402
    PatchEpisode,
)
from an_control.learning.dagger.image_patches.episodes import record_episode as record_patches  # noqa: E402
from an_control.learning.dagger.image_patches.settings import PatchDaggerSettings  # noqa: E402
from an_control.learning.dagger.settings import read_recipe  # noqa: E402
from an_control.learning.dagger.streams import (  # noqa: E402
    DaggerEpisode,
    DaggerStreams,
    RolloutSettings,
    StreamSettings,
    record_episode,
)
from an_control.learning.forward_model.episodes import (  # noqa: E402
    EpisodeTrace,
    MissingChannelsDriver,
    record_episodes,
)
from an_control.learning.forward_model.imputation import _ImputationBatch  # noqa: E402
from an_control.learning.forward_model.networks import ForwardModelSettings  # noqa: E402
from an_control.learning.rollout.compiled.engine import FusedEngine  # noqa: E402
from an_control.learning.rollout.engine import EpisodeSeeds  # noqa: E402
from an_control.learning.rollout.episode import play_episode  # noqa: E402
from an_control.learning.teacher.teachers import Teacher  # noqa: E402
from an_control.learning.teacher.training_episodes import TrainingEpisodes  # noqa: E402
from an_control.learning.training_disturbances import Fault, PatchDisturbance, TrainingDisturbance  # noqa: E402
from an_control.policy.task import Task  # noqa: E402
from an_control_sim.gym.varied_robot import VariedRobot  # noqa: E402

N, STEPS, EPISODES = 20, 12, 150
CHANNELS = tuple(f"channel_{c:02}" for c in range(N))
SIGNALS = 100.0 * (np.arange(N, dtype=np.float32) + 1.0)
RECORDED = (SIGNALS + np.arange(STEPS, dtype=np.float32)[:, None]).astype(np.float32)
FAR = 0.35
"""Two samples of so many episodes differ by more with a probability of a millionth where both are
of one distribution (Kolmogorov and Smirnov); drawn as one to a quarter, or by a coin for each
channel, `missing` is farther."""

Received = np.ndarray
"""(K, S) what came in K messages by slot, NaN where one is missing; N nominal slots first."""


class Counting(gymnasium.Env[Any, Any]):
    """Its readings say which channel and step they are of; `effects` are the actions that came."""

    observation_space = spaces.Box(-np.inf, np.inf, (N,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    step_s = 1.0

    def __init__(self) -> None:
        self.effects: list[list[float]] = []

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self._step = 0
        self.effects.append([])
        return SIGNALS.copy(), {}

    def step(self, action: Any) -> Any:
        self.effects[-1].append(float(action[0]))
        self._step += 1
        return SIGNALS + np.float32(self._step), 0.0, False, self._step == STEPS, {}


class Listener:
    """A policy, an actor and a driver that keeps what it reads and always pushes."""

    def __init__(self) -> None:
        self.episodes: list[list[np.ndarray]] = []
        self.model = SimpleNamespace(task=Task())
        self.previous_action = np.zeros(1, np.float32)
        self.monitor_report = None
        self.nominal_ids = CHANNELS

    def reset(self) -> None:
        self.episodes.append([])

    def start_episode(self, modes: Sequence[str]) -> None:
        self.reset()

    def set_previous_action(self, action: np.ndarray) -> None:
        """Nothing that it has to know."""

    def step_array(self, values: np.ndarray, ids: Sequence[str]) -> np.ndarray:
        self.episodes[-1].append(by_slot(values, ids))
        return np.ones(1, np.float32)

    def act(self, seen: Any, *_: Any) -> np.ndarray:
        values, ids = (seen, ()) if isinstance(seen, np.ndarray) else (seen.values, seen.ids)
        return self.step_array(values, ids)

    def received(self) -> Iterator[Received]:
        return (np.array(one[:STEPS]) for one in self.episodes)


def by_slot(values: np.ndarray, ids: Sequence[str]) -> np.ndarray:
    """Readings with NaN for the channels that `ids` leave out; what was added stays behind."""
    if not ids or (len(values) >= N and not set(CHANNELS) & set(ids)):
        return np.array(values)
    nominal = np.full(N, np.nan, np.float32)
    added = []
    for value, name in zip(values, ids, strict=True):
        if name in CHANNELS:
            nominal[CHANNELS.index(name)] = value
        else:
            added.append(value)
    return np.array([*nominal, *added], np.float32)


def evaluation(words: str, env: VariedRobot) -> Iterator[Received]:
    policy, disturber = Listener(), Disturber(CHANNELS, DisturbanceSettings.parse(words), 1)
    for number in range(EPISODES):
        play_episode(policy, env, CHANNELS, disturber, EpisodeSeeds(number, 1, number))
    return policy.received()


def scrambler(words: str, env: VariedRobot) -> Iterator[Received]:
    pytest.importorskip("rclpy")
    from an_control.wiring import Readings
    from an_control_sim.scrambler.messages import ScrambledReadings

    settings = DisturbanceSettings.parse(words)
    wiring = SimpleNamespace(channels=[SimpleNamespace(id=name) for name in CHANNELS])
    message, disturber = ScrambledReadings(wiring), Disturber(CHANNELS, settings, 2)
    message.check_settings(settings)
    for number in range(EPISODES):
        disturber.start_episode(number)
        heard = []
        for step in range(STEPS):
            message.fill_message(Readings(RECORDED[step], CHANNELS, N, True, 0), disturber, step)
            if disturber.has_message_arrived:
                names, readings = message.message.name, message.message.position
                heard.append(by_slot(np.array(readings), tuple(names)))
        yield np.array(heard)


def compiled(words: str, env: VariedRobot) -> Iterator[Received]:
    batch = SimpleNamespace(steps=STEPS)
    engine = FusedEngine(batch, CHANNELS, 1, 1)
    starts = [EpisodeSeeds(0, 3, number) for number in range(EPISODES)]
    conditions = engine.draw_disturbances_of_episodes(starts, DisturbanceSettings.parse(words))
    engine.close()
    for number in range(EPISODES):
        nominal = RECORDED.copy()
        if len(conditions.present):
            nominal[:, conditions.present[number] == 0.0] = np.nan
        parts = [nominal, nominal[:, conditions.copied[number]], conditions.noise[number]]
        yield np.concatenate(parts, 1)


def streams(words: str, env: VariedRobot) -> Iterator[Received]:
    actions = np.zeros((STEPS, 1), np.float32)
    settings = StreamSettings({TrainingDisturbance.parse(words): 1.0}, reshuffled=0.0)
    what = [DaggerEpisode(RECORDED, actions, actions)], EPISODES, STEPS, settings, 1
    batch = DaggerStreams(*what, np.random.default_rng(4)).make_next_batch()
    values = torch.where(batch.present > 0, batch.values, torch.nan).numpy()
    for row, counts in enumerate(batch.counts.sum(0).long().tolist()):
        yield values[:counts, row]


def own_episodes(words: str, env: VariedRobot) -> Iterator[Received]:
    rng, listener = np.random.default_rng(5), Listener()
    how = RolloutSettings(disturb={TrainingDisturbance.parse(words): 1.0}, shuffled=False)
    for _ in range(EPISODES):
        listener.reset()
        record_episode(
            env,
            Teacher(lambda seen: seen[:1]),
            listener,
            rng,
            how.draw_disturbance({}, rng),
        )
    return listener.received()


def dagger_faults(words: str, env: VariedRobot) -> Iterator[Received]:
    rng, listener = np.random.default_rng(5), Listener()
    how = RolloutSettings(faulty=True, shuffled=False)
    for _ in range(EPISODES):
        listener.reset()
        drawn = how.draw_disturbance({Fault.parse(words): 1.0}, rng)
        record_episode(env, Teacher(lambda seen: seen[:1]), listener, rng, drawn)
    return listener.received()


def monitor(words: str, env: VariedRobot) -> Iterator[Received]:
    listener = Listener()
    record_episodes(
        env, listener, EPISODES * STEPS, np.random.default_rng(6), {Fault.parse(words): 1.0}
    )
    return (one[:STEPS] for one in listener.received())


def teacher(words: str, env: VariedRobot) -> Iterator[Received]:
    episodes = TrainingEpisodes(env, 0.0, 7, {Fault.parse(words): 1.0})
    for _ in range(EPISODES):
        seen, over = [episodes.reset()[0]], False
        while not over:
            observed, _, ended, cut, _ = episodes.step(np.ones(1, np.float32))
            over = ended or cut
            if not over:
                seen.append(observed)
        readings = np.array(seen)
        yield np.where(readings == 0.0, np.nan, readings)  # a missing one is the newest: none


PATCHES = tuple(f"camera.0.{c:02}" for c in range(N))
GRID, PATCH, STACK = (4, 5), 6, 2


def picture(step: int) -> np.ndarray:
    """An image of patches whose number is in their pixels, and the step in the last one."""
    numbers = np.arange(1, N + 1, dtype=np.uint8)
    numbers[-1] = 100 + step
    return np.kron(numbers.reshape(GRID), np.ones((PATCH, PATCH), np.uint8))


class Camera(gymnasium.Env[Any, Any]):
    observation_space = spaces.Box(0, 255, (N, STACK, PATCH, PATCH), np.uint8)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    channels, frames = PATCHES, None

    def _seen(self) -> np.ndarray:
        from an_control.wiring.image import cut_patches

        first = max(0, self._step - 1)
        self.frames = np.array([picture(first), picture(self._step)])
        return cut_patches(self.frames, PATCH)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self._step = 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self._step += 1
        return self._seen(), 0.0, False, self._step == STEPS, {}


class StateTeacher:
    is_helping = is_hopeless = False

    def start_episode(self) -> None: ...
    def __call__(self) -> np.ndarray:
        return np.zeros(1, np.float32)


class Viewer(Listener):
    """Keeps of each patch the number in its newest frame."""

    def step_array(self, values: np.ndarray, ids: Sequence[str]) -> np.ndarray:
        seen = np.full(N, np.nan, np.float32)
        seen[[PATCHES.index(name) for name in ids]] = values[:, -1, 0, 0]
        self.episodes[-1].append(seen)
        return np.ones(1, np.float32)


def patch_settings(words: str) -> PatchDaggerSettings:
    made = read_recipe("pong")
    assert isinstance(made, PatchDaggerSettings)
    from dataclasses import replace

    student = replace(made.student, patch=PATCH, stack=STACK, actions=1)
    disturb = {PatchDisturbance.parse(words): 1.0}
    return replace(made, student=student, disturb=disturb, batch=EPISODES, piece=1, led=0.0)


def patch_episodes(words: str, env: VariedRobot) -> Iterator[Received]:
    viewer, rng = Viewer(), np.random.default_rng(8)
    camera, settings = Camera(), patch_settings(words)
    for _ in range(EPISODES):
        record_patches(camera, StateTeacher(), viewer, settings, 0.0, rng, STEPS)
    return viewer.received()


def patch_rows(words: str, env: VariedRobot) -> Iterator[Received]:
    frames = np.array([picture(step) for step in range(STEPS)])
    actions = np.zeros((STEPS, 1), np.float32)
    episode = PatchEpisode(frames, actions, actions, 0.0, 0.0)
    batches = PatchBatches([episode], patch_settings(words), np.random.default_rng(9))
    batches.make_next_batch()
    for row in batches._rows:
        assert row is not None
        shown = frames[row.seen[:, -1]].reshape(len(row.acted), *GRID[:1], PATCH, GRID[1], PATCH)
        numbers = shown[:, :, 0, :, 0].reshape(len(row.acted), N).astype(np.float32)
        yield np.where(row.missing, np.nan, numbers)


def missing_monitor(words: str, env: VariedRobot) -> Iterator[Received]:
    """Of the episodes in which the imputation network is tried."""
    share, actor = (
        Range.from_value(words.partition("=")[2]),
        MissingChannelsDriver.__new__(MissingChannelsDriver),
    )
    actor._share, actor._rng, actor._ids = share, np.random.default_rng(10), CHANNELS
    for _ in range(EPISODES):
        actor._draw_missing_channels()
        yield np.where(actor._present, RECORDED, np.nan)


def imputation(words: str, env: VariedRobot) -> Iterator[Received]:
    settings = ForwardModelSettings(
        missing=Range.from_value(words.partition("=")[2]),
        imputation_batch=EPISODES,
        imputation_ticks=4,
    )
    trace = EpisodeTrace(RECORDED, np.zeros((STEPS - 1, 1), np.float32), True)
    zero, one = np.zeros(N), np.ones(N)
    batch = _ImputationBatch([trace], settings, zero, zero, one, np.random.default_rng(11))
    for missing in batch._missing:
        yield np.where(missing, np.nan, RECORDED)


User = Callable[[str, VariedRobot], Iterator[Received]]
READERS: tuple[User, ...] = (evaluation, scrambler, streams, own_episodes)
IN_PLACE: tuple[User, ...] = (*READERS, dagger_faults, monitor, teacher)
STEPPING = tuple(user for user in IN_PLACE if user is not monitor)
"""Who does nothing where no message came; the monitor's actor goes on with what it has."""


def nominal(received: Received) -> Received:
    return received[:, :N]


def share_missing(received: Received) -> float:
    return float(np.isnan(nominal(received)[-1]).mean())


def share_frozen(received: Received) -> float:
    return float((np.ptp(nominal(received), 0) == 0.0).mean())


def share_of_garbage(received: Received) -> float:
    return float((np.abs(nominal(received)[-1]) < 50.0).mean())


def ticks_late(received: Received) -> float:
    return len(received) - 1 - float(np.median(nominal(received)[-1] % 100.0))


def sd_of_jitter(received: Received) -> float:
    return float((nominal(received) - np.round(nominal(received))).std())


def sd_of_bias(received: Received) -> float:
    offsets = nominal(received) - np.round(nominal(received))
    assert np.ptp(offsets, 0).max() < 1e-3  # float32 of readings up to 2000
    return float(offsets[0].std())


def spikes(received: Received) -> np.ndarray:
    apart = nominal(received) - np.arange(len(received))[:, None]
    return apart - np.median(apart, 0)


def share_of_spikes(received: Received) -> float:
    return float((np.abs(spikes(received)) > 1e-2).mean())


def sd_of_spikes(received: Received) -> float:
    found = spikes(received)
    return float(found[np.abs(found) > 1e-2].std())


def share_of_nan(received: Received) -> float:
    return float(np.isnan(nominal(received)).mean())


def share_that_came(received: Received) -> float:
    return len(received) / STEPS


def share_repeated(received: Received) -> float:
    last = received[:, N - 1]  # of patches the step is in the last one
    return float((np.diff(last) == 0.0).mean()) if len(last) > 1 else 0.0


def frames_late(received: Received) -> float:
    seen = nominal(received)[-1, -1]
    return 100.0 + len(received) - 1.0 - float(seen)


def number_of_copies(received: Received) -> float:
    return float((received[-1, N:] >= 50.0).sum())


def number_of_noise_channels(received: Received) -> float:
    return float((np.abs(received[-1, N:]) < 50.0).sum())


def sd_of_noise(received: Received) -> float:
    return float(received[:, N:][np.abs(received[:, N:]) < 50.0].std())


MISSING = "missing=0.1..0.5"
TABLE: tuple[tuple[str, tuple[User, ...], Callable[[Received], float]], ...] = (
    (
        MISSING,
        (*IN_PLACE, compiled, patch_episodes, patch_rows, missing_monitor, imputation),
        share_missing,
    ),
    ("freeze=0..0.4", IN_PLACE, share_frozen),
    ("garbage=0..0.4", IN_PLACE, share_of_garbage),
    ("delay=0..3", IN_PLACE, ticks_late),
    ("delay=0..3", (patch_episodes, patch_rows), frames_late),
    ("jitter=0..0.1", IN_PLACE, sd_of_jitter),
    ("bias=0..0.1", IN_PLACE, sd_of_bias),
    ("spike=0.2", IN_PLACE, share_of_spikes),
    ("spike=0.2,spike-sd=20", IN_PLACE, sd_of_spikes),
    ("nan=0.1", READERS, share_of_nan),
    ("lose=0..0.5", (*STEPPING, patch_episodes, patch_rows), share_that_came),
    ("repeat=0..0.5", (*READERS, dagger_faults, monitor), share_repeated),
    ("noise=3,noise-sd=2", (*READERS, compiled), sd_of_noise),
    ("noise=0..5", READERS, number_of_noise_channels),
    ("copies=4", (*READERS, compiled), number_of_copies),
    ("copies=0..4", READERS, number_of_copies),
)
CASES = [(words, user, measure) for words, users, measure in TABLE for user in users]


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    """The largest distance between the distribution functions of two samples."""
    places = np.concatenate([one, other]) + 1e-6
    below = (np.searchsorted(np.sort(each), places) / len(each) for each in (one, other))
    first, second = below
    return float(np.abs(first - second).max())


@pytest.fixture
def robot() -> VariedRobot:
    return VariedRobot(Counting())


FOUND: dict[tuple[str, str], list[float]] = {}


def in_evaluation(
    words: str, measure: Callable[[Received], float], robot: VariedRobot
) -> list[float]:
    key = words, measure.__name__
    if key not in FOUND:
        measured = ticks_late if measure is frames_late else measure
        FOUND[key] = [measured(one) for one in evaluation(words, robot)]
    return FOUND[key]


@pytest.mark.parametrize(
    ("words", "user", "measure"), CASES, ids=[f"{w}-{u.__name__}" for w, u, _ in CASES]
)
def test_every_user_of_a_setting_draws_it_from_the_same_distribution(words, user, measure, robot):
    found = [measure(received) for received in user(words, robot)][:EPISODES]
    assert len(found) == EPISODES and np.isfinite(found).all()
    assert distance(found, in_evaluation(words, measure, robot)) < FAR


ROBOT: tuple[tuple[str, Callable[[list[float]], float]], ...] = (
    ("gain=0.2..0.9", lambda effects: effects[0]),
    ("lag=0..0.8", lambda effects: effects[0]),
    ("stop=1..3", lambda effects: effects.count(0.0)),
    ("stop=1..3", lambda effects: effects.index(0.0)),
)


@pytest.mark.parametrize("user", [dagger_faults, monitor, teacher])
@pytest.mark.parametrize(("words", "measure"), ROBOT)
def test_every_player_commands_the_same_robots_and_stops(words, measure, user, robot):
    figures = []
    for each in (evaluation, user):
        robot.unwrapped.effects.clear()
        list(each(words, robot))
        played = [one for one in robot.unwrapped.effects if len(one) == STEPS]
        figures.append([measure(one) for one in played])
    assert min(map(len, figures)) >= EPISODES // 2, "a stop cuts a teacher's episodes in two"
    assert distance(*figures) < FAR


def test_the_table_has_every_setting():
    """Shuffles are counted in other tests; mass, friction and start are the environments'."""
    words = ",".join([words for words, *_ in (*TABLE, *ROBOT)])
    named = {part.partition("=")[0] for part in words.split(",")}
    others = {"shuffle", "announced", "swap", "start", "mass", "friction"}
    assert named | others == {one.word for one in SETTINGS}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda rng: rng.integers(1, N // 4 + 1) / N,
        lambda rng: rng.binomial(N, rng.uniform(0.0, 0.25)) / N,
        lambda rng: 0.3,
    ],
    ids=["one to a quarter", "a coin for each channel", "the mean share"],
)
def test_another_meaning_of_missing_would_be_found(wrong, robot):
    rng = np.random.default_rng(0)
    found = [float(wrong(rng)) for _ in range(EPISODES)]
    assert distance(found, in_evaluation(MISSING, share_missing, robot)) > FAR
