"""The same episodes give the same returns, whichever engine plays them, with however many."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs the sim extra")
pytest.importorskip("gymnasium", reason="needs the sim extra")

from an_control.disturbance import SETTINGS, DisturbanceSettings, Range, Shuffle
from an_control.learning.evaluation.evaluate import (
    can_play_with_compiled_code,
    play_episodes,
    play_episodes_with_compiled_code,
)
from an_control.learning.import_authors import import_policy_of_authors
from an_control.learning.rollout.compiled.engine import FusedEngine
from an_control.learning.rollout.compiled.loop import ADVANCE, OBSERVE
from an_control.learning.rollout.engine import (
    EpisodeSeeds,
    draw_training_seeds,
    make_evaluation_seeds,
)
from an_control.learning.rollout.processes import DaskEngine, ProcessEngine, make_rollout_engine
from an_control.load import make_policy
from an_control.policy import AttentionSizes, MlpSizes
from an_control.policy.random_model import make_random_model
from an_control.policy.sizes import RecurrenceSizes
from an_control.policy.task import Task
from an_control.system.compiled_cache import njit
from an_control_sim.envs.tasks import CARTPOLE_TASK
from an_control_sim.gym.environments import EnvironmentBatch

from .conftest import CARTPOLE

PROTOCOLS = {
    "nominal": DisturbanceSettings(),
    "shuffled": DisturbanceSettings(shuffle=Shuffle(True)),
    "reshuffled": DisturbanceSettings(shuffle=Shuffle(True, 30)),
    "reshuffled later": DisturbanceSettings(shuffle=Shuffle(False, 40)),
    "noise": DisturbanceSettings(shuffle=Shuffle(True, 50), noise_channels=5),
    "missing": DisturbanceSettings(shuffle=Shuffle(True), missing=0.3, noise_channels=1),
    "swapped": DisturbanceSettings(
        shuffle=Shuffle(True, 20), swap=2, noise_channels=1, noise_sd=1.0
    ),
    "copied": DisturbanceSettings(shuffle=Shuffle(True, 30), copies=7, noise_channels=2),
    "copied and missing": DisturbanceSettings(copies=3, missing=0.2),
    "any share missing": DisturbanceSettings(shuffle=Shuffle(True), missing=Range(0.0, 0.7)),
}
PLAYED = {one.name for how in PROTOCOLS.values() for one in how.non_default_settings}
assert {one.name for one in SETTINGS if one.compiled} == PLAYED, "compare every compiled setting"
FORMS = {
    "authors": AttentionSizes(1, 8, 16, 32, ["value"], []),
    "wide": AttentionSizes(1, 20, 9, 12, ["value", "change"], [7], True, "softmax", "relu", "clip"),
    "change": AttentionSizes(1, 5, 16, 32, ["value", "change"], [16]),
    "stacked": AttentionSizes(1, 24, 16, 32, ["value"], [], stack=4),
    "stacked wide": AttentionSizes(
        1, 20, 9, 12, ["value"], [7], True, "softmax", "relu", "clip", stack=3, normalise=5
    ),
    "normalised": AttentionSizes(1, 8, 16, 32, ["value"], [], normalise=5),
}


@pytest.fixture(scope="module")
def starts():
    return draw_training_seeds(np.random.default_rng(3), 6)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("form", FORMS)
def test_a_compiled_episode_has_the_bits_of_one_played_step_by_step(cartpole, form, protocol):
    model = make_random_model(FORMS[form], seed=5, gain=2.0, task=CARTPOLE_TASK)
    policy = make_policy(model, engine="numba")
    what = cartpole, cartpole.unwrapped.channels, 20, 4, PROTOCOLS[protocol]
    plain, compiled = play_episodes(policy, *what), play_episodes_with_compiled_code(model, *what)
    assert [r.as_dict() for r in compiled] == [r.as_dict() for r in plain]
    assert len({result.steps for result in plain}) > 10


def test_the_authors_weights_score_what_they_published_to_the_bit(cartpole, shared):
    model = import_policy_of_authors(shared / "reference/official/cartpole_pi.npz", "cartpole_pi")
    policy = make_policy(model, engine="numba")
    what = cartpole, cartpole.unwrapped.channels, 40, 8, DisturbanceSettings(shuffle=Shuffle(True))
    plain, compiled = play_episodes(policy, *what), play_episodes_with_compiled_code(model, *what)
    assert [r.as_dict() for r in compiled] == [r.as_dict() for r in plain]
    many = play_episodes_with_compiled_code(model, cartpole, what[1], 5000, 1, what[-1])
    assert np.mean([result.total for result in many]) == pytest.approx(487.0, abs=20.0)


def test_an_ordered_policy_sees_the_shuffled_contents_in_its_own_order(cartpole):
    model = make_random_model(MlpSizes(5, 1, [16]), seed=1, gain=0.5, task=CARTPOLE_TASK)
    for protocol in PROTOCOLS.values():
        if protocol.noise_channels or protocol.copies:
            continue
        what = cartpole, cartpole.unwrapped.channels, 20, 4, protocol
        plain, compiled = (
            play_episodes(make_policy(model), *what),
            play_episodes_with_compiled_code(model, *what),
        )
        assert [r.steps for r in compiled] == [r.steps for r in plain]
        expected = [r.total for r in plain]
        assert [r.total for r in compiled] == pytest.approx(expected, abs=1e-3)


def test_all_protocols_start_from_the_same_states(fused):
    starts = make_evaluation_seeds(7, 5)
    assert starts == make_evaluation_seeds(7, 5)
    assert (
        fused.make_initial_states(starts).tobytes() == fused.make_initial_states(starts).tobytes()
    )


def test_what_cannot_be_compiled_is_played_step_by_step(cartpole):
    model = make_random_model(FORMS["authors"])
    for change in (
        {"encoder": "sab"},
        {"attention": "pma", "key": 8},
        {"recurrence": RecurrenceSizes("gru", 4)},
        {"attention": "softmax", "memory": 4},
        {"reset_on_jump": True},
    ):
        other = make_random_model(replace(FORMS["authors"], **change))
        assert not can_play_with_compiled_code(other, cartpole, PROTOCOLS["noise"])
        with pytest.raises(ValueError, match="compiled rollouts support no"):
            play_episodes_with_compiled_code(
                other, cartpole, tuple("abcde"), 1, 1, PROTOCOLS["noise"]
            )
    assert can_play_with_compiled_code(model, cartpole, PROTOCOLS["noise"])
    for settings in (
        DisturbanceSettings(freeze=0.2),
        DisturbanceSettings(delay=1),
        DisturbanceSettings(copies=Range(0, 3)),
        DisturbanceSettings(shuffle=Shuffle(True, 5), missing=0.2),
    ):
        assert not settings.is_supported_by_compiled_rollouts and not can_play_with_compiled_code(
            model, cartpole, settings
        )


def test_threads_and_processes_do_not_change_a_bit(cartpole, fused, processes, people, starts):
    disturbance = DisturbanceSettings(shuffle=Shuffle(True, 20), noise_channels=1)
    alone = FusedEngine(cartpole.unwrapped.batch, cartpole.unwrapped.channels, 1, 1)
    engines = alone, fused, processes
    one, *others = (engine.play(people, starts, disturbance) for engine in engines)
    alone.close()
    for other in others:
        assert other.returns.tobytes() == one.returns.tobytes()
        assert other.steps.tobytes() == one.steps.tobytes()


def test_one_worker_lost_of_four_changes_nothing(cartpole, people, starts, fused):
    engine = ProcessEngine(CARTPOLE, cartpole.unwrapped.channels, 4)
    try:
        engine.play(people[:4], starts[:1])
        victim = next(iter(engine._pool._processes))
        os.kill(victim, signal.SIGKILL)
        outcomes = engine.play(people, starts)
    finally:
        engine.close()
    assert outcomes.returns.tobytes() == fused.play(people, starts).returns.tobytes()


@pytest.mark.filterwarnings("ignore")
def test_dask_workers_give_the_same_numbers_and_may_be_lost(cartpole, people, starts, fused):
    pytest.importorskip("distributed", reason="needs the train extra")
    engine = DaskEngine(CARTPOLE, cartpole.unwrapped.channels, None, workers=2)
    try:
        outcomes = engine.play(people, starts)
        worker = next(iter(engine._cluster.workers.values()))
        os.kill(worker.process.pid, signal.SIGKILL)
        again = engine.play(people, starts)
    finally:
        engine.close()
    expected = fused.play(people, starts)
    assert outcomes.returns.tobytes() == expected.returns.tobytes()
    assert again.returns.tobytes() == expected.returns.tobytes()


@pytest.mark.parametrize(("workers", "expected"), [(None, 5), (3, 3)])
def test_dask_starts_a_worker_for_each_core_unless_a_number_is_asked_for(
    cartpole, monkeypatch, workers, expected
):
    monkeypatch.setattr("an_control.learning.rollout.processes.DaskEngine", lambda *words: words)
    monkeypatch.setattr("os.cpu_count", lambda: 5)
    channels, sizes = cartpole.unwrapped.channels, FORMS["authors"]
    words = make_rollout_engine("dask", cartpole, CARTPOLE, channels, sizes, workers)
    assert words == (CARTPOLE, channels, None, expected)


def test_compiled_rollouts_are_not_taken_for_policies_that_push_their_robot(cartpole):
    what = cartpole, CARTPOLE, cartpole.unwrapped.channels, FORMS["authors"], 1
    for recovery, kind in ((0.0, FusedEngine), (0.03, ProcessEngine)):
        engine = make_rollout_engine("auto", *what, recovery=recovery)
        engine.close()
        assert isinstance(engine, kind)
    with pytest.raises(
        ValueError,
        match=r"task.recovery 0.03, which pushes .*; use --engine processes",
    ):
        make_rollout_engine("fused", *what, recovery=0.03)


def test_training_and_evaluation_share_no_start():
    trained = draw_training_seeds(np.random.default_rng(0), 1000)
    evaluated = make_evaluation_seeds(0, 1000)
    assert min(s.environment for s in trained) > max(s.environment for s in evaluated)
    assert all(isinstance(start, EpisodeSeeds) for start in trained)


@njit(OBSERVE.signature, error_model="numpy", nogil=True)
def _observe_broken(state, observation):
    for b in range(state.shape[1]):
        observation[0, b] = state[0, b]
        observation[1, b] = np.nan if state[0, b] > 4.0 else 0.5


@njit(ADVANCE.signature, error_model="numpy", nogil=True)
def _advance_counter(state, action, reward, ended):
    for b in range(state.shape[1]):
        state[0, b] += 1.0
        reward[b], ended[b] = 1.0, False


@pytest.mark.parametrize("sizes", [MlpSizes(2, 1, [4]), FORMS["authors"]])
def test_a_reading_that_is_not_finite_fails_the_rollout(sizes):
    batch = EnvironmentBatch(lambda seed: np.zeros(1), _observe_broken, _advance_counter, 1, 20)
    task = Task(channels=("a", "b"), actuators=("c",))
    engine = FusedEngine(batch, ("a", "b"), 1, 1)
    outcomes = engine.play([make_random_model(sizes, seed=1, task=task)], [EpisodeSeeds(1, 1, 0)])
    engine.close()
    assert np.isnan(outcomes.returns).all() and outcomes.failure is not None


def test_an_mlp_of_other_channels_is_refused(fused):
    with pytest.raises(ValueError, match="an MLP with 28 inputs cannot act on 5 channels"):
        task = Task(channels=tuple(str(i) for i in range(28)), actuators=("a",))
        fused.play(
            [make_random_model(MlpSizes(28, 1, [4]), seed=1, task=task)], [EpisodeSeeds(1, 1, 0)]
        )


def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    program = (
        "import sys, time\n"
        "from an_control.learning.rollout.processes import ProcessEngine\n"
        "if __name__ == '__main__':\n"
        "    engine = ProcessEngine('CartPole-v1', ['a', 'b', 'c', 'd'], 1)\n"
        "    worker = engine._pool.submit(time.sleep, 0)\n"
        "    worker.result()\n"
        "    print(*engine._pool._processes, flush=True)\n"
        "    time.sleep(60)\n"
    )
    (tmp_path / "start.py").write_text(program)
    command = [sys.executable, str(tmp_path / "start.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        worker = int(process.stdout.readline())
        assert runs(worker)
        process.kill()
    until_s = time.monotonic() + 100.0
    while runs(worker) and time.monotonic() < until_s:
        time.sleep(0.05)
    assert not runs(worker)


def runs(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
